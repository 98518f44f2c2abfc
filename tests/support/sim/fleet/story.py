"""Who looks on at a world: the teller of the story, and the checks of the promises.

They only look: they change nothing of the world and draw nothing from its chance, so that a run with them and
one without are the same run. The story is lines for people: the last ones are kept, and all make one digest.

    t=1834.200 worker 7 (w007) crashed
    t=1840.000 the coordinator was killed, after-commit

Two runs that tell the same digest told the same lines in the same order. A broken promise is raised as a
``Violation``: what was promised, what is wrong, the last lines before it and how to see it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import blake2b
from typing import Any

from evermirror.core.fleet.decisions import Decision
from evermirror.errors import EvermirrorError
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId

LINES_KEPT = 300  # enough to read what led to a broken promise in a busy fleet, and nothing for memory
LINES_SHOWN = 60  # at the end of a broken run: what fits a screen
_DIGEST_BYTES = 16  # two different runs have the same digest by chance once in 2^64 pairs


class Teller:
    """Tells nothing; ``now`` is virtual seconds since the start."""

    def tell(self, now: float, text: str) -> None:
        return


class Checks:
    """Looks on and says nothing, except where the world itself breaks. ``now`` is as the teller's."""

    def on_decision(self, decision: Decision, now: float) -> None:
        """Its writes are committed; none of its actions has started."""

    def on_delete(self, worker: WorkerId, key: RepoKey, now: float) -> None:
        """The worker is about to delete a complete copy on a command; it is still on its disk."""

    def on_disk_lost(self, worker: WorkerId | None, keys: Collection[RepoKey], now: float) -> None:
        """A fault took complete copies off a worker's disk, or, with None, off the aggregator's."""

    def on_report_acked(self, worker: WorkerId, generation: int, seq: int, now: float) -> None:
        """The coordinator is about to tell the worker that it may forget reports up to ``seq``."""

    def on_restart(self, now: float) -> None:
        """A new coordinator process was built from the store; it has handled nothing yet."""

    def on_step(self, now: float) -> None:
        """One event was handled to its end."""

    def on_broken(self, promise: str, detail: str, now: float) -> None:
        """The world itself saw something that must never be: raise."""
        raise AssertionError(f"t={now:.3f} {promise}: {detail}")

    def sweep(self, now: float) -> None:
        """Every so often: look at everything."""

    def at_end(self) -> None:
        """Faults healed long ago: everything must be as it should."""


class Story(Teller):
    """Bounded however long the run is; ``digest`` still covers every line."""

    __slots__ = ("_digest", "_lines", "told")

    def __init__(self, keep: int = LINES_KEPT) -> None:
        self._lines: deque[str] = deque(maxlen=keep)
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self.told = 0  # lines so far

    def tell(self, now: float, text: str) -> None:
        """One line; ``now`` is virtual seconds since the start."""
        line = f"t={now:.3f} {text}"
        self._lines.append(line)
        self._digest.update(line.encode())
        self._digest.update(b"\n")  # or two lines could be read as one
        self.told += 1

    def last(self, count: int | None = None) -> tuple[str, ...]:
        """The newest lines, oldest of them first."""
        lines = tuple(self._lines)
        return lines if count is None else lines[max(0, len(lines) - count) :]

    @property
    def digest(self) -> str:
        """Of every line told so far."""
        return self._digest.hexdigest()


def in_short(value: object) -> str:
    """A dataclass as it could be written: only what differs from the defaults; the seed in any case."""
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    named = (
        f"{part.name}={in_short(getattr(value, part.name))}"
        for part in fields(value)
        if part.name == "seed" or getattr(value, part.name) != _default(part)
    )
    return f"{type(value).__name__}({', '.join(named)})"


def _default(part: Field[Any]) -> object:
    return part.default_factory() if part.default_factory is not MISSING else part.default


class Violation(EvermirrorError):
    """A promise was broken. ``replay`` says how the very same run is had again."""

    def __init__(
        self, promise: str, detail: str, now: float, lines: tuple[str, ...] = (), replay: str = ""
    ) -> None:
        super().__init__(f"t={now:.3f} {promise}: {detail}")
        self.promise = promise
        self.detail = detail
        self.now = now
        self.lines = lines
        self.replay = replay

    def __str__(self) -> str:
        shown = self.lines[max(0, len(self.lines) - LINES_SHOWN) :]
        again = (f"see it again: {self.replay}",) if self.replay else ()
        return "\n".join((self.message, *(f"  {line}" for line in shown), *again))
