"""What a failure means for the repo's next attempt: a table by kind, and the delays it names.

| kind              | counts | next attempt                                             |
|-------------------|--------|----------------------------------------------------------|
| NETWORK_TIMEOUT   | yes    | 1 min, doubling to 1 h; then the normal schedule as well |
| UNKNOWN           | yes    | the same                                                 |
| AUTH_FAILED       | yes    | at max_gap (24 h when off); nothing is ever deleted      |
| NOT_FOUND         | yes    | the same                                                 |
| RATE_LIMITED      | no     | when the host lets us: the whole host waits              |
| DISK_FULL         | no     | as soon as the disk guard sees room again; else 5 min    |
| CONFLICT          | no     | normal schedule: a person is needed, looking is not      |
| PERMISSION_DENIED | no     | normal schedule: it is a target's matter                 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from evermirror.model.failure import FailureKind

BACKOFF_FIRST_S = 60.0  # a hiccup is over in a minute
BACKOFF_LAST_S = 3600.0  # longer ones are looked at hourly at most
BACKOFF_JITTER = 0.1  # share of the delay: repos that failed together do not come back together
SLOW_DEFAULT_S = 86400.0  # a repo that is gone or closed, where max_gap is off
DISK_FULL_S = 300.0  # where room that was made does not show: a quota

# Failures after which the backoff has reached its end: from here on the policy's order decides again.
BACKOFF_STEPS = 7


class Wait(Enum):
    """What the next attempt waits for."""

    BACKOFF = "backoff"
    SLOW = "slow"
    HOST = "host"
    DISK = "disk"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class RetryRule:
    """One line of the table."""

    counted: bool
    wait: Wait


RETRY_RULES: Mapping[FailureKind, RetryRule] = MappingProxyType(
    {
        FailureKind.NETWORK_TIMEOUT: RetryRule(True, Wait.BACKOFF),
        FailureKind.UNKNOWN: RetryRule(True, Wait.BACKOFF),
        FailureKind.AUTH_FAILED: RetryRule(True, Wait.SLOW),
        FailureKind.NOT_FOUND: RetryRule(True, Wait.SLOW),
        FailureKind.RATE_LIMITED: RetryRule(False, Wait.HOST),
        FailureKind.DISK_FULL: RetryRule(False, Wait.DISK),
        FailureKind.CONFLICT: RetryRule(False, Wait.NORMAL),
        FailureKind.PERMISSION_DENIED: RetryRule(False, Wait.NORMAL),
    }
)


def backoff_s(failures: int, jitter: float = 0.0) -> float:
    """Delay after failure number ``failures`` (from 1); ``jitter`` in [-1, 1] is the caller's chance."""
    steps = min(max(failures, 1) - 1, 30)  # 2**30 minutes is past any bound; larger powers overflow
    delay = min(BACKOFF_FIRST_S * 2.0**steps, BACKOFF_LAST_S)
    return delay * (1.0 + BACKOFF_JITTER * min(max(jitter, -1.0), 1.0))


def retry_delay_s(
    wait: Wait, failures: int, *, max_gap_s: float | None, interval_s: float | None, jitter: float = 0.0
) -> float | None:
    """Seconds until the retry; None where the normal schedule (or the host) decides.

    A repo with an interval shorter than its backoff falls back to the interval, never to less."""
    match wait:
        case Wait.BACKOFF:
            delay = backoff_s(failures, jitter)
            return delay if interval_s is None else min(delay, interval_s)
        case Wait.SLOW:
            slow = max_gap_s if max_gap_s is not None else SLOW_DEFAULT_S
            return slow if interval_s is None else max(slow, interval_s)
        case Wait.DISK:
            return DISK_FULL_S
        case Wait.HOST | Wait.NORMAL:
            return None
