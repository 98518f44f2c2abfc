"""What people are told of an event hook whose receiver takes nothing."""

from __future__ import annotations

from evermirror.core.watch.kinds import EVENT_HOOK_FAILING
from evermirror.model.alert import Alert, Level
from evermirror.model.delivery import HookProgress

GONE = "HTTP 410"


def hook_alert(progress: HookProgress) -> Alert:
    """It fails for long, or its receiver is gone."""
    name = progress.name
    facts = {"reason": progress.last_error}
    text = f"event hook {name} does not take events: {progress.last_error}"
    if progress.stopped:
        facts["gone"] = GONE
        text = (
            f"event hook {name} wants no more events ({GONE}): `evermirror events retry {name}` tries again"
        )
    return Alert(EVENT_HOOK_FAILING, name, text, level=Level.ERROR, facts=facts)


def takes_again(name: str) -> Alert:
    return Alert(EVENT_HOOK_FAILING, name, f"event hook {name} takes events again", over=True)


def switched_off(name: str) -> Alert:
    return Alert(EVENT_HOOK_FAILING, name, f"event hook {name} is switched off", over=True)


def removed(name: str) -> Alert:
    return Alert(EVENT_HOOK_FAILING, name, f"event hook {name} is no longer in the settings", over=True)
