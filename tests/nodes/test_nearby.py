"""A repo that comes to a worker is copied from its holder through a real relay; upstream gives the rest."""

import contextlib
import os

import pytest

from evermirror.core.keep.names import KEPT
from evermirror.edge.git import transfer
from evermirror.edge.git.mirror import MirrorSettings
from evermirror.edge.git.serve import GitServer, ServeSettings
from evermirror.edge.relay.gateway import Gateway
from evermirror.model.relay import Source
from evermirror.nodes.worker import nearby
from evermirror.nodes.worker.line_service import MirrorLines
from evermirror.nodes.worker.nearby import Nearby
from tests.edge.git.mirror_world import World, mirror_git
from tests.edge.relay.relay_world import HOLDER, OTHER, Fleet
from tests.support.gitrepo import read_refs


class Move:
    """One repo on an old holder that can be reached, and a new worker that is told of it."""

    def __init__(self, fleet, upstream, folder):
        self.fleet = fleet
        self.upstream = upstream
        self.repo = upstream.create("team/x", commits=30)
        self.repo.big_blob(200_000)
        self.old = World(folder / "old", upstream)
        self.new = World(folder / "new", upstream)
        self.key = self.new.spec(self.repo).key

    def source(self, *, trusted=False, bearer=OTHER, lives_s=3600.0):
        ticket = self.fleet.ticket(bearer=bearer, holder=HOLDER, key=self.key, lives_s=lives_s)
        return Source(self.key, HOLDER, ticket, trusted=trusted)

    @contextlib.asynccontextmanager
    async def nearby(self, *sources):
        server = GitServer(self.old.git, ServeSettings(shows_kept=True))
        held = self.old.mirrors.path
        lines = MirrorLines(
            server,
            lambda key: held(key) if held(key).is_dir() else None,
            is_public=lambda key: True,
            in_contact=lambda: True,
            suspect=lambda key, evidence: None,
        )
        async with self.fleet.serving(lines), self.fleet.asking() as asking, Gateway(asking) as gateway:
            access = self.fleet.access(OTHER)
            nearby = Nearby(self.new.git, self.new.mirrors, asking, gateway, lambda: access)
            nearby.note(sources)
            yield nearby

    async def sync(self, nearby):
        """Syncs the new worker's mirror; returns the packs that upstream was asked for."""
        self.upstream.requests.clear()
        async with nearby.seed(self.new.spec(self.repo)) as seed:
            await self.new.sync(self.repo, seed=seed)
        return [r for r in self.upstream.requests if b"command=fetch" in r.body]


@pytest.fixture
async def move(tmp_path, upstream):
    fleet = Fleet(tmp_path / "fleet")
    async with fleet.relaying():
        yield Move(fleet, upstream, tmp_path)


async def test_a_move_costs_upstream_a_look_and_no_pack(move):
    await move.old.sync(move.repo)
    async with move.nearby(move.source()) as nearby:
        assert await move.sync(nearby) == []
    move.new.assert_equal(move.repo)


async def test_only_what_the_holder_lacks_comes_from_upstream(move):
    await move.old.sync(move.repo)
    move.repo.commit()
    move.repo.branch("feature")
    async with move.nearby(move.source()) as nearby:
        packs = await move.sync(nearby)
    move.new.assert_equal(move.repo)
    assert packs
    old_tip = read_refs(move.old.path(move.repo))["refs/heads/main"]
    assert f"have {old_tip}".encode() in b"".join(r.body for r in packs)


async def test_what_another_saw_move_is_fetched_from_there(move):
    await move.old.sync(move.repo)
    await move.new.sync(move.repo)
    move.repo.commit()
    await move.old.sync(move.repo)
    async with move.nearby(move.source()) as nearby:
        assert await move.sync(nearby) == []
    move.new.assert_equal(move.repo)


async def test_a_source_is_used_once(move):
    await move.old.sync(move.repo)
    async with move.nearby(move.source()) as nearby:
        await move.sync(nearby)
        async with nearby.seed(move.new.spec(move.repo)) as seed:
            assert seed is None


@pytest.mark.parametrize("trouble", ["not there", "no ticket", "holder away", "damaged"])
async def test_a_holder_that_cannot_help_is_not_missed(move, trouble):
    source = move.source()
    if trouble == "no ticket":
        source = move.source(bearer=HOLDER)
    if trouble == "holder away":
        source = Source(move.key, "worker/77", source.ticket)
    if trouble != "not there":
        await move.old.sync(move.repo)
    if trouble == "damaged":
        for pack in (move.old.path(move.repo) / "objects" / "pack").glob("*.pack"):
            pack.chmod(0o600)
            pack.write_bytes(pack.read_bytes()[:1000] + bytes(2000))
    async with move.nearby(source) as nearby:
        assert await move.sync(nearby)
    move.new.assert_equal(move.repo)


async def test_refs_of_a_holder_that_are_not_upstreams_are_not_taken(move):
    await move.old.sync(move.repo)
    mirror_git(move.old.path(move.repo), "update-ref", "refs/heads/made-up", move.repo.tip())
    async with move.nearby(move.source()) as nearby:
        await move.sync(nearby)
    move.new.assert_equal(move.repo)


@pytest.mark.parametrize("new_here", [True, False])
async def test_a_holder_without_the_history_is_not_missed(move, new_here):
    """git takes objects from a shallow repository, and says that it is fine though it sets no ref."""
    if not new_here:
        await move.new.sync(move.repo)
        for _ in range(3):
            move.repo.commit()
    await move.old.sync(move.repo)
    (move.old.path(move.repo) / "shallow").write_text(move.repo.tip() + "\n")
    async with move.nearby(move.source()) as nearby:
        assert await move.sync(nearby)
    move.new.assert_equal(move.repo)
    mirror_git(move.new.path(move.repo), "fsck", "--connectivity-only")


async def test_what_a_holder_sends_in_vain_does_not_count_for_the_size(move, tmp_path):
    move.new = World(tmp_path / "small", move.upstream, settings=MirrorSettings(max_repo_size=1_000_000))
    await move.old.sync(move.repo)
    junk = tmp_path / "junk"
    junk.write_bytes(os.urandom(3_000_000))
    blob = mirror_git(move.old.path(move.repo), "hash-object", "-w", str(junk))
    mirror_git(move.old.path(move.repo), "update-ref", "refs/tags/v1", blob)
    move.repo.tag("v1", annotated=True)
    async with move.nearby(move.source()) as nearby:
        assert await move.sync(nearby)
    move.new.assert_equal(move.repo)


@pytest.mark.parametrize("trusted", [True, False])
async def test_who_is_not_trusted_may_not_say_endlessly_many_refs(move, monkeypatch, trusted):
    monkeypatch.setattr(nearby, "UNTRUSTED_REFS_BYTES_MAX", 50)
    await move.old.sync(move.repo)
    async with move.nearby(move.source(trusted=trusted)) as told:
        assert bool(await move.sync(told)) is not trusted
    move.new.assert_equal(move.repo)


async def test_a_holder_that_never_ends_is_given_up(move, monkeypatch):
    await move.old.sync(move.repo)
    monkeypatch.setattr(transfer, "SEED_S_MAX", 0.001)
    async with move.nearby(move.source()) as nearby:
        assert await move.sync(nearby)
    move.new.assert_equal(move.repo)


@pytest.mark.parametrize("trusted", [True, False])
async def test_kept_tips_come_from_a_trusted_holder_only(move, trusted):
    lost = move.repo.tip()
    await move.old.sync(move.repo)
    move.repo.force_push()
    await move.old.sync(move.repo)
    kept = {n: o for n, o in read_refs(move.old.path(move.repo)).items() if n.startswith(KEPT)}
    assert list(kept.values()) == [lost]
    async with move.nearby(move.source(trusted=trusted)) as nearby:
        await move.sync(nearby)
    here = {n: o for n, o in read_refs(move.new.path(move.repo)).items() if n.startswith(KEPT)}
    assert here == (kept if trusted else {})
    if trusted:
        assert mirror_git(move.new.path(move.repo), "cat-file", "-t", lost) == "commit"


@pytest.mark.parametrize("answered", [True, False])
async def test_kept_tips_come_with_a_new_ticket_where_the_clone_outlasts_the_first(
    move, answered, monkeypatch
):
    monkeypatch.setattr(nearby, "RENEWED_S", 20.0 if answered else 0.01)
    await move.old.sync(move.repo)
    move.repo.force_push()
    await move.old.sync(move.repo)
    asked = []

    def ask(key):
        asked.append(key)
        if answered:
            near.note([Source(key, OTHER, "another holder's"), move.source(trusted=True)])

    async with move.nearby(move.source(trusted=True, lives_s=nearby.SPARE_S - 1)) as near:
        near._ask_source = ask
        await move.sync(near)
        async with near.seed(move.new.spec(move.repo)) as seed:
            assert seed is None, "it was for that alone"
    assert asked == [move.key]
    move.new.assert_equal(move.repo)
    assert any(name.startswith(KEPT) for name in read_refs(move.new.path(move.repo))) is answered


async def test_the_public_sees_no_kept_tips_though_nodes_do(move):
    await move.old.sync(move.repo)
    move.repo.force_push()
    await move.old.sync(move.repo)
    path = move.old.path(move.repo)

    async def listed(**settings):
        server = GitServer(move.old.git, ServeSettings(**settings))
        return b"".join([chunk async for chunk in server.advertise(path)])

    assert KEPT.encode() not in await listed()
    shown = await listed(shows_kept=True)
    assert KEPT.encode() in shown
    assert b"refs/evermirror/staging" not in shown
