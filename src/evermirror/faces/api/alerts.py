"""Alerts: what stands and what stood, who was told of it; channels tried out; silences.

Nothing of this is public: alerts name projects, hosts and workers, and channels are where people are.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from evermirror.core.watch.kinds import ALL_KINDS
from evermirror.core.watch.texts import end_of, text_of, title_of
from evermirror.errors import NotFound
from evermirror.faces.api.context import WRITE_PROBLEMS, Api, ApiDep, CallerDep, problems
from evermirror.faces.api.inputs import CleanText, Input
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.faces.api.pull_inputs import (
    FromQuery,
    PageLimitQuery,
    PageQuery,
    SizeQuery,
    ToQuery,
    refused,
    size_of,
    span_of,
)
from evermirror.faces.api.text import iso, iso_or_none, printable
from evermirror.model.access import Role
from evermirror.model.alert import AlertId, ChannelState, Level, Notice, Silence, SilenceId
from evermirror.nodes.alert_service import AlertFilter, AlertService, AlertView

_PAGE = 50
_PATTERN_MAX = 300
_REASON_MAX = 500
_NAME_MAX = 100
_SILENCE_MAX_S = 366 * 86_400.0
_ID_DIGITS = 18  # below 2**63

router = APIRouter(tags=["alerts"])

LevelText = Literal["warning", "error", "critical"]
StateText = Literal["standing", "over", "all"]
Language = Literal["en", "zh"]

_STANDING = {"standing": True, "over": False, "all": None}

StateQuery = Annotated[StateText, Query(description="Those that stand, those that are over, or all")]
LevelQuery = Annotated[LevelText | None, Query(description="At least so serious")]
KindQuery = Annotated[CleanText, Query(max_length=_NAME_MAX, examples=["project-failing"])]
AboutQuery = Annotated[CleanText, Query(max_length=_PATTERN_MAX, description="Part of what it is about")]
LanguageQuery = Annotated[Language, Query(description="Of titles and texts")]
IdPath = Annotated[str, Path(description="A number", max_length=100)]
Pattern = Annotated[CleanText, Field(min_length=1, max_length=_PATTERN_MAX)]


class AlertOut(BaseModel):
    """One alert, from its beginning to its end."""

    id: int
    kind: str = Field(examples=["project-failing"])
    level: LevelText
    about: str = Field(description="The project, target, host, worker, credential or channel")
    title: str = Field(description="Its kind in words")
    text: str = Field(description="What was last told of it")
    standing: bool
    raised_at: str
    changed_at: str
    ended_at: str | None
    end_text: str = Field(description="How it ended; empty while it stands")
    silenced_by: int | None = Field(description="The silence that keeps people from being told now")
    facts: dict[str, str] = Field(description="What the text is made of")


class NoticeOut(BaseModel):
    """One turn of the alert, for one channel."""

    channel: str
    turn: Literal["raised", "worse", "over", "test"]
    state: Literal["waiting", "sent", "given-up"]
    created_at: str
    sent_at: str | None
    given_up_at: str | None
    attempts: int
    next_attempt_at: str | None
    error: str = Field(description="Of the last attempt; empty where it went well")


class AlertDetail(AlertOut):
    """One alert, and who was told of it."""

    notices: list[NoticeOut]


class AlertList(BaseModel):
    """A page of alerts, newest first."""

    items: list[AlertOut]
    total: int
    page: int
    size: int


class ChannelOut(BaseModel):
    """A channel of the settings, and how it is doing."""

    name: str
    type: str = Field(examples=["dingtalk"])
    state: Literal["fine", "failing", "unused"] = Field(description="unused: nothing was sent so far")
    waiting: int = Field(description="Notices that are still to be sent")
    sent_at: str | None = Field(description="The last success")
    failing_since: str | None
    error: str


class ChannelList(BaseModel):
    """All channels of the settings."""

    items: list[ChannelOut]


class ChannelTestIn(Input):
    """Which channel is tried; null: all."""

    channel: Annotated[CleanText, Field(min_length=1, max_length=_NAME_MAX)] | None = None


class TestedOut(BaseModel):
    """What became of one test message."""

    channel: str
    sent: bool
    error: str = Field(description="Why not; empty where it was taken")


class TestedList(BaseModel):
    """Every channel that was tried."""

    items: list[TestedOut]


class SilenceIn(Input):
    """Alerts of which people are not told for a while."""

    kind: Pattern = Field("*", description="A kind, or a pattern of them such as project-*")
    about: Pattern = Field("*", description="What they are about, or a pattern such as devops/*")
    for_s: Annotated[float, Field(ge=1, le=_SILENCE_MAX_S, allow_inf_nan=False)] = Field(
        description="How long, in seconds; at least one, at most 366 days"
    )
    reason: Annotated[CleanText, Field(max_length=_REASON_MAX)] = ""


class SilenceOut(BaseModel):
    """A silence. The history has what it covers all the same; what stands when it ends is told then."""

    id: int
    kind: str
    about: str
    until: str
    by: str
    reason: str
    created_at: str | None


class SilenceList(BaseModel):
    """Those in force."""

    items: list[SilenceOut]


class SilenceRemoved(BaseModel):
    """It no longer holds."""

    id: int
    status: Literal["removed"] = "removed"


_READ = problems(Kind.NOT_FOUND, Kind.INVALID)


@router.get("/api/alerts", summary="Alerts, newest first", responses=_READ)
async def get_alerts(
    api: ApiDep,
    caller: CallerDep,
    state: StateQuery = "standing",
    level: LevelQuery = None,
    kind: KindQuery = "",
    about: AboutQuery = "",
    begin: FromQuery = None,
    end: ToQuery = None,
    page: PageQuery = 1,
    limit: PageLimitQuery = None,
    size: SizeQuery = None,
    language: LanguageQuery = "en",
) -> AlertList:
    """Fifty to a page. `from` and `to` are about when an alert was raised. Needs the role reader."""
    caller.need(Role.READER)
    if kind and kind not in ALL_KINDS:
        raise refused("query.kind", f"{kind!r} is no kind of alert", hint=_kinds_hint())
    since, until = span_of(begin, end)
    which = AlertFilter(
        standing=_STANDING[state],
        level=Level(level) if level is not None else None,
        kind=kind,
        about=about,
        begin=since,
        end=until,
        page=page,
        size=size_of(limit, size, _PAGE),
    )
    found = await alerts_of(api).alerts(which)
    items = [_alert_out(view, language) for view in found.items]
    return AlertList(items=items, total=found.total, page=found.page, size=found.size)


@router.get("/api/alerts/channels", summary="Where alerts are sent", responses=_READ)
async def get_channels(api: ApiDep, caller: CallerDep) -> ChannelList:
    """How each is doing. Needs the role reader."""
    caller.need(Role.READER)
    return ChannelList(items=[_channel_out(channel) for channel in await alerts_of(api).channels()])


@router.post(
    "/api/alerts/test",
    summary="Try a channel, or all",
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def try_channels(api: ApiDep, caller: CallerDep, asked: ChannelTestIn | None = None) -> TestedList:
    """Sends a message that says it is a test, at once, and answers when every channel has taken or refused
    it. 404 where there is no such channel, 409 where the settings name none at all."""
    caller.need(Role.OPERATOR)
    channel = asked.channel if asked is not None else None
    tried = await alerts_of(api).test(channel, actor=caller.name)
    return TestedList(
        items=[
            TestedOut(channel=printable(one.channel), sent=not one.error, error=printable(one.error))
            for one in tried
        ]
    )


@router.get("/api/alerts/silences", summary="Silences in force", responses=_READ)
async def get_silences(api: ApiDep, caller: CallerDep) -> SilenceList:
    """Needs the role reader."""
    caller.need(Role.READER)
    return SilenceList(items=[_silence_out(silence) for silence in await alerts_of(api).silences()])


@router.post(
    "/api/alerts/silences",
    summary="Tell nobody of some alerts for a while",
    status_code=201,
    responses=problems(*WRITE_PROBLEMS, Kind.NOT_FOUND, Kind.CONFLICT),
)
async def create_silence(asked: SilenceIn, api: ApiDep, caller: CallerDep) -> SilenceOut:
    """`*` stands for anything in a pattern, `?` for one character. What still stands when it ends is told
    then."""
    caller.need(Role.OPERATOR)
    service = alerts_of(api)
    if not any(fnmatchcase(kind, asked.kind) for kind in ALL_KINDS):
        raise refused("body.kind", f"{asked.kind!r} matches no kind of alert", hint=_kinds_hint())
    made = await service.silence(asked.kind, asked.about, asked.for_s, asked.reason, actor=caller.name)
    return _silence_out(made)


@router.delete("/api/alerts/silences/{silence_id}", summary="End a silence", responses=_READ)
async def remove_silence(silence_id: IdPath, api: ApiDep, caller: CallerDep) -> SilenceRemoved:
    """What it covered and still stands is told."""
    caller.need(Role.OPERATOR)
    number = _number(silence_id)
    service = alerts_of(api)
    if number is None:
        raise _no_such("silence", silence_id, "/api/alerts/silences")
    await service.unsilence(SilenceId(number), actor=caller.name)
    return SilenceRemoved(id=number)


@router.get("/api/alerts/{alert_id}", summary="One alert, and who was told of it", responses=_READ)
async def get_alert(
    alert_id: IdPath, api: ApiDep, caller: CallerDep, language: LanguageQuery = "en"
) -> AlertDetail:
    """Needs the role reader."""
    caller.need(Role.READER)
    number = _number(alert_id)
    service = alerts_of(api)
    if number is None:
        raise _no_such("alert", alert_id, "/api/alerts")
    view, notices = await service.alert(AlertId(number))
    told = [_notice_out(notice) for notice in notices]
    return AlertDetail(**_alert_out(view, language).model_dump(), notices=told)


def alerts_of(api: Api) -> AlertService:
    """What is asked about alerts; 404 at a server that has none."""
    if api.alerts is None:
        raise NotFound("this server keeps no alerts", hint="Ask its coordinator")
    return api.alerts


def _kinds_hint() -> str:
    return f"There are: {', '.join(sorted(ALL_KINDS))}"


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS else None


def _no_such(what: str, text: str, listed_at: str) -> ApiProblem:
    return ApiProblem(
        Kind.NOT_FOUND, f"There is no {what} {text!r}", hint=f"Ids are numbers: GET {listed_at}"
    )


def _alert_out(view: AlertView, language: Language) -> AlertOut:
    record, alert = view.record, view.record.alert
    return AlertOut(
        id=record.id,
        kind=printable(alert.kind),
        level=alert.level.value,
        about=printable(alert.about),
        title=printable(title_of(alert.kind, language)),
        text=printable(text_of(alert, language)),
        standing=record.stands,
        raised_at=iso(record.raised_at),
        changed_at=iso(record.changed_at),
        ended_at=iso_or_none(record.ended_at),
        end_text=printable(end_of(record, language)) if not record.stands else "",
        silenced_by=view.silenced_by,
        facts={printable(name): printable(value) for name, value in alert.facts.items()},
    )


def _notice_out(notice: Notice) -> NoticeOut:
    state: Literal["waiting", "sent", "given-up"] = "waiting"
    if notice.sent_at is not None:
        state = "sent"
    elif notice.given_up_at is not None:
        state = "given-up"
    return NoticeOut(
        channel=printable(notice.channel),
        turn=notice.turn.value,
        state=state,
        created_at=iso(notice.created_at),
        sent_at=iso_or_none(notice.sent_at),
        given_up_at=iso_or_none(notice.given_up_at),
        attempts=notice.attempts,
        next_attempt_at=iso_or_none(notice.not_before) if notice.waits else None,
        error="" if state == "sent" else printable(notice.error),
    )


def _channel_out(channel: ChannelState) -> ChannelOut:
    state: Literal["fine", "failing", "unused"] = "unused" if channel.sent_at is None else "fine"
    if channel.failing_since is not None:
        state = "failing"
    return ChannelOut(
        name=printable(channel.name),
        type=printable(channel.type),
        state=state,
        waiting=channel.waiting,
        sent_at=iso_or_none(channel.sent_at),
        failing_since=iso_or_none(channel.failing_since),
        error=printable(channel.error),
    )


def _silence_out(silence: Silence) -> SilenceOut:
    return SilenceOut(
        id=silence.id,
        kind=printable(silence.kind),
        about=printable(silence.about),
        until=iso(silence.until),
        by=printable(silence.by),
        reason=printable(silence.reason),
        created_at=iso_or_none(silence.created_at),
    )
