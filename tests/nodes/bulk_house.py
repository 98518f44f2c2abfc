"""A house that takes orders about many repos: a real coordinator and store, and a scripted worker."""

from __future__ import annotations

import asyncio
import contextlib

from evermirror.model.bulk import BulkAction, BulkFilter, BulkOrder, BulkWish
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from evermirror.model.url import UrlRules
from evermirror.nodes.bulk_service import BulkView
from evermirror.nodes.coordinator.bulk.acting import Acting
from evermirror.nodes.coordinator.bulk.bulk_orders import BulkOrders
from tests.nodes.pull_house import PullHouse

ALL = BulkFilter()


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


class BulkHouse(PullHouse):
    """``bulk`` is what people have. ``carrying``: whether orders are carried out by themselves."""

    carrying = True

    async def furnish(self) -> None:
        await super().furnish()
        self.acting = Acting(self.store, self.it, self.pulling, self.clock)
        self.bulk = BulkOrders(self.store, self.acting, UrlRules(), self.clock, at_once)
        await self.bulk.load()

    @contextlib.asynccontextmanager
    async def running(self, holds=()):
        async with super().running(holds):
            work = asyncio.create_task(self.bulk.run()) if self.carrying else None
            try:
                yield self
                assert work is None or not work.done(), work
            finally:
                if work is not None:
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)

    async def have(self, *names: str, source: str = "api") -> list[RepoKey]:
        """Repos that the fleet knows."""
        records = [record(name, source) for name in names]
        await self.store.upsert_repos(records)
        await self.it.assign(records)
        return [one.key for one in records]

    async def order(self, action: BulkAction, *keys: str, which=None, expected=None, **more) -> BulkView:
        wish = BulkWish(action, keys=keys, filter=None if keys else which or ALL, **more)
        return await self.bulk.order(wish, expected, actor="me")

    async def ordered(self, action: BulkAction, *keys: str, **more) -> BulkOrder:
        """To its end."""
        return await self.ended((await self.order(action, *keys, **more)).order.id)

    async def ended(self, order_id) -> BulkOrder:
        async with asyncio.timeout(20):
            while True:
                order = (await self.bulk.find(order_id)).order
                if order.has_ended:
                    return order
                await asyncio.sleep(0.002)

    async def step(self, *, again: bool = False) -> None:
        """One chunk of the order under way, by hand."""
        await self.bulk._step(next(iter(self.bulk._line)), again=again)

    async def actions(self, limit=100) -> list[tuple[str, str]]:
        """Of the audit log, newest first."""
        return [(entry.action, entry.subject) for entry in await self.store.list_audit(limit)]


def record(name: str, source: str = "api") -> RepoRecord:
    return RepoRecord(
        RepoSpec(RepoKey(f"h.org/{name}"), f"https://h.org/{name}", Host("h.org")), source=source
    )
