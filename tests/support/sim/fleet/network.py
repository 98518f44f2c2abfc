"""A network that is cut, heals and loses messages.

While a way is cut, messages wait; healed before anybody noticed, they arrive. A worker that is cut off cannot
connect. Ways can be cut in one direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from evermirror.sim.clock import VirtualTime
from evermirror.sim.fleet import network
from evermirror.sim.fleet.network import _FIN, DOWN, UP, Network, Side


@dataclass(frozen=True, slots=True)
class Habits(network.Habits):
    """How the network is on a common day."""

    breaks_per_message: float = 0.0


class CutLink(network.Link):
    __slots__ = ("cuts", "waiting")

    def __init__(self, session: int, index: int, sides: tuple[Side, Side]) -> None:
        super().__init__(session, index, sides)
        self.waiting: tuple[list[Any], list[Any]] = ([], [])  # held up by a cut
        self.cuts = 0  # grows with each cut and heal: what was planned for an earlier one is void


class RoughNetwork(Network):
    """``answers`` tells whether a coordinator listens."""

    link_type = CutLink

    def __init__(
        self,
        time: VirtualTime,
        chance: Random,
        habits: Habits,
        coordinator: Side,
        answers: Callable[[], bool],
    ) -> None:
        super().__init__(time, chance, habits, coordinator)
        self.sent = 0
        self._answers = answers
        self._cut: dict[int, tuple[bool, bool]] = {}
        self._newest: dict[int, CutLink] = {}

    def connect(self, index: int, worker: Side) -> CutLink | None:
        if index in self._cut or not self._answers():
            return None
        link = self._newest[index] = super().connect(index, worker)
        return link

    def calm(self) -> None:
        """From now on no link breaks by chance."""
        self.habits = replace(self.habits, breaks_per_message=0.0)

    def reachable(self, index: int) -> bool:
        """Through the relay, from elsewhere."""
        return index not in self._cut

    def send(self, link: CutLink, way: int, message: Any) -> None:
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

    def _notice_later(self, link: CutLink) -> None:
        for side in (UP, DOWN):
            if link.open[side]:
                self._time.after(
                    self._chance.uniform(*self.habits.notice_s), self._notice_cut, link, side, link.cuts
                )

    def _notice_cut(self, link: CutLink, side: int, cuts: int) -> None:
        if not link.open[side] or (link.cuts != cuts and not link.broken):
            return
        if not link.broken and link.open[1 - side]:
            self.send(link, 1 - side, _FIN)
        self._end(link, side)

    def _tidy(self, link: CutLink) -> None:
        super()._tidy(link)
        if link.open == [False, False] and self._newest.get(link.index) is link:
            del self._newest[link.index]
