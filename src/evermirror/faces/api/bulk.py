"""One action on many repos at once: ordered, followed, stopped.

Nothing of this is public: it names repos and people.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from evermirror.errors import NotFound
from evermirror.faces.api.context import WRITE_PROBLEMS, Api, ApiDep, CallerDep, Responses, problems
from evermirror.faces.api.inputs import CleanText, Input
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import PriorityText, refused
from evermirror.faces.api.text import iso, printable
from evermirror.faces.api.views import StatusText
from evermirror.model.access import Role
from evermirror.model.bulk import BulkAction, BulkFilter, BulkId, BulkWish
from evermirror.model.failure import FailureKind
from evermirror.model.repo import Priority, RepoStatus
from evermirror.nodes.bulk_service import BulkService, BulkView

BASE = "/api/bulk"
SHOWN = 20
_KEYS_MAX = 1_000
_NAME_MAX = 2_100
_DIGITS_MAX = 18

router = APIRouter(tags=["bulk"])

IdPath = Annotated[str, Path(description="The number of an order", max_length=100)]
ActionText = Literal["sync", "retry", "reset", "pause", "resume", "priority"]
BulkStatusText = Literal["running", "done", "stopped", "failed"]
BulkFailureText = Literal[
    "NETWORK_TIMEOUT",
    "RATE_LIMITED",
    "AUTH_FAILED",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "CONFLICT",
    "DISK_FULL",
    "UNKNOWN",
]
RepoText = Annotated[CleanText, Field(min_length=1, max_length=_NAME_MAX)]

_READ = problems(Kind.NOT_FOUND, Kind.INVALID)
_WRITE = problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT)


class BulkFilterIn(Input):
    """As in `GET /api/git_urls`: all that is said must hold; `{}` is the whole catalog."""

    search: Annotated[CleanText, Field(max_length=200)] = ""
    status: StatusText | None = None
    host: Annotated[CleanText, Field(max_length=300)] = ""
    priority: PriorityText | None = None
    worker: Annotated[CleanText, Field(max_length=300)] = Field("", description="By name")
    failure: BulkFailureText | None = Field(None, description="The one that stands now")

    def meant(self) -> BulkFilter:
        return BulkFilter(
            search=self.search,
            status=RepoStatus(self.status) if self.status is not None else None,
            host=self.host,
            priority=Priority(self.priority) if self.priority is not None else None,
            worker=self.worker,
            failure=FailureKind(self.failure) if self.failure is not None else None,
        )


class BulkIn(Input):
    """One of `keys` and `filter`."""

    action: ActionText = Field(
        description="sync: looked at now; retry: the same, of those that fail; reset: failures forgotten, "
        "a project that paused itself is enabled, one that a person disabled is left alone; "
        "pause, resume: `enabled`; priority: `priority`"
    )
    keys: Annotated[list[RepoText], Field(min_length=1, max_length=_KEYS_MAX)] | None = Field(
        None, description="Keys, aliases or URLs; not beside `filter`", examples=[["github.com/owner/name"]]
    )
    filter: BulkFilterIn | None = None
    priority: PriorityText | None = Field(None, description="The new one; of the action priority only")
    expected: Annotated[int, Field(ge=0, le=2**53)] | None = Field(
        None, description="How many repos the caller saw; where it is another number by now: 409"
    )
    dry_run: bool = Field(False, description="Only count")

    def wish(self) -> BulkWish:
        return BulkWish(
            BulkAction(self.action),
            keys=tuple(dict.fromkeys(self.keys or ())),
            filter=self.filter.meant() if self.filter is not None else None,
            priority=Priority(self.priority) if self.priority is not None else None,
        )


class BulkCount(BaseModel):
    """Of a dry run."""

    matched: int


class BulkFilterOut(BaseModel):
    """What was asked for; null: it did not matter."""

    search: str | None
    status: StatusText | None
    host: str | None
    priority: PriorityText | None
    worker: str | None
    failure: BulkFailureText | None


class BulkOut(BaseModel):
    """An order."""

    id: int
    action: ActionText
    filter: BulkFilterOut | None = Field(description="Null: it is about repos that were named")
    priority: PriorityText | None = Field(description="The new one, of the action priority")
    matched: int = Field(description="Repos that it is about, when it was given; never more are acted on")
    done: int = Field(description="Repos; those among them that needed nothing too")
    unchanged: int = Field(description="Of `done`: it was so already")
    failed: int = Field(description="Repos that it cannot be done to")
    status: BulkStatusText
    ahead: int = Field(description="Orders that are carried out before it begins")
    created_at: str
    updated_at: str
    actor: str
    first_error: str | None = Field(
        description="Why it failed as a whole; of the first repo that failed: which, why, what to do"
    )


class BulkList(BaseModel):
    items: list[BulkOut]


_COUNTED: Responses = {200: {"model": BulkCount, "description": "A dry run: how many repos it is about"}}


@router.post(BASE, summary="Order something for many repos", status_code=202, responses=_COUNTED | _WRITE)
async def order_bulk(
    asked: BulkIn, api: ApiDep, caller: CallerDep, response: Response
) -> BulkOut | BulkCount:
    """Written down and carried out in the background, in the order of keys, also after a restart; one order
    after another, at most 20 wait (409). `sync` and `retry` are for at most 10,000 repos (422). Where more
    match by then than `matched`, it ends as `failed` after so many: order again."""
    caller.need(Role.OPERATOR)
    if asked.dry_run:
        response.status_code = 200
        return BulkCount(matched=await bulk_of(api).count(asked.wish(), asked.expected))
    return _out(await bulk_of(api).order(asked.wish(), asked.expected, actor=caller.name))


@router.get(BASE, summary="Orders for many repos", responses=problems(Kind.NOT_FOUND))
async def list_bulk(api: ApiDep, caller: CallerDep) -> BulkList:
    """The last 20, the newest first."""
    caller.need(Role.READER)
    return BulkList(items=[_out(view) for view in await bulk_of(api).newest(SHOWN)])


@router.get(f"{BASE}/{{order_id}}", summary="How far an order is", responses=_READ)
async def get_bulk(order_id: IdPath, api: ApiDep, caller: CallerDep) -> BulkOut:
    """Of the last 30 days, and the last 1,000."""
    caller.need(Role.READER)
    return _out(await bulk_of(api).find(_number(order_id)))


@router.post(f"{BASE}/{{order_id}}/stop", summary="Stop an order", responses=_READ)
async def stop_bulk(order_id: IdPath, api: ApiDep, caller: CallerDep) -> BulkOut:
    """Before its next 500 repos. What it did stays done; one that has ended stays as it is."""
    caller.need(Role.OPERATOR)
    return _out(await bulk_of(api).stop(_number(order_id), actor=caller.name))


def bulk_of(api: Api) -> BulkService:
    if api.bulk is None:
        raise NotFound("this server carries out no orders for many repos", hint="Ask its coordinator")
    return api.bulk


def _number(text: str) -> BulkId:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise refused("path.order_id", "is not the number of an order")
    return BulkId(int(text))


def _out(view: BulkView) -> BulkOut:
    order = view.order
    return BulkOut.model_validate(
        {
            "id": order.id,
            "action": order.wish.action.value,
            "filter": _filter_out(order.wish.filter) if order.wish.filter is not None else None,
            "priority": order.wish.priority.value if order.wish.priority is not None else None,
            "matched": order.matched,
            "done": order.done,
            "unchanged": order.unchanged,
            "failed": order.failed,
            "status": order.status.value,
            "ahead": view.ahead,
            "created_at": iso(order.created_at),
            "updated_at": iso(order.updated_at),
            "actor": printable(order.actor),
            "first_error": printable(order.first_error) or None,
        }
    )


def _filter_out(which: BulkFilter) -> dict[str, str | None]:
    return {
        "search": printable(which.search) or None,
        "status": which.status.value if which.status is not None else None,
        "host": printable(which.host) or None,
        "priority": which.priority.value if which.priority is not None else None,
        "worker": printable(which.worker) or None,
        "failure": which.failure.value if which.failure is not None else None,
    }
