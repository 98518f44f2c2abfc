"""Orders about many repos, in memory: counted by the real rules, and never carried out."""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.bulk.admission import check_count, check_wish
from evermirror.errors import NotFound
from evermirror.model.bulk import BulkId, BulkOrder, BulkStatus
from evermirror.nodes.bulk_service import BulkView


class FakeBulk:
    """``matches`` is what every filter finds; ``explode`` is raised in place of an order."""

    def __init__(self, matches=12):
        self.matches = matches
        self.asked = []
        self.orders = {}
        self.explode = None

    async def count(self, wish, expected=None):
        check_wish(wish)
        matched = self.matches if wish.filter is not None else len(wish.keys)
        check_count(wish, matched, expected)
        return matched

    async def order(self, wish, expected, *, actor):
        self.asked.append((wish, expected, actor))
        if self.explode is not None:
            raise self.explode
        matched = await self.count(wish, expected)
        order = BulkOrder(BulkId(len(self.orders) + 1), wish, actor, matched, 1.0, 2.0)
        self.orders[order.id] = replace(
            order, done=3, unchanged=1, failed=1, first_error="a/b \udc80 is paused"
        )
        return BulkView(order, ahead=len(self.orders) - 1)

    async def find(self, order_id):
        if order_id not in self.orders:
            raise NotFound(f"there is no order {order_id}")
        return BulkView(self.orders[order_id])

    async def newest(self, limit):
        return tuple(BulkView(order) for order in reversed(self.orders.values()))[:limit]

    async def stop(self, order_id, *, actor):
        order = (await self.find(order_id)).order
        self.orders[order_id] = replace(order, status=BulkStatus.STOPPED)
        return await self.find(order_id)
