"""The bounds of pull mirroring's decisions, each with its unit and reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from evermirror.model.pull import MINUTE, RetryPolicy


@dataclass(frozen=True, slots=True)
class PullSettings:
    """What an operator can set, beside the strategy that people change while it runs; times in seconds."""

    pause_after: int = 5  # failures in a row after which a project, or a target, is left alone
    demote_after: int = 3  # failures in a row after which a project counts as one class lower
    stretch: float = 2.0  # what intervals are multiplied by while the source is overloaded
    slow_s: float = 1440 * MINUTE  # between two looks at a public mirror whose source is gone
    step_s: float = MINUTE  # between two steps of the adaptive limit
    by_cron: bool = False  # projects become due at a cron's times only
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if min(self.pause_after, self.demote_after) < 1:
            raise ValueError("pause_after and demote_after are at least 1")
        if not self.stretch >= 1.0:
            raise ValueError(f"stretch makes intervals longer, got {self.stretch}")
        if not (self.slow_s > 0 and self.step_s > 0):
            raise ValueError("slow_s and step_s take time")
        if not self.retry.backoff_multiplier >= 1.0:
            raise ValueError("a delay that shrinks is no backoff")
