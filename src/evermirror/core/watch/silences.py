"""What people do not want to be told of, and until when.

Silenced ──▶ in force ──time is over, or a person ends it──▶ gone: what it covered is told, if it stands
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from evermirror.core.watch.events import Silenced
from evermirror.model.alert import Alert, Silence, SilenceId


class Silences:
    """Those in force."""

    __slots__ = ("_in_force", "_max", "_next_id")

    def __init__(self, silences: Iterable[Silence], next_id: int, silences_max: int) -> None:
        self._in_force = {silence.id: silence for silence in silences}
        self._next_id = max([next_id, *(silence + 1 for silence in self._in_force)])
        self._max = silences_max

    def configure(self, silences_max: int) -> None:
        self._max = silences_max

    def __iter__(self) -> Iterator[Silence]:
        return iter(self._in_force.values())

    def begin(self, event: Silenced, now: float) -> Silence | None:
        """None: its time is over already, or there are too many."""
        if event.until <= now or len(self._in_force) >= self._max:
            return None
        silence = Silence(
            SilenceId(self._next_id), event.kind, event.about, event.until, event.by, event.reason, now
        )
        self._next_id += 1
        self._in_force[silence.id] = silence
        return silence

    def end(self, silence: SilenceId) -> Silence | None:
        """None: there is no such."""
        return self._in_force.pop(silence, None)

    def end_due(self, now: float) -> tuple[Silence, ...]:
        """Those whose time is over."""
        due = tuple(silence for silence in self._in_force.values() if silence.until <= now)
        for silence in due:
            del self._in_force[silence.id]
        return due

    def of(self, alert: Alert) -> Silence | None:
        """The one that covers it longest."""
        covering = (silence for silence in self._in_force.values() if silence.covers(alert))
        return max(covering, key=lambda silence: (silence.until, silence.id), default=None)

    def covers(self, alert: Alert) -> bool:
        return any(silence.covers(alert) for silence in self._in_force.values())

    @property
    def next_end(self) -> float:
        return min((silence.until for silence in self._in_force.values()), default=inf)
