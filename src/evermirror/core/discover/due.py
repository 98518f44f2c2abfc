"""When a discovery runs again.

| the last run            | the next one                                                                     |
|-------------------------|----------------------------------------------------------------------------------|
| came to its end         | after ``every_s``; a discovery that runs once: never by itself                   |
| NETWORK_TIMEOUT, UNKNOWN| after 1, 2, 4 … minutes, at most ``every_s``                                     |
| RATE_LIMITED            | when the forge said, or as above                                                 |
| anything else           | after ``every_s``: a person is needed, and may ask for a run at any time         |

One that runs once is tried again for weather's sake, a few times. A run that was cut short goes on from its
cursor; one that began long ago begins anew, because what its first pages told is old.
"""

from __future__ import annotations

from evermirror.model.discovery import Discovery, RunOutcome, RunState
from evermirror.model.failure import FailureKind

FIRST_RETRY_S = 60.0
RETRY_MAX_S = 3600.0
ONCE_RETRIES = 5
WAIT_MAX_S = 86_400.0  # for a forge that asked us to wait
STALE_S = 86_400.0
_DOUBLINGS_MAX = 10
_WEATHER = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.UNKNOWN, FailureKind.RATE_LIMITED})


def next_run(discovery: Discovery, outcome: RunOutcome, failures: int, now: float) -> float | None:
    """``failures``: runs that failed in a row, this one counted. None: only when asked."""
    every = discovery.spec.every_s
    failure = outcome.failure
    if failure is None or failure.kind not in _WEATHER:
        return None if every is None else now + every
    if every is None and failures > ONCE_RETRIES:
        return None
    wait_s = FIRST_RETRY_S * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS_MAX)
    wait_s = min(wait_s, RETRY_MAX_S if every is None else every)
    return now + max(wait_s, failure.retry_after_s or 0.0)


def is_due(discovery: Discovery, now: float) -> bool:
    """Whether its time has come; also where that is further ahead than any wait: a clock was wrong then."""
    at, longest_s = discovery.next_at or 0.0, max(discovery.spec.every_s or 0.0, WAIT_MAX_S)
    return not now < at <= now + longest_s


def is_stale(run: RunState, now: float) -> bool:
    """Whether its listing is to begin anew. A clock that was set back makes nothing stale."""
    return now - run.began_at > STALE_S


def is_listed(run: RunState) -> bool:
    """Whether all pages were read."""
    return run.pages > 0 and run.cursor is None
