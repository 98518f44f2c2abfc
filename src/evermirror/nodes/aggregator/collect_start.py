"""An aggregator's start: what its file says and what is on its disk are made to agree, in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import structlog

from evermirror.core.collect.decisions import PutRow
from evermirror.core.collect.rows import Row
from evermirror.core.collect.settings import CollectMode
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.store.collected import Collected
from evermirror.model.repo import RepoKey

log = structlog.get_logger(__name__)

PART = 1_000  # rows at a time


async def agree_with_disk(store: Collected, mirrors: Mirrors, mode: CollectMode, now: float) -> None:
    """Before anything is served. A mirror that is gone is fetched again; one that nobody knows goes to the
    trash, unless the file was lost: then all are unknown, and of use once the coordinator has told them."""
    await mirrors.tidy()
    lost = await _fetch_lost_again(store, mirrors, mode, now)
    left = 0 if store.rebuilt else await _remove_unknown(store, mirrors, mode)
    if lost or left:
        log.warning("file and disk did not agree", mirrors_lost=lost, mirrors_removed=left)


async def _fetch_lost_again(store: Collected, mirrors: Mirrors, mode: CollectMode, now: float) -> int:
    count, after = 0, None
    while rows := await store.here_after(after, PART):
        after = rows[-1].key
        lost = set(await asyncio.to_thread(without_mirror, mirrors, rows))
        place = now if mode is CollectMode.FULL else None
        gone = [replace(row, here=None, taken=None, place=place) for row in rows if row.key in lost]
        await store.write([PutRow(row) for row in gone])
        count += len(lost)
    return count


def without_mirror(mirrors: Mirrors, rows: list[Row]) -> list[RepoKey]:
    """Those whose mirror is not on the disk."""
    return [row.key for row in rows if not mirrors.path(row.key).is_dir()]


async def _remove_unknown(store: Collected, mirrors: Mirrors, mode: CollectMode) -> int:
    """We were killed between a fetch and its row, or in the midst of an eviction. What is to be fetched
    anyway is left for that."""
    count = 0
    for keys in _parts(await mirrors.held()):
        rows = await store.rows_of(keys)
        for key in keys:
            row = rows.get(key)
            if row is None or (row.here is None and mode is CollectMode.PULL_THROUGH):
                await mirrors.discard(key, for_good=row is not None)
                count += 1
    return count


def _parts(keys: Iterable[RepoKey]) -> Iterator[list[RepoKey]]:
    rest = iter(keys)
    while part := list(islice(rest, PART)):
        yield part
