"""What the faces may ask of the coordinator: one protocol, so that they know no wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from evermirror.core.fleet.copies import CopyState
from evermirror.model.failure import FailureKind
from evermirror.model.figures import PushHistory
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import HostState, RunningSync
from evermirror.model.plan import PollPlan as PollPlan
from evermirror.model.refs import RefsDigest, RefSnapshot
from evermirror.model.relay import NodeId
from evermirror.model.repo import Priority, RepoKey, RepoRecord, RepoStatus
from evermirror.model.repo_order import RepoSort, SortValue
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.whole import ClassFreshness, CoursePoint, FailureCount
from evermirror.nodes.coordinator.catalog.catalog_state import CatalogState
from evermirror.nodes.coordinator.fleet_view import FleetMoves, FleetView, Losing, WorkerInfo


class AddStatus(Enum):
    """What adding a URL did."""

    ADDED = "added"
    UPDATED = "updated"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class TaskParams:
    """What a caller asks of an on-demand sync."""

    min_commit: str | None = None
    force: bool = False
    priority: Priority | None = None
    within_s: float = 0.0  # so long ``min_commit`` is looked for again; 0: one look
    accept: bool = False  # follow upstream although a guard holds its change back


@dataclass(frozen=True, slots=True)
class RepoFilter:
    """Which repos a list shows, and in which order.

    ``after`` is the key of the last one already seen, and ``after_value`` what the order goes by of it
    (``sort.value_of``); nothing where the order is that of keys."""

    search: str = ""
    status: RepoStatus | None = None
    host: str = ""
    priority: Priority | None = None
    worker: str = ""  # who holds a copy or should, by name
    failure: FailureKind | None = None  # the one that stands now
    public: bool = False  # without private ones
    sort: RepoSort = RepoSort.KEY
    after: RepoKey | None = None
    after_value: SortValue = None
    limit: int = 100

    def following(self, last: RepoRecord) -> RepoFilter:
        """The same list behind this one."""
        return replace(self, after=last.key, after_value=self.sort.value_of(last))


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker that holds a copy, or should."""

    worker: str
    primary: bool
    digest: str | None  # None also where its refs are not the newest known
    verified_at: float | None
    state: CopyState = CopyState.HELD
    wanted: bool = True
    reason: str = ""
    verified: bool = True  # somebody else than untrusted workers says that the repo is held


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How a mirror lies on the disk, as last seen, and when it was last cared for (UTC seconds)."""

    packs: int
    loose_objects: int
    loose_refs: int
    size_bytes: int
    cruft_bytes: int  # what no ref reaches, kept for a while
    has_bitmap: bool
    repacked_at: float | None
    checked_at: float | None  # by fsck, which found it whole


@dataclass(frozen=True, slots=True)
class Running:
    """A sync under way, and who does it; None: not known by name."""

    sync: RunningSync
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The figures that answer: is everything fresh, and if not, what is wrong?"""

    total_repos: int
    by_status: Mapping[str, int]
    by_priority: Mapping[str, int]
    fresh_repos: int  # live ones, verified within their bound
    worst_lag_s: float | None
    polls_total: int
    polls_per_second: float
    changes_total: int
    received_bytes_total: int
    running: tuple[Running, ...]
    queued_syncs: int
    hosts: tuple[HostState, ...]  # those not open, at most 20
    failures: tuple[FailureCount, ...]  # of repos whose last attempt failed, most first
    disk_free_bytes: int
    disk_total_bytes: int
    accepting_clones: bool
    warnings: tuple[str, ...]
    started_at: float
    now: float
    fresh_bound_s: float
    freshness: Mapping[Priority, ClassFreshness]
    never_verified: int  # of live repos
    changes_per_minute: float  # these two: lately
    received_bytes_per_second: float

    @property
    def failures_by_kind(self) -> Mapping[str, int]:
        return {one.kind: one.repos for one in self.failures}

    @property
    def fresh_share(self) -> float | None:
        """Of live repos; None where there are none."""
        live = sum(count for status, count in self.by_status.items() if RepoStatus(status).is_live)
        return self.fresh_repos / live if live else None


class CatalogService(Protocol):
    """What may be asked of the catalog's watch."""

    def state(self) -> CatalogState: ...

    async def confirm(self, *, actor: str) -> int:
        """What is held back is done; returns how many repos went. ``Conflict`` where nothing is."""
        ...


class FleetService(Protocol):
    """What may be asked of the fleet. Orders are written to the audit log under ``actor``'s name, and
    answered once they are on the disk; one that changes nothing is fine.

    A worker is named by its name, or by its id where nobody has such a name; else ``NotFound``."""

    def view(self) -> FleetView: ...

    async def serves(self, node: NodeId, key: RepoKey, digest: RefsDigest, within_s: float) -> bool:
        """Whether this aggregator has the repo with these refs; waited for, at most so long."""
        ...

    def worker(self, name: str) -> WorkerInfo: ...

    def moves(self, limit: int, *, public: bool) -> FleetMoves:
        """Repos with copies that come or go; ``public``: without those that only trusted workers may hold."""
        ...

    def losing(self, name: str) -> Losing:
        """What would follow if this worker were gone."""
        ...

    async def drain(self, name: str, *, actor: str) -> WorkerInfo:
        """Everything is handed over, nothing new comes. ``Conflict`` for one in quarantine."""
        ...

    async def resume(self, name: str, *, actor: str) -> WorkerInfo:
        """Back to work, from draining or from quarantine."""
        ...

    async def quarantine(self, name: str, reason: str, *, actor: str) -> WorkerInfo:
        """Nothing that it holds counts any more; nothing of it is deleted."""
        ...

    async def retire(self, name: str, *, actor: str) -> WorkerInfo:
        """It does not come back. ``Conflict`` for the worker in the coordinator's own process."""
        ...

    async def overrule_brake(self, *, actor: str) -> FleetView:
        """Those that fell silent are really gone. ``Conflict`` while the brake is off."""
        ...


class CoordinatorService(Protocol):
    """Every method that takes ``actor`` is written to the audit log under that name.

    Raises InvalidUrl / UsageError (bad input), NotFound, Conflict from ``evermirror.errors``."""

    async def add_url(
        self, git_url: str, info: Mapping[str, object] | None, *, actor: str
    ) -> tuple[AddStatus, RepoRecord]: ...

    async def find_repo(self, key_or_url: str) -> RepoRecord: ...

    async def list_repos(self, which: RepoFilter) -> tuple[RepoRecord, ...]: ...

    async def count_repos(self, which: RepoFilter) -> int:
        """All that the list shows, on however many pages."""
        ...

    async def remove_repo(self, key_or_url: str, *, actor: str, dry_run: bool = False) -> RepoRecord: ...

    async def pause_repo(self, key_or_url: str, *, paused: bool, actor: str) -> RepoRecord:
        """Whether it is looked at, whatever the catalog says; its mirror stays either way."""
        ...

    async def submit_task(
        self, key_or_url: str, params: TaskParams, *, trigger: Trigger, actor: str, may_add: bool
    ) -> TaskRecord: ...

    async def get_task(self, task_id: TaskId) -> TaskRecord: ...

    async def wait_task(self, task_id: TaskId, timeout_s: float) -> TaskRecord: ...

    async def list_tasks(self, key_or_url: str, limit: int) -> tuple[TaskRecord, ...]: ...

    async def refs(self, key_or_url: str) -> RefSnapshot: ...

    async def holders(self, which: str | RepoRecord) -> tuple[Holder, ...]: ...

    async def why(self, key_or_url: str) -> tuple[str, ...]:
        """Why a repo is where it is, in plain lines."""
        ...

    async def plan(self, which: str | RepoRecord) -> PollPlan: ...

    async def pushes(self, key: RepoKey, begin: float) -> PushHistory:
        """When upstream was pushed to since ``begin``."""
        ...

    async def guard(self, which: str | RepoRecord) -> GuardMemory | None:
        """What of upstream is held back, if anything is."""
        ...

    async def upkeep(self, which: str | RepoRecord) -> Upkeep | None: ...

    async def history(self, key_or_url: str) -> tuple[KeptTip, ...]:
        """Old tips that upstream threw away, newest first."""
        ...

    async def restore(
        self, key_or_url: str, ref: str, date: str | None, as_name: str | None, *, actor: str
    ) -> TaskRecord: ...

    async def confirm(self, key_or_url: str, *, actor: str) -> TaskRecord:
        """Upstream is to be followed although a guard holds its change back."""
        ...

    async def undelete(self, key_or_url: str, *, actor: str) -> RepoRecord:
        """Back into the catalog, with the mirror that lies in the trash."""
        ...

    async def overview(self) -> Overview: ...

    async def course(self, hours: int) -> tuple[CoursePoint, ...]:
        """How the whole was in so many hours up to now, oldest first, in steps of ``step_of``."""
        ...

    def ready(self) -> tuple[bool, str]: ...
