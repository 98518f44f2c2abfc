"""A worker that pushes on to real git servers: what arrives there, and what becomes of it when things go
wrong."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import evermirror
from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober
from evermirror.edge.git.push import Pusher
from evermirror.edge.git.upkeep import is_damaged, mark_damaged
from evermirror.model.failure import CREDENTIAL, OURS, FailureKind
from evermirror.model.messages import Progress, Refused, ReleaseRepos, Synced, SyncNow
from evermirror.model.push import PushTo, RefOutcome, TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.task import TaskId
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.wiring import push_settings
from evermirror.nodes.worker import worker
from evermirror.nodes.worker.contact import Contact
from tests.edge.git.mirror_world import lose_object, mirror_git
from tests.nodes.test_fleet_engine import Running, running
from tests.nodes.test_pushing import Line, in_contact
from tests.support.gitrepo import UpstreamRepo, read_refs
from tests.support.stage import Stage
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(90)

SECRET = "a-secret-word"


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[UpstreamServer]:
    """Where the targets are."""
    with UpstreamServer(tmp_path / "forge") as server:
        yield server


def target_of(forge: UpstreamServer, name: str) -> UpstreamRepo:
    repo = forge.create(name, commits=0)
    repo.git("config", "http.receivepack", "true")
    return repo


class Project(Running):
    """A worker with one pulled repo; ``put`` is what the coordinator would know of its targets."""

    def __init__(self, up: Running, source: UpstreamRepo, put: dict[int, RefsDigest]) -> None:
        super().__init__(up.engine, up.port, up.stage)
        self.source, self.put = source, put

    def task(self, number: int, *targets: UpstreamRepo, adopt: bool = False, **how) -> SyncNow:
        push = tuple(
            PushTo(TargetId(n), repo.url, "forge", self.put.get(n), adopt)
            for n, repo in enumerate(targets, 1)
        )
        return SyncNow(self.key("team/x"), TaskId(number), push=push, **how)

    async def ask(self, number: int, *targets: UpstreamRepo, **how) -> Synced:
        await self.engine.obey(self.task(number, *targets, **how))
        return await self.answer(number)

    async def answer(self, number: int) -> Synced:
        synced = await self.says(Synced, lambda r: TaskId(number) in r.task_ids)
        self.put |= {push.target: push.put for push in synced.pushes if push.put is not None}
        return synced

    async def mended(self, mirror: Path) -> None:
        """The mirror is as its source is, by a round that nobody asked for."""
        await self.says(Synced, lambda r: not r.task_ids)
        mirror_git(mirror, "fsck", "--full")


def lose_ref(mirror: Path, name: str) -> None:
    """As a bad disk does: its file is there, and empty."""
    mirror_git(mirror, "pack-refs", "--all")
    packed = mirror / "packed-refs"
    lines = packed.read_bytes().splitlines(keepends=True)
    packed.write_bytes(b"".join(line for line in lines if not line.endswith(f" {name}\n".encode())))
    (mirror / name).parent.mkdir(parents=True, exist_ok=True)
    (mirror / name).write_bytes(b"")


def pusher(config: Config, git: Git, mirrors: Mirrors, prober: Prober) -> Pusher:
    return Pusher(git, mirrors, prober, push_settings(config), SteadyClock())


@contextlib.asynccontextmanager
async def project(
    stage: Stage,
    forge: UpstreamServer,
    source: UpstreamRepo,
    *,
    contact: Contact | None = None,
    put: dict[int, RefsDigest] | None = None,
) -> AsyncIterator[Project]:
    sections: dict[str, dict[str, object]] = {
        "upstreams": {"schemes": ["http"], "allow": [stage.upstream.host, forge.host]},
        "credentials": {"forge.username": "bot", "forge.password": SECRET},
    }
    async with running(stage, sections=sections, targets=pusher, contact=contact or in_contact()) as up:
        here = Project(up, source, {} if put is None else put)
        await here.assign("team/x", pulled=True)
        while not here.engine.held():
            await asyncio.sleep(0.01)
        yield here


@pytest.fixture
def source(upstream: UpstreamServer) -> UpstreamRepo:
    repo = upstream.create("team/x")
    repo.branch("next")
    repo.tag("v1", annotated=True)
    repo.hidden_ref("refs/pull/1/head")
    return repo


def pushing(forge: UpstreamServer) -> list[str]:
    """Commands of git that speak with this server, and run still."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if "git" in words and f"//{forge.host}/" in words:
                found.append(words)
    return found


async def test_targets_get_all_branches_and_tags_and_nothing_hidden(stage, forge, source):
    one, two = target_of(forge, "a/x"), target_of(forge, "b/x")
    forge.require_basic("bot", SECRET)
    async with project(stage, forge, source) as up:
        synced = await up.ask(1, one, two)
        assert [p.failure for p in synced.pushes] == [None, None]
        assert one.refs() == two.refs() == source.public_refs()
        assert {r.outcome for p in synced.pushes for r in p.refs} == {RefOutcome.PUT}
        assert {p.commit for p in synced.pushes} == {source.tip()}
        source.commit()
        source.force_push("next")
        source.delete_tag("v1")
        synced = await up.ask(2, one, two)
        assert one.refs() == two.refs() == source.public_refs()
        assert {(p.put_total, p.deleted_total) for p in synced.pushes} == {(2, 1)}
        assert SECRET not in repr(up.port.said)


async def test_nothing_new_costs_the_source_one_request_and_the_targets_none(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        at_source, at_target = len(stage.upstream.requests), len(forge.requests)
        synced = await up.ask(2, one)
        assert (synced.changes_total, synced.pushes[0].changed) == (0, False)
        assert synced.pushes[0].put == up.put[1]
        assert len(stage.upstream.requests) == at_source + 1
        assert len(forge.requests) == at_target


async def test_a_target_that_was_away_is_served_later_without_a_fetch(stage, forge, source):
    one, two = target_of(forge, "a/x"), target_of(forge, "b/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one, two)
        source.commit()
        forge.fail_with(503, path="/a/x")
        synced = await up.ask(2, one, two)
        down, fine = synced.pushes
        assert (down.failure.kind, fine.failure) == (FailureKind.NETWORK_TIMEOUT, None)
        assert (two.refs(), one.tip() == source.tip()) == (source.public_refs(), False)
        forge.heal()
        fetched = sum(b"command=fetch" in r.body for r in stage.upstream.requests)
        synced = await up.ask(3, one, two)
        assert [p.failure for p in synced.pushes] == [None, None]
        assert one.refs() == source.public_refs()
        assert sum(b"command=fetch" in r.body for r in stage.upstream.requests) == fetched


async def test_what_somebody_else_put_there_waits_and_the_rest_goes_on(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        theirs = one.commit("next")
        source.commit()
        source.commit("next")
        (push,) = (await up.ask(2, one)).pushes
        assert push.failure.kind is FailureKind.CONFLICT
        assert (one.tip(), one.tip("next")) == (source.tip(), theirs)
        assert [r.name for r in push.refs if r.outcome is RefOutcome.CONFLICT] == ["refs/heads/next"]
        (push,) = (await up.ask(3, one, adopt=True)).pushes
        assert push.failure is None
        assert one.refs() == source.public_refs()


async def test_force_repairs_what_nobody_noticed(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        one.delete_branch("next")
        assert not (await up.ask(2, one)).pushes[0].changed, "the target is not asked"
        (push,) = (await up.ask(3, one, force=True)).pushes
        assert (push.failure, push.changed) == (None, True)
        assert one.refs() == source.public_refs()


async def test_an_emptied_source_empties_no_target(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        there = one.refs()
        for ref in source.public_refs():
            source.git("update-ref", "-d", ref)
        requests = len(forge.requests)
        await up.engine.obey(up.task(2, one))
        while not any(getattr(r, "failure", None) for r in up.port.said):
            await asyncio.sleep(0.01)
        assert (one.refs(), len(forge.requests)) == (there, requests)


async def test_another_worker_goes_on_where_the_first_one_was(stage, forge, source, tmp_path):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        put = up.put
    source.commit()
    source.force_push("next")
    elsewhere = Stage(tmp_path / "other", stage.upstream)
    async with project(elsewhere, forge, source, put=put) as up:
        (push,) = (await up.ask(2, one)).pushes
        assert (push.failure, push.put_total) == (None, 2)
        assert one.refs() == source.public_refs()


async def test_a_repo_that_is_taken_away_leaves_no_git_behind(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        source.big_blob(200_000)
        there = one.refs()
        forge.delay_s = 3.0  # long enough for us to come between, on a busy machine too
        await up.engine.obey(up.task(2, one))
        async with asyncio.timeout(20):
            while not pushing(forge):
                await asyncio.sleep(0.02)
        await up.engine.obey(ReleaseRepos((up.key("team/x"),)))
        assert (await up.says(Refused)).task_ids == (TaskId(2),)
        assert pushing(forge) == []
        assert one.refs() == there
        forge.heal()
        await up.assign("team/x", pulled=True)
        (push,) = (await up.ask(3, one)).pushes
        assert push.failure is None
        assert one.refs() == source.public_refs()


async def test_a_worker_that_stops_in_the_middle_is_taken_up_after_its_restart(
    stage, forge, source, monkeypatch
):
    monkeypatch.setattr(worker, "STOP_GRACE_S", 0.05)
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        put = up.put
        source.commit()
        source.delete_branch("next")
        forge.delay_s = 3.0  # long enough for us to come between, on a busy machine too
        await up.engine.obey(up.task(2, one))
        async with asyncio.timeout(20):
            while not pushing(forge):
                await asyncio.sleep(0.01)
    assert pushing(forge) == []
    assert not [r for r in up.port.said if isinstance(r, Synced) and r.task_ids]
    forge.heal()
    async with project(stage, forge, source, put=put) as up:
        (push,) = (await up.ask(2, one)).pushes
        assert push.failure is None
        assert one.refs() == source.public_refs()


async def test_out_of_contact_nothing_reaches_the_target(stage, forge, source):
    line, one = Line(), target_of(forge, "a/x")
    async with project(stage, forge, source, contact=line.contact) as up:
        await up.engine.obey(up.task(1, one))
        line.now += 3600.0
        synced = await up.answer(1)
        failure = synced.pushes[0].failure
        assert failure.kind is FailureKind.NETWORK_TIMEOUT
        assert "has not heard its coordinator" in failure.message
        assert failure.ours
        assert one.refs() == {}
        line.contact.welcomed(600.0, 5.0)
        (push,) = (await up.ask(2, one)).pushes
        assert (push.failure, one.refs()) == (None, source.public_refs())


async def test_a_ref_that_the_disk_lost_is_not_deleted_at_the_target_and_comes_back(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        await up.ask(1, one)
        there, requests = one.refs(), len(forge.requests)
        mirror = stage.mirror(up.key("team/x"))
        lose_ref(mirror, "refs/heads/next")
        (push,) = (await up.ask(2, one)).pushes
        assert (push.failure.corrupt, push.changed) == (True, False)
        assert "other refs than its last sync left" in push.failure.message
        assert (one.refs(), len(forge.requests)) == (there, requests)
        await up.mended(mirror)
        assert read_refs(mirror) == source.public_refs()
        assert (await up.ask(3, one)).pushes[0].failure is None
        assert one.refs() == source.public_refs()


async def test_a_mirror_that_was_found_damaged_before_a_restart_is_not_pushed_and_replaced(
    stage, forge, source
):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        mirror = stage.mirror(up.key("team/x"))
    mark_damaged(mirror, "fsck said so")
    async with project(stage, forge, source) as up:
        (push,) = (await up.ask(1, one)).pushes
        assert (push.failure.corrupt, one.refs()) == (True, {})
        await up.mended(mirror)
        assert not is_damaged(mirror)
        assert (await up.ask(2, one)).pushes[0].failure is None
        assert one.refs() == source.public_refs()


@pytest.mark.parametrize("what", ["main", "main^", "main^{tree}", "a file"])
async def test_an_object_that_the_disk_lost_is_noticed_by_the_push_and_the_mirror_is_replaced(
    stage, forge, source, what
):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        mirror = stage.mirror(up.key("team/x"))
        name = source.git("ls-tree", "-r", "--name-only", "main").split()[0]
        lose_object(mirror, source.git("rev-parse", f"main:{name}" if what == "a file" else what).strip())
        (push,) = (await up.ask(1, one)).pushes
        assert (push.failure.corrupt, push.changed) == (True, False)
        await up.mended(mirror)
        assert (await up.ask(2, one)).pushes[0].failure is None
        assert one.refs() == source.public_refs()


async def test_a_credential_that_this_worker_lacks_is_its_own_trouble(stage, forge, source):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        to = PushTo(TargetId(1), one.url, "elsewhere")
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(1), push=(to,)))
        failure = (await up.answer(1)).pushes[0].failure
        assert "'elsewhere' is not in the settings of this node" in failure.message
        assert failure.context[OURS] == CREDENTIAL


async def test_a_target_that_may_not_be_reached_is_told_as_such(stage, forge, source, upstream):
    one = target_of(forge, "a/x")
    async with project(stage, forge, source) as up:
        bad = PushTo(TargetId(1), "http://169.254.169.254/team/x.git")
        odd = PushTo(TargetId(2), "ext::sh -c true")
        good = PushTo(TargetId(3), one.url)
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(1), push=(bad, odd, good)))
        synced = await up.answer(1)
        assert [p.failure is None for p in synced.pushes] == [False, False, True]
        assert one.refs() == source.public_refs()


async def test_the_way_of_a_push_is_shown(stage, forge, source):
    one = target_of(forge, "a/x")
    source.big_blob(3_000_000)
    async with project(stage, forge, source) as up:
        forge.delay_s = 0.7
        await up.engine.obey(up.task(1, one))
        progress = await up.says(Progress, lambda p: p.phase == f"pushing to {forge.host}")
        assert progress.task_ids == (TaskId(1),)
        assert (await up.answer(1)).pushes[0].sent_bytes > 2_900_000  # git rounds


async def test_a_failure_of_the_source_is_told_with_the_versions_that_were_at_work(stage, source):
    async with stage.up() as up:
        await up.add(source.url)
        await up.until_status("team/x", "active")
        stage.upstream.delete(source)
        await up.sync("team/x")
        await up.until_status("team/x", "gone")
        context = (await up.repo("team/x")).last_failure.context
        assert context["source_url"] == source.url
        assert context["evermirror"] == evermirror.__version__
        assert re.fullmatch(r"2\.\d+\.\d+", context["git_version"])
        assert context["system"].startswith("Linux ")
