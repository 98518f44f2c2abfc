"""Answers to reads, kept for a moment to spare the coordinator, and longer for the time that it is away.

         kept ──── FRESH_S ────▶ asked for again ───────── STALE_S ────────▶ forgotten
          │ given as it is        │ given, and marked as old, only while the coordinator is away

Rules
- An answer is for one address, one language and one token; nobody else gets it.
- After a write nothing from before it is fresh: whoever wrote something sees it.
- What a token got is forgotten when the coordinator refuses that token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from evermirror.faces.pass_on.headers import Pairs

FRESH_S = 1.0  # with the coordinator's own 3 s, a revoked token is refused within 5 s
STALE_S = 600.0  # as long as a token accepted lately is believed for git
BYTES_MAX = 64_000_000
ANSWER_BYTES_MAX = 2_000_000  # larger ones are not kept
ENTRY_BYTES = 1_000  # what an entry costs beside its body


@dataclass(frozen=True, slots=True)
class Key:
    """``token`` is the hash of the Authorization header, empty without one."""

    target: bytes
    language: bytes
    token: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of status 200; ``at`` is monotonic, ``utc`` for people."""

    headers: Pairs
    body: bytes
    at: float
    utc: float
    writes: int  # as many had been passed on, begun or ended, when it was asked for

    @property
    def cost(self) -> int:
        return len(self.body) + sum(len(n) + len(v) for n, v in self.headers) + ENTRY_BYTES


class Kept:
    """In bounded memory, the longest unused forgotten first."""

    def __init__(self, clock: Callable[[], float], bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._bytes_max = bytes_max
        self._bytes = 0
        self._answers: OrderedDict[Key, Answer] = OrderedDict()
        self._of_token: dict[bytes, set[Key]] = {}
        self.writes = 0

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def wrote(self) -> None:
        """A write begins, or has ended."""
        self.writes += 1

    def fresh(self, key: Key) -> Answer | None:
        found = self._answers.get(key)
        if found is None or found.writes != self.writes or self._clock() - found.at > FRESH_S:
            return None
        return found

    def stale(self, key: Key) -> Answer | None:
        found = self._answers.get(key)
        if found is None:
            return None
        if self._clock() - found.at > STALE_S:
            self._drop(key)
            return None
        self._answers.move_to_end(key)
        return found

    def keep(self, key: Key, answer: Answer) -> None:
        there = self._answers.get(key)
        if answer.cost > self._bytes_max or (there is not None and there.writes > answer.writes):
            return
        self._drop(key)
        self._answers[key] = answer
        self._of_token.setdefault(key.token, set()).add(key)
        self._bytes += answer.cost
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._answers)))

    def refused(self, token: bytes) -> None:
        """The coordinator does not accept it (any more)."""
        for key in list(self._of_token.get(token, ())):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        gone = self._answers.pop(key, None)
        if gone is None:
            return
        self._bytes -= gone.cost
        keys = self._of_token[key.token]
        keys.discard(key)
        if not keys:
            del self._of_token[key.token]
