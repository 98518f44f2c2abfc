"""The aggregator's store in the simulated world: rows that survive a crash, and when they were used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from evermirror.core.collect.decisions import DistrustWord, DropRow, PutRow, Write
from evermirror.core.collect.events import Cursor, Unused
from evermirror.core.collect.rows import How, Row
from evermirror.model.repo import RepoKey


class Shelf:
    """The reads are those that events.py asks of a store."""

    def __init__(self) -> None:
        self.rows: dict[RepoKey, Row] = {}
        self.used_at: dict[RepoKey, float] = {}
        self.since = 0

    def write(self, writes: Iterable[Write]) -> None:
        for write in writes:
            match write:
                case PutRow(row):
                    self.rows[row.key] = row
                case DropRow(key):
                    self.rows.pop(key, None)
                case DistrustWord(node, place):
                    for row in list(self.rows.values()):
                        here = row.here
                        if here is not None and here.source == node and here.how in (How.HOLDER, How.QUORUM):
                            doubted = replace(here, how=How.DOUBTED)
                            placed = place if row.place is None else row.place
                            self.rows[row.key] = replace(row, here=doubted, place=placed)

    def pending(self, first: bool, after: Cursor | None, limit: int) -> tuple[tuple[Row, ...], bool]:
        found = sorted(
            (
                (row.scan_at, row.key)
                for row in self.rows.values()
                if row.first is first and row.scan_at is not None
            ),
        )
        beyond = [each for each in found if after is None or each > after]
        return tuple(self.rows[key] for _, key in beyond[:limit]), len(beyond) <= limit

    def audited(self, share: float, *, first: bool = False) -> Row | None:
        found = [r for r in self.rows.values() if r.first is first and r.untrusted and r.enabled]
        found = [r for r in found if not first or r.wanted is not None]
        return found[int(share * len(found))] if found else None

    def used_bytes(self) -> int:
        return sum(r.here.size_bytes for r in self.rows.values() if r.here is not None)

    def least_used(self, limit: int) -> tuple[Unused, ...]:
        here = [row for row in self.rows.values() if row.here is not None]
        here.sort(key=lambda row: self.used_at.get(row.key, 0.0))
        return tuple(Unused(row) for row in here[:limit])
