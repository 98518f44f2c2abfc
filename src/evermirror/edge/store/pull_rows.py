"""Projects, targets and the strategy: from values to rows and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evermirror.core.watch.progress import overdue_at, state_of
from evermirror.edge.store import rows
from evermirror.model.failure import Failure
from evermirror.model.pull import Project, PullConfig, Strategy, Target, TargetSpec
from evermirror.model.push import TargetId
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus

_PRIORITIES = {p.value: p for p in Priority}
_STATUSES = {s.value: s for s in TaskStatus}
_BEFORE_ALL = float("-inf")  # a time at which nothing is overdue


def project_state_in(project: Project) -> dict[str, Any]:
    """The columns that the machine decides."""
    failure = project.last_failure
    return {
        "enabled": project.config.enabled,
        "last_status": None if project.last_status is None else project.last_status.value,
        "last_sync_at": project.last_sync_at,
        "next_sync_at": project.next_sync_at,
        "task": project.task,
        "failures": project.failures,
        "paused": rows.free_text(project.paused),
        "last_failure": _failure_in(failure, project.last_failure_at, project.failures),
        "last_failure_kind": None if failure is None else failure.kind.value,
        "last_failure_at": project.last_failure_at,
        "standing": state_of(project, _BEFORE_ALL).value,
        "overdue_at": overdue_at(project),
    }


def project_config_in(project: Project) -> dict[str, Any]:
    """The columns that people and the catalog decide."""
    config = project.config
    return {
        "priority": config.priority.value,
        "priority_before": None if project.priority_before is None else project.priority_before.value,
        "interval_s": config.interval_s,
        "max_retries": config.max_retries,
        "retry_delay_s": config.retry_delay_s,
        "overrides": rows.json_in(sorted(project.overrides)),
        "catalog": rows.json_in([[_url_in(t.url), _credential_in(t.credential)] for t in project.catalog]),
    }


def project_out(row: rows.Row, targets: Sequence[Target]) -> Project:
    """``row``: of pull_projects, with key, alias, host, credential and priority of its repo, which is the
    project's too."""
    return Project(
        key=RepoKey(row.key),
        name=row.key if row.alias is None else row.alias,
        host=Host(row.host),
        config=PullConfig(
            priority=_PRIORITIES[row.repo_priority],
            interval_s=row.interval_s,
            enabled=row.enabled,
            max_retries=row.max_retries,
            retry_delay_s=row.retry_delay_s,
        ),
        targets=tuple(targets),
        overrides=frozenset(rows.texts_out(row.overrides)),
        catalog=() if row.catalog == "[]" else tuple(TargetSpec(*t) for t in rows.json_out(row.catalog)),
        last_sync_at=row.last_sync_at,
        next_sync_at=row.next_sync_at,
        failures=row.failures,
        paused=row.paused,
        last_status=None if row.last_status is None else _STATUSES[row.last_status],
        last_failure=rows.failure_out(row.last_failure),
        last_failure_at=row.last_failure_at,
        task=None if row.task is None else TaskId(row.task),
        created_at=row.created_at,
        updated_at=row.updated_at,
        source_credential=row.credential,
        priority_before=None if row.priority_before is None else _PRIORITIES[row.priority_before],
    )


def target_state_in(target: Target) -> dict[str, Any]:
    """The columns that pushes decide."""
    return {
        "put": target.put,
        "put_at": target.put_at,
        "target_commit": target.commit,
        "failures": target.failures,
        "not_before": target.not_before,
        "paused": rows.free_text(target.paused),
        "adopt": target.adopt,
        "last_failure": _failure_in(target.last_failure, target.last_failure_at, target.failures),
        "last_failure_at": target.last_failure_at,
    }


def target_in(target: Target, repo: int, place: int) -> dict[str, Any]:
    """A whole row, without its id."""
    return {
        "repo": repo,
        "place": place,
        "url": _url_in(target.url),
        "credential": _credential_in(target.credential),
        **target_state_in(target),
    }


def target_out(row: rows.Row) -> Target:
    return Target(
        id=TargetId(row.id),
        url=row.url,
        credential=row.credential,
        put=None if row.put is None else RefsDigest(row.put),
        put_at=row.put_at,
        commit=None if row.target_commit is None else Oid(row.target_commit),
        failures=row.failures,
        not_before=row.not_before,
        paused=row.paused,
        adopt=row.adopt,
        last_failure=rows.failure_out(row.last_failure),
        last_failure_at=row.last_failure_at,
    )


def strategy_in(strategy: Strategy) -> dict[str, Any]:
    """By column, without its id."""
    return {column: getattr(strategy, name) for column, name in _STRATEGY.items()}


def strategy_out(row: rows.Row) -> Strategy:
    return Strategy(**{name: getattr(row, column) for column, name in _STRATEGY.items()})


_STRATEGY = {
    "strategy_name": "name",
    "max_concurrent_pulls": "max_concurrent",
    "enable_peak_avoidance": "peak_avoidance",
    "peak_hours_start": "peak_start",
    "peak_hours_end": "peak_end",
    "peak_max_concurrent": "peak_max_concurrent",
    "off_peak_max_concurrent": "off_peak_max_concurrent",
    "night_hours_start": "night_start",
    "night_hours_end": "night_end",
    "night_max_concurrent": "night_max_concurrent",
    "enable_adaptive": "adaptive",
    "enabled": "enabled",
    "created_at": "created_at",
    "updated_at": "updated_at",
}


def _failure_in(failure: Failure | None, at: float | None, failures: int) -> str | None:
    return None if failure is None else rows.failure_in(failure, at, max(0, failures - 1))


def _url_in(url: str) -> str:
    return rows.name_in(url, "target")


def _credential_in(credential: str | None) -> str | None:
    return None if credential is None else rows.name_in(credential, "credential")
