"""Repos on their way into queues, out of them, and from one host's to another's; what that means for hosts.

placement.py says where in a queue, board.py which host is asked next: whatever moves a repo settles the hosts
that it concerns, here.
"""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.schedule.board import Board
from evermirror.core.schedule.detours import Detour
from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.placement import Placement
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.registry import Registry
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.slots import SyncSlots
from evermirror.model.repo import Host


class Standing:
    """``settings`` and ``placement`` are those in force; ``clock`` is virtual time over all hosts: where the
    last poll in its turn stood."""

    __slots__ = ("_board", "_known", "_requests", "_slots", "clock", "placement", "settings")

    def __init__(
        self,
        settings: ScheduleSettings,
        placement: Placement,
        board: Board,
        known: Registry,
        slots: SyncSlots,
    ) -> None:
        self.settings = settings
        self.placement = placement
        self.clock = 0.0
        self._board = board
        self._known = known
        self._slots = slots
        self._requests = 0

    # One repo

    def ask(self, repo: Tracked, host: HostState) -> None:
        """Somebody wants it looked at, after all who asked before."""
        self._requests += 1
        host.queue.ask(repo, self._requests)

    def requeue(self, repo: Tracked, host: HostState, now: float, *, keeps_turn: bool = False) -> None:
        """Its poll or sync ended: it waits again, or is forgotten."""
        repo.phase = Phase.WAITING
        repo.urgent = False
        if not repo.again:
            repo.rank_asked = None
        if repo.gone:
            self.forget(repo)
            self.settle({*self.bound_gaps(), host.name}, now)
        else:
            self.placement.after_poll(repo, host, now, keeps_turn=keeps_turn)
            if repo.again:
                repo.again = False
                self.ask(repo, host)
            self._board.settle(host, now)

    def at_once(self, repo: Tracked, now: float) -> None:
        """One that waits is due now."""
        if repo.phase is Phase.WAITING:
            host = self._known.host_of(repo)
            self.placement.at_once(repo, host, now)
            self._board.settle(host, now)

    def forget(self, repo: Tracked) -> None:
        self.placement.shares.drop(repo, self._known.host_of(repo))
        self._known.forget(repo)

    # Other addresses

    def relocate(self, repo: Tracked, detour: Detour | None, now: float) -> tuple[Tracked, HostState]:
        """The repo is asked elsewhere from now on; it stands in no queue yet."""
        old = self._known.host_of(repo)
        self.placement.shares.drop(repo, old)
        moved = self._known.move(repo, detour, self.settings, self.clock)
        self.settle({*self.bound_gaps(), old.name}, now)
        return moved, self._known.host_of(moved)

    def send(self, repo: Tracked, detour: Detour, now: float, *, at_once: bool = True) -> None:
        """The repo stands in another host's queue: at its front, or where its last poll puts it."""
        asked = repo.urgent or repo.again or repo.request > 0
        moved, host = self.relocate(repo, detour, now)
        moved.phase, moved.urgent, moved.again = Phase.WAITING, False, False
        self.placement.arrive([(moved, host)], now)
        if at_once:
            self.placement.at_once(moved, host, now)
        if asked:
            self.ask(moved, host)
        self._board.settle(host, now)

    # Hosts

    def bound_gaps(self) -> Iterable[Host]:
        """Those whose max gap moved, as budgets are shared by more repos now, or by fewer."""
        return self._known.bound_gaps(self.settings) if self.settings.max_gap_s is not None else ()

    def settle(self, names: Iterable[Host], now: float) -> None:
        """Something about these changed."""
        for name in names:
            host = self._known.hosts.get(name)
            if host is not None:
                self._board.settle(host, now)
        self.settle_touched(now)

    def settle_touched(self, now: float) -> None:
        """Hosts whose connections the git slots took or gave back."""
        while self._slots.touched:
            host = self._known.hosts.get(self._slots.touched.pop())
            if host is not None:
                self._board.settle(host, now)
