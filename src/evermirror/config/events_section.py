"""Settings of events, and of the servers that are told of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from evermirror.config.posted_url import (
    PLAIN_HTTP,
    SECRET_CHARS_MIN,
    SHORT_SECRET,
    check_posted_url,
    secrets_in,
    shows_nothing,
)
from evermirror.config.section import Section, SettingError
from evermirror.config.values import Count, Duration, Flag, MaybePath, Secret, TextList
from evermirror.model.event import EventType

HOUR, DAY = 3600.0, 86_400.0
PATTERNS_MAX = 200
_HOOK_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class Events(Section):
    """What happened, for others to follow; [event_hooks.NAME] says who is told of it."""

    retention: Duration = Field(
        default=7 * DAY, ge=HOUR, description="How long events are kept, for who follows them from behind."
    )
    keep: Count = Field(
        default=200_000,
        ge=1_000,
        le=100_000_000,
        description="At most so many are kept; the newest. 1 KB each, or up to 40 where many refs moved.",
    )


def _check_types(types: tuple[str, ...]) -> tuple[str, ...]:
    """A pattern with a slip of the pen would be a hook that never says anything."""
    known = sorted(one.value for one in EventType)
    for pattern in types:
        if not any(fnmatchcase(one, pattern) for one in known):
            raise ValueError(f"{pattern!r} matches no type of event; there are {', '.join(known)}")
    return _check_patterns(types)


def _check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not patterns or not all(patterns):
        raise ValueError('is empty: use ["*"] for all')
    if len(patterns) > PATTERNS_MAX:
        raise ValueError(f"has more than {PATTERNS_MAX} patterns: use wider ones")
    return patterns


class EventHook(Section):
    """A server that is told of events; its name is yours."""

    url: Annotated[Secret, AfterValidator(check_posted_url)] = Field(
        default=None, description="Where messages are posted to. May hold a secret."
    )
    secret: Secret = Field(default=None, description="Signs messages; at least 16 letters long.")
    types: Annotated[TextList, AfterValidator(_check_types)] = Field(
        default=("*",), description='Only these events, such as "refs.changed" or "repo.*".'
    )
    repos: Annotated[TextList, AfterValidator(_check_patterns)] = Field(
        default=("*",), description='Only about these, by key, such as "github.com/acme/*".'
    )
    batch: Count = Field(default=50, ge=1, le=500, description="Events in one message, at most.")
    ca_file: MaybePath = Field(
        default=None, description="CA certificates (PEM) to trust with TLS; none: the system's."
    )
    enabled: Flag = Field(default=True, description="false: nothing is sent, and its place is kept.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.url is None:
            raise SettingError("url", "is missing: an event hook needs it")
        if self.secret is None:
            raise SettingError("secret", "is missing: an event hook needs it, `openssl rand -hex 32`")
        if len(self.secret.get_secret_value()) < SECRET_CHARS_MIN:
            raise SettingError("secret", SHORT_SECRET)
        if not shows_nothing(self.url):
            raise SettingError("url", PLAIN_HTTP)
        return self

    def secret_values(self) -> Iterator[str]:
        if self.secret is not None:
            yield self.secret.get_secret_value()
        if self.url is not None:
            yield from secrets_in(self.url)


def _check_hook_name(name: str) -> str:
    if not _HOOK_NAME.fullmatch(name):
        raise ValueError("an event hook's name is made of a-z, 0-9, '_' and '-', at most 32")
    return name


EventHookName = Annotated[str, AfterValidator(_check_hook_name)]
