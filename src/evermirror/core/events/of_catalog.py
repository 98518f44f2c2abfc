"""What others are told of a change of the catalog: each repo, or, of very many at once, figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evermirror.model.event import EventType, NewEvent
from evermirror.model.repo import RepoKey, RepoRecord

SINGLY_MAX = 500  # repos that one change tells one by one

_NAMES_OF = {"interval_s": "interval", "info": "additional_info"}  # as people know them


def repo_added(record: RepoRecord, at: float) -> NewEvent:
    """New, or back."""
    data: dict[str, object] = {
        "url": record.spec.url,
        "source": record.source,
        "priority": record.spec.priority.value,
        "mode": record.spec.mode.value,
        "enabled": record.enabled,
    }
    return NewEvent(EventType.REPO_ADDED, at, record.key, data=data)


def catalog_turn(
    record: RepoRecord, before: Mapping[str, object] | None, after: Mapping[str, object], at: float
) -> NewEvent:
    """``before`` and ``after`` are what is configured, by name; ``removed`` is there where it had left."""
    if before is None or "removed" in before:
        return repo_added(record, at)
    return repo_changed(record.key, before, after, at)


def repo_changed(
    key: RepoKey, before: Mapping[str, object], after: Mapping[str, object], at: float
) -> NewEvent:
    """Names only: values may be nobody else's business."""
    changed = [_NAMES_OF.get(name, name) for name, value in after.items() if before.get(name) != value]
    return NewEvent(EventType.REPO_CHANGED, at, key, data={"changed": changed})


def repo_removed(key: RepoKey, at: float) -> NewEvent:
    return NewEvent(EventType.REPO_REMOVED, at, key)


def catalog_news(
    told: Sequence[NewEvent],
    at: float,
    *,
    added: int = 0,
    changed: int = 0,
    removed: int = 0,
    singly_max: int = SINGLY_MAX,
) -> Sequence[NewEvent]:
    """``told`` may be cut short where it would be too much. ``singly_max``: 0 where this is but a part of a
    larger change."""
    if added + changed + removed <= min(singly_max, SINGLY_MAX):
        return told
    figures: dict[str, object] = {"added": added, "changed": changed, "removed": removed}
    return (NewEvent(EventType.CATALOG_CHANGED, at, data=figures),)
