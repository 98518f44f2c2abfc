"""The catalog as clients change and read it: add, list, show and remove URLs."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter

from evermirror.errors import InvalidUrl, NotFound
from evermirror.faces.api.auth import Caller
from evermirror.faces.api.context import (
    WRITE_PROBLEMS,
    Api,
    ApiDep,
    CallerDep,
    KeyPath,
    find_visible,
    no_such_repo,
    problems,
    shown_to,
)
from evermirror.faces.api.inputs import (
    MAX_LIST,
    CursorQuery,
    GitUrlIn,
    HostQuery,
    LimitQuery,
    SearchQuery,
    after_cursor,
    cursor_of,
)
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.views import (
    GitUrlAnswer,
    GitUrlList,
    GitUrlRemoved,
    GitUrlView,
    StatusText,
    git_url_view,
)
from evermirror.model.access import Role
from evermirror.model.repo import RepoRecord, RepoStatus
from evermirror.nodes.service import RepoFilter

# What only an operator may set: a submitter who could name a credential for a URL of his own would be handed
# it, and one who could hide, stop or rename a repo would do so to everybody.
_OPERATORS_KEYS = frozenset({"credential", "private", "enabled", "mode", "alias"})

router = APIRouter(tags=["git_urls"])


@router.post(
    "/api/git_urls",
    summary="Add or update a URL",
    responses=problems(*WRITE_PROBLEMS, Kind.CONFLICT, Kind.INVALID_URL),
)
async def add_git_url(asked: GitUrlIn, api: ApiDep, caller: CallerDep) -> GitUrlAnswer:
    """`added` when it is new, `updated` when `additional_info` changed something, else `exists`.

    In `additional_info`, `priority` and `interval` are for everyone who may add; `credential`, `private`,
    `enabled`, `mode` and `alias` need the role operator; anything else is kept as given."""
    caller.need(Role.OPERATOR if _OPERATORS_KEYS & (asked.additional_info or {}).keys() else Role.SUBMITTER)
    status, record = await api.service.add_url(asked.git_url, asked.additional_info, actor=caller.name)
    return GitUrlAnswer(git_url=git_url_view(record).git_url, status=status.value)


@router.get("/api/git_urls", summary="List and search", responses=problems(Kind.INVALID))
async def list_git_urls(
    api: ApiDep,
    caller: CallerDep,
    search: SearchQuery = "",
    status: StatusText | None = None,
    host: HostQuery = "",
    limit: LimitQuery = 100,
    cursor: CursorQuery = None,
) -> GitUrlList:
    """In key order; follow `next_cursor` until it is null."""
    which = RepoFilter(
        search=search,
        status=RepoStatus(status) if status is not None else None,
        host=host,
        after=after_cursor(cursor),
        limit=limit,
    )
    records, more = await _page(api, caller, which)
    return GitUrlList.model_construct(
        items=[git_url_view(r) for r in records], next_cursor=cursor_of(records[-1].key) if more else None
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
async def remove_git_url(key: KeyPath, api: ApiDep, caller: CallerDep) -> GitUrlRemoved:
    """It is no longer mirrored; its mirror goes to the trash."""
    caller.need(Role.OPERATOR)
    try:
        record = await api.service.remove_repo(key, actor=caller.name)
    except (NotFound, InvalidUrl):
        raise no_such_repo(key) from None
    return GitUrlRemoved(git_url=git_url_view(record).git_url)


async def _page(api: Api, caller: Caller, which: RepoFilter) -> tuple[list[RepoRecord], bool]:
    """A full page of what the caller may see, and whether there is more.

    A cursor holds the last key shown, so a page must end with one that the caller may know."""
    shown: list[RepoRecord] = []
    ask = replace(which, limit=min(which.limit + 1, MAX_LIST))  # one more tells whether there is a next page
    while True:
        batch = await api.service.list_repos(ask)
        shown.extend(r for r in batch if shown_to(caller, r))
        if len(shown) > which.limit or len(batch) < ask.limit:
            return shown[: which.limit], len(shown) > which.limit
        ask = replace(ask, after=batch[-1].key, limit=MAX_LIST)  # few questions, however much is hidden
