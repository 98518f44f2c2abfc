"""The engine as part of a fleet: followers, pauses, looks, releases and hand-backs, with real upstreams."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

from evermirror.config import Config
from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.edge.git.command import Git
from evermirror.edge.git.folder import DiskUsage
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.store.local import LocalState
from evermirror.model.address import AllowList
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import (
    AssignRepos,
    Command,
    Declined,
    Deferred,
    Failed,
    HandedBack,
    HeldRepo,
    Kept,
    LookAt,
    Refused,
    Released,
    ReleaseRepos,
    Report,
    Started,
    Synced,
    SyncNow,
)
from evermirror.model.refs import short_digest
from evermirror.model.repo import Host, Mode, RepoKey, RepoSpec
from evermirror.model.task import TaskId
from evermirror.nodes import basics, wiring
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.worker import worker
from evermirror.nodes.worker.contact import Contact
from evermirror.nodes.worker.ports import NoTargets, Targets
from evermirror.nodes.worker.worker import Worker, WorkerParts
from tests.support.stage import Stage

T = TypeVar("T", bound=Report)


class Port:
    """Keeps what the worker says."""

    def __init__(self) -> None:
        self.said: list[Report] = []
        self.asked = asyncio.Event()  # the worker has recalled what it had, and obeys

    async def next_command(self) -> Command:
        self.asked.set()
        return await asyncio.get_running_loop().create_future()

    async def report(self, report: Report) -> None:
        self.said.append(report)

    def take(self, kind: type[T]) -> list[T]:
        found = [r for r in self.said if isinstance(r, kind)]
        self.said = [r for r in self.said if not isinstance(r, kind)]
        return found


class Running:
    def __init__(self, engine: Worker, port: Port, stage: Stage) -> None:
        self.engine, self.port, self.stage = engine, port, stage

    def key(self, name: str) -> RepoKey:
        return RepoKey(f"{self.stage.upstream.host}/{name}")

    def spec(self, name: str, mode: Mode = Mode.EXACT, pulled: bool = False) -> RepoSpec:
        host = self.stage.upstream.host
        url = self.stage.upstream.url(f"{name}.git")
        return RepoSpec(self.key(name), url, Host(host), mode=mode, pulled=pulled)

    async def assign(self, *names: str, following: bool = False, paused: bool = False, **more) -> None:
        keys = frozenset(map(self.key, names))
        none: frozenset[RepoKey] = frozenset()
        await self.engine.obey(
            AssignRepos(
                tuple(self.spec(name, **more) for name in names),
                following=keys if following else none,
                paused=keys if paused else none,
            )
        )

    async def says(self, kind: type[T], holds: Callable[[T], bool] = lambda _: True) -> T:
        """The next report of that kind; those before it are forgotten."""
        async with asyncio.timeout(60):
            while True:
                for n, report in enumerate(self.port.said):
                    if isinstance(report, kind) and holds(report):
                        del self.port.said[: n + 1]
                        return report
                await asyncio.sleep(0.01)

    async def cloned(self, *names: str, **how) -> None:
        await self.assign(*names, **how)
        missing = set(map(self.key, names))
        while missing:
            missing.discard((await self.says(Synced)).key)

    async def no_poll_is_under_way(self) -> None:
        async with asyncio.timeout(60):
            while self.engine._scheduler.polls_in_flight:
                await asyncio.sleep(0.01)

    def polls(self) -> int:
        """Looks at refs; a host that is known to speak version 2 is not asked what it can do before each."""
        return sum(b"command=ls-refs" in r.body for r in self.stage.upstream.requests)

    def on_disk(self, name: str) -> bool:
        return self.stage.mirror(self.key(name)).exists()


@contextlib.asynccontextmanager
async def running(
    stage: Stage,
    *,
    hands_back: bool = True,
    remembers: bool = True,
    interval: str = "10m",
    sections: dict[str, dict[str, object]] | None = None,
    targets: Callable[[Config, Git, Mirrors, Prober], Targets] = lambda *_: NoTargets(),
    contact: Contact | None = None,
) -> AsyncIterator[Running]:
    config = stage.config(
        **{"schedule": {"min_gap": "0s", "max_gap": interval, "policy": "adaptive"}, **(sections or {})}
    )
    allow = AllowList.parse(list(config.upstreams.allow))
    credentials = basics.credentials_of(config)
    git = Git(basics.git_settings(config), credentials)
    settings = wiring.schedule_settings(config)
    async with contextlib.AsyncExitStack() as stack:
        resolver = Resolver(allow)
        stack.callback(resolver.close)
        prober = Prober(resolver, credentials, git, wiring.probe_settings(config, allow))
        stack.push_async_callback(prober.close)
        local = await LocalState.open(config.data.dir / "worker.db")
        stack.push_async_callback(local.close)
        mirrors = Mirrors(config.data.dir / "mirrors", git, wiring.mirror_settings(config))
        port = Port()
        engine = Worker(
            WorkerParts(
                port=port,
                scheduler=Scheduler(settings),
                prober=prober,
                mirrors=mirrors,
                maintenance=Maintenance(git, wiring.upkeep_settings(config)),
                local=local,
                disk=DiskGuard(0.9),
                clock=SteadyClock(),
                chance=random.Random(1),
                care=wiring.care_settings(config),
                hands_back=hands_back,
                remembers=remembers,
                targets=targets(config, git, mirrors, prober),
                contact=contact or Contact(),
            ),
            settings,
        )
        work = asyncio.create_task(engine.run())
        try:
            async with asyncio.timeout(60):
                await port.asked.wait()
            yield Running(engine, port, stage)
            assert not work.done(), work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirrors, "disk_usage", lambda _: DiskUsage(100, 1))


# Roles


async def test_a_follower_clones_once_and_is_then_looked_at_only_when_told(stage, upstream):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x", following=True)
        repo.commit()
        polls = up.polls()
        await asyncio.sleep(0.5)
        assert up.polls() == polls, "it polls by itself"
        await up.engine.obey(LookAt((up.key("team/x"),)))
        synced = await up.says(Synced)
        assert (synced.first, synced.changes_total, synced.task_ids) == (False, 1, ())
        await up.engine.obey(LookAt((up.key("team/x"),)))
        kept = await up.says(Kept)
        (held,) = kept.items
        assert (held.key, held.digest) == (synced.key, synced.digest)
        repo.commit()
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(5)))
        assert (await up.says(Synced)).task_ids == (TaskId(5),)


async def test_a_follower_that_becomes_the_first_polls_and_the_other_way_round(stage, upstream):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x", following=True)
        await up.assign("team/x")
        repo.commit()
        await up.says(Synced)
        await up.assign("team/x", following=True)
        await up.no_poll_is_under_way()
        polls = up.polls()
        await asyncio.sleep(0.4)
        assert up.polls() == polls
        assert "asked for" in up.engine.plan(up.key("team/x")).reason


async def test_a_paused_repo_is_held_and_not_looked_at(stage, upstream):
    upstream.create("team/x")
    upstream.create("team/new")
    async with running(stage) as up:
        await up.cloned("team/x")
        await up.assign("team/x", "team/new", paused=True)
        await up.no_poll_is_under_way()
        polls = up.polls()
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(5)))
        refused = await up.says(Refused)
        assert refused.task_ids == (TaskId(5),)
        assert refused.failure.message == "the repo is disabled"
        up.port.said.clear()
        await up.engine.obey(LookAt((up.key("team/x"), up.key("team/new"))))
        (held,) = (await up.says(Kept)).items
        assert held.key == up.key("team/x")
        assert held.digest is not None
        await asyncio.sleep(0.3)
        assert up.polls() == polls
        assert not up.on_disk("team/new")
        assert up.engine.plan(up.key("team/x")).reason == "disabled"
        await up.assign("team/x", "team/new")
        await up.says(Synced, lambda r: r.key == up.key("team/new"))


# First clones that nobody is to wait for


async def test_a_first_clone_without_an_answer_is_deferred_and_comes_when_there_is_one(stage, upstream):
    upstream.create("team/slow")
    async with running(stage) as up:
        upstream.delay_s = 60.0
        await up.assign("team/slow")
        assert (await up.says(Deferred)).keys == (up.key("team/slow"),)
        upstream.heal()
        upstream.end_connections()  # what hangs fails, and is tried again when it is asked for
        await up.engine.obey(SyncNow(up.key("team/slow"), TaskId(5)))
        assert (await up.says(Synced)).first


async def test_a_paused_first_clone_is_deferred_at_once(stage, upstream):
    upstream.create("team/x")
    async with running(stage) as up:
        await up.assign("team/x", paused=True)
        assert [r.keys for r in up.port.take(Deferred)] == [(up.key("team/x"),)]


async def test_one_that_failed_is_told_once_and_deferred_when_it_is_assigned_again(stage, upstream):
    async with running(stage) as up:
        await up.assign("team/gone")
        await up.says(Failed)
        up.port.said.clear()
        await up.assign("team/gone")
        assert [r.keys for r in up.port.take(Deferred)] == [(up.key("team/gone"),)]


async def test_what_is_cloned_or_was_is_never_told_as_deferred(stage, upstream):
    upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x")
        await up.assign("team/x")
        await up.engine._rounds.tell_deferred()
        assert up.port.take(Deferred) == []


async def test_a_look_that_fails_still_tells_what_is_here(stage, upstream):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x", following=True)
        (before,) = up.engine.held()
        up.engine._shelf.repos[up.key("team/x")].digest = None  # a lost local file
        repo.path.rename(repo.path.with_suffix(".gone"))
        await up.engine.obey(LookAt((up.key("team/x"),)))
        await up.says(Failed)
        (held,) = (await up.says(Kept)).items
        assert held.digest == before.digest


# Release


async def test_a_release_that_deletes_nothing_tells_what_stays(stage, upstream):
    upstream.create("team/x")
    upstream.create("team/never")
    async with running(stage) as up:
        await up.cloned("team/x", following=True)
        (before,) = up.engine.held()
        upstream.fail_with(500, path="/team/never")
        await up.assign("team/never")
        await up.engine.obey(ReleaseRepos((up.key("team/x"), up.key("team/never"))))
        assert await up.says(Kept) == Kept((before,))
        assert await up.says(Released) == Released((up.key("team/never"),))
        assert up.on_disk("team/x")
        assert [h.key for h in up.engine.held()] == [up.key("team/x")]
        up.port.said.clear()
        await up.assign("team/x", following=True)
        assert await up.says(Kept) == Kept((before,)), "no clone will tell that it is here"
        await asyncio.sleep(0.3)
        assert not up.port.take(Synced)


async def test_a_mirror_is_deleted_only_with_the_refs_that_are_covered(stage, upstream):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x", following=True)
        (before,) = up.engine.held()
        repo.commit()
        await up.engine.obey(LookAt((up.key("team/x"),)))
        synced = await up.says(Synced)
        key, covered = up.key("team/x"), short_digest(before.digest)
        await up.engine.obey(ReleaseRepos((key,), delete=True, digests=(covered,)))
        (stays,) = (await up.says(Declined)).items
        assert (stays.key, stays.digest) == (key, synced.digest)
        assert not up.port.take(Released)
        repo.commit()
        await up.engine.obey(LookAt((key,)))
        synced = await up.says(Synced)
        assert not synced.first, "it goes on with what it had"
        covered = short_digest(synced.digest)
        await up.engine.obey(ReleaseRepos((key,), delete=True, digests=(covered,)))
        assert await up.says(Released) == Released((key,))
        assert not up.on_disk("team/x")
        assert up.engine.held() == []


@pytest.mark.parametrize("steps", [0, 5, 20, 60, 150, 400])
async def test_a_sync_under_way_cannot_slip_a_change_past_a_deletion(stage, upstream, steps):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x", following=True)
        (before,) = up.engine.held()
        repo.commit()
        await up.engine.obey(LookAt((up.key("team/x"),)))
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        mirror = stage.mirror(up.key("team/x"))
        key, covered = up.key("team/x"), short_digest(before.digest)
        await up.engine.obey(ReleaseRepos((key,), delete=True, digests=(covered,)))
        if up.port.take(Declined):
            assert mirror.exists()
            assert repo.tip() in (mirror / "packed-refs").read_text() + "".join(
                p.read_text() for p in (mirror / "refs").rglob("*") if p.is_file()
            )
        else:
            assert up.port.take(Released)
            assert not mirror.exists()
            assert not any(r.changes_total for r in up.port.take(Synced))


async def test_a_removed_repo_is_deleted_whatever_its_refs_are(stage, upstream):
    upstream.create("team/x")
    async with running(stage) as up:
        await up.cloned("team/x")
        await up.engine.obey(ReleaseRepos((up.key("team/x"),), delete=True, digests=(0,)))
        assert await up.says(Released)
        assert not up.on_disk("team/x")
        up.port.said.clear()
        await up.assign("team/x")
        (held,) = (await up.says(Kept)).items
        assert held.key == up.key("team/x"), "brought back from the trash: no clone will tell"


async def test_an_append_only_mirror_tells_the_digest_of_its_own_refs(stage, upstream):
    repo = upstream.create("team/x")
    repo.branch("old")
    async with running(stage) as up:
        await up.cloned("team/x", mode=Mode.APPEND_ONLY)
        alike = up.engine.held()[0].digest
        repo.delete_branch("old")
        synced = await up.says(Synced)
        own = synced.digest
        key = up.key("team/x")
        assert own == (await up.engine._mirrors.read_refs(key)).digest()
        assert "refs/heads/old" in (await up.engine.refs(key)).refs
        upstreams = up.engine._shelf.repos[key].digest
        assert upstreams not in (own, None)
        assert alike is not None
        await up.engine.obey(ReleaseRepos((key,), delete=True, digests=(short_digest(upstreams),)))
        assert (await up.says(Declined)).items[0].digest == own
        await up.engine.obey(ReleaseRepos((key,), delete=True, digests=(short_digest(own),)))
        assert await up.says(Released)


async def test_what_is_told_is_what_lies_on_the_disk_also_without_a_head(stage, upstream):
    upstream.create("team/empty", commits=0)
    upstream.create("team/unborn").set_head("not-there")
    detached = upstream.create("team/detached")
    detached.git("update-ref", "--no-deref", "HEAD", detached.tip())
    names = ("team/empty", "team/unborn", "team/detached")
    async with running(stage) as up:
        await up.cloned(*names, following=True)
        for held in up.engine.held():
            assert held.digest == (await up.engine._mirrors.read_refs(held.key)).digest(), held.key
            covered = short_digest(held.digest)
            await up.engine.obey(ReleaseRepos((held.key,), delete=True, digests=(covered,)))
            assert await up.says(Released) == Released((held.key,))


# Hand back


async def test_clones_that_there_is_no_room_for_are_handed_back(stage, upstream, monkeypatch):
    upstream.create("team/x")
    upstream.create("team/y")
    repo = upstream.create("team/here")
    async with running(stage) as up:
        await up.cloned("team/here")
        fill_disk(monkeypatch)
        await up.assign("team/x", "team/y")
        back: set[RepoKey] = set()
        while len(back) < 2:  # together, or one by one
            back.update((await up.says(HandedBack)).keys)
        assert back == {up.key("team/x"), up.key("team/y")}
        assert set(up.engine._shelf.repos) == {up.key("team/here")}
        assert len(up.engine._scheduler) == 1
        assert not up.on_disk("team/x")
        assert await up.engine._shelf._local.assigned() != []
        repo.commit()
        await up.says(Synced, lambda r: r.key == up.key("team/here"))
        assert not up.engine.status().accepting_clones


async def test_who_asked_for_a_clone_is_told_before_it_is_handed_back(stage, upstream, monkeypatch):
    upstream.create("team/x")
    async with running(stage) as up:
        fill_disk(monkeypatch)
        await up.assign("team/x")
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(5)))
        told = [await up.says(Refused), await up.says(HandedBack)]
        assert told[0].task_ids == (TaskId(5),)
        assert told[1].keys == (up.key("team/x"),)


async def test_a_clone_that_fails_for_lack_of_room_is_handed_back(stage, upstream, monkeypatch):
    upstream.create("team/x")

    async def no_room(*_args, **_more):
        raise FailureError(Failure(FailureKind.DISK_FULL, "no space left on device"))

    async with running(stage) as up:
        monkeypatch.setattr(Mirrors, "sync", no_room)
        await up.assign("team/x")
        assert (await up.says(HandedBack)).reason == "no space left on device"
        assert not up.engine._shelf.repos
        assert not up.port.take(Failed)
        assert not up.engine.status().accepting_clones


async def test_a_lone_worker_keeps_its_clones_waiting(stage, upstream, monkeypatch):
    upstream.create("team/x")
    async with running(stage, hands_back=False) as up:
        with monkeypatch.context() as full:
            fill_disk(full)
            await up.assign("team/x")
            await asyncio.sleep(0.5)
            assert not up.port.take(HandedBack)
        await up.says(Synced)


async def test_a_disk_that_takes_no_writes_takes_no_clones(stage, upstream, monkeypatch):
    monkeypatch.setattr(worker, "SAVE_S", 0.02)
    monkeypatch.setattr(worker, "TRY_DISK_S", 0.02)
    async with running(stage) as up:
        assert up.engine.status().accepting_clones

        async def read_only(*_):
            raise FailureError(Failure(FailureKind.DISK_FULL, "attempt to write a readonly database"))

        async def accepts(expected: bool) -> None:
            async with asyncio.timeout(10):
                while up.engine.status().accepting_clones is not expected:
                    await asyncio.sleep(0.01)

        with monkeypatch.context() as broken:
            broken.setattr(LocalState, "put_meta", read_only)
            await accepts(False)
        await accepts(True)


# What is remembered


async def test_after_a_restart_it_goes_on_without_a_word_from_the_coordinator(stage, upstream):
    repo, follower = upstream.create("team/x"), upstream.create("team/follows")
    async with running(stage) as up:
        await up.cloned("team/x")
        await up.cloned("team/follows", following=True)
    repo.commit()
    follower.commit()
    async with running(stage) as up:
        synced = await up.says(Synced)
        assert (synced.key, synced.first) == (up.key("team/x"), False)
        await asyncio.sleep(0.3)
        assert not [r for r in up.port.take(Synced) if r.key == up.key("team/follows")]
        await up.engine.obey(ReleaseRepos((up.key("team/x"),)))
    async with running(stage) as up:
        assert set(up.engine._shelf.repos) == {up.key("team/follows")}
        assert {h.key: h.digest is not None for h in up.engine.held()} == {
            up.key("team/x"): True,
            up.key("team/follows"): True,
        }


async def test_what_a_new_coordinator_does_not_assign_again_is_dropped_and_stays_on_disk(stage, upstream):
    upstream.create("team/x")
    upstream.create("team/y")
    async with running(stage) as up:
        await up.cloned("team/x", "team/y")
        up.engine.began_anew()
        await up.assign("team/x")
        await up.engine.drop_unconfirmed()
        assert set(up.engine._shelf.repos) == {up.key("team/x")}
        assert up.key("team/y") not in up.engine._scheduler
        assert up.on_disk("team/y")
        assert isinstance(up.engine.held()[1], HeldRepo)
        up.engine.began_anew()
        await up.assign("team/x")
        await up.engine.drop_unconfirmed()
        assert set(up.engine._shelf.repos) == {up.key("team/x")}


async def until_asked(up):
    """A poll is under way."""
    async with asyncio.timeout(20):
        while not up.polls():
            await asyncio.sleep(0.005)


async def test_a_first_clone_is_the_round_of_who_asked_before_the_repo_was_assigned(stage, upstream):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        upstream.delay_s = 0.3
        await up.assign("team/x")
        await until_asked(up)
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(5), early=True))
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(5), early=True))  # sent again
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(6)))
        assert (await up.says(Started)).task_ids == (TaskId(5),)
        done = await up.says(Synced)
        assert (done.task_ids, done.first, done.head_commit) == ((TaskId(5),), True, repo.tip())
        assert [change.new for change in done.changes] == [repo.tip()]
        late = await up.says(Synced)
        assert (late.task_ids, late.first) == ((TaskId(6),), False), "it may be about a later push"
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(7), early=True))
        done = await up.says(Synced)
        assert (done.task_ids, done.first) == ((TaskId(7),), False), "what is here is looked at anew"


@pytest.mark.parametrize("why", ["assigned again", "forced"])
async def test_a_first_clone_that_looked_too_early_or_does_too_little_is_not(stage, upstream, why):
    repo = upstream.create("team/x")
    async with running(stage) as up:
        upstream.delay_s = 0.3
        await up.assign("team/x")
        await until_asked(up)
        if why == "assigned again":
            await up.assign("team/x")
        await up.engine.obey(SyncNow(up.key("team/x"), TaskId(5), early=True, force=why == "forced"))
        first = await up.says(Synced)
        assert (first.task_ids, first.first) == ((), True)
        done = await up.says(Synced)
        assert (done.task_ids, done.first, done.head_commit) == ((TaskId(5),), False, repo.tip())


async def test_a_first_clone_that_fails_fails_for_who_joined_it(stage, upstream):
    async with running(stage) as up:
        upstream.delay_s = 0.3
        await up.assign("team/never")
        await until_asked(up)
        await up.engine.obey(SyncNow(up.key("team/never"), TaskId(5), early=True))
        assert (await up.says(Failed)).task_ids == (TaskId(5),)
