"""Orders about many repos: one is carried out, the others wait in line. Implements ``BulkService``.

    order: checked, counted ──▶ on the disk, audit log ──▶ in line ──▶ chunk after chunk, each on the disk
    a start: what is on the disk and has not ended is in line again, and goes on where it was

Between two chunks it rests half as long as the last one took: a third of the time is others' alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from evermirror.core.bulk.admission import check_count, check_line, check_wish
from evermirror.core.bulk.course import CHUNK, CONFIGURED, CONFIGURING, ended, handled, next_named, taken
from evermirror.edge.store.store import Store
from evermirror.edge.store.whole import whole
from evermirror.errors import InvalidUrl, NotFound, Unavailable
from evermirror.model.bulk import BulkFilter, BulkId, BulkOrder, BulkStatus, BulkWish
from evermirror.model.failure import FailureError
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules, parse_url
from evermirror.nodes.bulk_service import BulkView
from evermirror.nodes.coordinator.bulk.acting import Acting
from evermirror.nodes.coordinator.tasks.submission import is_url
from evermirror.nodes.service import RepoFilter

log = structlog.get_logger(__name__)

REST_SHARE = 0.5  # of the time that a chunk took
REST_MIN_S = 0.005
REST_MAX_S = 2.0
AGAIN_FIRST_S = 1.0  # after the database took something not
AGAIN_MAX_S = 60.0
STOP_WAIT_S = 10.0  # for the end of a chunk
KEYS_NOTED = 20  # in the audit log
OUR_MISTAKE = "a mistake of ours cut it short: the server's log has it"


class BulkOrders:
    """``load``, then ``run`` beside the coordinator."""

    def __init__(
        self,
        store: Store,
        acting: Acting,
        rules: UrlRules,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._acting = acting
        self._rules = rules
        self._clock = clock
        self._sleep = sleep
        self._line: dict[BulkId, BulkOrder] = {}  # in their order; the first is under way
        self._over: dict[BulkId, asyncio.Event] = {}
        self._cut: dict[BulkId, tuple[BulkStatus, str]] = {}  # to be ended so, before all is done
        self._ordering = asyncio.Lock()
        self._poke = asyncio.Event()
        self._hurry = asyncio.Event()  # the one under way is to be stopped: no rest is waited for

    # Life

    async def load(self) -> None:
        """What a stop cut short goes on with ``run``."""
        for order in await self._store.open_bulk():
            self._enter(order)

    async def run(self) -> None:
        """Until cancelled. Called again, it goes on with the first order in line, where the store has it."""
        while True:
            self._poke.clear()
            while self._line:
                await self._carried_out(next(iter(self._line)))
            await self._poke.wait()

    def _enter(self, order: BulkOrder) -> None:
        self._line[order.id] = order
        self._over[order.id] = asyncio.Event()
        self._poke.set()

    # What people order and ask

    async def count(self, wish: BulkWish, expected: int | None = None) -> int:
        return (await self._counted(wish, expected))[1]

    async def order(self, wish: BulkWish, expected: int | None, *, actor: str) -> BulkView:
        return self._view(await whole(self._ordered(wish, expected, actor)))

    async def _ordered(self, wish: BulkWish, expected: int | None, actor: str) -> BulkOrder:
        """Not cut by a caller who goes away: what is on the disk is in line."""
        async with self._ordering:
            check_line(max(0, len(self._line) - 1))
            wish, matched = await self._counted(wish, expected)
            order = await self._store.create_bulk(wish, actor, matched, _noted(wish, matched))
            self._enter(order)
        return order

    async def find(self, order_id: BulkId) -> BulkView:
        order = self._line.get(order_id) or await self._store.find_bulk(order_id)
        if order is None:
            raise NotFound(f"there is no order {order_id}", hint="Orders are forgotten after 30 days")
        return self._view(order)

    async def newest(self, limit: int) -> tuple[BulkView, ...]:
        found = await self._store.list_bulk(limit)
        return tuple(self._view(self._line.get(order.id, order)) for order in found)

    async def stop(self, order_id: BulkId, *, actor: str) -> BulkView:
        view, over = await self.find(order_id), self._over.get(order_id)
        if over is None:
            return view
        await self._store.audit(actor, "bulk.stopped", str(order_id))
        if order_id in self._line:
            self._cut.setdefault(order_id, (BulkStatus.STOPPED, ""))
            if order_id == next(iter(self._line)):
                self._hurry.set()
            else:
                await self._cut_short(order_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_WAIT_S):
                await over.wait()
        return await self.find(order_id)

    # Inside

    def _view(self, order: BulkOrder) -> BulkView:
        ahead = list(self._line).index(order.id) if order.id in self._line else 0
        return BulkView(order, ahead)

    async def _counted(self, wish: BulkWish, expected: int | None) -> tuple[BulkWish, int]:
        """With the keys of those that are named, in any spelling; and how many it is about."""
        check_wish(wish)
        if wish.filter is not None:
            matched = await self._store.count_repos(_filter(wish.filter, None))
        else:
            wish = BulkWish(wish.action, keys=await self._keys(wish.keys), priority=wish.priority)
            matched = len(wish.keys)
        check_count(wish, matched, expected)
        return wish, matched

    async def _keys(self, names: tuple[str, ...]) -> tuple[RepoKey, ...]:
        plain = {name: self._plain(name) for name in names}
        known = await self._store.find_named(one for one in plain.values() if one)
        for name, one in plain.items():
            if one not in known:
                raise NotFound(
                    f"{name!r} is not in the catalog: nothing was done", hint="Add it, or leave it out"
                )
        return tuple(sorted({known[one].key for one in plain.values()}))

    def _plain(self, name: str) -> str:
        """A key or an alias; empty where it is none."""
        if not is_url(name):
            return name.rstrip("/").removesuffix(".git")
        try:
            return parse_url(name, self._rules).key
        except InvalidUrl:
            return ""

    async def _carried_out(self, order_id: BulkId) -> None:
        """To its end, or what a person or a mistake of ours makes of it."""
        pause_s = AGAIN_FIRST_S
        again = bool(self._line[order_id].working)
        while order_id in self._line:
            began = asyncio.get_running_loop().time()
            try:
                await self._step(order_id, again=again)
            except (FailureError, Unavailable) as error:  # the database's
                log.warning("an order about many repos waits", order=order_id, reason=str(error))
            except Exception:
                log.exception("an order about many repos is cut short", order=order_id)
                self._cut[order_id] = (BulkStatus.FAILED, OUR_MISTAKE)
            else:
                again, pause_s = False, AGAIN_FIRST_S
                took_s = asyncio.get_running_loop().time() - began
                await self._rest(min(REST_MAX_S, max(REST_MIN_S, REST_SHARE * took_s)))
                continue
            again = True
            await self._rest(pause_s)
            pause_s = min(AGAIN_MAX_S, pause_s * 2)

    async def _rest(self, seconds: float) -> None:
        """So long, or until somebody wants it stopped."""
        both = asyncio.ensure_future(self._sleep(seconds)), asyncio.create_task(self._hurry.wait())
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            self._hurry.clear()

    async def _step(self, order_id: BulkId, *, again: bool) -> None:
        """One chunk: acted on, and the next one taken; or the order's end."""
        if order_id in self._cut:
            await self._cut_short(order_id)
            return
        order = self._line[order_id]
        if order.working:
            order = handled(order, await self._acting.act(order, again=again))
        await self._save(taken(order, await self._next(order), self._clock()))

    async def _cut_short(self, order_id: BulkId) -> None:
        status, error = self._cut[order_id]
        if (order := self._line.get(order_id)) is not None:
            await self._save(ended(order, status, self._clock(), error))

    async def _next(self, order: BulkOrder) -> tuple[RepoKey, ...]:
        if order.wish.filter is None:
            return next_named(order.wish, order.cursor)
        limit = CONFIGURED if order.wish.action in CONFIGURING else CHUNK
        return await self._store.keys_of(_filter(order.wish.filter, order.cursor, limit))

    async def _save(self, order: BulkOrder) -> None:
        """On the disk first."""
        await self._store.save_bulk(order)
        if order.has_ended:
            self._line.pop(order.id, None)
            self._cut.pop(order.id, None)
            self._acting.over(order)
            if (over := self._over.pop(order.id, None)) is not None:
                over.set()
            log.info(
                "an order about many repos ended",
                order=order.id,
                action=order.wish.action.value,
                status=order.status.value,
                done=order.done,
                failed=order.failed,
            )
        else:
            self._line[order.id] = order


def _filter(which: BulkFilter, after: RepoKey | None, limit: int = CHUNK) -> RepoFilter:
    return RepoFilter(
        search=which.search,
        status=which.status,
        host=which.host,
        priority=which.priority,
        worker=which.worker,
        failure=which.failure,
        after=after,
        limit=limit,
    )


def _noted(wish: BulkWish, matched: int) -> dict[str, object]:
    """For the audit log."""
    noted: dict[str, object] = {"repos": matched}
    if wish.priority is not None:
        noted["priority"] = wish.priority.value
    if wish.filter is None:
        return {**noted, "keys": list(wish.keys[:KEYS_NOTED])}
    said = {
        "search": wish.filter.search,
        "status": wish.filter.status and wish.filter.status.value,
        "host": wish.filter.host,
        "priority": wish.filter.priority and wish.filter.priority.value,
        "worker": wish.filter.worker,
        "failure": wish.filter.failure and wish.filter.failure.value,
    }
    return {**noted, "filter": {name: value for name, value in said.items() if value}}
