"""From values to rows and back, and the border where text that a database cannot hold is refused or escaped.

- Names (keys, URLs, aliases, sources, token names) are refused when they hold NUL or lone surrogates, or are
  too long: a name that was changed would be another name.
- Free text in columns (people in the audit log, phases) has such characters escaped: it is for reading.
- Everything inside JSON (failures, info, params, results) is kept as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from evermirror.edge.store.rhythms import rhythm_in, rhythm_out
from evermirror.errors import UsageError
from evermirror.model.activity import Activity, counts_of
from evermirror.model.failure import SOURCE_URL, TARGET_URL, Failure, FailureKind
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Host, Mode, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger

NAME_BYTES_MAX = 2048  # the longest URL accepted; fits PostgreSQL's largest index entry (2,704 bytes)
HOST_BYTES_MAX = 300  # a DNS name has 253 characters; host and key share an index entry
FREE_TEXT_MAX = 4096  # characters of people's and programs' words in a column; longer text belongs in JSON

Row = Any  # a SQLAlchemy row; its attributes are the table's columns


def storable(text: str) -> bool:
    """Whether both engines can hold it. What they cannot is in no row: look-ups need not ask."""
    return "\0" not in text and (text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text))


def name_in(text: str, what: str, *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """A name on its way in."""
    if not storable(text):
        raise UsageError(f"{what} {text!r} holds a character that cannot be stored")
    if len(text.encode()) > bytes_max:
        raise UsageError(f"{what} is longer than {bytes_max} bytes")
    return text


def free_text(text: str) -> str:
    """Text for people on its way in: what cannot be stored is shown by its escape, and the rest is cut."""
    cut = text[:FREE_TEXT_MAX]
    return cut if storable(cut) else cut.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def json_in(value: object) -> str:
    """JSON on its way in, in ASCII."""
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as e:
        raise UsageError(f"not storable as JSON: {e}") from None


def json_in_or_null(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else json_in(dict(value))


def json_out(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def texts_out(text: str) -> tuple[str, ...]:
    """A list of texts; nearly always the empty one."""
    return () if text == "[]" else tuple(json.loads(text))


def failure_in(failure: Failure, at: float | None, retry_count: int = 0) -> str:
    """As JSON that whoever reads the table understands; ``at`` is when it happened."""
    context = dict(failure.context)
    return json_in(
        {
            "error_type": failure.kind.value,
            "error_message": failure.message,
            "git_command": failure.git_command,
            **{name: context.pop(name, None) for name in _URLS},
            "timestamp": None if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "hint": failure.hint,
            "retry_after_s": failure.retry_after_s,
            "stdout": failure.stdout,
            "stderr": failure.stderr,
            "corrupt": failure.corrupt,
            "context": context,
            "retry_count": retry_count,  # the last one: see TaskEnded in apply.py
        }
    )


def failure_out(text: str | None) -> Failure | None:
    if text is None:
        return None
    fields = json.loads(text)
    urls = {name: fields[name] for name in _URLS if fields.get(name) is not None}
    return Failure(
        kind=FailureKind(fields["error_type"]),
        message=fields["error_message"],
        context={**fields["context"], **urls},
        **{name: fields[name] for name in _PLAIN},
    )


_URLS = (SOURCE_URL, TARGET_URL)
_PLAIN = ("hint", "retry_after_s", "git_command", "stdout", "stderr", "corrupt")


def config_in(record: RepoRecord) -> dict[str, object]:
    """The columns that the catalog and people decide; the rest is learnt from reports."""
    spec = record.spec
    return {
        "key": name_in(spec.key, "repo"),
        "url": name_in(spec.url, "URL"),
        "host": name_in(spec.host, "host", bytes_max=HOST_BYTES_MAX),
        "alias": None if record.alias is None else name_in(record.alias, "alias"),
        "source": name_in(record.source, "source"),
        "info": json_in(dict(record.info)) if record.info else "{}",
        "priority": spec.priority.value,
        "interval_s": spec.interval_s,
        "mode": spec.mode.value,
        "private": spec.private,
        "credential": None if spec.credential is None else name_in(spec.credential, "credential"),
        "fallbacks": json_in(list(spec.fallbacks)) if spec.fallbacks else "[]",
        "pins": json_in(list(record.pins)) if record.pins else "[]",
        "fsck_allow": json_in(list(spec.fsck_allow)) if spec.fsck_allow else "[]",
        "fsck_reason": None if record.fsck_reason is None else free_text(record.fsck_reason),
        "enabled": record.enabled,
    }


def status_in(record: RepoRecord) -> str:
    """A repo that is not enabled is shown as inactive."""
    return (record.status if record.enabled else RepoStatus.INACTIVE).value


def state_in(record: RepoRecord) -> dict[str, object]:
    """The other columns of a new row."""
    return {"status": status_in(record), **_learnt_in(record)}


def _learnt_in(record: RepoRecord) -> dict[str, object]:
    failure = record.last_failure
    return {
        "digest": record.digest,
        "told_digest": record.digest,
        "head_commit": record.head_commit,
        "refs_count": record.refs_count,
        "size_bytes": record.size_bytes,
        "verified_at": record.verified_at,
        "changed_at": record.changed_at,
        "consecutive_failures": record.consecutive_failures,
        "failure_kind": failure.kind.value if failure is not None and record.consecutive_failures else None,
        "last_failure": (
            None
            if failure is None
            else failure_in(failure, record.last_failure_at, max(0, record.consecutive_failures - 1))
        ),
        "last_failure_at": record.last_failure_at,
        **activity_in(Activity()),
        "removed_at": None,
    }


def activity_in(activity: Activity) -> dict[str, object]:
    fast, middle, slow = activity.counts
    return {
        "activity_fast": fast,
        "activity_middle": middle,
        "activity_slow": slow,
        "activity_as_of": activity.as_of,
        "last_push_at": activity.last_push_at,
        "activity_rhythm": rhythm_in(activity.rhythm),
    }


def nothing_learnt(record: RepoRecord) -> bool:
    """Whether all that reports teach is as of a repo that nobody has looked at yet."""
    return _learnt(record) == _UNSEEN


_learnt = attrgetter(
    "digest", "head_commit", "refs_count", "size_bytes", "verified_at", "changed_at",
    "consecutive_failures", "last_failure", "last_failure_at",
)  # fmt: skip
_NEW = RepoRecord(RepoSpec(RepoKey(""), "", Host("")))
_UNSEEN = _learnt(_NEW)
NOTHING_LEARNT = _learnt_in(_NEW)  # its columns


def activity_of(
    fast: float, middle: float, slow: float, as_of: float, last_push_at: float, rhythm: bytes | None
) -> Activity:
    """In the order of ``activity_in``."""
    return Activity(counts_of(fast, middle, slow), as_of, last_push_at, rhythm_out(rhythm))


_PRIORITIES = {p.value: p for p in Priority}
_MODES = {m.value: m for m in Mode}
_STATUSES = {s.value: s for s in RepoStatus}


SPEC = (
    "key", "url", "host", "priority", "interval_s", "mode", "private", "credential", "fallbacks", "pulled",
    "hooked", "fsck_allow",
)  # fmt: skip


def spec_out(row: Row) -> RepoSpec:
    return spec_of(
        row.key,
        row.url,
        row.host,
        row.priority,
        row.interval_s,
        row.mode,
        row.private,
        row.credential,
        row.fallbacks,
        row.pulled,
        row.hooked,
        row.fsck_allow,
    )


def spec_of(
    key: str,
    url: str,
    host: str,
    priority: str,
    interval_s: float | None,
    mode: str,
    private: bool,
    credential: str | None,
    fallbacks: str,
    pulled: bool,
    hooked: bool,
    fsck_allow: str,
) -> RepoSpec:
    """In the order of SPEC: for very many rows, whose columns have no names then."""
    return RepoSpec(
        RepoKey(key),
        url,
        Host(host),
        _PRIORITIES[priority],
        interval_s,
        _MODES[mode],
        private,
        credential,
        texts_out(fallbacks),
        pulled,
        hooked,
        texts_out(fsck_allow),
    )


def repo_out(row: Row) -> RepoRecord:
    return RepoRecord(
        spec=spec_out(row),
        alias=row.alias,
        source=row.source,
        pins=texts_out(row.pins),
        fsck_reason=row.fsck_reason,
        info={} if row.info == "{}" else json_out(row.info),
        enabled=row.enabled,
        status=_STATUSES[row.status],
        digest=None if row.digest is None else RefsDigest(row.digest),
        head_commit=row.head_commit,
        refs_count=row.refs_count,
        size_bytes=row.size_bytes,
        verified_at=row.verified_at,
        changed_at=row.changed_at,
        consecutive_failures=row.consecutive_failures,
        last_failure=failure_out(row.last_failure),
        last_failure_at=row.last_failure_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def task_out(row: Row) -> TaskRecord:
    return TaskRecord(
        id=TaskId(row.id),
        repo=RepoKey(row.repo),
        status=TaskStatus(row.status),
        trigger=Trigger(row.trigger),
        user=row.user,
        scheduled_at=row.scheduled_at,
        started_at=row.started_at,
        completed_at=row.completed_at,
        source_commit=row.source_commit,
        has_changes=row.has_changes,
        changes_count=row.changes_count,
        progress_percent=row.progress_percent,
        progress_phase=row.progress_phase,
        result=json_out(row.result),
        failure=failure_out(row.failure),
        retry_count=row.retry_count,
        params=json_out(row.params),
        folded=row.folded,
        created_at=row.created_at,
        updated_at=row.updated_at,
        target_commit=row.target_commit,
    )
