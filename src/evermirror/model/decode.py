"""JSON of a peer, read into frozen values by their own type hints: typed and bounded, or refused.

Nothing is converted and nothing is guessed. Fields that a value does not have are left out: a later version
may tell more. Numbers are bounded as in edge/rpc: counts fit a column, times a date.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from evermirror.model.refs import Oid, RefsDigest

COUNT_MAX = 2**63 - 1  # what a column of the store holds
NUMBER_MAX = 253_402_300_799.0  # the last second of the year 9999; no other number is as large
TEXT_CHARS_MAX = 65_536
ITEMS_MAX = 1_000_000  # of one list: above what an answer can hold

_HEX = {
    Oid: re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?"),
    RefsDigest: re.compile(r"[0-9a-f]{64}|"),  # empty: not known
}
T = TypeVar("T")


class Undecodable(ValueError):
    """The text is not what it should be; the message names the place, never repeats the text."""


def decode(text: str, hint: Any) -> Any:
    """``text`` as a value of the type ``hint``, such as ``X | None`` or ``tuple[X, ...]`` of a dataclass X;
    raises Undecodable."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise Undecodable("it is no JSON") from None
    return _read(hint, value, "it")


def _read(hint: Any, value: Any, at: str) -> Any:
    if hint in _HEX:
        if not isinstance(value, str) or _HEX[hint].fullmatch(value) is None:
            raise Undecodable(f"{at} is no {hint.__name__}")
        return value
    if isinstance(hint, typing.NewType):
        return _read(hint.__supertype__, value, at)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        return _read_optional(hint, value, at)
    if origin is tuple:
        (item, _) = typing.get_args(hint)
        inside = f"an item of {at}"
        return tuple([_read(item, one, inside) for one in _collection(list, value, at)])
    if origin is Mapping:
        (word, item) = typing.get_args(hint)
        told, name, inside = _collection(dict, value, at), f"a name in {at}", f"an item of {at}"
        return {_read(word, w, name): _read(item, v, inside) for w, v in told.items()}
    if dataclasses.is_dataclass(hint):
        return _read_fields(hint, _collection(dict, value, at), at)
    return _read_plain(hint, value, at)


def _read_optional(hint: Any, value: Any, at: str) -> Any:
    (inner,) = [h for h in typing.get_args(hint) if h is not types.NoneType]
    return None if value is None else _read(inner, value, at)


def _read_fields(kind: Any, told: dict[str, Any], at: str) -> Any:
    hints, optional = _fields(kind)
    if missing := [name for name in hints if name not in told and name not in optional]:
        raise Undecodable(f"{missing[0]} of {at} is missing")
    return kind(**{n: _read(h, told[n], n) for n, h in hints.items() if n in told})


@lru_cache(100)
def _fields(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    fields = dataclasses.fields(kind)
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    optional = [f.name for f in fields if f.default is not missing or f.default_factory is not missing]
    return {f.name: hints[f.name] for f in fields}, frozenset(optional)


def _read_plain(hint: Any, value: Any, at: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= NUMBER_MAX:
        value = float(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        if value in [member.value for member in hint]:
            return hint(value)
    elif type(value) is hint and _is_bounded(value):
        return value
    raise Undecodable(f"{at} is no {hint.__name__} that is within bounds")


def _is_bounded(value: object) -> bool:
    match value:
        case bool():
            return True
        case int():
            return 0 <= value <= COUNT_MAX
        case float():
            return math.isfinite(value) and abs(value) <= NUMBER_MAX
        case str():
            return len(value) <= TEXT_CHARS_MAX
    return False


def _collection(kind: type[T], value: Any, at: str) -> T:
    if not isinstance(value, kind) or len(value) > ITEMS_MAX:  # type: ignore[arg-type]
        raise Undecodable(f"{at} is no {kind.__name__} that is within bounds")
    return value
