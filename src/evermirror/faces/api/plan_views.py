"""What clients get of a repo's plan: when it is looked at next, and the reasoning that leads there."""

from __future__ import annotations

from pydantic import BaseModel, Field

from evermirror.faces.api.text import iso_or_none, printable
from evermirror.model.plan import PollPlan


class StepView(BaseModel):
    """One step of the reasoning."""

    code: str = Field(description="A word for programs; docs/api.md lists them")
    s: float | None = Field(description="Seconds: between two looks as far as this step, or a wait")
    at: str | None = Field(description="The next look as far as this step; of all steps the last counts")
    detail: str = Field(description="For people, in English")


class PlanView(BaseModel):
    """When the repo is looked at next, and why then."""

    next_poll_at: str | None
    reason: str
    gap_s: float | None
    last_poll_at: str | None
    policy: str = Field(description="`pull`: pulled as a project; empty where its worker is too old to say")
    pushes_per_day: float | None = Field(description="As expected from those of late")
    min_gap_s: float | None
    max_gap_s: float | None = Field(description="What the budgets make of the setting; null: none is set")
    worker: str | None = Field(description="Who looks; null where nobody is there")
    steps: list[StepView] = Field(description="The reasoning, in order")


def plan_view(plan: PollPlan) -> PlanView:
    return PlanView(
        next_poll_at=iso_or_none(plan.next_poll_at),
        reason=printable(plan.reason),
        gap_s=plan.gap_s,
        last_poll_at=iso_or_none(plan.last_poll_at),
        policy=printable(plan.policy),
        pushes_per_day=plan.pushes_per_day,
        min_gap_s=plan.min_gap_s,
        max_gap_s=plan.max_gap_s,
        worker=printable(plan.worker) if plan.worker is not None else None,
        steps=[
            StepView(code=printable(s.code), s=s.s, at=iso_or_none(s.at), detail=printable(s.detail))
            for s in plan.steps
        ],
    )
