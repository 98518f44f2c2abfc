"""What people may see of the fleet: each worker with what it last told of itself, totals, standing alerts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import AlertKind
from evermirror.core.fleet.views import Losing, Totals, WorkerView
from evermirror.model.messages import WorkerStatus
from evermirror.model.relay import NodeId, aggregator_node_id, worker_node_id
from evermirror.model.repo import Host, RepoKey
from evermirror.model.worker import AggregatorRecord, Duty, WorkerId

ALERTS_MAX = 100  # standing ones that are shown


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker: as the fleet's mind sees it, and as it describes itself."""

    seen: WorkerView
    flap_score: float  # faded to now
    weight_now: float  # for new placements: less while it flaps
    version: str | None  # of its program; None while it is not connected
    load: WorkerStatus | None  # None before its first heartbeat, and while it is not connected
    own: bool = False  # part of the coordinator's own process

    @property
    def id(self) -> WorkerId:
        return self.seen.record.id

    @property
    def node(self) -> NodeId:
        return worker_node_id(self.seen.record)

    @property
    def name(self) -> str:
        return self.seen.record.facts.name

    @property
    def is_heard(self) -> bool:
        """Whether all is known that it alone can tell: how it is, and what it holds."""
        return self.load is not None and self.seen.reconciled

    @property
    def duty(self) -> Duty:
        return self.seen.record.duty

    def retired(self) -> WorkerInfo:
        """The same after it was retired, when the fleet knows nothing of it any more."""
        record = replace(self.seen.record, duty=Duty.RETIRED)
        seen = replace(self.seen, record=record, connected=False, wanted=0, held=0, asked=0, unacked=0)
        return replace(self, seen=seen, version=None, load=None)


@dataclass(frozen=True, slots=True)
class AggregatorInfo:
    """One aggregator: what is remembered of it, and how it is now."""

    record: AggregatorRecord
    own: bool  # part of the coordinator's own process
    connected: bool
    since: float  # UTC seconds: of its connection, or of its end
    serves: int  # repos, by its word
    followed: int  # the number of the last change that it has on its disk
    told: int  # changes, since the coordinator's start
    load: WorkerStatus | None

    @property
    def node(self) -> NodeId:
        return aggregator_node_id(self.record.token_id)

    @property
    def name(self) -> str:
        return self.record.name


@dataclass(frozen=True, slots=True)
class StandingAlert:
    """Something that is wrong now; ``about`` names the worker, or says ``fleet``."""

    kind: AlertKind
    about: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict, compare=False)  # in the text, for other languages


@dataclass(frozen=True, slots=True)
class RateInUse:
    """A rate of the whole fleet that is split over its workers; polls a second."""

    host: Host | None  # None: over all hosts
    rate: float
    in_use: float  # the most that those who are not down may be using now

    @property
    def share(self) -> float:
        return self.in_use / self.rate


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet as of ``now`` (UTC seconds)."""

    workers: tuple[WorkerInfo, ...]  # by id
    totals: Totals
    alerts: tuple[StandingAlert, ...]  # bounded
    now: float
    aggregators: tuple[AggregatorInfo, ...] = ()  # bounded
    rates: tuple[RateInUse, ...] = ()  # bounded; the most used first
    more_alerts: tuple[StandingAlert, ...] = ()  # beyond those that are shown


@dataclass(frozen=True, slots=True)
class MoveInfo:
    """A repo with copies that come or go, by the names of their workers."""

    key: RepoKey
    going: tuple[str, ...]
    coming: tuple[str, ...]
    state: CopyState
    reason: str


@dataclass(frozen=True, slots=True)
class FleetMoves:
    """The first of them, those being cloned before all others; and how many there are."""

    items: tuple[MoveInfo, ...]
    total: int


__all__ = [
    "AggregatorInfo",
    "FleetMoves",
    "FleetView",
    "Losing",
    "MoveInfo",
    "RateInUse",
    "StandingAlert",
    "WorkerInfo",
]
