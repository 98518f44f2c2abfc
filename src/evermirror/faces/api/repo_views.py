"""What clients get of one repo besides itself: when it was pushed to, and how its targets are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, Field

from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.faces.api.views import ErrorView, error_view
from evermirror.model.failure import FailureKind
from evermirror.model.figures import PushHistory
from evermirror.model.pull import Target
from evermirror.model.push import RefStanding, RefState
from evermirror.model.report import DAY_S
from evermirror.nodes.pull_service import TargetState

TargetStatus = Literal[
    "equal", "behind", "conflict", "exposed", "refused", "failing", "paused", "new", "unknown"
]
RefStateText = Literal["equal", "behind", "missing", "extra", "refused", "foreign"]


class PushDayView(BaseModel):
    """A day, in UTC."""

    day: str = Field(examples=["2026-11-15"])
    pushes: int
    commits: int


class PushView(BaseModel):
    """A change of upstream, when it was found."""

    at: str
    commits: int = Field(description="New ones, at most 10,000")
    refs: int = Field(description="Branches and tags that moved")


class PushesView(BaseModel):
    """When upstream was pushed to."""

    days: list[PushDayView] = Field(description="Every day, oldest first; the last is today")
    recent: list[PushView] = Field(description="Newest first, at most 100")
    since: str = Field(description="What was before is not known (any more)")


class RefAtTarget(BaseModel):
    """A branch or tag at a target, as far as we know without asking it."""

    name: str
    state: RefStateText = Field(
        description="behind: an older value of ours; extra: deleted by the next push; foreign: somebody "
        "else's value, which waits for a person"
    )
    ours: str | None = Field(description="What the mirror has")
    theirs: str | None = Field(description="What is there")
    reason: str | None = Field(description="The target's words, or git's")


class TargetView(BaseModel):
    """One target ref by ref."""

    url: str
    credential: bool = Field(description="Whether it is pushed to with one")
    status: TargetStatus = Field(
        description="new: nothing was put there yet; conflict: refs wait for a person; exposed: it "
        "is more visible than the source, and nothing is pushed; refused: "
        "the target does not take some refs; unknown: nobody says"
    )
    last_push_at: str | None = Field(description="When something was last put there")
    checked_at: str | None = Field(description="When a push last looked")
    paused: str | None = Field(description="Why it is left alone until its project's failures are reset")
    last_error: ErrorView | None = Field(description="Null where it is over")
    refs: list[RefAtTarget] = Field(description="Those not equal first; at most 200")
    refs_total: int | None = Field(description="That should be there; null where no worker says")
    refs_equal: int | None


class TargetsView(BaseModel):
    """Where the repo is pushed on to."""

    targets: list[TargetView] = Field(description="None for the public")
    total: int


def pushes_view(told: PushHistory, days: int, created_at: float, now: float) -> PushesView:
    """``days`` up to today."""
    known, today = {day.day: day for day in told.days}, int(now // DAY_S)
    return PushesView(
        days=[
            PushDayView(
                day=datetime.fromtimestamp(n * DAY_S, UTC).date().isoformat(),
                pushes=known[n].pushes if n in known else 0,
                commits=known[n].commits if n in known else 0,
            )
            for n in range(today - days + 1, today + 1)
        ],
        recent=[PushView(at=iso(p.at), commits=p.commits, refs=p.refs) for p in told.recent],
        since=iso(max(created_at, told.since or 0.0)),
    )


def target_view(state: TargetState) -> TargetView:
    target, status = state.target, _status(state)
    failed = ("conflict", "exposed", "refused", "failing", "paused")
    failure = target.last_failure if status in failed else None
    return TargetView(
        url=printable(target.url),
        credential=target.credential is not None,
        status=status,
        last_push_at=iso_or_none(target.put_at),
        checked_at=iso_or_none(state.seen_at),
        paused=printable(target.paused) or None,
        last_error=error_view(failure, target.last_failure_at) if failure is not None else None,
        refs=[_ref_view(ref) for ref in state.refs],
        refs_total=state.total,
        refs_equal=state.equal,
    )


def _status(state: TargetState) -> TargetStatus:
    target: Target = state.target
    failure = target.last_failure if target.failures else None
    states = {ref.state for ref in state.refs}
    if target.paused:
        return "paused"
    if failure is not None and failure.kind is not FailureKind.CONFLICT and not failure.of_refs:
        return "failing"
    if failure is not None and failure.exposes:
        return "exposed"
    if RefState.FOREIGN in states or (failure is not None and not failure.of_refs):
        return "conflict"
    if RefState.REFUSED in states or failure is not None:
        return "refused"
    if target.put is None:
        return "new"
    if any(ref.state is not RefState.EQUAL for ref in state.refs):
        return "behind"
    if state.total is None:
        return "unknown"
    return "equal" if state.equal is not None and state.equal >= state.total else "behind"


def _ref_view(ref: RefStanding) -> RefAtTarget:
    return RefAtTarget(
        name=printable(ref.name),
        state=ref.state.value,
        ours=ref.ours,
        theirs=ref.theirs,
        reason=printable(ref.reason) or None,
    )
