"""Carries out a batch of writes in one transaction: alike ones together, those to the same row in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import events, pull_writes, rows, telling
from evermirror.edge.store.changes import numbered, numbers_from, was_held
from evermirror.edge.store.database import Database
from evermirror.edge.store.fleet_writes import FleetWrites
from evermirror.edge.store.folding import fold_ended, fold_into_newest
from evermirror.edge.store.tables import repos, tasks, tokens
from evermirror.edge.store.tasks import INSERT
from evermirror.edge.store.writes import (
    Decided,
    Entry,
    EventWritten,
    Outcome,
    ProjectSaved,
    RepoExcused,
    RepoFailed,
    RepoHeld,
    RepoSynced,
    RepoVerified,
    RowWrite,
    SkipsFolded,
    TaskEnded,
    TaskProgressed,
    TaskRecorded,
    TaskStarted,
    TokenUsed,
    WorkerBound,
)
from evermirror.model.activity import Activity
from evermirror.model.event import NewEvent
from evermirror.model.repo import RepoStatus
from evermirror.model.task import TaskStatus

Params = dict[str, Any]

_ABOUT_REPOS = (RepoSynced, RepoFailed, RepoExcused, RepoHeld, RepoVerified)
_HELD = RepoStatus.HELD.value


async def apply(db: Database, batch: Iterable[Entry], now: float) -> int:
    """Returns how many events others are told of it."""
    async with db.write() as c:
        fleet = FleetWrites(db, c)
        others: list[RowWrite] = []
        for entry in batch:
            decided = entry if isinstance(entry, Decided) else Decided((), (entry,))
            for decision in decided.fleet:
                await fleet.take(decision)
            for write in decided.others:
                if isinstance(write, WorkerBound):
                    fleet.bind(write)
                else:
                    others.append(write)
        news = list(await fleet.news(now))
        await fleet.flush()
        numbers = await numbers_from(c, now) if any(isinstance(w, _ABOUT_REPOS) for w in others) else count()
        for group in in_groups(others):
            news += await telling.before(c, db, group, now)
            news += await _carry_out(c, db, group, numbers)
        return await events.append(c, news, now)


def in_groups(writes: Iterable[RowWrite]) -> list[list[RowWrite]]:
    """Writes of one type in each group; of two writes to the same row the earlier is never in a later group.

    A running engine mixes types; one statement a group instead of one a write is about 10× cheaper."""
    groups: list[list[RowWrite]] = []
    last_group_of_row: dict[tuple[str, object], int] = {}
    group_of_type: dict[type, int] = {}  # the newest one
    for write in writes:
        row = _row(write)
        first_allowed = last_group_of_row.get(row, -1)
        if isinstance(write, RepoVerified):
            first_allowed += 1  # set-based: a row has one place in a group
        index = group_of_type.get(type(write), -1)
        if index < max(first_allowed, 0):
            index = group_of_type[type(write)] = len(groups)
            groups.append([])
        groups[index].append(write)
        last_group_of_row[row] = index
    return groups


def _row(write: RowWrite) -> tuple[str, object]:
    match write:
        case RepoSynced() | RepoVerified() | RepoFailed() | RepoExcused() | RepoHeld():
            return ("repo", write.key)
        case TaskStarted() | TaskProgressed() | TaskEnded():
            return ("task", write.id)
        case TaskRecorded() | SkipsFolded():
            return ("tasks of", write.repo)
        case ProjectSaved():
            return ("project", write.project.key)
        case TokenUsed():
            return ("token", write.id)
        case EventWritten():
            return ("repo", write.event.repo)  # after what it tells, and before what comes then


async def _carry_out(
    c: AsyncConnection, db: Database, group: list[RowWrite], numbers: Iterator[int]
) -> list[NewEvent]:
    """A few statements for the whole group, except where a run of skips may need a new row. Returns what
    others are told that was found out on the way."""
    match group[0]:
        case EventWritten():
            return await telling.written(c, db, [w for w in group if isinstance(w, EventWritten)])
        case RepoVerified():
            return await _verify(c, db, group, numbers)
        case SkipsFolded():
            for write in group:
                await _fold(c, write)
        case ProjectSaved():
            await pull_writes.save(c, [w.project for w in group if isinstance(w, ProjectSaved)])
        case _:
            params = [_param(w) for w in group]
            if isinstance(group[0], _ABOUT_REPOS):
                params = [{**p, "p_seq": seq} for p, seq in zip(params, numbers, strict=False)]
            await c.execute(_STATEMENTS[type(group[0])], params)
            await fold_ended(c, [w.id for w in group if isinstance(w, TaskEnded) and _may_fold(w.outcome)])
    return []


def _may_fold(outcome: Outcome) -> bool:
    return outcome.status is TaskStatus.SKIPPED and outcome.failure is None


async def _verify(
    c: AsyncConnection, db: Database, group: list[RowWrite], numbers: Iterator[int]
) -> list[NewEvent]:
    """The write there are most of, so each engine gets it in the form it is quickest at. Hardly ever is there
    a failure to clear: that it is asked for first costs less than an UPDATE that finds nothing."""
    seen = {w.key: w.at for w in group if isinstance(w, RepoVerified) and rows.storable(w.key)}
    if not seen:
        return []
    if db.is_sqlite:
        await c.execute(_VERIFY, [{"p_key": key, "p_at": at} for key, at in seen.items()])
    else:
        await c.execute(_VERIFY_ARRAYS, {"p_keys": list(seen), "p_ats": list(seen.values())})
    troubled, told = await telling.verified(c, db, seen, _TO_CLEAR)
    if troubled:
        params = [{"p_key": key, "p_at": seen[key], "p_seq": next(numbers)} for key in troubled]
        await c.execute(_CLEAR_FAILURE, params)
    return told


def _param(write: RowWrite) -> Params:
    # Names start with p_: SQLAlchemy keeps a column's own name for itself in UPDATE.
    match write:
        case RepoVerified() | SkipsFolded() | ProjectSaved() | EventWritten():
            raise AssertionError("has a way of its own")  # _carry_out
        case RepoSynced():
            return {
                "p_key": _known(write.key),
                "p_digest": write.digest,
                "p_head": write.head_commit,
                "p_refs": write.refs_count,
                "p_size": write.size_bytes,
                "p_changed": write.changed_at,
                "p_at": write.verified_at,
            } | {f"p_{name}": value for name, value in rows.activity_in(write.activity).items()}
        case RepoFailed():
            return {
                "p_key": _known(write.key),
                "p_status": None if write.status is None else write.status.value,
                "p_failures": write.consecutive_failures,
                "p_kind": write.failure.kind.value,
                "p_failure": rows.failure_in(write.failure, write.at, max(0, write.consecutive_failures - 1)),
                "p_at": write.at,
            }
        case RepoExcused():
            return {"p_key": _known(write.key)}
        case RepoHeld():
            return {"p_key": _known(write.key), "p_digest": write.digest, "p_at": write.verified_at}
        case TaskStarted():
            return {"p_id": write.id, "p_at": write.at}
        case TaskProgressed():
            phase = rows.free_text(write.phase)
            return {"p_id": write.id, "p_phase": phase, "p_percent": write.percent, "p_at": write.at}
        case TaskEnded():
            values = {f"p_{n}": v for n, v in _outcome(write.outcome).items()}
            failure = values["p_failure"]  # without its last value, which the row knows better, and its brace
            return {"p_id": write.id, **values, "p_failure": failure and failure[: failure.rindex(":") + 1]}
        case TaskRecorded():
            return _new_task(write)
        case TokenUsed():
            return {"p_id": write.id, "p_at": write.at}


def _known(key: str) -> str:
    """A key that cannot be stored is no repo's key: it becomes one that matches nothing."""
    return key if rows.storable(key) else ""


def _outcome(outcome: Outcome) -> Params:
    return {
        "status": outcome.status.value,
        "started_at": outcome.started_at,
        "completed_at": outcome.ended_at,
        "source_commit": outcome.source_commit,
        "target_commit": outcome.target_commit,
        "has_changes": outcome.has_changes,
        "changes_count": outcome.changes_count,
        "result": rows.json_in_or_null(outcome.result),
        "failure": _failure(outcome),
        "failure_kind": None if outcome.failure is None else outcome.failure.kind.value,
        "retry_count": outcome.retry_count,
        "updated_at": outcome.ended_at,
    }


def _failure(outcome: Outcome) -> str | None:
    failure = outcome.failure
    return None if failure is None else rows.failure_in(failure, outcome.ended_at, outcome.retry_count)


def _new_task(write: TaskRecorded) -> Params:
    return _outcome(write.outcome) | {
        "repo": rows.free_text(write.repo),
        "p_repo": _known(write.repo),
        "trigger": write.trigger.value,
        "user": "",
        "scheduled_at": write.outcome.started_at,
        "progress_percent": None,
        "progress_phase": "",
        "params": None,
        "folded": 0,
        "created_at": write.outcome.started_at,
    }


async def _fold(c: AsyncConnection, write: RowWrite) -> None:
    assert isinstance(write, SkipsFolded)  # noqa: S101 - a group has one type
    if not await fold_into_newest(c, _known(write.repo), write.count, write.at):
        outcome = Outcome(TaskStatus.SKIPPED, started_at=write.at, ended_at=write.at)
        new = _new_task(TaskRecorded(write.repo, outcome)) | {"folded": write.count - 1}
        await c.execute(INSERT, new)


def _p(name: str, type_: sa.types.TypeEngine[Any] | None = None) -> sa.BindParameter[Any]:
    return sa.bindparam(f"p_{name}", type_=type_)


_FLOAT: sa.Double[float] = sa.Double()
_TEXT = sa.Text()
_BYTES = sa.LargeBinary()
_THIS_REPO = repos.c.key == _p("key")
_NEWER = sa.or_(repos.c.verified_at.is_(None), repos.c.verified_at < _p("at", _FLOAT))
_TO_CLEAR = sa.or_(
    sa.and_(repos.c.status != RepoStatus.ACTIVE.value, repos.c.status != RepoStatus.INACTIVE.value),
    repos.c.failure_kind.is_not(None),
)
_STOPPED = repos.c.status == RepoStatus.INACTIVE.value
_STATUS_TOLD = sa.func.coalesce(_p("status", _TEXT), repos.c.status)
_NEW = repos.c.status == RepoStatus.PENDING.value
_LIVE_STATUS = sa.case((_STOPPED, repos.c.status), else_=RepoStatus.ACTIVE.value)

_AHEAD = repos.c.verified_at > _p("at", _FLOAT) + telling.AHEAD_S

_VERIFY = repos.update().where(_THIS_REPO, sa.or_(_NEWER, _AHEAD)).values(verified_at=_p("at", _FLOAT))

# Apart from _VERIFY, because it touches indexed columns and hardly ever finds a row.
_CLEARED: Params = {
    "status": _LIVE_STATUS,
    "consecutive_failures": 0,
    "failure_kind": None,
    "told_status": None,
}
_SEQ = sa.bindparam("p_seq", type_=sa.BigInteger())
_OTHER_DIGEST = repos.c.digest.is_distinct_from(_p("digest", _TEXT))
# What a worker tells late is no news; but of the refs that are known it may know more.
_NOT_OLDER = sa.or_(_NEWER, repos.c.verified_at == _p("at", _FLOAT), _AHEAD)
_CLEAR_FAILURE = (
    repos.update()
    .where(_THIS_REPO, repos.c.verified_at == _p("at", _FLOAT), _TO_CLEAR)
    .values(_CLEARED | {"updated_at": _p("at", _FLOAT), "change_seq": numbered(_SEQ, was_held())})
)

# The first for PostgreSQL: all keys and times as two arrays, one statement.
_SEEN = (
    sa.func.unnest(_p("keys", postgresql.ARRAY(_TEXT)), _p("ats", postgresql.ARRAY(_FLOAT)))
    .table_valued(sa.column("key", _TEXT), sa.column("at", _FLOAT), name="seen")
    .render_derived()
)
_VERIFY_ARRAYS = (
    repos.update()
    .where(
        repos.c.key == _SEEN.c.key,
        sa.or_(
            repos.c.verified_at.is_(None),
            repos.c.verified_at < _SEEN.c.at,
            repos.c.verified_at > _SEEN.c.at + telling.AHEAD_S,
        ),
    )
    .values(verified_at=_SEEN.c.at)
)

_OPEN = sa.or_(tasks.c.status == TaskStatus.PENDING.value, tasks.c.status == TaskStatus.RUNNING.value)
_THIS_TASK = tasks.c.id == _p("id")
# A task of the pull schedule was opened with its count; a worker counts only what it saw itself.
_RETRIES = sa.case(
    (tasks.c.retry_count > _p("retry_count", sa.BigInteger()), tasks.c.retry_count),
    else_=_p("retry_count", sa.BigInteger()),
)


def _not_before_it_was_made(name: str) -> sa.Case[Any]:
    """A worker's clock may be far behind: a task would be cleaned away as one that ended long ago."""
    return sa.case(
        (_p(name, _FLOAT) < tasks.c.created_at, tasks.c.created_at),
        else_=_p(name, _FLOAT),
    )


_STATEMENTS: dict[type, sa.Insert | sa.Update] = {
    RepoSynced: repos.update()
    .where(_THIS_REPO, sa.or_(_NOT_OLDER, sa.not_(_OTHER_DIGEST)))
    .values(
        **_CLEARED,
        digest=_p("digest"),
        head_commit=_p("head"),
        refs_count=_p("refs"),
        size_bytes=_p("size"),
        verified_at=sa.case((_NOT_OLDER, _p("at", _FLOAT)), else_=repos.c.verified_at),
        changed_at=sa.func.coalesce(_p("changed", _FLOAT), repos.c.changed_at),
        updated_at=_p("at"),
        change_seq=numbered(_SEQ, _OTHER_DIGEST, was_held()),
        **{name: _p(name) for name in rows.activity_in(Activity())}
        # An older worker tells none, and knows nothing of hours: those that are known stay.
        | {"activity_rhythm": sa.func.coalesce(_p("activity_rhythm", _BYTES), repos.c.activity_rhythm)},
    ),
    RepoFailed: repos.update()
    .where(_THIS_REPO)
    .values(
        status=sa.case((_STOPPED, repos.c.status), else_=_STATUS_TOLD),
        consecutive_failures=_p("failures"),
        failure_kind=_p("kind"),
        last_failure=_p("failure"),
        last_failure_at=_p("at"),
        updated_at=_p("at"),
        change_seq=numbered(_SEQ, sa.and_(sa.not_(_STOPPED), was_held() != (_STATUS_TOLD == _HELD))),
    ),
    RepoExcused: repos.update()
    .where(_THIS_REPO, repos.c.consecutive_failures > 0)
    .values(
        consecutive_failures=repos.c.consecutive_failures - 1,
        failure_kind=sa.case((repos.c.consecutive_failures > 1, repos.c.failure_kind), else_=None),
        status=sa.case(
            (sa.or_(_STOPPED, repos.c.consecutive_failures > 1), repos.c.status),
            (repos.c.digest.is_(None), RepoStatus.PENDING.value),
            else_=RepoStatus.ACTIVE.value,
        ),
        told_status=sa.case((repos.c.consecutive_failures > 1, repos.c.told_status), else_=None),
        change_seq=numbered(_SEQ, sa.and_(was_held(), repos.c.consecutive_failures <= 1)),
    ),
    RepoHeld: repos.update()
    .where(_THIS_REPO, _NEWER)
    .values(
        digest=_p("digest"),
        verified_at=_p("at"),
        status=sa.case((_NEW, RepoStatus.ACTIVE.value), else_=repos.c.status),
        updated_at=_p("at"),
        change_seq=numbered(_SEQ, _OTHER_DIGEST),
    ),
    TaskStarted: tasks.update()
    .where(_THIS_TASK, tasks.c.status == TaskStatus.PENDING.value)
    .values(
        status=TaskStatus.RUNNING.value,
        started_at=_p("at"),
        updated_at=_not_before_it_was_made("at"),
    ),
    TaskProgressed: tasks.update()
    .where(_THIS_TASK, _OPEN)
    .values(progress_phase=_p("phase"), progress_percent=_p("percent"), updated_at=_p("at")),
    TaskEnded: tasks.update()
    .where(_THIS_TASK, _OPEN)
    .values(
        {n: _p(n) for n in _outcome(Outcome(TaskStatus.SUCCESS, 0.0, 0.0))}
        | {
            "updated_at": _not_before_it_was_made("updated_at"),
            "retry_count": _RETRIES,
            "failure": _p("failure", sa.Text()).concat(sa.cast(_RETRIES, sa.Text())).concat("}"),
        }
    ),
    TaskRecorded: INSERT,
    TokenUsed: tokens.update().where(tokens.c.id == _p("id")).values(last_used_at=_p("at")),
}
