"""What the committed writes say, kept apart from the machine: the memory of the checkers.

Every decision becomes a ``Change``: each copy and each worker before and after. Checkers look at changes, so
that their cost follows what happens and not the size of the fleet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import (
    CopyRow,
    Decision,
    DropCopies,
    PutCopies,
    PutSalt,
    PutWorker,
    ReportTaken,
)
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerId, WorkerRecord

if TYPE_CHECKING:
    from evermirror.core.fleet.machine import FleetMachine
    from tests.support.sim.fleet.world import World


class CopyStep(NamedTuple):
    """One copy, before and after; None: no such copy."""

    key: RepoKey
    worker: WorkerId
    before: CopyRow | None
    after: CopyRow | None

    @property
    def gained(self) -> bool:
        """Wanted there now, and was not before."""
        return _wanted(self.after) and not _wanted(self.before)

    @property
    def lost(self) -> bool:
        """No longer wanted there."""
        return _wanted(self.before) and not _wanted(self.after)

    @property
    def told_held(self) -> bool:
        """Complete there now, and was not before."""
        return _is(self.after, CopyState.HELD) and not _is(self.before, CopyState.HELD)


class WorkerStep(NamedTuple):
    before: WorkerRecord | None
    after: WorkerRecord


@dataclass(slots=True)
class Change:
    """What one decision did; ``decision`` for its actions."""

    decision: Decision
    copies: list[CopyStep] = field(default_factory=list)
    workers: list[WorkerStep] = field(default_factory=list)
    reports: list[ReportTaken] = field(default_factory=list)
    salts: dict[RepoKey, tuple[int, int]] = field(default_factory=dict)  # before, after


class Shadow:
    """All writes of all decisions so far."""

    def __init__(self) -> None:
        self.copies: dict[RepoKey, dict[WorkerId, CopyRow]] = {}
        self.wanted: defaultdict[WorkerId, set[RepoKey]] = defaultdict(set)
        self.wanted_copies: dict[RepoKey, int] = {}  # how many are wanted of each; no key where none is
        self.asked: defaultdict[WorkerId, int] = defaultdict(int)
        self.total_wanted = 0
        self.total_asked = 0
        self.records: dict[WorkerId, WorkerRecord] = {}
        self.reports: dict[tuple[WorkerId, int], int] = {}
        self.salts: dict[RepoKey, int] = {}
        self._added_up: dict[bool, float] = {}

    def apply(self, decision: Decision) -> Change:
        change = Change(decision)
        for write in decision.writes:
            match write:
                case PutCopies(rows):
                    for row in rows:
                        self._copy(row.key, row.worker, row, change)
                case DropCopies(copies):
                    for key, worker in copies:
                        self._copy(key, worker, None, change)
                case PutWorker(record):
                    change.workers.append(WorkerStep(self.records.get(record.id), record))
                    self.records[record.id] = record
                    self._added_up.clear()
                case ReportTaken():
                    change.reports.append(write)
                case PutSalt(key, salt):
                    change.salts[key] = (self.salts.get(key, 0), salt)
                    self.salts[key] = salt
        return change

    def keeps(self, worker: WorkerId) -> bool:
        """What is placed on it stays there."""
        record = self.records.get(worker)
        return record is not None and record.duty is Duty.ACTIVE and record.liveness is not Liveness.DOWN

    def fair_share(self, worker: WorkerId, *, of_the_living: bool = False) -> float:
        """Of all wanted copies, by weight among those that keep what they have, or only those alive."""
        weights = self._weights(of_the_living)
        own = self.records[worker].facts.weight
        return self.total_wanted * own / weights if weights else 0.0

    def _weights(self, of_the_living: bool) -> float:
        """Added up again only when a worker changed."""
        if of_the_living not in self._added_up:
            self._added_up[of_the_living] = sum(
                record.facts.weight
                for record in self.records.values()
                if self.keeps(record.id) and not (of_the_living and record.liveness is not Liveness.ALIVE)
            )
        return self._added_up[of_the_living]

    def _copy(self, key: RepoKey, worker: WorkerId, after: CopyRow | None, change: Change) -> None:
        known = self.copies.get(key)
        before = known.get(worker) if known is not None else None
        if after is not None:
            self.copies.setdefault(key, {})[worker] = after
        elif known is not None and before is not None:
            del known[worker]
            if not known:
                del self.copies[key]
        self._count(key, worker, _wanted(before), _wanted(after))
        asked = _is(after, CopyState.ASKED) - _is(before, CopyState.ASKED)
        self.asked[worker] += asked
        self.total_asked += asked
        change.copies.append(CopyStep(key, worker, before, after))

    def _count(self, key: RepoKey, worker: WorkerId, was: bool, now: bool) -> None:
        if was == now:
            return
        step = 1 if now else -1
        (self.wanted[worker].add if now else self.wanted[worker].discard)(key)
        self.total_wanted += step
        left = self.wanted_copies.get(key, 0) + step
        if left:
            self.wanted_copies[key] = left
        else:
            del self.wanted_copies[key]


def _wanted(row: CopyRow | None) -> bool:
    return row is not None and row.rank is not None


def _is(row: CopyRow | None, state: CopyState) -> bool:
    return row is not None and row.state is state


@dataclass(slots=True)
class Scene:
    """What every checker looks at. Lived time is that of running coordinators; a pause counts for nothing in
    ``lived_s`` and for as much as it could at most in ``lived_most_s``: each bound takes the milder one."""

    world: World
    shadow: Shadow
    broken: Callable[[str, str], None]  # promise, detail: raises
    lived_s: float = 0.0
    lived_most_s: float = 0.0

    @property
    def machine(self) -> FleetMachine | None:
        """None: there is nobody to ask now."""
        coordinator = self.world.coordinator
        return None if coordinator.stalled else coordinator.machine

    def name(self, worker: WorkerId) -> str:
        record = self.shadow.records.get(worker)
        return f"worker {worker}" if record is None else f"worker {worker} ({record.facts.name})"
