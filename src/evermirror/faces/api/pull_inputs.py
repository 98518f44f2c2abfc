"""What clients may say about pull mirroring: bodies in the seed's fields, pages, times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AfterValidator, Field

from evermirror.faces.api.inputs import MAX_LIST, CleanText, GitUrlText, Input
from evermirror.faces.api.problems import ApiProblem, Kind, ProblemItem
from evermirror.model.pull import (
    CONCURRENT_MAX,
    INTERVAL_MAX_S,
    MINUTE,
    RETRIES_MAX,
    RETRY_DELAY_MAX_S,
    TARGETS_MAX,
    TargetSpec,
)
from evermirror.model.repo import Priority
from evermirror.model.url import check_alias
from evermirror.nodes.pull_service import NewProject, ProjectChange

KEYS_MAX = 10_000  # of one batch
HOURS_MAX = 366 * 24
_PAGE_MAX = 1_000_000
_NAME_MAX = 100

PriorityText = Literal["critical", "high", "normal", "low"]
ErrorTypeText = Literal[
    "NETWORK_TIMEOUT", "AUTH_FAILED", "NOT_FOUND", "PERMISSION_DENIED", "CONFLICT", "DISK_FULL",
    "RATE_LIMITED", "UNKNOWN",
]  # fmt: skip

ProjectKey = Annotated[str, Field(examples=["devops/core"]), AfterValidator(check_alias)]
KeyText = Annotated[CleanText, Field(min_length=1, max_length=2_100)]


def _bounded(keys: list[str]) -> list[str]:
    # Not as maxItems of the document: who makes examples from it would send megabytes.
    if len(keys) > KEYS_MAX:
        raise ValueError(f"names more than {KEYS_MAX} projects")
    return keys


Keys = Annotated[
    list[KeyText],
    Field(description=f"At most {KEYS_MAX}, in a body of at most 1 MB"),
    AfterValidator(_bounded),
]
CredentialText = Annotated[
    CleanText, Field(min_length=1, max_length=200, description="The name of a credential in the settings")
]
Interval = Annotated[
    float, Field(ge=1, le=INTERVAL_MAX_S / MINUTE, allow_inf_nan=False, description="In minutes")
]
RetryDelay = Annotated[
    float,
    Field(
        gt=0,
        le=RETRY_DELAY_MAX_S / MINUTE,
        allow_inf_nan=False,
        description="In minutes, before the first retry; twice as long before each further one",
    ),
]
Retries = Annotated[int, Field(ge=0, le=RETRIES_MAX)]
Hour = Annotated[int, Field(ge=0, le=23, description="Of the day, in the time zone of the settings")]
EndHour = Annotated[int, Field(ge=0, le=24, description="The first hour after the window")]
Concurrent = Annotated[int, Field(ge=1, le=CONCURRENT_MAX)]


class StrategyIn(Input):
    """What is to change; what is not given, or null, stays. Of the night null takes it away."""

    strategy_name: Annotated[CleanText, Field(min_length=1, max_length=_NAME_MAX)] | None = None
    max_concurrent_pulls: Concurrent | None = Field(None, description="While peak avoidance is off")
    enable_peak_avoidance: bool | None = None
    peak_hours_start: Hour | None = Field(None, description="The window may cross midnight")
    peak_hours_end: EndHour | None = None
    peak_max_concurrent: Concurrent | None = None
    off_peak_max_concurrent: Concurrent | None = None
    night_hours_start: Hour | None = None
    night_hours_end: EndHour | None = None
    night_max_concurrent: Concurrent | None = Field(None, description="In place of off_peak_max_concurrent")
    enable_adaptive: bool | None = None
    enabled: bool | None = Field(None, description="False: the schedule starts nothing")

    def values(self) -> dict[str, object]:
        """As fields of a ``Strategy``."""
        said = {name: getattr(self, name) for name in self.model_fields_set}
        return {
            STRATEGY_FIELDS[name]: value
            for name, value in said.items()
            if value is not None or name.startswith("night_")
        }


STRATEGY_FIELDS = {
    "strategy_name": "name",
    "max_concurrent_pulls": "max_concurrent",
    "enable_peak_avoidance": "peak_avoidance",
    "peak_hours_start": "peak_start",
    "peak_hours_end": "peak_end",
    "peak_max_concurrent": "peak_max_concurrent",
    "off_peak_max_concurrent": "off_peak_max_concurrent",
    "night_hours_start": "night_start",
    "night_hours_end": "night_end",
    "night_max_concurrent": "night_max_concurrent",
    "enable_adaptive": "adaptive",
    "enabled": "enabled",
}


class TargetIn(Input):
    """Where a project is pushed on to."""

    url: GitUrlText
    credential: CredentialText | None = None


Targets = Annotated[list[TargetIn], Field(max_length=TARGETS_MAX)]


class ConfigIn(Input):
    """What is to change of a project; what is not given, or null, stays."""

    priority: PriorityText | None = None
    sync_interval: Interval | None = None
    enabled: bool | None = None
    max_retries: Retries | None = None
    retry_delay: RetryDelay | None = None
    targets: Targets | None = Field(None, description="In place of all that it has")

    def change(self) -> ProjectChange:
        return ProjectChange(
            priority=Priority(self.priority) if self.priority is not None else None,
            interval_s=_seconds(self.sync_interval),
            enabled=self.enabled,
            max_retries=self.max_retries,
            retry_delay_s=_seconds(self.retry_delay),
            targets=_specs(self.targets),
        )


class ProjectIn(ConfigIn):
    """A new project."""

    project_key: ProjectKey
    source_url: GitUrlText
    source_credential: CredentialText | None = None

    def new(self) -> NewProject:
        return NewProject(self.project_key, self.source_url, self.source_credential, self.change())


class PriorityBatchIn(Input):
    """Projects, and the class that they are to have."""

    projects: Annotated[Keys, Field(min_length=1)]
    priority: PriorityText


class TriggerIn(Input):
    """A pull that is wanted now."""

    force: bool = Field(False, description="Also where nothing seems to have changed; targets are looked at")


class TriggerBatchIn(Input):
    """Projects by name, or all of a class; both together are those of either."""

    project_keys: Keys | None = None
    priority: PriorityText | None = None
    force: bool = False


class AdoptIn(Input):
    """Which target; null: all of the project's."""

    url: GitUrlText | None = None


def _seconds(minutes: float | None) -> float | None:
    return minutes * MINUTE if minutes is not None else None


def _specs(targets: list[TargetIn] | None) -> tuple[TargetSpec, ...] | None:
    return tuple(TargetSpec(t.url, t.credential) for t in targets) if targets is not None else None


# Pages and times

PageQuery = Annotated[int, Query(ge=1, le=_PAGE_MAX)]
PageLimitQuery = Annotated[int | None, Query(ge=1, le=MAX_LIST, description="Items of a page")]
SizeQuery = Annotated[int | None, Query(ge=1, le=MAX_LIST, description="The same as limit")]
PriorityQuery = Annotated[PriorityText | None, Query(description="Only projects of this class")]
_WHEN = "ISO 8601, such as 2025-12-13T23:50:00Z; UTC where it names no zone"
_SINCE, _UNTIL = f"Not before. {_WHEN}", f"Before. {_WHEN}"
FromQuery = Annotated[CleanText | None, Query(alias="from", max_length=40, description=_SINCE)]
ToQuery = Annotated[CleanText | None, Query(alias="to", max_length=40, description=_UNTIL)]


def size_of(limit: int | None, size: int | None, default: int) -> int:
    """How many items a page has: ``limit`` and ``size`` are two names for one thing."""
    return limit or size or default


def span_of(begin: str | None, end: str | None) -> tuple[float | None, float | None]:
    """The times asked for, in UTC seconds; refused where they are none, or the wrong way round."""
    since, until = _time("from", begin), _time("to", end)
    if since is not None and until is not None and since >= until:
        raise refused("query.from", "is not before to")
    return since, until


def _time(name: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        when = datetime.fromisoformat(text)
        at = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        at = -1.0
    if at < 0:
        raise refused(
            f"query.{name}",
            "is not a time",
            hint="Write it like 2025-12-13T23:50:00Z; in an address, + is written %2B",
        )
    return at


def refused(where: str, what: str, *, hint: str = "") -> ApiProblem:
    """The 422 of one wrong thing, in the words of all others."""
    item = ProblemItem(where=where, what=what)
    return ApiProblem(Kind.INVALID, f"{where}: {what}", hint=hint, errors=[item])
