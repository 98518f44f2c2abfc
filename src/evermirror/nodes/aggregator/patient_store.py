"""An aggregator's file as the one who collects needs it: what fails is tried again, since nothing can be
decided without it.

Writes are tried until the disk takes them. A file that cannot be read for minutes will not heal: the node is
made anew, and its start moves a damaged file aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

import structlog

from evermirror.core.collect.decisions import Write
from evermirror.core.collect.events import Cursor, Unused
from evermirror.core.collect.rows import Row
from evermirror.edge.store.collected import Collected
from evermirror.model.failure import FailureError
from evermirror.model.repo import RepoKey

log = structlog.get_logger(__name__)

T = TypeVar("T")

AGAIN_S = 5.0
READS_MAX = 60  # in a row: five minutes


class FileUnreadable(Exception):
    """The file cannot be read for minutes."""


class PatientStore:
    """See ``Collected`` for what each gives."""

    def __init__(self, store: Collected) -> None:
        self._store = store

    async def write(self, writes: Sequence[Write], since: int | None) -> list[RepoKey]:
        """Nothing goes on before the disk took it: what was decided builds on it."""
        while True:
            try:
                return await self._store.write(writes, since)
            except FailureError as error:
                log.error("the disk takes no writes; waiting", reason=error.failure.message, alert=True)
                await asyncio.sleep(AGAIN_S)

    async def row_of(self, key: RepoKey) -> Row | None:
        return await self._read(lambda: self._store.row_of(key))

    async def rows_of(self, keys: Collection[RepoKey]) -> dict[RepoKey, Row]:
        return await self._read(lambda: self._store.rows_of(keys))

    async def pending(self, after: Cursor | None, limit: int, *, first: bool) -> list[Row]:
        return await self._read(lambda: self._store.pending(after, limit, first=first))

    async def audited(self, share: float, *, first: bool = False) -> Row | None:
        return await self._read(lambda: self._store.audited(share, first=first))

    async def least_used(self, limit: int, read: Collection[RepoKey]) -> tuple[Unused, ...]:
        return await self._read(lambda: self._store.least_used(limit, read))

    async def _read(self, read: Callable[[], Awaitable[T]]) -> T:
        for _ in range(READS_MAX - 1):
            try:
                return await read()
            except FailureError as error:
                log.error("the file cannot be read; waiting", reason=error.failure.message, alert=True)
                await asyncio.sleep(AGAIN_S)
        try:
            return await read()
        except FailureError as error:
            raise FileUnreadable(error.failure.message) from error
