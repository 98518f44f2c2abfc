"""Which first clones keep their coordinator waiting, and which do not.

The coordinator has a bounded number of first clones outstanding at each worker. Those count that can come to
something now: they have just been asked for, are being transferred, or wait for nothing but a git slot. All
others are *deferred*: the coordinator is told once, asks for others, and the worker begins them when it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.model.repo import RepoKey

DEFER_AFTER_S = 2.0  # a first clone whose upstream has not answered by then keeps no other waiting


class FirstClones:
    """``asked`` → ``deferred``, which names each at most once, or ``ended``."""

    __slots__ = ("_is_here", "_scheduler", "_since")

    def __init__(self, scheduler: Scheduler, is_here: Callable[[RepoKey], bool]) -> None:
        self._scheduler = scheduler
        self._is_here = is_here  # there is a mirror of it
        self._since: dict[RepoKey, float] = {}

    def asked(self, keys: Iterable[RepoKey], now: float) -> None:
        """The coordinator wants these mirrored here."""
        self._since.update((key, now) for key in keys if not self._is_here(key))

    def ended(self, key: RepoKey) -> None:
        """A report about it is on its way, which says as much; or it is not ours any more."""
        self._since.pop(key, None)

    def deferred(self, now: float) -> list[RepoKey]:
        """Those that nobody is to wait for any longer."""
        for key in [key for key in self._since if self._is_here(key)]:
            del self._since[key]
        deferred = [key for key, since in self._since.items() if self._is_deferred(key, since, now)]
        for key in deferred:
            del self._since[key]
        return deferred

    def _is_deferred(self, key: RepoKey, since: float, now: float) -> bool:
        if key not in self._scheduler or self._scheduler.is_cloning(key, now):
            return False  # it was assigned in chunks of which the last is not here yet; or it is under way
        return now - since >= DEFER_AFTER_S or not self._scheduler.can_begin(key, now)
