"""What the end of a sync says about its source: whether the host may be asked, and how loaded it is.

| the sync ended with                        | the host                             | load           |
|--------------------------------------------|--------------------------------------|----------------|
| success, skip, or only targets failed      | answers                              | its look       |
| RATE_LIMITED                               | closes, for as long as it asked      | a failed poll  |
| what would count, but is everybody's there | closes                               | as below       |
| AUTH_FAILED, NOT_FOUND, a guard that held  | answers                              | its look       |
| NETWORK_TIMEOUT of the project alone       | nothing is known                     | a failed poll  |
| DISK_FULL, UNKNOWN                         | nothing is known                     | its look       |
| our own trouble: a credential lacks here   | was not asked                        | nothing        |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from evermirror.core.pull.draft import Draft
from evermirror.core.pull.events import TaskEnded
from evermirror.core.pull.outcome import words
from evermirror.core.pull.pace import Pace
from evermirror.core.pull.retry import is_weather
from evermirror.core.pull.sources import Sources
from evermirror.model.alert import Alert
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, RepoKey
from evermirror.model.task import TaskStatus

_TELLS_LOAD = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.RATE_LIMITED})
# The source answered, though not with what we wanted.
_ANSWERS = frozenset(
    {
        FailureKind.AUTH_FAILED,
        FailureKind.NOT_FOUND,
        FailureKind.PERMISSION_DENIED,
        FailureKind.CONFLICT,
    }
)


def judged(
    event: TaskEnded, host: Host, now: float, sources: Sources
) -> tuple[TaskEnded, Mapping[RepoKey, int]]:
    """With what all workers together know of the host: what counted for the one that told it may be
    everybody's there. Also whose failures before were, and how many."""
    failure = _of_source(event)
    if (
        failure is None
        or failure.kind is not FailureKind.NETWORK_TIMEOUT
        or not event.counted
        or failure.ours
    ):
        return event, {}
    excused = sources.timed_out(host, event.key, now)
    return (event, {}) if excused is None else (replace(event, counted=False), excused)


def hear(host: Host, event: TaskEnded, now: float, sources: Sources, pace: Pace, draft: Draft) -> None:
    failure = _of_source(event)
    if failure is not None and failure.ours:
        return
    answers = failure is None or failure.kind in _ANSWERS
    if failure is not None and is_weather(failure.kind, counted=event.counted):
        asked = failure.kind is FailureKind.RATE_LIMITED
        if sources.failed(host, now, asked=asked, retry_after_s=failure.retry_after_s):
            reason = words(failure)
            ours = failure.kind is FailureKind.NETWORK_TIMEOUT  # perhaps: so look all hosts then
            who = f"{host}, or our own network," if ours else host
            text = f"{who} fails for all its projects: {reason}"
            draft.alert([Alert("source-weather", host, text, facts={"reason": reason})])
    elif answers and sources.succeeded(host, pace.allowance(now).limit, now):
        draft.alert([weather_over(host, "answers again")])
    if failure is not None and failure.kind in _TELLS_LOAD:
        pace.polls.failed(now)
    elif event.look_s is not None:
        pace.polls.answered(host, event.look_s, now)


def _of_source(event: TaskEnded) -> Failure | None:
    return event.failure if event.status is TaskStatus.FAILED and not event.pushes else None


def weather_over(host: Host, why: str) -> Alert:
    return Alert("source-weather", host, f"{host} {why}", over=True)
