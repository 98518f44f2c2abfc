"""Events as the store keeps them, and what it tells of its own writes, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evermirror.core.fleet.decisions import PutWorker
from evermirror.core.pull.events import OpenTask
from evermirror.core.watch.events import AlertSaved
from evermirror.edge.store import events as rows_of_events
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import (
    Decided,
    EventWritten,
    Outcome,
    RepoExcused,
    RepoFailed,
    RepoHeld,
    RepoVerified,
    TaskEnded,
    writes_of,
)
from evermirror.model.activity import Activity
from evermirror.model.alert import Alert, AlertRecord, Level
from evermirror.model.event import EventType, NewEvent
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, Synced
from evermirror.model.push import Pushed
from evermirror.model.refs import RefChange
from evermirror.model.repo import Host, Priority, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerRecord
from tests.support.news import put_events
from tests.support.pull_store import project as pull_project

A, B = "example.org/team/a", "example.org/team/b"
OLD, NEW = "1" * 40, "2" * 40


def repo(key=A, *, private=False, **kwargs):
    return RepoRecord(RepoSpec(key, f"https://{key}", Host("example.org"), private=private, **kwargs))


def note(n=0, key=None):
    return NewEvent(EventType.REPO_RENAMED, 100.0 + n, key, data={"n": n})


def synced(key=A, *, digest="a" * 64, changes=1, first=False, at=950.0, tasks=()):
    return Synced(
        key=key,
        task_ids=tuple(tasks),
        digest=digest,
        head_commit=NEW,
        refs_count=3,
        changes=tuple(RefChange(f"refs/heads/b{n}", OLD, NEW) for n in range(changes)),
        changes_total=changes,
        commits=2,
        received_bytes=10,
        size_bytes=20,
        first=first,
        started_at=at - 2.0,
        verified_at=at - 1.0,
        ended_at=at,
        activity=Activity(),
    )


def failure_write(key=A, *, status=RepoStatus.FAILING, kind=FailureKind.NETWORK_TIMEOUT, failures=1):
    return RepoFailed(key, Failure(kind, "no answer"), status, failures, 960.0)


async def told(store: Store, after=0):
    return (await store.events_after(after, 1000)).events


async def types_told(store: Store, after=0):
    return [e.type for e in await told(store, after)]


@pytest.fixture
async def with_repos(store):
    """Two repos, and the number of the last event of their making."""
    await store.upsert_repos([repo(A), repo(B, private=True)])
    return await store.latest_event()


# Put and read


async def test_an_event_comes_back_as_it_was_put_with_numbers_that_grow(store, clock, with_repos):
    new = NewEvent(EventType.REPO_HELD, 12.5, A, "w\x00orker", {"ref": "refs/\udcff", "n": [1, None, 2.5]})
    await store.apply([EventWritten(new), EventWritten(note(1))])
    await put_events(store, [note(2)])
    first, second, third = await told(store, with_repos)
    assert (first.type, first.at, first.repo, first.data) == ("repo.held", 12.5, A, dict(new.data))
    assert first.worker == "w\\x00orker"
    assert with_repos < first.id < second.id < third.id
    assert (second.data, third.data) == ({"n": 1}, {"n": 2})
    assert [e.id for e in await told(store, first.id)] == [second.id, third.id]
    assert [e.id for e in await store.events_before(third.id, 2)] == [second.id, first.id]


async def test_numbers_are_never_below_the_clock_and_grow_when_it_goes_back(store, clock):
    clock.now = 2000.0
    await put_events(store, [note()])
    first = await store.latest_event()
    assert first > 2000 * 1_000_000
    clock.now = 1000.0
    await put_events(store, [note()])
    assert await store.latest_event() == first + 1


async def test_events_of_a_transaction_that_fails_are_not_told(store, with_repos):
    bad = EventWritten(NewEvent(EventType.REPO_HELD, 1.0, A, None, {"x": float("nan")}))
    with pytest.raises(Exception, match="JSON"):
        await store.apply([RepoVerified(A, 900.0), EventWritten(note()), bad])
    assert await told(store, with_repos) == ()
    assert (await store.find_repo(A)).verified_at is None


async def test_public_is_what_everybody_may_know_of_by_now_and_might_then(store):
    await store.upsert_repos([repo(A), repo(B, private=True)])
    await put_events(store, [note(1, A), note(2, B), note(3), note(4, "example.org/unknown")])
    assert [e.public for e in await told(store)][-4:] == [True, False, False, False]
    await store.upsert_repos([repo(A, private=True)])
    assert not any(e.public for e in await told(store))
    await put_events(store, [note(5, A)])
    await store.upsert_repos([repo(A), repo(B)])
    last = await store.latest_event()
    await put_events(store, [note(6, A), note(7, B)])
    assert {e.data["n"]: e.public for e in await told(store) if "n" in e.data} == {
        1: True, 2: False, 3: False, 4: False, 5: False, 6: True, 7: True,
    }  # fmt: skip
    assert last < await store.latest_event()


async def test_concurrent_writers_give_no_number_twice_and_none_late(store):
    seen, last = [], 0

    async def follow():
        nonlocal last
        while len(seen) < 200:
            page = await store.events_after(last, 1000)
            seen.extend(page.events)
            last = seen[-1].id if seen else 0
            await asyncio.sleep(0)

    async def write(n):
        for m in range(20):
            await put_events(store, [note(n * 100 + m)])

    await asyncio.gather(follow(), *(write(n) for n in range(10)))
    assert len({e.id for e in seen}) == 200
    assert {e.data["n"] for e in seen} == {n * 100 + m for n in range(10) for m in range(20)}


async def test_whoever_waits_for_events_is_woken_only_by_such_writes(store, with_repos):
    woken = []
    store.on_event = lambda: woken.append(1)
    await store.apply([RepoVerified(A, 900.0)])
    assert woken == []
    await store.apply([EventWritten(note())])
    await put_events(store, [note()])
    assert len(woken) == 2


# What another database told


async def test_numbers_begin_above_the_time_of_the_first_start(store, url, clock):
    began = (await store.events_after(0, 1)).began
    assert began == 1000 * 1_000_000
    assert await store.latest_event() == began
    clock.now = 900.0
    await put_events(store, [note()])
    assert [e.id for e in await told(store)] == [began + 1]
    clock.now = 2000.0
    again = await Store.open(url, clock=clock)
    page = await again.events_after(0, 1)
    assert (page.began, page.gone) == (began, 0)
    await again.close()


# Cleaning


async def test_old_events_are_removed_and_what_is_gone_is_remembered(store, clock):
    for at in (1000.0, 2000.0, 3000.0):
        clock.now = at
        await put_events(store, [note(), note()])
    before = await told(store)
    assert await store.clean_events(2500.0, keep=1000) == 4
    page = await store.events_after(0, 1000)
    assert page.events == before[4:]
    assert page.gone == before[3].id


async def test_at_most_so_many_are_kept_and_always_the_newest(store, clock, monkeypatch):
    monkeypatch.setattr(rows_of_events, "CLEAN_CHUNK", 3)
    await put_events(store, [note(n) for n in range(10)])
    before = await told(store)
    assert await store.clean_events(0.0, keep=2) == 8
    assert await told(store) == before[8:]
    clock.now = 1e9
    assert await store.clean_events(9e8, keep=1000) == 1
    assert await told(store) == before[9:]
    clock.now = 1.0
    await put_events(store, [note()])
    assert await store.latest_event() > before[9].id
    assert await store.clean_events(0.0, keep=1000) == 0


# What reports tell


async def test_a_change_is_told_once_however_many_tell_it(store, with_repos):
    report = synced(changes=150)
    await store.apply(list(writes_of(report, teller="w1")))
    [event] = await told(store, with_repos)
    assert (event.type, event.repo, event.worker, event.at) == ("refs.changed", A, "w1", 950.0)
    assert event.data["changes_total"] == 150
    assert len(event.data["changes"]) == 100
    assert event.data["changes"][0] == {"ref": "refs/heads/b0", "old": OLD, "new": NEW}
    await store.apply(list(writes_of(replace(report, first=True), teller="w2")))
    assert len(await told(store, with_repos)) == 1
    again = [writes_of(synced(digest=d * 64, at=960.0), teller="w1") for d in "bcc"]
    await store.apply([write for writes in again for write in writes])
    assert await types_told(store, event.id) == ["refs.changed", "refs.changed"]


async def test_a_report_that_others_tell_too_makes_no_event(store, with_repos):
    await store.apply(list(writes_of(synced())))
    assert await told(store, with_repos) == ()


async def test_refs_are_told_by_their_own_report_whoever_was_heard_of_them_before(store, with_repos):
    """While targets get what moved, a worker says what it has; one who follows may see it first."""
    await store.apply(list(writes_of(synced(first=True), teller="w1")))
    last = await store.latest_event()
    digest = "b" * 64
    await store.apply([RepoHeld(A, digest, 958.0)])
    await store.apply(list(writes_of(synced(digest=digest, first=True, at=959.0))))
    copied = writes_of(synced(digest=digest, first=True, at=959.5), teller="w2", follows=True)
    await store.apply([*copied, RepoVerified(A, 990.0)])
    assert await told(store, last) == ()
    await store.apply(list(writes_of(synced(digest=digest, at=960.0), teller="w1")))
    [event] = await told(store, last)
    assert (event.worker, event.data["changes_total"], event.data["first"]) == ("w1", 1, False)
    assert (await store.find_repo(A)).verified_at == 990.0


async def test_one_who_follows_tells_what_moved_and_nothing_else(store, with_repos):
    await store.apply(list(writes_of(synced(first=True), teller="w1")))
    last = await store.latest_event()
    push = Pushed(7, None, put_total=1)
    report = replace(synced(digest="b" * 64, at=960.0), pushes=(push,))
    await store.apply(list(writes_of(report, teller="w2", follows=True)))
    await store.apply(list(writes_of(replace(report, pushes=()), teller="w1")))
    assert [(e.type, e.worker) for e in await told(store, last)] == [("refs.changed", "w2")]


async def test_what_moved_unseen_is_told_without_names(store, with_repos):
    """After a crash, or where HEAD alone moved: the digest is another, and no ref moved."""
    await store.apply(list(writes_of(synced(first=True), teller="w")))
    await store.apply(list(writes_of(synced(digest="b" * 64, changes=0, at=960.0), teller="w")))
    await store.apply(list(writes_of(synced(digest="c" * 64, first=True, changes=9, at=970.0), teller="v")))
    first, *others = [e.data for e in await told(store, with_repos)]
    assert (first["first"], first["changes_total"]) == (True, 1)
    assert [(d["digest"][0], d["first"], d["changes"], d["changes_total"]) for d in others] == [
        ("b", False, [], 0),
        ("c", False, [], 0),
    ]


async def test_what_nobody_told_is_told_when_it_is_seen_again_later(store, with_repos):
    """Who saw it first was not believed, and is the only one left."""
    await store.apply(list(writes_of(synced(first=True), teller="w")))
    await store.apply(list(writes_of(synced(digest="b" * 64, at=960.0))))
    last = await store.latest_event()
    await store.apply([RepoVerified(A, 1100.0), RepoVerified(B, 1100.0)])
    assert await told(store, last) == ()
    await store.apply([RepoVerified(A, 1300.0)])
    await store.apply([RepoVerified(A, 1400.0)])
    [event] = await told(store, last)
    assert (event.type, event.repo, event.at, event.worker) == ("refs.changed", A, 1300.0, None)
    assert (event.data["digest"], event.data["first"], event.data["changes"]) == ("b" * 64, False, [])


async def test_a_report_that_is_late_is_no_news_and_changes_nothing(store, with_repos):
    await store.apply(list(writes_of(synced(digest="c" * 64, at=980.0), teller="w1")))
    last = await store.latest_event()
    late = writes_of(synced(digest="b" * 64, at=960.0), teller="w2")
    await store.apply([failure_write(A), *late])
    found = await store.find_repo(A)
    assert (found.digest, found.verified_at, found.status) == ("c" * 64, 979.0, RepoStatus.FAILING)
    assert await told(store, last) == ()
    ahead = writes_of(synced(digest="d" * 64, at=979.0 - 4000.0), teller="w2")  # then, a clock was wrong
    await store.apply(list(ahead))
    assert (await store.find_repo(A)).digest == "d" * 64
    assert await types_told(store, last) == ["sync.recovered", "refs.changed"]


async def test_a_repo_that_comes_back_anew_is_first_again(store, with_repos):
    await store.apply(list(writes_of(synced(first=True), teller="w")))
    await store.remove_repos([A], 1001.0)
    await store.apply(list(writes_of(synced(digest="b" * 64, at=955.0), teller="w")))
    await store.upsert_repos([repo(A)])
    last = await store.latest_event()
    await store.apply(list(writes_of(synced(first=True, at=956.0), teller="w")))
    [event] = await told(store, last)
    assert (event.type, event.data["first"], event.data["changes_total"]) == ("refs.changed", True, 1)


async def test_times_that_no_clock_shows_stop_nothing(store, with_repos):
    asked = await store.create_task(A, Trigger.API)
    wild = replace(synced(tasks=[asked.id]), started_at=-1.7e308, ended_at=1.7e308)
    push = Pushed(7, None, put_total=1, started_at=-1.7e308, ended_at=1.7e308)
    await store.apply(list(writes_of(replace(wild, pushes=(push,)), teller="w")))
    events = await told(store, with_repos)
    assert sorted(e.type for e in events) == ["push.ended", "refs.changed", "task.ended"]
    assert {e.data["duration_s"] for e in events} == {0.0}


async def test_what_workers_tell_of_repos_that_left_is_not_passed_on(store, with_repos):
    await store.remove_repos([A], 1001.0)
    last = await store.latest_event()
    failed = Failed(A, (), Failure(FailureKind.NOT_FOUND, "gone"), True, 1, 1.0, 2.0, None)
    unknown = replace(failed, key="example.org/unknown")
    for report in (failed, unknown, synced()):
        await store.apply(list(writes_of(report, teller="w")))
    assert await told(store, last) == ()


async def test_failures_are_told_at_the_first_and_each_doubling(store, with_repos):
    failure = Failure(FailureKind.NETWORK_TIMEOUT, "no answer", hint="wait")
    for n in range(1, 10):
        report = Failed(A, (), failure, True, n, 1.0, 2.0, 100.5)
        await store.apply(list(writes_of(report, teller="w1")))
    weather = Failed(A, (), failure, False, 8, 1.0, 2.0, None)
    await store.apply(list(writes_of(weather, teller="w1")))
    events = await told(store, with_repos)
    assert [(e.type, e.data["consecutive_failures"]) for e in events] == [
        ("sync.failed", n) for n in (1, 2, 4, 8)
    ]
    assert events[0].data == {
        "error_type": "NETWORK_TIMEOUT",
        "error_message": "no answer",
        "hint": "wait",
        "consecutive_failures": 1,
        "next_attempt_at": "1970-01-01T00:01:40.500Z",
    }


@pytest.mark.parametrize("by", ["poll", "sync"])
async def test_recovery_is_told_once(store, with_repos, by):
    await store.apply(list(writes_of(synced(first=True), teller="w")))
    last = await store.latest_event()
    await store.apply([failure_write(failures=3), failure_write(B)])
    well = {
        "poll": [RepoVerified(A, 970.0)],
        "sync": list(writes_of(synced(changes=0, at=971.0), teller="w")),
    }
    await store.apply(well[by])
    [event] = await told(store, last)
    assert (event.type, event.repo, event.at) == ("sync.recovered", A, 970.0)
    assert event.data == {"was": "failing", "error_type": "NETWORK_TIMEOUT", "consecutive_failures": 3}
    assert (await store.find_repo(A)).status is RepoStatus.ACTIVE
    await store.apply(well[by])
    assert len(await told(store, last)) == 1


async def test_the_first_sync_of_a_repo_is_no_recovery(store, with_repos):
    await store.apply([RepoVerified(B, 970.0), *writes_of(synced(first=True), teller="w")])
    assert await types_told(store, with_repos) == ["refs.changed"]


async def test_an_old_poll_clears_no_failure_and_tells_nothing(store, with_repos):
    await store.apply([RepoVerified(A, 970.0), failure_write(failures=2)])
    await store.apply([RepoVerified(A, 965.0)])
    assert await told(store, with_repos) == ()
    assert (await store.find_repo(A)).status is RepoStatus.FAILING


async def test_a_failure_that_is_taken_back_is_over(store, with_repos):
    await store.apply([failure_write(A, failures=1), failure_write(B, failures=2)])
    await store.apply([RepoExcused(A), RepoExcused(B)])
    [event] = await told(store, with_repos)
    assert (event.type, event.repo) == ("sync.excused", A)
    assert event.data == {"was": "failing", "error_type": "NETWORK_TIMEOUT"}


async def test_gone_and_held_are_told_when_they_become_so(store, with_repos):
    gone = failure_write(status=RepoStatus.GONE, kind=FailureKind.NOT_FOUND)
    held = failure_write(B, status=RepoStatus.HELD, kind=FailureKind.CONFLICT)
    await store.apply([gone, held, gone])
    await store.apply([gone, held])
    events = await told(store, with_repos)
    assert [(e.type, e.repo) for e in events] == [("repo.gone", A), ("repo.held", B)]
    assert events[0].data["error_message"] == "no answer"
    await store.apply([RepoVerified(A, 970.0), gone])
    assert (await types_told(store, events[-1].id)) == ["sync.recovered", "repo.gone"]


async def test_gone_is_told_once_however_often_other_failures_come_between(store, with_repos):
    gone = failure_write(status=RepoStatus.GONE, kind=FailureKind.NOT_FOUND)
    for _ in range(3):
        await store.apply([gone])
        await store.apply([failure_write(failures=2)])
    assert await types_told(store, with_repos) == ["repo.gone"]
    await store.apply([*writes_of(synced(at=971.0)), failure_write(), gone])
    assert await types_told(store, with_repos) == ["repo.gone", "sync.recovered", "repo.gone"]


async def test_what_is_told_of_one_repo_is_in_the_order_in_which_it_was_so(store, with_repos):
    failure = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")
    failing = writes_of(Failed(A, (), failure, True, 1, 1.0, 2.0, None), teller="w")
    well = writes_of(synced(changes=0, at=971.0), teller="w")
    await store.apply(list(writes_of(synced(first=True), teller="w")))
    await store.apply([EventWritten(note(1, B)), *failing, *well, *failing, EventWritten(note(2, B))])
    events = await told(store, with_repos)
    assert [e.type for e in events if e.repo == A] == [
        "refs.changed",
        "sync.failed",
        "sync.recovered",
        "sync.failed",
    ]
    assert [e.data["n"] for e in events if e.repo == B] == [1, 2]


async def test_the_end_of_what_somebody_asked_for_is_told_once(store, with_repos):
    asked = await store.create_task(A, Trigger.API, user="ann")
    hooked = await store.create_task(A, Trigger.WEBHOOK)
    planned = await store.create_task(A, Trigger.SCHEDULE)
    outcome = Outcome(TaskStatus.FAILED, 10.0, 12.5, failure=Failure(FailureKind.AUTH_FAILED, "no"))
    await store.apply([TaskEnded(t.id, outcome) for t in (asked, hooked, planned)])
    await store.apply([TaskEnded(asked.id, outcome)])
    [event] = await told(store, with_repos)
    assert (event.type, event.repo, event.at) == ("task.ended", A, 12.5)
    assert event.data == {
        "task_id": str(asked.id),
        "status": "failure",
        "trigger": "api",
        "has_changes": False,
        "commits": 0,
        "source_commit": None,
        "duration_s": 2.5,
        "failure": {"error_type": "AUTH_FAILED", "error_message": "no", "hint": ""},
    }


async def test_how_a_pull_of_a_project_ended_is_told_whoever_wanted_it(store, with_repos):
    (put,) = await store.put_projects([pull_project(A)])
    (planned,) = await store.open_pull_tasks([OpenTask(put, 2)], 5.0)
    plain = await store.create_task(B, Trigger.SCHEDULE)  # of a repo that is no project
    last = await store.latest_event()
    done = Outcome(TaskStatus.SUCCESS, 10.0, 12.5, "c" * 40, True, 3, target_commit="d" * 40)
    await store.apply([TaskEnded(planned.id, done), TaskEnded(plain.id, done)])
    await store.apply([TaskEnded(planned.id, done)])
    [event] = await told(store, last)
    assert (event.type, event.repo, event.at) == ("pull_sync_success", A, 12.5)
    assert event.data == {
        "task_id": str(planned.id),
        "trigger_type": "schedule",
        "has_changes": True,
        "changes_count": 3,
        "source_commit_sha": "c" * 40,
        "target_commit_sha": "d" * 40,
        "retry_count": 2,
        "duration_s": 2.5,
        "failure": None,
    }
    failure = Failure(FailureKind.AUTH_FAILED, "no")
    asked = await store.create_task(A, Trigger.MANUAL)
    skipped = await store.create_task(A, Trigger.SCHEDULE)
    last = await store.latest_event()
    await store.apply(
        [
            TaskEnded(asked.id, Outcome(TaskStatus.FAILED, 20.0, 21.0, failure=failure)),
            TaskEnded(skipped.id, Outcome(TaskStatus.SKIPPED, 20.0, 21.0)),
        ]
    )
    events = await told(store, last)
    assert [e.type for e in events] == ["task.ended", "pull_sync_failed"]
    assert events[1].data["failure"]["error_type"] == "AUTH_FAILED"


# The catalog


async def test_the_catalog_tells_what_came_changed_and_left(store):
    await store.upsert_repos([repo(A), repo(B)])
    await store.upsert_repos([repo(A, priority=Priority.HIGH, interval_s=600.0), repo(B)])
    await store.remove_repos([A, "example.org/unknown"], 1001.0)
    await store.remove_repos([A], 1002.0)
    await store.restore_repo(A, 1003.0)
    events = await told(store)
    assert [(e.type, e.repo) for e in events] == [
        ("repo.added", A),
        ("repo.added", B),
        ("repo.changed", A),
        ("repo.removed", A),
        ("repo.added", A),
    ]
    assert events[0].data["url"] == f"https://{A}"
    assert events[2].data == {"changed": ["priority", "interval"]}


async def test_one_that_never_left_does_not_come_back(store, with_repos):
    await store.restore_repo(A, 1003.0)
    assert await told(store, with_repos) == ()


async def test_very_many_at_once_are_figures(store):
    many = [repo(f"example.org/r{n}") for n in range(501)]
    await store.upsert_repos(many[:500])
    assert await types_told(store) == ["repo.added"] * 500
    last = await store.latest_event()
    await store.upsert_repos([repo(r.key, priority=Priority.LOW) for r in many])
    await store.remove_repos([r.key for r in many], 1001.0)
    events = await told(store, last)
    assert [e.type for e in events] == ["catalog.changed"] * 2
    assert events[0].data == {"added": 1, "changed": 500, "removed": 0}
    assert events[1].data == {"added": 0, "changed": 0, "removed": 501}


async def test_a_catalog_that_says_the_same_tells_nothing(store, with_repos):
    await store.upsert_repos([repo(A), repo(B, private=True)])
    assert await told(store, with_repos) == ()


# Workers and alerts


async def test_the_turns_of_a_worker_are_told_in_order(store, clock):
    joined = WorkerRecord(1, WorkerFacts("alpha", trusted=True), joined_at=10.0)
    suspect = replace(joined, liveness=Liveness.SUSPECT)
    down = replace(joined, liveness=Liveness.DOWN)
    draining = replace(joined, duty=Duty.DRAINING)
    await store.apply([Decided((PutWorker(joined),))])
    await store.apply([Decided((PutWorker(replace(joined, last_alive_at=50.0)),))])
    await store.apply([Decided((PutWorker(suspect),)), Decided((PutWorker(joined),))])
    await store.apply([Decided((PutWorker(down), PutWorker(draining)))])
    other = replace(joined, facts=WorkerFacts("beta"), joined_at=99.0)
    await store.apply([Decided((PutWorker(replace(joined, duty=Duty.RETIRED)), PutWorker(other)))])
    events = await told(store)
    assert [(e.type, e.worker) for e in events] == [
        ("worker.joined", "alpha"),
        ("worker.suspect", "alpha"),
        ("worker.up", "alpha"),
        ("worker.down", "alpha"),
        ("worker.up", "alpha"),
        ("worker.changed", "alpha"),
        ("worker.changed", "alpha"),
        ("worker.joined", "beta"),
    ]
    assert events[0].data == {"id": 1, "trusted": True}
    assert events[1].data == {"id": 1, "was": "alive"}
    assert events[5].data == {"id": 1, "duty": "draining", "was": "active"}


async def test_alerts_are_told_when_they_begin_and_end(store):
    alert = Alert("worker-down", "alpha", "alpha is down", level=Level.ERROR)
    record = AlertRecord(7, alert, raised_at=100.0, changed_at=100.0)
    await store.save_alerts([AlertSaved(record)])
    await store.save_alerts([AlertSaved(replace(record, noticed=Level.ERROR))])
    ended = replace(record, ended_at=160.0, end_text="alpha is back")
    await store.save_alerts([AlertSaved(ended)])
    await store.save_alerts([AlertSaved(ended)])
    short = AlertRecord(8, replace(alert, about="beta"), raised_at=170.0, changed_at=170.0)
    await store.save_alerts([AlertSaved(short), AlertSaved(replace(short, ended_at=171.0, end_text="ok"))])
    events = await told(store)
    assert [(e.type, e.at, e.data["id"]) for e in events] == [
        ("alert.raised", 100.0, 7),
        ("alert.over", 160.0, 7),
        ("alert.raised", 170.0, 8),
        ("alert.over", 171.0, 8),
    ]
    assert events[1].data == {
        "id": 7,
        "kind": "worker-down",
        "about": "alpha",
        "level": "error",
        "text": "alpha is back",
        "raised_at": "1970-01-01T00:01:40.000Z",
    }
