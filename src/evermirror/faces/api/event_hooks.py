"""Event hooks: how the delivery of events to others' servers goes, and letters that could not be delivered.

Nothing of this is public: hooks are where other people's servers are, and letters tell of private repos.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from evermirror.faces.api.context import WRITE_PROBLEMS, ApiDep, CallerDep, problems
from evermirror.faces.api.events import events_of
from evermirror.faces.api.inputs import CleanText, Input
from evermirror.faces.api.problems import Kind
from evermirror.faces.api.text import iso, iso_or_none, printable, printable_json
from evermirror.model.access import Role
from evermirror.model.delivery import DeadLetter, LetterId
from evermirror.nodes.event_service import DeliveryView

_NAME_MAX = 100
_PAGE, _PAGE_MAX = 50, 1_000
_IDS_MAX = 1_000
_ID_MAX = 2**63 - 1

router = APIRouter(tags=["events"])

HookState = Literal["unused", "fine", "failing", "stopped", "off"]
NamePath = Annotated[CleanText, Path(max_length=_NAME_MAX, description="Of the settings: event_hooks.NAME")]
HookQuery = Annotated[CleanText, Query(max_length=_NAME_MAX, description="Only of this hook; empty: of all")]
BeforeQuery = Annotated[
    int | None, Query(ge=1, le=_ID_MAX, description="next_before of the page before: older ones")
]


class EventHookOut(BaseModel):
    """An event hook of the settings, and how its delivery goes."""

    name: str
    host: str = Field(description="Where it goes; the rest of the URL may be a secret")
    types: list[str] = Field(description="Globs over types of events")
    repos: list[str] = Field(description="Globs over keys of repos")
    batch: int = Field(description="Events in one message, at most")
    state: HookState = Field(
        description="unused: nothing delivered so far; stopped: its receiver answered 410; off: by settings"
    )
    waiting: int = Field(description="Events after its place; at most 10,000 are counted")
    letters: int = Field(description="Events that are laid aside")
    after: int = Field(description="The event that everything was done with up to")
    delivered_at: str | None = Field(description="The last success")
    delivered_total: int
    laid_aside_total: int
    failures: int = Field(description="In a row")
    failing_since: str | None
    next_attempt_at: str | None
    error: str = Field(description="Of the last attempt; empty where it went well")


class EventHookList(BaseModel):
    """All event hooks of the settings, by name."""

    items: list[EventHookOut]


class LetterOut(BaseModel):
    """An event that a receiver would not have, or could not be given within a day."""

    id: int
    hook: str
    event: int
    type: str = Field(examples=["refs.changed"])
    reason: str
    attempts: int
    at: str = Field(description="When it was laid aside")
    again: bool = Field(description="It waits to be sent again")
    body: dict[str, Any] = Field(description="The event, as it would have been sent")


class LetterList(BaseModel):
    """Newest first."""

    items: list[LetterOut]
    next_before: int | None = Field(description="Ask on with `before`; null: there are no more")


class LettersIn(Input):
    """Which letters of the hook are meant; null: all."""

    letters: (
        Annotated[list[Annotated[int, Field(ge=1, le=_ID_MAX)]], Field(min_length=1, max_length=_IDS_MAX)]
        | None
    ) = None


class LettersDone(BaseModel):
    """How many letters it was about."""

    hook: str
    letters: int


class HookTested(BaseModel):
    """What became of the test message."""

    hook: str
    sent: bool
    error: str = Field(description="Why not; empty where it was taken")


_READ = problems(Kind.NOT_FOUND, Kind.INVALID)
_WRITE = problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT)


@router.get("/api/event_hooks", summary="Event hooks, and how their delivery goes", responses=_READ)
async def get_event_hooks(api: ApiDep, caller: CallerDep) -> EventHookList:
    """Needs the role reader."""
    caller.need(Role.READER)
    return EventHookList(items=[_hook_out(view) for view in await events_of(api).deliveries()])


@router.get("/api/event_hooks/letters", summary="Events that could not be delivered", responses=_READ)
async def get_letters(
    api: ApiDep,
    caller: CallerDep,
    hook: HookQuery = "",
    limit: Annotated[int, Query(ge=1, le=_PAGE_MAX)] = _PAGE,
    before: BeforeQuery = None,
) -> LetterList:
    """Newest first; also of hooks that are no longer in the settings. Needs the role reader."""
    caller.need(Role.READER)
    cursor = LetterId(before) if before is not None else None
    found = await events_of(api).letters(hook or None, limit, cursor)
    more = found[-1].id if len(found) == limit else None
    return LetterList(items=[_letter_out(letter) for letter in found], next_before=more)


@router.post("/api/event_hooks/{name}/retry", summary="Send letters again", responses=_WRITE)
async def send_again(
    name: NamePath, api: ApiDep, caller: CallerDep, asked: LettersIn | None = None
) -> LettersDone:
    """These letters, or all of the hook's, go out soon, one by one; what is refused again stays a letter. The
    hook is tried at once, also where it waits or has stopped. 409 where it is switched off."""
    caller.need(Role.OPERATOR)
    count = await events_of(api).send_again(name, _ids(asked), actor=caller.name)
    return LettersDone(hook=printable(name), letters=count)


@router.post("/api/event_hooks/{name}/forget", summary="Forget letters", responses=_WRITE)
async def forget_letters(
    name: NamePath, api: ApiDep, caller: CallerDep, asked: LettersIn | None = None
) -> LettersDone:
    """These letters, or all of the hook's, are removed."""
    caller.need(Role.OPERATOR)
    count = await events_of(api).forget_letters(name, _ids(asked), actor=caller.name)
    return LettersDone(hook=printable(name), letters=count)


@router.post("/api/event_hooks/{name}/test", summary="Try an event hook", responses=_WRITE)
async def try_hook(name: NamePath, api: ApiDep, caller: CallerDep) -> HookTested:
    """Sends a message with one event of type `test` at once, and answers when it was taken or refused."""
    caller.need(Role.OPERATOR)
    error = await events_of(api).test(name, actor=caller.name)
    return HookTested(hook=printable(name), sent=not error, error=printable(error))


def _ids(asked: LettersIn | None) -> list[LetterId] | None:
    if asked is None or asked.letters is None:
        return None
    return [LetterId(number) for number in asked.letters]


def _hook_out(view: DeliveryView) -> EventHookOut:
    progress = view.progress
    return EventHookOut(
        name=printable(view.hook.name),
        host=printable(view.host),
        types=[printable(pattern) for pattern in view.hook.types],
        repos=[printable(pattern) for pattern in view.hook.repos],
        batch=view.hook.batch,
        state=_state(view),
        waiting=view.waiting,
        letters=view.letters,
        after=progress.after,
        delivered_at=iso_or_none(progress.delivered_at),
        delivered_total=progress.delivered_total,
        laid_aside_total=progress.laid_aside_total,
        failures=progress.failures,
        failing_since=iso_or_none(progress.failing_since),
        next_attempt_at=iso_or_none(progress.not_before),
        error=printable(progress.last_error),
    )


def _state(view: DeliveryView) -> HookState:
    if not view.enabled:
        return "off"
    if view.progress.stopped:
        return "stopped"
    if view.progress.failing_since is not None:
        return "failing"
    return "fine" if view.progress.delivered_at is not None else "unused"


def _letter_out(letter: DeadLetter) -> LetterOut:
    body = printable_json(json.loads(letter.body))
    return LetterOut(
        id=letter.id,
        hook=printable(letter.hook),
        event=letter.event,
        type=printable(letter.type),
        reason=printable(letter.reason),
        attempts=letter.attempts,
        at=iso(letter.at),
        again=letter.again,
        body=body if isinstance(body, dict) else {},
    )
