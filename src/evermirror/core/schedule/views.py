"""What the scheduler takes in and gives out: frozen values."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.core.schedule.queue import Phase
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.plan import PollPlan, Step
from evermirror.model.repo import Host, RepoKey, RepoSpec


@dataclass(frozen=True, slots=True)
class Entry:
    """A repo to schedule, with what is remembered of it, if anything.

    ``quiet``: it is never looked at by itself, only when it is asked for."""

    spec: RepoSpec
    memory: RepoMemory | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure came to. ``uncounted`` names repos whose earlier failures turned out to be weather.

    ``diverted``: the attempt goes on at another address, and nothing has failed yet."""

    counted: bool
    failures: int
    next_attempt_at: float | None  # None: no time can be named
    uncounted: tuple[RepoKey, ...] = ()
    failure: Failure | None = None  # what the attempt comes to, over all addresses
    diverted: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """When a repo is looked at next, and why then."""

    key: RepoKey
    phase: Phase
    reason: str
    next_poll_at: float | None  # an estimate; None while it is under way or cannot be told
    aimed_gap_s: float  # what the policy and the budgets come to
    last_poll_at: float
    failures: int
    failure_kind: FailureKind | None
    pushes_per_day: float
    policy: str
    min_gap_s: float
    max_gap_s: float | None  # what the budgets make of the setting
    steps: tuple[Step, ...]

    def plan(self, source_url: str | None) -> PollPlan:
        """The same as others are told; ``source_url`` is the address that last answered."""
        return PollPlan(
            self.next_poll_at,
            self.reason,
            self.aimed_gap_s,
            self.last_poll_at or None,
            source_url,
            policy=self.policy,
            pushes_per_day=self.pushes_per_day,
            min_gap_s=self.min_gap_s,
            max_gap_s=self.max_gap_s,
            steps=self.steps,
        )


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as it stands."""

    host: Host
    repos: int
    polls: int
    transfers: int
    blocked_until: float | None  # it asked us to wait
    storm: FailureKind | None
    probe_at: float | None
    max_gap_s: float | None  # what the budgets make of the setting
    storm_reason: str = ""  # where the first failure told that it is the host


@dataclass(frozen=True, slots=True)
class ScheduleWarning:
    """Something an operator should know; ``host`` is None where it concerns all."""

    code: str
    message: str
    host: Host | None = None
