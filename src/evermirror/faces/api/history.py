"""What upstream threw away: listed and restored. What a guard holds back, confirmed; removed repos, back;
repos paused and resumed."""

from __future__ import annotations

import bisect
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from evermirror.core.keep.choose import DATE_CHARS_MAX, shown_date
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
)
from evermirror.faces.api.inputs import CleanText, CursorQuery, LimitQuery, after_cursor, cursor_of
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.text import printable
from evermirror.faces.api.views import TaskSubmitted, git_url_view, submitted_view
from evermirror.model.access import Role
from evermirror.model.kept import KeptTip

_MAX_REF = 4_096  # of a ref's name; file systems end there
_MAX_NAME = 200

router = APIRouter(tags=["history"])


class KeptView(BaseModel):
    """An old tip that upstream threw away."""

    ref: str = Field(description="The branch or tag that it was the tip of")
    date: str = Field(description="When we followed; with `ref`, its name for a restore")
    old: str = Field(description="The tip that is kept")
    new: str | None = Field(description="What the ref became; null where it was deleted")
    why: Literal["deleted", "rewritten"]
    kept: str = Field(description="The hidden ref that holds it; may stand for `ref` in a restore")


class HistoryView(BaseModel):
    """A page of old tips, newest first."""

    key: str
    total: int
    items: list[KeptView]
    next_cursor: str | None


class RestoreIn(BaseModel):
    """Which old tip, and under which name."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ref: Annotated[CleanText, Field(min_length=1, max_length=_MAX_REF)] = Field(
        description="As in the history: whole, or a branch's or tag's short name; or `kept`"
    )
    date: Annotated[CleanText, Field(min_length=1, max_length=DATE_CHARS_MAX)] | None = Field(
        None, description="As in the history, or the beginning of it; without it the newest"
    )
    as_name: Annotated[CleanText, Field(min_length=1, max_length=_MAX_NAME)] | None = Field(
        None, alias="as", description="Name below refs/restored/; without it the ref's with the date"
    )


class Undeleted(BaseModel):
    """The repo is mirrored again."""

    git_url: str
    status: Literal["restored"] = "restored"


class Paused(BaseModel):
    """Whether it is looked at from now on."""

    key: str
    git_url: str
    status: Literal["paused", "resumed"]


@router.get(
    "/api/repos/{key:path}/-/history",
    summary="Old tips that upstream threw away",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID, Kind.BAD_ANSWER),
)
async def get_history(
    key: KeyPath, api: ApiDep, caller: CallerDep, limit: LimitQuery = 100, cursor: CursorQuery = None
) -> HistoryView:
    """Newest first; follow `next_cursor` until it is null. Object ids are whole."""
    record = await find_visible(api, caller, key)
    # The name of a kept tip begins with its date, so the names' order is that of time.
    tips = sorted(await api.service.history(record.key), key=lambda tip: tip.name)
    before = after_cursor(cursor)
    end = len(tips) if before is None else bisect.bisect_left([tip.name for tip in tips], before)
    begin = max(0, end - limit)
    page = tips[begin:end][::-1]
    return HistoryView(
        key=printable(record.key),
        total=len(tips),
        items=[_kept_view(tip) for tip in page],
        next_cursor=cursor_of(page[-1].name) if begin > 0 else None,
    )


@router.post(
    "/api/repos/{key:path}/-/restore",
    summary="Show an old tip again",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def restore(key: KeyPath, asked: RestoreIn, api: ApiDep, caller: CallerDep) -> TaskSubmitted:
    """As a ref of its own below `refs/restored/`, which following upstream never touches. The task's result
    has `ref`, to be fetched, and `oid`. 409 where `ref` or `date` may mean several tips."""
    caller.need(Role.OPERATOR)
    record = await find_visible(api, caller, key)
    task = await api.service.restore(record.key, asked.ref, asked.date, asked.as_name, actor=caller.name)
    return submitted_view(task)


@router.post(
    "/api/repos/{key:path}/-/confirm",
    summary="Follow upstream where a guard holds back",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID, Kind.CONFLICT),
)
async def confirm(key: KeyPath, api: ApiDep, caller: CallerDep) -> TaskSubmitted:
    """Looks at upstream now and follows it whatever it looks like; what goes is kept as ever. 409 where
    nothing is held back."""
    caller.need(Role.OPERATOR)
    record = await find_visible(api, caller, key)
    return submitted_view(await api.service.confirm(record.key, actor=caller.name))


@router.post(
    "/api/repos/{key:path}/-/undelete",
    summary="Bring a removed repo back",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID, Kind.CONFLICT),
)
async def undelete(key: KeyPath, api: ApiDep, caller: CallerDep) -> Undeleted:
    """As it was when it left the catalog; with its mirror, while that is still in the trash. 409 where the
    repo is in the catalog."""
    caller.need(Role.OPERATOR)
    try:
        record = await api.service.undelete(key, actor=caller.name)
    except (NotFound, InvalidUrl):
        raise no_such_repo(key) from None
    return Undeleted(git_url=git_url_view(record).git_url)


@router.post(
    "/api/repos/{key:path}/-/pause",
    summary="Stop looking at a repo",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def pause(key: KeyPath, api: ApiDep, caller: CallerDep) -> Paused:
    """Until it is resumed, whatever the catalog says. Its mirror stays and is served."""
    return await _paused(key, api, caller, paused=True)


@router.post(
    "/api/repos/{key:path}/-/resume",
    summary="Look at a paused repo again",
    responses=problems(Kind.NOT_FOUND, Kind.INVALID),
)
async def resume(key: KeyPath, api: ApiDep, caller: CallerDep) -> Paused:
    """Also where the catalog disabled it."""
    return await _paused(key, api, caller, paused=False)


async def _paused(key: str, api: Api, caller: Caller, *, paused: bool) -> Paused:
    caller.need(Role.OPERATOR)
    record = await find_visible(api, caller, key)
    record = await api.service.pause_repo(record.key, paused=paused, actor=caller.name)
    view = git_url_view(record)
    return Paused(key=view.key, git_url=view.git_url, status="paused" if paused else "resumed")


@router.get("/api/repos/{key:path}/-/pause", include_in_schema=False)
@router.get("/api/repos/{key:path}/-/resume", include_in_schema=False)
@router.get("/api/repos/{key:path}/-/restore", include_in_schema=False)
@router.get("/api/repos/{key:path}/-/confirm", include_in_schema=False)
@router.get("/api/repos/{key:path}/-/undelete", include_in_schema=False)
async def nothing_to_read() -> None:
    """Without this, the address would be taken for the key of a repo."""
    raise ApiProblem(Kind.METHOD, "GET is not possible here", hint="Allowed: POST", headers={"Allow": "POST"})


def _kept_view(tip: KeptTip) -> KeptView:
    return KeptView(
        ref=printable(tip.ref),
        date=shown_date(tip.at),
        old=tip.old,
        new=tip.new,
        why=tip.why.value,
        kept=printable(tip.name),
    )
