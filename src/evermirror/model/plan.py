"""When a repo is looked at next, and why then: the reasoning as steps, as it is told and translated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StepCode(StrEnum):
    """What one step of the reasoning says; words that faces translate. In the order in which they come."""

    # Nothing else is to be said
    ASKED = "asked"  # somebody wants it looked at: at once
    RUNNING = "running"  # it is being polled or synced
    SLOT = "slot"  # its refs moved: it waits for a git slot
    ON_REQUEST = "on_request"  # it is never looked at by itself
    DISABLED = "disabled"
    NOT_PLACED = "not_placed"  # no worker that is there has it
    # How often
    PUSHES = "pushes"  # time between two pushes, as expected from the fading counts
    AGE = "age"  # of the last commit
    INTERVAL = "interval"  # fixed, on the repo or its class
    POLICY_GAP = "policy_gap"  # what its share of the polls comes to
    PROJECT = "project"  # pulled in this interval
    PEAK = "peak"  # that interval, stretched while its source is under load
    HOOKED = "hooked"  # its hooks have proved reliable
    MAX_GAP = "max_gap"  # cut to it
    MIN_GAP = "min_gap"  # raised to it
    # When
    DETOUR = "detour"  # asked at a fallback
    LAST_POLL = "last_poll"
    DUE = "due"  # its interval is over
    TURN = "turn"  # its place in the queue comes up
    OVERDUE = "overdue"  # the max gap is over before its turn
    REST = "rest"  # left alone since the last look
    BACKOFF = "backoff"  # it failed
    WEATHER = "weather"  # its host is down for all: the next probe
    LIMITED = "limited"  # its host asked us to wait
    BUDGET = "budget"  # no poll is left before, of the host's rate or of the whole
    WINDOW = "window"  # its class does not run at this time of day


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the reasoning. ``s`` is the time between two looks, or a wait; ``at`` is when the next look
    is as far as this step. Of all steps the last ``at`` counts."""

    code: str
    s: float | None = None
    at: float | None = None
    detail: str = ""  # for people, in English


@dataclass(frozen=True, slots=True)
class PollPlan:
    """When a repo is looked at next, and why then. What a worker of a version before does not tell stays as
    it is here."""

    next_poll_at: float | None
    reason: str
    gap_s: float | None  # the gap the policy aims for
    last_poll_at: float | None
    source_url: str | None = None  # the address that last answered; None: not known since the worker started
    policy: str = ""
    pushes_per_day: float | None = None
    min_gap_s: float | None = None
    max_gap_s: float | None = None
    steps: tuple[Step, ...] = ()
    worker: str | None = None  # who looks

    @classmethod
    def without_time(cls, code: StepCode, reason: str, last_poll_at: float | None = None) -> PollPlan:
        """It is not looked at, or nobody can say when."""
        return cls(None, reason, None, last_poll_at, steps=(Step(code, detail=reason),))
