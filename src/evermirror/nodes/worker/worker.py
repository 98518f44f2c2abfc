"""The worker: polls what it is assigned, syncs what moved, and reports. It stands on its own.

    commands ──▶ _obey ──▶ Scheduler ◀──take── _dispatch ──begin──▶ Rounds ──▶ reports
                             ▲                                        │
                             └────────── polled, synced, failed ──────┘

It goes on while nobody listens: reports wait in the port. Its memory is a small local file; the mirrors on
disk are the truth, so a lost file costs polls, never a clone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.local import LocalState
from evermirror.errors import NotFound
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import (
    ApplySettings,
    AssignRepos,
    Command,
    HeldRepo,
    Kept,
    LookAt,
    ReleaseRepos,
    RestoreTip,
    SyncNow,
    WorkerStatus,
)
from evermirror.model.plan import PollPlan, StepCode
from evermirror.model.push import Standings
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.nodes.running import in_time
from evermirror.nodes.service import Upkeep
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.worker.bulletins import Bulletins
from evermirror.nodes.worker.caretaker import CareSettings, Caretaker
from evermirror.nodes.worker.contact import Contact
from evermirror.nodes.worker.leaving import Leaving
from evermirror.nodes.worker.limits import Limits
from evermirror.nodes.worker.ports import NoSeeds, NoTargets, Seeds, Targets, WorkerPort
from evermirror.nodes.worker.pushing import Pushing
from evermirror.nodes.worker.room import Room
from evermirror.nodes.worker.rounds import Rounds
from evermirror.nodes.worker.shelf import Shelf
from evermirror.nodes.worker.tally import Tally
from evermirror.nodes.worker.waking import Waking

log = structlog.get_logger(__name__)

SAVE_S = 2.0  # a crash forgets at most this much of what polls taught
TIDY_S = 3600.0
TRY_DISK_S = 10.0  # between two small writes that show whether the disk takes any
STOP_GRACE_S = 5.0  # running syncs are given this long to end when the worker stops
LAST_WORDS_S = 10.0  # at a stop, for what is still to be told to a coordinator that may not listen


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker is made of; everything that reaches outside is passed in."""

    port: WorkerPort
    scheduler: Scheduler
    prober: Prober
    mirrors: Mirrors
    maintenance: Maintenance
    local: LocalState
    disk: DiskGuard
    clock: Callable[[], float]
    chance: random.Random
    care: CareSettings
    hands_back: bool = False  # in a fleet: clones that there is no room for are left to others
    nearby: Seeds = field(default_factory=NoSeeds)
    targets: Targets = field(default_factory=NoTargets)
    contact: Contact = field(default_factory=Contact)  # with the coordinator
    about: Mapping[str, str] = field(default_factory=dict)  # versions, told with each failure
    remembers: bool = False  # its coordinator may be away at the start: it goes on with what it had
    supervisor: Supervisor = field(default_factory=Supervisor)
    warnings: Callable[[], tuple[str, ...]] = tuple  # told with its status; none


class Worker:
    """``run`` until cancelled; it then gives running syncs a moment and leaves nothing half-written."""

    def __init__(self, parts: WorkerParts, settings: ScheduleSettings) -> None:
        self._port, self._scheduler = parts.port, parts.scheduler
        self._mirrors = parts.mirrors
        self._nearby = parts.nearby
        self._targets = parts.targets
        self._clock = parts.clock
        self._limits = Limits(settings, parts.scheduler, parts.local, parts.clock, remembers=parts.remembers)
        self._remembers = parts.remembers
        self._supervisor = parts.supervisor
        self._obeying = asyncio.Lock()  # one command at a time, and nothing else that takes repos away
        self._unconfirmed: set[RepoKey] = set()  # assigned before the coordinator began anew
        self._waking = Waking()
        self._arriving: list[Entry] = []  # assigned in chunks of which the last is not here yet
        tally = Tally()
        self._shelf = Shelf(parts.mirrors, parts.local, self._memory)
        self._room = Room(parts.disk, parts.mirrors, self._shelf, parts.scheduler, opened=self._waking.poke)
        self._care = Caretaker(
            parts.care,
            port=parts.port,
            scheduler=parts.scheduler,
            mirrors=parts.mirrors,
            maintenance=parts.maintenance,
            shelf=self._shelf,
            clock=parts.clock,
            damaged=lambda key: self._rounds.replace_damaged(key),
        )
        self._rounds = Rounds(
            port=parts.port,
            scheduler=parts.scheduler,
            prober=parts.prober,
            mirrors=parts.mirrors,
            nearby=parts.nearby,
            shelf=self._shelf,
            tally=tally,
            room=self._room,
            clock=parts.clock,
            chance=parts.chance,
            ended=self._go_on,
            make_way=self._care.make_way,
            pushing=Pushing(parts.targets, parts.contact, parts.clock),
            about=parts.about,
            synced=lambda report: self._care.synced(report.key, moved=report.changes_total > 0),
            handed_back=self._hand_back if parts.hands_back else None,
        )
        self._bulletins = Bulletins(
            port=parts.port,
            scheduler=parts.scheduler,
            prober=parts.prober,
            rounds=self._rounds,
            shelf=self._shelf,
            tally=tally,
            room=self._room,
            clock=parts.clock,
            warnings=parts.warnings,
        )
        self._hands_back = parts.hands_back
        self._leaving = Leaving(
            port=parts.port,
            scheduler=parts.scheduler,
            shelf=self._shelf,
            rounds=self._rounds,
            care=self._care,
            clock=parts.clock,
            take_up=self._assign,
        )

    # Life

    async def run(self) -> None:
        """Works until cancelled. Each loop is restarted alone, and syncs under way go on meanwhile: what they
        share is changed between awaits. A command that raises is skipped; the next comparison with the
        coordinator finds what it would have changed."""
        with collector_paused():
            await self._shelf.recall()
            if self._remembers:
                self._assign(await self._shelf.assigned_before())
        try:
            await self._supervisor.run_all(
                {
                    "worker: commands": self._obey,
                    "worker: dispatch": self._dispatch,
                    "worker: memory": self._keep_saving,
                    "worker: tidying": self._keep_tidy,
                    "worker: reports": self._bulletins.run,
                    "worker: upkeep": self._care.run,
                }
            )
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._waking.stop()
        await self._rounds.stop(STOP_GRACE_S)
        await self._care.stop(STOP_GRACE_S)
        if not await in_time(self._bulletins.tell_verified(), LAST_WORDS_S):
            log.warning("nobody took the last reports")  # the next start tells what is held, and when seen
        await self._save()

    # Commands

    async def _obey(self) -> None:
        while True:
            await self.obey(await self._port.next_command())

    async def obey(self, command: Command) -> None:
        """Carries out one command."""
        async with self._obeying:
            await self._carry_out(command)
        self._waking.poke()

    async def _carry_out(self, command: Command) -> None:
        match command:
            case AssignRepos():
                await self._take_on(command)
            case ReleaseRepos():
                await self._leaving.release(command)
            case SyncNow():
                await self._sync_now(command)
            case LookAt():
                self._nearby.note(command.sources)
                await self._look_at(command.keys)
            case RestoreTip():
                await self._care.restore(command)
            case ApplySettings():
                self.limit(command)

    @property
    def limits(self) -> ApplySettings | None:
        """Those that the coordinator told last."""
        return self._limits.told

    def limit(self, limits: ApplySettings) -> None:
        self._limits.tell(limits)
        self._waking.poke()

    async def keep_limits(self) -> None:
        """They are on the disk, if it takes them."""
        await self._limits.save()

    def configure(self, settings: ScheduleSettings) -> None:
        """New settings hold from now on."""
        self._limits.configure(settings)
        self._waking.poke()

    def _assign(self, command: AssignRepos) -> None:
        self._rounds.assigned(spec.key for spec in command.repos)
        entries, reached_anew = self._shelf.put(command)
        self._arriving += entries
        if not command.more:
            entries, self._arriving = self._arriving, []
            ours = [entry for entry in entries if entry.spec.key in self._shelf.repos]
            self._scheduler.add(ours, self._clock())
        for key in reached_anew:  # how it failed before says nothing about the new way
            self._scheduler.forgive(key, self._clock())

    async def _take_on(self, command: AssignRepos) -> None:
        keys = [spec.key for spec in command.repos]
        self._nearby.note(command.sources)
        brought_back = await self._shelf.bring_back(keys)
        self._assign(command)
        for key in brought_back:
            await self._shelf.measure(key)
        self._unconfirmed.difference_update(keys)
        if self._remembers:
            await self._shelf.note_assigned(keys)
        here = tuple(self._shelf.held_one(key) for key in keys if key in self._shelf.here)
        if here:  # brought back from the trash, or there all the time: no clone will tell
            await self._port.report(Kept(here))
        await self._look_at(brought_back)  # what they have counts once upstream was asked
        await self._rounds.tell_deferred()

    async def _sync_now(self, command: SyncNow) -> None:
        repo = self._shelf.repos.get(command.key)
        if repo is None:
            failure = Failure(FailureKind.NOT_FOUND, "this worker does not mirror the repo")
        elif repo.paused:
            failure = Failure(FailureKind.CONFLICT, "the repo is disabled", hint="Enable it first")
        else:
            await self._rounds.ask(command)
            return
        await self._rounds.desk.refuse(command.key, (command.task_id,), failure)

    async def _look_at(self, keys: Iterable[RepoKey]) -> None:
        for key in keys:
            repo = self._shelf.repos.get(key)
            if repo is not None and not repo.paused:
                self._rounds.look(key)
            elif key in self._shelf.here:
                self._rounds.looked.add(key)

    async def _hand_back(self, keys: list[RepoKey], reason: str) -> None:
        self._unconfirmed.difference_update(keys)
        await self._leaving.hand_back(keys, reason)

    def suspect(self, key: RepoKey, evidence: Failure) -> None:
        """A client could not be served, as if the mirror were damaged: it is checked soon, and mended."""
        self._care.checks.suspect(key, evidence)

    # What the line to the coordinator tells

    def held(self) -> list[HeldRepo]:
        """What is complete on disk now."""
        return self._shelf.held()

    def began_anew(self) -> None:
        """The coordinator tells all that it assigns once more; what it leaves out is no longer ours."""
        self._unconfirmed = set(self._shelf.repos)

    async def drop_unconfirmed(self) -> None:
        """The time for that is over."""
        async with self._obeying:
            keys = [key for key in self._unconfirmed if key in self._shelf.repos]
            self._unconfirmed = set()
            if keys:
                await self._leaving.unconfirmed(keys)
                self._waking.poke()

    # What runs

    async def _dispatch(self) -> None:
        while True:
            self._waking.clear()
            now = self._clock()
            self._begin_polls(now)
            if self._scheduler.syncs_waiting:
                self._room.look(now)
                if not self._room.accepting:
                    await self._turn_away()
                while (key := self._scheduler.take_sync(now)) is not None:
                    self._rounds.go_on(key)
            until = self._scheduler.next_wake(now)
            await self._waking.sleep(until - self._clock() if until is not None else None)

    def _begin_polls(self, now: float) -> None:
        while (key := self._scheduler.take(now)) is not None:
            self._rounds.begin(key)

    def _go_on(self) -> None:
        """There may be something to do: polls begin at once, all else wakes the dispatcher."""
        if not self._waking.asleep or self._scheduler.syncs_waiting:
            self._waking.poke()
            return
        now = self._clock()
        try:
            self._begin_polls(now)
            until = self._scheduler.next_wake(now)
        except Exception:
            self._waking.poke()  # the dispatcher meets it too, and its supervisor tells of it
            raise
        if until is None:
            return
        if until > now:
            self._waking.wake_in(until - now)
        else:
            self._waking.poke()

    async def _turn_away(self) -> None:
        """There is no room for clones: who waits for one is told, and in a fleet others may have it."""
        if self._rounds.desk.keys:
            await self._rounds.refuse_clones()
        if self._hands_back and (keys := self._rounds.without_room()):
            await self._hand_back(keys, f"no room for a new clone: {self._room.why_not}")

    # What is kept

    async def _keep_saving(self) -> None:
        tried_at = self._clock()
        while True:
            await asyncio.sleep(SAVE_S)
            await self._save()
            if (now := self._clock()) >= tried_at + TRY_DISK_S:
                tried_at = now
                await self._shelf.try_disk(now)
                await self._mend_folder()

    async def _mend_folder(self) -> None:
        """Somebody may have removed the folder of all mirrors: what was in it is cloned again."""
        try:
            if not await self._mirrors.mend_root():
                return
        except FailureError as error:
            log.error("the folder of mirrors is gone, and cannot be made", reason=error.failure.message)
            return
        gone = await self._shelf.lose()
        log.error("the folder of mirrors was removed: they are cloned again", mirrors=len(gone))
        for key in gone:
            self._rounds.replace_damaged(key)

    async def _save(self) -> None:
        await self._shelf.save()
        await self.keep_limits()

    def _memory(self, key: RepoKey) -> RepoMemory:
        return self._scheduler.memory(key) if key in self._scheduler else RepoMemory(key)

    async def _keep_tidy(self) -> None:
        while True:
            try:
                await self._mirrors.tidy()
            except FailureError as error:
                log.warning("not tidied", reason=error.failure.message)
            await asyncio.sleep(TIDY_S)

    # Small reads

    def status(self) -> WorkerStatus:
        """How the worker is doing now."""
        return self._bulletins.status()

    def plan(self, key: RepoKey) -> PollPlan:
        """When the repo is looked at next, and why then."""
        if key not in self._scheduler:
            return PollPlan.without_time(StepCode.NOT_PLACED, "not assigned to a worker")
        repo = self._shelf.repos.get(key)
        if repo is not None and repo.paused:
            return PollPlan.without_time(StepCode.DISABLED, "disabled", repo.verified_at or None)
        source_url = repo.source_url if repo is not None else None
        return self._scheduler.explain(key, self._clock()).plan(source_url)

    def mirror_path(self, key: RepoKey) -> Path | None:
        """Where the mirror is, if there is one."""
        return self._mirrors.path(key) if key in self._shelf.here else None

    def is_public(self, key: RepoKey) -> bool:
        """Whether workers that are not trusted may read the mirror. Of one that is not assigned (any more) it
        is not known: it may have become private since."""
        repo = self._shelf.repos.get(key)
        return repo is not None and not repo.spec.private and repo.spec.credential is None

    async def trashed_path(self, key: RepoKey) -> Path | None:
        """Where the mirror is that was thrown away last, if it still is."""
        items = await self._mirrors.trashed()
        return next((item.path for item in items if item.key == key and not item.damaged), None)

    async def refs(self, key: RepoKey) -> RefSnapshot:
        """The public refs of the mirror here."""
        return await self._mirrors.read_refs(self._here(key))

    def guard(self, key: RepoKey) -> GuardMemory | None:
        """What of upstream is held back, if anything is."""
        repo = self._shelf.repos.get(key)
        return repo.guard if repo is not None else None

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]:
        """Old tips that upstream threw away, newest first."""
        return await self._mirrors.history(key) if key in self._shelf.here else ()

    async def upkeep(self, key: RepoKey) -> Upkeep | None:
        """How the mirror lies on the disk; None where there is none."""
        return await self._care.upkeep(key)

    async def standings(self, key: RepoKey) -> Standings:
        """How the targets are that the mirror here is pushed on to."""
        return await self._targets.standings(self._here(key))

    def _here(self, key: RepoKey) -> RepoKey:
        if key not in self._shelf.here:
            raise NotFound(f"there is no mirror of {key} yet", hint="Wait for its first sync")
        return key
