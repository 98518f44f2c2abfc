"""What a catalog source may be: a path on this machine, told from the address of a git repository."""

from __future__ import annotations

import re

from evermirror.errors import InvalidValue

GIT_CATALOG = "git catalogs are not supported yet: give a list file or a folder of list files"

# As git tells them apart: a colon before the first slash (scheme://…, host:path, user@host:path) is no path.
_ADDRESS = re.compile(r"[^/]+:")


def check_source(text: str) -> str:
    """A path, returned as it is; raises InvalidValue for a URL. What may be a password is not repeated."""
    if not text or "\0" in text:
        raise InvalidValue(f"{text!r} is not a path")
    if _ADDRESS.match(text):
        scheme, mark, rest = text.partition("://") if "://" in text else ("", "", text)
        raise InvalidValue(f"{scheme + mark + rest.rpartition('@')[2]!r}: {GIT_CATALOG}")
    return text
