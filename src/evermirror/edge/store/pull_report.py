"""What a report is made from, counted by the database: rows of tasks and notes never leave it one by one.

Tasks are counted in one walk over the index of those that ended. What they are added up by is the day; a run
of looks without a change is a row that may reach over many days: those of the same first and last day are
added up, with the three figures that they are spread by (core/watch/report.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import pull_history
from evermirror.edge.store.columns import float_sum
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import (
    IN_CATALOG,
    pull_course,
    pull_course_classes,
    pull_projects,
    repos,
    tasks,
)
from evermirror.model.failure import FailureKind
from evermirror.model.pull import LoadLevel
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.report import (
    DAY_S,
    EndedRuns,
    EndedTasks,
    Failing,
    ReportFacts,
    Span,
    StepLag,
    StepPressure,
)
from evermirror.model.task import TaskStatus

FAILING_MAX = 10  # projects that are named

Number = sa.ColumnElement[Any]

_PRIORITIES = [priority.value for priority in Priority]
_STATUSES = [status.value for status in TaskStatus if status.ended]
_last, _first = tasks.c.completed_at, tasks.c.created_at
# The first columns of the index: named, they make both engines walk it.
_ENDED = (tasks.c.priority.in_(_PRIORITIES), tasks.c.status.in_(_STATUSES))


async def report_facts(db: Database, span: Span, *, public: bool) -> ReportFacts:
    """``public``: private projects are not named."""
    async with db.read() as c:
        ended = tuple(await _tasks(db, c, span))
        runs = tuple(await _runs(db, c, span))
        failing = await _failing(db, c, span, public=public)
        pressure = tuple(await _pressure(db, c, span))
        lag = tuple(await _lag(db, c, span))
    errors = await pull_history.error_statistics(db, span.begin, span.end)
    return ReportFacts(ended, runs, errors, failing, pressure, lag)


def _number(value: float) -> sa.ColumnElement[float]:
    return sa.literal(value, sa.Double())


def _floor(db: Database, value: Number) -> Number:
    """Of what is not negative. PostgreSQL rounds where it makes an integer; not every SQLite has a floor."""
    return sa.cast(value if db.is_sqlite else sa.func.floor(value), sa.BigInteger())


def _days_after(db: Database, at: Number, span: Span) -> Number:
    return _floor(db, (at - _number(span.begin)) / _number(DAY_S))


# Tasks


async def _tasks(db: Database, c: AsyncConnection, span: Span) -> list[EndedTasks]:
    day = _days_after(db, _last, span).label("day")
    query = (
        sa.select(day, tasks.c.priority, tasks.c.status, sa.func.count(), float_sum(tasks.c.changes_count))
        .where(*_ENDED, _last >= span.begin, _last < span.end, tasks.c.folded == 0)
        .group_by(tasks.c.priority, tasks.c.status, day)
    )
    return [
        EndedTasks(int(day), Priority(priority), TaskStatus(status), int(count), int(changes))
        for day, priority, status, count, changes in await c.execute(query)
    ]


async def _runs(db: Database, c: AsyncConnection, span: Span) -> list[EndedRuns]:
    """As few figures as there can be: each costs as much as the walk itself."""
    since = _first - _number(span.begin)
    first_day = sa.case((_first < span.begin, -1), else_=_days_after(db, _first, span)).label("first_day")
    last_day = _days_after(db, _last, span).label("last_day")
    looks = tasks.c.folded + 1
    a_second = sa.cast(looks, sa.Double()) / sa.func.nullif(_last - _first, _number(0.0))
    query = (
        sa.select(
            first_day,
            last_day,
            tasks.c.priority,
            tasks.c.status,
            float_sum(looks),
            sa.func.sum(a_second),
            sa.func.sum(a_second * since),
            float_sum(tasks.c.changes_count),
        )
        .where(*_ENDED, _last >= span.begin, _last < span.end, tasks.c.folded > 0)
        .group_by(tasks.c.priority, tasks.c.status, first_day, last_day)
    )
    return [
        EndedRuns(
            int(first),
            int(last),
            Priority(priority),
            TaskStatus(status),
            looks=int(count),
            looks_a_second=float(a_second or 0.0),
            looks_by_beginning=float(weighed or 0.0),
            changes=int(changes),
        )
        for first, last, priority, status, count, a_second, weighed, changes in await c.execute(query)
    ]


# Projects that fail


async def _failing(db: Database, c: AsyncConnection, span: Span, *, public: bool) -> tuple[Failing, ...]:
    """Most errors first, then by key."""
    when = (tasks.c.failure_kind.is_not(None), _last >= span.begin, _last < span.end)
    counted = (
        sa.select(tasks.c.repo, sa.func.count().label("errors"))
        .where(*when)
        .group_by(tasks.c.repo)
        .subquery()
    )
    query = sa.select(counted.c.repo, counted.c.errors)
    if public:
        query = query.where(
            sa.exists().where(repos.c.key == counted.c.repo, IN_CATALOG, sa.not_(repos.c.private))
        )
    most = query.order_by(counted.c.errors.desc(), counted.c.repo).limit(FAILING_MAX)
    errors = {row.repo: int(row.errors) for row in await c.execute(most)}
    kinds = await _kinds_of(db, c, list(errors), when)
    known = (
        sa.select(repos.c.key, repos.c.alias, pull_projects.c.failures, pull_projects.c.paused)
        .select_from(repos.outerjoin(pull_projects, pull_projects.c.repo == repos.c.id))
        .where(db.among_many(repos.c.key, list(errors)), IN_CATALOG)
    )
    about = {row.key: row for row in await c.execute(known)} if errors else {}
    return tuple(_one_failing(key, count, kinds[key], about.get(key)) for key, count in errors.items())


def _one_failing(key: str, errors: int, kind: FailureKind, row: Any) -> Failing:
    """``row`` is None where it left the catalog."""
    if row is None:
        return Failing(RepoKey(key), key, errors, kind)
    return Failing(RepoKey(key), row.alias or key, errors, kind, row.failures or 0, bool(row.paused))


async def _kinds_of(
    db: Database, c: AsyncConnection, keys: Sequence[str], when: tuple[sa.ColumnElement[bool], ...]
) -> dict[str, FailureKind]:
    """The most frequent kind of each; of equal ones the first by name."""
    if not keys:
        return {}
    count = sa.func.count()
    query = (
        sa.select(tasks.c.repo, tasks.c.failure_kind, count)
        .where(*when, db.among_many(tasks.c.repo, keys))
        .group_by(tasks.c.repo, tasks.c.failure_kind)
        .order_by(count, tasks.c.failure_kind.desc())
    )
    return {repo: FailureKind(kind) for repo, kind, _ in await c.execute(query)}


# The course


def _step(db: Database, at: sa.Column[Any], span: Span) -> Number:
    return _floor(db, (at - _number(span.begin)) / _number(span.step_s)).label("step")


def _notes(of: sa.ColumnElement[bool]) -> Number:
    return sa.func.sum(sa.case((of, 1), else_=0))


async def _pressure(db: Database, c: AsyncConnection, span: Span) -> list[StepPressure]:
    course = pull_course.c
    query = (
        sa.select(
            _step(db, course.at, span),
            sa.func.count().label("notes"),
            sa.func.avg(course.slots).label("limit"),
            sa.func.avg(course.running).label("running"),
            sa.func.avg(course.queued).label("queued"),
            sa.func.min(course.slots).label("limit_min"),
            sa.func.max(course.slots).label("limit_max"),
            sa.func.max(course.running).label("running_max"),
            _notes(course.running > course.slots).label("above_limit"),
            _notes(course.running >= course.slots).label("at_limit"),
            sa.func.count(course.load_level).label("load_known"),
            _notes(course.load_level == LoadLevel.HIGH.value).label("load_high"),
            _notes(course.load_level == LoadLevel.LOW.value).label("load_low"),
            float_sum(course.looks).label("looks"),
            sa.func.sum(course.source_s).label("source_s"),
            float_sum(course.received_bytes).label("received_bytes"),
        )
        .where(course.at >= span.begin, course.at < span.end, course.slots.is_not(None))
        .group_by("step")
        .order_by("step")
    )
    return [
        StepPressure(
            step=int(row.step),
            notes=int(row.notes),
            limit=float(row.limit),
            running=float(row.running),
            queued=float(row.queued),
            limit_min=int(row.limit_min),
            limit_max=int(row.limit_max),
            running_max=int(row.running_max),
            above_limit=int(row.above_limit),
            at_limit=int(row.at_limit),
            load_known=int(row.load_known),
            load_high=int(row.load_high),
            load_low=int(row.load_low),
            looks=int(row.looks),
            source_s=float(row.source_s),
            received_bytes=int(row.received_bytes),
        )
        for row in await c.execute(query)
    ]


async def _lag(db: Database, c: AsyncConnection, span: Span) -> list[StepLag]:
    course = pull_course_classes.c
    measured = sa.func.sum(sa.case((course.average_delay_s.is_not(None), course.measured), else_=0))
    query = (
        sa.select(
            _step(db, course.at, span),
            course.priority,
            sa.func.sum(course.average_delay_s * course.measured).label("delays_s"),
            measured.label("measured"),
            sa.func.max(course.worst_delay_s).label("worst_s"),
            sa.func.sum(course.equal).label("equal"),
            sa.func.sum(course.compared).label("compared"),
        )
        .where(course.at >= span.begin, course.at < span.end)
        .group_by("step", course.priority)
        .order_by("step")
    )
    return [
        StepLag(
            int(row.step),
            Priority(row.priority),
            row.delays_s / float(row.measured) if row.measured and row.delays_s is not None else None,
            row.worst_s,
            int(row.equal),
            int(row.compared),
            int(row.measured),
        )
        for row in await c.execute(query)
    ]
