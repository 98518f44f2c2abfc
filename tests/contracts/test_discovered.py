"""What the store keeps of groups that are followed, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.edge.store import discovered
from evermirror.errors import UsageError
from evermirror.model.discovery import (
    Bound,
    BoundState,
    Discovery,
    DiscoverySpec,
    Protected,
    RunOutcome,
    RunState,
)
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.forge import Forge, FoundProject, Identity, Visibility
from evermirror.model.repo import Priority, RepoKey

HOSTILE = "a\0b\udc80'; DROP TABLE discoveries; --"
SPEC = DiscoverySpec("https://gitlab.example.com", Forge.GITLAB, "devops")
FULL = DiscoverySpec(
    source_url="https://git.example.com",
    forge=Forge.GITEA,
    group="devops/tools",
    credential="source",
    subgroups=False,
    include=("devops/*", HOSTILE),
    exclude=("*/old",),
    archived=True,
    prefix="mirror/",
    over_ssh=True,
    target_url="https://gitlab.other.com/mirrors",
    target_forge=Forge.GITHUB,
    target_credential="target",
    visibility=Visibility.INTERNAL,
    protected=Protected.LEAVE,
    priority=Priority.CRITICAL,
    interval_s=60.0,
    every_s=None,
)
FAILURE = Failure(FailureKind.RATE_LIMITED, HOSTILE, retry_after_s=9.0, context={"page": "3"})


def new(spec: DiscoverySpec = SPEC) -> Discovery:
    return Discovery(0, spec, "alice", 10.0)


FOUND = FoundProject(
    id="42",
    path="devops/a",
    http_url="https://g/a.git",
    ssh_url="ssh://git@g/a.git",
    visibility=Visibility.PUBLIC,
    default_branch="main",
    description=HOSTILE,
    empty=True,
)


async def made(store, found: list[Bound]) -> Discovery:
    kept = await store.insert_discovery(new())
    await store.save_discovery(kept, bound=found)
    return kept


def bound(forge_id: str, path: str = "devops/a", **changed) -> Bound:
    one = Bound(0, forge_id, path, BoundState.ACTIVE, RepoKey(f"gitlab.example.com/{path}"), path)
    return replace(one, **changed)


async def test_discoveries_are_kept_with_all_that_is_known_of_them(store):
    assert await store.load_discoveries() == ()
    plain = await store.insert_discovery(new())
    full = await store.insert_discovery(new(FULL))
    assert full.id > plain.id > 0
    assert await store.load_discoveries() == (plain, full)
    seen_as = Identity("17", HOSTILE, ("api", "read_user"))
    run = RunState(3, 20.0, cursor=HOSTILE, pages=2, found=200, seen_as=seen_as)
    last = RunOutcome(11.0, 19.0, False, 1, 2, 3, 4, 5, 6, 7, 8, 9, FAILURE, "who")
    changed = replace(
        full, enabled=False, group_id="77", next_at=99.5, runs=3, failures=2, run=run, last=last
    )
    changed = replace(changed, seen_as=Identity("18", "x"))
    assert await store.save_discovery(changed)
    assert await store.load_discoveries() == (plain, changed)
    ended = replace(changed, run=None, last=replace(last, complete=True, failure=None), next_at=None)
    await store.save_discovery(ended)
    assert await store.load_discoveries() == (plain, ended)


async def test_what_was_found_is_added_and_replaced_with_the_run_in_one_transaction(store):
    found = [bound("1", run=1), bound("2", "devops/b", made_target=True, target_url="https://t/b", why="x")]
    kept = await made(store, found)
    told = [replace(b, discovery=kept.id) for b in found]
    assert await store.bound_of(kept.id) == tuple(told)
    again = replace(found[1], state=BoundState.CLASH, key=None, why=HOSTILE, run=2)
    with pytest.raises(UsageError, match="path"):
        await store.save_discovery(replace(kept, runs=2), bound=[again, bound("3", HOSTILE)])
    assert await store.bound_of(kept.id) == tuple(told)
    assert await store.load_discoveries() == (kept,)
    await store.save_discovery(replace(kept, runs=2), bound=[again, bound("3", "devops/c")])
    first, second, third = await store.bound_of(kept.id)
    assert (first, third.forge_id) == (told[0], "3")
    assert (second.state, second.key, second.run) == (BoundState.CLASH, None, 2)


async def test_a_renamed_project_is_there_as_it_was_and_as_it_is(store):
    kept = await made(store, [bound("1", "devops/old")])
    moved = [bound("1", "devops/old", state=BoundState.RENAMED), bound("1", "devops/new")]
    await store.save_discovery(kept, bound=moved)
    assert [(b.path, b.state) for b in await store.bound_of(kept.id)] == [
        ("devops/new", BoundState.ACTIVE),
        ("devops/old", BoundState.RENAMED),
    ]


async def test_discoveries_do_not_share_what_they_found(store):
    first = await made(store, [bound("1")])
    second = await made(store, [bound("1", state=BoundState.GONE)])
    assert [b.state for b in await store.bound_of(first.id)] == [BoundState.ACTIVE]
    assert await store.bound_counts(first.id) == {BoundState.ACTIVE: 1}
    assert await store.bound_counts(second.id) == {BoundState.GONE: 1}
    assert await store.remove_discovery(first.id)
    assert not await store.remove_discovery(first.id)
    assert await store.bound_of(first.id) == ()
    assert await store.load_discoveries() == (second,)
    assert len(await store.bound_of(second.id)) == 1


async def test_one_that_was_removed_is_not_saved_again_and_its_number_not_given_again(store):
    kept = await made(store, [bound("1")])
    await store.save_discovery(kept, found=[FOUND])
    await store.remove_discovery(kept.id)
    assert not await store.save_discovery(kept, bound=[bound("1")], found=[FOUND])
    assert await store.load_discoveries() == ()
    assert await store.bound_of(kept.id) == await store.found_of(kept.id) == ()
    assert (await store.insert_discovery(new())).id > kept.id


async def test_what_a_listing_found_so_far_is_kept_until_the_next_begins(store):
    kept, other = await made(store, []), await made(store, [])
    more = FoundProject("7", "devops/b", "https://g/b.git", "git@g:b", Visibility.PRIVATE, archived=True)
    await store.save_discovery(kept, found=[FOUND, more])
    await store.save_discovery(other, found=[FOUND])
    again = replace(FOUND, path="devops/renamed")
    await store.save_discovery(replace(kept, run=RunState(1, 5.0, "page 2")), found=[again])
    assert await store.found_of(kept.id) == (again, more)
    await store.save_discovery(kept, found=[more], forget_found=True)
    assert await store.found_of(kept.id) == (more,)
    assert await store.found_of(other.id) == (FOUND,)


async def test_pages_of_what_was_found(store, monkeypatch):
    monkeypatch.setattr(discovered, "AT_ONCE", 3)
    states = list(BoundState)
    found = [bound(str(n), f"devops/{n:02d}", state=states[n % 5]) for n in range(12)]
    kept = await made(store, found)
    items, total = await store.bound_page(kept.id, page=2, size=5)
    assert ([b.path for b in items], total) == ([f"devops/{n:02d}" for n in range(5, 10)], 12)
    items, total = await store.bound_page(kept.id, states[1], size=2)
    assert ([b.path for b in items], total) == (["devops/01", "devops/06"], 3)
    assert await store.bound_counts(kept.id) == {s: 3 if s in states[:2] else 2 for s in states}
    assert await store.bound_page(10**30) == ((), 0)
    assert not await store.remove_discovery(10**30)


async def test_who_else_has_a_project_of_those_that_are_followed(store):
    first, second = await made(store, [bound("1")]), await made(store, [bound("1")])
    key = bound("1").key
    assert await store.is_bound_elsewhere(key, first.id)
    assert await store.is_bound_elsewhere(key, second.id)
    assert not await store.is_bound_elsewhere(RepoKey("gitlab.example.com/other"), first.id)
    await store.save_discovery(second, bound=[bound("1", state=BoundState.GONE)])
    assert not await store.is_bound_elsewhere(key, first.id)
    assert await store.is_bound_elsewhere(key, second.id)
    await store.save_discovery(replace(first, enabled=False))
    assert not await store.is_bound_elsewhere(key, second.id)


async def test_whose_branches_are_to_be_opened(store):
    ours = bound("1", "devops/a", target_url="https://t/a", made_target=True)
    kept = await made(
        store,
        [
            ours,
            bound("2", "devops/b", target_url="https://t/b"),  # somebody else's
            bound("3", "devops/c", target_url="https://t/c", made_target=True, branches_open=True),
            bound("4", "devops/d", target_url="https://t/d", made_target=True, state=BoundState.GONE),
        ],
    )
    ours = replace(ours, discovery=kept.id)
    assert await store.closed_branches() == (ours,)
    await store.note_branches(ours, opened=False, why="403")
    assert await store.closed_branches() == (replace(ours, why="403"),)
    await store.note_branches(replace(ours, target_url="https://t/before"), opened=True)
    assert len(await store.closed_branches()) == 1
    await store.note_branches(ours, opened=True)
    assert await store.closed_branches() == ()
    assert (await store.bound_of(kept.id))[0] == replace(ours, branches_open=True)
