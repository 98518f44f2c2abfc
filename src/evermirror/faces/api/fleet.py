"""The fleet: who mirrors, how it is with each, what is wrong; and orders to single workers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from evermirror.core.fleet.rates import HOSTS_MAX
from evermirror.errors import NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import WRITE_PROBLEMS, Api, ApiDep, CallerDep, problems
from evermirror.faces.api.fleet_rates import SHARES_MAX, LimitsView, RateView, limits_view, rate_view
from evermirror.faces.api.inputs import CleanText
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.faces.api.views import CopyStateText, copy_state_text
from evermirror.model.access import Role
from evermirror.model.worker import Duty
from evermirror.nodes.coordinator.fleet_admin import MOVES_MAX
from evermirror.nodes.coordinator.fleet_view import AggregatorInfo, FleetView, Losing, MoveInfo, WorkerInfo
from evermirror.nodes.service import FleetService

_MAX_REASON = 200

router = APIRouter(tags=["fleet"])

NamePath = Annotated[
    str,
    Path(
        description="Name of a worker; its id where no worker has such a name", min_length=1, max_length=5_000
    ),
]


class WorkerView(BaseModel):
    """One worker."""

    name: str
    id: int
    role: Literal["worker"] = "worker"
    status: Literal["alive", "suspect", "down", "draining", "quarantined", "retired"] = Field(
        description="Liveness and duty in one word"
    )
    liveness: Literal["alive", "suspect", "down"] = Field(description="What its heartbeats say")
    duty: Literal["active", "draining", "quarantined", "retired"] = Field(description="What is wanted of it")
    trusted: bool = Field(description="May hold private repos; its copies allow others to be deleted")
    connected: bool
    own: bool = Field(description="Part of this server's own process: all-in-one")
    accepting: bool = Field(description="False: its disk takes no more clones")
    weight: float = Field(description="Its share of the load")
    weight_now: float = Field(description="For new placements: less while it comes and goes")
    capacity: int | None = Field(description="The most repos it takes")
    wanted: int = Field(description="Copies that should be there")
    held: int = Field(description="Copies that are there, complete")
    asked: int = Field(description="Copies being cloned")
    strays: int = Field(description="Mirrors on its disk that nobody knows of, as it told when it connected")
    unacknowledged: int = Field(description="Commands that it has not taken in yet")
    disk_free_bytes: int | None = Field(
        description="Null while it is not connected, like the total, the polls and the syncs"
    )
    disk_total_bytes: int | None
    polls_per_second: float | None
    limits: LimitsView | None = Field(
        description="Its shares of the fleet's rates, as it was told last; null: its own settings alone, and "
        "for the public"
    )
    running_syncs: int | None
    queued_syncs: int | None
    version: str | None = Field(description="Of its program; null while it is not connected")
    flap_score: float = Field(description="Falls of late; each counts 1 and fades by half in 6 hours")
    joined_at: str
    last_alive_at: str | None


class WorkerEvent(BaseModel):
    """Something that happened to a worker."""

    at: str
    what: str


class LosingView(BaseModel):
    """What losing the worker would mean now."""

    copies: int = Field(description="Wanted there: others would be asked for them")
    alone: int = Field(
        description="Repos complete on no other worker that is alive: cloned anew from upstream"
    )


class WorkerDetail(WorkerView):
    """One worker in full."""

    history: list[WorkerEvent] = Field(description="Ups and downs, newest last; at most 50")
    losing: LosingView


class TotalsView(BaseModel):
    """The fleet in figures."""

    repos: int
    owned: int = Field(description="Repos wanted on a worker that is alive")
    held: int = Field(description="Repos complete on a worker that is alive, and verified")
    unverified: int = Field(description="Repos that only workers which are not trusted say they hold")
    no_room: int = Field(description="Repos that wait: no worker can take them")
    moving: int = Field(description="Repos with a copy that comes or goes")
    planned: int = Field(description="Copies that wait for their turn to be cloned")
    asked: int = Field(description="Copies being cloned")
    deferred: int = Field(description="Copies whose first clone failed or must wait; their workers try again")
    stopping: int = Field(description="Copies whose worker was told to stop")
    leaving: int = Field(description="Copies being deleted")
    workers: int
    alive: int
    suspect: int
    braked: bool = Field(description="Too many fell silent at once: nobody is declared down")
    warming: bool = Field(description="Nothing is placed yet: workers are waited for")


class AlertView(BaseModel):
    """Something that is wrong now."""

    kind: Literal[
        "brake",
        "no-room",
        "worker-down",
        "aggregator-down",
        "quarantine",
        "accusation",
        "stray",
        "stalled",
        "slow-clones",
        "unverified",
        "unreachable",
        "disk-full",
    ]
    about: str = Field(description="The worker or aggregator, or `fleet`")
    text: str


class AggregatorView(BaseModel):
    """One aggregator that ever joined."""

    id: int = Field(description="The number of its token; 0: part of `evermirror up` itself")
    role: Literal["aggregator"] = "aggregator"
    name: str
    url: str | None = Field(description="Where people clone from it")
    status: str = Field(
        description="alive; suspect: its connection ended a moment ago; down: it stays away; retired: its"
        " token was revoked"
    )
    last_alive_at: str | None
    joined_at: str
    history: list[WorkerEvent] = Field(description="Ups and downs, newest last; at most 50")
    connected: bool
    since: str = Field(description="Connected, or gone, since then")
    serves: int = Field(description="Repos that it holds, verified, by its word")
    followed: int = Field(description="Number of the last change that it has on its disk")
    changes_told: int
    relay: str | None = Field(description="Where its relay listens; null for the public")
    disk_free_bytes: int | None
    disk_total_bytes: int | None
    version: str


class FleetAnswer(BaseModel):
    """The whole fleet."""

    workers: list[WorkerView] = Field(description="By id")
    aggregators: list[AggregatorView] = Field(description="At most 100")
    totals: TotalsView
    rates: list[RateView] = Field(
        description="Rates that are split over workers, the most used first; at most 257, none for the public"
    )
    alerts: list[AlertView] = Field(description="At most 100; empty for the public")
    now: str


class MoveView(BaseModel):
    """A repo with copies that come or go."""

    repo: str
    from_: list[str] = Field(alias="from", description="Workers whose copies go, once others are complete")
    to: list[str] = Field(description="Workers that are to have a copy, and do not yet")
    state: CopyStateText = Field(
        description="planned: waits for its turn; asked: being cloned; else of the copy that goes: held "
        "until others are complete, stopping, leaving"
    )
    reason: str = Field(description="Why it comes there; where only a copy goes, how that is")


class MovesView(BaseModel):
    """Repos on the move, those being cloned first."""

    items: list[MoveView]
    total: int


class QuarantineIn(BaseModel):
    """Why nothing of a worker is to count."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[CleanText, Field(min_length=1, max_length=_MAX_REASON)]


_READ = problems(Kind.NOT_FOUND, Kind.INVALID)
_ORDER = problems(Kind.NOT_FOUND, Kind.INVALID, Kind.CONFLICT)


@router.get(
    "/api/fleet", summary="Workers, aggregators, totals, what is wrong", responses=problems(Kind.NOT_FOUND)
)
async def get_fleet(api: ApiDep, caller: CallerDep) -> FleetAnswer:
    """At most half a second old. Alerts are told to token holders, and to this machine's own user."""
    return _fleet_answer(_fleet(api).view(), caller)


@router.get(
    "/api/fleet/moves",
    summary="Repos with copies that come or go",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def get_moves(
    api: ApiDep, caller: CallerDep, limit: Annotated[int, Query(ge=1, le=MOVES_MAX)] = 100
) -> MovesView:
    """At most half a second old. The public is not told of repos that only trusted workers may hold."""
    found = _fleet(api).moves(limit, public=not caller.may(Role.READER))
    return MovesView(items=[_move_view(move) for move in found.items], total=found.total)


@router.get("/api/fleet/workers/{name}", summary="One worker in full", responses=_READ)
async def get_worker(name: NamePath, api: ApiDep, caller: CallerDep) -> WorkerDetail:
    """With its history, all its shares, and what losing it would mean."""
    fleet = _fleet(api)
    return _detail(fleet.worker(name), fleet.losing(name), caller)


@router.post("/api/fleet/workers/{name}/drain", summary="Empty a worker", responses=_ORDER)
async def drain_worker(name: NamePath, api: ApiDep, caller: CallerDep) -> WorkerView:
    """Others get what it holds; it keeps each copy until then, and takes nothing new. Poll it until `held` is
    0. 409 for one in quarantine."""
    caller.need(Role.OPERATOR)
    return _worker_view(await _fleet(api).drain(name, actor=caller.name), caller)


@router.post("/api/fleet/workers/{name}/resume", summary="Have a worker work again", responses=_ORDER)
async def resume_worker(name: NamePath, api: ApiDep, caller: CallerDep) -> WorkerView:
    """From draining; from quarantine it takes an admin."""
    caller.need(Role.OPERATOR)
    fleet = _fleet(api)
    if fleet.worker(name).duty is Duty.QUARANTINED:
        caller.need(Role.ADMIN)
    return _worker_view(await fleet.resume(name, actor=caller.name), caller)


@router.post("/api/fleet/workers/{name}/retire", summary="End a worker", responses=_ORDER)
async def retire_worker(name: NamePath, api: ApiDep, caller: CallerDep) -> WorkerView:
    """It does not come back: what it held is cloned elsewhere, and its token is refused. Drain it first where
    it still answers. 409 for the worker of an all-in-one's own process."""
    caller.need(Role.ADMIN)
    return _worker_view(await _fleet(api).retire(name, actor=caller.name), caller)


@router.post(
    "/api/fleet/workers/{name}/quarantine",
    summary="Trust nothing of a worker",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def quarantine_worker(
    name: NamePath, asked: QuarantineIn, api: ApiDep, caller: CallerDep
) -> WorkerView:
    """Its copies count for nothing and stay on its disk; others get what it should hold."""
    caller.need(Role.ADMIN)
    return _worker_view(await _fleet(api).quarantine(name, asked.reason, actor=caller.name), caller)


@router.post(
    "/api/fleet/brake/overrule",
    summary="Those who fell silent are really gone",
    responses=problems(Kind.NOT_FOUND, Kind.CONFLICT),
)
async def overrule_brake(api: ApiDep, caller: CallerDep) -> FleetAnswer:
    """Suspects whose grace is over are declared down, and their repos go to others. 409 while the brake is
    off."""
    caller.need(Role.OPERATOR)
    return _fleet_answer(await _fleet(api).overrule_brake(actor=caller.name), caller)


def _move_view(move: MoveInfo) -> MoveView:
    return MoveView.model_validate(
        {
            "repo": printable(move.key),
            "from": [printable(name) for name in move.going],
            "to": [printable(name) for name in move.coming],
            "state": copy_state_text(move.state),
            "reason": printable(move.reason),
        }
    )


def _fleet(api: Api) -> FleetService:
    if api.fleet is None:
        raise NotFound("this server leads no fleet", hint="Ask its coordinator")
    return api.fleet


def _fleet_answer(view: FleetView, caller: Caller) -> FleetAnswer:
    totals = view.totals
    alerts, rates = (view.alerts, view.rates) if caller.may(Role.READER) else ((), ())
    return FleetAnswer(
        workers=[_worker_view(w, caller) for w in view.workers],
        aggregators=[_aggregator_view(a, caller) for a in view.aggregators],
        totals=TotalsView(
            repos=totals.repos,
            owned=totals.owned,
            held=totals.held,
            unverified=totals.unverified,
            no_room=totals.no_room,
            moving=totals.moving,
            planned=totals.planned,
            asked=totals.asked,
            deferred=totals.deferred,
            stopping=totals.stopping,
            leaving=totals.leaving,
            workers=totals.workers,
            alive=totals.alive,
            suspect=totals.suspect,
            braked=totals.braked,
            warming=totals.warming,
        ),
        rates=[rate_view(rate) for rate in rates],
        alerts=[
            AlertView(kind=a.kind.value, about=printable(a.about), text=printable(a.text)) for a in alerts
        ],
        now=iso(view.now),
    )


def _aggregator_view(one: AggregatorInfo, caller: Caller) -> AggregatorView:
    record = one.record
    return AggregatorView(
        id=record.token_id,
        name=printable(one.name),
        url=printable(record.http_url) or None,
        status=record.status,
        last_alive_at=iso_or_none(record.last_alive_at),
        joined_at=iso(record.joined_at),
        history=[WorkerEvent(at=iso(at), what=printable(what)) for at, what in record.history],
        connected=one.connected,
        since=iso(one.since),
        serves=one.serves,
        followed=one.followed,
        changes_told=one.told,
        relay=printable(record.relay) if record.relay and caller.may(Role.READER) else None,
        disk_free_bytes=one.load.disk_free_bytes if one.load else None,
        disk_total_bytes=one.load.disk_total_bytes if one.load else None,
        version=printable(record.version),
    )


def _worker_view(worker: WorkerInfo, caller: Caller) -> WorkerView:
    return WorkerView.model_validate(_fields(worker, caller))


def _detail(worker: WorkerInfo, losing: Losing, caller: Caller) -> WorkerDetail:
    history = [{"at": iso(at), "what": printable(what)} for at, what in worker.seen.record.history]
    told = {"copies": losing.copies, "alone": losing.alone}
    fields = _fields(worker, caller, shares_max=HOSTS_MAX)
    return WorkerDetail.model_validate({**fields, "history": history, "losing": told})


def _fields(worker: WorkerInfo, caller: Caller, shares_max: int = SHARES_MAX) -> dict[str, Any]:
    seen, load = worker.seen, worker.load
    record = seen.record
    limits = seen.limits if caller.may(Role.READER) else None
    return {
        "name": printable(worker.name),
        "id": worker.id,
        "status": record.status,
        "liveness": record.liveness.value,
        "duty": record.duty.value,
        "trusted": record.facts.trusted,
        "connected": seen.connected,
        "own": worker.own,
        "accepting": seen.accepting,
        "weight": record.facts.weight,
        "weight_now": worker.weight_now,
        "capacity": record.facts.capacity,
        "wanted": seen.wanted,
        "held": seen.held,
        "asked": seen.asked,
        "strays": seen.strays,
        "unacknowledged": seen.unacked,
        "disk_free_bytes": load.disk_free_bytes if load else None,
        "disk_total_bytes": load.disk_total_bytes if load else None,
        "polls_per_second": load.polls_per_second if load else None,
        "limits": limits_view(limits, shares_max),
        "running_syncs": len(load.running) if load else None,
        "queued_syncs": load.queued_syncs if load else None,
        "version": printable(worker.version) if worker.version is not None else None,
        "flap_score": round(worker.flap_score, 2),
        "joined_at": iso(record.joined_at),
        "last_alive_at": iso_or_none(seen.heard_at),
    }
