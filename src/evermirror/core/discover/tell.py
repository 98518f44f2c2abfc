"""What people are told of a discovery: that it fails, that removals wait for them; and when that is over."""

from __future__ import annotations

from collections.abc import Iterator

from evermirror.model.alert import Alert, Level
from evermirror.model.discovery import Discovery
from evermirror.model.failure import Failure, FailureKind

FAILED = "discovery-failed"
HELD = "discovery-held"
WEATHER_RUNS = 3  # in a row that a forge is away before anybody is told
_WEATHER = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.RATE_LIMITED, FailureKind.UNKNOWN})


def about(discovery: Discovery) -> str:
    return f"{discovery.spec.group} at {discovery.spec.source_url.partition('://')[2]}"


def alerts_of(discovery: Discovery) -> Iterator[Alert]:
    """What stands after its last run; what does not is over."""
    name, last = about(discovery), discovery.last
    failure = last.failure if last is not None and discovery.enabled else None
    if failure is not None and (failure.kind not in _WEATHER or discovery.failures >= WEATHER_RUNS):
        reason = _words(failure)
        whole = last is not None and last.complete
        what = f"not all projects of {name} can be made"
        text = what if whole else f"the projects of {name} cannot be followed"
        text = f"{text}: {reason}"
        yield Alert(FAILED, name, text, level=Level.ERROR, facts={"reason": reason})
    elif failure is None:
        yield Alert(FAILED, name, f"the projects of {name} are followed again", over=True)
    if last is None or not last.complete:
        return
    if last.held:
        total = last.held + last.unchanged
        why = f" ({last.held_why})" if last.held_why else " at once"
        text = (
            f"{last.held} of {total} projects of {name} are gone{why}; a person must say so first: "
            f"`evermirror pull discover run {discovery.id} --accept`"
        )
        facts = {"gone": str(last.held), "total": str(total), "id": str(discovery.id)}
        if last.held_why:
            facts["why"] = last.held_why
        yield Alert(HELD, name, text, facts=facts)
    else:
        yield Alert(HELD, name, f"no removals of {name} wait any more", over=True)


def over(discovery: Discovery) -> Iterator[Alert]:
    """It is stopped, or removed."""
    name = about(discovery)
    for kind in (FAILED, HELD):
        yield Alert(kind, name, f"{name} is no longer followed", over=True)


def _words(failure: Failure) -> str:
    return " ".join(failure.message.split())[:300]
