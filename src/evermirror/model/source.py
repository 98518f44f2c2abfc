"""A source of the catalog: a path on this machine, or the address of a git repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from evermirror.errors import InvalidUrl, InvalidValue
from evermirror.model.address import AllowList
from evermirror.model.url import DEFAULT_PORTS, UrlRules, parse_url

# As git tells them apart: a colon before the first slash (scheme://…, host:path, user@host:path) is no path.
_ADDRESS = re.compile(r"[^/]+:")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,199}", re.ASCII)
_PATH = re.compile(r"[^/\x00-\x1f\\]+(?:/[^/\x00-\x1f\\]+)*")
_KEYS = ("url", "branch", "path", "credential", "writable")

# The operator's own word: any host and transport may be named, as far as git is allowed to use it.
_EVERYWHERE = AllowList(suffixes=(("", None),), networks=AllowList.parse(["0.0.0.0/0", "::/0"]).networks)
_RULES = UrlRules(frozenset(DEFAULT_PORTS), _EVERYWHERE, userinfo=True)


@dataclass(frozen=True, slots=True)
class CatalogSource:
    """Where to look. All but ``place`` is for git repositories only."""

    place: str  # a path, or a URL as it is given to git
    branch: str | None = None  # None: the one that HEAD names
    path: str = ""  # of a folder or file inside; empty: all of it
    credential: str | None = None  # by name
    writable: bool = False  # what the API adds is committed and pushed there, too

    @property
    def is_address(self) -> bool:
        return _ADDRESS.match(self.place) is not None

    @property
    def needs_git(self) -> bool:
        """Whether something was said that a plain file or folder has not."""
        return bool(self.is_address or self.branch or self.path or self.writable)

    def as_written(self) -> object:
        """As a settings file has it."""
        said = {"branch": self.branch, "path": self.path, "credential": self.credential}
        given: dict[str, object] = {key: value for key, value in said.items() if value}
        if self.writable:
            given["writable"] = True
        return {"url": self.place, **given} if given else self.place


def parse_source(given: object) -> CatalogSource:
    """Text, or a table with ``url`` in it; raises InvalidValue. What may be a password is not repeated."""
    if isinstance(given, CatalogSource):
        return given
    if isinstance(given, str):
        return CatalogSource(_place(given))
    if not isinstance(given, Mapping):
        raise InvalidValue(f"{given!r} is neither a path, a URL nor a table")
    if unknown := [key for key in given if key not in _KEYS]:
        raise InvalidValue(f"a source has no {str(unknown[0])!r}: known are {', '.join(_KEYS)}")
    writable = given.get("writable", False)
    if not isinstance(writable, bool):
        raise InvalidValue("writable must be true or false")
    return CatalogSource(
        _place(_text(given, "url") or ""),
        _checked(_text(given, "branch"), "branch", _BRANCH),
        _checked((_text(given, "path") or "").strip("/") or None, "path", _PATH) or "",
        _text(given, "credential"),
        writable,
    )


def _place(text: str) -> str:
    if not text or "\0" in text:
        raise InvalidValue(f"{text!r} is neither a path nor a URL")
    if not _ADDRESS.match(text):
        return text
    try:
        return parse_url(text, _RULES).text
    except InvalidUrl as error:
        scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
        raise InvalidValue(
            f"{scheme + mark + rest.rpartition('@')[2]!r}: {error.reason}", hint=error.hint
        ) from None


def _text(given: Mapping[str, object], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidValue(f"{key} must be a string")
    return value or None


def _checked(text: str | None, key: str, form: re.Pattern[str]) -> str | None:
    if text is None:
        return None
    parts = text.split("/")
    if (
        not form.fullmatch(text)
        or ".." in text
        or any(p.startswith(".") or p.endswith(".lock") for p in parts)
    ):
        raise InvalidValue(f"{text!r} is not usable as the {key} of a source")
    return text
