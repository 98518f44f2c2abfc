"""One repo in full: its state and plan, its refs, its tasks, who holds it."""

from __future__ import annotations

import asyncio
import bisect
import time
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query

from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import Api, ApiDep, CallerDep, KeyPath, find_visible, problems
from evermirror.faces.api.inputs import CleanText, CursorQuery, LimitQuery, after_cursor, cursor_of
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_public import task_for
from evermirror.faces.api.repo_views import PushesView, TargetsView, pushes_view, target_view
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
from evermirror.model.access import Role
from evermirror.model.hook import HookMemory
from evermirror.model.plan import PollPlan, StepCode
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.report import DAY_S

_MAX_DAYS = 90
_MAX_REFS = 10_000  # of one page; a repo may have a million

PrefixQuery = Annotated[CleanText, Query(max_length=1_000, description="Only refs that begin like this")]

router = APIRouter(tags=["repos"])
_REFUSALS = problems(Kind.NOT_FOUND, Kind.INVALID, Kind.BAD_ANSWER)


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


@router.get("/api/repos/{key:path}/-/pushes", summary="When upstream was pushed to", responses=_REFUSALS)
async def get_pushes(
    key: KeyPath, api: ApiDep, caller: CallerDep, days: Annotated[int, Query(ge=1, le=_MAX_DAYS)] = 30
) -> PushesView:
    """By day, in UTC, and the newest singly: each is a change that a look found. Several pushes between two
    looks are one; clones are none."""
    record = await find_visible(api, caller, key)
    now = time.time()
    told = await api.service.pushes(record.key, (now // DAY_S - days + 1) * DAY_S)
    return pushes_view(told, days, record.created_at, now)


@router.get("/api/repos/{key:path}/-/targets", summary="How its targets are, ref by ref", responses=_REFUSALS)
async def get_targets(key: KeyPath, api: ApiDep, caller: CallerDep) -> TargetsView:
    """As far as is known without asking them: what was put there, and what the last push found. The public is
    told how many there are."""
    record = await find_visible(api, caller, key)
    if api.pull is None:
        return TargetsView(targets=[], total=0)
    if not caller.may(Role.READER):  # no worker reads all refs for a number
        project = (await api.pull.find_project(record.key, planned=False)).project
        return TargetsView(targets=[], total=len(project.targets))
    states = await api.pull.targets(record.key)
    return TargetsView(targets=[target_view(state) for state in states], total=len(states))


@router.get("/api/repos/{key:path}/-/holders", summary="Who holds a copy, and why", responses=_REFUSALS)
async def get_holders(key: KeyPath, api: ApiDep, caller: CallerDep) -> HoldersView:
    """Each with its state and the reason, and the whole in words."""
    record = await find_visible(api, caller, key)
    why = await api.service.why(record.key)
    return HoldersView(
        holders=holders_view(await api.service.holders(record)), why=[printable(line) for line in why]
    )


@router.get("/api/repos/{key:path}", summary="One repo in full", responses=_REFUSALS)
async def get_repo(key: KeyPath, api: ApiDep, caller: CallerDep) -> RepoView:
    """By key or URL."""
    record = await find_visible(api, caller, key)
    service = api.service
    known = await asyncio.gather(  # some ask the worker: all at once, however busy it is
        _plan(api, record),
        service.holders(record),
        service.guard(record),
        service.upkeep(record),
        _hooks(api, caller, record.key),
    )
    return repo_view(record, *known)


async def _plan(api: Api, record: RepoRecord) -> PollPlan:
    """A project is pulled when the coordinator says, if a worker is there to do it; that one knows the
    address that last answered."""
    plan = await api.service.plan(record)
    pulled = await api.pull.plan(record.key) if api.pull is not None else None
    if pulled is None:
        return plan
    if any(step.code == StepCode.NOT_PLACED for step in plan.steps):
        return replace(plan, policy=pulled.policy, gap_s=pulled.gap_s, last_poll_at=pulled.last_poll_at)
    return replace(pulled, source_url=plan.source_url, worker=plan.worker)


async def _hooks(api: Api, caller: Caller, key: RepoKey) -> HookMemory | None:
    if api.hooks is None or not caller.may(Role.READER):
        return None
    return (await api.hooks.hooks_of(key)).memory
