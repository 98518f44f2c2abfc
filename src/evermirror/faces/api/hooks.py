"""How far repos' hooks can be relied on, and how ours stand at their forges.

Nothing of this is public: it says where a change may go unnoticed for a while.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from evermirror.faces.api.context import ApiDep, CallerDep, KeyPath, find_visible, problems
from evermirror.faces.api.hook_views import (
    RegistrationText,
    RepoHooks,
    RepoHooksList,
    TrustText,
    repo_hooks,
)
from evermirror.faces.api.inputs import (
    MAX_LIST,
    CursorQuery,
    LimitQuery,
    SearchQuery,
    after_cursor,
    cursor_of,
)
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.webhooks import hooks_of
from evermirror.model.access import Role
from evermirror.model.hook import HookTrust, RegistrationState
from evermirror.nodes.hook_service import HookSelection

router = APIRouter(tags=["webhooks"])

TrustQuery = Annotated[TrustText | None, Query(description="Only those that can be relied on so far")]
RegistrationQuery = Annotated[RegistrationText | None, Query(description="Of our hook at the forge")]


@router.get("/api/hooks", summary="Repos with hooks", responses=problems(Kind.NOT_FOUND, Kind.INVALID))
async def list_hooks(
    api: ApiDep,
    caller: CallerDep,
    search: SearchQuery = "",
    trust: TrustQuery = None,
    state: RegistrationQuery = None,
    limit: LimitQuery = 100,
    cursor: CursorQuery = None,
) -> RepoHooksList:
    """Repos for which a hook ever came or was registered, in key order; follow `next_cursor` until it is
    null."""
    caller.need(Role.READER)
    which = HookSelection(
        trust=HookTrust(trust) if trust is not None else None,
        state=RegistrationState(state) if state is not None else None,
        search=search,
        after=after_cursor(cursor),
        limit=min(limit, MAX_LIST),
    )
    found = await hooks_of(api).hooks(which)
    more = bool(found) and len(found) == which.limit
    return RepoHooksList(
        items=[repo_hooks(view) for view in found], next_cursor=cursor_of(found[-1].key) if more else None
    )


@router.get(
    "/api/repos/{key:path}/-/hooks",
    summary="A repo's hooks",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def get_repo_hooks(key: KeyPath, api: ApiDep, caller: CallerDep) -> RepoHooks:
    """What those that came taught, and how ours stands at the forge."""
    caller.need(Role.READER)
    record = await find_visible(api, caller, key)
    return repo_hooks(await hooks_of(api).hooks_of(record.key))
