"""Gitea's and Forgejo's hooks: bodies as GitHub's, headers of their own and GitHub's besides."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.core.hooks.body import parse
from evermirror.core.hooks.github import hook_of
from evermirror.model.forge import Forge
from evermirror.model.hook import Hook

_NAMES = ("gitea", "forgejo", "github")


def read(headers: Mapping[str, str], body: bytes) -> Hook:
    return hook_of(Forge.GITEA, _first(headers, "event"), _first(headers, "delivery"), parse(headers, body))


def _first(headers: Mapping[str, str], what: str) -> str:
    return next((found for name in _NAMES if (found := headers.get(f"x-{name}-{what}"))), "")
