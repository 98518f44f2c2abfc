"""Our hooks at forges: registered, checked and removed by orders that run in the background.

Nothing of this is public: it names repos, servers and credentials.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from evermirror.faces.api.context import WRITE_PROBLEMS, ApiDep, CallerDep, problems
from evermirror.faces.api.inputs import CleanText, Input
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.pull_inputs import CredentialText, refused
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.faces.api.webhooks import hooks_of
from evermirror.model.access import Role
from evermirror.model.forge import Forge
from evermirror.nodes.hook_service import RegisterAction, RegisterRun, RegisterWish

BASE = "/api/hooks/registrations"
_REPOS_MAX = 1_000
_NAME_MAX = 2_100
_DIGITS_MAX = 18

router = APIRouter(tags=["webhooks"])

IdPath = Annotated[str, Path(description="The number of an order", max_length=100)]
ActionText = Literal["register", "check", "remove"]
ForgeText = Literal["gitlab", "gitea", "github", "gitee"]
RepoText = Annotated[CleanText, Field(min_length=1, max_length=_NAME_MAX)]
DidText = Literal[
    "made",
    "mended",
    "as it should be",
    "missing",
    "drifted",
    "removed",
    "not there",
    "refused",
    "no forge",
    "not asked",
]

_READ = problems(Kind.NOT_FOUND, Kind.INVALID)
_WRITE = problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT)


class OrderIn(Input):
    """One of `repos`, `group` and `all`."""

    action: ActionText = Field(
        description="register: made, or mended where it is not as it should be; check: changes nothing; "
        "remove: ours, and no other"
    )
    repos: Annotated[list[RepoText], Field(max_length=_REPOS_MAX)] = Field(
        default=[], description="Keys, aliases or URLs", examples=[["github.com/owner/name"]]
    )
    group: Annotated[CleanText, Field(max_length=_NAME_MAX)] = Field(
        "", description="The beginning of keys, such as github.com/owner"
    )
    all: bool = Field(False, description="The whole catalog")
    credential: CredentialText | None = Field(
        None, description="By name; null: each repo's own, else the one that has its host"
    )
    forge: ForgeText | None = Field(None, description="Null: by the host, or the credential's")
    renew: bool = Field(False, description="Write hooks that look right again too: their secret was changed")

    def wish(self) -> RegisterWish:
        return RegisterWish(
            RegisterAction(self.action),
            repos=tuple(dict.fromkeys(self.repos)),
            group=self.group,
            all_repos=self.all,
            credential=self.credential,
            forge=Forge(self.forge) if self.forge is not None else None,
            renew=self.renew,
        )


class OrderItem(BaseModel):
    repo: str
    did: DidText
    problem: str | None = None


class OrderSummary(BaseModel):
    """An order, under way or ended."""

    id: int
    action: ActionText
    group: str | None = Field(description="The beginning of keys that it is about")
    all: bool = Field(description="It is about the whole catalog")
    actor: str
    state: Literal["running", "ended"]
    started_at: str
    ended_at: str | None
    total: int | None = Field(description="Repos; null: still counted")
    done: int
    counts: dict[str, int] = Field(description="How many repos, by what became of them")
    waiting: str | None = Field(description="For what, such as a forge's rate limit")
    error: str | None = Field(description="Why it ended early")


class OrderOut(OrderSummary):
    """With what became of its repos."""

    items: list[OrderItem] = Field(description="Some of them: first those with a problem, at most 1,000")


class OrderList(BaseModel):
    items: list[OrderSummary]


@router.post(BASE, summary="Register, check or remove hooks at forges", status_code=202, responses=_WRITE)
async def order_hooks(asked: OrderIn, api: ApiDep, caller: CallerDep) -> OrderOut:
    """Begins at once and goes on in the background, also after a restart; one order at a time (409). Each
    forge is asked in its own pace. Given again it changes nothing that is as it should be."""
    caller.need(Role.OPERATOR)
    return _out(await hooks_of(api).register(asked.wish(), actor=caller.name))


@router.get(BASE, summary="Orders about hooks at forges", responses=problems(Kind.NOT_FOUND))
async def list_orders(api: ApiDep, caller: CallerDep) -> OrderList:
    """The last 20 since the server's start, the newest first; one at most is under way."""
    caller.need(Role.READER)
    runs = await hooks_of(api).registrations()
    return OrderList(items=[OrderSummary(**_summary(run)) for run in runs])


@router.get(f"{BASE}/{{order_id}}", summary="How far an order is", responses=_READ)
async def get_order(order_id: IdPath, api: ApiDep, caller: CallerDep) -> OrderOut:
    """The last 20 since the server's start."""
    caller.need(Role.READER)
    return _out(await hooks_of(api).registering(_number(order_id)))


@router.delete(f"{BASE}/{{order_id}}", summary="Stop an order", responses=_READ)
async def stop_order(order_id: IdPath, api: ApiDep, caller: CallerDep) -> OrderOut:
    """What it did stays done. One that has ended stays as it is."""
    caller.need(Role.OPERATOR)
    return _out(await hooks_of(api).cancel(_number(order_id), actor=caller.name))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise refused("path.id", "is not the number of an order")
    return int(text)


def _summary(run: RegisterRun) -> dict[str, Any]:
    return {
        "id": run.id,
        "action": run.wish.action.value,
        "group": printable(run.wish.group) or None,
        "all": run.wish.all_repos,
        "actor": printable(run.actor),
        "state": "running" if run.ended_at is None else "ended",
        "started_at": iso(run.started_at),
        "ended_at": iso_or_none(run.ended_at),
        "total": run.total,
        "done": run.done,
        "counts": dict(run.counts),
        "waiting": printable(run.waiting) or None,
        "error": printable(run.error) or None,
    }


def _out(run: RegisterRun) -> OrderOut:
    items = [
        OrderItem.model_validate(
            {"repo": printable(i.key), "did": i.did, "problem": printable(i.problem) or None}
        )
        for i in run.items
    ]
    return OrderOut(**_summary(run), items=items)
