"""What a failure means for the next attempt: a table for sources, a table for targets, and the delays.

| of the source     | counts | then                                                        |
|-------------------|--------|-------------------------------------------------------------|
| NETWORK_TIMEOUT   | yes    | retry                                                       |
| UNKNOWN           | yes    | retry                                                       |
| AUTH_FAILED       | yes    | with targets or a credential: paused at once;               |
| NOT_FOUND         | yes    | a public mirror: looked at again after slow_s, for ever     |
| RATE_LIMITED      | no     | when the host may be asked again                            |
| DISK_FULL         | no     | the first delay: somebody has to make room                  |
| CONFLICT          | no     | the normal interval: a person is needed, it stays enabled   |
| PERMISSION_DENIED | no     | the same                                                    |

What counts according to this table but is the host's weather (workers tell) does not count, and waits for
the host. Nothing is ever deleted for a failure.

| of a target       | counts | then                                                        |
|-------------------|--------|-------------------------------------------------------------|
| NETWORK_TIMEOUT   | yes    | retry                                                       |
| UNKNOWN           | yes    | retry                                                       |
| AUTH_FAILED       | yes    | that target is paused at once, others go on                 |
| NOT_FOUND         | yes    | the same                                                    |
| PERMISSION_DENIED | yes    | the same                                                    |
| … of some refs    | no     | the normal interval: these refs wait, the others go on      |
| RATE_LIMITED      | no     | Retry-After, else the first delay                           |
| CONFLICT          | no     | the normal interval: what is in conflict waits for a person |
| DISK_FULL         | no     | the normal interval                                         |

Retry: after failure n ≤ max_retries in retry_delay · multiplierⁿ⁻¹, afterwards at the normal interval; after
``pause_after`` failures in a row it is paused until a person resets it. A public mirror that is looked at
for ever never gets there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import RETRY_DELAY_MAX_S, Project, PullConfig
from evermirror.model.repo import Priority

BY_RANK = {p.rank: p for p in Priority}
_LOWEST = max(BY_RANK)
_STEPS_MAX = 30  # past any bound; larger powers overflow


class Then(Enum):
    """What follows a failure."""

    RETRY = "retry"
    PAUSE = "pause"
    HOST = "host"
    FIRST_DELAY = "first-delay"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a table."""

    counted: bool
    then: Then


_RETRY = Rule(True, Then.RETRY)
_PAUSE = Rule(True, Then.PAUSE)
_NORMAL = Rule(False, Then.NORMAL)

SOURCE_RULES: Mapping[FailureKind, Rule] = MappingProxyType(
    {
        FailureKind.NETWORK_TIMEOUT: _RETRY,
        FailureKind.UNKNOWN: _RETRY,
        FailureKind.AUTH_FAILED: _PAUSE,
        FailureKind.NOT_FOUND: _PAUSE,
        FailureKind.RATE_LIMITED: Rule(False, Then.HOST),
        FailureKind.DISK_FULL: Rule(False, Then.FIRST_DELAY),
        FailureKind.CONFLICT: _NORMAL,
        FailureKind.PERMISSION_DENIED: _NORMAL,
    }
)

TARGET_RULES: Mapping[FailureKind, Rule] = MappingProxyType(
    {
        FailureKind.NETWORK_TIMEOUT: _RETRY,
        FailureKind.UNKNOWN: _RETRY,
        FailureKind.AUTH_FAILED: _PAUSE,
        FailureKind.NOT_FOUND: _PAUSE,
        FailureKind.PERMISSION_DENIED: _PAUSE,
        FailureKind.RATE_LIMITED: Rule(False, Then.FIRST_DELAY),
        FailureKind.CONFLICT: _NORMAL,
        FailureKind.DISK_FULL: _NORMAL,
    }
)


def target_rule(failure: Failure) -> Rule:
    """What follows a failure at a target."""
    return _NORMAL if failure.of_refs else TARGET_RULES[failure.kind]


def is_weather(kind: FailureKind, *, counted: bool) -> bool:
    """Whether a failure of the source says something about its host: a rate limit, and whatever would count
    but, as the worker told, is everybody's there."""
    return kind is FailureKind.RATE_LIMITED or (SOURCE_RULES[kind].counted and not counted)


def effective_rank(project: Project, demote_after: int) -> int:
    """The class it is scheduled in: its own, or one lower while it fails. 0 is the most urgent."""
    rank = project.config.priority.rank
    return min(rank + 1, _LOWEST) if project.failures >= demote_after else rank


def effective_priority(project: Project, demote_after: int) -> Priority:
    """The same as a class."""
    return BY_RANK[effective_rank(project, demote_after)]


def retry_delay_s(config: PullConfig, failures: int, interval_s: float, multiplier: float) -> float:
    """Until the attempt after failure number ``failures`` (from 1)."""
    if failures > config.max_retries:
        return interval_s
    steps = min(max(failures, 1) - 1, _STEPS_MAX)
    return min(config.retry_delay_s * multiplier**steps, RETRY_DELAY_MAX_S)


def longest_wait_s(config: PullConfig, settings: PullSettings) -> float:
    """No project waits longer than this: a later time was written under a clock that was wrong."""
    retries_s = retry_delay_s(config, max(config.max_retries, 1), 0.0, settings.retry.backoff_multiplier)
    return max(config.interval_s * settings.stretch, retries_s, settings.slow_s)
