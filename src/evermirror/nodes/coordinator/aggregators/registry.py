"""The registry of aggregators: who joined, how each is, and who is told when one stays away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from evermirror.core.fleet import aggregators
from evermirror.core.fleet.decisions import Alert, AlertKind
from evermirror.edge.store.store import Store
from evermirror.model.failure import FailureError
from evermirror.model.worker import AggregatorRecord, Liveness

log = structlog.get_logger(__name__)

RETIRED_MAX = 100  # that are remembered; of more, those that were alive last
NOTE_S = 60.0  # between two notes of when those that are there were last alive


class Registry:
    """``load`` at the start, ``tick`` now and then. ``away_s``: so long without a connection, one is down."""

    def __init__(
        self,
        store: Store,
        alert: Callable[[Alert], None],
        *,
        away_s: float,
        utc: Callable[[], float],
        mono: Callable[[], float],
    ) -> None:
        self._store = store
        self._alert = alert
        self._away_s = away_s
        self._utc = utc
        self._mono = mono
        self._records: dict[int, AggregatorRecord] = {}
        self._gone_at: dict[int, float] = {}  # of those expected back; monotonic: not connected since then
        self._unwritten: set[int] = set()
        self._noted_at = mono()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Everybody is expected back, as if it had left just now."""
        self._records = {record.token_id: record for record in await self._store.aggregators()}
        expected = [record.token_id for record in self._records.values() if not record.retired]
        self._gone_at = dict.fromkeys(expected, self._mono())

    def records(self) -> Iterable[AggregatorRecord]:
        """In the order in which they joined."""
        return self._records.values()

    def get(self, token_id: int) -> AggregatorRecord | None:
        return self._records.get(token_id)

    def is_named(self, name: str, token_id: int) -> bool:
        """Whether another one, that is expected back, has this name."""
        return any(
            r.name == name and r.token_id != token_id and not r.retired for r in self._records.values()
        )

    async def came(self, told: AggregatorRecord) -> None:
        before = self._records.get(told.token_id)
        self._gone_at.pop(told.token_id, None)
        await self._put(aggregators.came(before, told, self._utc()))
        if before is not None and before.liveness is Liveness.DOWN:
            self._alert(away_alert(told, "is back", over=True))

    async def left(self, token_id: int) -> None:
        record = self._records.get(token_id)
        if record is None or token_id in self._gone_at:
            return
        self._gone_at[token_id] = self._mono()
        await self._put(aggregators.left(record, self._utc()))

    async def tick(self) -> None:
        """Those that stay away are down; those whose token was revoked are not expected back."""
        revoked = await self._revoked() if self._gone_at else frozenset()
        for token_id in tuple(self._gone_at):
            await self._look(token_id, retired=token_id in revoked)
        for token_id in tuple(self._unwritten):
            await self._put(self._records[token_id])
        if self._mono() - self._noted_at >= NOTE_S:
            self._noted_at = self._mono()
            for token_id in tuple(self._records):
                record = self._records[token_id]
                if token_id not in self._gone_at and not record.retired:
                    await self._put(aggregators.seen(record, self._utc()))

    async def _look(self, token_id: int, *, retired: bool) -> None:
        """At one that may be away: while another was written down, it may have come back."""
        gone_at, record = self._gone_at.get(token_id), self._records[token_id]
        if gone_at is None:
            return
        was_down = record.liveness is Liveness.DOWN
        if retired:
            del self._gone_at[token_id]
            await self._put(aggregators.retired(record, self._utc()))
            if was_down:
                self._alert(away_alert(record, "is retired", over=True))
            await self._forget()
        elif not was_down and self._mono() - gone_at >= self._away_s:
            self._alert(away_alert(record, AWAY))
            await self._put(aggregators.went_down(record, self._utc()))

    async def _forget(self) -> None:
        """Those of the retired that nobody asks about any more; what the database keeps goes another time."""
        retired = [record for record in self._records.values() if record.retired]
        retired.sort(key=lambda record: record.last_alive_at, reverse=True)
        old = [record.token_id for record in retired[RETIRED_MAX:]]
        if not old:
            return
        try:
            async with self._writing:
                await self._store.drop_aggregators(old)
        except FailureError as error:
            log.warning("aggregators not forgotten", count=len(old), reason=error.failure.message)
            return
        for token_id in old:
            self._records.pop(token_id, None)
            self._unwritten.discard(token_id)

    async def _revoked(self) -> frozenset[int]:
        try:
            return frozenset(t.id for t in await self._store.list_tokens() if t.revoked_at is not None)
        except FailureError as error:
            log.warning("tokens not read", reason=error.failure.message)
            return frozenset()

    async def _put(self, record: AggregatorRecord) -> None:
        """What the database does not take now is written at a later tick: an aggregator serves meanwhile."""
        self._records[record.token_id] = record
        self._unwritten.discard(record.token_id)
        try:
            async with self._writing:  # in the order in which it happened
                await self._store.put_aggregator(record)
        except FailureError as error:
            self._unwritten.add(record.token_id)
            log.warning("aggregator not written down", name=record.name, reason=error.failure.message)
        except Exception:  # refused for what is in it: what is known of it here goes on counting
            log.exception("what an aggregator tells of itself was set aside", name=record.name)


AWAY = "is away: nobody can clone from it"


def away_alert(record: AggregatorRecord, text: str, *, over: bool = False) -> Alert:
    facts = {"url": record.http_url} if record.http_url else {}
    where = f" at {record.http_url}" if record.http_url else ""
    return Alert(
        AlertKind.AGGREGATOR_DOWN, record.name, f"aggregator {record.name}{where} {text}", over, facts
    )
