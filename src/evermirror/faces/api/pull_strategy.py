"""The one strategy of pull mirroring: how many pulls may run when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evermirror.faces.api.context import WRITE_PROBLEMS, ApiDep, CallerDep, problems, pull_of
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import STRATEGY_FIELDS, StrategyIn
from evermirror.faces.api.pull_views import Minutes, minutes
from evermirror.faces.api.text import iso_or_none, printable
from evermirror.model.access import Role
from evermirror.model.repo import Priority
from evermirror.nodes.pull_service import ExpectedDelay, StrategyView

router = APIRouter(tags=["pull"])


class LoadOut(BaseModel):
    """How the source is doing."""

    level: Literal["high", "normal", "low"]
    reason: str


class ExpectedDelayOut(BaseModel):
    """From a push at the source until it is pulled, at most, in minutes."""

    usual_minutes: Minutes = Field(description="The longest interval of its projects, or the default")
    worst_minutes: Minutes = Field(description="Where peak hours come between")


class ExpectedDelaysOut(BaseModel):
    """By class, as long as there is room."""

    critical: ExpectedDelayOut
    high: ExpectedDelayOut
    normal: ExpectedDelayOut
    low: ExpectedDelayOut


class StrategyOut(BaseModel):
    """The strategy, and what follows from it now."""

    strategy_name: str
    max_concurrent_pulls: int
    enable_peak_avoidance: bool
    peak_hours_start: int
    peak_hours_end: int
    peak_max_concurrent: int
    off_peak_max_concurrent: int
    night_hours_start: int | None
    night_hours_end: int | None
    night_max_concurrent: int | None
    enable_adaptive: bool
    enabled: bool
    time_zone: str
    in_peak: bool
    current_limit: int = Field(description="Pulls that may run now")
    running: int = Field(description="Pulls that run now")
    load: LoadOut | None = Field(description="Of the source; null while not known")
    expected_delay: ExpectedDelaysOut | None = Field(description="Null while the schedule is off")
    created_at: str | None
    updated_at: str | None


@router.get("/api/pull/strategy", summary="The strategy", responses=problems(Kind.NOT_FOUND))
async def get_strategy(api: ApiDep) -> StrategyOut:
    """And what follows from it now: the limit, how many run, how the source is doing."""
    return _strategy_out(await pull_of(api).strategy())


@router.put(
    "/api/pull/strategy",
    summary="Change the strategy",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def put_strategy(asked: StrategyIn, api: ApiDep, caller: CallerDep) -> StrategyOut:
    """What is not given stays. It takes effect within a minute; what runs goes on."""
    caller.need(Role.OPERATOR)
    return _strategy_out(await pull_of(api).set_strategy(asked.values(), actor=caller.name))


def _strategy_out(view: StrategyView) -> StrategyOut:
    strategy = view.strategy
    said = {name: getattr(strategy, field) for name, field in STRATEGY_FIELDS.items()}
    said["strategy_name"] = printable(strategy.name)
    load = view.load
    return StrategyOut(
        **said,
        time_zone=view.time_zone,
        in_peak=view.in_peak,
        current_limit=view.limit,
        running=view.running,
        load=LoadOut(level=load.level.value, reason=printable(load.reason)) if load is not None else None,
        expected_delay=_expected_out(view.expected) if strategy.enabled and view.expected else None,
        created_at=iso_or_none(strategy.created_at),
        updated_at=iso_or_none(strategy.updated_at),
    )


def _expected_out(expected: Mapping[Priority, ExpectedDelay]) -> ExpectedDelaysOut:
    told = {
        priority.value: ExpectedDelayOut(
            usual_minutes=minutes(delay.usual_s, digits=1), worst_minutes=minutes(delay.worst_s, digits=1)
        )
        for priority, delay in expected.items()
    }
    return ExpectedDelaysOut(**told)
