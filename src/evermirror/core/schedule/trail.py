"""A reasoning in the making: steps that are told are the steps that were taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from evermirror.model.plan import Step, StepCode


@dataclass(slots=True)
class Trail:
    """The steps so far, and what holds as of the last of them."""

    steps: list[Step] = field(default_factory=list)
    at: float | None = None
    reason: str = ""

    def note(self, code: StepCode, s: float | None, detail: str, *, at: float | None = None) -> None:
        """How often, or a remark: the next look stays when it is."""
        self.steps.append(Step(code, s, at, detail))

    def move(self, code: StepCode, at: float, reason: str, *, s: float | None = None) -> None:
        """The next look is then, as far as this step, and for this reason."""
        self.steps.append(Step(code, s, at, reason))
        self.at, self.reason = at, reason

    def stop(self, code: StepCode, reason: str) -> None:
        """No time can be told."""
        self.steps.append(Step(code, detail=reason))
        self.at, self.reason = None, reason
