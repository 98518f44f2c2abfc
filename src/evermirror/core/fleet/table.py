"""All repos and their copies, in columns: no Python object for any of them, as there are a million.

A *repo* is a row; a *copy* is a repo on a worker, and has a number of its own. What is known of them stands
in arrays; a repo's copies are a linked list through ``first`` and ``c_next``:

    row      0   1   2             copy      0   1   2   3
    first    1  -1   3             c_row     2   0  -1   2     copy 2 is free
                                   c_next   -1  -1  -1   0     repo 2 has copies 3 and 0

Rules
- At most one copy of a repo on a worker.
- Columns are plain: who owns the table writes into them. Only the flags LIVE and REMOVED, ``first``,
  ``c_row``, ``c_worker`` and ``c_next`` are left to the methods here.
- A column is replaced when it grows: nobody keeps one across ``put_repos``, ``add_copy`` or ``add_copies``.
- ``table.c_rank`` is for many at once. ``table.one.c_rank[c]`` is the same memory for one: it gives and takes
  plain ints, several times as fast. ``table.one`` itself may be kept.
- A free row has no flags; a free copy has the worker NOBODY.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.columns import (
    CAPACITY_MIN,
    COPY_COLUMNS,
    REPO_COLUMNS,
    Cells,
    Kinds,
    put_few,
    wider,
)
from evermirror.core.fleet.copies import NOBODY, PROOF, UNWANTED, CopyState, Reason
from evermirror.core.fleet.keyindex import BATCH, KeyIndex
from evermirror.core.fleet.letters import Letters, LettersLost
from evermirror.model.repo import RepoKey

__all__ = [
    "CHECKED",
    "LIVE",
    "NOBODY",
    "NONE",
    "NO_ROOM",
    "PINNED",
    "REMOVED",
    "REPLICAS_MAX",
    "SALTS",
    "TRUSTED_ONLY",
    "UNWANTED",
    "URGENT",
    "CopyState",
    "FleetTable",
    "Reason",
]

# Flags of a repo
LIVE = 1  # the row is in use
REMOVED = 2  # left the catalog; its copies go
TRUSTED_ONLY = 4  # only trusted workers may hold it
NO_ROOM = 8  # has fewer copies than it should: nobody could take them
PINNED = 16  # people named workers for it
URGENT = 32  # of a high priority: its first clone goes before others
CHECKED = 64  # an aggregator fetched it, and the same workers hold it since (proofs.py)

NONE = -1  # no such row, no such copy
REPLICAS_MAX = PROOF  # ranks are one byte
SALTS = 256  # one byte; beyond it the walk begins at its first place again


class FleetTable:
    """``rows`` and ``copies`` tell how far the columns are in use, free ones in between included."""

    __slots__ = ("_free", "_keys", "_listed", "copies", "hash", "one", *REPO_COLUMNS, *COPY_COLUMNS)

    hash: NDArray[np.uint64]  # of the key
    salt: NDArray[np.uint8]  # how often it was handed back
    flags: NDArray[np.uint8]
    replicas: NDArray[np.uint8]  # copies it should have
    witness: NDArray[np.uint64]  # digest of what the aggregator holds; 0: nothing
    first: NDArray[np.int32]  # of its copies

    c_row: NDArray[np.int32]
    c_worker: NDArray[np.uint16]
    c_rank: NDArray[np.uint8]  # 0 first; UNWANTED
    c_state: NDArray[np.uint8]  # CopyState
    c_reason: NDArray[np.uint8]  # Reason
    c_primary: NDArray[np.uint8]  # 1: told that it is the primary
    c_digest: NDArray[np.uint64]  # of what is held; 0: not known
    c_verified: NDArray[np.uint32]  # UTC seconds
    c_since: NDArray[np.uint32]  # UTC seconds, of its state
    c_next: NDArray[np.int32]  # copy of the same repo

    def __init__(self, letters: Letters | None = None) -> None:
        """``letters``: where those of the keys are kept; in memory where nothing is said."""
        self.one = Cells()
        self.copies = 0
        self._keys = KeyIndex(letters)
        self._listed = 0
        self._free = array("i")  # numbers of dropped copies
        for name, kind in (REPO_COLUMNS | COPY_COLUMNS).items():
            self._set(name, np.zeros(CAPACITY_MIN, kind))
        self._set("hash", self._keys.hash)

    def __len__(self) -> int:
        """Repos of the catalog."""
        return self._listed

    @property
    def rows(self) -> int:
        return self._keys.rows

    @property
    def nbytes(self) -> int:
        columns = sum(getattr(self, name).nbytes for name in REPO_COLUMNS | COPY_COLUMNS)
        return int(columns) + self._keys.nbytes + self._free.itemsize * len(self._free)

    def reserve(self, rows: int, copies: int) -> None:
        """Room for so many in all, at once: growing by steps leaves gaps between the columns in memory."""
        self._keys.reserve(rows)
        if rows > len(self.flags):
            self._grow(REPO_COLUMNS, rows)
        if copies > len(self.c_row):
            self._grow(COPY_COLUMNS, copies)
        self._set("hash", self._keys.hash)

    # Repos

    def put_repos(
        self,
        keys: Sequence[str],
        trusted_only: Sequence[bool] | NDArray[np.bool_],
        replicas: Sequence[int] | NDArray[np.integer[Any]],
    ) -> NDArray[np.int32]:
        """Known keys keep their row, salt and copies, and are in the catalog again if they had left it."""
        trusted, wanted = np.asarray(trusted_only, np.bool_), np.asarray(replicas, np.int64)
        if not len(keys) == len(trusted) == len(wanted):
            raise ValueError(f"{len(keys)} keys, {len(trusted)} flags and {len(wanted)} replicas")
        if len(keys) and not 0 <= wanted.min() <= wanted.max() <= REPLICAS_MAX:
            raise ValueError(f"replicas are from {wanted.min()} to {wanted.max()}; at most {REPLICAS_MAX}")
        if not self.rows:
            self.reserve(len(keys), 0)
        rows = np.empty(len(keys), np.int32)
        for begin in range(0, len(keys), BATCH):
            part = slice(begin, begin + BATCH)
            rows[part] = self._put_batch(keys[part], trusted[part], wanted[part])
        return rows

    def _put_batch(
        self, keys: Sequence[str], trusted: NDArray[np.bool_], wanted: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        ever = self._keys.rows
        rows, fresh = self._keys.put(keys)
        if self._keys.rows > len(self.flags):
            self._grow(REPO_COLUMNS, self._keys.rows)
        if self.hash is not self._keys.hash:
            self._set("hash", self._keys.hash)
        back = rows[(self.flags[rows] & REMOVED) != 0]
        self._listed += len(fresh) + len(np.unique(back))
        self.flags[fresh] = LIVE
        self.first[fresh] = NONE
        again = fresh[fresh < ever]  # others never were anything but 0, and take no memory until they are
        self.salt[again] = 0
        self.witness[again] = 0
        kept = self.flags[rows] & np.uint8(0xFF & ~(REMOVED | TRUSTED_ONLY))
        self.flags[rows] = kept | np.where(trusted, np.uint8(TRUSTED_ONLY), np.uint8(0))
        self.replicas[rows] = wanted
        return rows

    def row_of(self, key: str) -> int:
        """NONE where the key is not known."""
        return self._keys.row_of(key)

    def rows_of(self, keys: Sequence[str]) -> NDArray[np.int32]:
        return self._keys.rows_of(keys)

    def key_of(self, row: int) -> RepoKey:
        return self._keys.key_of(row)

    def keys_of(self, rows: Sequence[int] | NDArray[np.int32]) -> list[RepoKey]:
        return self._keys.keys_of(np.asarray(rows, np.int32))

    @property
    def lost(self) -> LettersLost | None:
        """Why its keys can no longer be told, where that is so."""
        return self._keys.lost

    def heads_of(self, rows: NDArray[np.int32], most: int) -> NDArray[np.uint8]:
        """The first letters of their keys; zeros behind the end of a shorter one."""
        return self._keys.heads_of(rows, most)

    def remove(self, row: int) -> None:
        """It left the catalog; its copies are still known."""
        if self.one.flags[row] & (LIVE | REMOVED) == LIVE:
            self.one.flags[row] |= REMOVED
            self._listed -= 1

    def forget(self, row: int) -> None:
        """Its key is unknown from here on; another repo may get its row."""
        flags = self.one.flags[row]
        if not flags & LIVE:
            raise ValueError(f"row {row} is free")
        if self.one.first[row] != NONE:
            raise ValueError(f"{self.key_of(row)} still has copies")
        self._listed -= not flags & REMOVED
        self.one.flags[row] = 0
        self._keys.forget(row)

    def catalog_rows(self) -> NDArray[np.int32]:
        """Repos of the catalog, in order of their rows."""
        listed = (self.flags[: self.rows] & (LIVE | REMOVED)) == LIVE
        return np.flatnonzero(listed).astype(np.int32)

    # Copies

    def add_copy(
        self, row: int, worker: int, rank: int, state: CopyState, reason: Reason, since_s: float
    ) -> int:
        if not self.one.flags[row] & LIVE:
            raise ValueError(f"row {row} is free")
        if self.find_copy(row, worker) != NONE:
            raise ValueError(f"worker {worker} has a copy of {self.key_of(row)} already")
        if self._free:
            c = self._free.pop()
        else:
            c = self.copies
            if c == len(self.c_row):
                self._grow(COPY_COLUMNS, c + 1)
            self.copies += 1
        one = self.one
        one.c_row[c] = row
        one.c_worker[c] = worker
        one.c_rank[c] = rank
        one.c_state[c] = state
        one.c_reason[c] = reason
        one.c_primary[c] = 0
        one.c_digest[c] = 0
        one.c_verified[c] = 0
        one.c_since[c] = int(since_s)
        one.c_next[c] = one.first[row]
        one.first[row] = c
        return c

    def add_copies(
        self,
        rows: NDArray[np.int32],
        workers: NDArray[np.uint16],
        ranks: NDArray[np.uint8],
        reasons: NDArray[np.uint8],
        state: CopyState,
        since_s: float,
    ) -> NDArray[np.int32]:
        """Very many: a repo may be there several times, with several workers."""
        order = np.lexsort((workers, rows))
        self._check_new(rows[order], workers[order])
        ever = self.copies
        new = self._take_copies(len(rows))
        self.c_row[new] = rows
        self.c_worker[new] = workers
        put_few(self.c_rank, new, ranks)
        self.c_state[new] = state
        put_few(self.c_reason, new, reasons)
        again = new[new < ever]
        self.c_primary[again] = 0
        self.c_digest[again] = 0
        self.c_verified[again] = 0
        self.c_since[new] = int(since_s)
        if len(new):
            # Chain the new ones of each repo, and hang what it had before on the last of them.
            chain, of = new[order], rows[order]
            heads = np.flatnonzero(np.concatenate(([True], of[1:] != of[:-1])))
            tails = np.append(heads[1:], len(of)) - 1
            self.c_next[chain[:-1]] = chain[1:]
            self.c_next[chain[tails]] = self.first[of[tails]]
            self.first[of[heads]] = chain[heads]
        return new

    def _check_new(self, rows: NDArray[np.int32], workers: NDArray[np.uint16]) -> None:
        """Sorted by row and worker: raises where one of these copies is there already, or comes twice."""
        if not np.all(self.flags[rows] & LIVE):
            raise ValueError("a copy of a repo that is not known")
        twice = (rows[1:] == rows[:-1]) & (workers[1:] == workers[:-1])
        if np.any(twice):
            raise ValueError(f"{self.key_of(int(rows[1:][twice][0]))} comes twice with the same worker")
        c = self.first[rows]
        while len(c):
            on = np.flatnonzero(c != NONE)
            rows, workers, c = rows[on], workers[on], c[on]
            there = self.c_worker[c] == workers
            if np.any(there):
                row, worker = int(rows[there][0]), int(workers[there][0])
                raise ValueError(f"worker {worker} has a copy of {self.key_of(row)} already")
            c = self.c_next[c]

    def _take_copies(self, n: int) -> NDArray[np.int32]:
        """Numbers for new copies: free ones first, last freed first."""
        again = min(n, len(self._free))
        new = np.empty(n, np.int32)
        if again:
            new[:again] = self._free[: -again - 1 : -1]
            del self._free[-again:]
        new[again:] = np.arange(self.copies, self.copies + n - again)
        self.copies += n - again
        if self.copies > len(self.c_row):
            self._grow(COPY_COLUMNS, self.copies)
        return new

    def drop_copy(self, c: int) -> None:
        one = self.one
        if not 0 <= c < self.copies or one.c_row[c] == NONE:
            raise ValueError(f"there is no copy {c}")
        row, after = one.c_row[c], one.c_next[c]
        before = one.first[row]
        if before == c:
            one.first[row] = after
        else:
            while (follows := one.c_next[before]) != c:
                before = follows
            one.c_next[before] = after
        one.c_row[c] = one.c_next[c] = NONE
        one.c_worker[c] = NOBODY
        self._free.append(c)

    def copies_of(self, row: int) -> list[int]:
        """By rank, unwanted ones last; those of equal rank by worker."""
        c = self.one.first[row]
        if c < 0:
            return []
        following = self.one.c_next
        found = [c]
        while (c := following[c]) >= 0:
            found.append(c)
        if len(found) > 1:
            ranks, workers = self.one.c_rank, self.one.c_worker
            found.sort(key=lambda c: (ranks[c] << 16) + workers[c])
        return found

    def find_copy(self, row: int, worker: int) -> int:
        """NONE where this worker has none."""
        c = self.one.first[row]
        workers, following = self.one.c_worker, self.one.c_next
        while c >= 0 and workers[c] != worker:
            c = following[c]
        return c

    def find_copies(self, rows: NDArray[np.int32], worker: int) -> NDArray[np.int32]:
        """The same for many."""
        c = self.first[rows]
        walking = np.flatnonzero(c != NONE)
        while len(walking):
            walking = walking[self.c_worker[c[walking]] != worker]
            c[walking] = self.c_next[c[walking]]
            walking = walking[c[walking] != NONE]
        return c

    def copies_on(self, worker: int) -> NDArray[np.int32]:
        """In order of their numbers."""
        return np.flatnonzero(self.c_worker[: self.copies] == worker).astype(np.int32)

    def should(self, rows: NDArray[np.int32], width: int) -> NDArray[np.uint16]:
        """Workers of each row by rank, up to ``width``; NOBODY where there is none."""
        workers = np.full((len(rows), width), NOBODY, np.uint16)
        at, c = np.arange(len(rows)), self.first[rows]
        while len(c):
            on = np.flatnonzero(c != NONE)
            at, c = at[on], c[on]
            rank = self.c_rank[c]
            fits = rank < width
            workers[at[fits], rank[fits]] = self.c_worker[c[fits]]
            c = self.c_next[c]
        return workers

    # Growth

    def _grow(self, names: Kinds, needed: int) -> None:
        for name in names:
            self._set(name, wider(getattr(self, name), needed))

    def _set(self, name: str, column: NDArray[Any]) -> None:
        setattr(self, name, column)
        setattr(self.one, name, column.data)
