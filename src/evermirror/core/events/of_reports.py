"""What a worker's report tells others. Names of refs are bounded; totals are always told.

Synced ──▶ refs.changed (where its digest was not told yet), push.ended for each target
Failed ──▶ sync.failed: the first in a row, and then at each doubling
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from evermirror.core.events.schema import iso
from evermirror.model.duration import took_s
from evermirror.model.event import EventType, NewEvent
from evermirror.model.failure import Failure
from evermirror.model.messages import Failed, Report, Synced
from evermirror.model.push import Pushed
from evermirror.model.refs import RefChange
from evermirror.model.repo import RepoKey

REFS_NAMED = 100  # in one event
NAMED_MAX = 40_000  # characters of all names of refs in one event, and of what is told with them
REASON_MAX = 200  # characters of why one ref was not put
TEXT_MAX = 2000  # characters of a message or hint

_BESIDE_NAME = 120  # characters of two object ids, and what is around them
T = TypeVar("T")


def events_of(report: Report, worker: str | None) -> tuple[NewEvent, ...]:
    """All but ``refs_changed``, which counts only where its digest was not told yet."""
    match report:
        case Synced():
            return tuple(_pushed(report.key, worker, push) for push in report.pushes if _worth_telling(push))
        case Failed() if report.counted and _is_turn(report.consecutive_failures):
            data = {
                **failure_data(report.failure),
                "consecutive_failures": report.consecutive_failures,
                "next_attempt_at": None if report.next_attempt_at is None else iso(report.next_attempt_at),
            }
            return (NewEvent(EventType.SYNC_FAILED, report.ended_at, report.key, worker, data),)
        case _:
            return ()


def refs_changed(report: Synced, worker: str | None) -> NewEvent:
    """Told where this digest was not, also where no ref moved: it moved at a time of which nobody told."""
    data: dict[str, object] = {
        "first": report.first,
        "changes": [_change(change) for change in _named(report.changes, lambda c: len(c.name))],
        "changes_total": report.changes_total,
        "commits": report.commits,
        "head_commit": report.head_commit,
        "digest": report.digest,
        "refs_count": report.refs_count,
        "received_bytes": report.received_bytes,
        "duration_s": took_s(report.started_at, report.ended_at),
    }
    return NewEvent(EventType.REFS_CHANGED, report.ended_at, report.key, worker, data)


def since_told(news: NewEvent, *, never_told: bool) -> NewEvent:
    """``refs_changed``, as compared with what others were told before: who cloned a repo that they know has
    all its refs as new ones, and cannot tell which of them moved."""
    data = dict(news.data)
    if data["first"] and not never_told:
        data |= {"changes": [], "changes_total": 0, "commits": 0}
    return replace(news, data=data | {"first": never_told})


def found_changed(key: RepoKey, digest: str, refs_count: int, at: float, *, never_told: bool) -> NewEvent:
    """A poll found it as it is known here, and nobody told that it came to be so."""
    data: dict[str, object] = {
        "first": never_told,
        "changes": [],
        "changes_total": 0,
        "commits": 0,
        "head_commit": None,
        "digest": digest,
        "refs_count": refs_count,
        "received_bytes": 0,
        "duration_s": 0.0,
    }
    return NewEvent(EventType.REFS_CHANGED, at, key, data=data)


def failure_data(failure: Failure) -> dict[str, object]:
    """What people read of a failure; output of git stays with the task."""
    return {
        "error_type": failure.kind.value,
        "error_message": failure.message[:TEXT_MAX],
        "hint": failure.hint[:TEXT_MAX],
    }


def _is_turn(failures: int) -> bool:
    """1, 2, 4, 8 …"""
    return failures > 0 and failures & (failures - 1) == 0


def _named(refs: Iterable[T], chars: Callable[[T], int]) -> list[T]:
    """The first ones, as far as there is room: names may have 4 KB each."""
    named: list[T] = []
    room = NAMED_MAX
    for ref in refs:
        room -= chars(ref) + _BESIDE_NAME
        if room < 0 or len(named) >= REFS_NAMED:
            break
        named.append(ref)
    return named


def _change(change: RefChange) -> dict[str, object]:
    return {"ref": change.name, "old": change.old, "new": change.new}


def _worth_telling(push: Pushed) -> bool:
    return push.changed or push.failure is not None


def _pushed(key: RepoKey, worker: str | None, push: Pushed) -> NewEvent:
    refs = [
        {
            "ref": r.name,
            "old": r.old,
            "new": r.new,
            "outcome": r.outcome.value,
            "reason": r.reason[:REASON_MAX],
        }
        for r in _named(push.refs, lambda r: len(r.name) + REASON_MAX)
    ]
    data: dict[str, object] = {
        "target": push.target,
        "refs": refs,
        "put_total": push.put_total,
        "deleted_total": push.deleted_total,
        "waiting_total": push.waiting_total,
        "commit": push.commit,
        "sent_bytes": push.sent_bytes,
        "duration_s": took_s(push.started_at, push.ended_at),
        "failure": None if push.failure is None else failure_data(push.failure),
    }
    return NewEvent(EventType.PUSH_ENDED, push.ended_at, key, worker, data)
