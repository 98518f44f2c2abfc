"""Alerts, notices and silences: from values to rows and back. No text keeps an alert from being stored."""

from __future__ import annotations

from typing import Any

from evermirror.edge.store import rows
from evermirror.model.alert import (
    Alert,
    AlertId,
    AlertRecord,
    Level,
    Notice,
    NoticeId,
    Silence,
    SilenceId,
    Turn,
)


def record_in(record: AlertRecord) -> dict[str, Any]:
    alert = record.alert
    return {
        "id": record.id,
        "kind": rows.free_text(alert.kind),
        "about": rows.free_text(alert.about),
        "level": alert.level.value,
        "text": rows.free_text(alert.text),
        "facts": rows.json_in(dict(alert.facts)),
        "raised_at": record.raised_at,
        "changed_at": record.changed_at,
        "ended_at": record.ended_at,
        "end_text": rows.free_text(record.end_text),
        "noticed": None if record.noticed is None else record.noticed.value,
    }


def record_out(row: rows.Row) -> AlertRecord:
    return AlertRecord(
        id=AlertId(row.id),
        alert=Alert(
            kind=row.kind,
            about=row.about,
            text=row.text,
            level=Level(row.level),
            facts=rows.json_out(row.facts),
        ),
        raised_at=row.raised_at,
        changed_at=row.changed_at,
        ended_at=row.ended_at,
        end_text=row.end_text,
        noticed=None if row.noticed is None else Level(row.noticed),
    )


def notice_in(notice: Notice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "channel": rows.free_text(notice.channel),
        "alert": notice.alert,
        "turn": notice.turn.value,
        "level": notice.level.value,
        "created_at": notice.created_at,
        "attempts": notice.attempts,
        "not_before": notice.not_before,
        "sent_at": notice.sent_at,
        "given_up_at": notice.given_up_at,
        "error": rows.free_text(notice.error),
    }


def notice_out(row: rows.Row) -> Notice:
    return Notice(
        id=NoticeId(row.id),
        channel=row.channel,
        alert=None if row.alert is None else AlertId(row.alert),
        turn=Turn(row.turn),
        created_at=row.created_at,
        attempts=row.attempts,
        not_before=row.not_before,
        sent_at=row.sent_at,
        given_up_at=row.given_up_at,
        error=row.error,
        level=Level(row.level),
    )


def silence_in(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.id,
        "kind": rows.free_text(silence.kind),
        "about": rows.free_text(silence.about),
        "until": silence.until,
        "by": rows.free_text(silence.by),
        "reason": rows.free_text(silence.reason),
        "created_at": silence.created_at,
    }


def silence_out(row: rows.Row) -> Silence:
    return Silence(
        id=SilenceId(row.id),
        kind=row.kind,
        about=row.about,
        until=row.until,
        by=row.by,
        reason=row.reason,
        created_at=row.created_at,
    )
