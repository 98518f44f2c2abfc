"""A target that more people can see than its source gets nothing: who may read it without a token?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.edge.git.credentials import Credential
from evermirror.model.failure import FailureKind
from evermirror.model.push import VisibilityRule
from tests.edge.git.push_world import PushWorld

BASIC = ("robot", "good")


@pytest.fixture
async def world(tmp_path, upstream):
    made = PushWorld(tmp_path, upstream, [Credential("c", "robot", token="good")])
    yield made
    await made.prober.close()


@pytest.fixture
def repo(world):
    return world.upstream.create("source/x", commits=3)


@pytest.fixture
def target(world):
    return world.target()


def spec_of(world, repo):
    return replace(world.spec(repo), credential="c")


async def test_a_source_that_became_private_is_not_pushed_to_a_public_target(world, repo, target):
    source = spec_of(world, repo)
    world.assert_there(repo, target, await world.sync_and_push(repo, target, source=source))
    before = target.refs()
    repo.commit()
    await world.sync(repo)
    world.upstream.require_basic(*BASIC, "/source")
    for _ in range(2):
        pushed = await world.push(repo, target, source=source)
        assert (pushed.failure.kind, pushed.failure.exposes) == (FailureKind.CONFLICT, True)
        assert "the target is public, and its source is not public" in pushed.failure.message
        assert "pull.public_targets" in pushed.failure.hint
        assert target.refs() == before
        assert await world.behind(repo, target), "it is tried again"
    world.upstream.heal()
    world.assert_there(repo, target, await world.push(repo, target, source=source))


async def test_a_target_that_is_not_public_either_gets_it(world, repo, target):
    await world.sync(repo)
    world.upstream.require_basic(*BASIC, "/")
    pushed = await world.push(repo, target, source=spec_of(world, repo), credential="c")
    world.assert_there(repo, target, pushed)


async def test_what_people_say_about_it_counts(world, repo, target):
    await world.sync(repo)
    world.upstream.require_basic(*BASIC, "/source")
    source, key = spec_of(world, repo), target.url.partition("://")[2].removesuffix(".git")
    other = world.make_pusher(public_targets=("other.example/*",))
    assert (await world.push(repo, target, source=source, pusher=other)).failure.exposes
    follows = world.make_pusher(visibility=VisibilityRule.FOLLOW)
    told = (await world.push(repo, target, source=source, pusher=follows)).failure
    assert (told.exposes, "has no forge" in told.message) == (True, True)
    meant = world.make_pusher(public_targets=(f"{key.rpartition('/')[0]}/*",))
    world.assert_there(repo, target, await world.push(repo, target, source=source, pusher=meant))
    repo.commit()
    world.upstream.heal()
    await world.sync(repo)
    world.upstream.require_basic(*BASIC, "/source")
    ignores = world.make_pusher(visibility=VisibilityRule.IGNORE)
    world.assert_there(repo, target, await world.push(repo, target, source=source, pusher=ignores))


async def test_nothing_is_asked_where_the_source_needs_no_credential_or_nothing_is_pushed(
    world, repo, target
):
    await world.sync(repo)
    world.upstream.requests.clear()
    world.assert_there(repo, target, await world.push(repo, target, source=world.spec(repo)))
    assert not [r for r in world.upstream.requests if "/source/" in r.path]
    world.upstream.require_basic(*BASIC, "/source")
    pushed = await world.push(repo, target, source=spec_of(world, repo))
    assert pushed.failure is None
    forced = await world.push(repo, target, source=spec_of(world, repo), force=True)
    assert forced.failure.exposes, "who forces is told"


async def test_a_source_of_which_nobody_can_tell_is_held_as_weather(world, repo, target):
    await world.sync(repo)
    world.upstream.fail_with(503, {}, path="/source")
    pushed = await world.push(repo, target, source=spec_of(world, repo))
    assert (pushed.failure.kind, target.refs()) == (FailureKind.NETWORK_TIMEOUT, {})


PUBLIC = "140.82.121.4"


@pytest.fixture
def internet(world, monkeypatch):
    """The target is on the public internet as far as its address tells; the source is inside."""
    inside = world.prober.addresses

    async def addresses(spec):
        return (PUBLIC,) if "/target" in spec.url else await inside(spec)

    monkeypatch.setattr(world.prober, "addresses", addresses)


async def checked(world, source, target):
    return await world.pusher._exposure.check(source, replace(world.spec(target), credential="c"))


async def test_what_everybody_inside_can_read_is_not_public(world, repo, target, internet):
    for source in (world.spec(repo), spec_of(world, repo), over_ssh(spec_of(world, repo))):
        held = await checked(world, source, target)
        assert (held.exposes, "its source is not public" in held.message) == (True, True)
    world.upstream.require_basic(*BASIC, "/target")
    assert await checked(world, world.spec(repo), target) is None


def over_ssh(spec):
    return replace(spec, url=spec.url.replace("http://", "ssh://git@"))


async def test_a_source_on_the_internet_or_beside_its_target_is_not_asked(world, repo, target, monkeypatch):
    assert await checked(world, world.spec(repo), target) is None

    async def addresses(spec):
        return (PUBLIC,)

    monkeypatch.setattr(world.prober, "addresses", addresses)
    assert await checked(world, world.spec(repo), target) is None
    assert not world.upstream.requests


async def test_private_is_a_persons_word_where_there_is_no_credential(world, repo, target):
    told = replace(world.spec(repo), private=True)
    assert (await checked(world, told, target)).exposes
    assert await checked(world, replace(told, credential="c"), target) is None, "it is set for all of these"
