"""What the store tells of the history and progress of projects, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import groupby

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.core.pull.events import OpenTask
from evermirror.core.watch.progress import overall
from evermirror.edge.store import pull_course, pull_progress
from evermirror.edge.store.outcomes import Outcome, outcome_of, pushes_of
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import (
    RepoFailed,
    RepoSynced,
    SkipsFolded,
    TaskEnded,
    TaskRecorded,
    writes_of,
)
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ClassProgress, ErrorFilter, KindCount, Period, Pressure, ProgressNote
from evermirror.model.messages import Refused, Synced
from evermirror.model.pull import Load, LoadLevel
from evermirror.model.push import Pushed, PushedRef, RefOutcome
from evermirror.model.refs import RefChange
from evermirror.model.repo import Priority, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from tests.support.plain_counts import count_errors, period_of, progress_of
from tests.support.pull_store import HEAD, A, B, C, looked, project, repo, with_project

DIGEST = "ab" * 32
HOSTILE = "é日本 %_\\'\";--\r\n\x00\x1b[31m\udcff\ud800"
TIMEOUT = Failure(FailureKind.NETWORK_TIMEOUT, "no answer", "try later")
DENIED = Failure(FailureKind.PERMISSION_DENIED, "you may not")
SKIPPED, SUCCESS, FAILED = TaskStatus.SKIPPED, TaskStatus.SUCCESS, TaskStatus.FAILED


@pytest.fixture
def run(url):
    """Runs a coroutine of an open, emptied store, from synchronous hypothesis."""
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(Store.open(url, clock=lambda: 1.0))

    async def emptied(do):
        async with store._db.write() as c:
            for table in ("repos", "tasks", "pull_projects", "pull_targets"):
                await c.execute(sa.text(f"DELETE FROM {table}"))  # noqa: S608
        return await do(store)

    yield lambda do: loop.run_until_complete(emptied(do))
    loop.run_until_complete(store.close())
    loop.close()


COMPARED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# What a sync with targets means for its task


def synced(*pushes, ids=(1,), changes=0, **kwargs):
    moved = tuple(RefChange(f"refs/heads/{n}", None, HEAD) for n in range(changes))
    return Synced(
        **{
            "key": A,
            "task_ids": ids,
            "digest": DIGEST,
            "head_commit": HEAD,
            "refs_count": 3,
            "changes": moved,
            "changes_total": changes,
            "commits": changes * 2,
            "received_bytes": 10,
            "size_bytes": 20,
            "first": False,
            "started_at": 1.0,
            "verified_at": 2.0,
            "ended_at": 3.0,
            "activity": Activity(),
            "pushes": pushes,
        }
        | kwargs
    )


SAME = Pushed(1, DIGEST, commit=HEAD)
PUT = Pushed(2, DIGEST, commit="d" * 40, put_total=1)
GONE = Pushed(3, None, deleted_total=2)
LATE = Pushed(4, None, failure=TIMEOUT)
SHUT = Pushed(5, DIGEST, commit=HEAD, failure=DENIED, put_total=1)


@pytest.mark.parametrize(
    ("report", "status", "failure", "commit"),
    [
        (synced(), SKIPPED, None, None),
        (synced(changes=1), SUCCESS, None, None),
        (synced(first=True), SUCCESS, None, None),
        (synced(SAME), SKIPPED, None, HEAD),
        (synced(SAME, PUT), SUCCESS, None, HEAD),
        (synced(GONE, PUT), SUCCESS, None, "d" * 40),
        (synced(SAME, LATE), SKIPPED, TIMEOUT, HEAD),
        (synced(LATE, PUT), SUCCESS, TIMEOUT, "d" * 40),
        (synced(SAME, LATE, changes=1), SUCCESS, TIMEOUT, HEAD),
        (synced(LATE), FAILED, TIMEOUT, None),
        (replace(synced(), forced=True), SUCCESS, None, None),
        (replace(synced(SAME), forced=True), SUCCESS, None, HEAD),
        (replace(synced(LATE), forced=True), FAILED, TIMEOUT, None),
        (synced(SHUT, LATE, changes=3), FAILED, DENIED, HEAD),
    ],
)
def test_a_task_failed_when_no_target_could_be_served(report, status, failure, commit):
    outcome = outcome_of(report)
    assert (outcome.status, outcome.failure, outcome.target_commit) == (status, failure, commit)
    changed = report.first or report.changes_total > 0 or any(p.changed for p in report.pushes)
    assert outcome.has_changes is changed


@pytest.mark.parametrize(
    ("context", "url"), [({}, "https://h/x"), ({"source_url": "ssh://git@h/x"}, "ssh://git@h/x")]
)
def test_what_ended_before_any_git_was_started_still_has_a_command(context, url):
    given_up = Failure(FailureKind.UNKNOWN, "no worker took this", context=context)
    ended = outcome_of(Refused("h/x", (1,), given_up, 1.0, 2.0))
    assert ended.failure.git_command.startswith(f"git ls-remote --symref {url} ")


async def test_what_became_of_each_target_is_in_the_tasks_result(store):
    put = await with_project(store)
    (task,) = await store.open_pull_tasks([OpenTask(put, 0)], 1.0)
    refs = (
        PushedRef("refs/heads/\udcff", None, HEAD, RefOutcome.PUT),
        PushedRef("refs/tags/v1", HEAD, None, RefOutcome.CONFLICT, "somebody else's"),
    )
    pushes = (
        Pushed(7, DIGEST, HEAD, refs, 1, 2, 3, 4, 5.0, 6.0, None, "default branch not set"),
        Pushed(8, None, failure=Failure(FailureKind.CONFLICT, "held", "look")),
    )
    await store.apply(writes_of(synced(*pushes, ids=(task.id,), changes=2)))
    ended = await store.get_task(task.id)
    assert (ended.status, ended.source_commit, ended.target_commit) == (SUCCESS, HEAD, HEAD)
    assert (ended.changes_count, ended.failure.kind) == (4, FailureKind.CONFLICT)
    assert ended.result["digest"] == DIGEST
    assert pushes_of(ended.result) == pushes
    (error,), total = await store.error_page(A, ErrorFilter())
    assert (error, total) == (ended, 1)
    assert (await store.find_repo(A)).status is RepoStatus.ACTIVE  # the mirror itself is well


def test_a_result_names_a_bounded_number_of_refs():
    refs = tuple(PushedRef(f"refs/heads/{n}", None, HEAD, RefOutcome.PUT) for n in range(150))
    pushes = tuple(Pushed(n, DIGEST, refs=refs, put_total=150) for n in range(100))
    result = outcome_of(synced(*pushes, changes=150)).result
    assert sum(len(p["refs"]) for p in result["pushes"]) == 100
    assert [p["put_total"] for p in result["pushes"]] == [150] * 100
    assert pushes_of(None) == pushes_of({}) == ()


# Folding


async def rows_of(store, key=A):
    return [(t.id, t.status.value, t.folded) for t in (await store.task_page(key, 1, 100))[0]]


async def test_scheduled_looks_without_a_change_are_one_row(store):
    await with_project(store)
    first = await looked(store, 100.0)
    for at in (200.0, 300.0):
        await looked(store, at)
    last = await looked(store, 400.0)
    (task,), total = await store.task_page(A, 1, 10)
    assert (total, task.id, task.folded) == (1, last, 3)
    assert (task.created_at, task.scheduled_at, task.started_at, task.completed_at, task.updated_at) == (
        100.0,
        400.0,
        400.1,
        400.5,
        400.5,
    )
    assert await store.get_task(first) is None


async def test_a_change_a_person_or_a_failure_begins_a_new_run(store):
    await with_project(store)
    moved = Outcome(SUCCESS, 1.0, 2.0, HEAD, True, 3)
    partly = Outcome(SKIPPED, 1.0, 2.0, HEAD, failure=TIMEOUT)
    failed = Outcome(FAILED, 1.0, 2.0, failure=TIMEOUT)
    wanted = []
    for how in (None, moved, partly, failed):
        runs = [await looked(store, 10.0) for _ in range(2)]
        other = (
            await looked(store, 11.0, trigger=Trigger.MANUAL)
            if how is None
            else await looked(store, 11.0, outcome=how)
        )
        status = "skipped" if how is None else how.status.value
        wanted += [(runs[1], "skipped", 1), (other, status, 0)]
    assert await rows_of(store) == wanted[::-1]


async def test_folding_is_about_one_repo(store):
    await store.upsert_repos([repo(A), repo(B)])
    await store.put_projects([project(A), project(B)])
    ids = {key: [await looked(store, 10.0 * n, key=key) for n in range(3)] for key in (A, B)}
    for key in (A, B):
        assert await rows_of(store, key) == [(ids[key][-1], "skipped", 2)]


async def test_a_report_that_comes_again_counts_nothing_twice(store):
    put = await with_project(store)
    await looked(store, 100.0)
    (task,) = await store.open_pull_tasks([OpenTask(put, 0)], 200.0)
    report = writes_of(synced(SAME, ids=(task.id,)))
    for _ in range(3):
        await store.apply(report)
    await store.apply([*report, *report])
    assert await rows_of(store) == [(task.id, "skipped", 1)]


async def test_several_looks_that_end_in_one_batch_are_folded_in_their_order(store):
    put = await with_project(store)
    first = await looked(store, 100.0)
    ids = [(await store.open_pull_tasks([OpenTask(put, 0)], 200.0 + n))[0].id for n in range(4)]
    assert ids[0] > first
    await store.apply([TaskEnded(i, Outcome(SKIPPED, 300.0, 301.0)) for i in reversed(ids)])
    (task,), _ = await store.task_page(A, 1, 10)
    assert (task.id, task.folded, task.created_at) == (ids[-1], 4, 100.0)


async def test_an_open_task_is_never_folded_away(store):
    put = await with_project(store)
    (running,) = await store.open_pull_tasks([OpenTask(put, 0)], 100.0)
    later = await looked(store, 200.0)
    assert await rows_of(store) == [(later, "skipped", 0), (running.id, "pending", 0)]


async def test_looks_without_a_row_join_the_run_of_those_with_one(store):
    await with_project(store)
    await looked(store, 100.0)
    await store.apply([SkipsFolded(A, 3, 150.0)])
    last = await looked(store, 200.0)
    assert await rows_of(store) == [(last, "skipped", 4)]
    await looked(store, 300.0, outcome=Outcome(SKIPPED, 1.0, 2.0, failure=TIMEOUT))
    await store.apply([SkipsFolded(A, 2, 350.0)])
    assert [(s, f) for _, s, f in await rows_of(store)] == [("skipped", 1), ("skipped", 0), ("skipped", 4)]


LOOKS = st.lists(
    st.tuples(
        st.sampled_from([SKIPPED, SKIPPED, SKIPPED, SUCCESS, FAILED]),
        st.sampled_from([Trigger.SCHEDULE, Trigger.SCHEDULE, Trigger.SCHEDULE, Trigger.MANUAL]),
        st.booleans(),
    ),
    max_size=10,
)


@COMPARED
@given(looks=LOOKS)
def test_folding_loses_no_look_and_keeps_their_order(run, looks):
    async def do(store):
        await with_project(store)
        ids = []
        for n, (status, trigger, failing) in enumerate(looks):
            failure = TIMEOUT if failing or status is FAILED else None
            outcome = Outcome(status, n + 0.1, n + 0.5, failure=failure)
            ids.append(await looked(store, float(n), trigger=trigger, outcome=outcome))
        return ids, [(t.id, t.folded, t.created_at) for t in (await store.task_page(A, 1, 100))[0]]

    ids, found = run(do)

    def foldable(n):
        status, trigger, failing = looks[n]
        return status is SKIPPED and trigger is Trigger.SCHEDULE and not failing

    expected = []
    for is_run, group in groupby(range(len(looks)), foldable):
        numbers = list(group)
        runs = [numbers] if is_run else [[n] for n in numbers]
        expected += [(ids[r[-1]], len(r) - 1, float(r[0])) for r in runs]
    assert found == expected[::-1]


# History


async def test_a_page_of_tasks_has_the_total(store):
    await store.apply([TaskRecorded(A, Outcome(SUCCESS, 1.0, float(n))) for n in range(7)])
    await store.apply([TaskRecorded(B, Outcome(SUCCESS, 1.0, 2.0))])
    newest, total = await store.task_page(A, 1, 3)
    assert ([t.completed_at for t in newest], total) == ([6.0, 5.0, 4.0], 7)
    last, total = await store.task_page(A, 3, 3)
    assert ([t.completed_at for t in last], total) == ([0.0], 7)
    assert await store.task_page(A, 10**30, 10**30) == ((), 7)
    assert await store.task_page(A, -1, -1) == ((), 7)
    assert await store.task_page(HOSTILE, 1, 5) == ((), 0)
    assert await store.error_page(HOSTILE, ErrorFilter()) == ((), 0)


KINDS = st.sampled_from([None, FailureKind.NETWORK_TIMEOUT, FailureKind.CONFLICT, FailureKind.UNKNOWN])
TIMES = st.integers(0, 8).map(float)  # few, so that ends of times meet
ENDED = st.lists(
    st.tuples(st.sampled_from([A, B, C]), st.sampled_from([SUCCESS, SKIPPED, FAILED]), KINDS, TIMES),
    max_size=15,
)


async def recorded(store, ended):
    for key in (A, B):  # C is no project
        await with_project(store, key)
    await store.apply(
        [
            TaskRecorded(
                key,
                Outcome(
                    status,
                    at - 1.0,
                    at,
                    changes_count=int(at),
                    failure=None if kind is None else Failure(kind, "x"),
                ),
            )
            for key, status, kind, at in ended
        ]
    )
    await store.create_task(A, Trigger.API)
    return [t for key in (A, B, C) for t in await store.list_tasks(key, 100)]


def dumb_errors(tasks, key, which):
    def matches(t):
        return (
            t.failure is not None
            and key in (None, t.repo)
            and which.kind in (None, t.failure.kind)
            and (which.begin is None or t.completed_at >= which.begin)
            and (which.end is None or t.completed_at < which.end)
        )

    found = sorted(filter(matches, tasks), key=lambda t: (t.completed_at, t.id), reverse=True)
    begin = (which.page - 1) * which.size
    return tuple(found[begin : begin + which.size]), len(found)


@COMPARED
@given(
    ended=ENDED,
    key=st.sampled_from([None, A, B]),
    which=st.builds(
        ErrorFilter,
        KINDS,
        st.none() | TIMES,
        st.none() | TIMES,
        page=st.integers(1, 3),
        size=st.integers(1, 5),
    ),
)
def test_errors_are_those_the_dumb_twin_lists(run, ended, key, which):
    async def do(store):
        tasks = await recorded(store, ended)
        return await store.error_page(key, which), dumb_errors(tasks, key, which)

    found, expected = run(do)
    assert found == expected


@COMPARED
@given(ended=ENDED, begin=TIMES, end=TIMES)
def test_error_statistics_are_those_of_the_plain_version(run, ended, begin, end):
    async def do(store):
        tasks = [task for task in await recorded(store, ended) if task.repo != C]
        return await store.error_statistics(begin, end), count_errors(tasks, begin, end)

    found, expected = run(do)
    assert list(found.items()) == list(expected.items())


async def test_a_time_is_from_its_beginning_to_before_its_end(store):
    await with_project(store)
    await store.apply([TaskRecorded(A, Outcome(FAILED, 1.0, 10.0, failure=TIMEOUT))])
    for begin, end, within in ((10.0, 11.0, 1), (9.0, 10.0, 0), (10.0, 10.0, 0), (9.0, 10.5, 1)):
        assert (await store.error_page(None, ErrorFilter(begin=begin, end=end)))[1] == within
        assert (await store.error_page(A, ErrorFilter(begin=begin, end=end)))[1] == within
        assert len(await store.error_statistics(begin, end)) == within
        assert (await store.periods(begin, end))[Priority.NORMAL].failed == within


async def test_error_statistics_by_hand(store):
    def ended(key, kind, at):
        return TaskRecorded(key, Outcome(FAILED, at, at, failure=Failure(kind, "x")))

    for key in (A, B):
        await with_project(store, key)
    await store.upsert_repos([repo(C)])
    await store.apply(
        [
            ended(C, FailureKind.CONFLICT, 10.0),  # of a repo that is no project
            ended(A, FailureKind.CONFLICT, 10.0),
            *(ended(A, FailureKind.NETWORK_TIMEOUT, 11.0 + n) for n in range(3)),
            ended(B, FailureKind.NETWORK_TIMEOUT, 12.0),
            ended(B, FailureKind.UNKNOWN, 20.0),
        ]
    )
    assert dict(await store.error_statistics(10.0, 20.0)) == {
        FailureKind.NETWORK_TIMEOUT: KindCount(4, 2, (A, B)),
        FailureKind.CONFLICT: KindCount(1, 1, (A,)),
    }
    assert await store.error_statistics(20.0, 10.0) == {}


RUNS = st.lists(
    st.tuples(
        st.sampled_from([A, B]),
        st.sampled_from([SUCCESS, SKIPPED, FAILED]),
        TIMES,
        TIMES,
        st.integers(0, 9),
    ),
    max_size=12,
)


@COMPARED
@given(runs=RUNS, begin=TIMES, end=TIMES)
def test_periods_are_those_of_the_plain_version(run, runs, begin, end):
    async def do(store):
        await store.upsert_repos([repo(A, priority=Priority.HIGH)])  # nobody knows the other one
        await store.apply(
            [
                TaskRecorded(key, Outcome(status, min(one, other), max(one, other), changes_count=2))
                for key, status, one, other, _ in runs
            ]
        )
        tasks = {key: await store.list_tasks(key, 100) for key in (A, B)}
        folds = [
            {"id": task.id, "folded": folded}
            for key in tasks
            for task, folded in zip(
                tasks[key][::-1], [r[-1] if r[1] is SKIPPED else 0 for r in runs if r[0] == key], strict=True
            )
        ]
        async with store._db.write() as c:
            if folds:
                await c.execute(sa.text("UPDATE tasks SET folded = :folded WHERE id = :id"), folds)
        expected = {p: period_of((), begin, end) for p in Priority}
        for key, priority in ((A, Priority.HIGH), (B, Priority.NORMAL)):
            expected[priority] = period_of(await store.list_tasks(key, 100), begin, end)
        return await store.periods(begin, end), expected

    found, expected = run(do)
    assert found == expected


async def test_a_long_run_counts_by_its_share_of_the_time(store):
    await with_project(store)
    for n in range(101):
        await looked(store, 36.0 * n)  # an hour of looks, in one row
    await looked(store, 3700.0, outcome=Outcome(SUCCESS, 3700.0, 3701.0, HEAD, True, 5))
    found = await store.periods(0.0, 4000.0)
    assert found[Priority.NORMAL] == Period(0.0, 4000.0, 102, 1, 0, 101, 5)
    assert found[Priority.HIGH] == Period(0.0, 4000.0, 0, 0, 0, 0, 0)
    for begin in (0.0, 900.0, 1800.0):
        assert abs((await store.periods(begin, begin + 900.0))[Priority.NORMAL].skipped - 25) <= 1
    assert (await store.periods(5000.0, 6000.0))[Priority.NORMAL].tasks == 0


async def test_a_task_counts_for_the_class_that_its_project_had_when_it_was_made(store):
    put = await with_project(store, priority=Priority.CRITICAL)  # while the repo itself is normal
    ended = Outcome(SUCCESS, 5.0, 6.0)
    await looked(store, 5.0, outcome=ended)
    await store.apply([TaskRecorded(A, ended)])
    (task,) = await store.open_pull_tasks([OpenTask(put, 0, Trigger.MANUAL)], 5.0)
    await store.put_projects([replace(put, config=replace(put.config, priority=Priority.LOW))])
    await store.apply([TaskEnded(task.id, ended), TaskRecorded(A, ended), TaskRecorded("x/unknown", ended)])
    told = {p: period.success for p, period in (await store.periods(0.0, 10.0)).items()}
    assert told == {Priority.CRITICAL: 3, Priority.HIGH: 0, Priority.NORMAL: 1, Priority.LOW: 1}


async def test_the_public_sees_errors_of_repos_that_are_known_not_to_be_private(store):
    keys = [A, B, C, "example.org/unknown"]
    await store.upsert_repos([repo(A), repo(B, private=True), repo(C)])
    await store.remove_repos([C], at=5.0)
    await store.apply(
        [TaskRecorded(k, Outcome(FAILED, 1.0, float(n), failure=TIMEOUT)) for n, k in enumerate(keys)]
    )
    everything, total = await store.error_page(None, ErrorFilter())
    assert ([t.repo for t in everything], total) == (keys[::-1], 4)
    public, total = await store.error_page(None, ErrorFilter(), public=True)
    assert ([t.repo for t in public], total) == ([A], 1)


async def test_errors_of_all_are_counted_and_shown_to_the_public_only_so_far(store, monkeypatch):
    monkeypatch.setattr("evermirror.edge.store.pull_history.PUBLIC_MAX", 5)
    await store.upsert_repos([repo(A)])
    await store.apply([TaskRecorded(A, Outcome(FAILED, 1.0, float(n), failure=TIMEOUT)) for n in range(8)])

    async def times(page, public):
        found, total = await store.error_page(None, ErrorFilter(page=page, size=3), public=public)
        return [t.completed_at for t in found], total

    assert await times(1, public=True) == ([7.0, 6.0, 5.0], 5)
    assert await times(2, public=True) == ([4.0, 3.0], 5)
    assert await times(3, public=True) == ([], 5)
    assert await times(1_000_000, public=True) == ([], 5)
    assert await times(3, public=False) == ([1.0, 0.0], 8)
    assert (await store.error_page(A, ErrorFilter(size=3)))[1] == 8


async def test_many_repos_are_found_at_once(store, monkeypatch):
    monkeypatch.setattr("evermirror.edge.store.finding.NAMES_IN_QUERY", 3)
    keys = [f"example.org/{n}" for n in range(10)]
    await store.upsert_repos([repo(k, alias=f"a{n}") for n, k in enumerate(keys)])
    await store.remove_repos(keys[:2], at=5.0)
    found = await store.find_repos([*keys, *keys, HOSTILE, "a3", "x/unknown"])
    assert found == {k: await store.find_repo(k) for k in keys[2:]}
    assert set(await store.find_repos(keys, removed=True)) == set(keys)
    await store.upsert_repos([repo("a9", alias="other"), repo("x/y", alias=keys[4])])
    named = await store.find_named([*keys, "a0", "a3", "a9", "other", HOSTILE, "x/unknown"])
    assert {name: record.key for name, record in named.items()} == {
        **{k: k for k in keys[2:]},
        "a3": keys[3],
        "a9": "a9",
        "other": "a9",
    }
    assert named["a3"] == await store.find_repo("a3")


# Progress

STATUSES = st.sampled_from([None, SUCCESS, SKIPPED, FAILED])
PROJECTS = st.builds(
    dict,
    priority=st.sampled_from(Priority),
    interval_s=st.sampled_from([0.1, 5.0, 1e9]),
    enabled=st.booleans(),
    paused=st.sampled_from(["", "", "why"]),
    last_status=STATUSES,
    last_sync_at=st.none() | TIMES,
    next_sync_at=TIMES,
    waits=st.booleans(),
)


def verified(key, at):
    return RepoSynced(key, DIGEST, HEAD, 1, 1, at, None, Activity())


async def prepared(store, projects, repos):
    """A project each, one removed again, and repos without a configuration, which do not count."""
    keys = [f"example.org/p{n}" for n in range(len(projects))]
    others = [f"example.org/r{n}" for n in range(repos)]
    await store.upsert_repos([repo(k, priority=Priority.LOW) for k in [*keys, *others, "example.org/left"]])
    made = []
    for key, told in zip(keys, projects, strict=True):
        fields = dict(told)
        waits = fields.pop("waits")
        task = (await store.create_task(key, Trigger.API)).id if waits else None
        made.append(project(key, task=task, **fields))
    await store.put_projects([*made, project("example.org/left", priority=Priority.CRITICAL)])
    await store.remove_repos(["example.org/left"], at=1.0)
    if others:
        await store.apply([RepoFailed(others[0], TIMEOUT, RepoStatus.FAILING, 1, 5.0)])
    return await store.load_projects()


@COMPARED
@given(
    projects=st.lists(PROJECTS, max_size=8),
    repos=st.integers(0, 3),
    now=TIMES,
    syncing=st.sets(
        st.sampled_from([f"example.org/{kind}{n}" for kind in "pr" for n in range(8)] + ["example.org/left"]),
        max_size=4,
    ),
)
def test_progress_is_that_of_the_plain_version(run, projects, repos, now, syncing):
    async def do(store):
        expected = progress_of(await prepared(store, projects, repos), now, syncing=syncing)
        return await store.pull_progress(now, syncing), expected

    found, expected = run(do)
    assert set(found) == set(expected)
    for priority, told in expected.items():
        delay_s = told.average_delay_s
        approximate = delay_s if delay_s is None else pytest.approx(delay_s, abs=1e-6)
        assert found[priority] == replace(told, average_delay_s=approximate)


async def test_progress_by_hand(store):
    keys = [f"example.org/{n}" for n in range(8)]
    await store.upsert_repos([repo(k) for k in keys])
    await store.put_projects(
        [
            project(keys[0], last_status=SKIPPED, last_sync_at=900.0, next_sync_at=1100.0),
            project(keys[1], last_status=SUCCESS, last_sync_at=700.0, next_sync_at=800.0, interval_s=100.0),
            project(keys[2], last_status=FAILED, last_sync_at=100.0, next_sync_at=1100.0),
            project(keys[3]),
            project(keys[4], enabled=False, last_sync_at=1.0),
            project(keys[5], last_status=SKIPPED, last_sync_at=990.0, next_sync_at=1100.0),
        ]
    )
    await store.apply([verified(keys[6], 950.0), RepoFailed(keys[7], TIMEOUT, RepoStatus.FAILING, 1, 5.0)])
    found = await store.pull_progress(1000.0, [keys[5], keys[6]])  # the last two are no projects
    delays = (100 + 300 + 900 + 10) / 4
    expected = ClassProgress(6, 1, 1, 2, 1, 1, pytest.approx(delays), 4, worst_delay_s=900.0)
    assert found[Priority.NORMAL] == expected
    assert found[Priority.CRITICAL] == ClassProgress(0, 0, 0, 0, 0, 0, None, 0)


async def test_a_project_is_pending_once_it_is_overdue_and_not_before(store):
    await store.upsert_repos([repo(A)])
    well = {"last_status": SUCCESS, "last_sync_at": 700.0, "next_sync_at": 900.0, "interval_s": 100.0}
    await store.put_projects([project(A, **well)])
    for now, synced_then in ((1000.0, 1), (1000.001, 0)):
        told = overall((await store.pull_progress(now, [])).values())
        assert (told.synced, told.pending) == (synced_then, 1 - synced_then)
        told = overall((await store.pull_progress(now, [A])).values())
        assert (told.synced, told.pending, told.syncing) == (0, 0, 1)


async def test_many_that_are_syncing_are_asked_for_in_parts(store, monkeypatch):
    monkeypatch.setattr(pull_progress, "KEYS_IN_QUERY", 3)
    keys = [f"example.org/{n}" for n in range(20)]
    await store.upsert_repos([repo(k) for k in keys])
    await store.put_projects([project(k) for k in keys[:10]])
    found = overall((await store.pull_progress(1.0, [*keys, *keys, HOSTILE, "x/unknown"])).values())
    assert (found.total, found.syncing, found.pending) == (10, 10, 0)


async def test_the_course_has_each_class_and_what_sources_bore(store):
    of_all = ClassProgress(9, 4, 1, 1, 2, 1, 7.5, 8, worst_delay_s=99.5, equal=5, compared=8)
    classes = {Priority.HIGH: of_all, Priority.LOW: ClassProgress(0, 0, 0, 0, 0, 0, None)}
    load = Load(LoadLevel.HIGH, "cpu 83 %")
    pressed = ProgressNote(1.0, of_all, classes, Pressure(5, 4, 33, load, 120, 12.5, 10**12))
    unknown = ProgressNote(2.0, of_all, {}, Pressure(5, 0, 0, None))
    for noted in (pressed, unknown):
        await store.note_progress(noted.at, noted.overall, noted.classes, noted.pressure)
    assert await store.progress_course(0.0, 9.0) == (pressed, unknown)
    assert pressed.overall.equal_share == 0.625
    await store.note_progress(1.0, of_all, {Priority.LOW: of_all})  # again: what was noted before is gone
    assert await store.progress_course(0.0, 2.0) == (ProgressNote(1.0, of_all, {Priority.LOW: of_all}),)
    await store.cleanup_tasks(5.0)
    async with store._db.read() as c:
        assert (await c.scalars(sa.text("SELECT count(*) FROM pull_course_classes"))).one() == 0


async def test_the_course_of_progress_is_kept_and_cleaned_with_the_history(store, monkeypatch):
    notes = [ProgressNote(float(n), ClassProgress(9, n, 1, 2, 3, 4, None if n else 5.5, 6)) for n in range(5)]
    for noted in notes:
        await store.note_progress(noted.at, noted.overall)
    assert await store.progress_course(1.0, 4.0) == tuple(notes[1:4])
    again = ProgressNote(3.0, ClassProgress(1, 1, 0, 0, 0, 0, 1.0, 1))
    await store.note_progress(again.at, again.overall)
    monkeypatch.setattr(pull_course, "COURSE_MAX", 3)
    assert await store.progress_course(0.0, 10.0) == (notes[2], again, notes[4])
    await store.apply([TaskRecorded(A, Outcome(SUCCESS, 1.0, 2.0))])
    assert await store.cleanup_tasks(older_than=4.0) == 1
    assert await store.progress_course(0.0, 10.0) == (notes[4],)


async def test_a_run_that_goes_on_outlives_the_cleaning_of_what_is_old(store):
    await with_project(store)
    await looked(store, 100.0, outcome=Outcome(SUCCESS, 100.0, 101.0))
    for at in (200.0, 1000.0):
        last = await looked(store, at)
    assert await store.cleanup_tasks(older_than=500.0) == 1
    assert await rows_of(store) == [(last, "skipped", 1)]
