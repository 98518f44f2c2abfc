"""The orders of a list of repos as clients name them, and the cursors that go on in them.

A cursor holds the last repo that was shown: in the order of keys its key; in another order, also the one from
the last key, the order's name and what it goes by too, each behind a sign that no key has. So one order's
cursor is no other's.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Annotated, Literal

from fastapi import Query

from evermirror.faces.api.inputs import after_cursor, cursor_of, foreign_cursor, is_clean
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.repo_order import RepoSort, SortValue

SortText = Literal[
    "key", "-key", "verified", "-verified", "changed", "-changed", "size", "-size", "failures", "-failures"
]
SortQuery = Annotated[
    SortText,
    Query(description="What to order by; a minus: from the greatest. What never happened is the least"),
]

_SIGN = "\t"
_MAX_INT = 2**63


def cursor_behind(sort: RepoSort, last: RepoRecord) -> str:
    """Where the page that follows this repo begins."""
    if sort is RepoSort.KEY:
        return cursor_of(last.key)
    return cursor_of(_SIGN.join(("", sort.value, json.dumps(sort.value_of(last)), last.key)))


def place_of(cursor: str | None, sort: RepoSort) -> tuple[RepoKey | None, SortValue]:
    """Key and value of the last repo that was shown; refuses a cursor of another order."""
    if not cursor or sort is RepoSort.KEY:
        return after_cursor(cursor), None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        nothing, name, said, key = raw.decode("utf-8", "surrogateescape").split(_SIGN)
        value = json.loads(said)
    except (binascii.Error, ValueError, RecursionError):
        raise foreign_cursor() from None
    if nothing or name != sort.value or not key or not is_clean(key) or not _fits(value, sort):
        raise foreign_cursor()
    return RepoKey(key), value


def _fits(value: object, sort: RepoSort) -> bool:
    match value:
        case bool():
            return False
        case int():
            return sort.counts and abs(value) < _MAX_INT
        case float():
            return not sort.counts and sort.field is not None and math.isfinite(value)
        case _:
            return value is None and not sort.counts
