"""The way from a key to its row and back: all keys in one run of letters, and a hash table of row numbers.

A million ``str`` in a ``dict`` are 170 MB; this is about 20 bytes for each key besides its own letters, which
may be elsewhere than in memory (letters.py).

    slots    .  .  7  .  2  9  .  4      a row stands in the first slot that was free from its hash on;
                         |               a search begins there and ends at an empty slot
    row 2    hash, start, length
                     |
    letters  github.com/a/bgitlab.com/c/d…

Rules
- A row's number stays with its key until it is forgotten; then the number is given to a later key.
- Equal hashes prove nothing: the letters are compared, always.
- Letters that do not have the hash they were put with are not believed: ``lost`` says so from then on.
- Keys that were asked for lately are remembered, a bounded number of them: their letters were compared then.
- A forgotten row leaves no mark in the slots: those behind it move up, so that searches stay short.
- Letters of forgotten rows remain until they are half of all; then all are written anew. A repo that left
  the catalog is not forgotten by that: its row and letters stay until a ``CatalogChanged`` names it among
  ``forgotten``, which no node does yet. All that the catalog ever had bounds them, as it does the database.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evermirror.core.fleet.columns import CAPACITY_MIN, wider
from evermirror.core.fleet.hashing import bytes_hash, bytes_hashes
from evermirror.core.fleet.letters import Letters, LettersInMemory, LettersLost
from evermirror.model.repo import RepoKey

EMPTY = -1  # in a slot, and as the row of an unknown key
SLOTS_MIN = 1024
FULL = 0.8  # of the slots; above it searches of unknown keys grow long
GROWTH = 1.5  # of the slots
KEY_BYTES_MAX = 0xFFFF  # lengths are kept in two bytes
LETTERS_MAX = 0xFFFF_FFFF  # starts are kept in four bytes: enough for 50 million keys
WASTE_MIN = 1 << 20  # bytes; less is not worth writing them anew
SPAN = 4  # times as many letters as are wanted are read at once rather than each key for itself
LATELY_MAX = 8192  # keys that are remembered as they were asked for: usually a MB
BATCH = 1 << 16  # keys looked at together: what is needed meanwhile stays small


class KeyIndex:
    """``put`` gives rows to keys, ``forget`` takes them back."""

    __slots__ = (
        "_free",
        "_hash",
        "_lately",
        "_length",
        "_lengths",
        "_letters",
        "_size",
        "_slot",
        "_slots",
        "_start",
        "_starts",
        "_used",
        "_waste",
        "hash",
        "lost",
        "rows",
    )  # fmt: skip

    def __init__(self, letters: Letters | None = None) -> None:
        self.rows = 0  # numbers given so far, also those that are free again
        self.lost: LettersLost | None = None  # why nothing here is to be decided from any more
        self._used = 0
        self._free = array("i")
        self._lately: dict[int, str] = {}  # by row: who tells of a repo is soon told of it in turn
        self._letters = letters if letters is not None else LettersInMemory()
        self._waste = 0  # letters that belong to nobody
        self._set_columns(
            np.zeros(CAPACITY_MIN, np.uint64),
            np.zeros(CAPACITY_MIN, np.uint32),
            np.zeros(CAPACITY_MIN, np.uint16),
        )
        self._set_slots(np.full(SLOTS_MIN, EMPTY, np.int32))

    def __len__(self) -> int:
        return self._used

    @property
    def nbytes(self) -> int:
        columns = self.hash.nbytes + self._starts.nbytes + self._lengths.nbytes
        return columns + self._slots.nbytes + self._letters.nbytes + self._free.itemsize * len(self._free)

    def reserve(self, rows: int) -> None:
        """Room for so many rows."""
        if rows > len(self.hash):
            old = (self.hash, self._starts, self._lengths)
            self._set_columns(wider(old[0], rows), wider(old[1], rows), wider(old[2], rows))
        if rows > len(self._slots) * FULL:
            self._widen_slots(rows)

    # One key

    def row_of(self, key: str) -> int:
        """EMPTY where it is not known."""
        letters = key.encode()
        hash_ = bytes_hash(letters)
        slot, size = self._slot, self._size
        at = hash_ % size
        while (row := slot[at]) >= 0:
            if self._hash[row] == hash_ and self._length[row] == len(letters):
                if self._lately.get(row) == key:
                    return row
                if self._is(row, letters):
                    self._note(row, key)
                    return row
            at = (at + 1) % size
        return EMPTY

    def key_of(self, row: int) -> RepoKey:
        lately = self._lately.get(row)
        if lately is not None:
            return RepoKey(lately)
        start = self._start[row]
        letters = self._read(start, start + self._length[row])
        if bytes_hash(letters) != self._hash[row]:
            raise self._not_as_put()
        return RepoKey(letters.decode())

    def _note_all(self, rows: NDArray[np.int32], keys: Sequence[str]) -> None:
        if len(self._lately) + len(keys) > LATELY_MAX:
            self._lately.clear()
        self._lately.update(zip(rows.tolist(), keys, strict=True))
        self._lately.pop(EMPTY, None)  # of those that are not known

    def _note(self, row: int, key: str) -> None:
        if len(self._lately) >= LATELY_MAX:
            self._lately.clear()
        self._lately[row] = key

    def _is(self, row: int, letters: bytes) -> bool:
        """Whether a row with the same hash and length has these letters."""
        start = self._start[row]
        found = self._read(start, start + len(letters))
        if found == letters:
            return True
        if bytes_hash(found) != self._hash[row]:
            raise self._not_as_put()
        return False

    def forget(self, row: int) -> None:
        """Its key is unknown from here on, and its number free."""
        self._empty_slot(row)
        self._lately.pop(row, None)
        self._waste += self._length[row]
        self._start[row], self._length[row], self._hash[row] = 0, 0, bytes_hash(b"")
        self._free.append(row)
        self._used -= 1
        if self._waste > max(WASTE_MIN, len(self._letters) // 2):
            self._rewrite_blob()

    def _empty_slot(self, row: int) -> None:
        slot, size, hashes = self._slot, self._size, self._hash
        hole = hashes[row] % size
        while slot[hole] != row:
            hole = (hole + 1) % size
        at = hole
        while (other := slot[at := (at + 1) % size]) >= 0:
            walked = (at - hashes[other]) % size
            if walked >= (at - hole) % size:  # its search passes the hole, which must not end it
                slot[hole] = other
                hole = at
        slot[hole] = EMPTY

    # Many keys

    def rows_of(self, keys: Sequence[str]) -> NDArray[np.int32]:
        rows = np.empty(len(keys), np.int32)
        for begin in range(0, len(keys), BATCH):
            letters = list(map(str.encode, keys[begin : begin + BATCH]))
            rows[begin : begin + BATCH] = self._find(letters, bytes_hashes(letters))
        if len(keys) <= LATELY_MAX // 2:
            self._note_all(rows, keys)
        return rows

    def keys_of(self, rows: NDArray[np.int32]) -> list[RepoKey]:
        return [RepoKey(letters.decode()) for letters in self._letters_of(rows)]

    def heads_of(self, rows: NDArray[np.int32], most: int) -> NDArray[np.uint8]:
        """The first letters of each key; zeros behind the end of a shorter one."""
        joined = b"".join([letters[:most].ljust(most, b"\0") for letters in self._letters_of(rows)])
        return np.frombuffer(bytearray(joined), np.uint8).reshape(len(rows), most)

    def put(self, keys: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The rows of these keys (at most BATCH), and those among them that are new."""
        letters = list(map(str.encode, keys))
        longest = max(map(len, letters), default=0)
        if longest > KEY_BYTES_MAX:
            raise ValueError(f"a key of {longest} bytes is longer than {KEY_BYTES_MAX}")
        hashes = bytes_hashes(letters)
        rows = self._find(letters, hashes)
        unknown = np.flatnonzero(rows < 0)
        if not len(unknown):
            return rows, np.empty(0, np.int32)
        new = {letters[i]: i for i in reversed(unknown.tolist())}  # a key may come twice: its first place
        first = np.sort(np.fromiter(new.values(), np.int64, len(new)))
        if len(self._letters) + sum(map(len, new)) > LETTERS_MAX:
            raise ValueError(f"all keys together are longer than {LETTERS_MAX} bytes")
        fresh = self._take_rows(len(first))
        self._write(fresh, [letters[i] for i in first.tolist()], hashes[first])
        rows[first] = fresh
        if len(first) < len(unknown):
            rows[unknown] = [rows[new[letters[i]]] for i in unknown.tolist()]
        return rows, fresh

    def _find(self, letters: list[bytes], hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        found = np.full(len(letters), EMPTY, np.int32)
        asking = np.arange(len(letters))
        at = (hashes % np.uint64(self._size)).astype(np.int64)
        while len(asking):
            row = self._slots[at]
            there = row >= 0
            asking, at, row = asking[there], at[there], row[there]
            alike = np.flatnonzero(self.hash[row] == hashes[asking])
            on = np.ones(len(asking), np.bool_)
            if len(alike):
                same = alike[self._are([letters[i] for i in asking[alike].tolist()], row[alike])]
                found[asking[same]] = row[same]
                on[same] = False
            asking, at = asking[on], (at[on] + 1) % self._size
        return found

    def _are(self, letters: list[bytes], rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of these rows have exactly these letters."""
        found = self._unproved(rows)
        same = np.array([these == those for these, those in zip(letters, found, strict=True)], np.bool_)
        if not same.all():
            self._prove(rows, found)
        return same

    def _letters_of(self, rows: NDArray[np.int32]) -> list[bytes]:
        letters = self._unproved(rows)
        self._prove(rows, letters)
        return letters

    def _prove(self, rows: NDArray[np.int32], letters: list[bytes]) -> None:
        """That they are what was put."""
        if not np.array_equal(bytes_hashes(letters), self.hash[rows]):
            raise self._not_as_put()

    def _unproved(self, rows: NDArray[np.int32]) -> list[bytes]:
        if not len(rows):
            return []
        starts = self._starts[rows].astype(np.int64)
        ends = starts + self._lengths[rows]
        first, last = int(starts.min()), int(ends.max())
        read = self._read
        if last - first <= SPAN * int(np.sum(ends - starts)):
            span = read(first, last)
            pairs = zip((starts - first).tolist(), (ends - first).tolist(), strict=True)
            return [span[start:end] for start, end in pairs]
        return [read(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _read(self, start: int, end: int) -> bytes:
        try:
            return self._letters.read(start, end)
        except LettersLost as error:
            self.lost = error
            raise

    def _not_as_put(self) -> LettersLost:
        self.lost = LettersLost("the letters of a key are not those that were put")
        return self.lost

    def _take_rows(self, n: int) -> NDArray[np.int32]:
        """Numbers for new rows: free ones first, last freed first."""
        again = min(n, len(self._free))
        rows = np.empty(n, np.int32)
        if again:
            rows[:again] = self._free[: -again - 1 : -1]
            del self._free[-again:]
        rows[again:] = np.arange(self.rows, self.rows + n - again)
        self.rows += n - again
        self._used += n
        self.reserve(self.rows)
        return rows

    def _write(self, rows: NDArray[np.int32], letters: list[bytes], hashes: NDArray[np.uint64]) -> None:
        lengths = np.fromiter(map(len, letters), np.int64, len(letters))
        self._starts[rows] = len(self._letters) + np.cumsum(lengths) - lengths
        self._lengths[rows] = lengths
        self.hash[rows] = hashes
        self._letters.add(b"".join(letters))
        self._fill_slots(rows)

    def _fill_slots(self, rows: NDArray[np.int32]) -> None:
        if self._used > len(self._slots) * FULL:
            self._widen_slots(self._used)
        self._seat(rows)

    def _widen_slots(self, rows: int) -> None:
        """Room for so many; all that are there are seated anew."""
        there = self._slots[self._slots >= 0]
        self._set_slots(np.full(max(int(rows / FULL), int(self._size * GROWTH)) + 1, EMPTY, np.int32))
        for begin in range(0, len(there), BATCH):
            self._seat(there[begin : begin + BATCH])

    def _seat(self, rows: NDArray[np.int32]) -> None:
        at = (self.hash[rows] % np.uint64(self._size)).astype(np.int64)
        while len(rows):
            free = self._slots[at] < 0
            self._slots[at[free]] = rows[free]  # of several that want a slot one gets it
            on = self._slots[at] != rows
            rows, at = rows[on], (at[on] + 1) % self._size

    def _rewrite_blob(self) -> None:
        rows = np.sort(self._slots[self._slots >= 0])
        starts, letters = self._starts.copy(), self._letters.anew()
        for begin in range(0, len(rows), BATCH):
            batch = rows[begin : begin + BATCH]
            lengths = self._lengths[batch].astype(np.int64)
            pieces = self._letters_of(batch)
            starts[batch] = len(letters) + np.cumsum(lengths) - lengths
            letters.add(b"".join(pieces))
        self._letters, self._waste = letters, 0
        self._set_columns(self.hash, starts, self._lengths)

    def _set_columns(
        self, hashes: NDArray[np.uint64], starts: NDArray[np.uint32], lengths: NDArray[np.uint16]
    ) -> None:
        """Each column for many values, and its memoryview for one: that gives and takes plain ints."""
        self.hash, self._starts, self._lengths = hashes, starts, lengths
        self._hash, self._start, self._length = hashes.data, starts.data, lengths.data

    def _set_slots(self, slots: NDArray[np.int32]) -> None:
        self._slots, self._slot, self._size = slots, slots.data, len(slots)
