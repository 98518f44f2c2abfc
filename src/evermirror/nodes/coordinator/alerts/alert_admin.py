"""Alerts as people look at them, and what they may ask for: silence, and a try of a channel.

The note in the audit log comes first: what nobody could note is not done.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import (
    Channel,
    NotSent,
    Sent,
    Silenced,
    SilenceRemoved,
    SilenceSaved,
    Unsilenced,
)
from evermirror.core.watch.texts import compose_test
from evermirror.edge.store.rows import storable
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, InvalidValue, NotFound
from evermirror.model.alert import AlertId, AlertRecord, ChannelState, Notice, Silence, SilenceId
from evermirror.model.failure import FailureError
from evermirror.nodes.alert_service import AlertFigures, AlertFilter, AlertPage, AlertView, Tested
from evermirror.nodes.coordinator.alerts.alerting import Alerting

PATTERN_MAX = 500  # characters of a silence's patterns
REASON_MAX = 1000
SILENCE_MIN_S = 1.0
SILENCE_MAX_S = 366 * 86_400.0
EVERY_CHANNEL = "all"


class AlertAdmin:
    """Implements ``AlertService``."""

    def __init__(self, alerting: Alerting, store: Store, clock: Callable[[], float]) -> None:
        self._alerting = alerting
        self._store = store
        self._clock = clock
        self._tests: set[str] = set()  # channels that are being tried

    @property
    def _book(self) -> AlertBook:
        return self._alerting.book

    def figures(self) -> AlertFigures:
        return self._alerting.figures()

    # Looking

    def standing(self, limit: int) -> AlertPage:
        found = self._alerting.standing
        return AlertPage(tuple(map(self._view, found[:limit])), len(found), 1, limit)

    async def alerts(self, which: AlertFilter) -> AlertPage:
        found, total = await self._store.alert_page(which)
        return AlertPage(tuple(map(self._view, found)), total, which.page, which.size)

    async def alert(self, alert_id: AlertId) -> tuple[AlertView, tuple[Notice, ...]]:
        found = await self._store.find_alert(alert_id)
        if found is None:
            raise NotFound(f"no alert {alert_id}", hint="`evermirror alerts list --all` shows them")
        record, notices = found
        return self._view(record), notices

    def _view(self, record: AlertRecord) -> AlertView:
        return AlertView(record, self._book.silence_of(record.alert) if record.stands else None)

    async def channels(self) -> tuple[ChannelState, ...]:
        return self._alerting.channels()

    async def silences(self) -> tuple[Silence, ...]:
        now = self._clock()
        return tuple(silence for silence in self._book.silences() if silence.until > now)

    # Trying

    async def test(self, channel: str | None, *, actor: str) -> tuple[Tested, ...]:
        channels = self._book.settings.channels
        if channel is not None and channel not in {one.name for one in channels}:
            raise NotFound(f"no channel {channel!r}", hint="`evermirror alerts channels` lists them")
        if not channels:
            raise Conflict("there is no channel", hint="Add [channels.NAME] to the settings")
        await self._store.audit(actor, "alerts.tested", channel or EVERY_CHANNEL)
        tried = [one for one in channels if channel is None or one.name == channel]
        return tuple(await asyncio.gather(*map(self._test, tried)))

    async def _test(self, channel: Channel) -> Tested:
        """One at a time, and within the channel's rate: a bot that is sent too much shuts out alerts too."""
        now = self._clock()
        wait_s = self._book.free_at(channel.name, now) - now
        if channel.name in self._tests:
            return Tested(channel.name, "not tried: another test of it is under way")
        if wait_s > 0:
            most = self._book.settings.per_minute
            why = f"not tried: it takes {most} messages a minute; try again in {math.ceil(wait_s)} s"
            return Tested(channel.name, why)
        self._tests.add(channel.name)
        try:
            message = compose_test(channel, self._book.settings, now)
            end = await self._alerting.deliver(channel.name, message)
            await self._count(end)
        finally:
            self._tests.discard(channel.name)
        return Tested(channel.name, end.reason if isinstance(end, NotSent) else "")

    async def _count(self, end: Sent | NotSent) -> None:
        """Before the next one may go."""
        try:
            await self._alerting.ask(end)
        except FailureError:
            self._alerting.hear(end)  # later

    # Silence

    async def silence(self, kind: str, about: str, for_s: float, reason: str, *, actor: str) -> Silence:
        for name, pattern in (("kind", kind), ("about", about)):
            _check_pattern(name, pattern)
        if not storable(reason) or len(reason) > REASON_MAX:
            raise InvalidValue(
                f"reason is longer than {REASON_MAX} characters, or holds one that has no place"
            )
        if not SILENCE_MIN_S <= for_s <= SILENCE_MAX_S:
            raise InvalidValue(
                "a silence lasts for a second at least, and at most for a year", hint="Such as 2h"
            )
        too_many = Conflict(
            "too many silences are in force", hint="End one first: evermirror alerts unsilence"
        )
        if len(await self.silences()) >= self._book.settings.silences_max:
            raise too_many
        until = self._clock() + for_s
        detail = {"kind": kind, "about": about, "until": until, "reason": reason}
        await self._store.audit(actor, "alerts.silenced", f"{kind} {about}", detail)
        decision = await self._alerting.ask(Silenced(kind, about, until, actor, reason))
        saved = [write.silence for write in decision.writes if isinstance(write, SilenceSaved)]
        if not saved:
            raise too_many
        return saved[-1]

    async def unsilence(self, silence_id: SilenceId, *, actor: str) -> None:
        missing = NotFound(
            f"no silence {silence_id}", hint="`evermirror alerts silences` lists those in force"
        )
        if silence_id not in {silence.id for silence in await self.silences()}:
            raise missing
        await self._store.audit(actor, "alerts.unsilenced", str(silence_id))
        decision = await self._alerting.ask(Unsilenced(silence_id, actor))
        if not any(isinstance(w, SilenceRemoved) and w.id == silence_id for w in decision.writes):
            raise missing


def _check_pattern(name: str, pattern: str) -> None:
    if not pattern or not storable(pattern) or len(pattern) > PATTERN_MAX:
        raise InvalidValue(
            f"{name} {pattern[:50]!r} is no pattern", hint='Such as "project-*", or "*" for any'
        )
