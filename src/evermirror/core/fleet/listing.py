"""The catalog's side of the tables: repos that come, change, leave and are forgotten; and what the witness
holds.

    unknown ──put──▶ listed ──removed──▶ REMOVED ──forgotten──▶ unknown
                       ▲                    │
                       └────────put─────────┘

A repo that is REMOVED is known: a worker that comes back with it is told to delete it. One that is
forgotten is as unknown as any other key: it would be left alone as a stray.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.copies import UNWANTED
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import CatalogRepo, HeldCopy
from evermirror.core.fleet.handover import Handover
from evermirror.core.fleet.rebalance import Rebalancer
from evermirror.core.fleet.table import CHECKED, NO_ROOM, PINNED, REMOVED, URGENT, FleetTable
from evermirror.model.repo import RepoKey


class Listing:
    """Which repos there are."""

    def __init__(self, replicas: int, table: FleetTable, rebalancer: Rebalancer, handover: Handover) -> None:
        self._replicas = replicas
        self._table = table
        self._rebalancer = rebalancer
        self._handover = handover

    def put(self, repos: Sequence[CatalogRepo]) -> NDArray[np.int32]:
        """New ones, and changed ones; their rows."""
        rows = self._table.put_repos(
            [r.key for r in repos],
            [r.trusted_only for r in repos],
            [self._replicas if r.replicas is None else r.replicas for r in repos],
        )
        flags, pins = self._table.one.flags, self._rebalancer.pins
        for row, repo in zip(rows.tolist(), repos, strict=True):
            if repo.pins:
                pins[row] = repo.pins
                flags[row] |= PINNED
            elif flags[row] & PINNED:
                del pins[row]
                flags[row] &= 0xFF ^ PINNED
            flags[row] = (flags[row] & (0xFF ^ URGENT)) | (URGENT if repo.urgent else 0)
        return rows

    def remove(self, keys: Iterable[RepoKey], draft: Draft) -> None:
        """They left the catalog: wanted nowhere."""
        one = self._table.one
        for key in keys:
            row = self._table.row_of(key)
            if row < 0 or one.flags[row] & REMOVED:
                continue
            self._table.remove(row)
            self._clear(row)
            for c in self._table.copies_of(row):
                if one.c_rank[c] != UNWANTED:
                    one.c_rank[c] = UNWANTED
                    draft.copy_changed(row, one.c_worker[c])
            draft.touched[row] = None

    def forget(self, keys: Iterable[RepoKey], draft: Draft) -> list[int]:
        """Removed long ago; whatever still lies on a worker that is away becomes a stray. Their rows, now
        free."""
        gone = []
        for key in keys:
            row = self._table.row_of(key)
            if row < 0 or not self._table.one.flags[row] & REMOVED:
                continue
            for c in self._table.copies_of(row):
                self._handover.drop(row, c, draft)
            self._table.forget(row)
            draft.touched.pop(row, None)
            gone.append(row)
        return gone

    def restore_removed(self, keys: Iterable[RepoKey]) -> None:
        """Whether they were private is not known: then they were."""
        keys = list(keys)
        if keys:
            for row in self._table.put_repos(keys, [True] * len(keys), [1] * len(keys)).tolist():
                self._table.remove(row)

    def _clear(self, row: int) -> None:
        flags = self._table.one.flags
        if flags[row] & NO_ROOM:
            flags[row] &= 0xFF ^ NO_ROOM
            self._rebalancer.no_room -= 1
        if flags[row] & PINNED:
            flags[row] &= 0xFF ^ PINNED
            del self._rebalancer.pins[row]

    # The witness

    def witnessed(self, copies: Iterable[HeldCopy], draft: Draft) -> None:
        one = self._table.one
        for held in copies:
            row = self._table.row_of(held.key)
            if row >= 0:
                one.witness[row] = held.digest
                one.flags[row] |= CHECKED
                if any(one.c_rank[c] == UNWANTED for c in self._table.copies_of(row)):
                    draft.touched[row] = None

    def unwitnessed(self, keys: Iterable[RepoKey] | None) -> None:
        if keys is None:
            self._table.witness[:] = 0
            return
        for key in keys:
            row = self._table.row_of(key)
            if row >= 0:
                self._table.one.witness[row] = 0
