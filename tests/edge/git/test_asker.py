"""A small change comes over the connection of the polls; whatever is unusual about it is left to git."""

from __future__ import annotations

import time

import pytest

from evermirror.edge.git import probe
from evermirror.edge.git.credentials import Credential, Credentials
from evermirror.edge.git.probe import Prober, ProbeSettings, Seen, Unchanged
from evermirror.edge.net.resolver import Resolver
from evermirror.model.address import AllowList
from evermirror.model.failure import Failure, FailureError, FailureKind
from tests.edge.git.mirror_world import World

LOCAL = AllowList.parse(["127.0.0.1"])
DAY_S = 86_400


class Mirror:
    """A mirror that follows one upstream as a worker's rounds do."""

    def __init__(self, world, credentials=None):
        self.world = world
        settings = ProbeSettings(
            ca_file=str(world.upstream.ca_file) if world.upstream.tls else None, allow=LOCAL
        )
        self.prober = Prober(Resolver(LOCAL), credentials or Credentials(), world.git, settings)
        self.commands = []
        run = world.git.run

        async def told(args, **more):
            self.commands.append(args[0])
            return await run(args, **more)

        world.git.run = told

    async def follow(self, repo, **more):
        """Looks, and syncs; returns what git was started for."""
        spec = self.world.spec(repo, more.get("credential"))
        seen = await self.prober.probe(spec, None)
        assert isinstance(seen, Seen)
        self.commands.clear()
        outcome = await self.world.sync(
            repo, seen=seen.snapshot, ask=self.prober.asker(spec), credential=more.get("credential")
        )
        commands = list(self.commands)
        self.world.assert_equal(repo)
        assert isinstance(await self.prober.probe(spec, seen.mark), Unchanged)
        return commands, outcome


def old_repo(upstream, name="x"):
    repo = upstream.create(name, commits=0)
    repo.bulk_commits(5, when=time.time() - DAY_S)
    return repo


@pytest.fixture
async def mirror(tmp_path, upstream):
    made = Mirror(World(tmp_path, upstream))
    yield made
    await made.prober.close()


async def test_a_small_change_needs_no_git_that_fetches_and_no_new_connection(mirror, upstream):
    repo = old_repo(upstream)
    assert "fetch" in (await mirror.follow(repo))[0]
    opened, connections = mirror.prober.stats.connections_opened, upstream.connections
    repo.bulk_commits(3)
    commands, outcome = await mirror.follow(repo)
    assert "fetch" not in commands
    assert "index-pack" in commands
    assert (outcome.commits, outcome.received_bytes > 0) == (3, True)
    assert mirror.prober.stats.connections_opened == opened
    assert upstream.connections == connections


async def test_over_tls_too(tmp_path, upstream_tls):
    mirror = Mirror(World(tmp_path, upstream_tls))
    repo = old_repo(upstream_tls)
    await mirror.follow(repo)
    repo.bulk_commits(3)
    assert "fetch" not in (await mirror.follow(repo))[0]
    await mirror.prober.close()


async def test_a_change_larger_than_its_bound_is_fetched_by_git(mirror, upstream, monkeypatch):
    monkeypatch.setattr(probe, "PACK_BYTES_MAX", 20_000)
    repo = old_repo(upstream)
    await mirror.follow(repo)
    repo.big_blob(100_000)
    commands, outcome = await mirror.follow(repo)
    assert "fetch" in commands
    assert outcome.received_bytes > 100_000
    repo.bulk_commits(1, when=time.time() + 60)  # and the host is not given up for it
    assert "fetch" not in (await mirror.follow(repo))[0]


async def test_a_server_that_polls_do_not_ask_directly_is_not_asked_so_for_a_change(mirror, upstream):
    upstream.protocol_v2 = False
    repo = old_repo(upstream)
    await mirror.follow(repo)
    repo.bulk_commits(1)
    assert "fetch" in (await mirror.follow(repo))[0]
    assert [r for r in upstream.requests if b"command=fetch" in r.body] == []


async def test_where_the_short_way_fails_git_has_the_word(mirror, upstream):
    repo = old_repo(upstream)
    await mirror.follow(repo)
    repo.bulk_commits(1)
    spec = mirror.world.spec(repo)
    seen = await mirror.prober.probe(spec, None)
    upstream.fail_with(500, times=1)
    mirror.commands.clear()
    await mirror.world.sync(repo, seen=seen.snapshot, ask=mirror.prober.asker(spec))
    assert "fetch" in mirror.commands
    mirror.world.assert_equal(repo)


async def test_a_host_that_asks_us_to_stay_away_is_not_asked_again_by_git(mirror, upstream):
    repo = old_repo(upstream)
    await mirror.follow(repo)
    repo.bulk_commits(1)
    spec = mirror.world.spec(repo)
    seen = await mirror.prober.probe(spec, None)
    upstream.fail_with(429, {"Retry-After": "7"})
    requests = len(upstream.requests)
    with pytest.raises(FailureError) as told:
        await mirror.world.sync(repo, seen=seen.snapshot, ask=mirror.prober.asker(spec))
    assert (told.value.failure.kind, told.value.failure.retry_after_s) == (FailureKind.RATE_LIMITED, 7)
    assert len(upstream.requests) == requests + 1


async def test_a_private_upstream_gets_the_credential(tmp_path, upstream):
    credential = Credential(name="c", username="me", password="pw-secret")
    world = World(tmp_path, upstream, credentials=[credential])
    upstream.require_basic("me", "pw-secret")
    mirror = Mirror(world, world.git.credentials)
    repo = old_repo(upstream)
    await mirror.follow(repo, credential="c")
    repo.bulk_commits(2)
    assert "fetch" not in (await mirror.follow(repo, credential="c"))[0]
    await mirror.prober.close()


async def test_a_name_that_cannot_be_resolved_just_now_is_left_to_git(mirror, upstream, monkeypatch):
    repo = old_repo(upstream)
    await mirror.follow(repo)
    repo.bulk_commits(1)
    spec = mirror.world.spec(repo)
    seen = await mirror.prober.probe(spec, None)

    async def unknown(host, port):
        raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "no answer from the name server"))

    monkeypatch.setattr(mirror.prober._resolver, "resolve", unknown)
    mirror.commands.clear()
    await mirror.world.sync(repo, seen=seen.snapshot, ask=mirror.prober.asker(spec))
    assert "fetch" in mirror.commands
    mirror.world.assert_equal(repo)
