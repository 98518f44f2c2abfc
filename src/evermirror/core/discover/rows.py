"""Rows of a discovery, and projects that are here, as a plan asks about them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from evermirror.core.discover.here import Here, Known, place_of
from evermirror.core.discover.naming import Named
from evermirror.model.discovery import Bound, BoundState
from evermirror.model.forge import Identity
from evermirror.model.repo import RepoKey

GONE_LEAST = 10
GONE_SHARE = 0.2
NOT_MADE = frozenset({BoundState.REFUSED, BoundState.CLASH})


def is_made(row: Bound | None) -> bool:
    return row is not None and row.key is not None and row.state in (BoundState.ACTIVE, BoundState.GONE)


def current_rows(bound: Iterable[Bound]) -> dict[str, Bound]:
    """Of each project the row that speaks for it: not one that it was renamed from, if there is another."""
    rows: dict[str, Bound] = {}
    for row in sorted(bound, key=lambda row: (row.state is not BoundState.RENAMED, row.updated_at, row.path)):
        rows[row.forge_id] = row
    return rows


def kept_places(
    rows: Mapping[str, Bound], chosen: Container[str], here: Here, *, complete: bool
) -> dict[str, Bound]:
    """Targets of what is gone: they stay its own as long as its project is here, since it may return; and of
    what may yet be found."""
    return {
        place_of(row.target_url): row
        for id_, row in rows.items()
        if id_ not in chosen
        and row.target_url is not None
        and (row.key in here.repos or (not complete and row.state in NOT_MADE))
    }


def forgotten(row: Bound, taken: Container[RepoKey | None]) -> Bound | None:
    """A row that is over without a step: nothing was made for it, or another project has its place now, and
    with it all that was made."""
    if row.state in NOT_MADE:
        return replace(row, state=BoundState.GONE, why="")
    if is_made(row) and row.key in taken:
        why = "another project has its path now"
        gone = replace(row, state=BoundState.GONE, key=None, target_url=None, why=why)
        return replace(gone, made_target=False, branches_open=False)
    return None


def are_too_many(gone: int, active: int) -> bool:
    """Whether so many of all that are active may be gone only by a person's word. One alone may go; more
    than half at once is as likely a forge that does not show what it has."""
    return gone > max(GONE_LEAST, GONE_SHARE * active) or (active > 1 and 2 * gone > active)


def sees_less(before: Identity | None, now: Identity | None) -> str:
    """Why a listing may lack what an earlier one had: it was read as somebody else, or with fewer scopes.
    Empty: there is no reason to think so."""
    if before is None:
        return ""
    if now is None:
        return f"the projects were seen as {before.name} before, and the forge does not say now who we are"
    if now.user_id != before.user_id:
        was = f"{before.name} (user {before.user_id})"
        return f"the forge takes us for {now.name} (user {now.user_id}) now, and took us for {was} before"
    lost = sorted(set(before.scopes or ()) - set(now.scopes)) if now.scopes is not None else []
    return f"the token lost scopes: {', '.join(lost)}" if lost else ""


def still_known(before: Identity | None, now: Identity | None) -> Identity | None:
    """Who saw the listing, where nothing was missing in it: what a forge did not say this time, it said
    before."""
    if before is None or now is None:
        return now or before
    if now.scopes is None and now.user_id == before.user_id:
        return replace(now, scopes=before.scopes)
    return now


def is_itself(known: Known, named: Named, place: str) -> bool:
    """What is here under this source is what would be made: a run was cut short between making it and noting
    it, or somebody was faster."""
    if known.name != named.project_key:
        return False
    return not known.is_project or not place or place in known.targets


def source_words(known: Known) -> str:
    state = f", which is paused since it left its group{room(known.name)}" if known.left else ""
    return f"its source is here already as {known.name}{state}"


def room(name: str) -> str:
    return f"; `evermirror pull remove {name}` makes room"
