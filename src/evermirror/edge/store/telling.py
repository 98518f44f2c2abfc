"""What others are told of a batch of writes, where it takes the rows as they were to know it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.events.of_reports import found_changed, since_told
from evermirror.core.events.of_turns import (
    RepoBefore,
    TaskEnd,
    excused,
    pull_ended,
    recovered,
    status_changed,
    task_ended,
    tells_status,
    was_asked_for,
)
from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.outcomes import Outcome
from evermirror.edge.store.tables import IN_CATALOG, repos, tasks
from evermirror.edge.store.tasks import AT_ONCE, OPEN
from evermirror.edge.store.writes import (
    EventWritten,
    RepoExcused,
    RepoFailed,
    RepoSynced,
    RowWrite,
    TaskEnded,
)
from evermirror.model.event import NewEvent
from evermirror.model.failure import FailureKind
from evermirror.model.repo import RepoKey, RepoStatus
from evermirror.model.task import TaskId, Trigger

_REPO = (
    repos.c.key,
    repos.c.status,
    repos.c.consecutive_failures,
    repos.c.failure_kind,
    repos.c.told_status,
)
_TOLD = (repos.c.digest, repos.c.told_digest, repos.c.verified_at, repos.c.refs_count)
_UNTOLD = repos.c.digest.is_distinct_from(repos.c.told_digest)
_THIS = repos.c.key == sa.bindparam("p_key")
_TELL_DIGEST = repos.update().where(_THIS).values(told_digest=sa.bindparam("p_digest"))
_TELL_STATUS = repos.update().where(_THIS).values(told_status=sa.bindparam("p_status"))
_WELL = RepoStatus.ACTIVE.value

# Of a report that is late by so much nobody hears; a time further ahead was written under a wrong clock.
AHEAD_S = 3600.0
# Whose refs are known so long, and were not told: nobody comes any more who could say which of them moved.
UNTOLD_S = 300.0

_ASKED_FOR = [trigger.value for trigger in Trigger if was_asked_for(trigger)]
_OF_NOTE = (
    sa.select(tasks.c.id, tasks.c.repo, tasks.c.trigger, tasks.c.retry_count, repos.c.pulled)
    .select_from(tasks.outerjoin(repos, repos.c.key == tasks.c.repo))
    .where(OPEN, sa.or_(tasks.c.trigger.in_(_ASKED_FOR), repos.c.pulled))
)


async def before(c: AsyncConnection, db: Database, group: list[RowWrite], now: float) -> list[NewEvent]:
    """To be asked right before the group, which is of one type, is carried out."""
    match group[0]:
        case RepoSynced():
            return await _synced(c, db, cast("list[RepoSynced]", group))
        case RepoFailed():
            return await _failed(
                c, db, [w for w in cast("list[RepoFailed]", group) if tells_status(w.status)]
            )
        case RepoExcused():
            return await _excused(c, db, cast("list[RepoExcused]", group), now)
        case TaskEnded():
            return await _ended(c, cast("list[TaskEnded]", group))
        case _:
            return []


async def written(c: AsyncConnection, db: Database, group: list[EventWritten]) -> list[NewEvent]:
    about = {w.event.repo for w in group if w.reported and w.event.repo is not None}
    keys = [key for key in about if rows.storable(key)]
    here: set[str] = set()
    if keys:
        query = sa.select(repos.c.key).where(IN_CATALOG, db.among_many(repos.c.key, keys))
        here = set(await c.scalars(query))
    return [w.event for w in group if not w.reported or w.event.repo in here]


async def verified(
    c: AsyncConnection, db: Database, seen: Mapping[RepoKey, float], trouble: sa.ColumnElement[bool]
) -> tuple[set[RepoKey], list[NewEvent]]:
    """To be asked when these times are written: those of the repos of which ``trouble`` holds, and what
    others are told."""
    query = sa.select(*_REPO, *_TOLD, repos.c.updated_at, trouble.label("trouble")).where(
        db.among_many(repos.c.key, list(seen)), sa.or_(trouble, _UNTOLD)
    )
    troubled: set[RepoKey] = set()
    told: list[NewEvent | None] = []
    digests: dict[RepoKey, str] = {}
    for row in await c.execute(query):
        at = seen[row.key]
        if row.verified_at != at:
            continue
        if row.trouble:
            troubled.add(row.key)
            told.append(recovered(row.key, _before(row), at))
        if row.digest is not None and row.digest != row.told_digest and row.updated_at < at - UNTOLD_S:
            never = row.told_digest is None
            told.append(found_changed(row.key, row.digest, row.refs_count, at, never_told=never))
            digests[row.key] = row.digest
    await _note_told(c, digests)
    return troubled, _some(told)


@dataclass(slots=True)
class _Known:
    """Of one repo, as the writes of a group leave it."""

    trouble: RepoBefore | None
    digest: str | None
    told: str | None
    verified_at: float | None

    def takes(self, write: RepoSynced) -> bool:
        """As the statement does (apply.py)."""
        return write.digest == self.digest or self._is_not_older(write.verified_at)

    def take(self, write: RepoSynced) -> None:
        if self._is_not_older(write.verified_at):
            self.verified_at = write.verified_at
        self.trouble, self.digest = None, write.digest

    def _is_not_older(self, at: float) -> bool:
        return self.verified_at is None or not at < self.verified_at <= at + AHEAD_S


async def _synced(c: AsyncConnection, db: Database, group: list[RepoSynced]) -> list[NewEvent]:
    """A repo may be in the group twice: the second finds it as the first left it."""
    keys = [w.key for w in group if rows.storable(w.key)]
    query = sa.select(*_REPO, *_TOLD).where(IN_CATALOG, db.among_many(repos.c.key, keys))
    known: dict[RepoKey, _Known] = {}
    for row in await c.execute(query):
        troubled = row.consecutive_failures or row.failure_kind is not None or row.status != _WELL
        known[row.key] = _Known(
            _before(row) if troubled else None, row.digest, row.told_digest, row.verified_at
        )
    told: list[NewEvent | None] = []
    digests: dict[RepoKey, str] = {}
    for write in group:
        if (repo := known.get(write.key)) is None or not repo.takes(write):
            continue
        if repo.trouble is not None:
            told.append(recovered(write.key, repo.trouble, write.verified_at))
        repo.take(write)
        if write.news is not None and _is_news(write, repo.told):
            told.append(since_told(write.news, never_told=repo.told is None))
            digests[write.key] = repo.told = write.digest
    await _note_told(c, digests)
    return _some(told)


def _is_news(write: RepoSynced, told: str | None) -> bool:
    return write.digest != told and (told is None or not write.copied)


async def _note_told(c: AsyncConnection, digests: Mapping[RepoKey, str]) -> None:
    if digests:
        await c.execute(_TELL_DIGEST, [{"p_key": key, "p_digest": d} for key, d in digests.items()])


async def _failed(c: AsyncConnection, db: Database, group: list[RepoFailed]) -> list[NewEvent]:
    keys = [w.key for w in group if rows.storable(w.key)]
    if not keys:
        return []
    query = sa.select(*_REPO).where(IN_CATALOG, db.among_many(repos.c.key, keys))
    known = {row.key: _before(row) for row in await c.execute(query)}
    told: list[NewEvent] = []
    statuses: dict[RepoKey, str] = {}
    for write in group:
        if (was := known.get(write.key)) is None or write.status is None:
            continue
        news = status_changed(write.key, was, write.status, write.failure, write.at)
        if news is not None:
            told.append(news)
            statuses[write.key] = write.status.value
            known[write.key] = replace(was, told=write.status.value)
    if statuses:
        await c.execute(_TELL_STATUS, [{"p_key": key, "p_status": s} for key, s in statuses.items()])
    return told


async def _excused(c: AsyncConnection, db: Database, group: list[RepoExcused], now: float) -> list[NewEvent]:
    """Others were told of the first failure, which is taken back."""
    keys = [w.key for w in group if rows.storable(w.key)]
    query = sa.select(*_REPO).where(db.among_many(repos.c.key, keys), repos.c.consecutive_failures == 1)
    return [excused(row.key, _before(row), now) for row in await c.execute(query)]


async def _ended(c: AsyncConnection, group: list[TaskEnded]) -> list[NewEvent]:
    """Of tasks that somebody asked for or that are a project's, and that are open: one ends once."""
    ends = {w.id: w.outcome for w in reversed(group)}  # the first of several counts
    ids = list(ends)
    told: list[NewEvent | None] = []
    for begin in range(0, len(ids), AT_ONCE):
        for row in await c.execute(_OF_NOTE.where(tasks.c.id.in_(ids[begin : begin + AT_ONCE]))):
            end = _task_end(row, ends[row.id])
            told.append(task_ended(end) if was_asked_for(end.trigger) else None)
            told.append(pull_ended(end) if row.pulled else None)
    return _some(told)


def _task_end(row: rows.Row, end: Outcome) -> TaskEnd:
    return TaskEnd(
        id=TaskId(row.id),
        repo=RepoKey(row.repo),
        trigger=Trigger(row.trigger),
        status=end.status,
        started_at=end.started_at,
        ended_at=end.ended_at,
        has_changes=end.has_changes,
        commits=end.changes_count,
        source_commit=end.source_commit,
        failure=end.failure,
        target_commit=end.target_commit,
        retry_count=row.retry_count,
    )


def _before(row: rows.Row) -> RepoBefore:
    kind = None if row.failure_kind is None else FailureKind(row.failure_kind)
    return RepoBefore(RepoStatus(row.status), row.consecutive_failures, kind, row.told_status)


def _some(told: Iterable[NewEvent | None]) -> list[NewEvent]:
    return [event for event in told if event is not None]
