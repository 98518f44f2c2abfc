"""One order about hooks at forges, carried out: instances side by side, each one's repos one after another.

walk ─ lots ─▶ whom to ask ─┬─ nobody: counted, not read
                            └─ each host by itself: page ▶ repo ▶ act ▶ book
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from evermirror.edge.store.hook_registrations import HookedRepo, Lot
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError
from evermirror.model.repo import Host
from evermirror.nodes.coordinator.discovery.discovering_forges import OUR_MISTAKE, Patience
from evermirror.nodes.coordinator.hooks.registering_book import Book, Order, RegisterParts
from evermirror.nodes.coordinator.hooks.registering_lot import LotRun
from evermirror.nodes.coordinator.hooks.registering_walk import Walk
from evermirror.nodes.coordinator.hooks.registering_whom import LeftOut, Whom, whom_to_ask
from evermirror.nodes.hook_service import RegisterItem, RegisterRun

log = structlog.get_logger(__name__)

INSTANCES_AT_ONCE = 8
LIMIT_WAIT_MAX_S = 3_900.0  # GitHub's window is an hour
LIMIT_WAITS_S = 7 * 86_400.0  # in all, of one instance: an order about a million repos takes days


class Run:
    """``lots`` are those of ``walk``; ``bases`` are our public addresses, the present one first."""

    def __init__(
        self, order: Order, parts: RegisterParts, walk: Walk, lots: tuple[Lot, ...], bases: tuple[str, ...]
    ) -> None:
        self.order = order
        self.stopped_by = ""  # a person; "": by nobody
        self.cut_short = False  # by the database: worth to be gone on with
        self._book = Book(order, parts, sum(lot.count for lot in lots))
        self._parts = parts
        self._walk = walk
        self._lots = lots
        self._bases = bases

    @property
    def view(self) -> RegisterRun:
        return self._book.view

    @property
    def has_ended(self) -> bool:
        return self._book.ended_at is not None

    def end(self) -> None:
        self._book.ended_at = self._parts.clock()

    async def carry_out(self) -> None:
        try:
            await self._carry_out()
        except asyncio.CancelledError:
            by = self.stopped_by
            self._book.error = f"stopped by {by}" if by else "the server was stopped"
            raise
        finally:
            await self._book.close()

    async def _carry_out(self) -> None:
        try:
            await self._all_lots()
            await self._book.save()
        except* (FailureError, EvermirrorError) as group:  # the database's; forges' are counted
            self._book.error = _first_words(group)
            self.cut_short = True
            log.warning("an order about hooks was cut short", reason=self._book.error)
        except* Exception:
            self._book.error = OUR_MISTAKE
            log.exception("an order about hooks was cut short")

    async def _all_lots(self) -> None:
        asked: dict[Host, list[tuple[Lot, Whom]]] = {}
        for lot in self._lots:
            match whom_to_ask(lot, self.order.wish, self._parts.credentials.by_name):
                case LeftOut() as left:
                    await self._leave_out(lot, left)
                case Whom() as whom:
                    asked.setdefault(lot.host, []).append((lot, whom))
        turns = asyncio.Semaphore(INSTANCES_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for host, of_host in asked.items():
                group.create_task(self._host(host, of_host, turns))

    async def _leave_out(self, lot: Lot, left: LeftOut) -> None:
        """One is named where that is a problem, and all where the order named them."""
        named: tuple[HookedRepo, ...] = ()
        if left.problem or self.order.wish.repos:
            named = await self._book.patiently(lambda: self._walk.examples(lot))
        for repo in named:
            self._book.note(RegisterItem(repo.key, left.did, left.problem))
        self._book.count("not asked" if left.problem else left.did, lot.count - len(named))

    async def _host(self, host: Host, lots: Iterable[tuple[Lot, Whom]], turns: asyncio.Semaphore) -> None:
        def wait(seconds: float) -> None:
            self._book.wait(host, seconds)

        patience = Patience(wait, self._parts.sleep, LIMIT_WAITS_S, LIMIT_WAIT_MAX_S)
        async with turns:
            for lot, whom in lots:
                await LotRun(lot, whom, self._book, self._parts, patience, self._bases).carry_out(self._walk)


def _first_words(group: BaseExceptionGroup[BaseException]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.failure.message if isinstance(error, FailureError) else str(error)
