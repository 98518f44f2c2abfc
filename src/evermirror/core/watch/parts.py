"""What people are told of a background part of the coordinator that fails."""

from __future__ import annotations

from evermirror.core.watch.kinds import PART_FAILING
from evermirror.model.alert import Alert, Level


def part_alert(name: str, error: str, failures: int) -> Alert:
    """It fails and is started again. ``error`` is the type of the last failure; its text stays in the log, as
    it may hold anything that a peer sent."""
    text = f'the part "{name}" of the coordinator fails ({error}): it is started again; see the log'
    facts = {"error": error, "failures": str(failures)}
    return Alert(PART_FAILING, name, text, level=Level.ERROR, facts=facts)
