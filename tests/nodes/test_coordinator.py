"""The coordinator over a real store, with nobody at the other end of its link but the test."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from dataclasses import replace

import pytest

from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.errors import InvalidUrl, NotFound, UsageError
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import (
    AssignRepos,
    Excused,
    Failed,
    Held,
    HeldRepo,
    HostState,
    Progress,
    Refused,
    ReleaseRepos,
    Started,
    Synced,
    SyncNow,
    Verified,
    WorkerStatus,
)
from evermirror.model.refs import Oid, RefChange, RefsDigest, RefSnapshot
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from evermirror.model.url import UrlRules
from evermirror.nodes import coordinator as module
from evermirror.nodes.coordinator import ASSIGN_CHUNK, DAY_S, TASKS_KEPT_S, Coordinator
from evermirror.nodes.link import Link
from evermirror.nodes.service import AddStatus, Holder, PollPlan, RepoFilter, TaskParams

URL = "https://github.com/owner/name"
KEY = RepoKey("github.com/owner/name")
T0 = 1_700_000_000.0
DIGEST = RefsDigest("d" * 64)
TIP = Oid("a" * 40)
SILENT = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")


class Wire(Link):
    """A link that remembers what was sent, with what the store held at that moment."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.sent = []
        self.stored = []

    async def command(self, command):
        match command:
            case AssignRepos():
                keys = [s.key for s in command.repos]
                self.stored.append([(await self.store.find_repo(k)).spec for k in keys[:3]])
            case ReleaseRepos():
                self.stored.append([await self.store.find_repo(k) for k in command.keys])
            case SyncNow():
                self.stored.append(await self.store.get_task(command.task_id))
        self.sent.append(command)

    def take(self):
        sent, self.sent = self.sent, []
        self.stored = []
        return sent


class View:
    def plan(self, key):
        return PollPlan(T0 + 60, f"plan of {key}", 600.0, T0)

    async def refs(self, key):
        return RefSnapshot({f"refs/heads/{key[-1]}": TIP}, None)


class Clock:
    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


class House:
    def __init__(self, store, recorder):
        self.store, self.recorder, self.clock = store, recorder, Clock()
        self.observed = []
        self.begin()

    def begin(self):
        """A coordinator that knows nothing but what is stored."""
        self.wire = Wire(self.store)
        self.it = Coordinator(
            store=self.store,
            recorder=self.recorder,
            port=self.wire,
            worker=View(),
            worker_name="here",
            rules=UrlRules(),
            credentials=frozenset({"corp"}),
            fresh_bound_s=600.0,
            clock=self.clock,
            observe=self.observed.append,
        )

    async def add(self, url=URL, **info):
        return await self.it.add_url(url, info, actor="me")

    async def submit(self, which=URL, *, may_add=False, trigger=Trigger.API, **params):
        return await self.it.submit_task(
            which, TaskParams(**params), trigger=trigger, actor="me", may_add=may_add
        )

    async def take(self, *reports):
        for report in reports:
            await self.it.take(report)
        await self.recorder.flush()

    async def repo(self, which=KEY):
        return await self.it.find_repo(which)


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory):
    """Migrated once and copied: a quarter of a second less for each test."""
    file = tmp_path_factory.mktemp("empty") / "db"

    async def make():
        store = await Store.open(f"sqlite:///{file}")
        await store.backup(file.with_suffix(".copy"))
        await store.close()

    asyncio.run(make())
    return file.with_suffix(".copy")


@pytest.fixture
async def house(tmp_path, empty_database):
    shutil.copy(empty_database, tmp_path / "db")
    store = await Store.open(f"sqlite:///{tmp_path / 'db'}")
    try:
        async with Recorder(store, flush_s=0.01) as recorder:
            yield House(store, recorder)
    finally:
        await store.close()


def synced(*task_ids, key=KEY, moved=True, at=T0 + 10, first=False):
    changes = (RefChange("refs/heads/main", None, TIP),) if moved else ()
    return Synced(
        key, task_ids, DIGEST, TIP, 1, changes, len(changes), len(changes), 1000, 2000, first,
        at - 2, at - 1, at, Activity((1.0, 1.0, 1.0), at, at - 5),
    )  # fmt: skip


def failed(*task_ids, key=KEY, failure=SILENT, counted=True, failures=1, at=T0 + 10):
    return Failed(key, task_ids, failure, counted, failures, at - 1, at, at + 60)


def refused(*task_ids, key=KEY):
    return Refused(key, task_ids, Failure(FailureKind.NOT_FOUND, "not that one"), T0, T0 + 1)


def worker_status(**more):
    values = {
        "repos": 1, "polls_total": 7, "polls_per_second": 1.5, "changes_total": 3,
        "received_bytes_total": 99, "running": (), "queued_syncs": 2,
        "hosts": (HostState("h", 1, "waiting", T0 + 5, "asked"),), "disk_free_bytes": 10,
        "disk_total_bytes": 100, "accepting_clones": True, "warnings": ("of the worker",), "at": T0,
    }  # fmt: skip
    return WorkerStatus(**values | more)


def records(count):
    return [
        RepoRecord(RepoSpec(RepoKey(f"h.org/o/r{n:05}"), f"https://h.org/o/r{n:05}", Host("h.org")))
        for n in range(count)
    ]


# Repos


async def test_a_url_is_added_then_exists_then_is_updated(house):
    status, record = await house.add(team="kernel")
    assert (status, record.key, record.status) == (AddStatus.ADDED, KEY, RepoStatus.PENDING)
    assert record.created_at > 0
    assert house.wire.take() == [AssignRepos((record.spec,))]
    assert (await house.add(team="kernel"))[0] is AddStatus.EXISTS
    assert (await house.add(URL + ".git"))[0] is AddStatus.EXISTS
    assert house.wire.take() == []
    status, record = await house.add(priority="high", interval="10m")
    assert (status, record.spec.priority, record.spec.interval_s) == (AddStatus.UPDATED, Priority.HIGH, 600.0)
    assert dict(record.info) == {"team": "kernel", "priority": "high", "interval": "10m"}
    assert house.wire.take() == [AssignRepos((record.spec,))]
    audit = [(a.actor, a.action, a.subject) for a in await house.store.list_audit(10)]
    assert audit == [("me", "repo.updated", KEY), ("me", "repo.added", KEY)]


async def test_an_assignment_and_a_task_are_stored_before_they_are_sent(house):
    _, record = await house.add()
    assert house.wire.stored == [[record.spec]]
    await house.add(priority="low")
    assert house.wire.stored[-1][0].priority is Priority.LOW
    task = await house.submit()
    assert house.wire.stored[-1] == task
    await house.it.remove_repo(URL, actor="me")
    assert house.wire.stored[-1] == [None]
    assert [type(c) for c in house.wire.sent] == [AssignRepos, AssignRepos, SyncNow, ReleaseRepos]


async def test_what_cannot_be_stored_is_not_sent(house, monkeypatch):
    async def fails(*args, **more):
        raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))

    await house.add()
    house.wire.take()
    monkeypatch.setattr(house.store, "upsert_repos", fails)
    monkeypatch.setattr(house.store, "create_task", fails)
    for doing in (house.add(priority="high"), house.add("https://github.com/o/other"), house.submit()):
        with pytest.raises(FailureError):
            await doing
    assert house.wire.take() == []
    monkeypatch.undo()
    assert (await house.submit()).status is TaskStatus.PENDING
    assert len(house.wire.take()) == 1


async def test_a_refused_url_or_info_changes_nothing(house):
    for url in ("nonsense", "https://", "file:///etc/passwd", "https://127.0.0.1/x/y"):
        with pytest.raises(InvalidUrl):
            await house.add(url)
    with pytest.raises(UsageError):
        await house.add(priority="urgent")
    with pytest.raises(UsageError):
        await house.add(credential="unknown")
    assert await house.it.list_repos(RepoFilter()) == ()
    assert house.wire.take() == []
    assert await house.store.list_audit(10) == ()


@pytest.mark.parametrize(
    "which",
    [
        URL, URL + ".git", URL + "/", "https://GitHub.com/owner/name", "http://github.com:80/owner/name",
        KEY, KEY + ".git", KEY + "/", "kernel/linux",
    ],
)  # fmt: skip
async def test_a_repo_is_found_by_url_key_and_alias_in_every_spelling(house, which):
    house.it._rules = UrlRules(schemes=frozenset({"http", "https"}))
    await house.add(alias="kernel/linux")
    assert (await house.repo(which)).key == KEY
    assert (await house.submit(which)).repo == KEY


@pytest.mark.parametrize("which", ["github.com/owner/other", "https://github.com/owner/other", "", "/", "\0"])
async def test_an_unknown_repo_is_not_found_and_told_how_to_add_it(house, which):
    await house.add()
    for asking in (
        house.it.find_repo(which),
        house.it.list_tasks(which, 5),
        house.it.plan(which),
        house.it.refs(which),
        house.it.holders(which),
        house.it.remove_repo(which, actor="me"),
        house.submit(which),
    ):
        with pytest.raises(NotFound) as told:
            await asking
        assert "evermirror add" in told.value.hint


async def test_a_removed_repo_is_released_with_its_mirror_and_can_come_back(house):
    await house.add()
    await house.take(synced())
    house.wire.take()
    assert (await house.it.remove_repo(KEY, actor="me")).key == KEY
    assert house.wire.take() == [ReleaseRepos((KEY,), delete=True)]
    with pytest.raises(NotFound):
        await house.repo()
    assert [a.action for a in await house.store.list_audit(1)] == ["repo.removed"]
    assert (await house.add())[0] is AddStatus.ADDED
    assert len(house.wire.take()) == 1
    assert (await house.repo()).key == KEY


async def test_a_repo_that_is_disabled_is_taken_from_the_worker_and_its_mirror_stays(house):
    await house.add()
    house.wire.take()
    await house.add(enabled=False)
    assert house.wire.take() == [ReleaseRepos((KEY,), delete=False)]
    assert (await house.repo()).status is RepoStatus.INACTIVE
    with pytest.raises(UsageError, match="disabled"):
        await house.submit()
    await house.add(enabled=True)
    assert [type(c) for c in house.wire.take()] == [AssignRepos]


# Tasks


async def test_a_task_goes_to_the_worker_with_what_was_asked(house):
    await house.add()
    house.wire.take()
    task = await house.submit(min_commit="b" * 40, force=True, trigger=Trigger.MANUAL)
    assert house.wire.take() == [SyncNow(KEY, task.id, True, Oid("b" * 40))]
    assert (task.status, task.trigger, task.user) == (TaskStatus.PENDING, Trigger.MANUAL, "me")
    assert await house.it.list_tasks(KEY, 10) == (task,)


async def test_tasks_that_ask_the_same_merge_until_their_poll_begins(house):
    await house.add()
    house.wire.take()
    first = await house.submit()
    assert (await house.submit()).id == first.id
    assert (await house.submit()).id == first.id
    assert len(house.wire.take()) == 1
    await house.take(Started(KEY, (first.id,), T0))
    second = await house.submit()  # the poll under way may have looked too early
    assert second.id != first.id
    assert (await house.submit()).id == second.id
    assert [c.task_id for c in house.wire.take()] == [second.id]


async def test_tasks_that_ask_for_something_else_or_of_another_repo_do_not_merge(house):
    await house.add()
    await house.add("https://github.com/owner/other")
    house.wire.take()
    asked = [
        await house.submit(),
        await house.submit(force=True),
        await house.submit(min_commit="b" * 40),
        await house.submit(min_commit="c" * 40),
        await house.submit("https://github.com/owner/other"),
    ]
    assert len({t.id for t in asked}) == 5
    assert [c.task_id for c in house.wire.take()] == [t.id for t in asked]


async def test_a_round_of_others_does_not_end_the_merging(house):
    await house.add()
    task = await house.submit()
    await house.take(Started(KEY, (), T0), synced(at=T0 + 1))
    assert (await house.submit()).id == task.id


@pytest.mark.parametrize("report", [synced, failed, refused])
async def test_nobody_is_merged_with_a_task_that_has_ended(house, report):
    """Also where its end came without a beginning: refused, or dropped with its repo."""
    await house.add()
    first = await house.submit()
    await house.take(report(first.id))
    assert (await house.it.get_task(first.id)).status.ended
    second = await house.submit()
    assert second.id != first.id
    assert house.wire.sent[-1].task_id == second.id


async def test_a_url_that_is_not_in_the_catalog_is_added_only_for_those_who_may(house):
    with pytest.raises(NotFound):
        await house.submit()
    with pytest.raises(NotFound):
        await house.submit(KEY, may_add=True)  # a key says nothing of the scheme
    assert house.wire.take() == []
    task = await house.submit(may_add=True)
    assert [type(c) for c in house.wire.take()] == [AssignRepos, SyncNow]
    assert task.repo == KEY
    assert [a.action for a in await house.store.list_audit(1)] == ["repo.added"]


async def started_waiting(house, task, wait_s=20.0):
    waiting = asyncio.create_task(house.it.wait_task(task.id, wait_s))
    while task.id not in house.it._ended:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    return waiting


@pytest.mark.parametrize(
    ("report", "status"),
    [
        (synced, TaskStatus.SUCCESS),
        (lambda i: synced(i, moved=False), TaskStatus.SKIPPED),
        (failed, TaskStatus.FAILED),
        (refused, TaskStatus.FAILED),
    ],
)
async def test_who_waits_is_answered_by_the_end_of_the_task(house, report, status):
    await house.add()
    task = await house.submit()
    waiting = await started_waiting(house, task)
    await house.it.take(report(task.id))
    async with asyncio.timeout(5):
        assert (await waiting).status is status
    assert house.it._ended == {}
    assert (await house.it.wait_task(task.id, 20)).status is status  # one that has ended waits for nothing


async def test_who_waits_too_short_gets_the_task_as_it_is(house):
    await house.add()
    task = await house.it.wait_task((await house.submit()).id, 0.05)
    assert task.status is TaskStatus.PENDING
    await house.take(Started(KEY, (task.id,), T0), Progress(KEY, (task.id,), "receiving", 40.0, 9, T0))
    task = await house.it.wait_task(task.id, 0.05)
    assert (task.status, task.progress_percent, task.progress_phase) == (
        TaskStatus.RUNNING,
        40.0,
        "receiving",
    )
    assert house.it._ended == {}


async def test_waiting_is_bounded_whatever_is_asked(house, monkeypatch):
    monkeypatch.setattr(module, "WAIT_MAX_S", 0.05)
    await house.add()
    task = await house.submit()
    async with asyncio.timeout(5):
        assert (await house.it.wait_task(task.id, 1e9)).status is TaskStatus.PENDING


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(house):
    await house.add()
    task = await house.submit()
    patient = await started_waiting(house, task)
    await house.it.wait_task(task.id, 0.05)  # gives up
    await house.it.take(synced(task.id))
    async with asyncio.timeout(5):
        assert (await patient).status is TaskStatus.SUCCESS


async def test_one_who_hangs_up_does_not_take_the_answer_from_the_others(house):
    await house.add()
    task = await house.submit()
    patient = await started_waiting(house, task)
    other = asyncio.create_task(house.it.wait_task(task.id, 20))
    await asyncio.sleep(0.05)
    other.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await other
    await house.it.take(failed(task.id))
    async with asyncio.timeout(5):
        assert (await patient).status is TaskStatus.FAILED


async def test_waiting_for_a_task_that_is_not_there_is_not_found_and_leaves_nothing(house):
    with pytest.raises(NotFound):
        await house.it.wait_task(77, 5)
    with pytest.raises(NotFound):
        await house.it.get_task(77)
    assert house.it._ended == {}


async def test_all_callers_of_one_round_get_its_end_and_each_refusal_is_its_own(house):
    await house.add()
    one, two = await house.submit(), await house.submit(min_commit="b" * 40)
    await house.take(Started(KEY, (one.id, two.id), T0), synced(one.id), refused(two.id))
    assert (await house.it.get_task(one.id)).status is TaskStatus.SUCCESS
    ended = await house.it.get_task(two.id)
    assert (ended.status, ended.failure.message) == (TaskStatus.FAILED, "not that one")
    record = await house.repo()
    assert (record.status, record.consecutive_failures) == (RepoStatus.ACTIVE, 0)


async def test_progress_is_shown_live_and_forgotten_at_the_end(house):
    await house.add()
    task = await house.submit()
    await house.take(Started(KEY, (task.id,), T0), Progress(KEY, (task.id,), "receiving", 12.5, 9, T0))
    assert (await house.it.get_task(task.id)).progress_percent == 12.5
    await house.take(synced(task.id))
    assert (await house.it.get_task(task.id)).progress_percent is None
    assert house.it._progress == {}


# Start


async def test_a_start_assigns_the_catalog_in_chunks_and_sends_unfinished_tasks_again(house):
    every = records(2 * ASSIGN_CHUNK + 7)
    every[5] = replace(every[5], enabled=False)
    await house.store.upsert_repos(every)
    keys = [r.key for r in every]
    waiting = await house.store.create_task(keys[0], Trigger.API, params={"force": True, "min_commit": TIP})
    running = await house.store.create_task(keys[1], Trigger.API, params=None)
    ended = await house.store.create_task(keys[2], Trigger.API, params={})
    await house.take(Started(keys[1], (running.id,), T0), synced(ended.id, key=keys[2]))
    house.begin()
    assert house.it.ready() == (False, "the catalog is being loaded")
    await house.it.resume()
    assert house.it.ready() == (True, "ready")
    assigns = [c for c in house.wire.sent if isinstance(c, AssignRepos)]
    assert max(len(c.repos) for c in assigns) <= ASSIGN_CHUNK
    assert [s.key for c in assigns for s in c.repos] == [k for k in keys if k != keys[5]]
    assert [c.more for c in assigns] == [True] * (len(assigns) - 1) + [False]
    known = {s.key: a for c in assigns for s, a in zip(c.repos, c.activities, strict=True)}
    assert known[keys[2]] == synced().activity
    tasks = house.wire.sent[len(assigns) :]
    assert tasks == [SyncNow(keys[0], waiting.id, True, TIP), SyncNow(keys[1], running.id, False, None)]


async def test_a_start_with_nothing_is_ready_at_once(house):
    await house.it.resume()
    assert house.wire.sent == [AssignRepos(())]
    assert house.it.ready()[0]


async def test_a_database_in_trouble_is_not_ready(house):
    await house.it.resume()
    house.recorder._trouble = Failure(FailureKind.DISK_FULL, "full")
    assert house.it.ready() == (False, "the database does not take writes")
    house.recorder._trouble = None
    assert house.it.ready()[0]


# Reports


async def test_a_sync_is_remembered_and_counted(house):
    await house.add()
    await house.take(synced(first=True), Verified(((KEY, T0 + 50),)))
    record = await house.repo()
    assert (record.status, record.digest, record.head_commit) == (RepoStatus.ACTIVE, DIGEST, TIP)
    assert (record.verified_at, record.changed_at) == (T0 + 50, T0 + 10)
    assert [type(r) for r in house.observed] == [Synced, Verified]
    assert [t.trigger for t in await house.it.list_tasks(KEY, 5)] == [Trigger.SCHEDULE]
    assert await house.it.holders(KEY) == (Holder("here", True, DIGEST, T0 + 50),)


async def test_a_failure_that_turned_out_to_be_weather_is_taken_back(house):
    other = "https://github.com/owner/other"
    await house.add()
    await house.add(other)
    await house.take(synced(at=T0), failed(at=T0 + 10), failed(key=RepoKey("github.com/owner/other")))
    assert (await house.repo()).status is RepoStatus.FAILING
    await house.take(Excused((KEY, RepoKey("github.com/owner/other"))))
    mirrored, new = await house.repo(), await house.repo(other)
    assert (mirrored.status, mirrored.consecutive_failures) == (RepoStatus.ACTIVE, 0)
    assert (new.status, new.consecutive_failures) == (RepoStatus.PENDING, 0)
    overview = await house.it.overview()
    assert (overview.by_status["active"], overview.by_status["pending"]) == (1, 1)


async def test_one_of_several_failures_taken_back_leaves_the_rest(house):
    await house.add()
    gone = Failure(FailureKind.NOT_FOUND, "404")
    await house.take(failed(failure=gone, failures=1), failed(failures=2), Excused((KEY,)))
    assert (await house.repo()).consecutive_failures == 1
    await house.take(Excused((KEY,)), Excused((KEY,)), Excused(("no/such/repo",)))
    assert (await house.repo()).consecutive_failures == 0


async def test_weather_changes_no_status(house):
    await house.add()
    await house.take(synced(at=T0), failed(counted=False, failures=0))
    record = await house.repo()
    assert (record.status, record.consecutive_failures) == (RepoStatus.ACTIVE, 0)
    assert record.last_failure == SILENT


async def test_what_a_worker_holds_makes_its_repos_active_and_older_news_changes_nothing(house):
    await house.add()
    await house.take(Held((HeldRepo(KEY, DIGEST, T0 + 5), HeldRepo("h/unknown", DIGEST, T0)), last=True))
    record = await house.repo()
    assert (record.status, record.digest, record.verified_at) == (RepoStatus.ACTIVE, DIGEST, T0 + 5)
    await house.take(Held((HeldRepo(KEY, RefsDigest("e" * 64), T0),), last=True))
    await house.take(Held((HeldRepo(KEY, None, None),), last=True))
    assert (await house.repo()).digest == DIGEST


async def test_reports_about_repos_and_tasks_that_are_not_there_are_harmless(house):
    await house.add()
    unknown = RepoKey("no/such/repo")
    await house.take(
        synced(901, key=unknown), failed(902, key=unknown), refused(903, key=unknown),
        Started(unknown, (904,), T0), Progress(unknown, (905,), "x", 1.0, 1, T0), Verified(((unknown, T0),)),
    )  # fmt: skip
    assert len(await house.it.list_repos(RepoFilter())) == 1


async def test_reports_are_taken_from_the_link_in_their_order(house):
    await house.add()
    running = asyncio.create_task(house.it.run())
    task = await house.submit()
    waiting = await started_waiting(house, task)
    for report in (Started(KEY, (task.id,), T0), failed(failures=1), synced(task.id)):
        await house.wire.report(report)
    async with asyncio.timeout(5):
        assert (await waiting).status is TaskStatus.SUCCESS
    assert (await house.repo()).status is RepoStatus.ACTIVE
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


# What is known


async def test_the_overview_shows_the_workers_latest_status_and_every_warning(house):
    house.it.add_warnings(lambda: ("of the catalog",))
    before = await house.it.overview()
    assert (before.polls_total, before.accepting_clones, before.worst_lag_s) == (0, False, None)
    assert before.warnings == ("of the catalog",)
    await house.add()
    await house.add("https://github.com/owner/other", priority="high")
    await house.take(Verified(((KEY, T0 - 100),)), worker_status(), worker_status(polls_total=8))
    told = await house.it.overview()
    assert (told.polls_total, told.polls_per_second, told.changes_total) == (8, 1.5, 3)
    assert (told.received_bytes_total, told.queued_syncs, told.disk_free_bytes) == (99, 2, 10)
    assert (told.disk_total_bytes, told.accepting_clones) == (100, True)
    assert told.hosts == worker_status().hosts
    assert told.warnings == ("of the worker", "of the catalog")
    assert (told.total_repos, told.fresh_repos, told.worst_lag_s) == (2, 1, 100.0)
    assert told.by_priority == {"critical": 0, "high": 1, "normal": 1, "low": 0} or told.by_priority == {
        "high": 1,
        "normal": 1,
    }
    assert (told.started_at, told.now) == (T0, T0)


async def test_the_overview_is_counted_at_most_once_a_second(house):
    first = await house.it.overview()
    await house.add()
    assert await house.it.overview() is first
    house.clock.now += 1.0
    assert (await house.it.overview()).total_repos == 1


async def test_refs_and_plan_come_from_the_worker(house):
    await house.add()
    assert (await house.it.plan(URL)).reason == f"plan of {KEY}"
    assert (await house.it.refs(KEY)).refs == {"refs/heads/e": TIP}
    assert await house.it.holders(KEY) == ()


async def test_old_tasks_are_removed_and_open_and_young_ones_stay(house, monkeypatch):
    pauses = asyncio.Queue()

    async def sleep(seconds):
        await pauses.put(seconds)
        await asyncio.Event().wait()

    await house.add()
    old, young, waiting = [await house.store.create_task(KEY, Trigger.API, params={"n": n}) for n in range(3)]
    await house.take(synced(old.id, at=T0), synced(young.id, at=T0 + 2 * DAY_S))
    house.clock.now = T0 + TASKS_KEPT_S + DAY_S
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    keeping = asyncio.create_task(house.it.keep_house())
    assert await pauses.get() == DAY_S
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert {t.id for t in await house.it.list_tasks(KEY, 10)} == {young.id, waiting.id}
