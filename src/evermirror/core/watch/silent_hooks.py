"""What people are told of hooks that fell silent: one alert for a host, as its hooks mostly fail together."""

from __future__ import annotations

from evermirror.model.alert import Alert
from evermirror.model.repo import RepoKey

HOOKS_SILENT = "hooks-silent"


def hooks_silent(host: str, count: int, example: RepoKey) -> Alert:
    """``count``: repos whose hooks are silent; ``example`` is one of them."""
    text = (
        f"hooks of {host} are silent for {count} repo{'s' * (count != 1)}, such as {example}: polls found "
        "changes that no hook told of; polled as before"
    )
    return Alert(HOOKS_SILENT, host, text, facts={"count": str(count), "example": example})
