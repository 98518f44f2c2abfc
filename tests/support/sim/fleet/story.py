"""What happened, in lines for people: the last ones are kept, and all of them make one digest.

    t=1834.200 worker 7 (w007) crashed
    t=1840.000 the coordinator was killed, after-commit

Two runs that tell the same digest told the same lines in the same order. A broken promise is raised as a
``Violation``: what was promised, what is wrong, the last lines before it and how to see it again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import MISSING, Field, fields, is_dataclass
from hashlib import blake2b
from typing import Any

from evermirror.errors import EvermirrorError

LINES_KEPT = 300  # enough to read what led to a broken promise in a busy fleet, and nothing for memory
LINES_SHOWN = 60  # at the end of a broken run: what fits a screen
_DIGEST_BYTES = 16  # two different runs have the same digest by chance once in 2^64 pairs


class Story:
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
