"""Whether a worker is in contact with its coordinator: one that was not for longer than grace may have lost
its repos to others, and does nothing then that cannot be taken back.

            a frame came: a new term            a frame came, a beat went out
    lost ─────────────────────────▶ held ◀──────────────────────────────────┐
      ▲                              │ └────────────────────────────────────┘
      └── nothing for grace_s ───────┘

Rules
- Frames are proof. A beat that the connection took is none by itself: it carries a contact on, so that a
  quiet coordinator is not taken for one that is away, and never brings back one that was lost.
- What was ordered in an earlier term is void: meanwhile it may have been ordered of somebody else. A command
  is of the term in which it came, however late its turn comes.
- Time passes while the machine sleeps, too.
"""

from __future__ import annotations

from collections.abc import Callable

from evermirror.nodes.clock import uptime

BEATS_LEAST = 3  # heartbeats that a contact lasts at least, however short the grace


class Contact:
    """The line tells what comes and goes; others ask whether it is ``held``, and in which ``term``."""

    def __init__(self, clock: Callable[[], float] = uptime) -> None:
        self._clock = clock
        self._lasts_s = 0.0
        self._at: float | None = None
        self.term = 0
        self._obeyed: int | None = None

    @property
    def held(self) -> bool:
        return self._at is not None and self._clock() - self._at <= self._lasts_s

    @property
    def ordered_in(self) -> int:
        """The term in which the command came that is carried out now."""
        return self.term if self._obeyed is None else self._obeyed

    def obeys(self, term: int) -> None:
        """What came in this term is carried out next."""
        self._obeyed = term

    def welcomed(self, grace_s: float, heartbeat_s: float) -> None:
        """A session begins or goes on; a coordinator that does not tell its grace is given little."""
        self.heard()
        self._lasts_s = max(grace_s, BEATS_LEAST * heartbeat_s)

    def heard(self) -> None:
        """A frame came."""
        if not self.held:
            self.term += 1
        self._at = self._clock()

    def beat_sent(self) -> None:
        """The connection took a heartbeat."""
        if self.held:
            self._at = self._clock()
