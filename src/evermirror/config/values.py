"""How a single setting is written: its kind, how it is read, and what is accepted, in words."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SecretStr, Strict

from evermirror.core.pull.cron import CRON_FORM, check_cron
from evermirror.model.duration import (
    DURATION_FORM,
    RATE_FORM,
    SIZE_FORM,
    parse_duration,
    parse_rate,
    parse_size,
)


class Kind(Enum):
    """What a setting is written as; the value is the phrase that a wrong one is answered with."""

    DURATION = DURATION_FORM
    SIZE = SIZE_FORM
    RATE = RATE_FORM
    CRON = CRON_FORM
    DATE = 'a day such as "2027-06-30"'
    ADDRESS = '"HOST:PORT" such as "127.0.0.1:8420"'
    TEXT = "a string"
    URL = "a URL in a string"  # may hold a password: shown without it
    PATH = "a path in a string"
    COUNT = "a whole number"
    NUMBER = "a number"
    FLAG = "true or false"
    CHOICE = "one of"
    LIST = 'a list of strings such as ["a", "b"]'
    SOURCES = 'a list of paths, git URLs or tables such as ["urls.txt", {url = "https://host/x.git"}]'
    SECRET = "a string, or its file"  # noqa: S105 (the phrase, not a secret)
    SECRETS = "a table of strings"


NONE_WORDS = frozenset({"none", "off"})  # TOML has no null: these words unset an optional setting


def _optional(read: Callable[[object], object]) -> Callable[[object], object]:
    def read_or_none(value: object) -> object:
        if value is None or (isinstance(value, str) and value.lower() in NONE_WORDS):
            return None
        return read(value)

    return read_or_none


def _from_text(parse: Callable[[str], float | int]) -> Callable[[object], object]:
    """Numbers go through the same parser as text, so that there is one rule about bare numbers."""

    def read(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{value!r} is not text")
        return parse(value if isinstance(value, str) else f"{value!r}")

    return read


def _as_is(value: object) -> object:
    return value


def _as_path(value: object) -> object:
    if isinstance(value, Path):
        return value.expanduser()
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is not a path")
    return Path(value).expanduser()


def _as_address(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("is not text")
    split_host_port(value)
    return value


def _as_cron(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("is not text")
    return check_cron(value)


def _as_date(value: object) -> object:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("is not a day") from None


def _as_secret(value: object) -> object:
    if not isinstance(value, str | SecretStr):
        raise ValueError("is not text")  # never the value itself
    if not value:
        raise ValueError("is empty")
    return value


def _as_database_url(value: object) -> object:
    if not isinstance(value, str) or value.partition("://")[0].partition("+")[0] not in _DATABASES:
        raise ValueError("is neither postgresql://… nor sqlite:///…")  # may hold a password: not repeated
    return value


def _as_http_url(value: object) -> object:
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        fine = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port if parts else None
    except ValueError:
        fine = False
    if not fine:
        raise ValueError("is not an http:// or https:// URL")  # may hold a password: not repeated
    return value


_DATABASES = frozenset({"postgresql", "postgres", "sqlite"})
_HOST_NAME = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_PORT = re.compile(r"[0-9]{1,5}")


def is_host(text: str) -> bool:
    """A name, or an address; of IPv6 without brackets."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return _HOST_NAME.fullmatch(text) is not None
    return True


def split_host_port(text: str) -> tuple[str, int]:
    """``127.0.0.1:8420``, ``[::1]:8420``, ``name:0`` (0: the system chooses); raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(f"{text!r} has no port between 0 and 65535 after a colon")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{text!r}: what is in brackets is no IPv6 address") from None
    elif not _HOST_NAME.fullmatch(host):
        raise ValueError(f"{text!r} has no usable host name or address before the colon")
    return host, int(port)


# The kinds of fields that the settings are made of. `Maybe…` also takes "none".

Duration = Annotated[float, BeforeValidator(_from_text(parse_duration)), Kind.DURATION]
MaybeDuration = Annotated[float | None, BeforeValidator(_optional(_from_text(parse_duration))), Kind.DURATION]
MaybeSize = Annotated[int | None, BeforeValidator(_optional(_from_text(parse_size))), Kind.SIZE]
Size = Annotated[int, BeforeValidator(_from_text(parse_size)), Kind.SIZE]
Rate = Annotated[float, BeforeValidator(_from_text(parse_rate)), Kind.RATE]
Address = Annotated[str, BeforeValidator(_as_address), Kind.ADDRESS]
MaybeAddress = Annotated[str | None, BeforeValidator(_optional(_as_address)), Kind.ADDRESS]
Text = Annotated[str, Strict(), Kind.TEXT]
MaybeText = Annotated[str | None, BeforeValidator(_optional(_as_is)), Kind.TEXT]
Cron = Annotated[str, BeforeValidator(_as_cron), Kind.CRON]
MaybeCron = Annotated[str | None, BeforeValidator(_optional(_as_cron)), Kind.CRON]
MaybeDate = Annotated[date | None, BeforeValidator(_optional(_as_date)), Kind.DATE]
MaybeDatabaseUrl = Annotated[str | None, BeforeValidator(_optional(_as_database_url)), Kind.URL]
MaybeHttpUrl = Annotated[str | None, BeforeValidator(_optional(_as_http_url)), Kind.URL]
FilePath = Annotated[Path, BeforeValidator(_as_path), Kind.PATH]
MaybePath = Annotated[Path | None, BeforeValidator(_optional(_as_path)), Kind.PATH]
Count = Annotated[int, Strict(), Kind.COUNT]
MaybeCount = Annotated[Annotated[int, Strict()] | None, BeforeValidator(_optional(_as_is)), Kind.COUNT]
Number = Annotated[float, Strict(), Kind.NUMBER]
MaybeNumber = Annotated[Annotated[float, Strict()] | None, BeforeValidator(_optional(_as_is)), Kind.NUMBER]
Flag = Annotated[bool, Strict(), Kind.FLAG]
TextList = Annotated[tuple[str, ...], Kind.LIST]
Secret = Annotated[SecretStr | None, BeforeValidator(_as_secret), Kind.SECRET]
