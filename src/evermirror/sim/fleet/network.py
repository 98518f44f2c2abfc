"""Connections between workers and the coordinator, as TCP gives them, and all that goes wrong with them.

Rules
- A link is one session: two streams in order, each message late by a delay. Nothing is lost in the middle of
  a stream: a message that does not get through is the end of the link.
- A side learns that its link is dead when it notices (keepalive), each side at its own time. In between the
  link is half open: what is sent is lost, and the worker may be back before its old link is missed.
- What was on its way when a link broke is lost, or comes late, even after the next session began.
- While a way is cut, messages wait; healed before anybody noticed, they arrive. A worker that is cut off
  cannot connect. Ways can be cut in one direction.

    connect            a side closes: the other is told, if the way is open
  ─────────▶ OPEN ─────────────────────────────────────────────────────▶ closed on both sides
              │ ▲ cut / heal in time                                         ▲
              ▼ │                                                            │ the other side notices
            STUCK, or BROKEN ──── one side notices ────▶ half open ──────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from evermirror.sim.fleet.clock import VirtualTime


@dataclass(frozen=True, slots=True)
class Habits:
    """How the network is on a common day. Times in seconds."""

    delay_s: float = 0.03
    jitter_s: float = 0.05
    breaks_per_message: float = 0.0
    notice_s: tuple[float, float] = (5.0, 40.0)  # keepalive: how long a side takes to miss the other
    late_share: float = 0.3  # of broken links, whose last messages come late instead of never
    late_s: tuple[float, float] = (1.0, 60.0)


class Side(Protocol):
    """One end of a link."""

    def arrived(self, link: Link, message: Any) -> None: ...

    def closed(self, link: Link) -> None: ...


class Link:
    """One session of a worker; ``index`` is the worker's, ``session`` is never used twice."""

    __slots__ = ("at", "broken", "cuts", "index", "late_s", "open", "session", "sides", "waiting")

    def __init__(self, session: int, index: int, sides: tuple[Side, Side]) -> None:
        self.session = session
        self.index = index
        self.sides = sides  # by where a message goes: UP the coordinator, DOWN the worker
        self.open = [True, True]
        self.at = [0.0, 0.0]  # when the last message of each stream arrives
        self.waiting: tuple[list[Any], list[Any]] = ([], [])  # held up by a cut
        self.broken = False
        self.late_s: float | None = None  # for what was on its way when it broke
        self.cuts = 0  # grows with each cut and heal: what was planned for an earlier one is void


UP, DOWN = 0, 1  # which way a message goes, and the side it goes to
_FIN = object()  # travels like a message, after all others


class Network:
    """All links; ``answers`` tells whether a coordinator listens."""

    def __init__(
        self,
        time: VirtualTime,
        chance: Random,
        habits: Habits,
        coordinator: Side,
        answers: Callable[[], bool],
    ) -> None:
        self.habits = habits
        self.links: dict[int, Link] = {}  # by session, until both sides closed
        self.sent = 0
        self._time = time
        self._chance = chance
        self._coordinator = coordinator
        self._answers = answers
        self._cut: dict[int, tuple[bool, bool]] = {}
        self._newest: dict[int, Link] = {}
        self._session = 0

    def connect(self, index: int, worker: Side) -> Link | None:
        """None: refused, or no way there."""
        if index in self._cut or not self._answers():
            return None
        self._session += 1
        link = Link(self._session, index, (self._coordinator, worker))
        self.links[link.session] = self._newest[index] = link
        return link

    def calm(self) -> None:
        """From now on no link breaks by chance."""
        self.habits = replace(self.habits, breaks_per_message=0.0)

    def reachable(self, index: int) -> bool:
        """Through the relay, from elsewhere."""
        return index not in self._cut

    def send(self, link: Link, way: int, message: Any) -> None:
        """Sent by a side that thinks its link is open."""
        self.sent += 1
        if link.broken:
            return
        habits = self.habits
        if habits.breaks_per_message and self._chance.random() < habits.breaks_per_message:
            self.break_link(link)
            return
        cut = self._cut.get(link.index)
        if (cut is not None and cut[way]) or link.waiting[way]:
            link.waiting[way].append(message)
            return
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

    def break_newest(self, index: int) -> None:
        link = self._newest.get(index)
        if link is not None:
            self.break_link(link)

    def cut(self, index: int, *, up: bool = True, down: bool = True) -> None:
        """Nothing goes these ways until healed."""
        before = self._cut.get(index, (False, False))
        self._cut[index] = (before[UP] or up, before[DOWN] or down)
        link = self._newest.get(index)
        if link is not None and not link.broken:
            link.cuts += 1
            self._notice_later(link)

    def heal(self, index: int) -> None:
        """What waited goes on, unless a side gave up meanwhile: then the other is told."""
        if self._cut.pop(index, None) is None:
            return
        link = self._newest.get(index)
        if link is None or link.broken:
            return
        link.cuts += 1
        for way in (UP, DOWN):
            waiting = link.waiting[way][:]
            link.waiting[way].clear()
            for message in waiting:
                self._carry(link, way, message)

    def coordinator_died(self, *, told: bool) -> None:
        """All its links with it; ``told``: its machine lives and resets them."""
        for link in list(self.links.values()):
            if link.open[UP]:
                self.close(link, DOWN, told=told)

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
                self._time.after(
                    self._chance.uniform(*self.habits.notice_s), self._notice, link, side, link.cuts
                )

    def _notice(self, link: Link, side: int, cuts: int) -> None:
        if not link.open[side] or (link.cuts != cuts and not link.broken):
            return
        if not link.broken and link.open[1 - side]:
            self.send(link, 1 - side, _FIN)
        self._end(link, side)

    def _end(self, link: Link, side: int) -> None:
        link.open[side] = False
        self._tidy(link)
        link.sides[side].closed(link)

    def _tidy(self, link: Link) -> None:
        if link.open == [False, False]:
            self.links.pop(link.session, None)
            if self._newest.get(link.index) is link:
                del self._newest[link.index]
