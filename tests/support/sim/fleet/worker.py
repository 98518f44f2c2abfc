"""A worker in rough weather: it may lie, be slow, lose its files, run out of disk; and upstreams move.

Rules
- A clone takes time by size; from ``source`` through the relay where that one is up and has it, else from
  upstream. Clones of dead upstreams fail, are told as deferred, and are tried again later, for ever.
- Where the disk is full, what waits is handed back, and ``accepting`` is False until there is room.
- A deletion is declined where other refs are there than those that are safe elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING

from evermirror.core.fleet.decisions import Assignment
from evermirror.core.fleet.events import (
    ClonesDeferred,
    DeletionsDeclined,
    HeldCopy,
    ReposHandedBack,
)
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts
from evermirror.sim.fleet.clones import CLONE_MIN_S, Clones, Job, size_mb
from evermirror.sim.fleet.messages import ReportLog
from evermirror.sim.fleet.worker import SimWorker

if TYPE_CHECKING:
    from tests.support.sim.fleet.world import World

UPSTREAM_MB_S = 5.0
RELAY_MB_S = 10.0
FAIL_S = 10.0  # until a dead upstream is known to be, this time
RETRY_S = 300.0


class Lie(Enum):
    """What an untrusted worker may be up to."""

    CLAIMS = "claims"  # says at once that it has what it was asked for, and clones nothing
    IGNORES = "ignores"  # sends heartbeats, and does nothing of what it is asked for
    GARBLES = "garbles"  # has it, and reports another digest
    INVENTS = "invents"  # tells of copies it never had nor was asked for


class TimedClones(Clones):
    """Each takes as long as its size says, however many run."""

    def _next(self) -> Job | None:
        """On a full disk what waits is handed back."""
        if (self._urgent or self._later) and not self._worker.accepting:
            self._hand_back()
        return super()._next()

    def _begin(self, job: Job, relayed: bool) -> None:
        worker = self._worker
        if worker.world.catalog.is_dead(job.key):
            worker.world.time.after(FAIL_S, self._failed, job)
            return
        rate = RELAY_MB_S if relayed else UPSTREAM_MB_S
        seconds = (CLONE_MIN_S + size_mb(job.key) / rate) * worker.slowness
        worker.world.time.after(seconds, self._done, job, relayed)

    def _failed(self, job: Job) -> None:
        if self.jobs.get(job.key) is job:
            self.running -= 1
            job.running = False
            self._worker.deferred(job.key)
            self._worker.world.time.after(RETRY_S, self._again, job)
            self.fill_slots()

    def _again(self, job: Job) -> None:
        if self.jobs.get(job.key) is job:
            self._later.append(job)
            self.fill_slots()

    def _hand_back(self) -> None:
        for waiting in (self._urgent, self._later):
            for job in waiting:
                if self.jobs.get(job.key) is job:
                    del self.jobs[job.key]
                    self._worker.hand_back(job.key)
            waiting.clear()


class RoughWorker(SimWorker):
    """``room``: copies that its disk takes, which nobody knows."""

    world: World

    def __init__(self, world: World, index: int, facts: WorkerFacts, room: int | None) -> None:
        self.room = room
        # lasts
        self.claimed: dict[RepoKey, int] = {}  # what a liar says it has
        self.full = False
        self.lies: Lie | None = None
        self.slowness = 1.0
        # does not last
        self._stale: set[RepoKey] = set()  # upstream moved while it was down
        super().__init__(world, index, facts)

    @property
    def jobs(self) -> dict[RepoKey, Job]:
        """Clones asked for and not done."""
        return self.clones.jobs

    @property
    def connected(self) -> bool:
        """As it sees it."""
        return self.link is not None and self.welcomed

    @property
    def accepting(self) -> bool:
        return not self.full and (self.room is None or len(self.disk) + self.clones.running < self.room)

    # Up and down

    def start(self) -> None:
        if self.up or self.dead:
            return
        super().start()
        if self._stale:
            self.world.time.after(self.world.rng.uniform(5, 60), self._catch_up, self.boot)

    def lose_file(self) -> None:
        """The local file is gone (while down): other numbers, and it knows of no command."""
        self.log = ReportLog(self.world.number(), self._send_report)
        self.epoch = self.seen = 0
        self.limits = None
        self.primaries.clear()

    # What it says

    def _copy(self, key: RepoKey, version: int) -> HeldCopy:
        copy = super()._copy(key, version)
        if self.lies is Lie.GARBLES:
            return HeldCopy(key, copy.digest ^ 0xBAD, self.world.utc_s)
        return copy

    def _told(self) -> Iterable[HeldCopy]:
        yield from super()._told()
        yield from (self._copy(key, version) for key, version in self.claimed.items() if key not in self.disk)

    # Commands

    def _think_s(self) -> float:
        return super()._think_s() * self.slowness

    def _clone(self, item: Assignment) -> None:
        if self.lies is Lie.IGNORES:
            return
        if self.lies is Lie.CLAIMS:
            self.claimed[item.key] = self.world.version(item.key)
            self._verified(item.key, self.claimed[item.key])
        else:
            super()._clone(item)

    def _released(self, key: RepoKey, delete: bool, covered: int) -> None:
        version = self.disk.get(key)
        if version is not None and covered and self._copy(key, version).digest != covered:
            self._report(DeletionsDeclined, self._copy(key, version))
            return
        if version is None and not delete and key in self.claimed:
            self.primaries.discard(key)
            self.clones.stop(key)
            self._verified(key, self.claimed[key])
            return
        if version is None or delete:
            self.claimed.pop(key, None)
        super()._released(key, delete, covered)

    def _nudged(self, key: RepoKey) -> None:
        self.sync(key, nudged=True)

    # Clones and syncs

    def serves(self, key: RepoKey) -> bool:
        return super().serves(key) and self.world.network.reachable(self.index)

    def cloned(self, key: RepoKey, *, relayed: bool) -> None:
        if self.full:  # filled up by something else while it ran
            self.hand_back(key)
        else:
            super().cloned(key, relayed=relayed)

    def deferred(self, key: RepoKey) -> None:
        """A first clone failed; it is tried again by itself."""
        self._report(ClonesDeferred, key)

    def hand_back(self, key: RepoKey) -> None:
        self.primaries.discard(key)
        self._report(ReposHandedBack, key)

    def sync(self, key: RepoKey, *, nudged: bool = False) -> None:
        """It polls upstream: what moved is fetched and reported; a nudge is always answered."""
        version = self.disk.get(key)
        if version is None:
            return
        if not self.up:
            self._stale.add(key)
            return
        now = self.world.version(key)
        if now != version and self.full:
            self._stale.add(key)
        elif now != version:
            self.disk[key] = now
            self._verified(key, now)
        elif nudged:
            self._verified(key, version)

    def make_room(self) -> None:
        """The disk takes writes again."""
        self.full = False
        if self.up:
            self._catch_up(self.boot)

    def _catch_up(self, boot: int) -> None:
        if boot == self.boot and self.up:
            stale, self._stale = self._stale, set()
            for key in sorted(stale):
                self.sync(key)
