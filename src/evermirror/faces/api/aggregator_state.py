"""What an aggregator knows of itself: answered here, also while the coordinator is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter
from pydantic import BaseModel, Field

from evermirror import __version__
from evermirror.edge.relay.server import RelayFigures
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import CallerDep
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.faces.pass_on.upstream import HttpState
from evermirror.model.access import Role
from evermirror.model.messages import WorkerStatus
from evermirror.nodes.aggregator.collect_figures import CollectingFigures
from evermirror.nodes.redial import LinkState, Phase

PATH = "/api/aggregator"


@dataclass(frozen=True, slots=True)
class AggregatorSources:
    """Where the state is read from, at each request."""

    name: Callable[[], str]  # as the coordinator has it, once it was heard
    mode: str
    figures: Callable[[], CollectingFigures]
    status: Callable[[], WorkerStatus]
    link: Callable[[], LinkState]
    http: Callable[[], HttpState]
    relay: Callable[[], RelayFigures | None]


class CoordinatorLinkView(BaseModel):
    """How it stands with the coordinator."""

    connected: bool = Field(description="Changes come from it")
    since: str = Field(description="Connected, or away, since then")
    answers: bool | None = Field(description="Whether it answered the last API request; null: none yet")
    answers_since: str | None = Field(description="Since then")
    reason: str | None = Field(description="What stands in the way; null for the public")


class CollectedView(BaseModel):
    """The mirrors here."""

    wanted: int = Field(description="In the catalog, as far as the coordinator told")
    here: int
    behind: int = Field(description="Something of them is still to be fetched, or verified")
    doubts: int = Field(description="A holder's word about them is in doubt")
    fetching: int
    waited_for: int = Field(description="Not here, and clients wait for them")
    size_bytes: int


class RelayView(BaseModel):
    """The relay in this process."""

    workers: int = Field(description="With a line to it")
    lines: int
    idle_lines: int
    requests_running: int
    requests_waiting: int
    passed_bytes: int = Field(description="Since the start")


class AggregatorStateView(BaseModel):
    """One aggregator, by its own word."""

    name: str
    version: str
    mode: str
    coordinator: CoordinatorLinkView
    repos: CollectedView
    disk_free_bytes: int
    disk_total_bytes: int
    accepting: bool = Field(description="False: its disk takes nothing new")
    attempts: dict[str, int] = Field(description="Fetches and looks since the start, by how they ended")
    changes_taken: int = Field(description="Since the start")
    accused: int = Field(description="Accusations of workers, since the start")
    relay: RelayView | None = Field(description="Null where this process runs none")
    warnings: list[str] = Field(description="What is wrong now; empty for the public")
    now: str


def aggregator_router(sources: AggregatorSources) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get(PATH)
    async def get_aggregator(caller: CallerDep) -> AggregatorStateView:
        return _view(sources, caller)

    return router


def _view(sources: AggregatorSources, caller: Caller) -> AggregatorStateView:
    figures, status = sources.figures(), sources.status()
    trusted = caller.may(Role.READER)
    return AggregatorStateView(
        name=printable(sources.name()),
        version=__version__,
        mode=sources.mode,
        coordinator=_link(sources.link(), sources.http(), trusted=trusted),
        repos=CollectedView(
            wanted=figures.repos.repos,
            here=figures.repos.here,
            behind=figures.repos.pending,
            doubts=figures.repos.doubts,
            fetching=len(figures.fetching),
            waited_for=figures.waiting,
            size_bytes=figures.repos.here_bytes,
        ),
        disk_free_bytes=status.disk_free_bytes,
        disk_total_bytes=status.disk_total_bytes,
        accepting=status.accepting_clones,
        attempts={end.value: count for end, count in figures.attempts.items()},
        changes_taken=figures.changes,
        accused=figures.accused,
        relay=_relay(sources.relay()),
        warnings=[printable(text) for text in status.warnings] if trusted else [],
        now=iso(status.at),
    )


def _link(link: LinkState, http: HttpState, *, trusted: bool) -> CoordinatorLinkView:
    reason = link.reason or http.reason
    return CoordinatorLinkView(
        connected=link.phase is Phase.CONNECTED,
        since=iso(link.since),
        answers=http.answers,
        answers_since=iso_or_none(http.since),
        reason=printable(reason) if trusted and reason else None,
    )


def _relay(relay: RelayFigures | None) -> RelayView | None:
    if relay is None:
        return None
    return RelayView(
        workers=relay.holders,
        lines=relay.serving_lines,
        idle_lines=relay.free_lines,
        requests_running=relay.running,
        requests_waiting=relay.waiting,
        passed_bytes=relay.passed_bytes,
    )
