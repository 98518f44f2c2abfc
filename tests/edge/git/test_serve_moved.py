"""Who was shown a tip just before upstream took it away can still fetch it, for minutes, and then no more."""

from __future__ import annotations

import time

import pytest

from evermirror.core.keep.names import KEPT, stamp_of
from evermirror.edge.git.serve import GitServer
from evermirror.edge.git.serve_tips import LATELY_S
from tests.edge.git.mirror_world import World
from tests.edge.git.test_serve_cache import LS_REFS, clone, clone_v2, gather, once, pkt, settle
from tests.support.gitrepo import read_refs, run_git


class Hands:
    """A clock that is put forward; every mirror and server of a test goes by it."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self):
        return time.time() + self.ahead_s


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
async def world(tmp_path, upstream, hands):
    return World(tmp_path, upstream, clock=hands)


@pytest.fixture
async def repo(world, upstream):
    repo = upstream.create("x", commits=5)
    repo.branch("old")
    repo.commit("old")
    repo.tag("v1", annotated=True)
    await world.sync(repo)
    return repo


@pytest.fixture
def server(world, hands):
    return GitServer(world.git, utc=hands)


async def listed(server, path, protocol) -> bytes:
    if "version=2" in protocol:
        return await gather(server.upload_pack(path, once(LS_REFS % b""), protocol))
    return await gather(server.advertise(path))


async def fetched(server, path, protocol, oid) -> bytes:
    body = clone_v2(oid) if "version=2" in protocol else clone(oid)
    return await gather(server.upload_pack(path, once(body), protocol))


def take_away(repo) -> list[str]:
    """A force-push, a branch that is deleted, a tag that is moved: what was shown and is public no more."""
    shown = [repo.tip(), repo.tip("old"), repo.git("rev-parse", "refs/tags/v1")]
    repo.force_push()
    repo.delete_branch("old")
    repo.delete_tag("v1")
    repo.tag("v1", annotated=True)
    return shown


@pytest.mark.parametrize("protocol", ["version=2", "version=1", ""])
@pytest.mark.parametrize("quiet", [False, True], ids=["at once", "settled"])
async def test_what_was_listed_just_before_can_be_fetched_for_a_while(
    world, repo, server, hands, protocol, quiet
):
    path = world.path(repo)
    before = await listed(server, path, protocol)
    gone = take_away(repo)
    assert all(oid.encode() in before for oid in gone)
    await world.sync(repo)
    assert not set(gone) & set(world.public(repo).values())
    if quiet:
        await settle()
    for oid in gone:
        assert b"PACK" in await fetched(server, path, protocol, oid), oid
    hands.ahead_s = LATELY_S - 30
    assert b"PACK" in await fetched(server, path, protocol, gone[0])
    hands.ahead_s = LATELY_S + 1  # of all that is remembered of the mirror nothing changed
    for oid in gone:
        answer = await fetched(server, path, protocol, oid)
        assert b"not our ref" in answer
        assert b"PACK" not in answer
        assert oid.encode() not in await listed(server, path, protocol)


async def test_what_was_kept_long_ago_is_refused_beside_what_was_kept_lately(world, repo, server, hands):
    path = world.path(repo)
    first = repo.commit()  # no tag is at this one
    await world.sync(repo)
    repo.force_push()
    await world.sync(repo)
    hands.ahead_s = LATELY_S + 1
    second = repo.tip()
    repo.force_push()
    await world.sync(repo)
    for protocol in ("version=2", ""):
        assert b"not our ref" in await fetched(server, path, protocol, first)
        assert b"PACK" in await fetched(server, path, protocol, second)
        both = clone_v2(first, second) if protocol else clone(second, first)
        assert b"PACK" not in await gather(server.upload_pack(path, once(both), protocol))


async def test_what_was_taken_away_lately_is_in_no_listing(world, repo, server):
    path = world.path(repo)
    gone = take_away(repo)
    await world.sync(repo)
    disguised = LS_REFS % b"" + clone_v2(gone[0])  # git answers the first; we see what the second wants
    for protocol in ("version=2", "version=1:version=2", ""):
        answers = await listed(server, path, protocol)
        answers += await gather(server.upload_pack(path, once(disguised), protocol or "version=2"))
        answers += await gather(server.upload_pack(path, once(pkt(f"want {gone[0]}\n") + b"0000"), ""))
        assert KEPT.encode() not in answers


@pytest.mark.parametrize("stamp", ["soon", "later", "secret", "20269999T999999999Z"])
async def test_a_date_that_is_none_or_to_come_excuses_nothing(world, repo, server, stamp):
    path = world.path(repo)
    gone = repo.tip("old")
    (name,) = [n for n, oid in read_refs(path).items() if oid == gone and n.startswith("refs/heads/")]
    run_git(path, "update-ref", "-d", name)
    stamp = stamp_of(time.time() + 2 * LATELY_S) if stamp == "later" else stamp
    run_git(path, "update-ref", f"{KEPT}{stamp}/deleted-gone/=old", gone)
    for protocol in ("version=2", ""):
        assert b"not our ref" in await fetched(server, path, protocol, gone)
