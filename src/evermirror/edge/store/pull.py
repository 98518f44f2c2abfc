"""Questions and changes about projects: repos with a pull configuration, and their targets.

A project whose repo left the catalog is remembered, for the day it comes back, and told to nobody. What
people change goes through ``put``, which moves ``updated_at`` upwards; saves of the machine (pull_writes.py)
do not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.core.pull.events import OpenTask
from evermirror.edge.store import pull_rows, pull_writes, rows
from evermirror.edge.store.database import Along, Database
from evermirror.edge.store.tables import (
    IN_CATALOG,
    pull_projects,
    pull_sync_schedule,
    pull_targets,
    repos,
    tasks,
)
from evermirror.edge.store.tasks import ID_MAX, INSERT, OPEN, pending_row
from evermirror.model.pull import Project, Strategy, Target
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskRecord

THE_ONE = 1  # the id of the only strategy
LIST_MAX = 1000  # rows of one page
CHUNK = 5000  # projects read at a time when all are
AT_ONCE = 500  # projects written or named in one statement; SQLite's oldest limit is 999 parameters
TICK_S = 1e-6  # what a clock that stands still, or went back, is moved on by

PutProjects = Callable[[Sequence[Project]], Awaitable[tuple[Project, ...]]]  # as ``Store.put_projects``

_WITH_REPO = pull_projects.join(repos, repos.c.id == pull_projects.c.repo)
_JOINED = _WITH_REPO.outerjoin(tasks, tasks.c.id == pull_projects.c.task)
# A task that is no longer there is nobody's open task.
_PROJECT = (
    *(column for column in pull_projects.c if column.name != "task"),
    tasks.c.id.label("task"),
    *(repos.c[name] for name in ("key", "alias", "host", "credential")),
    repos.c.priority.label("repo_priority"),
)
_NAME = sa.func.coalesce(repos.c.alias, repos.c.key)


def _projects(*where: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(*_PROJECT).select_from(_JOINED).where(IN_CATALOG, *where)


# Read


async def load(db: Database) -> tuple[Project, ...]:
    """All of them, in the order of their repos' numbers."""
    query = (
        _projects(pull_projects.c.repo > sa.bindparam("after")).order_by(pull_projects.c.repo).limit(CHUNK)
    )
    found: list[Project] = []
    after = 0
    async with db.read() as c:
        while chunk := (await c.execute(query, {"after": after})).all():
            of_these = pull_targets.c.repo.between(chunk[0].repo, chunk[-1].repo)
            found += await _with_targets(c, chunk, of_these)
            after = chunk[-1].repo
    return tuple(found)


async def find_many(db: Database, keys: Iterable[RepoKey]) -> dict[RepoKey, Project]:
    async with db.read() as c:
        return {p.key: p async for p in _of_keys(db, c, keys)}


async def left(db: Database) -> frozenset[RepoKey]:
    """Those whose repos left the catalog."""
    query = sa.select(repos.c.key).select_from(_WITH_REPO).where(sa.not_(IN_CATALOG))
    async with db.read() as c:
        return frozenset(RepoKey(key) for key in await c.scalars(query))


async def page(
    db: Database, *, search: str, priority: Priority | None, page: int, size: int, public: bool
) -> tuple[tuple[Project, ...], int]:
    """By name, and how many there are. Search finds a part of name, key or URL, in any ASCII case."""
    if not rows.storable(search) or len(search.encode()) > rows.NAME_BYTES_MAX:
        return (), 0  # no stored text is like that
    where = _seen_by(public)
    if search:
        columns = (repos.c.key, repos.c.url, repos.c.alias)
        where.append(sa.or_(*(c.icontains(search, autoescape=True) for c in columns)))
    if priority is not None:
        where.append(pull_projects.c.priority == priority.value)
    return await _page(db, where, (_NAME,), page, size)


async def failed(
    db: Database, at_least: int, page: int, size: int, *, public: bool
) -> tuple[tuple[Project, ...], int]:
    """Those with so many failures in a row, most first, and how many there are."""
    where = [*_seen_by(public), pull_projects.c.failures >= max(0, min(at_least, _INT_MAX))]
    if at_least > 0:
        where.append(pull_projects.c.failures > sa.literal_column("0"))  # as the index on failures says
    return await _page(db, where, (pull_projects.c.failures.desc(), _NAME), page, size)


_INT_MAX = 2**31 - 1


def _seen_by(public: bool) -> list[sa.ColumnElement[bool]]:
    return [sa.not_(repos.c.private)] if public else []


async def _page(
    db: Database,
    where: Sequence[sa.ColumnElement[bool]],
    order: Sequence[sa.ColumnElement[Any]],
    page: int,
    size: int,
) -> tuple[tuple[Project, ...], int]:
    count, begin = bounds(page, size)
    listed = sa.select(pull_projects.c.repo).select_from(_WITH_REPO).where(IN_CATALOG, *where)
    total = sa.select(sa.func.count()).select_from(_WITH_REPO).where(IN_CATALOG, *where)
    these = listed.order_by(*order).limit(count).offset(begin).subquery()  # numbers alone are sorted
    query = _projects(pull_projects.c.repo.in_(sa.select(these.c.repo))).order_by(*order)
    async with db.read() as c:
        found = (await c.execute(query)).all()
        of_these = pull_targets.c.repo.in_([row.repo for row in found])
        return tuple(await _with_targets(c, found, of_these)), int((await c.execute(total)).scalar_one())


def bounds(page: int, size: int) -> tuple[int, int]:
    """LIMIT and OFFSET of a page, the first of which is 1."""
    count = max(0, min(size, LIST_MAX))
    return count, min(max(0, page - 1) * count, ID_MAX)


async def _of_keys(db: Database, c: AsyncConnection, keys: Iterable[RepoKey]) -> AsyncIterator[Project]:
    remaining = iter([key for key in dict.fromkeys(keys) if rows.storable(key)])
    while chunk := list(islice(remaining, AT_ONCE)):
        found = (await c.execute(_projects(db.among_many(repos.c.key, chunk)))).all()
        of_these = pull_targets.c.repo.in_([row.repo for row in found])
        for project in await _with_targets(c, found, of_these):
            yield project


async def _with_targets(
    c: AsyncConnection, found: Sequence[rows.Row], of_these: sa.ColumnElement[bool]
) -> list[Project]:
    """One statement for the targets of all."""
    order = (pull_targets.c.repo, pull_targets.c.place, pull_targets.c.id)
    told = await c.execute(sa.select(pull_targets).where(of_these).order_by(*order)) if found else ()
    targets = {
        repo: [pull_rows.target_out(row) for row in group] for repo, group in groupby(told, lambda r: r.repo)
    }
    return [pull_rows.project_out(row, targets.get(row.repo, ())) for row in found]


async def ended_tasks(db: Database) -> tuple[TaskRecord, ...]:
    """Tasks that have ended, and that their projects still name as open: a crash came between."""
    joined = tasks.join(pull_projects, pull_projects.c.task == tasks.c.id).join(
        repos, repos.c.id == pull_projects.c.repo
    )
    query = sa.select(tasks).select_from(joined).where(IN_CATALOG, sa.not_(OPEN)).order_by(tasks.c.id)
    async with db.read() as c:
        return tuple(rows.task_out(row) for row in await c.execute(query))


# Write


async def put(
    db: Database, projects: Iterable[Project], now: float, along: Along | None = None
) -> tuple[Project, ...]:
    """Adds projects, or replaces all that is known of them. Targets without an id (0) get one, those that
    are no longer named go. Told as they are now, in their order, without those whose repos are not in the
    catalog. All or nothing."""
    wanted = {project.key: project for project in projects if rows.storable(project.key)}
    remaining = iter(wanted)
    async with db.write() as c:
        while keys := list(islice(remaining, AT_ONCE)):
            await _put_chunk(db, c, [wanted[key] for key in keys], now)
        if along is not None:
            await along(c)
        stored = {p.key: p async for p in _of_keys(db, c, wanted)}
    return tuple(stored[key] for key in wanted if key in stored)


async def _put_chunk(db: Database, c: AsyncConnection, projects: Sequence[Project], now: float) -> None:
    known = await _numbers(db, c, [p.key for p in projects])
    there = [p for p in projects if p.key in known]
    if not there:
        return
    insert = db.insert(pull_projects)
    values = []
    for project in there:
        repo, version, _ = known[project.key]
        moved = max(now, project.updated_at + TICK_S, (version or 0.0) + TICK_S)
        values.append(
            {"repo": repo, "created_at": now, "updated_at": moved}
            | pull_rows.project_state_in(project)
            | pull_rows.project_config_in(project)
        )
    replaced = {name: insert.excluded[name] for name in values[0] if name not in ("repo", "created_at")}
    await c.execute(insert.on_conflict_do_update(index_elements=["repo"], set_=replaced), values)
    ids = [known[p.key][0] for p in there]
    await _put_targets(c, {known[p.key][0]: p.targets for p in there})
    await c.execute(repos.update().where(repos.c.id.in_(ids), sa.not_(repos.c.pulled)).values(pulled=True))
    for priority in Priority:
        others = [known[p.key][0] for p in there if p.config.priority is priority is not known[p.key][2]]
        if others:
            await c.execute(repos.update().where(repos.c.id.in_(others)).values(priority=priority.value))


async def _numbers(
    db: Database, c: AsyncConnection, keys: Sequence[str]
) -> dict[RepoKey, tuple[int, float | None, Priority]]:
    """Of the repos in the catalog: their numbers, the versions of their projects, where there are any, and
    their priorities."""
    joined = repos.outerjoin(pull_projects, pull_projects.c.repo == repos.c.id)
    columns = (repos.c.key, repos.c.id, pull_projects.c.updated_at, repos.c.priority)
    query = sa.select(*columns).select_from(joined)
    found = await c.execute(query.where(IN_CATALOG, db.among_many(repos.c.key, keys)))
    return {RepoKey(key): (number, version, Priority(of)) for key, number, version, of in found}


async def _put_targets(c: AsyncConnection, wanted: dict[int, tuple[Target, ...]]) -> None:
    query = sa.select(pull_targets.c.id, pull_targets.c.repo).where(pull_targets.c.repo.in_(list(wanted)))
    there = {row.id: row.repo for row in await c.execute(query)}
    changed, new = [], []
    for repo, targets in wanted.items():
        for place, target in enumerate(targets):
            row = pull_rows.target_in(target, repo, place)
            if there.get(target.id) == repo:
                del there[target.id]
                changed.append({f"p_{name}": value for name, value in row.items()} | {"p_id": target.id})
            else:
                new.append(row)
    if there:
        await c.execute(_DROP_TARGET, [{"p_id": target} for target in there])
    if changed:
        await c.execute(_CHANGE_TARGET, changed)
    if new:
        await c.execute(pull_targets.insert(), new)


_THIS_TARGET = pull_targets.c.id == sa.bindparam("p_id")
_DROP_TARGET = pull_targets.delete().where(_THIS_TARGET)
_CHANGE_TARGET = (
    pull_targets.update()
    .where(_THIS_TARGET)
    .values({c.name: sa.bindparam(f"p_{c.name}") for c in pull_targets.c if c.name not in ("id", "repo")})
)


async def remove(db: Database, keys: Iterable[RepoKey]) -> None:
    """The repos stay, without a pull configuration."""
    remaining = iter([key for key in dict.fromkeys(keys) if rows.storable(key)])
    async with db.write() as c:
        while chunk := list(islice(remaining, AT_ONCE)):
            ids = (await c.scalars(sa.select(repos.c.id).where(db.among_many(repos.c.key, chunk)))).all()
            await c.execute(pull_targets.delete().where(pull_targets.c.repo.in_(ids)))
            await c.execute(pull_projects.delete().where(pull_projects.c.repo.in_(ids)))
            await c.execute(repos.update().where(repos.c.id.in_(ids)).values(pulled=False))


async def open_tasks(db: Database, opens: Sequence[OpenTask], now: float) -> tuple[TaskRecord, ...]:
    """Each task with its project, which names it from then on: all or nothing. Left out are projects that
    are no longer there, and those that a person changed meanwhile."""
    wanted = {o.project.key: o for o in opens if rows.storable(o.project.key)}
    remaining = iter(wanted)
    created: dict[str, TaskRecord] = {}
    async with db.write() as c:
        while keys := list(islice(remaining, AT_ONCE)):
            known = await _numbers(db, c, keys)
            ready = [
                wanted[key]
                for key, (_, version, _) in known.items()
                if version is not None and version <= wanted[key].project.updated_at
            ]
            if ready:
                created |= await _open_chunk(c, ready, now)
    return tuple(created[key] for key in wanted if key in created)


async def _open_chunk(c: AsyncConnection, opens: Sequence[OpenTask], now: float) -> dict[str, TaskRecord]:
    values = [
        pending_row(
            o.project.key, o.trigger, user=o.user, params=o.params, now=now, retry_count=o.retry_count
        )
        for o in opens
    ]
    inserted = await c.execute(INSERT.returning(tasks), values)
    created = {row.repo: rows.task_out(row) for row in inserted}
    await pull_writes.save(c, [replace(o.project, task=created[o.project.key].id) for o in opens])
    return created


# The strategy


async def get_strategy(db: Database) -> Strategy | None:
    async with db.read() as c:
        row = (await c.execute(sa.select(pull_sync_schedule).where(_THE_ONE))).one_or_none()
    return None if row is None else pull_rows.strategy_out(row)


async def put_strategy(db: Database, strategy: Strategy, now: float) -> Strategy:
    """As it is kept: ``updated_at`` is now, ``created_at`` the time of the first one."""
    first = await get_strategy(db)
    kept = replace(strategy, created_at=now if first is None else first.created_at, updated_at=now)
    row = pull_rows.strategy_in(kept)
    insert = db.insert(pull_sync_schedule).values(id=THE_ONE, **row)
    async with db.write() as c:
        await c.execute(insert.on_conflict_do_update(index_elements=["id"], set_=row))
    return kept


_THE_ONE = pull_sync_schedule.c.id == THE_ONE
