"""What others may see of the fleet's machine, and what it starts from: frozen values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from evermirror.core.fleet.decisions import CopyRow, ReportTaken
from evermirror.core.fleet.events import CatalogRepo
from evermirror.core.fleet.restoring import Tables
from evermirror.core.fleet.table import CopyState, Reason
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId, WorkerRecord


@dataclass(frozen=True, slots=True)
class Restored:
    """What the store remembers: the writes of every earlier decision, and the catalog.

    Repos and copies are told singly, or are in ``tables`` already; those are the machine's own afterwards."""

    workers: Iterable[WorkerRecord] = ()
    repos: Iterable[tuple[CatalogRepo, int]] = ()  # with the salt
    removed: Iterable[RepoKey] = ()  # left the catalog, not yet forgotten
    copies: Iterable[CopyRow] = ()
    reports: Iterable[ReportTaken] = ()
    tables: Tables | None = None


@dataclass(frozen=True, slots=True)
class CopyView:
    """A copy that should be or really is on a worker; ``rank`` None: not wanted there (any more)."""

    worker: WorkerId
    rank: int | None
    state: CopyState
    reason: Reason
    digest: int
    verified_s: float
    since_s: float
    primary: bool  # was told so


@dataclass(frozen=True, slots=True)
class RepoView:
    """Where a repo should be and where it is; ``primary`` is who polls it, None where nobody can."""

    key: RepoKey
    removed: bool
    no_room: bool
    replicas: int
    salt: int
    copies: tuple[CopyView, ...]  # wanted ones first, by rank
    primary: WorkerId | None
    verified: bool = True  # somebody else than untrusted workers says that it is held (proofs.py)


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker and its load, in copies."""

    record: WorkerRecord
    connected: bool
    reconciled: bool  # told all that it holds, in this session
    accepting: bool
    wanted: int
    held: int
    asked: int
    strays: int  # told by it, known to nobody
    unacked: int  # commands that it has not taken in yet
    heard_at: float  # UTC seconds, of its last sign of life
    stalled: bool = False  # it completed nothing of what it was asked for, and is asked for nothing now
    unreachable: bool = False  # no relay has had a line to it for long: nobody can read what it holds
    limits: ApplySettings | None = None  # its shares of the fleet's rates, as it was told last


@dataclass(frozen=True, slots=True)
class Totals:
    """The fleet in figures."""

    repos: int
    owned: int  # wanted on a worker that is alive
    held: int  # complete on a worker that is alive, and verified (proofs.py)
    unverified: int  # complete on a worker that is alive, as nobody but untrusted workers says
    unchecked: int  # of those, the ones that are so for longer than CHECK_S
    checkable: bool  # there is an aggregator, or a trusted worker with room, that can verify them
    no_room: int
    moving: int  # with a copy asked for, planned, stopping or leaving
    planned: int  # copies
    asked: int  # copies
    deferred: int  # copies whose first clone failed or must wait
    stopping: int  # copies
    leaving: int  # copies
    workers: int  # registered and not retired
    alive: int
    suspect: int
    braked: bool
    warming: bool


@dataclass(frozen=True, slots=True)
class Losing:
    """What losing a worker would mean, as things are now."""

    copies: int  # wanted there: others would be asked for them
    alone: int  # of the catalog's repos that it holds: complete on no other worker that is alive
