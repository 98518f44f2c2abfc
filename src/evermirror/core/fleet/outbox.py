"""Commands on their way to one worker: numbered, kept until acknowledged, sent again when it comes back.

    put ──▶ 1 2 3 4 5 6 7 8        acked(3): 1..3 are forgotten
            ───── ─────────        resend(5): 4 and 5 were seen as well; 6..8 go out again, in order
            acked   kept           reset(): a fresh session; nothing is still to be done, the next is 1

Rules
- Numbers are 1, 2, 3, … within one session and those that resume it.
- An acknowledgement is for everything up to its number. One that comes twice, or after a higher one, changes
  nothing; a number that was never given says nothing.
- At most ``limit`` are kept. Who puts asks ``room`` first, and what does not fit waits where it comes from:
  the placement remembers what is to be done, not this.
"""

from __future__ import annotations

from collections import deque

from evermirror.core.fleet.decisions import Command


class OutboxFull(Exception):
    """More was put than the worker has acknowledged room for: ``room`` was not asked."""


class Outbox:
    """See the module's rules."""

    __slots__ = ("_acked", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._acked = 0  # everything up to this number was taken in by the worker
        self._kept: deque[Command] = deque()  # those after it, without a hole

    def __len__(self) -> int:
        """How many are not acknowledged."""
        return len(self._kept)

    @property
    def room(self) -> int:
        """How many more may be put now."""
        return self._limit - len(self._kept)

    @property
    def last(self) -> int:
        """The number given last; 0 at first."""
        return self._acked + len(self._kept)

    def put(self, command: Command) -> int:
        """Keep this command; returns its number."""
        if len(self._kept) >= self._limit:
            raise OutboxFull(f"{self._limit} commands are not acknowledged")
        self._kept.append(command)
        return self.last

    def acked(self, seq: int) -> None:
        """The worker took in everything up to ``seq``."""
        if self._acked < seq <= self.last:
            for _ in range(seq - self._acked):
                self._kept.popleft()
            self._acked = seq

    def resend(self, seen: int) -> list[tuple[int, Command]]:
        """The session goes on in a new connection: ``seen`` was taken in, the rest goes out again."""
        self.acked(seen)
        return list(enumerate(self._kept, self._acked + 1))

    def reset(self) -> None:
        """A fresh session: nothing that was sent is still to be done."""
        self._kept.clear()
        self._acked = 0
