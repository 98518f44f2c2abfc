"""What clients get of discoveries: the group, its runs, what was found, what a dry run would do."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from evermirror.faces.api.pull_discovery_inputs import ForgeText, VisibilityText
from evermirror.faces.api.pull_inputs import PriorityText
from evermirror.faces.api.pull_views import Minutes, PullErrorShort, minutes
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.model.discovery import Bound, BoundState, DiscoverySpec, RunOutcome, Step, StepKind
from evermirror.model.failure import Failure
from evermirror.nodes.discovery_service import BoundPage, DiscoveryView, PreviewView, RunView

StateText = Literal["active", "gone", "renamed", "refused", "clash"]
StepText = Literal["create", "keep", "rename", "pause", "resume", "refuse", "clash", "hold"]


class OutcomeOut(BaseModel):
    """How a run ended; what was cut short goes on from there the next time."""

    began_at: str
    ended_at: str
    complete: bool
    found: int
    chosen: int = Field(description="Of those found, by include, exclude and archived")
    created: int
    unchanged: int
    renamed: int
    gone: int = Field(description="No longer found: paused")
    returned: int
    refused: int = Field(description="And clashes")
    held: int = Field(description="Removals that wait for a person: too many at once, or another user looks")
    held_why: str | None = Field(description="Set where another user looked than before")
    error: PullErrorShort | None


class RunOut(BaseModel):
    """A run under way."""

    phase: str = Field(description="listing, planning or making")
    pages: int
    found: int
    total: int | None = Field(description="Projects to be found, where the forge tells")
    done: int = Field(description="Steps")
    steps: int
    waits_s: float = Field(description="For the forge's rate limit")


class DiscoveryOut(BaseModel):
    """A group that is followed."""

    id: int
    source_url: str
    forge: ForgeText
    group: str
    credential: str | None
    subgroups: bool
    include: list[str]
    exclude: list[str]
    archived: bool
    prefix: str
    over_ssh: bool
    target_url: str | None
    target_forge: ForgeText
    target_credential: str | None
    visibility: VisibilityText | None
    protected_branches: Literal["open", "leave"]
    hooks: bool
    priority: PriorityText
    sync_interval: Minutes | None
    every: Minutes | None
    enabled: bool
    created_by: str
    created_at: str
    next_run_at: str | None
    runs: int
    runs_ended: int = Field(description="Also those cut short, since the server's start")
    run: RunOut | None
    last_run: OutcomeOut | None
    projects: dict[StateText, int]


class DiscoveryList(BaseModel):
    """All of them."""

    items: list[DiscoveryOut]
    total: int


class BoundOut(BaseModel):
    """A project at the source, and what stands for it here."""

    path: str
    state: StateText
    project_key: str
    repo_key: str | None
    target_url: str | None
    made_target: bool = Field(description="The target's project was made by this discovery")
    why: str
    updated_at: str


class BoundList(BaseModel):
    """A page of what was found, by path."""

    items: list[BoundOut]
    total: int
    page: int
    size: int


class StepOut(BaseModel):
    """One thing that a run would do."""

    step: StepText
    path: str
    project_key: str
    source_url: str
    target_url: str | None
    makes_target: bool
    was: str = Field(description="Of a rename: the path before")
    why: str


class PreviewOut(BaseModel):
    """A dry run: under way, ended with a plan, or failed."""

    id: str
    state: Literal["running", "done", "failed"]
    run: RunOut | None
    steps: list[StepOut]
    more: int = Field(description="Steps that have no room here")
    counts: dict[StepText, int]
    outcome: OutcomeOut | None
    error: PullErrorShort | None


class DiscoveryRemoved(BaseModel):
    """It is no longer followed; its projects stay."""

    id: int
    status: Literal["removed"] = "removed"


def discovery_out(view: DiscoveryView) -> DiscoveryOut:
    discovery, spec = view.discovery, view.discovery.spec
    return DiscoveryOut(
        id=discovery.id,
        **_spec_fields(spec),
        enabled=discovery.enabled,
        created_by=printable(discovery.created_by),
        created_at=iso(discovery.created_at),
        next_run_at=iso_or_none(discovery.next_at),
        runs=discovery.runs,
        runs_ended=view.ends,
        run=run_out(view.run),
        last_run=outcome_out(discovery.last),
        projects={state.value: (view.counts or {}).get(state, 0) for state in BoundState},
    )


def _spec_fields(spec: DiscoverySpec) -> dict[str, Any]:
    return {
        "source_url": printable(spec.source_url),
        "forge": spec.forge.value,
        "group": printable(spec.group),
        "credential": spec.credential,
        "subgroups": spec.subgroups,
        "include": [printable(pattern) for pattern in spec.include],
        "exclude": [printable(pattern) for pattern in spec.exclude],
        "archived": spec.archived,
        "prefix": printable(spec.prefix),
        "over_ssh": spec.over_ssh,
        "target_url": None if spec.target_url is None else printable(spec.target_url),
        "target_forge": spec.target_forge.value,
        "target_credential": spec.target_credential,
        "visibility": None if spec.visibility is None else spec.visibility.value,
        "protected_branches": spec.protected.value,
        "hooks": spec.hooks,
        "priority": spec.priority.value,
        "sync_interval": None if spec.interval_s is None else minutes(spec.interval_s),
        "every": None if spec.every_s is None else minutes(spec.every_s),
    }


def run_out(view: RunView | None) -> RunOut | None:
    if view is None:
        return None
    return RunOut(
        phase=view.phase,
        pages=view.pages,
        found=view.found,
        total=view.total,
        done=view.done,
        steps=view.steps,
        waits_s=round(view.waits_s, 1),
    )


def outcome_out(outcome: RunOutcome | None) -> OutcomeOut | None:
    if outcome is None:
        return None
    return OutcomeOut(
        began_at=iso(outcome.began_at),
        ended_at=iso(outcome.ended_at),
        complete=outcome.complete,
        found=outcome.found,
        chosen=outcome.chosen,
        created=outcome.created,
        unchanged=outcome.unchanged,
        renamed=outcome.renamed,
        gone=outcome.gone,
        returned=outcome.returned,
        refused=outcome.refused,
        held=outcome.held,
        held_why=printable(outcome.held_why) or None,
        error=_error(outcome.failure, outcome.ended_at),
    )


def bound_list(page: BoundPage) -> BoundList:
    return BoundList(
        items=[_bound_out(row) for row in page.items], total=page.total, page=page.page, size=page.size
    )


def preview_out(view: PreviewView) -> PreviewOut:
    plan = view.preview
    state: Literal["running", "done", "failed"] = "running" if view.run is not None else "done"
    return PreviewOut(
        id=view.id,
        state="failed" if view.failure is not None else state,
        run=run_out(view.run),
        steps=[_step_out(step) for step in plan.steps] if plan is not None else [],
        more=plan.more if plan is not None else 0,
        counts={kind.value: plan.counts.get(kind, 0) for kind in StepKind} if plan is not None else {},
        outcome=outcome_out(view.outcome),
        error=_error(view.failure, None),
    )


def _bound_out(row: Bound) -> BoundOut:
    return BoundOut(
        path=printable(row.path),
        state=row.state.value,
        project_key=printable(row.project_key),
        repo_key=row.key,
        target_url=None if row.target_url is None else printable(row.target_url),
        made_target=row.made_target,
        why=printable(row.why),
        updated_at=iso(row.updated_at),
    )


def _step_out(step: Step) -> StepOut:
    return StepOut(
        step=step.kind.value,
        path=printable(step.path),
        project_key=printable(step.project_key),
        source_url=printable(step.source_url),
        target_url=None if step.target_url is None else printable(step.target_url),
        makes_target=step.makes_target,
        was=printable(step.was),
        why=printable(step.why),
    )


def _error(failure: Failure | None, at: float | None) -> PullErrorShort | None:
    if failure is None:
        return None
    return PullErrorShort(
        error_type=failure.kind.value,
        error_message=printable(failure.message),
        hint=printable(failure.hint),
        at=iso_or_none(at),
    )
