"""Kept tips come from another holder's mirror, once, under their names; nothing else does."""

from __future__ import annotations

import pytest

from evermirror.core.keep.names import kept_name
from evermirror.edge.git.environment import GitSettings, Remote, environment
from evermirror.edge.git.kept_travel import bring_kept
from evermirror.model.failure import FailureError
from evermirror.model.kept import Why
from evermirror.model.refs import Oid
from tests.edge.git.mirror_world import ADDRESSES, World, mirror_git
from tests.support.gitrepo import read_refs


@pytest.fixture
def world(tmp_path, upstream):
    return World(tmp_path, upstream)


def keep(holder, ref: str, old: str, at: float = 1_700_000_000.0) -> str:
    name = kept_name(ref, at, Why.DELETED, None)
    holder.git("update-ref", name, old)
    return name


async def test_what_is_lacking_comes_with_its_objects_and_only_once(world, upstream):
    repo = upstream.create("one")
    await world.sync(repo)
    holder = upstream.copy(repo, "holder")
    old = holder.commit("topic")
    name = keep(holder, "refs/heads/topic", old)
    holder.delete_branch("topic")
    remote = Remote.of(holder.url, ADDRESSES)
    theirs = {name: Oid(old), "refs/heads/main": Oid(repo.tip()), "refs/evermirror/kept/odd": Oid(old)}
    spec = world.spec(repo)
    assert await bring_kept(world.git, world.mirrors, spec.key, remote, theirs) == 1
    assert read_refs(world.path(repo)) == {**repo.public_refs(), name: old}
    mirror_git(world.path(repo), "fsck", "--full", "--strict")
    assert [tip.ref for tip in await world.mirrors.history(spec.key)] == ["refs/heads/topic"]
    later = kept_name("refs/heads/topic", 1_800_000_000.0, Why.DELETED, None)
    again = {name: Oid(old), later: Oid(old)}
    assert await bring_kept(world.git, world.mirrors, spec.key, remote, again) == 0, "kept already"


async def test_what_the_holder_cannot_give_changes_nothing(world, upstream):
    repo = upstream.create("one")
    await world.sync(repo)
    before = read_refs(world.path(repo))
    name = kept_name("refs/heads/x", 1.0, Why.DELETED, None)
    remote = Remote.of(repo.url, ADDRESSES)
    with pytest.raises(FailureError):
        await bring_kept(world.git, world.mirrors, world.spec(repo).key, remote, {name: Oid("1" * 40)})
    assert read_refs(world.path(repo)) == before


async def test_objects_come_from_another_remote_than_the_specs_where_one_is_given(world, upstream):
    repo = upstream.create("one")
    twin = upstream.copy(repo, "twin")
    await world.sync(repo, remote=Remote.of(twin.url, ADDRESSES))
    world.assert_equal(repo)
    packs = [r.path for r in upstream.requests if r.method == "POST" and b"command=fetch" in r.body]
    assert packs
    assert all(path.startswith("/twin.git/") for path in packs)


def test_our_own_gateway_is_plain_http_on_loopback_for_that_one_git_only(tmp_path):
    settings = GitSettings(tmp_path, schemes=frozenset({"https"}))
    gateway = Remote.gateway("http://127.0.0.1:4321/secret/repo")
    env = environment(settings, path="/bin", remote=gateway)
    assert env["GIT_ALLOW_PROTOCOL"] == "http"
    assert "EVERMIRROR_SECRET" not in env
    assert not any("proxy" in name.lower() for name in env)
    assert gateway.url == "http://127.0.0.1:4321/repo"  # all can read what a process is called with
    assert "secret" not in repr(gateway)
    assert "Evermirror-Door: secret" in env.values()
    usual = environment(settings, path="/bin", remote=Remote.of("https://h.org/x"))
    assert usual["GIT_ALLOW_PROTOCOL"] == "https"
    for elsewhere in ("http://192.0.2.1:80/x", "https://127.0.0.1:1/x", "http://127.0.0.1/x", "file:///x"):
        with pytest.raises(ValueError, match="gateway"):
            Remote.gateway(elsewhere)


async def test_a_mirror_that_goes_for_good_is_in_no_trash(world, upstream):
    repo = upstream.create("one")
    await world.sync(repo)
    key = world.spec(repo).key
    assert await world.mirrors.discard(key, for_good=True)
    assert not world.path(repo).exists()
    assert await world.mirrors.trashed() == []
    assert not await world.mirrors.discard(key, for_good=True)
