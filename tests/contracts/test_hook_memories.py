"""What the store keeps of hooks, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from evermirror.edge.store import hook_memories as module
from evermirror.edge.store.hook_registrations import put as put_registrations
from evermirror.edge.store.news_tables import hook_memories
from evermirror.edge.store.writes import RepoSynced
from evermirror.errors import UsageError
from evermirror.model.activity import Activity
from evermirror.model.event import EventType, NewEvent
from evermirror.model.forge import Forge
from evermirror.model.hook import HookMemory, HookRegistration, HookTrust, RegistrationState
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from evermirror.nodes.hook_service import HookSelection

OK, MISSING = RegistrationState.OK, RegistrationState.MISSING
UNPROVEN, RELIABLE, SILENT = HookTrust.UNPROVEN, HookTrust.RELIABLE, HookTrust.SILENT
HOSTILE = "a\0b\udc80'; DROP TABLE hook_memories; --"


def key(name):
    return RepoKey(f"h.org/{name}")


def record(name):
    spec = RepoSpec(key(name), f"https://{key(name)}", Host("h.org"))
    return RepoRecord(spec, source="api")


async def with_repos(store, *names):
    await store.upsert_repos([record(name) for name in names])


async def loaded(store):
    return [memory async for chunk in store.load_hook_memories() for memory, _ in chunk]


async def register(store, **states):
    made = [HookRegistration(key(n), Forge.GITHUB, s, "7", "", 5.0) for n, s in states.items()]
    await put_registrations(store._db, made)


async def listed(store, **which):
    return [row.key.removeprefix("h.org/") for row in await store.hooks_page(HookSelection(**which))]


async def hooked(store, name):
    return (await store.specs_of([key(name)]))[0].spec.hooked


async def test_what_is_saved_is_read_back_and_replaced(store):
    await with_repos(store, "a", "b")
    full = HookMemory(key("a"), RELIABLE, 1.5, 2**40, 2.5, 3, 4, 40, 2**41, 2**42)
    await store.save_hooks([full, HookMemory(key("b"))])
    assert await loaded(store) == [full, HookMemory(key("b"))]
    await store.save_hooks([HookMemory(key("b"), SILENT, missed=2), replace(full, told=9)])
    assert await loaded(store) == [replace(full, told=9), HookMemory(key("b"), SILENT, missed=2)]


async def test_with_each_comes_which_refs_the_repo_has(store):
    await with_repos(store, "a", "b")
    await store.apply([RepoSynced(key("a"), "7" * 64, None, 1, 1, 5.0, 5.0, Activity())])
    await store.save_hooks([HookMemory(key("a")), HookMemory(key("b"))])
    (chunk,) = [chunk async for chunk in store.load_hook_memories()]
    assert [digest for _, digest in chunk] == ["7" * 64, None]


async def test_of_the_same_repo_twice_in_a_batch_the_last_counts(store):
    await with_repos(store, "a")
    await store.save_hooks([HookMemory(key("a"), told=1), HookMemory(key("a"), told=2)])
    assert [m.told for m in await loaded(store)] == [2]


async def test_all_are_read_in_chunks(store, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 3)
    names = [f"r{n}" for n in range(10)]
    await with_repos(store, *names)
    await store.save_hooks([HookMemory(key(name)) for name in names])
    chunks = [chunk async for chunk in store.load_hook_memories()]
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 1]
    assert {m.key for chunk in chunks for m, _ in chunk} == {key(name) for name in names}


async def test_the_flag_and_the_news_are_in_the_same_transaction(store, clock):
    await with_repos(store, "a")
    before = await store.latest_event()
    new = NewEvent(EventType.HOOKS_RELIABLE, 5.0, key("a"), data={"told": 5})
    await store.save_hooks([HookMemory(key("a"), RELIABLE)], hooked={key("a"): True}, news=[new])
    assert await hooked(store, "a")
    assert (await store.find_repo(key("a"))).spec.hooked
    page = await store.events_after(before, 10)
    assert [(e.type, e.repo, e.data) for e in page.events] == [("hooks.reliable", key("a"), {"told": 5})]
    broken = HookMemory(RepoKey(HOSTILE))
    with pytest.raises(UsageError):
        await store.save_hooks([broken], hooked={key("a"): False}, news=[new])
    assert await hooked(store, "a"), "all or nothing"


async def test_whoever_follows_events_is_woken_by_news_only(store):
    woken = []
    store.on_event = lambda: woken.append(1)
    await with_repos(store, "a")
    woken.clear()
    await store.save_hooks([HookMemory(key("a"))])
    assert woken == []
    await store.save_hooks([], news=[NewEvent(EventType.HOOKS_SILENT, 1.0, key("a"))])
    assert woken == [1]


async def test_a_catalog_that_is_read_again_does_not_reset_the_flag(store):
    await with_repos(store, "a")
    await store.save_hooks([HookMemory(key("a"), RELIABLE)], hooked={key("a"): True})
    await with_repos(store, "a")
    await store.upsert_repos([replace(record("a"), alias="other", enabled=False)])
    await store.upsert_repos([replace(record("a"), alias="other")])
    assert await hooked(store, "a")


@pytest.mark.parametrize("how", ["added again", "restored"])
async def test_a_repo_that_left_comes_back_without(store, how):
    await with_repos(store, "a")
    await store.save_hooks([HookMemory(key("a"), RELIABLE)], hooked={key("a"): True})
    await store.remove_repos([key("a")], 2000.0)
    assert await loaded(store) == [], "what is not in the catalog is forgotten at the next start"
    if how == "restored":
        await store.restore_repo(key("a"), 3000.0)
    else:
        await with_repos(store, "a")
    assert not await hooked(store, "a")


async def test_who_is_not_in_the_catalog_is_not_flagged(store):
    await with_repos(store, "a")
    await store.remove_repos([key("a")], 2000.0)
    await store.save_hooks([], hooked={key("a"): True, key("never"): True, RepoKey(HOSTILE): True})
    await store.restore_repo(key("a"), 3000.0)
    assert not await hooked(store, "a")


async def test_what_is_forgotten_is_gone(store):
    await with_repos(store, "a", "b")
    await store.save_hooks([HookMemory(key("a")), HookMemory(key("b"))])
    await store.save_hooks([], forgotten=[key("a"), key("a"), key("never"), RepoKey(HOSTILE)])
    assert [m.key for m in await loaded(store)] == [key("b")]


async def test_forgotten_and_heard_of_again_in_one_batch_starts_anew(store):
    await with_repos(store, "a")
    await store.save_hooks([HookMemory(key("a"), told=4)])
    await store.save_hooks([HookMemory(key("a"), told=1)], forgotten=[key("a")])
    assert [m.told for m in await loaded(store)] == [1]


async def test_a_page_has_those_with_hooks_and_those_registered(store):
    await with_repos(store, "a", "b", "c", "d", "plain")
    await store.save_hooks([HookMemory(key("a"), SILENT), HookMemory(key("c"), RELIABLE)])
    await register(store, b=MISSING, c=OK, d=OK)
    assert await listed(store) == ["a", "b", "c", "d"]
    assert await listed(store, trust=SILENT) == ["a"]
    assert await listed(store, trust=RELIABLE) == ["c"]
    assert await listed(store, trust=UNPROVEN) == []
    assert await listed(store, state=MISSING) == ["b"]
    assert await listed(store, state=OK) == ["c", "d"]
    assert await listed(store, state=OK, trust=RELIABLE) == ["c"]
    assert await listed(store, state=MISSING, trust=RELIABLE) == []
    rows = {row.key: row for row in await store.hooks_page(HookSelection())}
    assert (rows[key("a")].memory.trust, rows[key("a")].registration) == (SILENT, None)
    assert (rows[key("b")].memory, rows[key("b")].registration.state) == (None, MISSING)
    assert (rows[key("c")].memory.trust, rows[key("c")].registration.state) == (RELIABLE, OK)


async def test_pages_follow_one_another_by_key(store):
    names = [f"r{n:02}" for n in range(20)]
    await with_repos(store, *names)
    await store.save_hooks([HookMemory(key(name)) for name in names[::2]])
    await register(store, **{name: OK for name in names if name not in names[::4]})
    seen, after = [], None
    while page := await store.hooks_page(HookSelection(after=after, limit=3)):
        assert len(page) <= 3
        seen += [row.key for row in page]
        after = page[-1].key
    assert seen == [key(name) for name in names]


async def test_a_search_finds_a_part_of_the_key_and_nothing_else(store):
    await with_repos(store, "alpha", "beta", "al%ha")
    await store.save_hooks([HookMemory(key(n)) for n in ("alpha", "beta", "al%ha")])
    assert await listed(store, search="LPH") == ["alpha"]
    assert await listed(store, search="al%h") == ["al%ha"]
    assert await listed(store, search=HOSTILE) == []
    assert await listed(store, search="x" * 5000) == []
    assert await listed(store, after=RepoKey(HOSTILE)) == []


async def test_those_who_left_are_not_listed(store):
    await with_repos(store, "a", "b")
    await store.save_hooks([HookMemory(key("a"))])
    await register(store, b=OK)
    await store.remove_repos([key("a"), key("b")], 2000.0)
    assert await listed(store) == []


@pytest.mark.parametrize("limit", [-1, 0])
async def test_a_limit_of_nothing_gives_nothing(store, limit):
    await with_repos(store, "a")
    await store.save_hooks([HookMemory(key("a"))])
    assert await listed(store, limit=limit) == []


async def test_of_single_repos(store):
    await with_repos(store, "a", "b")
    await store.save_hooks([HookMemory(key("a"), SILENT)])
    found = await store.hooks_of([key("a"), key("b"), RepoKey(HOSTILE)])
    assert {k: row.memory.trust for k, row in found.items()} == {key("a"): SILENT}


async def test_ten_thousand_are_saved_in_one_go(store):
    names = [f"r{n}" for n in range(10_000)]
    await with_repos(store, *names)
    await store.save_hooks(
        [HookMemory(key(name)) for name in names], hooked={key(name): True for name in names}
    )
    async with store._db.read() as c:
        count = (await c.execute(sa.select(sa.func.count()).select_from(hook_memories))).scalar_one()
    assert count == 10_000
    assert await hooked(store, "r9999")
