"""Alerts in memory: enough of the service to show how HTTP treats them."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from evermirror.errors import Conflict, NotFound, UsageError
from evermirror.model.alert import (
    Alert,
    AlertId,
    AlertRecord,
    ChannelState,
    Level,
    Notice,
    NoticeId,
    Silence,
    SilenceId,
    Turn,
)
from evermirror.nodes.alert_service import (
    AlertFigures,
    AlertFilter,
    AlertPage,
    AlertView,
    NoticeEnd,
    Tested,
)

NOW = 1_765_670_100.0  # 2025-12-13T23:55:00Z


class FakeAlerts:
    """``refuses`` has what a channel answers to a test; ``audit`` (actor, what, name)."""

    def __init__(self) -> None:
        self.now = NOW
        self.records: dict[AlertId, AlertRecord] = {}
        self.notices: dict[AlertId, list[Notice]] = {}
        self.in_force: dict[SilenceId, Silence] = {}
        self.states = {
            "ops": ChannelState("ops", "dingtalk", 2, NOW - 60, None),
            "mail": ChannelState("mail", "mail", 0, None, None),
        }
        self.refuses: dict[str, str] = {}
        self.audit: list[tuple[str, str, str]] = []
        self.asked: list[AlertFilter] = []
        self.counted: Counter[tuple[str, NoticeEnd]] = Counter()
        self._ids = itertools.count(1)

    def raised(self, kind="project-failing", about="devops/core", level=Level.ERROR, **more) -> AlertRecord:
        number = AlertId(next(self._ids))
        alert = Alert(
            kind, about, more.pop("text", f"{about} fails"), level=level, facts=more.pop("facts", {})
        )
        record = AlertRecord(number, alert, **{"raised_at": self.now, "changed_at": self.now, **more})
        self.records[number] = record
        return record

    def ended(self, record: AlertRecord, how="it works again") -> None:
        self.records[record.id] = replace(record, ended_at=self.now + 60, end_text=how)

    def noticed(self, record: AlertRecord, channel="ops", turn=Turn.RAISED, **more) -> None:
        notice = Notice(NoticeId(next(self._ids)), channel, record.id, turn, self.now, **more)
        self.notices.setdefault(record.id, []).append(notice)

    def _view(self, record: AlertRecord) -> AlertView:
        by = next((s.id for s in self.in_force.values() if s.covers(record.alert)), None)
        return AlertView(record, by if record.stands else None)

    # AlertService

    def figures(self) -> AlertFigures:
        standing = Counter(r.alert.level for r in self.records.values() if r.stands)
        return AlertFigures(standing, self.counted, tuple(self.states.values()))

    def standing(self, limit):
        found = [record for record in self.records.values() if record.stands]
        found.sort(key=lambda record: -record.alert.level.rank)
        return AlertPage(tuple(self._view(r) for r in found[:limit]), len(found), 1, limit)

    async def alerts(self, which):
        self.asked.append(which)
        found = [
            record
            for record in sorted(self.records.values(), key=lambda r: -r.id)
            if which.standing in (None, record.stands)
            and (which.level is None or record.alert.level.rank >= which.level.rank)
            and which.kind in ("", record.alert.kind)
            and which.about in record.alert.about
        ]
        shown = found[(which.page - 1) * which.size : which.page * which.size]
        return AlertPage(tuple(self._view(r) for r in shown), len(found), which.page, which.size)

    async def alert(self, alert_id):
        if alert_id not in self.records:
            raise NotFound(f"there is no alert {alert_id}")
        return self._view(self.records[alert_id]), tuple(self.notices.get(alert_id, ()))

    async def channels(self):
        return tuple(self.states.values())

    async def test(self, channel, *, actor):
        if not self.states:
            raise Conflict("no channel is configured", hint="Add [channels.NAME] to the settings")
        if channel is not None and channel not in self.states:
            raise NotFound(f"there is no channel {channel!r}", hint="There are: ops, mail")
        self.audit.append((actor, "test", channel or "all"))
        names = [channel] if channel is not None else list(self.states)
        return tuple(Tested(name, self.refuses.get(name, "")) for name in names)

    async def silences(self):
        return tuple(self.in_force.values())

    async def silence(self, kind, about, for_s, reason, *, actor):
        if "[" in kind:
            raise UsageError(f"kind {kind!r} is no pattern")
        self.audit.append((actor, "silence", f"{kind} {about}"))
        number = SilenceId(next(self._ids))
        made = Silence(number, kind, about, self.now + for_s, actor, reason, self.now)
        self.in_force[number] = made
        return made

    async def unsilence(self, silence_id, *, actor):
        if silence_id not in self.in_force:
            raise NotFound(f"there is no silence {silence_id}")
        self.audit.append((actor, "unsilence", str(silence_id)))
        del self.in_force[silence_id]
