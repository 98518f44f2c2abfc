"""Repositories as people name them: by key, alias, URL or ``owner/name``; and completed by the shell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from evermirror.errors import EvermirrorError, NotFound
from evermirror.faces.cli.client import Client, Fields, connect
from evermirror.model.printable import one_line

T = TypeVar("T")

COMPLETED_MAX = 100  # names offered by the shell; more are no help
COMPLETE_WAIT_S = 2.0  # a person presses Tab and waits
SUGGESTED_MAX = 5


def complete_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Keys, their parts behind the host, and aliases that begin so; none where no server answers."""
    server, token_file, config = (ctx.params.get(name) for name in ("server", "token_file", "config"))
    config = config or os.environ.get("EVERMIRROR_CONFIG")
    try:
        with connect(
            server, Path(token_file) if token_file else None, Path(config) if config else None
        ) as client:
            found = _search(client, incomplete, COMPLETED_MAX, wait_s=COMPLETE_WAIT_S)
    except EvermirrorError:
        return []
    whole = [str(item.get("key")) for item in found]
    names = [*whole, *(str(item["alias"]) for item in found if item.get("alias"))]
    names += [key.partition("/")[2] for key in whole]
    fitting = [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
    return fitting if incomplete else whole


Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        autocompletion=complete_keys,
        help="Key, alias or URL, such as github.com/owner/name; owner/name where only one ends so.",
    ),
]
Keys = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY",
        autocompletion=complete_keys,
        help="Keys, aliases or URLs, such as github.com/owner/name; owner/name where only one ends so.",
    ),
]


def by_name(client: Client, name: str, do: Callable[[str], T]) -> T:
    """``do`` with the name as it was given; where no repository has it, with the only key that ends so."""
    try:
        return do(name)
    except NotFound as error:
        alike = keys_ending(client, name)
        if len(alike) == 1 and "/" in name:
            return do(alike[0])
        if not alike:
            raise
        words = ", ".join(one_line(key) for key in alike[:SUGGESTED_MAX])
        more = ", …" if len(alike) > SUGGESTED_MAX else ""
        raise NotFound(error.message, hint=f"Did you mean {words}{more}?") from None


def keys_ending(client: Client, name: str) -> list[str]:
    """Keys whose last parts are this name; at most one more than are suggested."""
    bare = name.strip("/").removesuffix(".git")
    if not bare or "@" in bare or "://" in bare:
        return []
    found = _search(client, f"/{bare}.git", COMPLETED_MAX)  # so spelt it is looked for at the end of keys
    keys = [str(item.get("key")) for item in found]
    return [key for key in keys if key.lower().endswith(f"/{bare.lower()}")][: SUGGESTED_MAX + 1]


def _search(client: Client, text: str, limit: int, *, wait_s: float | None = None) -> list[Fields]:
    query: dict[str, str | int] = {"search": text, "limit": limit}
    items = client.get("/api/git_urls", query, wait_s=wait_s).get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
