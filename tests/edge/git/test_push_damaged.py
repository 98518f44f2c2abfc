"""Pushes out of mirrors that a bad disk has damaged: nothing of that may reach a target."""

from __future__ import annotations

import pytest

from evermirror.edge.git.command import Git, GitSettings
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.probe import Prober, ProbeSettings
from evermirror.edge.git.push import Pusher
from evermirror.edge.git.upkeep import is_damaged, mark_damaged
from evermirror.edge.net.resolver import Resolver
from evermirror.model.failure import Failure, FailureError, FailureKind
from tests.edge.git.mirror_world import lose_object
from tests.edge.git.push_world import LOCAL, PushWorld


@pytest.fixture
async def world(tmp_path, upstream):
    world = PushWorld(tmp_path, upstream)
    yield world
    await world.prober.close()


async def digest_of(world, repo):
    return (await world.mirrors.read_refs(world.spec(repo).key)).digest()


@pytest.mark.parametrize("force", [False, True])
async def test_refs_that_are_not_the_believed_ones_are_not_pushed(world, force):
    repo, target = world.upstream.create("x", commits=2), world.target()
    repo.branch("next")
    await world.sync(repo)
    believed = await digest_of(world, repo)
    world.assert_there(repo, target, await world.push(repo, target, believed=believed))
    mirror = world.path(repo)
    (mirror / "packed-refs").unlink(missing_ok=True)
    (mirror / "refs/heads/next").unlink(missing_ok=True)
    requests = len(world.upstream.requests)
    pushed = await world.push(repo, target, believed=believed, force=force)
    assert pushed.failure.corrupt
    assert "nothing was pushed" in pushed.failure.message
    assert pushed.put == world.put[target.url], "what is there is as it was"
    assert len(world.upstream.requests) == requests
    assert target.refs() == repo.public_refs()


async def test_a_mirror_that_is_marked_as_damaged_is_not_pushed(world):
    repo, target = world.upstream.create("x", commits=2), world.target()
    await world.sync(repo)
    mark_damaged(world.path(repo), "fsck said so")
    pushed = await world.push(repo, target, believed=await digest_of(world, repo))
    assert (pushed.failure.corrupt, target.refs()) == (True, {})
    mark_damaged(world.path(repo), None)
    world.assert_there(repo, target, await world.push(repo, target))


async def test_damage_that_fsck_does_not_confirm_is_an_ordinary_failure(world, monkeypatch):
    repo, target = world.upstream.create("x", commits=2), world.target()
    await world.sync(repo)

    async def accuse(*_, **__):
        failure = Failure(FailureKind.UNKNOWN, "said to be corrupt", corrupt=True, git_command="git push")
        raise FailureError(failure)

    monkeypatch.setattr(world.prober, "addresses", accuse)
    pushed = await world.push(repo, target)
    assert (pushed.failure.message, pushed.failure.corrupt) == ("said to be corrupt", False)
    assert not is_damaged(world.path(repo))


async def test_over_ssh_a_missing_object_is_no_conflict_but_damage(tmp_path, upstream, upstream_ssh):
    """There the target answers all the same, and refuses every ref because the pack broke off."""
    key = Credential("key", ssh_key_file=upstream_ssh.key_file)
    world = PushWorld(tmp_path, upstream, [key])
    git = Git(GitSettings(tmp_path / "data", schemes=frozenset({"http", "ssh"})), Credentials([key]))
    prober = Prober(Resolver(LOCAL), git.credentials, git, ProbeSettings(allow=LOCAL))
    world.pusher = Pusher(git, world.mirrors, prober, world.push_settings, lambda: 1.0)
    repo, target = upstream.create("x", commits=3), upstream_ssh.create("t", commits=0)
    await world.sync(repo)
    lose_object(world.path(repo), repo.git("rev-parse", "main^").strip())
    pushed = await world.push(repo, target, credential="key")
    assert (pushed.failure.kind, pushed.failure.corrupt) == (FailureKind.UNKNOWN, True)
    assert target.refs() == {}
    assert is_damaged(world.path(repo)), "its next sync replaces it"
    await prober.close()
    await world.prober.close()
