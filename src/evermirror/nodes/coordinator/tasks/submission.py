"""What people may say: of a repo when they add it, and of a task; and how a stored task becomes a command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from evermirror.core.fsck import check_allowed, check_reason
from evermirror.errors import InvalidValue, UsageError
from evermirror.model.duration import parse_duration
from evermirror.model.messages import RestoreTip, SyncNow
from evermirror.model.refs import Oid
from evermirror.model.repo import Mode, Priority, RepoRecord, RepoSpec, check_interval
from evermirror.model.task import TaskRecord
from evermirror.model.url import RepoUrl, check_alias
from evermirror.nodes.service import TaskParams

_Choice = TypeVar("_Choice", Priority, Mode)

FSCK_ALLOWED = "repo.fsck-allowed"  # in the audit log
INFO_BYTES_MAX = 16_384  # of a repo's additional_info as JSON: notes and labels, not a database


def new_record(url: RepoUrl, removed: RepoRecord | None = None) -> RepoRecord:
    """A repo as it is before anybody said anything about it. ``removed`` is what the catalog had before: what
    was private stays so until an operator says otherwise, for its mirror comes back from the trash."""
    private = removed is not None and removed.key == url.key and removed.spec.private
    return RepoRecord(RepoSpec(url.key, url.text, url.host_key, private=private))


def apply_info(record: RepoRecord, info: Mapping[str, object], *, credentials: frozenset[str]) -> RepoRecord:
    """``record`` with ``info`` taken over: priority, interval, alias, private, mode, credential, enabled,
    fsck_allow, fsck_reason.

    Keys that are not given stay as they are. Raises ``UsageError`` with the key and what is accepted."""
    kept = {**record.info, **info}
    if len(json.dumps(kept, default=str)) > INFO_BYTES_MAX:
        raise UsageError(
            f"additional_info is larger than {INFO_BYTES_MAX} bytes", hint="Keep only what is needed"
        )
    spec = record.spec
    for key, value in info.items():
        match key:
            case "priority":
                spec = replace(spec, priority=_choice(Priority, key, value))
            case "mode":
                spec = replace(spec, mode=_choice(Mode, key, value))
            case "interval":
                spec = replace(spec, interval_s=_interval(value))
            case "private":
                spec = replace(spec, private=_flag(key, value))
            case "credential":
                spec = replace(spec, credential=_credential(value, credentials))
            case "enabled":
                record = replace(record, enabled=_flag(key, value))
            case "alias":
                record = replace(record, alias=None if value is None else _alias(value))
            case "fsck_allow":
                spec = replace(spec, fsck_allow=_fsck_allow(value))
            case "fsck_reason":
                record = replace(record, fsck_reason=None if value is None else _fsck_reason(value))
    spoken_of = info.keys() & {"fsck_allow", "fsck_reason"}
    # What was allowed for another reason needs one of its own.
    reason = info.get("fsck_reason") if "fsck_allow" in info else record.fsck_reason
    if spoken_of and spec.fsck_allow and reason is None:
        raise UsageError("fsck_allow needs fsck_reason", hint="Say why they are harmless")
    if not spec.fsck_allow:
        record = replace(record, fsck_reason=None)
    return replace(record, spec=spec, info=kept)


def allowance(record: RepoRecord) -> dict[str, object]:
    """For the audit log: which defects of objects are allowed from now on, and why."""
    return {"allow": list(record.spec.fsck_allow), "reason": record.fsck_reason}


def is_url(text: str) -> bool:
    """A URL or ``user@host:path``, as against a key or an alias, in which ``@`` is not allowed."""
    return "://" in text or "@" in text


def sync_params(params: TaskParams) -> dict[str, object]:
    """What is stored of a task that somebody asked for."""
    said: dict[str, object] = {
        "force": params.force,
        "min_commit": params.min_commit,
        "priority": params.priority.value if params.priority is not None else None,
    }
    if params.min_commit is not None and params.within_s > 0:
        said["within"] = params.within_s
    return {**said, "accept": True} if params.accept else said


def sought(params: Mapping[str, object]) -> tuple[str, float]:
    """The commit that a task is looked at again for, and for how long: 0 where one look is enough."""
    within = params.get("within")
    seconds = float(within) if isinstance(within, int | float) else 0.0
    return str(params.get("min_commit") or ""), seconds


def asked_of(task: TaskRecord) -> Mapping[str, object]:
    """The same of a stored task; one that the schedule made asks for nothing special."""
    return sync_params(TaskParams()) if task.params is None else task.params


def restore_params(kept: str, as_name: str | None) -> dict[str, object]:
    """What is stored of a task that restores a kept tip."""
    return {"restore": kept, "as": as_name}


def is_sync(task: TaskRecord) -> bool:
    """Whether it looks at upstream; others restore what upstream threw away."""
    return (task.params or {}).get("restore") is None


def command_of(task: TaskRecord) -> SyncNow | RestoreTip:
    """What the worker is told, now or again after a restart."""
    params = task.params or {}
    kept, as_name = params.get("restore"), params.get("as")
    if kept is not None:
        return RestoreTip(task.repo, task.id, str(kept), str(as_name) if as_name is not None else None)
    commit, priority = params.get("min_commit"), params.get("priority")
    return SyncNow(
        task.repo,
        task.id,
        force=bool(params.get("force")),
        min_commit=Oid(str(commit)) if commit else None,
        priority=Priority(priority) if priority else None,
        accept=bool(params.get("accept")),
    )


def _choice(kind: type[_Choice], key: str, value: object) -> _Choice:
    try:
        return kind(value)
    except ValueError:
        accepted = ", ".join(str(member.value) for member in kind)
        raise UsageError(f"{key} {value!r} is not known", hint=f"One of: {accepted}") from None


def _interval(value: object) -> float | None:
    if value is None:
        return None
    try:
        return check_interval(parse_duration(_text("interval", value)))
    except ValueError as error:
        raise UsageError(
            f"interval: {error}", hint="For example 10m or 2h; null lets the policy decide"
        ) from None


def _alias(value: object) -> str:
    try:
        return check_alias(_text("alias", value))
    except InvalidValue as error:
        raise UsageError(f"alias: {error.message}", hint=error.hint) from None


def _credential(value: object, known: frozenset[str]) -> str | None:
    if value is None:
        return None
    name = _text("credential", value)
    if name not in known:
        raise UsageError(
            f"there is no credential named {name!r}", hint="Credentials are settings: credentials.NAME"
        )
    return name


def _fsck_allow(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UsageError("fsck_allow must be a list of message ids, or null")
    try:
        return check_allowed(value)
    except InvalidValue as error:
        raise UsageError(f"fsck_allow: {error.message}", hint=error.hint) from None


def _fsck_reason(value: object) -> str:
    try:
        return check_reason(_text("fsck_reason", value))
    except InvalidValue as error:
        raise UsageError(f"fsck_reason: {error.message}", hint=error.hint) from None


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{key} must be true or false")
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{key} must be a text")
    return value
