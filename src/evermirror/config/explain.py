"""Turns what the validator found into words: the problem, what is accepted, what was perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from evermirror.config.schema import KeyPath, Setting, all_settings, find_setting
from evermirror.config.section import SettingError
from evermirror.config.values import Kind
from evermirror.errors import InvalidValue

SHOWN_VALUE_CHARS = 60  # enough to recognise what was written
_SECRET_KINDS = frozenset({Kind.SECRET, Kind.SECRETS, Kind.URL})


def explain(error: ValidationError, tree: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """One problem per setting, at its path."""
    told: set[KeyPath] = set()
    for found in error.errors(include_url=False):
        path, text = _explain_one(found, tree)
        if path not in told:
            told.add(path)
            yield path, text


def suggest(path: KeyPath) -> str:
    """``; did you mean …?``, by the nearest name in the same section, then by the same key elsewhere."""
    name = ".".join(path)
    names = [s.name for s in all_settings()]
    same_key = [n for n in names if n.rpartition(".")[2] == path[-1]]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75) or same_key[:1]
    return f"; did you mean {near[0]}?" if near else ""


def _explain_one(found: ErrorDetails, tree: Mapping[str, object]) -> tuple[KeyPath, str]:
    path = tuple(str(part) for part in found["loc"])
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, SettingError):
        return (*path, cause.key), str(cause)
    if path[-1] == "[key]":
        return path[:-1], str(cause or found["msg"])
    while find_setting(path) is None and len(path) > 1:
        path = path[:-1]  # list items and members of unions are told at their setting
    setting = find_setting(path)
    if setting is None:
        return path, str(cause or found["msg"])
    if found["type"] == "missing":
        return path, f"is missing; accepted: {setting.accepted}"
    if setting.kind in (Kind.LIST, Kind.SOURCES) and cause is not None:
        return path, str(cause)  # names the item
    return path, f"{_problem(setting, found, tree, path)}; accepted: {setting.accepted}"


def _problem(setting: Setting, found: ErrorDetails, tree: Mapping[str, object], path: KeyPath) -> str:
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, InvalidValue):
        return cause.message  # its hint is our "accepted"
    shown = "" if setting.kind in _SECRET_KINDS else _shown(tree, path)
    if cause is None:
        return f"{shown} {'is out of bounds' if _is_bound(found) else 'cannot be used'}".strip()
    return str(cause) if shown and shown in str(cause) else f"{shown} {cause}".strip()


def _is_bound(found: ErrorDetails) -> bool:
    return found["type"].startswith(("greater_than", "less_than", "string_too"))


def _shown(tree: Mapping[str, object], path: KeyPath) -> str:
    node: object = tree
    for key in path:
        node = node.get(key) if isinstance(node, Mapping) else None
    text = repr(node) if not isinstance(node, bool) else str(node).lower()
    return text if len(text) <= SHOWN_VALUE_CHARS else text[: SHOWN_VALUE_CHARS - 1] + "…"
