"""What a worker must know of the repos that it is to hold: one question for all of them, and one row.

The database itself makes one list of them, as JSON. With a row for each, SQLite's thread takes a step for
each, and at every step the interpreter's lock goes to that thread and back: as long as all else together.
Numbers with a fraction keep all their digits: what is told is what was written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.database import Database
from evermirror.edge.store.tables import IN_CATALOG, repos
from evermirror.model.activity import NO_ACTIVITY, Activity
from evermirror.model.repo import RepoKey, RepoSpec

SPECS_MAX = 1000  # repos of one command to a worker, twice what the fleet's machine puts into one
_DIGITS = "%!.17g"  # of a double; SQLite's own JSON has 15 of them


@dataclass(frozen=True, slots=True)
class AssignedSpec:
    """A repo as a worker that is to hold it must know it."""

    spec: RepoSpec
    activity: Activity
    enabled: bool


async def assigned(db: Database, keys: Sequence[RepoKey]) -> list[AssignedSpec]:
    """Those of the keys that are in the catalog, in the order asked; one statement."""
    if len(keys) > SPECS_MAX:
        raise ValueError(f"{len(keys)} repos were asked for, and at most {SPECS_MAX} can be")
    asked = [key for key in dict.fromkeys(keys) if rows.storable(key)]
    query = _LISTED_BY_SQLITE if db.is_sqlite else _LISTED_BY_POSTGRES
    async with db.read() as c:
        listed = (await c.execute(query.where(IN_CATALOG, db.among_many(repos.c.key, asked)))).scalar_one()
    found = {item[0]: item for item in json.loads(listed or "[]")}
    return [_spec_out(*found[key]) for key in asked if key in found]


def _spec_out(
    key: str,
    url: str,
    host: str,
    priority: str,
    interval_s: str | float | None,
    mode: str,
    private: int,
    credential: str | None,
    fallbacks: str,
    pulled: int,
    hooked: int,
    enabled: int,
    activity: list[Any] | None,
) -> AssignedSpec:
    """One of the list: SQLite's truths are numbers there, and its numbers with a fraction texts."""
    gap_s = None if interval_s is None else float(interval_s)
    spec = rows.spec_of(
        key,
        url,
        host,
        priority,
        gap_s,
        mode,
        bool(private),
        credential,
        fallbacks,
        bool(pulled),
        bool(hooked),
    )
    return AssignedSpec(spec, NO_ACTIVITY if activity is None else _activity_out(*activity), bool(enabled))


def _activity_out(*numbers_and_rhythm: Any) -> Activity:
    *numbers, rhythm = numbers_and_rhythm
    fast, middle, slow, as_of, last_push_at = map(float, numbers)
    kept = None if rhythm is None else bytes.fromhex(rhythm)
    return rows.activity_of(fast, middle, slow, as_of, last_push_at, kept)


def _listed(*, by_sqlite: bool) -> sa.Select[str | None]:
    """Nothing where there is no such repo, or an empty list."""
    f = sa.func
    list_of, all_of = (f.json_array, f.json_group_array) if by_sqlite else (f.json_build_array, f.json_agg)

    def exact(number: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return f.printf(_DIGITS, number) if by_sqlite else number

    *numbers, rhythm = (repos.c[name] for name in rows.activity_in(NO_ACTIVITY))
    interval_s = repos.c.interval_s
    known = sa.or_(*(number != 0.0 for number in numbers), rhythm.is_not(None))
    hexed = f.hex(rhythm) if by_sqlite else f.encode(rhythm, "hex")
    learnt = list_of(*map(exact, numbers), sa.case((rhythm.is_not(None), hexed)))
    told: dict[str, sa.ColumnElement[Any]] = {name: repos.c[name] for name in (*rows.SPEC, "enabled")}
    told["interval_s"] = sa.case((interval_s.is_not(None), exact(interval_s)))
    return sa.select(sa.cast(all_of(list_of(*told.values(), sa.case((known, learnt)))), sa.Text))


_LISTED_BY_SQLITE, _LISTED_BY_POSTGRES = _listed(by_sqlite=True), _listed(by_sqlite=False)
