"""Orders about many repos at a real coordinator: done, refused, stopped, cut short and gone on with."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evermirror.core.bulk import admission
from evermirror.core.bulk.course import MORE_NOW
from evermirror.core.catalog.entry import CatalogEntry
from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.bulk import BulkAction, BulkFilter, BulkId, BulkStatus
from evermirror.model.event import EventId, EventType
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import AssignRepos
from evermirror.model.repo import Priority, RepoStatus
from evermirror.model.task import TaskStatus, Trigger
from evermirror.nodes.coordinator.bulk import acting, bulk_orders
from evermirror.nodes.coordinator.catalog.catalog_records import CatalogRecords
from tests.nodes.bulk_house import BulkHouse, record
from tests.nodes.pull_house import built, key_of
from tests.nodes.test_coordinator import failed

TARGET = "https://target.example.org/core.git"
AWAY = FailureError(Failure(FailureKind.UNKNOWN, "the database does not answer"))


@pytest.fixture
async def empty_house(tmp_path, monkeypatch):
    """Chunks of three."""
    monkeypatch.setattr(bulk_orders, "CHUNK", 3)
    monkeypatch.setattr(bulk_orders, "CONFIGURED", 3)
    async with built(BulkHouse, tmp_path) as house:
        yield house


@pytest.fixture
async def house(empty_house):
    async with empty_house.running():
        yield empty_house


# What is done


async def test_many_are_paused_and_resumed_and_workers_and_others_hear_of_it(house):
    keys = await house.have(*"abcdefg")
    await house.commands()
    order = await house.ordered(BulkAction.PAUSE, expected=7)
    assert (order.status, order.matched, order.done, order.unchanged) == (BulkStatus.DONE, 7, 7, 0)
    found = await house.store.find_repos(keys)
    assert {(r.enabled, r.status, r.info["enabled"]) for r in found.values()} == {
        (False, RepoStatus.INACTIVE, False)
    }
    told = await house.commands()
    assert {key for c in told if isinstance(c, AssignRepos) for key in c.paused} == set(keys)
    events = (await house.store.events_after(EventId(0), 100)).events
    assert sorted(e.repo for e in events if e.type == EventType.REPO_CHANGED.value) == keys
    actions = await house.actions()
    assert actions[-1] == ("bulk.pause", str(order.id))
    assert sorted(actions[:-1]) == [("repo.updated", key) for key in keys]
    again = await house.ordered(BulkAction.PAUSE)
    assert (again.done, again.unchanged) == (7, 7)
    back = await house.ordered(BulkAction.RESUME, keys[0], "h.org/b", "https://h.org/c.git")
    assert (back.matched, back.done, back.unchanged) == (3, 3, 0)
    assert [r.enabled for r in (await house.store.find_repos(keys)).values()] == [True] * 3 + [False] * 4


async def test_a_filter_that_its_own_work_empties_is_walked_to_the_end(house):
    await house.have(*"abcdefgh")
    await house.ordered(BulkAction.PAUSE, "h.org/b", "h.org/d")
    order = await house.ordered(BulkAction.PAUSE, which=BulkFilter(status=RepoStatus.PENDING))
    assert (order.matched, order.done, order.unchanged) == (6, 6, 0)
    assert (
        await house.store.count_repos(bulk_orders._filter(BulkFilter(status=RepoStatus.PENDING), None)) == 0
    )


async def test_a_catalogs_repo_keeps_what_was_ordered_over_its_line(house):
    (key,) = await house.have("a", source="catalog")
    await house.ordered(BulkAction.PRIORITY, priority=Priority.HIGH)
    found = await house.repo(key)
    assert (found.source, found.spec.priority) == ("catalog", Priority.HIGH)
    assert dict(found.info) == {"priority": "high"}


async def test_what_is_ordered_or_said_while_a_catalog_is_read_for_the_first_time_stays(house):
    """What people said of its repos is asked for once, before a million lines are read."""
    a, b, c = await house.have(*"abc", source="catalog")
    records = CatalogRecords(house.store, house.it, frozenset())
    known = await records.spoken_of()
    await house.ordered(BulkAction.PAUSE, a)
    await house.it.add_url("https://h.org/b", {"priority": "low"}, actor="me")
    lines = [CatalogEntry(spec=record(name, "catalog").spec, file="f", line=1) for name in "abcd"]
    counts, _ = await records.put(lines, known=known)
    assert (counts.added, counts.updated, counts.unchanged) == (1, 0, 3)
    found = await house.store.find_repos([a, b, c])
    assert [found[key].enabled for key in (a, b, c)] == [False, True, True]
    assert found[b].spec.priority is Priority.LOW


async def test_a_project_gets_the_priority_too_also_where_a_person_set_another(house):
    await house.create("a", TARGET, priority=Priority.LOW)
    await house.create("b", TARGET.replace("core", "b"))
    await house.change("b", priority=Priority.CRITICAL)
    order = await house.ordered(BulkAction.PRIORITY, priority=Priority.HIGH)
    assert (order.done, order.unchanged, order.failed) == (2, 0, 0)
    for name in "ab":
        project = await house.project(name)
        assert project.config.priority is Priority.HIGH
        assert (await house.repo(key_of(name))).spec.priority is Priority.HIGH
    assert (await house.ordered(BulkAction.PRIORITY, priority=Priority.HIGH)).unchanged == 2


async def test_each_is_synced_once_by_a_task_of_a_batch(house):
    keys = await house.have(*"abcd")
    await house.create("p", TARGET)
    await house.did(await house.one_sync())
    await house.commands()
    await house.ordered(BulkAction.PAUSE, "h.org/d")
    order = await house.ordered(BulkAction.SYNC)
    assert (order.matched, order.done, order.failed, order.looks) == (5, 4, 1, 4)
    assert order.first_error == "h.org/d is paused: resume it first"
    syncs = await house.syncs()
    assert sorted(s.key for s in syncs) == sorted([key_of("p"), *keys[:3]])
    for sync in syncs:
        task = await house.it.get_task(sync.task_id)
        assert (task.trigger, task.user) == (Trigger.MANUAL_BATCH, "me")


async def test_only_those_that_fail_are_retried(house):
    a, b = await house.have("a", "b")
    await house.take(failed(key=a))
    assert (await house.repo(a)).status is RepoStatus.FAILING
    await house.commands()
    order = await house.ordered(BulkAction.RETRY)
    assert (order.done, order.unchanged, order.looks) == (2, 1, 1)
    assert [s.key for s in await house.syncs()] == [a]
    assert (await house.store.list_tasks(b, 1)) == ()


async def test_a_reset_forgets_what_a_project_failed_and_has_the_others_looked_at(house):
    (plain,) = await house.have("x")
    await house.take(failed(key=plain))
    await house.create("p", TARGET)
    sync = await house.one_sync()
    await house.take(failed(sync.task_id, key=sync.key, failures=1))
    assert (await house.project("p")).failures == 1
    await house.create("q", TARGET.replace("core", "q"))
    await house.change("q", enabled=False)
    refused = await house.ordered(BulkAction.SYNC, "q")
    assert refused.first_error == f"{key_of('q')} is a pull project that a person disabled: enable it first"
    await house.commands()
    order = await house.ordered(BulkAction.RESET)
    assert (order.done, order.unchanged, order.failed, order.looks) == (3, 1, 0, 1)
    project = await house.project("p")
    assert (project.config.enabled, project.failures) == (True, 0)
    assert not (await house.project("q")).config.enabled, "a person's word stands"
    assert sorted(s.key for s in await house.syncs()) == sorted([key_of("p"), plain])
    assert ("pull.errors.reset", key_of("p")) in await house.actions()


async def test_of_very_many_there_is_one_entry_in_the_audit_log_and_few_events(house, monkeypatch):
    monkeypatch.setattr(bulk_orders, "CONFIGURED", 500)
    await house.have(*(f"r{n:04}" for n in range(1_201)))
    latest = await house.store.latest_event()
    published = []
    house.it.on_api_change = lambda: published.append(True)
    order = await house.ordered(BulkAction.PAUSE)
    assert published == [True], "once, at its end"
    assert (order.done, order.failed) == (1_201, 0)
    assert await house.actions() == [("bulk.pause", str(order.id))]
    detail = (await house.store.list_audit(1))[0].detail
    assert detail == {"repos": 1_201, "filter": {}}
    events = (await house.store.events_after(latest, 1_000)).events
    assert {e.type for e in events} == {EventType.CATALOG_CHANGED.value}
    assert [e.data["changed"] for e in events] == [500, 500, 201]


# What is refused


async def test_nothing_is_done_where_the_count_is_another_or_a_key_is_nobodys(house):
    await house.have(*"abc")
    with pytest.raises(Conflict, match="2 repos were expected, and 3 match now"):
        await house.order(BulkAction.PAUSE, expected=2)
    with pytest.raises(NotFound, match=r"'h\.org/z' is not in the catalog: nothing was done"):
        await house.order(BulkAction.PAUSE, "h.org/a", "h.org/z", "h.org/y")
    with pytest.raises(NotFound):
        await house.order(BulkAction.PAUSE, "https://user:pw@\0/")
    with pytest.raises(UsageError):
        await house.order(BulkAction.PRIORITY)
    with pytest.raises(NotFound, match="no order 99"):
        await house.bulk.find(BulkId(99))
    assert await house.bulk.newest(20) == ()
    assert all(r.enabled for r in (await house.store.find_repos(["h.org/a", "h.org/b"])).values())
    none = await house.ordered(BulkAction.PAUSE, which=BulkFilter(search="nobody"), expected=0)
    assert (none.status, none.matched, none.done) == (BulkStatus.DONE, 0, 0)


async def test_looks_of_one_order_are_bounded(house, monkeypatch):
    await house.have(*"abcde")
    monkeypatch.setattr(admission, "LOOKS_MAX", 4)
    with pytest.raises(UsageError, match=r"5 repos match, and one order can sync at most 4\. Narrow"):
        await house.order(BulkAction.SYNC)


async def test_a_reset_makes_no_more_tasks_than_one_order_may(house, monkeypatch):
    monkeypatch.setattr(acting, "LOOKS_MAX", 1)
    for key in await house.have(*"abcd"):
        await house.take(failed(key=key))
    order = await house.ordered(BulkAction.RESET)
    assert (order.done, order.failed, order.looks) == (1, 3, 1)
    assert order.first_error == "h.org/b is not looked at now: one order makes at most 1 tasks; retry it"


async def test_a_repo_that_left_meanwhile_is_counted_as_failed(empty_house):
    empty_house.carrying = False
    async with empty_house.running() as house:
        await house.have(*"ab")
        view = await house.order(BulkAction.PAUSE, "h.org/a", "h.org/b")
        await house.step()
        await house.it.remove_repo("h.org/a", actor="me")
        await house.step()
        order = (await house.bulk.find(view.order.id)).order
        assert (order.done, order.failed) == (1, 1)
        assert order.first_error == "h.org/a is no longer in the catalog"


@pytest.mark.parametrize(("action", "at_once"), [(BulkAction.PAUSE, 4), (BulkAction.SYNC, 2)])
async def test_more_repos_are_configured_than_looked_at_together(empty_house, monkeypatch, action, at_once):
    """Each look is a task; a configuration is a row, and its worker hears of many at once."""
    monkeypatch.setattr(bulk_orders, "CHUNK", 2)
    monkeypatch.setattr(bulk_orders, "CONFIGURED", 4)
    empty_house.carrying = False
    async with empty_house.running() as house:
        await house.have(*"abcdef")
        view = await house.order(action)
        await house.step()
        assert len((await house.bulk.find(view.order.id)).order.working) == at_once


# In line, stopped, cut short


async def test_who_orders_and_hangs_up_has_ordered(house, monkeypatch):
    await house.have(*"ab")
    create, begun, go = house.store.create_bulk, asyncio.Event(), asyncio.Event()

    async def slow(*args):
        begun.set()
        await go.wait()
        return await create(*args)

    monkeypatch.setattr(house.store, "create_bulk", slow)
    asking = asyncio.create_task(house.order(BulkAction.PAUSE))
    await begun.wait()
    asking.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    (view,) = await house.bulk.newest(1)
    assert (await house.ended(view.order.id)).done == 2


async def test_orders_wait_in_line_and_each_can_be_stopped_between_chunks(empty_house, monkeypatch):
    monkeypatch.setattr(admission, "WAITING_MAX", 2)
    empty_house.carrying = False
    async with empty_house.running() as house:
        await house.have(*"abcdefgh")
        first, second, third = [await house.order(BulkAction.PAUSE) for _ in range(3)]
        assert (first.ahead, second.ahead, third.ahead) == (0, 1, 2)
        with pytest.raises(Conflict, match="2 orders wait already"):
            await house.order(BulkAction.PAUSE)
        await house.step()
        await house.step()  # three are paused, and the next three taken
        stopped = await house.bulk.stop(second.order.id, actor="me")
        assert (stopped.order.status, stopped.order.done) == (BulkStatus.STOPPED, 0)
        assert (await house.bulk.find(third.order.id)).ahead == 1
        stopping = asyncio.create_task(house.bulk.stop(first.order.id, actor="me"))
        await asyncio.sleep(0.05)
        assert not stopping.done()
        await house.step()
        view = await stopping
        assert (view.order.status, view.order.done, view.order.matched) == (BulkStatus.STOPPED, 3, 8)
        assert (await house.bulk.stop(first.order.id, actor="me")).order == view.order
        paused = await house.store.list_repos(
            bulk_orders._filter(BulkFilter(status=RepoStatus.INACTIVE), None)
        )
        assert [r.key for r in paused] == ["h.org/a", "h.org/b", "h.org/c"]
        assert ("bulk.stopped", str(first.order.id)) in await house.actions()
        newest = [(v.order.id, v.order.status) for v in await house.bulk.newest(20)]
        assert newest == [
            (third.order.id, BulkStatus.RUNNING),
            (second.order.id, BulkStatus.STOPPED),
            (first.order.id, BulkStatus.STOPPED),
        ]


@pytest.mark.parametrize("action", [BulkAction.PAUSE, BulkAction.SYNC])
async def test_an_order_that_a_crash_cut_short_goes_on_and_each_repo_is_counted_once(empty_house, action):
    """The crash comes after a chunk was acted on, and before that was written down."""
    empty_house.carrying = False
    async with empty_house.running() as house:
        keys = await house.have(*"abcdefgh")
        order_id = (await house.order(action, which=BulkFilter(host="h.org"))).order.id
        await house.step()
        await house.step()
        working = await house.store.find_bulk(order_id)
        assert (working.done, working.working) == (3, tuple(keys[3:6]))
        await house.acting.act(working, again=False)
    empty_house.carrying = True
    async with empty_house.running() as house:
        order = await house.ended(order_id)
        assert (order.status, order.done, order.unchanged, order.failed) == (BulkStatus.DONE, 8, 0, 0)
        found = await house.store.find_repos(keys)
        if action is BulkAction.PAUSE:
            noted = [subject for action, subject in await house.actions() if action == "repo.updated"]
            assert sorted(noted) == keys, "each once"
            assert not any(r.enabled for r in found.values())
        else:
            assert order.looks == 8
            for key in keys:
                assert len(await house.store.list_tasks(key, 10)) == 1
                assert (await house.store.list_tasks(key, 1))[0].status is TaskStatus.PENDING


async def test_a_worker_hears_of_what_a_crash_kept_from_it(empty_house):
    """In the store by now, and nobody was told: the chunk is told again as a whole."""
    empty_house.carrying = False
    async with empty_house.running() as house:
        keys = await house.have(*"ab")
        await house.order(BulkAction.PAUSE)
        await house.step()
        found = await house.store.find_repos(keys)
        await house.store.upsert_repos(
            [replace(r, enabled=False, info={"enabled": False}) for r in found.values()]
        )
    async with empty_house.running() as house:
        await house.commands()
        await house.step(again=True)
        told = await house.commands()
        assert told
        (view,) = await house.bulk.newest(1)
        assert (view.order.status, view.order.done, view.order.unchanged) == (BulkStatus.DONE, 2, 2)


async def test_a_database_in_trouble_is_waited_for_and_a_mistake_of_ours_is_told(house, monkeypatch):
    await house.have(*"abcde")
    save, calls = house.store.save_bulk, []

    async def flaky(order):
        calls.append(order.done)
        if len(calls) in (2, 3, 4):
            raise AWAY
        await save(order)

    monkeypatch.setattr(house.store, "save_bulk", flaky)
    order = await house.ordered(BulkAction.PAUSE)
    assert (order.status, order.done, order.failed) == (BulkStatus.DONE, 5, 0)

    async def broken(order, *, again):
        raise ValueError("a mistake")

    monkeypatch.setattr(house.acting, "act", broken)
    order = await house.ordered(BulkAction.RESUME)
    assert (order.status, order.done, order.first_error) == (BulkStatus.FAILED, 0, bulk_orders.OUR_MISTAKE)


async def test_no_more_are_acted_on_than_were_confirmed(empty_house):
    """It waits in line, or through a restart, while others come to match."""
    empty_house.carrying = False
    async with empty_house.running() as house:
        (first,) = await house.have("m")
        order_id = (
            await house.order(BulkAction.PAUSE, which=BulkFilter(search="h.org"), expected=1)
        ).order.id
        await house.have(*"npqrs")
        while not (order := (await house.bulk.find(order_id)).order).has_ended:
            await house.step()
        assert (order.status, order.matched, order.done) == (BulkStatus.FAILED, 1, 1)
        assert order.first_error == MORE_NOW
        paused = bulk_orders._filter(BulkFilter(status=RepoStatus.INACTIVE), None)
        assert await house.store.keys_of(paused) == (first,)


@pytest.mark.parametrize("action", [BulkAction.PAUSE, BulkAction.RESET])
async def test_what_was_changed_before_the_database_went_away_is_noted_and_counted_as_that(
    house, monkeypatch, action
):
    """The change is in the store, and what follows it goes wrong once."""
    await house.create("p", TARGET)
    sync = await house.one_sync()
    await house.take(failed(sync.task_id, key=sync.key, failures=1))
    whose, name = (house.it, "follow") if action is BulkAction.PAUSE else (house.store, "save_bulk")
    real, calls = getattr(whose, name), []

    async def flaky(*args):
        calls.append(args)
        if len(calls) == (1 if action is BulkAction.PAUSE else 2):
            raise AWAY
        return await real(*args)

    monkeypatch.setattr(whose, name, flaky)
    order = await house.ordered(action)
    assert (order.status, order.done, order.unchanged, order.failed) == (BulkStatus.DONE, 1, 0, 0)
    noted = "repo.updated" if action is BulkAction.PAUSE else "pull.errors.reset"
    assert (await house.actions()).count((noted, key_of("p"))) == 1


async def test_a_mistake_that_stays_is_met_with_rests_that_grow(house, monkeypatch):
    await house.have("a")
    save, rests, calls = house.store.save_bulk, [], []

    async def resting(seconds):
        rests.append(seconds)

    async def broken(order):
        calls.append(order)
        if len(calls) <= 3:
            raise ValueError("a mistake")
        await save(order)

    house.bulk._sleep = resting
    monkeypatch.setattr(house.store, "save_bulk", broken)
    order = await house.ordered(BulkAction.PAUSE)
    assert (order.status, order.first_error) == (BulkStatus.FAILED, bulk_orders.OUR_MISTAKE)
    assert rests[:3] == [1.0, 2.0, 4.0]


async def test_a_stop_does_not_wait_for_the_rest_to_end(house, monkeypatch):
    await house.have("a")
    save, resting, calls = house.store.save_bulk, asyncio.Event(), []

    async def endless(seconds):
        resting.set()
        await asyncio.Event().wait()

    async def flaky(order):
        calls.append(order)
        if len(calls) == 1:
            raise AWAY
        await save(order)

    house.bulk._sleep = endless
    monkeypatch.setattr(house.store, "save_bulk", flaky)
    view = await house.order(BulkAction.PAUSE)
    await resting.wait()
    stopped = await house.bulk.stop(view.order.id, actor="me")
    assert (stopped.order.status, stopped.order.done) == (BulkStatus.STOPPED, 0)
