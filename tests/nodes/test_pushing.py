"""The last part of a round, with real upstreams and targets that do as the test says."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable

import pytest

from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.progress import GitProgress
from evermirror.edge.git.push_sending import out_of_contact
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import (
    Failed,
    Kept,
    Progress,
    Refused,
    ReleaseRepos,
    Started,
    Synced,
    SyncNow,
    Verified,
)
from evermirror.model.push import Pushed, PushedRef, PushTo, RefOutcome, TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Priority, RepoKey, RepoSpec
from evermirror.model.task import SyncPhase, TaskId
from evermirror.nodes.worker import pushing, worker
from evermirror.nodes.worker.contact import Contact
from tests.nodes.test_fleet_engine import Running, running
from tests.support.gitrepo import UpstreamRepo, read_refs
from tests.support.stage import Stage

pytestmark = pytest.mark.timeout(60)

URL = "https://target{}.example/team/x.git"


def in_contact() -> Contact:
    contact = Contact()
    contact.welcomed(600.0, 5.0)
    return contact


class Shelves:
    """Targets of the mirrors below ``stage``: each remembers what it was given."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.has: dict[TargetId, RefsDigest] = {}
        self.calls: list[tuple[TargetId, bool, bool, bool]] = []  # target, accept, force, adopt
        self.refs_told = 1
        self.gates: dict[TargetId, asyncio.Event] = {}
        self.broken: dict[TargetId, Exception] = {}
        self.refusing: dict[TargetId, Failure] = {}
        self.running: set[TargetId] = set()
        self.most = 0  # at a time
        self.cancelled: list[TargetId] = []

    def hold(self, target: int) -> asyncio.Event:
        """Its next push waits until the event is set."""
        gate = self.gates[TargetId(target)] = asyncio.Event()
        return gate

    def digest(self, key: RepoKey) -> RefsDigest:
        refs = sorted(read_refs(self._stage.mirror(key)).items())
        return RefsDigest(hashlib.sha256(repr(refs).encode()).hexdigest())

    async def behind(self, key: RepoKey, to: PushTo) -> bool:
        return self.has.get(to.target) != self.digest(key)

    async def push(
        self,
        key: RepoKey,
        to: PushTo,
        *,
        accept: bool,
        force: bool,
        may_push: Callable[[], bool],
        progressed: Callable[[GitProgress], None],
        source_url: str,
        believed: RefsDigest | None,
        source: RepoSpec,
    ) -> Pushed:
        target = to.target
        self.calls.append((target, accept, force, to.adopt))
        self.running.add(target)
        self.most = max(self.most, len(self.running))
        try:
            progressed(GitProgress(SyncPhase.PUSHING, 40.0, 0))
            if (gate := self.gates.get(target)) is not None:
                await gate.wait()
            await asyncio.sleep(0.01)
            return self._pushed(key, to, may_push())
        except asyncio.CancelledError:
            self.cancelled.append(target)
            raise
        finally:
            self.running.discard(target)

    def _pushed(self, key: RepoKey, to: PushTo, allowed: bool) -> Pushed:
        if (error := self.broken.get(to.target)) is not None:
            raise error
        failure = self.refusing.get(to.target)
        if not allowed:
            failure = out_of_contact()
        if failure is not None:
            return Pushed(to.target, self.has.get(to.target), failure=failure)
        self.has[to.target] = self.digest(key)
        refs = tuple(
            PushedRef(f"refs/heads/{n}", None, "1" * 40, RefOutcome.PUT) for n in range(self.refs_told)
        )
        return Pushed(to.target, self.has[to.target], "1" * 40, refs, put_total=self.refs_told)


class Project(Running):
    """A worker with one pulled repo, and its targets."""

    def __init__(self, up: Running, repo: UpstreamRepo, shelves: Shelves) -> None:
        super().__init__(up.engine, up.port, up.stage)
        self.repo, self.shelves = repo, shelves

    def task(self, number: int, *targets: int, adopt: bool = False, name: str = "team/x", **how) -> SyncNow:
        push = tuple(
            PushTo(TargetId(n), URL.format(n), put=self.shelves.has.get(TargetId(n)), adopt=adopt)
            for n in targets
        )
        return SyncNow(self.key(name), TaskId(number), push=push, **how)

    async def ask(self, number: int, *targets: int, **how) -> Synced:
        await self.engine.obey(self.task(number, *targets, **how))
        return await self.says(Synced, lambda r: TaskId(number) in r.task_ids)

    async def look_hangs(self, task: SyncNow) -> None:
        """Obeys it; its look has begun, and ends when upstream no longer stalls."""
        requests = len(self.stage.upstream.requests)
        self.stage.upstream.stall_after_bytes = 0
        await self.engine.obey(task)
        await self.until(lambda: len(self.stage.upstream.requests) > requests)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)

    def fetches(self) -> int:
        return sum(
            r.service == "upload-pack" and b"command=fetch" in r.body for r in self.stage.upstream.requests
        )


@contextlib.asynccontextmanager
async def project(stage: Stage, *, contact: Contact | None = None, cloned: bool = True, **how):
    shelves = Shelves(stage)
    repo = stage.upstream.create("team/x")
    async with running(stage, targets=lambda *_: shelves, contact=contact or in_contact(), **how) as engine:
        up = Project(engine, repo, shelves)
        if cloned:
            await up.cloned("team/x", pulled=True)
        yield up


# When it is looked at


async def test_a_pulled_repo_is_cloned_once_and_then_looked_at_only_when_asked_for(stage):
    async with project(stage, interval="1s") as up:
        up.repo.commit()
        polls = up.polls()
        await asyncio.sleep(1.5)
        assert up.polls() == polls, "it polls by itself"
        assert "asked for" in up.engine.plan(up.key("team/x")).reason
        synced = await up.ask(1)
        assert (synced.changes_total, synced.pushes) == (1, ())


async def test_a_repo_that_becomes_pulled_falls_quiet_and_the_other_way_round(stage):
    async with project(stage, cloned=False) as up:
        await up.cloned("team/x")
        await up.assign("team/x", pulled=True)
        await asyncio.sleep(0.3)
        await up.until(lambda: not up.engine._rounds.open)  # a poll under way came to its end
        polls = up.polls()
        await asyncio.sleep(0.3)
        assert up.polls() == polls
        await up.assign("team/x")
        up.repo.commit()
        assert (await up.says(Synced)).changes_total == 1


async def test_a_copy_of_a_pulled_repo_is_made_wherever_it_is_placed(stage):
    """As a follower, and as the first where nobody asks for a sync: or no hand-over would ever end."""
    stage.upstream.create("team/y")
    async with project(stage, cloned=False) as up:
        await up.cloned("team/x", pulled=True, following=True)
        await up.cloned("team/y", pulled=True)
        assert up.on_disk("team/x")
        assert up.on_disk("team/y")


async def test_a_worker_that_starts_again_knows_which_repos_are_pulled(stage):
    async with project(stage) as up:
        await asyncio.sleep(0)
    up.repo.commit()
    async with running(stage, interval="1s") as again:
        polls = again.polls()
        await asyncio.sleep(1.5)
        assert again.polls() == polls
        assert again.key("team/x") in again.engine._scheduler


# What is pushed


async def test_what_moved_is_synced_then_pushed_and_told_in_one_report(stage):
    async with project(stage) as up:
        up.repo.commit()
        synced = await up.ask(1, 1, 2)
        assert (synced.task_ids, synced.changes_total) == ((TaskId(1),), 1)
        assert [(p.target, p.put, p.put_total) for p in synced.pushes] == [
            (1, up.shelves.has[1], 1),
            (2, up.shelves.has[2], 1),
        ]
        assert synced.look_s is not None
        assert 0 < synced.look_s < 5
        assert len(up.port.take(Synced)) == 0


async def test_the_first_clone_of_a_task_is_pushed_too(stage):
    async with project(stage, cloned=False) as up:
        up.shelves.hold(1).set()
        await up.assign("team/x", pulled=True)
        await up.engine.obey(up.task(1, 1))
        synced = await up.says(Synced, lambda r: bool(r.task_ids))
        assert [p.failure for p in synced.pushes] == [None]
        assert up.shelves.has[1] == up.shelves.digest(up.key("team/x"))
        polls = up.polls()
        await asyncio.sleep(0.3)
        assert up.polls() == polls


async def test_a_target_that_is_behind_is_served_although_nothing_moved_and_nothing_is_fetched(stage):
    async with project(stage) as up:
        fetches = up.fetches()
        synced = await up.ask(1, 1)
        assert (synced.changes_total, synced.first, up.fetches()) == (0, False, fetches)
        assert [(p.target, p.put_total) for p in synced.pushes] == [(1, 1)]
        assert synced.head_commit == up.repo.tip()


async def test_targets_that_have_everything_are_not_asked(stage):
    async with project(stage) as up:
        first = await up.ask(1, 1)
        requests = len(stage.upstream.requests)
        synced = await up.ask(2, 1)
        assert len(up.shelves.calls) == 1
        assert len(stage.upstream.requests) == requests + 1, "the source is asked once"
        (push,) = synced.pushes
        assert (push.put, push.changed, push.failure) == (first.pushes[0].put, False, None)
        assert push.commit == up.repo.tip()


async def test_of_two_targets_only_the_one_that_is_behind_is_served(stage):
    async with project(stage) as up:
        await up.ask(1, 1)
        synced = await up.ask(2, 1, 2)
        assert [call[0] for call in up.shelves.calls] == [1, 2]
        assert [(p.target, p.changed) for p in synced.pushes] == [(1, False), (2, True)]


async def test_force_and_a_persons_word_reach_the_push(stage):
    async with project(stage) as up:
        await up.ask(1, 1)
        await up.ask(2, 1, force=True)
        up.repo.commit()
        await up.ask(3, 1, accept=True)
        up.repo.commit()
        await up.ask(4, 1, adopt=True)
        assert up.shelves.calls == [
            (1, False, False, False),
            (1, False, True, False),
            (1, True, False, False),
            (1, False, False, True),
        ]


async def test_very_many_refs_are_told_by_their_number(stage, monkeypatch):
    monkeypatch.setattr(pushing, "REFS_TOLD", 10)
    async with project(stage) as up:
        up.shelves.refs_told = 500
        synced = await up.ask(1, 1, 2)
        assert [(len(p.refs), p.put_total) for p in synced.pushes] == [(5, 500), (5, 500)]


# Callers


async def test_the_targets_of_all_callers_are_one_list_and_each_is_served_once(stage):
    async with project(stage) as up:
        await up.look_hangs(up.task(1))  # its poll runs while the others come
        await up.engine.obey(up.task(2, 1, 2, adopt=True))
        await up.engine.obey(up.task(3, 2, 3, priority=Priority.HIGH))
        await up.engine.obey(up.task(4))
        stage.upstream.stall_after_bytes = None
        assert (await up.says(Synced)).task_ids == (TaskId(1),)
        synced = await up.says(Synced)
        assert synced.task_ids == (2, 3, 4)
        assert [p.target for p in synced.pushes] == [1, 2, 3]
        assert sorted((call[0], call[3]) for call in up.shelves.calls) == [(1, True), (2, True), (3, False)]


async def test_a_command_that_is_sent_again_is_neither_pushed_nor_looked_at_twice(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        await up.says(Started)
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        requests = len(stage.upstream.requests)
        await up.engine.obey(up.task(1, 1))
        gate.set()
        assert (await up.says(Synced)).task_ids == (TaskId(1),)
        await asyncio.sleep(0.3)
        assert up.port.take(Synced) == []
        assert len(up.shelves.calls) == 1
        assert len(stage.upstream.requests) == requests


async def test_who_comes_during_a_push_gets_a_round_of_their_own(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        up.repo.commit()
        await up.engine.obey(up.task(2, 1))
        await asyncio.sleep(0.2)
        assert up.port.take(Synced) == []
        gate.set()
        assert (await up.says(Synced)).task_ids == (TaskId(1),)
        second = await up.says(Synced)
        assert (second.task_ids, second.changes_total) == ((TaskId(2),), 1)
        assert second.pushes[0].changed


async def test_who_wants_a_commit_that_is_not_there_is_refused_and_the_others_are_served(stage):
    async with project(stage) as up:
        await up.look_hangs(up.task(1))
        await up.engine.obey(up.task(2, 1, min_commit="f" * 40))
        await up.engine.obey(up.task(3, 1))
        stage.upstream.stall_after_bytes = None
        synced = await up.says(Synced, lambda r: TaskId(3) in r.task_ids)
        assert (synced.task_ids, synced.pushes[0].changed) == ((TaskId(3),), True)
        assert (await up.says(Refused)).task_ids == (TaskId(2),)


async def test_what_a_push_came_to_is_told_whatever_git_says_afterwards(stage, monkeypatch):
    asked = Mirrors.has_commit

    async def has_commit(self, key, oid):
        if up.shelves.calls:
            raise FailureError(Failure(FailureKind.UNKNOWN, "git does not start"))
        return await asked(self, key, oid)

    monkeypatch.setattr(Mirrors, "has_commit", has_commit)
    async with project(stage) as up:
        synced = await up.ask(1, 1, min_commit=up.repo.tip())
        assert synced.pushes[0].changed
        assert not up.port.take(Failed), "the source is not to blame"


# What goes wrong


async def test_one_target_that_fails_or_breaks_does_not_hold_up_the_others(stage):
    async with project(stage) as up:
        denied = Failure(FailureKind.PERMISSION_DENIED, "you are not allowed to push")
        up.shelves.refusing[TargetId(1)] = denied
        up.shelves.broken[TargetId(2)] = ZeroDivisionError("a bug")
        up.shelves.broken[TargetId(3)] = FailureError(Failure(FailureKind.DISK_FULL, "no room"))
        up.repo.commit()
        synced = await up.ask(1, 1, 2, 3, 4)
        told = {p.target: p.failure for p in synced.pushes}
        assert told[1] == denied
        assert told[2].kind is FailureKind.UNKNOWN
        assert "ZeroDivisionError: a bug" in told[2].message
        assert told[3] is not None
        assert told[4] is None
        assert not up.port.take(Failed), "the mirror is synced"
        assert up.engine.held()[0].verified_at == pytest.approx(synced.verified_at)


async def test_a_slow_target_holds_up_no_more_than_its_own_place(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1, 2, 3, 4))
        async with asyncio.timeout(10):
            while len(up.shelves.has) < 3:
                await asyncio.sleep(0.01)
        assert up.shelves.running == {1}
        assert up.shelves.most == pushing.AT_ONCE
        gate.set()
        synced = await up.says(Synced)
        assert [p.target for p in synced.pushes] == [1, 2, 3, 4]


async def test_a_source_that_fails_means_that_nothing_is_pushed(stage):
    async with project(stage) as up:
        stage.upstream.fail_with(500)
        await up.engine.obey(up.task(1, 1))
        failed = await up.says(Failed)
        assert failed.task_ids == (TaskId(1),)
        assert up.shelves.calls == []


async def test_what_a_guard_holds_back_is_not_pushed_until_a_person_accepts_it(stage):
    async with project(stage) as up:
        await up.ask(1, 1)
        for ref in up.repo.public_refs():
            up.repo.git("update-ref", "-d", ref)
        await up.engine.obey(up.task(2, 1))
        failed = await up.says(Failed)
        assert (failed.task_ids, failed.failure.kind) == ((TaskId(2),), FailureKind.CONFLICT)
        assert len(up.shelves.calls) == 1
        synced = await up.ask(3, 1, accept=True)
        assert synced.refs_count == 0
        assert up.shelves.calls[1:] == [(1, True, False, False)]


# While it runs


async def test_the_mirror_counts_before_the_push_ends(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        tip = up.repo.commit()
        before = up.engine.held()[0]
        await up.engine.obey(up.task(1, 1))
        (held,) = (await up.says(Kept)).items
        assert held.digest != before.digest
        assert held.verified_at > before.verified_at
        assert read_refs(stage.mirror(up.key("team/x")))["refs/heads/main"] == tip
        (memory,) = [m for m in await up.engine._shelf._local.load() if m.key == up.key("team/x")]
        assert memory.digest == held.digest, "a crash now must not forget it"
        assert up.port.take(Synced) == []
        gate.set()
        assert (await up.says(Synced)).digest == held.digest


async def test_a_look_that_saw_no_change_counts_before_the_push_ends(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        verified = await up.says(Verified, lambda r: up.shelves.running != set())
        assert verified.items[0][0] == up.key("team/x")
        gate.set()
        assert (await up.says(Synced)).verified_at == verified.items[0][1]


@pytest.mark.parametrize("moved", [True, False])
async def test_a_push_keeps_its_slot_and_leaves_the_sources_connections_to_others(stage, moved):
    stage.upstream.create("team/y")
    one = {"schedule": {"min_gap": "0s", "max_gap": "10m", "slots": 1}}
    async with project(stage, sections=one) as up:
        await up.cloned("team/y", pulled=True)
        gate = up.shelves.hold(1)
        if moved:
            up.repo.commit()
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        scheduler = up.engine._scheduler
        (host,) = scheduler.hosts(0.0)
        assert (scheduler.syncs_running, host.transfers, host.polls) == (1, 0, 0)
        await up.engine.obey(up.task(2, 2, name="team/y"))
        await up.says(Started, lambda r: r.task_ids == (2,))
        await asyncio.sleep(0.2)
        assert up.shelves.running == {1}, "there is one git slot"
        gate.set()
        assert {(await up.says(Synced)).task_ids for _ in range(2)} == {(1,), (2,)}
        assert (scheduler.syncs_running, scheduler.hosts(0.0)[0].transfers) == (0, 0)


async def test_people_see_where_it_is_pushed_to_and_how_far_it_is(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        progress = await up.says(Progress)
        assert (progress.phase, progress.percent) == ("pushing to target1.example", 40.0)
        assert progress.task_ids == (TaskId(1),)
        (running_now,) = up.engine.status().running
        assert running_now.phase == "pushing to target1.example"
        gate.set()
        await up.says(Synced)
        assert up.engine.status().running == ()


async def test_a_repo_that_is_taken_away_ends_its_push(stage):
    async with project(stage) as up:
        up.shelves.hold(1)
        up.repo.commit()
        await up.engine.obey(up.task(1, 1))
        while up.shelves.running != {1}:
            await asyncio.sleep(0.01)
        await up.engine.obey(ReleaseRepos((up.key("team/x"),)))
        assert up.shelves.cancelled == [1]
        assert (await up.says(Refused)).task_ids == (TaskId(1),)
        (held,) = up.engine.held()
        assert held.digest is not None
        scheduler = up.engine._scheduler
        assert (scheduler.syncs_running, len(scheduler), up.engine._rounds.open) == (0, 0, {})
        await up.assign("team/x", pulled=True)
        up.shelves.gates.clear()
        assert (await up.ask(2, 1)).pushes[0].changed, "and another may do it, this one too"


async def test_a_worker_that_stops_ends_its_pushes_and_tells_nothing_of_them(stage, monkeypatch):
    monkeypatch.setattr(worker, "STOP_GRACE_S", 0.1)
    async with project(stage) as up:
        up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
    assert up.shelves.cancelled == [1]
    assert up.port.take(Synced)[1:] == []
    assert not [r for r in up.port.said if isinstance(r, Failed | Refused)], "it is given again"


async def test_a_push_that_ends_within_the_moment_of_a_stop_is_told(stage):
    async with project(stage) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(0.3, gate.set)
    assert [r.pushes[0].changed for r in up.port.take(Synced) if r.task_ids] == [True]


# Out of contact


class Line:
    def __init__(self) -> None:
        self.now = 0.0
        self.contact = Contact(lambda: self.now)
        self.contact.welcomed(600.0, 5.0)


async def test_out_of_contact_for_longer_than_grace_nothing_is_pushed(stage):
    line = Line()
    async with project(stage, contact=line.contact) as up:
        gate = up.shelves.hold(1)
        up.repo.commit()
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        line.now += 601.0
        gate.set()
        synced = await up.says(Synced, lambda r: bool(r.task_ids))
        assert synced.changes_total == 1, "the mirror goes on without its coordinator"
        assert synced.pushes[0].failure == out_of_contact()
        assert up.shelves.has == {}


async def test_within_grace_it_goes_on(stage):
    line = Line()
    async with project(stage, contact=line.contact) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        line.now += 599.0
        gate.set()
        assert (await up.says(Synced, lambda r: bool(r.task_ids))).pushes[0].failure is None


@pytest.mark.parametrize("told_again", [False, True])
async def test_back_after_grace_it_pushes_only_what_it_is_told_again(stage, told_again):
    """Somebody else may have been told to meanwhile."""
    line = Line()
    async with project(stage, contact=line.contact) as up:
        gate = up.shelves.hold(1)
        await up.engine.obey(up.task(1, 1))
        while not up.shelves.running:
            await asyncio.sleep(0.01)
        line.now += 3600.0
        line.contact.welcomed(600.0, 5.0)
        if told_again:
            await up.engine.obey(up.task(1, 1))
        gate.set()
        synced = await up.says(Synced, lambda r: bool(r.task_ids))
        assert (synced.pushes[0].failure is None) == told_again


async def test_what_was_ordered_before_contact_was_lost_is_not_pushed_when_its_turn_comes(stage):
    line = Line()
    async with project(stage, contact=line.contact) as up:
        ordered_in = line.contact.term
        line.now += 3600.0
        line.contact.welcomed(600.0, 5.0)
        line.contact.obeys(ordered_in)
        assert (await up.ask(1, 1)).pushes[0].failure == out_of_contact()
        line.contact.obeys(line.contact.term)
        assert (await up.ask(2, 1)).pushes[0].failure is None


async def test_callers_that_were_answered_are_forgotten(stage):
    async with project(stage) as up:
        for number in range(1, 6):
            await up.ask(number, 1)
        desk = up.engine._rounds.desk
        assert (desk.keys, desk._pushing._terms) == (set(), {})
