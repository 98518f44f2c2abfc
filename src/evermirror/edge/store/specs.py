"""What a worker must know of the repos that it is to hold: one question for all of them, and one row.

The database itself makes one list of them, as JSON. With a row for each, SQLite's thread takes a step for
each, and at every step the interpreter's lock goes to that thread and back: as long as all else together.
Times, counts and intervals keep all their digits: what is told is what was written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from evermirror.edge.store import rows
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.database import Database
from evermirror.model.activity import NO_ACTIVITY, Activity
from evermirror.model.repo import RepoKey, RepoSpec

SPECS_MAX = 1000  # repos of one command to a worker, twice what the fleet's machine puts into one


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
    query, told = (_OF_SQLITE, json.dumps(asked)) if db.is_sqlite else (_OF_POSTGRES, asked)
    async with db.read() as c:
        listed = (await c.execute(query, {"keys": told})).scalar_one()
    with collector_paused():
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
    fsck_allow: str,
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
        fsck_allow,
    )
    return AssignedSpec(spec, NO_ACTIVITY if activity is None else _activity_out(*activity), bool(enabled))


def _activity_out(*numbers_and_rhythm: Any) -> Activity:
    *numbers, rhythm = numbers_and_rhythm
    fast, middle, slow, as_of, last_push_at = map(float, numbers)
    kept = None if rhythm is None else bytes.fromhex(rhythm)
    return rows.activity_of(fast, middle, slow, as_of, last_push_at, kept)


def _listed(list_of: str, all_of: str, exact: str, hexed: str, among: str) -> sa.TextClause:
    """As text, which SQLAlchemy need not look through at each question; the engines have other words."""
    *numbers, rhythm = rows.activity_in(NO_ACTIVITY)
    known = " OR ".join(f"{number} <> 0" for number in numbers)
    learnt = ", ".join(exact.format(number) for number in numbers)
    hours = f"CASE WHEN {rhythm} IS NOT NULL THEN {hexed.format(rhythm)} END"
    interval_s = f"CASE WHEN interval_s IS NOT NULL THEN {exact.format('interval_s')} END"
    told = ", ".join(interval_s if name == "interval_s" else name for name in (*rows.SPEC, "enabled"))
    activity = f"CASE WHEN {known} OR {rhythm} IS NOT NULL THEN {list_of}({learnt}, {hours}) END"
    return sa.text(
        f"SELECT CAST({all_of}({list_of}({told}, {activity})) AS TEXT)"  # noqa: S608 - words of ours
        f" FROM repos WHERE removed_at IS NULL AND key IN ({among})"
    )


_OF_SQLITE = _listed(
    list_of="json_array",
    all_of="json_group_array",
    exact="printf('%!.17g', {})",  # its JSON has 15 digits of a double
    hexed="hex({})",
    among="SELECT value FROM json_each(:keys)",
)
_OF_POSTGRES = _listed(
    list_of="json_build_array",
    all_of="json_agg",
    exact="{}",
    hexed="encode({}, 'hex')",
    among="SELECT unnest(CAST(:keys AS TEXT[]))",
)
