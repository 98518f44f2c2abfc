"""What is looked for in keys when a person types a part of a key or of a URL.

A URL is a scheme, perhaps a user, the key, perhaps ``.git``; only the key tells one repo from another. So a
part of a URL is found by what it has of the key, and URLs need not be looked at: keys alone are half of them.
"""

from __future__ import annotations

import re
import string

from evermirror.model.url import DEFAULT_PORTS

ESCAPE = "\\"
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_USERS = ("", "git")  # what nearly every URL has; another one tells something, which no key has

# What may stand before a key, whole or its end, and then what begins the key.
_BEFORE = re.compile(
    r"(?:(?P<scheme>[a-z][a-z0-9+.-]*)?:)?//(?:(?P<user>[^/@]*)@)?(?P<url>.*)"
    r"|(?:https?|ssh|git):/?(?P<begun>)"
    r"|/(?P<path>.*)"
    r"|[^/@:]*@(?P<host>[^:/]+):(?P<scp>.*)"
    r"|(?P<login>[^/@:]*)@(?P<remote>.*)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_AFTER = re.compile(r"(?P<key>.+)\.(?:g(?:it?)?)?", re.DOTALL)  # .git, as far as it was typed
_PORT = re.compile(r"(?P<host>[^/]+):(?P<port>[0-9]+)(?P<path>/.*)?", re.ASCII | re.DOTALL)


def key_patterns(search: str) -> tuple[str, ...] | None:
    """Patterns for LIKE: a key that is like one of them is found. None: every key is."""
    begin = _begin_of_key(search)
    if not search or begin == "":
        return None
    patterns = [f"%{_escaped(search)}%"]
    if begin is not None:
        patterns.append(f"{_escaped(begin)}%")
    if end := _end_of_key(search if begin is None else begin, is_begin=begin is not None):
        patterns.append(("%" if begin is None else "") + _escaped(end))
        if search.startswith("/"):  # a path, whose host was left out
            patterns.append(f"%/{_escaped(end)}")
    return tuple(patterns)


def part_pattern(search: str) -> str:
    """The pattern for LIKE of whatever has this part."""
    return f"%{_escaped(search)}%"


def small(text: str) -> str:
    """In small letters, as the collation "C" has them: those of ASCII alone."""
    return text.translate(_SMALL)


def _begin_of_key(search: str) -> str | None:
    """What a key begins with whose URL has this part; None: that need not be its beginning."""
    found = _BEFORE.fullmatch(search)
    if found is None:
        return None
    if found["scp"] is not None:
        return f"{found['host']}/{found['scp'].removeprefix('/')}"
    begin = next(part for part in found.group("url", "begun", "path", "remote") if part is not None)
    user = found["user"] or found["login"] or ""
    if not begin and user.lower() not in _USERS:
        return None
    return _without_default_port((found["scheme"] or "").lower(), begin)


def _without_default_port(scheme: str, begin: str) -> str:
    found = _PORT.fullmatch(begin)
    if found is None or found["port"] != str(DEFAULT_PORTS.get(scheme)):
        return begin
    return found["host"] + (found["path"] or "")


def _end_of_key(text: str, *, is_begin: bool) -> str:
    """What a key ends with where ``text`` has its end, and more; empty where it has no more than a key has.

    A word and a slash are not taken for the end: they are the name of a group."""
    bare = text.rstrip("/")
    ends = _AFTER.fullmatch(bare)
    if ends is not None:
        return ends["key"]
    return bare if bare != text and (is_begin or "/" in bare) else ""


def _escaped(text: str) -> str:
    return re.sub(r"([%_\\])", r"\\\1", text)
