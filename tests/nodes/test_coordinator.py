"""The coordinator and its fleet over a real store, with nobody at the other end but a scripted worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import asdict, replace

import pytest

from evermirror.core.fleet import draft
from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import Assign, Other, Release
from evermirror.core.fleet.events import Moment
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Identity, PeerGone
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.errors import InvalidUrl, NotFound, UsageError
from evermirror.model.access import Role
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import (
    AssignRepos,
    Excused,
    Failed,
    HeldRepo,
    HostState,
    Kept,
    LookAt,
    Progress,
    Refused,
    Released,
    ReleaseRepos,
    RunningSync,
    Started,
    Synced,
    SyncNow,
    Verified,
    WorkerStatus,
)
from evermirror.model.refs import Oid, RefChange, RefsDigest
from evermirror.model.relay import NodeId, Source
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from evermirror.model.url import UrlRules
from evermirror.model.whole import ClassFreshness
from evermirror.model.wire import (
    PROTOCOL,
    Answer,
    Beat,
    Hello,
    Holding,
    Numbered,
    Obeyed,
    Ordered,
    Passing,
    Question,
    Taken,
    Welcomed,
)
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.fleet import OWN_TOKEN, Fleet
from evermirror.nodes.coordinator.orders import Orders
from evermirror.nodes.coordinator.tasks import tasks as tasks_module
from evermirror.nodes.coordinator.tasks.task_given import AHEAD_MAX
from evermirror.nodes.service import AddStatus, PollPlan, RepoFilter, Running, TaskParams

URL = "https://github.com/owner/name"
KEY = RepoKey("github.com/owner/name")
OTHER = "https://github.com/owner/other"
OTHER_KEY = RepoKey("github.com/owner/other")
T0 = 1_700_000_000.0
DIGEST = RefsDigest("d" * 64)
TIP = Oid("a" * 40)
SILENT = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")


class NotingOrders(Orders):
    """Notes what the store has at the moment at which a command is sent."""

    def __init__(self, store):
        super().__init__(
            store,
            lambda _, holder, key: Source(key, NodeId(f"worker/{holder}")),
            lambda _: None,
            lambda key, worker: True,
            lambda key: None,
            lambda worker: True,
        )
        self.store = store
        self.stored = []

    async def ordered(self, worker, seq, command):
        match command:
            case Assign(items=items):
                self.stored.append([(await self.store.find_repo(i.key)).spec for i in items[:3]])
            case Release(keys=keys):
                self.stored.append([await self.store.find_repo(k) for k in keys])
            case Other(command=SyncNow(task_id=task_id)):
                self.stored.append(await self.store.get_task(task_id))
        return await super().ordered(worker, seq, command)


class ScriptedWorker:
    """Says what the test wants, and keeps what it is told; what people ask it, it answers."""

    protocol = PROTOCOL

    def __init__(self, name="here"):
        self.name = name
        self.sent = []
        self.said = self.taken = 0
        self.connection = None

    async def join(self, server, token=OWN_TOKEN, holds=(), trusted=True):
        identity = Identity(token, self.name, Role.WORKER, trusted=trusted)
        self.connection = await server.dialer(identity).dial()
        await self.connection.send(Hello(self.protocol, "1", self.name, boot=id(self), generation=1))
        assert isinstance(await self.connection.receive(), Welcomed)
        self.said = self.taken = (await self.connection.receive()).seq
        self.listening = asyncio.create_task(self._listen())
        await self.connection.send(Holding(tuple(holds), last=True))

    async def leave(self):
        await self.connection.close()
        await asyncio.gather(self.listening, return_exceptions=True)

    async def _listen(self):
        with contextlib.suppress(PeerGone):
            while True:
                match await self.connection.receive():
                    case Ordered(seq, command):
                        self.sent.append(command)
                        await self.connection.send(Obeyed(seq))
                    case Taken(_, seq):
                        self.taken = seq
                    case Question(number, what, key):
                        await self.connection.send(Answer(number, json.dumps(self.answer(what, key))))

    def answer(self, what, key):
        if what == "plan":
            return asdict(PollPlan(T0 + 60, f"plan of {key}", 600.0, T0))
        return {"head": None, "refs": {f"refs/heads/{key[-1]}": TIP}}

    async def say(self, *reports):
        """Told, and acknowledged."""
        for report in reports:
            match report:
                case Progress():
                    await self.connection.send(Passing((report,)))
                case WorkerStatus():
                    await self.connection.send(Beat(report))
                case _:
                    self.said += 1
                    await self.connection.send(Numbered(1, self.said, (report,)))
        async with asyncio.timeout(10):
            while self.taken < self.said:
                await asyncio.sleep(0.002)


class Clock:
    def __init__(self):
        self.now = T0

    def __call__(self):
        return self.now


class House:
    def __init__(self, store, recorder):
        self.store, self.recorder, self.clock = store, recorder, Clock()
        self.observed = []

    @contextlib.asynccontextmanager
    async def running(self, holds=()):
        """A coordinator that knows nothing but what is stored, and one worker."""
        self.it = Coordinator(
            store=self.store,
            recorder=self.recorder,
            rules=UrlRules(),
            credentials=frozenset({"corp"}),
            fresh_bound_s=600.0,
            clock=self.clock,
            observe=self.observed.append,
        )
        settings = FleetSettings(warm_up_s=0.0, tick_s=0.01)
        restored = await self.store.load_fleet()
        machine = FleetMachine(
            settings, await self.store.next_epoch(), Moment(time.monotonic(), T0), restored
        )
        self.orders = NotingOrders(self.store)
        bound = await self.store.bound_tokens()
        self.fleet = Fleet(
            machine,
            recorder=self.recorder,
            orders=self.orders,
            bound=bound,
            listener=self.it,
            utc=self.clock,
        )
        self.it.lead(self.fleet)
        await self.furnish()
        self.worker = ScriptedWorker()
        work = asyncio.create_task(self.fleet.run())
        try:
            async with InProcessServer(self.fleet.serve) as self.server:
                await self.worker.join(self.server, holds=holds)
                while machine.totals().warming:
                    await asyncio.sleep(0.002)
                await self.told()
                yield self
                await self.worker.leave()
            assert not work.done(), work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def furnish(self):
        """What else a house has, before anybody joins."""

    async def told(self):
        """Until the worker was heard, and has heard everything that was decided: an answer comes after."""
        (worker,) = self.fleet.connected()
        for _ in range(2):
            await self.fleet.settled()
            await self.fleet.ask(worker, "plan", KEY, 10)

    async def commands(self):
        """What the worker was told since the last time."""
        await self.told()
        sent, self.worker.sent = self.worker.sent, []
        return sent

    async def add(self, url=URL, **info):
        return await self.it.add_url(url, info, actor="me")

    async def submit(self, which=URL, *, may_add=False, trigger=Trigger.API, **params):
        return await self.it.submit_task(
            which, TaskParams(**params), trigger=trigger, actor="me", may_add=may_add
        )

    async def take(self, *reports):
        await self.worker.say(*reports)
        await self.told()

    async def repo(self, which=KEY):
        return await self.it.find_repo(which)


@pytest.fixture
async def empty_house(tmp_path):
    """Nobody is there yet."""
    store = await Store.open(f"sqlite:///{tmp_path / 'db'}")
    try:
        async with Recorder(store, flush_s=0.01) as recorder:
            yield House(store, recorder)
    finally:
        await store.close()


@pytest.fixture
async def house(empty_house):
    async with empty_house.running():
        yield empty_house


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
    assert [c.repos for c in await house.commands()] == [(record.spec,)]
    assert (await house.add(team="kernel"))[0] is AddStatus.EXISTS
    assert (await house.add(URL + ".git"))[0] is AddStatus.EXISTS
    assert await house.commands() == []
    status, record = await house.add(priority="high", interval="10m")
    assert (status, record.spec.priority, record.spec.interval_s) == (AddStatus.UPDATED, Priority.HIGH, 600.0)
    assert dict(record.info) == {"team": "kernel", "priority": "high", "interval": "10m"}
    assert [c.repos for c in await house.commands()] == [(record.spec,)]
    audit = [(a.actor, a.action, a.subject) for a in await house.store.list_audit(10)]
    assert audit == [("me", "repo.updated", KEY), ("me", "repo.added", KEY)]


async def test_an_assignment_and_a_task_are_stored_before_they_are_sent(house):
    _, record = await house.add()
    await house.told()
    assert house.orders.stored == [[record.spec]]
    await house.add(priority="low")
    await house.told()
    assert house.orders.stored[-1][0].priority is Priority.LOW
    task = await house.submit()
    await house.told()
    assert house.orders.stored[-1] == task
    await house.it.remove_repo(URL, actor="me")
    sent = await house.commands()
    assert house.orders.stored[-1] == [None]
    assert [type(c) for c in sent] == [AssignRepos, AssignRepos, SyncNow, ReleaseRepos]


async def test_what_cannot_be_stored_is_not_sent(house, monkeypatch):
    async def fails(*args, **more):
        raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))

    await house.add()
    await house.commands()
    monkeypatch.setattr(house.store, "upsert_repos", fails)
    monkeypatch.setattr(house.store, "create_task", fails)
    for doing in (house.add(priority="high"), house.add("https://github.com/o/other"), house.submit()):
        with pytest.raises(FailureError):
            await doing
    assert await house.commands() == []
    monkeypatch.undo()
    assert (await house.submit()).status is TaskStatus.PENDING
    assert len(await house.commands()) == 1


async def test_a_refused_url_or_info_changes_nothing(house):
    for url in ("nonsense", "https://", "file:///etc/passwd", "https://127.0.0.1/x/y"):
        with pytest.raises(InvalidUrl):
            await house.add(url)
    with pytest.raises(UsageError):
        await house.add(priority="urgent")
    with pytest.raises(UsageError):
        await house.add(credential="unknown")
    assert await house.it.list_repos(RepoFilter()) == ()
    assert await house.commands() == []
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


@pytest.mark.parametrize("which", ["github.com/owner/other", OTHER, "", "/", "\0"])
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
    await house.commands()
    assert (await house.it.remove_repo(KEY, actor="me")).key == KEY
    assert await house.commands() == [ReleaseRepos((KEY,), delete=True, digests=(0,))]
    with pytest.raises(NotFound):
        await house.repo()
    assert [a.action for a in await house.store.list_audit(1)] == ["repo.removed"]
    assert (await house.add())[0] is AddStatus.ADDED
    assert await house.commands() == []  # first it is to be gone
    await house.take(Released((KEY,)))
    assert [type(c) for c in await house.commands()] == [AssignRepos]
    assert (await house.repo()).key == KEY


async def test_a_repo_that_is_disabled_stays_with_its_worker_and_is_not_looked_at(house):
    await house.add()
    await house.commands()
    await house.add(enabled=False)
    assert [(type(c), c.paused) for c in await house.commands()] == [(AssignRepos, {KEY})]
    assert (await house.repo()).status is RepoStatus.INACTIVE
    with pytest.raises(UsageError, match="paused"):
        await house.submit()
    await house.add(enabled=True)
    assert [(type(c), c.paused) for c in await house.commands()] == [(AssignRepos, set())]


# Tasks


async def test_a_task_goes_to_the_worker_with_what_was_asked(house):
    await house.add()
    await house.commands()
    task = await house.submit(min_commit="b" * 40, force=True, trigger=Trigger.MANUAL)
    assert await house.commands() == [SyncNow(KEY, task.id, True, Oid("b" * 40))]
    assert (task.status, task.trigger, task.user) == (TaskStatus.PENDING, Trigger.MANUAL, "me")
    assert await house.it.list_tasks(KEY, 10) == (task,)


async def test_tasks_that_ask_the_same_merge_while_nobody_was_given_them(house):
    await house.add()
    await house.commands()
    first = await house.submit()
    second = await house.submit()  # the worker may look already: it alone can merge them
    assert [c.task_id for c in await house.commands()] == [first.id, second.id]
    await house.take(Started(KEY, (first.id, second.id), T0))
    third = await house.submit()
    assert third.id not in (first.id, second.id)
    assert {(await house.submit()).id for _ in range(5)} == {third.id}
    await house.it._tasks.route()
    assert await house.commands() == [], "it waits its turn, so that others can join it"
    await house.take(synced(first.id, second.id))
    assert house.it._poke.is_set()
    await house.it._tasks.route()
    assert [c.task_id for c in await house.commands()] == [third.id]
    assert (await house.submit()).id != third.id


async def test_those_who_ask_while_the_worker_tells_nothing_are_few_tasks(house):
    """It waits for its host, perhaps an hour: what it has is not joined, and does not grow."""
    await house.add()
    await house.commands()
    tasks = [(await house.submit()).id for _ in range(50)]
    assert len(set(tasks)) == AHEAD_MAX + 1
    given = [c.task_id for c in await house.commands()]
    assert given == tasks[:AHEAD_MAX]
    house.clock.now += 30 * 86_400.0
    await house.it._tasks.route()
    assert (await house.it.get_task(tasks[-1])).status is TaskStatus.PENDING, "a worker is there for it"
    await house.take(Started(KEY, tuple(given), T0), synced(*given))
    await house.it._tasks.route()
    assert [c.task_id for c in await house.commands()] == [tasks[-1]]


async def test_tasks_that_ask_for_something_else_or_of_another_repo_do_not_merge(house):
    await house.add()
    await house.add(OTHER)
    await house.commands()
    asked = [
        await house.submit(),
        await house.submit(force=True),
        await house.submit(min_commit="b" * 40),
        await house.submit(min_commit="c" * 40),
        await house.submit(OTHER),
    ]
    assert len({t.id for t in asked}) == 5
    assert [c.task_id for c in await house.commands()] == [t.id for t in asked]


async def test_a_round_of_others_does_not_end_the_merging(house):
    await house.add()
    first = await house.submit()
    await house.take(Started(KEY, (first.id,), T0))
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
    assert (await house.commands())[-1].task_id == second.id


async def test_a_url_that_is_not_in_the_catalog_is_added_only_for_those_who_may(house):
    with pytest.raises(NotFound):
        await house.submit()
    with pytest.raises(NotFound):
        await house.submit(KEY, may_add=True)  # a key says nothing of the scheme
    assert await house.commands() == []
    task = await house.submit(may_add=True)
    assert [type(c) for c in await house.commands()] == [AssignRepos, SyncNow]
    assert task.repo == KEY
    assert [a.action for a in await house.store.list_audit(1)] == ["repo.added"]


async def started_waiting(house, task, wait_s=20.0):
    waiting = asyncio.create_task(house.it.wait_task(task.id, wait_s))
    while task.id not in house.it._tasks._waiters._events:
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
    await house.worker.say(report(task.id))
    async with asyncio.timeout(5):
        assert (await waiting).status is status
    assert house.it._tasks._waiters._events == {}
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
    assert house.it._tasks._waiters._events == {}


async def test_waiting_is_bounded_whatever_is_asked(house, monkeypatch):
    monkeypatch.setattr(tasks_module, "WAIT_MAX_S", 0.05)
    await house.add()
    task = await house.submit()
    async with asyncio.timeout(5):
        assert (await house.it.wait_task(task.id, 1e9)).status is TaskStatus.PENDING


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(house):
    await house.add()
    task = await house.submit()
    patient = await started_waiting(house, task)
    await house.it.wait_task(task.id, 0.05)  # gives up
    await house.worker.say(synced(task.id))
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
    await house.worker.say(failed(task.id))
    async with asyncio.timeout(5):
        assert (await patient).status is TaskStatus.FAILED


async def test_waiting_for_a_task_that_is_not_there_is_not_found_and_leaves_nothing(house):
    with pytest.raises(NotFound):
        await house.it.wait_task(77, 5)
    with pytest.raises(NotFound):
        await house.it.get_task(77)
    assert house.it._tasks._waiters._events == {}


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
    assert house.it._tasks._progress == {}


# Start


async def test_a_start_assigns_the_catalog_in_chunks_and_sends_unfinished_tasks_again(
    empty_house, monkeypatch
):
    monkeypatch.setattr(draft, "COMMAND_ITEMS", 100)
    every = records(207)
    every[5] = replace(every[5], enabled=False)
    keys = [r.key for r in every]
    await empty_house.store.upsert_repos(every)
    held = [HeldRepo(key, DIGEST, T0) for key in keys]
    async with empty_house.running(held) as house:
        store = house.store
        waiting = await store.create_task(keys[0], Trigger.API, params={"force": True, "min_commit": TIP})
        running = await store.create_task(keys[1], Trigger.API, params=None)
        ended = await store.create_task(keys[2], Trigger.API, params={})
        await house.take(Started(keys[1], (running.id,), T0), synced(ended.id, key=keys[2]))
    async with empty_house.running(held) as house:
        assert house.it.ready() == (False, "the catalog is being loaded")
        await house.it.resume()
        assert house.it.ready() == (True, "ready")
        routing = asyncio.create_task(house.it.run())
        await asyncio.sleep(0)
        sent = await house.commands()
        routing.cancel()
        await asyncio.gather(routing, return_exceptions=True)
    assigns = [c for c in sent if isinstance(c, AssignRepos)]
    assert [len(c.repos) for c in assigns] == [100, 100, 7]
    assert [c.more for c in assigns] == [True, True, False]
    assert {s.key for c in assigns for s in c.repos} == set(keys)
    assert frozenset().union(*(c.paused for c in assigns)) == {keys[5]}
    known = {s.key: a for c in assigns for s, a in zip(c.repos, c.activities, strict=True)}
    assert known[keys[2]] == synced().activity
    tasks = sent[len(assigns) :]
    assert tasks == [SyncNow(keys[0], waiting.id, True, TIP), SyncNow(keys[1], running.id, False, None)]


async def test_a_start_with_nothing_is_ready_at_once(house):
    await house.it.resume()
    assert await house.commands() == []
    assert house.it.ready()[0]


async def test_a_task_goes_out_right_behind_the_assignment_it_waited_for(empty_house):
    async with empty_house.running() as house:
        await house.worker.leave()
        while house.fleet.connected():
            await asyncio.sleep(0.002)
        task = await house.submit(may_add=True)
        house.worker = ScriptedWorker()
        await house.worker.join(house.server)
        sent = await house.commands()
        assert [type(c) for c in sent] == [AssignRepos, SyncNow]
        assert sent[1].task_id == task.id
        assert sent[1].early, "the first clone is its own"
        await house.take(synced(task.id, first=True))
        await house.submit()
        assert [c.early for c in await house.commands()] == [False]


async def test_tasks_of_a_worker_that_began_anew_are_given_again(house):
    await house.add()
    task = await house.submit()
    await house.commands()
    await house.worker.leave()
    while house.fleet.connected():
        await asyncio.sleep(0.002)
    house.worker = ScriptedWorker()
    await house.worker.join(house.server)
    assert [getattr(c, "task_id", None) for c in await house.commands()] == [None, task.id]


async def test_a_task_of_a_repo_that_left_is_refused_and_one_of_a_repo_that_just_comes_waits(house):
    await house.add()
    await house.store.upsert_repos(records(1))  # the fleet has not heard of it
    gone = await house.store.create_task(RepoKey("h.org/o/never"), Trigger.API, params={})
    comes = await house.store.create_task(records(1)[0].key, Trigger.API, params={})
    await house.it.resume()
    await house.it._tasks.route()
    assert (await house.it.get_task(gone.id)).status is TaskStatus.FAILED
    assert (await house.it.get_task(comes.id)).status is TaskStatus.PENDING
    await house.it.assign(records(1))
    assert comes.id in [getattr(c, "task_id", None) for c in await house.commands()]


async def test_others_that_hold_a_repo_are_told_to_look_when_its_primary_saw_it_move(house):
    follower = ScriptedWorker("there")
    await house.add()
    await house.take(synced(first=True))
    await house.it._followers.tell()
    await follower.join(house.server, token=7, holds=[HeldRepo(KEY, RefsDigest("e" * 64), T0)])
    while len(house.fleet.connected()) < 2 or len(await house.it.holders(KEY)) < 2:
        await asyncio.sleep(0.002)
    await house.worker.say(synced(at=T0 + 20))
    await house.fleet.settled()
    await house.it._followers.tell()
    await house.fleet.settled()
    async with asyncio.timeout(5):
        while LookAt((KEY,)) not in follower.sent:
            await asyncio.sleep(0.002)
    house.worker.sent.clear()
    await follower.say(synced(at=T0 + 30))
    await house.it._followers.tell()
    await house.fleet.settled()
    await asyncio.sleep(0.02)
    assert house.worker.sent == [], "what a follower caught up with is no news"
    await follower.leave()
    while len(house.fleet.connected()) > 1:
        await asyncio.sleep(0.002)


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
    (holder,) = await house.it.holders(KEY)
    assert (holder.worker, holder.primary, holder.digest, holder.verified_at, holder.state) == (
        "here",
        True,
        DIGEST,
        T0 + 50,
        CopyState.HELD,
    )


async def test_a_failure_that_turned_out_to_be_weather_is_taken_back(house):
    await house.add()
    await house.add(OTHER)
    await house.take(synced(at=T0), failed(at=T0 + 10), failed(key=OTHER_KEY))
    assert (await house.repo()).status is RepoStatus.FAILING
    await house.take(Excused((KEY, OTHER_KEY)))
    mirrored, new = await house.repo(), await house.repo(OTHER)
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
    await house.take(Kept((HeldRepo(KEY, DIGEST, T0 + 5), HeldRepo(RepoKey("h/unknown"), DIGEST, T0))))
    record = await house.repo()
    assert (record.status, record.digest, record.verified_at) == (RepoStatus.ACTIVE, DIGEST, T0 + 5)
    await house.take(Kept((HeldRepo(KEY, RefsDigest("e" * 64), T0),)))
    await house.take(Kept((HeldRepo(KEY, None, None),)))
    assert (await house.repo()).digest == DIGEST


async def test_reports_about_repos_and_tasks_that_are_not_there_are_harmless(house):
    await house.add()
    unknown = RepoKey("no/such/repo")
    await house.take(
        synced(901, key=unknown), failed(902, key=unknown), refused(903, key=unknown),
        Started(unknown, (904,), T0), Progress(unknown, (905,), "x", 1.0, 1, T0), Verified(((unknown, T0),)),
    )  # fmt: skip
    assert len(await house.it.list_repos(RepoFilter())) == 1


async def test_reports_are_taken_once_and_in_their_order(house):
    await house.add()
    task = await house.submit()
    waiting = await started_waiting(house, task)
    reports = (Started(KEY, (task.id,), T0), failed(failures=1), synced(task.id))
    await house.worker.connection.send(Numbered(1, 1, reports))
    async with asyncio.timeout(5):
        assert (await waiting).status is TaskStatus.SUCCESS
    assert (await house.repo()).status is RepoStatus.ACTIVE
    await house.worker.connection.send(Numbered(1, 1, (reports[1],)))  # sent again
    await house.told()
    assert (await house.repo()).status is RepoStatus.ACTIVE
    assert [type(r) for r in house.observed] == [Started, Failed, Synced]


# What is known


async def test_the_overview_shows_the_workers_latest_status_and_every_warning(house):
    house.it.add_warnings(lambda: ("of the catalog",))
    before = await house.it.overview()
    assert (before.polls_total, before.accepting_clones, before.worst_lag_s) == (0, False, None)
    assert before.warnings == ("of the catalog",)
    await house.add()
    await house.add(OTHER, priority="high")
    await house.take(Verified(((KEY, T0 - 100),)), worker_status(), worker_status(polls_total=8))
    house.clock.now += 1.0
    told = await house.it.overview()
    assert (told.polls_total, told.polls_per_second, told.changes_total) == (
        8,
        0.1,
        3,
    )  # 1 poll more, of 10 s
    assert (told.received_bytes_total, told.queued_syncs, told.disk_free_bytes) == (99, 2, 10)
    assert (told.disk_total_bytes, told.accepting_clones) == (100, True)
    assert told.hosts == worker_status().hosts
    assert told.warnings == ("of the worker", "of the catalog")
    assert (told.total_repos, told.fresh_repos, told.worst_lag_s) == (2, 1, 101.0)
    assert told.freshness[Priority.NORMAL] == ClassFreshness(live=1, fresh=1, worst_lag_s=101.0)
    assert told.freshness[Priority.HIGH] == ClassFreshness(live=1, fresh=0, worst_lag_s=None)
    assert (told.never_verified, told.changes_per_minute) == (1, 0.0)  # the first word only begins the count
    assert told.by_priority == {"critical": 0, "high": 1, "normal": 1, "low": 0} or told.by_priority == {
        "high": 1,
        "normal": 1,
    }
    assert (told.started_at, told.now) == (T0, T0 + 1)
    await house.worker.leave()
    while house.fleet.connected():
        await asyncio.sleep(0.002)
    house.clock.now += 1.0
    assert (await house.it.overview()).disk_total_bytes == 0  # what is gone has no disk


async def test_the_overview_names_who_runs_what_and_tells_rates_of_what_was_told(house):
    running = (RunningSync(KEY, "receiving", 5.0, 10, T0),)
    await house.take(worker_status())
    house.clock.now += 30.0
    await house.take(worker_status(running=running, changes_total=5, received_bytes_total=3099))
    told = await house.it.overview()
    name = house.fleet.machine.record(next(iter(house.fleet.connected()))).facts.name
    assert told.running == (Running(running[0], name),)
    assert (told.changes_per_minute, told.received_bytes_per_second) == (4.0, 100.0)
    [now] = await house.it.course(1)
    assert (now.at, now.work) == (T0 + 30.0, None)


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
    (holder,) = await house.it.holders(KEY)
    assert (holder.state, holder.digest, holder.verified_at) == (CopyState.ASKED, None, None)
    await house.worker.leave()
    while house.fleet.connected():
        await asyncio.sleep(0.002)
    assert (await house.it.plan(URL)).next_poll_at is None
    with pytest.raises(NotFound):
        await house.it.refs(KEY)
