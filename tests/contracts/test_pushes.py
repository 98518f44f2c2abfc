"""When a repo was pushed to, as the store tells it, on SQLite and on PostgreSQL alike."""

from dataclasses import replace

from evermirror.edge.store.outcomes import outcome_of
from evermirror.edge.store.writes import TaskRecorded, writes_of
from evermirror.model.figures import PushDay, PushHistory, PushSeen
from evermirror.model.messages import Failed
from evermirror.model.push import Pushed, TargetId
from evermirror.model.refs import RefChange, RefsDigest
from evermirror.model.report import DAY_S
from evermirror.model.task import Trigger
from tests.contracts.test_pull_history import HOSTILE, TIMEOUT, synced
from tests.support.pull_store import HEAD, A, B, repo


def digest(what):
    """Of the refs as they were found then."""
    return RefsDigest(f"{int(what):064x}")


def moved(key, at, *, refs=1, commits=3, **more):
    """A sync that found so many refs moved, recorded as its worker's own doing. Each is another push, unless
    the digest says otherwise."""
    names = tuple(RefChange(f"refs/heads/{n}", None, HEAD) for n in range(min(refs, 2)))
    times = {"started_at": at - 1, "verified_at": at, "ended_at": at}
    told = {"key": key, "changes": names, "changes_total": refs, "commits": commits, "digest": digest(at)}
    told |= times | more
    return TaskRecorded(key, outcome_of(replace(synced(*told.pop("pushes", ()), ids=()), **told), "w"))


async def test_pushes_are_told_by_day_and_singly_and_clones_are_none(store, clock):
    clock.now = 40 * DAY_S
    await store.upsert_repos([repo(A), repo(B)])
    assert await store.pushes(A, 0.0) == PushHistory((), (), None)
    await store.apply(
        [
            moved(A, 10 * DAY_S + 5, refs=50, commits=4_000, first=True),
            moved(A, 11 * DAY_S - 1, refs=2, commits=7),
            moved(A, 11 * DAY_S, refs=1, commits=1),
            moved(A, 11 * DAY_S + 9, refs=30, commits=0),
            moved(B, 11 * DAY_S + 9),
            moved(A, 12 * DAY_S, refs=0, commits=0),
            moved(A, 13 * DAY_S, refs=0, commits=0, pushes=(Pushed(TargetId(1), None, put_total=4),)),
        ]
    )
    told = await store.pushes(A, 0.0)
    assert told.days == (PushDay(10, 1, 7), PushDay(11, 2, 1))
    assert told.recent == (
        PushSeen(11 * DAY_S + 9, 0, 30),
        PushSeen(11 * DAY_S, 1, 1),
        PushSeen(11 * DAY_S - 1, 7, 2),
    )
    assert told.since == 10 * DAY_S + 5, "the oldest that is kept of anybody"
    assert (await store.pushes(A, 11 * DAY_S)).days == (PushDay(11, 2, 1),)
    await store.cleanup_tasks(11 * DAY_S)
    assert (await store.pushes(A, 0.0)).since == 11 * DAY_S
    assert await store.pushes("no\x00such", 0.0) == PushHistory((), (), None)


async def test_a_ref_cannot_make_a_push_look_like_a_clone(store, clock):
    clock.now = DAY_S
    await store.upsert_repos([repo(A)])
    name = f'refs/heads/"first":true,"changes_total":0,{HOSTILE}'
    await store.apply([moved(A, 50.0, changes=(RefChange(name, None, HEAD),))])
    await store.apply(list(writes_of(Failed(A, (), TIMEOUT, True, 1, 60.0, 61.0, None))))
    assert (await store.pushes(A, 0.0)).days == (PushDay(0, 1, 3),)


async def test_it_is_bounded_however_often_a_repo_is_pushed_to(store, clock, monkeypatch):
    clock.now = DAY_S
    await store.upsert_repos([repo(A)])
    await store.apply([moved(A, 100.0 + n) for n in range(130)])
    told = await store.pushes(A, 0.0)
    assert (told.days, len(told.recent)) == ((PushDay(0, 130, 390),), 100)
    monkeypatch.setattr("evermirror.edge.store.pushes.TASKS_MAX", 20)
    told = await store.pushes(A, 0.0)
    assert (told.days, told.since) == ((PushDay(0, 20, 60),), 210.0), "what was before is not known"
    await store.apply([moved(A, 300.0 + n, refs=0) for n in range(19)])
    told = await store.pushes(A, 0.0)
    assert (told.days, told.since) == ((PushDay(0, 1, 3),), 229.0), "what is no push is looked at too"
    monkeypatch.setattr("evermirror.edge.store.pushes.TASKS_MAX", 149)
    assert (await store.pushes(A, 0.0)).since == 100.0, "all of them, and no more"


def synced_by(worker, at, what, *, ids=(), follows=False, **more):
    """What the report of a sync leaves that found the refs ``what``, and took two seconds."""
    change = RefChange("refs/heads/main", None, HEAD)
    told = {"changes": (change,), "changes_total": 1, "commits": 5, "digest": digest(what)} | more
    times = {"started_at": at - 2, "verified_at": at - 1, "ended_at": at}
    report = replace(synced(ids=ids), **times | told)
    return writes_of(report, worker=worker, teller=worker, follows=follows)


async def test_one_push_is_one_however_many_workers_hold_the_repo(store, clock):
    clock.now = DAY_S
    await store.upsert_repos([repo(A)])
    await store.apply([*synced_by("w1", 100.0, 1), *synced_by("w2", 103.0, 1, follows=True, commits=9)])
    told = await store.pushes(A, 0.0)
    assert told.days == (PushDay(0, 1, 5),)
    assert told.recent == (PushSeen(100.0, 5, 1),), "as it was found first"
    slow = synced_by("w2", 290.0, 2, follows=True, started_at=201.0)
    await store.apply([*synced_by("w1", 200.0, 2), *synced_by("w1", 260.0, 3), *slow])
    await store.apply([*synced_by("w2", 295.0, 3, follows=True)])
    assert [push.at for push in (await store.pushes(A, 0.0)).recent] == [260.0, 200.0, 100.0]


async def test_a_branch_that_comes_and_goes_is_pushed_each_time(store, clock):
    clock.now = DAY_S
    await store.upsert_repos([repo(A)])
    for n, what in enumerate((1, 2, 1, 2)):
        at = 100.0 + 60 * n
        await store.apply([*synced_by("w1", at, what), *synced_by("w2", at + 5, what, follows=True)])
    assert (await store.pushes(A, 0.0)).days == (PushDay(0, 4, 20),)


async def test_one_push_is_one_however_many_tasks_waited_for_it(store, clock):
    clock.now = DAY_S
    await store.upsert_repos([repo(A)])
    ids = [(await store.create_task(A, Trigger.MANUAL)).id for _ in range(3)]
    late = (await store.create_task(A, Trigger.MANUAL)).id
    await store.apply([*synced_by("w1", 100.0, 1)])
    await store.apply([*synced_by("w1", 200.0, 2, ids=tuple(ids))])
    await store.apply([*synced_by("w1", 300.0, 3), *synced_by("w1", 400.0, 4, ids=(late,))])
    told = await store.pushes(A, 0.0)
    assert told.days == (PushDay(0, 4, 20),)
    assert [push.at for push in told.recent] == [400.0, 300.0, 200.0, 100.0], "by time, not as they were made"


async def test_a_push_whose_refs_were_too_many_to_be_named_is_one(store, clock):
    clock.now = DAY_S
    await store.upsert_repos([repo(A)])
    await store.apply([*synced_by("w1", 100.0, 1, changes=(), changes_total=70_000)])
    assert (await store.pushes(A, 0.0)).recent == (PushSeen(100.0, 5, 70_000),)
