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
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.edge.git.folder import DiskUsage
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober
from evermirror.edge.store.local import LocalState
from evermirror.errors import NotFound
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import (
    ApplySettings,
    AssignRepos,
    Command,
    Held,
    Released,
    ReleaseRepos,
    RestoreTip,
    SyncNow,
    Verified,
    WorkerStatus,
)
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.nodes.caretaker import CareSettings, Caretaker
from evermirror.nodes.link import WorkerPort
from evermirror.nodes.rounds import Rounds
from evermirror.nodes.service import PollPlan, Upkeep
from evermirror.nodes.shelf import Shelf
from evermirror.nodes.tally import Tally, status_of

log = structlog.get_logger(__name__)

SLEEP_MAX_S = 60.0  # a clock that was set back must not keep the dispatcher asleep for long
TELL_S = 0.5  # progress of running syncs
STATUS_S = 2.0
SAVE_S = 2.0  # a crash forgets at most this much of what polls taught
TIDY_S = 3600.0
HELD_CHUNK = 1000
VERIFIED_CHUNK = 2000
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


class Worker:
    """``run`` until cancelled; it then gives running syncs a moment and leaves nothing half-written."""

    def __init__(self, parts: WorkerParts, settings: ScheduleSettings) -> None:
        self._port = parts.port
        self._scheduler = parts.scheduler
        self._prober = parts.prober
        self._mirrors = parts.mirrors
        self._disk = parts.disk
        self._clock = parts.clock
        self._settings = settings
        self._poke = asyncio.Event()
        self._arriving: list[Entry] = []  # assigned in chunks of which the last is not here yet
        self._tally = Tally()
        self._shelf = Shelf(parts.mirrors, parts.local, parts.scheduler.memory)
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
            shelf=self._shelf,
            tally=self._tally,
            disk=parts.disk,
            clock=parts.clock,
            chance=parts.chance,
            ended=self._poke.set,
            make_way=self._care.make_way,
            synced=lambda report: self._care.synced(report.key, moved=report.changes_total > 0),
        )

    # Life

    async def run(self) -> None:
        """Works until cancelled."""
        await self._tell_held()
        try:
            async with asyncio.TaskGroup() as group:
                loops = (self._obey, self._dispatch, self._tell, self._keep_saving, self._keep_tidy)
                for loop in (*loops, self._care.run):
                    group.create_task(loop(), name=loop.__name__)
        finally:
            await self._stop()

    async def _tell_held(self) -> None:
        items = await self._shelf.recall()
        for start in range(0, max(len(items), 1), HELD_CHUNK):
            chunk = tuple(items[start : start + HELD_CHUNK])
            await self._port.report(Held(chunk, last=start + HELD_CHUNK >= len(items)))

    async def _stop(self) -> None:
        await self._rounds.stop(STOP_GRACE_S)
        await self._care.stop(STOP_GRACE_S)
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._tell_verified()
        except TimeoutError:
            log.warning("nobody took the last reports")  # the next start tells what is held, and when seen
        await self._shelf.save()

    # Commands

    async def _obey(self) -> None:
        while True:
            await self.obey(await self._port.next_command())

    async def obey(self, command: Command) -> None:
        """Carries out one command."""
        match command:
            case AssignRepos():
                await self._shelf.bring_back(spec.key for spec in command.repos)
                self._assign(command)
            case ReleaseRepos():
                await self._release(command)
            case SyncNow():
                await self._sync_now(command)
            case RestoreTip():
                await self._care.restore(command)
            case ApplySettings():
                given = {
                    f: v
                    for f in ("polls_per_second", "host_rate", "slots")
                    if (v := getattr(command, f)) is not None
                }
                self.configure(replace(self._settings, **given))
        self._poke.set()

    def configure(self, settings: ScheduleSettings) -> None:
        """New limits hold from now on."""
        self._settings = settings
        self._scheduler.reconfigure(settings, self._clock())
        self._poke.set()

    def _assign(self, command: AssignRepos) -> None:
        entries, reached_anew = self._shelf.put(command)
        self._arriving += entries
        if not command.more:
            entries, self._arriving = self._arriving, []
            self._scheduler.add(entries, self._clock())
        for key in reached_anew:  # how it failed before says nothing about the new way
            self._scheduler.forgive(key, self._clock())

    async def _release(self, command: ReleaseRepos) -> None:
        # All of them leave in one step without await: nobody meets a repo that is only half gone.
        self._shelf.drop(command.keys)
        self._scheduler.remove(command.keys, self._clock())
        for key in command.keys:
            self._care.released(key)
        ran = await self._rounds.break_off(command.keys)
        if command.delete:
            for key in command.keys:
                if key in self._shelf.here or key in ran:  # a clone may have just become visible
                    await self._shelf.discard(key)
        await self._shelf.forget(command.keys)
        await self._port.report(Released(command.keys))

    async def _sync_now(self, command: SyncNow) -> None:
        if command.key in self._shelf.repos:
            await self._rounds.ask(command)
        else:
            failure = Failure(FailureKind.NOT_FOUND, "this worker does not mirror the repo")
            await self._rounds.refuse(command.key, (command.task_id,), failure)

    # What runs

    async def _dispatch(self) -> None:
        while True:
            self._poke.clear()
            now = self._clock()
            while (key := self._scheduler.take(now)) is not None:
                self._rounds.begin(key)
            if self._scheduler.syncs_waiting:
                self._look_at_disk(now)
                if self._rounds.awaited and not self._disk.accepting:
                    await self._rounds.refuse_clones()
                while (key := self._scheduler.take_sync(now)) is not None:
                    self._rounds.go_on(key)
            await self._sleep(self._scheduler.next_wake(now))

    async def _sleep(self, until: float | None) -> None:
        """Until there may be something to do: at that time, or when something happens."""
        pause = SLEEP_MAX_S if until is None else min(max(until - self._clock(), 0.0), SLEEP_MAX_S)
        if not pause:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(pause):
                await self._poke.wait()
        except TimeoutError:
            return

    # What is told and kept

    async def _tell(self) -> None:
        next_status = 0.0
        while True:
            await self._rounds.tell_progress()
            if (now := self._clock()) >= next_status:
                next_status = now + STATUS_S
                await self._port.report(self.status())
                await self._tell_verified()
            await asyncio.sleep(TELL_S)

    async def _tell_verified(self) -> None:
        items = list(self._rounds.verified.items())
        self._rounds.verified.clear()
        for start in range(0, len(items), VERIFIED_CHUNK):
            await self._port.report(Verified(tuple(items[start : start + VERIFIED_CHUNK])))

    def status(self) -> WorkerStatus:
        """How the worker is doing now."""
        now = self._clock()
        disk = self._look_at_disk(now)
        return status_of(
            self._tally,
            self._scheduler,
            self._rounds.open.values(),
            repos=len(self._shelf.repos),
            polled_bytes=self._prober.stats.received_bytes,
            disk=disk,
            accepting_clones=self._disk.accepting,
            now=now,
        )

    def _look_at_disk(self, now: float) -> DiskUsage:
        usage = self._mirrors.disk_usage()
        before = self._disk.accepting
        accepting = self._disk.observe(usage.used_share, now)
        self._scheduler.allow_clones(accepting)
        if accepting and not before:
            self._poke.set()  # clones have waited for this
        return usage

    async def _keep_saving(self) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await self._shelf.save()

    async def _keep_tidy(self) -> None:
        while True:
            try:
                await self._mirrors.tidy()
            except FailureError as error:
                log.warning("not tidied", reason=error.failure.message)
            await asyncio.sleep(TIDY_S)

    # Small reads

    def plan(self, key: RepoKey) -> PollPlan:
        """When the repo is looked at next, and why then."""
        if key not in self._scheduler:
            return PollPlan(None, "not assigned to a worker", None, None)
        told = self._scheduler.explain(key, self._clock())
        return PollPlan(told.next_poll_at, told.reason, told.aimed_gap_s, told.last_poll_at or None)

    def mirror_path(self, key: RepoKey) -> Path | None:
        """Where the mirror is, if there is one."""
        return self._mirrors.path(key) if key in self._shelf.here else None

    async def trashed_path(self, key: RepoKey) -> Path | None:
        """Where the mirror is that was thrown away last, if it still is."""
        items = await self._mirrors.trashed()
        return next((item.path for item in items if item.key == key and not item.damaged), None)

    async def refs(self, key: RepoKey) -> RefSnapshot:
        """The public refs of the mirror here."""
        if key not in self._shelf.here:
            raise NotFound(f"there is no mirror of {key} yet", hint="Wait for its first sync")
        return await self._mirrors.read_refs(key)

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
