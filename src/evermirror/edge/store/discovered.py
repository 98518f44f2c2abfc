"""Questions and changes about groups that are followed, and the projects that were found in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.pull import bounds
from evermirror.edge.store.tasks import ID_MAX
from evermirror.edge.store.watch_tables import discovered, discoveries, discovery_finds
from evermirror.model.discovery import (
    Bound,
    BoundState,
    Discovery,
    DiscoveryId,
    DiscoverySpec,
    Protected,
    RunOutcome,
    RunState,
)
from evermirror.model.forge import Forge, FoundProject, Identity, Visibility
from evermirror.model.repo import Priority, RepoKey

FORGE_ID_BYTES_MAX = 300  # shares an index entry with the path
AT_ONCE = 500  # rows of one statement


# Read


async def load(db: Database) -> tuple[Discovery, ...]:
    async with db.read() as c:
        found = await c.execute(sa.select(discoveries).order_by(discoveries.c.id))
        return tuple(_discovery_out(row) for row in found)


async def bound_of(db: Database, discovery: DiscoveryId) -> tuple[Bound, ...]:
    """All of them, by path."""
    query = sa.select(discovered).where(discovered.c.discovery == discovery).order_by(*_ORDER)
    async with db.read() as c:
        return tuple(_bound_out(row) for row in await c.execute(query))


async def bound_page(
    db: Database, discovery: DiscoveryId, state: BoundState | None, page: int, size: int
) -> tuple[tuple[Bound, ...], int]:
    """By path, and how many there are."""
    if not 0 <= discovery <= ID_MAX:
        return (), 0
    count, begin = bounds(page, size)
    where = [discovered.c.discovery == discovery]
    if state is not None:
        where.append(discovered.c.state == state.value)
    query = sa.select(discovered).where(*where).order_by(*_ORDER).limit(count).offset(begin)
    total = sa.select(sa.func.count()).select_from(discovered).where(*where)
    async with db.read() as c:
        found = tuple(_bound_out(row) for row in await c.execute(query))
        return found, int((await c.execute(total)).scalar_one())


async def bound_counts(db: Database, discovery: DiscoveryId) -> dict[BoundState, int]:
    """Of the states that are there."""
    state = discovered.c.state
    query = sa.select(state, sa.func.count()).where(discovered.c.discovery == discovery).group_by(state)
    async with db.read() as c:
        return {BoundState(name): number for name, number in await c.execute(query)}


async def is_bound_elsewhere(db: Database, key: RepoKey, discovery: DiscoveryId) -> bool:
    """Whether another discovery that is followed has it as its own."""
    followed = sa.select(discoveries.c.id).where(discoveries.c.enabled)
    query = sa.select(sa.literal(1)).where(
        discovered.c.key == key,
        discovered.c.discovery != discovery,
        discovered.c.state == BoundState.ACTIVE.value,
        discovered.c.discovery.in_(followed),
    )
    async with db.read() as c:
        return (await c.execute(query.limit(1))).first() is not None


async def closed_branches(db: Database) -> tuple[Bound, ...]:
    """Those with a target that was made, and whose branches were not opened yet."""
    query = sa.select(discovered).where(
        discovered.c.made_target,
        sa.not_(discovered.c.branches_open),
        discovered.c.state == BoundState.ACTIVE.value,
    )
    async with db.read() as c:
        return tuple(_bound_out(row) for row in await c.execute(query.order_by(*_ORDER)))


async def found_of(db: Database, discovery: DiscoveryId) -> tuple[FoundProject, ...]:
    """What the listing under way has found so far, in the order of ids."""
    query = (
        sa.select(discovery_finds.c.data)
        .where(discovery_finds.c.discovery == discovery)
        .order_by(discovery_finds.c.forge_id)
    )
    async with db.read() as c:
        return tuple(_found_out(rows.json_out(data)) for data in await c.scalars(query))


_ORDER = (discovered.c.path, discovered.c.forge_id)


# Write


async def insert(db: Database, discovery: Discovery) -> Discovery:
    """With the id that it got."""
    new = discoveries.insert().returning(discoveries.c.id)
    async with db.write() as c:
        made = await c.execute(new, _discovery_in(discovery))
        return dataclasses.replace(discovery, id=DiscoveryId(made.scalar_one()))


async def save(
    db: Database,
    discovery: Discovery,
    bound: Sequence[Bound],
    found: Sequence[FoundProject],
    *,
    forget_found: bool,
) -> bool:
    """All or nothing; nothing where it was removed meanwhile."""
    change = discoveries.update().where(discoveries.c.id == discovery.id).values(_discovery_in(discovery))
    of_it = {"discovery": discovery.id}
    async with db.write() as c:
        if not (await c.execute(change)).rowcount:
            return False
        if forget_found:
            await c.execute(discovery_finds.delete().where(discovery_finds.c.discovery == discovery.id))
        await _put(db, c, discovered, [_bound_in(b) | of_it for b in bound])
        await _put(db, c, discovery_finds, [_found_in(f) | of_it for f in found])
    return True


async def note_branches(db: Database, bound: Bound, *, opened: bool, why: str) -> None:
    """Nothing, where it is no longer the same."""
    change = (
        discovered.update()
        .where(
            discovered.c.discovery == bound.discovery,
            discovered.c.forge_id == bound.forge_id,
            discovered.c.path == bound.path,
            discovered.c.target_url == bound.target_url,
            discovered.c.state == BoundState.ACTIVE.value,
        )
        .values(branches_open=opened, why=rows.free_text(why))
    )
    async with db.write() as c:
        await c.execute(change)


async def _put(db: Database, c: AsyncConnection, table: sa.Table, values: list[dict[str, Any]]) -> None:
    """Added, or replaced by their keys."""
    insert = db.insert(table)
    key = [column.name for column in table.primary_key]
    replaced = {column.name: insert.excluded[column.name] for column in table.c if column.name not in key}
    statement = insert.on_conflict_do_update(index_elements=key, set_=replaced)
    for begin in range(0, len(values), AT_ONCE):
        await c.execute(statement, values[begin : begin + AT_ONCE])


async def remove(db: Database, discovery: DiscoveryId) -> bool:
    """With what was found; whether it was there."""
    if not 0 <= discovery <= ID_MAX:
        return False
    async with db.write() as c:
        for table in (discovered, discovery_finds):
            await c.execute(table.delete().where(table.c.discovery == discovery))
        gone = await c.execute(discoveries.delete().where(discoveries.c.id == discovery))
        return bool(gone.rowcount)


# From values to rows and back


def _discovery_in(discovery: Discovery) -> dict[str, Any]:
    return {
        "spec": rows.json_in(_spec_in(discovery.spec)),
        "created_by": rows.free_text(discovery.created_by),
        "created_at": discovery.created_at,
        "enabled": discovery.enabled,
        "group_id": rows.free_text(discovery.group_id),
        "next_at": discovery.next_at,
        "runs": discovery.runs,
        "failures": discovery.failures,
        "run": None if discovery.run is None else rows.json_in(dataclasses.asdict(discovery.run)),
        "last": None if discovery.last is None else rows.json_in(_outcome_in(discovery.last)),
        "seen_as": None if discovery.seen_as is None else rows.json_in(dataclasses.asdict(discovery.seen_as)),
    }


def _discovery_out(row: rows.Row) -> Discovery:
    run, last = rows.json_out(row.run), rows.json_out(row.last)
    return Discovery(
        id=DiscoveryId(row.id),
        spec=_spec_out(rows.json_out(row.spec)),
        created_by=row.created_by,
        created_at=row.created_at,
        enabled=row.enabled,
        group_id=row.group_id,
        next_at=row.next_at,
        runs=row.runs,
        failures=row.failures,
        run=None if run is None else _run_out(run),
        last=None if last is None else _outcome_out(last),
        seen_as=_identity_out(rows.json_out(row.seen_as)),
    )


def _run_out(told: Mapping[str, Any]) -> RunState:
    return RunState(**_known(RunState, told) | {"seen_as": _identity_out(told.get("seen_as"))})


def _identity_out(told: Mapping[str, Any] | None) -> Identity | None:
    if told is None:
        return None
    scopes = told.get("scopes")
    return Identity(**_known(Identity, told) | {"scopes": None if scopes is None else tuple(scopes)})


def _spec_in(spec: DiscoverySpec) -> dict[str, Any]:
    told = dataclasses.asdict(spec)
    return told | {name: None if told[name] is None else told[name].value for name in _ENUMS}


def _spec_out(told: Mapping[str, Any]) -> DiscoverySpec:
    fields = _known(DiscoverySpec, told)
    for name, kind in _ENUMS.items():
        if fields.get(name) is not None:
            fields[name] = kind(fields[name])
    for name in ("include", "exclude"):
        fields[name] = tuple(fields.get(name, ()))
    return DiscoverySpec(**fields)


_ENUMS = {
    "forge": Forge,
    "target_forge": Forge,
    "visibility": Visibility,
    "protected": Protected,
    "priority": Priority,
}


def _outcome_in(outcome: RunOutcome) -> dict[str, Any]:
    told = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(outcome)}
    return told | {
        "failure": None if outcome.failure is None else rows.failure_in(outcome.failure, outcome.ended_at)
    }


def _outcome_out(told: Mapping[str, Any]) -> RunOutcome:
    fields = _known(RunOutcome, told)
    return RunOutcome(**fields | {"failure": rows.failure_out(fields.get("failure"))})


def _known(kind: type[Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What another version knows besides is passed over; what it did not know is as by default."""
    fields = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in told.items() if name in fields}


def _found_in(found: FoundProject) -> dict[str, Any]:
    told = dataclasses.asdict(found) | {"visibility": found.visibility.value}
    return {
        "forge_id": rows.name_in(found.id, "id", bytes_max=FORGE_ID_BYTES_MAX),
        "data": rows.json_in(told),
    }


def _found_out(told: Mapping[str, Any]) -> FoundProject:
    fields = _known(FoundProject, told)
    return FoundProject(**fields | {"visibility": Visibility(fields["visibility"])})


def _bound_in(bound: Bound) -> dict[str, Any]:
    return {
        "forge_id": rows.name_in(bound.forge_id, "id", bytes_max=FORGE_ID_BYTES_MAX),
        "path": rows.name_in(bound.path, "path"),
        "state": bound.state.value,
        "key": None if bound.key is None else rows.name_in(bound.key, "repo"),
        "project_key": rows.free_text(bound.project_key),
        "target_url": None if bound.target_url is None else rows.free_text(bound.target_url),
        "made_target": bound.made_target,
        "branches_open": bound.branches_open,
        "why": rows.free_text(bound.why),
        "run": bound.run,
        "updated_at": bound.updated_at,
    }


def _bound_out(row: rows.Row) -> Bound:
    return Bound(
        discovery=DiscoveryId(row.discovery),
        forge_id=row.forge_id,
        path=row.path,
        state=BoundState(row.state),
        key=None if row.key is None else RepoKey(row.key),
        project_key=row.project_key,
        target_url=row.target_url,
        made_target=row.made_target,
        branches_open=row.branches_open,
        why=row.why,
        run=row.run,
        updated_at=row.updated_at,
    )
