"""What the store keeps of orders about many repos, on both engines."""

from __future__ import annotations

from dataclasses import replace

from evermirror.edge.store import bulk
from evermirror.model.bulk import BulkAction, BulkFilter, BulkId, BulkStatus, BulkWish
from evermirror.model.failure import FailureKind
from evermirror.model.pull import Project, PullConfig
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import Trigger

HOSTILE = "a\0b\udc80'; DROP TABLE bulk_orders; --"
FILTER = BulkFilter("linux", RepoStatus.FAILING, "h:80", Priority.LOW, "w 1", FailureKind.NOT_FOUND)


async def test_an_order_comes_back_as_it_was_given_and_as_it_goes_on(store, clock):
    wishes = [
        BulkWish(BulkAction.SYNC, keys=("b", "a")),
        BulkWish(BulkAction.PRIORITY, filter=FILTER, priority=Priority.CRITICAL),
        BulkWish(BulkAction.PAUSE, filter=BulkFilter()),
    ]
    orders = [await store.create_bulk(wish, HOSTILE, 3, {"repos": 3}) for wish in wishes]
    noted = [(entry.action, entry.subject, entry.detail) for entry in await store.list_audit(9)]
    assert noted[::-1] == [(f"bulk.{one.wish.action.value}", str(one.id), {"repos": 3}) for one in orders]
    assert [one.id for one in orders] == sorted({one.id for one in orders})
    for one, wish in zip(orders, wishes, strict=True):
        known = await store.find_bulk(one.id)
        assert (known.wish, known.matched, known.status) == (wish, 3, BulkStatus.RUNNING)
        assert known.actor.startswith("a\\x00b")
    assert [one.id for one in await store.open_bulk()] == [one.id for one in orders]
    assert [one.id for one in await store.list_bulk(2)] == [orders[2].id, orders[1].id]
    on = replace(
        orders[0],
        actor="me",
        done=5,
        unchanged=2,
        failed=1,
        looks=4,
        first_error="x is not there",
        cursor=RepoKey("k"),
        working=(RepoKey("l"), RepoKey("m")),
        updated_at=1010.0,
    )
    await store.save_bulk(on)
    assert await store.find_bulk(on.id) == on
    await store.save_bulk(replace(on, status=BulkStatus.DONE, working=()))
    assert on.id not in [one.id for one in await store.open_bulk()]
    for nobody in (0, -1, 10**18, 2**70):
        assert await store.find_bulk(BulkId(nobody)) is None


async def test_old_orders_are_forgotten_and_none_that_is_to_be_done(store, clock, monkeypatch):
    monkeypatch.setattr(bulk, "KEPT_MAX", 4)
    wish = BulkWish(BulkAction.PAUSE, filter=BulkFilter())
    open_one, *others = [await store.create_bulk(wish, "me", 1) for _ in range(4)]
    for one in others:
        await store.save_bulk(replace(one, status=BulkStatus.STOPPED))
    fifth = await store.create_bulk(wish, "me", 1)
    assert [one.id for one in await store.list_bulk(100)] == [
        fifth.id, others[2].id, others[1].id, others[0].id, open_one.id,
    ]  # fmt: skip
    await store.save_bulk(replace(fifth, status=BulkStatus.DONE))
    sixth = await store.create_bulk(wish, "me", 1)
    assert [one.id for one in await store.list_bulk(100)] == [
        sixth.id, fifth.id, others[2].id, others[1].id, open_one.id,
    ]  # fmt: skip
    clock.now += bulk.FORGET_AFTER_S + 1
    last = await store.create_bulk(wish, "me", 1)
    assert [one.id for one in await store.list_bulk(100)] == [last.id, sixth.id, open_one.id]


async def test_it_is_known_which_repos_an_order_asked_for_before_it_was_cut_short(store, clock):
    a, b, c, d = (RepoKey(name) for name in "abcd")
    await store.create_task(a, Trigger.MANUAL_BATCH, user="me")
    clock.now += 1
    order = await store.create_bulk(BulkWish(BulkAction.SYNC, keys=("a", "b", "c", "d")), "me", 4)
    await store.create_task(b, Trigger.MANUAL_BATCH, user="me")
    await store.create_task(c, Trigger.MANUAL_BATCH, user="another")
    await store.create_task(d, Trigger.API, user="me")
    assert await store.looked_at_for(order, [a, b, c, d]) == {b}
    assert await store.looked_at_for(order, []) == set()


async def test_what_an_order_changed_is_known_with_the_change_itself(store):
    keys = tuple(RepoKey(f"h/{name}") for name in "abc")
    records = [RepoRecord(RepoSpec(key, f"https://{key}", Host("h"))) for key in keys]
    await store.upsert_repos(records)
    wish = BulkWish(BulkAction.PAUSE, filter=BulkFilter())
    order = replace(await store.create_bulk(wish, "me", 3, None), working=keys)
    await store.save_bulk(order)
    assert await store.changed_for(order) == frozenset()
    await store.upsert_for(order, [replace(records[0], enabled=False)], ())
    assert await store.changed_for(order) == {keys[0]}
    await store.upsert_for(order, [replace(r, enabled=False) for r in records[:2]], {keys[0]})
    project = Project(keys[2], "c", Host("h"), PullConfig(), next_sync_at=1.0, created_at=1.0, updated_at=1.0)
    (put,) = await store.put_projects_for(order, [project], set(keys[:2]))
    assert put.key == keys[2]
    assert await store.changed_for(order) == set(keys)
    assert await store.find_bulk(order.id) == order
    noted = [(e.actor, e.action, e.subject, e.detail) for e in await store.list_audit(9)]
    assert noted[:-1] == [
        ("me", "pull.errors.reset", keys[2], {"bulk": order.id}),
        ("me", "repo.updated", keys[1], {"bulk": order.id}),
        ("me", "repo.updated", keys[0], {"bulk": order.id}),
    ]
    await store.save_bulk(replace(order, working=keys[1:]))
    assert await store.changed_for(replace(order, working=keys[1:])) == frozenset(), (
        "of the next ones none yet"
    )


async def test_what_people_said_meanwhile_is_left_and_told(store):
    before = RepoRecord(RepoSpec(RepoKey("h/a"), "https://h/a", Host("h")), source="catalog")
    said = replace(before, enabled=False, info={"enabled": False})
    await store.upsert_repos([said])
    other = RepoRecord(RepoSpec(RepoKey("h/b"), "https://h/b", Host("h")), source="catalog")
    counts = await store.upsert_repos([before, other], said_stays=True)
    assert (counts.left, counts.added, counts.updated) == (("h/a",), 1, 0)
    assert not (await store.find_repo("h/a")).enabled
    assert (await store.upsert_repos([before])).updated == 1
