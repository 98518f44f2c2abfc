"""A decision of the alert book while it is made: each row once, as it was put last."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.watch.events import (
    AlertDecision,
    AlertSaved,
    NoticeSaved,
    Send,
    SilenceRemoved,
    SilenceSaved,
)
from evermirror.model.alert import AlertId, AlertRecord, Message, Notice, NoticeId, Silence, SilenceId


class Draft:
    """Alerts are written before the notices that name them."""

    __slots__ = ("_alerts", "_logs", "_notices", "_sends", "_silences")

    def __init__(self) -> None:
        self._alerts: dict[AlertId, AlertRecord] = {}
        self._notices: dict[NoticeId, Notice] = {}
        self._silences: dict[SilenceId, SilenceSaved | SilenceRemoved] = {}
        self._sends: list[Send] = []
        self._logs: list[str] = []

    def save(self, record: AlertRecord) -> None:
        self._alerts[record.id] = record

    def save_notices(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self._notices[notice.id] = notice

    def save_silence(self, silence: Silence) -> None:
        self._silences[silence.id] = SilenceSaved(silence)

    def remove_silence(self, silence: SilenceId) -> None:
        self._silences[silence] = SilenceRemoved(silence)

    def send(self, channel: str, notices: Iterable[Notice], message: Message) -> None:
        self._sends.append(Send(channel, tuple(notice.id for notice in notices), message))

    def log(self, line: str) -> None:
        self._logs.append(line)

    def decision(self, wake_at: float | None) -> AlertDecision:
        writes = (
            *(AlertSaved(record) for record in self._alerts.values()),
            *(NoticeSaved(notice) for notice in self._notices.values()),
            *self._silences.values(),
        )
        return AlertDecision(writes, tuple(self._sends), tuple(self._logs), wake_at)
