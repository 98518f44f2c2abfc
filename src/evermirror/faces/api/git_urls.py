"""The catalog as clients change and read it: add, list, show and remove URLs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query

from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.context import (
    WRITE_PROBLEMS,
    Api,
    ApiDep,
    CallerDep,
    KeyPath,
    find_visible,
    no_such_repo,
    problems,
)
from evermirror.faces.api.inputs import (
    MAX_LIST,
    CursorQuery,
    GitUrlIn,
    HostQuery,
    LimitQuery,
    SearchQuery,
    WorkerQuery,
)
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import ErrorTypeText, PriorityText
from evermirror.faces.api.repo_order import SortQuery, cursor_behind, place_of
from evermirror.faces.api.views import (
    GitUrlAnswer,
    GitUrlList,
    GitUrlRemoved,
    GitUrlView,
    StatusText,
    git_url_view,
)
from evermirror.model.access import Role
from evermirror.model.failure import FailureKind
from evermirror.model.repo import Priority, RepoRecord, RepoStatus
from evermirror.model.repo_order import RepoSort
from evermirror.nodes.service import RepoFilter

# What only an operator may set: a submitter who could name a credential for a URL of his own would be handed
# it, and one who could hide, stop or rename a repo would do so to everybody.
_OPERATORS_KEYS = frozenset(
    {"credential", "private", "enabled", "mode", "alias", "fsck_allow", "fsck_reason"}
)

router = APIRouter(tags=["git_urls"])


@router.post(
    "/api/git_urls",
    summary="Add or update a URL",
    responses=problems(*WRITE_PROBLEMS, Kind.CONFLICT, Kind.INVALID_URL),
)
async def add_git_url(asked: GitUrlIn, api: ApiDep, caller: CallerDep) -> GitUrlAnswer:
    """`added` when it is new, `updated` when `additional_info` changed something, else `exists`.

    In `additional_info`, `priority` and `interval` are for everyone who may add; `credential`, `private`,
    `enabled`, `mode`, `alias`, `fsck_allow` and `fsck_reason` need the role operator; anything else is kept
    as given."""
    caller.need(Role.OPERATOR if _OPERATORS_KEYS & (asked.additional_info or {}).keys() else Role.SUBMITTER)
    status, record = await api.service.add_url(asked.git_url, asked.additional_info, actor=caller.name)
    return GitUrlAnswer(git_url=git_url_view(record).git_url, status=status.value)


@router.get(
    "/api/git_urls",
    summary="List and search",
    responses=problems(Kind.INVALID),
    response_model_exclude_unset=True,
)
async def list_git_urls(
    api: ApiDep,
    caller: CallerDep,
    search: SearchQuery = "",
    status: StatusText | None = None,
    host: HostQuery = "",
    priority: PriorityText | None = None,
    worker: WorkerQuery = "",
    failure: Annotated[ErrorTypeText | None, Query(description="The one that stands now")] = None,
    sort: SortQuery = "key",
    limit: LimitQuery = 100,
    cursor: CursorQuery = None,
    total: Annotated[bool, Query(description="Count the repos on all pages too")] = False,
) -> GitUrlList:
    """In the order of `sort`; follow `next_cursor` until it is null, with the same query. All that is said
    must hold. A worker that nobody knows holds nothing. Private repos are neither shown to the public nor
    counted."""
    order = RepoSort(sort)
    after, after_value = place_of(cursor, order)
    which = RepoFilter(
        search=search,
        status=RepoStatus(status) if status is not None else None,
        host=host,
        priority=Priority(priority) if priority is not None else None,
        worker=worker,
        failure=FailureKind(failure) if failure is not None else None,
        public=not caller.may(Role.READER),
        sort=order,
        after=after,
        after_value=after_value,
        limit=limit,
    )
    records, more = await _page(api, which)
    counted: dict[str, Any] = {"total": await api.service.count_repos(which)} if total else {}
    return GitUrlList.model_construct(
        items=[git_url_view(r) for r in records],
        next_cursor=cursor_behind(order, records[-1]) if more else None,
        **counted,
    )


@router.get("/api/git_urls/{key:path}", summary="Show one", responses=problems(Kind.NOT_FOUND, Kind.INVALID))
async def get_git_url(key: KeyPath, api: ApiDep, caller: CallerDep) -> GitUrlView:
    """By key or URL."""
    return git_url_view(await find_visible(api, caller, key))


@router.delete(
    "/api/git_urls/{key:path}",
    summary="Remove one",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID, Kind.CONFLICT),
)
async def remove_git_url(
    key: KeyPath,
    api: ApiDep,
    caller: CallerDep,
    dry_run: Annotated[bool, Query(description="Only tell whether it could be")] = False,
) -> GitUrlRemoved:
    """It is no longer mirrored; its mirror goes to the trash, from where `POST /api/repos/{key}/-/undelete`
    brings it back."""
    caller.need(Role.OPERATOR)
    try:
        record = await api.service.remove_repo(key, actor=caller.name, dry_run=dry_run)
    except (NotFound, InvalidUrl):
        raise no_such_repo(key) from None
    return GitUrlRemoved(git_url=git_url_view(record).git_url, status="removable" if dry_run else "removed")


async def _page(api: Api, which: RepoFilter) -> tuple[tuple[RepoRecord, ...], bool]:
    """A page, and whether there is more: one repo more tells, and after the longest page a look."""
    found = await api.service.list_repos(replace(which, limit=min(which.limit + 1, MAX_LIST)))
    if which.limit == MAX_LIST == len(found):
        behind = replace(which.following(found[-1]), limit=1)
        return found, bool(await api.service.list_repos(behind))
    return found[: which.limit], len(found) > which.limit
