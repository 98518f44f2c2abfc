"""Connections between workers and the coordinator, as TCP gives them.

Rules
- A link is one session: two streams in order, each message late by a delay. Nothing is lost in the middle of
  a stream: a message that does not get through is the end of the link.
- A side learns that its link is dead when it notices (keepalive), each side at its own time. In between the
  link is half open: what is sent is lost, and the worker may be back before its old link is missed.
- What was on its way when a link broke is lost, or comes late, even after the next session began.

    connect            a side closes: the other is told
  ─────────▶ OPEN ───────────────────────────────────────────────▶ closed on both sides
              │ a machine dies without a word                          ▲
              ▼                                                        │ the other side notices
            BROKEN ──────── one side notices ────▶ half open ──────────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from evermirror.sim.clock import VirtualTime


@dataclass(frozen=True, slots=True)
class Habits:
    """How the network is on a common day. Times in seconds."""

    delay_s: float = 0.03
    jitter_s: float = 0.05
    notice_s: tuple[float, float] = (5.0, 40.0)  # keepalive: how long a side takes to miss the other
    late_share: float = 0.3  # of broken links, whose last messages come late instead of never
    late_s: tuple[float, float] = (1.0, 60.0)


class Side(Protocol):
    """One end of a link."""

    def arrived(self, link: Link, message: Any) -> None: ...

    def closed(self, link: Link) -> None: ...


class Link:
    """One session of a worker; ``index`` is the worker's, ``session`` is never used twice."""

    __slots__ = ("at", "broken", "index", "late_s", "open", "session", "sides")

    def __init__(self, session: int, index: int, sides: tuple[Side, Side]) -> None:
        self.session = session
        self.index = index
        self.sides = sides  # by where a message goes: UP the coordinator, DOWN the worker
        self.open = [True, True]
        self.at = [0.0, 0.0]  # when the last message of each stream arrives
        self.broken = False
        self.late_s: float | None = None  # for what was on its way when it broke


UP, DOWN = 0, 1  # which way a message goes, and the side it goes to
_FIN = object()  # travels like a message, after all others


class Network:
    """All links."""

    link_type: type[Link] = Link

    def __init__(self, time: VirtualTime, chance: Random, habits: Habits, coordinator: Side) -> None:
        self.habits = habits
        self.links: dict[int, Link] = {}  # by session, until both sides closed
        self._time = time
        self._chance = chance
        self._coordinator = coordinator
        self._session = 0

    def connect(self, index: int, worker: Side) -> Link | None:
        """None: refused, or no way there."""
        self._session += 1
        link = self.link_type(self._session, index, (self._coordinator, worker))
        self.links[link.session] = link
        return link

    def send(self, link: Link, way: int, message: Any) -> None:
        """Sent by a side that thinks its link is open."""
        if not link.broken:
            self._carry(link, way, message)

    def close(self, link: Link, way: int, *, told: bool = True) -> None:
        """One side ends it; the message travels ``way``. Not ``told``: its machine died without a word."""
        link.open[1 - way] = False
        if told:
            self.send(link, way, _FIN)
        else:
            self.break_link(link)
        self._tidy(link)

    def break_link(self, link: Link) -> None:
        """Nothing gets through any more, and nobody knows yet."""
        if link.broken:
            return
        link.broken = True
        if self._chance.random() < self.habits.late_share:
            link.late_s = self._chance.uniform(*self.habits.late_s)
        self._notice_later(link)

    def _carry(self, link: Link, way: int, message: Any) -> None:
        habits = self.habits
        arrival = self._time.now + habits.delay_s + habits.jitter_s * self._chance.random()
        link.at[way] = arrival = max(arrival, link.at[way])
        self._time.at(arrival, self._deliver, link, way, message)

    def _deliver(self, link: Link, way: int, message: Any) -> None:
        if link.broken:
            if link.late_s is not None:  # the same delay for each, so that they stay in order
                self._time.after(link.late_s, self._hand_over, link, way, message)
            return
        self._hand_over(link, way, message)

    def _hand_over(self, link: Link, way: int, message: Any) -> None:
        if not link.open[way]:
            return
        if message is _FIN:
            self._end(link, way)
        else:
            link.sides[way].arrived(link, message)

    def _notice_later(self, link: Link) -> None:
        for side in (UP, DOWN):
            if link.open[side]:
                self._time.after(self._chance.uniform(*self.habits.notice_s), self._notice, link, side)

    def _notice(self, link: Link, side: int) -> None:
        if link.open[side]:
            self._end(link, side)

    def _end(self, link: Link, side: int) -> None:
        link.open[side] = False
        self._tidy(link)
        link.sides[side].closed(link)

    def _tidy(self, link: Link) -> None:
        if link.open == [False, False]:
            self.links.pop(link.session, None)
