"""Which alerts stand: one record for each kind and subject, from its beginning to its end.

                       told again: the record says what was told last
                              ┌───┐
                              ▼   │
    told ──▶ (room?) ──▶ stands ──┴── told over, or not among all that stand ──▶ ended
                              ▲                                                    ▲
                              │ told again                                         │ settle_s passed
    a restart ──▶ unconfirmed ┴────────────────────────────────────────────────────┘

An ended record is kept as long as a notice that names it waits. More serious ones have more room, so that
many that are less so do not hide them; the book's own always have room, for there are few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from evermirror.core.watch.kinds import BOOK_KINDS
from evermirror.model.alert import Alert, AlertId, AlertRecord, Level

ROOM = {Level.WARNING: 1.0, Level.ERROR: 1.5, Level.CRITICAL: 2.0}  # of the bound, may all be
ROOM_AGAIN = 0.9  # of the room is taken: those refused may come again


class Standing:
    """Records by id, and which of them stands for what."""

    __slots__ = ("_by_kind", "_max", "_next_id", "_records", "_stand", "_unconfirmed")

    def __init__(
        self, standing: Iterable[AlertRecord], ended: Iterable[AlertRecord], next_id: int, standing_max: int
    ) -> None:
        self._records: dict[AlertId, AlertRecord] = {record.id: record for record in ended}
        self._stand: dict[AlertId, None] = {}  # the oldest first
        self._by_kind: dict[str, dict[str, AlertId]] = {}
        for record in sorted(standing, key=lambda record: record.id):
            self._add(record)
        self._unconfirmed = set(self._stand)
        self._next_id = max([next_id, *(record + 1 for record in self._records)])
        self._max = standing_max

    def configure(self, standing_max: int) -> None:
        self._max = standing_max

    def _add(self, record: AlertRecord) -> None:
        self._records[record.id] = record
        self._stand[record.id] = None
        self._by_kind.setdefault(record.alert.kind, {})[record.alert.about] = record.id

    def __iter__(self) -> Iterator[AlertRecord]:
        """Those that stand, the oldest first."""
        return (self._records[record] for record in self._stand)

    def __getitem__(self, record: AlertId) -> AlertRecord:
        return self._records[record]

    def __contains__(self, record: object) -> bool:
        """Whether there is such, standing or ended."""
        return record in self._records

    def find(self, kind: str, about: str) -> AlertRecord | None:
        """The one that stands."""
        record = self._by_kind.get(kind, {}).get(about)
        return None if record is None else self._records[record]

    def of_kinds(self, kinds: Iterable[str]) -> tuple[AlertRecord, ...]:
        return tuple(
            self._records[id_] for kind in sorted(kinds) for id_ in self._by_kind.get(kind, {}).values()
        )

    def has_room(self, alert: Alert) -> bool:
        if alert.kind in BOOK_KINDS:
            return True
        return self._others < self._max * ROOM[alert.level]

    @property
    def is_full(self) -> bool:
        """Until there is some room again, not just for one."""
        return self._others > self._max * ROOM_AGAIN

    @property
    def _others(self) -> int:
        """How many stand that are not the book's own."""
        return len(self._stand) - sum(len(self._by_kind.get(kind, ())) for kind in BOOK_KINDS)

    def begin(self, alert: Alert, now: float) -> AlertRecord:
        record = AlertRecord(AlertId(self._next_id), alert, now, now)
        self._next_id += 1
        self._add(record)
        return record

    def put(self, record: AlertRecord) -> None:
        """As it is now."""
        self._records[record.id] = record

    def confirm(self, record: AlertId) -> None:
        self._unconfirmed.discard(record)

    @property
    def settles(self) -> bool:
        """Some are unconfirmed."""
        return bool(self._unconfirmed)

    @property
    def unconfirmed(self) -> tuple[AlertRecord, ...]:
        return tuple(self._records[record] for record in sorted(self._unconfirmed))

    def end(self, record: AlertRecord, text: str, now: float) -> AlertRecord:
        ended = replace(record, ended_at=now, end_text=text, changed_at=now)
        del self._stand[record.id]
        del self._by_kind[record.alert.kind][record.alert.about]
        self._unconfirmed.discard(record.id)
        self._records[record.id] = ended
        return ended

    def forget(self, record: AlertId) -> None:
        del self._records[record]
