"""What clients may send: strict models whose every text can be stored and printed again."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskId

MAX_WAIT_S = 300.0  # proxies cut longer answers off
MAX_WITHIN_S = 3_600.0  # who looks for a commit longer is better served by an event
MAX_LIST = 1_000
_MAX_URL = 2_048  # bytes; also the rule of URL parsing
_MAX_INFO_DEPTH = 16
_MAX_INFO_CHARS = 16_384  # of one repo; a list shows a thousand of them
_MAX_INT = 2**63  # what every database and most clients can hold
_MAX_ID_DIGITS = 19


def is_clean(text: str) -> bool:
    """Neither NUL and other controls nor lone surrogates: databases and terminals choke on them."""
    return not any(ord(c) < 32 or ord(c) == 127 or "\ud800" <= c <= "\udfff" for c in text)


def _clean(text: str) -> str:
    if not is_clean(text):
        raise ValueError("holds a control character or half a surrogate pair")
    return text


def _storable(info: dict[str, Any]) -> dict[str, Any]:
    """Checks without recursion, so that depth is an error of the input and not of ours."""
    todo: list[tuple[Any, int]] = [(info, 1)]
    chars = 0
    while todo:
        value, depth = todo.pop()
        if depth > _MAX_INFO_DEPTH:
            raise ValueError(f"is nested deeper than {_MAX_INFO_DEPTH}")
        match value:
            case str():
                chars += len(value)
                if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
                    raise ValueError("holds NUL or half a surrogate pair")
            case bool() | None:
                pass
            case int() if abs(value) >= _MAX_INT:
                raise ValueError("holds an integer of more than 64 bits")
            case float() if not math.isfinite(value):
                raise ValueError("holds a number that is not finite")
            case dict():
                todo.extend((k, depth) for k in value)
                todo.extend((v, depth + 1) for v in value.values())
            case list():
                todo.extend((v, depth + 1) for v in value)
        chars += 2
        if chars > _MAX_INFO_CHARS:
            raise ValueError(f"is larger than {_MAX_INFO_CHARS} characters")
    return info


def _seconds(most: float) -> Callable[[object], object]:
    """Whatever is wrong with a time, one says which ones there are."""

    def checked(value: object) -> object:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"must be a number of seconds from 0 to {most:g}")
        return value

    return checked


GitUrlText = Annotated[
    str,
    Field(min_length=1, max_length=_MAX_URL, examples=["https://github.com/username/repo.git"]),
    AfterValidator(_clean),
]
CleanText = Annotated[str, AfterValidator(_clean)]


class Input(BaseModel):
    """A body: unknown fields and wrong types are refused by name."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TaskParamsIn(Input):
    """All optional; unknown ones are refused by name."""

    wait: Annotated[
        float, BeforeValidator(_seconds(MAX_WAIT_S)), Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)
    ] = Field(0.0, description="Answer when the task has ended, or after this many seconds")
    min_commit: str | None = Field(
        None,
        pattern="^(?:[0-9a-fA-F]{40}|[0-9a-fA-F]{64})$",
        description="Succeed only once this commit is in the mirror; looked for again while `within` lasts",
    )
    within: Annotated[
        Annotated[float, Field(ge=0, le=MAX_WITHIN_S, allow_inf_nan=False)] | None,
        BeforeValidator(_seconds(MAX_WITHIN_S)),
    ] = Field(None, description="So many seconds `min_commit` is looked for; left out: as long as `wait`")
    force: bool = Field(False, description="Fetch even where nothing seems to have changed")
    priority: Literal["critical", "high", "normal", "low"] | None = None

    @property
    def class_(self) -> Priority | None:
        return Priority(self.priority) if self.priority is not None else None


NO_PARAMS = TaskParamsIn.model_validate({})


class TaskIn(Input):
    """An on-demand sync."""

    git_url: GitUrlText
    additional_params: TaskParamsIn | None = None


class GitUrlIn(Input):
    """A repo to mirror."""

    git_url: GitUrlText
    additional_info: Annotated[dict[str, Any], AfterValidator(_storable)] | None = None


SearchQuery = Annotated[
    CleanText, Query(max_length=200, description="Part of a key, alias or URL in any case; empty for all")
]
WorkerQuery = Annotated[
    CleanText, Query(max_length=300, description="Only repos that this worker holds, or should; by its name")
]
HostQuery = Annotated[CleanText, Query(max_length=300, description="Only repos of this upstream host")]
LimitQuery = Annotated[int, Query(ge=1, le=MAX_LIST)]
CursorQuery = Annotated[str | None, Query(max_length=4_096, description="next_cursor of the page before")]


def cursor_of(last: str) -> str:
    """An opaque cursor: where the next page goes on."""
    raw = base64.urlsafe_b64encode(last.encode("utf-8", "surrogateescape"))
    return raw.decode("ascii").rstrip("=")


def after_cursor(cursor: str | None) -> RepoKey | None:
    """The key a cursor stands for."""
    if not cursor:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        text = raw.decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        text = ""
    if not text or any(ord(c) < 32 for c in text):
        raise foreign_cursor()
    return RepoKey(text)


def foreign_cursor() -> ApiProblem:
    """The refusal of a cursor that is not of this list, or of another order of it."""
    return ApiProblem(
        Kind.INVALID, "cursor: not one of ours", hint="Use next_cursor as it was given, or none"
    )


def task_id_in(text: str) -> TaskId | None:
    """The id that a path holds; None for what cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_ID_DIGITS and int(text) < _MAX_INT):
        return None
    return TaskId(int(text))
