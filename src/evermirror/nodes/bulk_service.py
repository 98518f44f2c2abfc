"""What the faces may ask about orders that are about many repos at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from evermirror.model.bulk import BulkId, BulkOrder, BulkWish


@dataclass(frozen=True, slots=True)
class BulkView:
    """An order, and how many are carried out before it begins; 0: it is under way, or has ended."""

    order: BulkOrder
    ahead: int = 0


class BulkService(Protocol):
    async def count(self, wish: BulkWish, expected: int | None = None) -> int:
        """How many repos it is about, and would be accepted for. ``UsageError`` for a wish that cannot be
        meant, or is about too many; ``NotFound`` for a key that is not in the catalog; ``Conflict`` where
        another count was expected."""
        ...

    async def order(self, wish: BulkWish, expected: int | None, *, actor: str) -> BulkView:
        """On the disk when this returns, and carried out one after another. As ``count``; ``Conflict`` also
        where too many wait."""
        ...

    async def find(self, order_id: BulkId) -> BulkView:
        """``NotFound`` for one that is too long ago."""
        ...

    async def newest(self, limit: int) -> tuple[BulkView, ...]: ...

    async def stop(self, order_id: BulkId, *, actor: str) -> BulkView:
        """Before its next chunk; what it did stays done. One that has ended stays as it is."""
        ...
