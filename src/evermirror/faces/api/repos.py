"""One repo in full: its state and plan, its refs, its tasks, who holds it."""

from __future__ import annotations

import bisect
from typing import Annotated

from fastapi import APIRouter, Query

from evermirror.faces.api.context import ApiDep, CallerDep, KeyPath, find_visible, problems
from evermirror.faces.api.inputs import CleanText, CursorQuery, LimitQuery, after_cursor, cursor_of
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_public import task_for
from evermirror.faces.api.text import printable
from evermirror.faces.api.views import (
    HoldersView,
    RefsView,
    RefView,
    RepoTasksView,
    RepoView,
    holders_view,
    repo_task_view,
    repo_view,
)

_MAX_REFS = 10_000  # of one page; a repo may have a million

PrefixQuery = Annotated[CleanText, Query(max_length=1_000, description="Only refs that begin like this")]

router = APIRouter(tags=["repos"])
_REFUSALS = problems(Kind.NOT_FOUND, Kind.INVALID)


# The longer paths come first: a key may hold slashes.
@router.get("/api/repos/{key:path}/-/refs", summary="Branches and tags of the mirror", responses=_REFUSALS)
async def get_refs(
    key: KeyPath,
    api: ApiDep,
    caller: CallerDep,
    prefix: PrefixQuery = "",
    limit: Annotated[int, Query(ge=1, le=_MAX_REFS)] = 1_000,
    cursor: CursorQuery = None,
) -> RefsView:
    """In name order; follow `next_cursor` until it is null. `total` counts all refs of the mirror."""
    record = await find_visible(api, caller, key)
    snapshot = await api.service.refs(record.key)
    names = sorted(n for n in snapshot.refs if n.startswith(prefix))
    after = after_cursor(cursor)
    begin = bisect.bisect_right(names, after) if after is not None else 0
    page = names[begin : begin + limit]
    more = begin + limit < len(names)
    return RefsView.model_construct(
        key=printable(record.key),
        head=printable(snapshot.head) if snapshot.head is not None else None,
        digest=snapshot.digest(),
        total=len(snapshot.refs),
        refs=[RefView.model_construct(name=printable(n), oid=snapshot.refs[n]) for n in page],
        next_cursor=cursor_of(page[-1]) if more else None,
    )


@router.get("/api/repos/{key:path}/-/tasks", summary="Tasks of a repo, newest first", responses=_REFUSALS)
async def get_repo_tasks(
    key: KeyPath, api: ApiDep, caller: CallerDep, limit: LimitQuery = 50
) -> RepoTasksView:
    """Syncs that were asked for, and those that moved something."""
    record = await find_visible(api, caller, key)
    tasks = await api.service.list_tasks(record.key, limit)
    return RepoTasksView(items=[repo_task_view(task_for(t, caller)) for t in tasks])


@router.get("/api/repos/{key:path}/-/holders", summary="Who holds a copy, and why", responses=_REFUSALS)
async def get_holders(key: KeyPath, api: ApiDep, caller: CallerDep) -> HoldersView:
    """Each with its state and the reason, and the whole in words."""
    record = await find_visible(api, caller, key)
    why = await api.service.why(record.key)
    return HoldersView(
        holders=holders_view(await api.service.holders(record.key)), why=[printable(line) for line in why]
    )


@router.get("/api/repos/{key:path}", summary="One repo in full", responses=_REFUSALS)
async def get_repo(key: KeyPath, api: ApiDep, caller: CallerDep) -> RepoView:
    """By key or URL."""
    record = await find_visible(api, caller, key)
    service = api.service
    return repo_view(
        record,
        await service.plan(record.key),
        await service.holders(record.key),
        await service.guard(record.key),
        await service.upkeep(record.key),
    )
