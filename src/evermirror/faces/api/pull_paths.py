"""Where a project's key ends in an address: keys hold slashes, and so do the addresses of a project's parts.

    /api/pull/projects/{key}            the project, unless the address is a fixed one or ends like a part
    /api/pull/projects/{key}/config     a part of it

Rules
- The address is read as it was sent: ``%2F`` is always a slash of the key, ``/config`` always a part. So
  ``team%2Fconfig`` is the project ``team/config``, and ``team/config`` the configuration of ``team``.
- A fixed address (``failed``) is never a project; one of that name has its repo's key and URL.
"""

from __future__ import annotations

from urllib.parse import quote

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

BASE = "/api/pull/projects"
ONE = f"{BASE}/{{key:path}}"

_FIXED = frozenset({"failed", "batch-update-priority"})
_PARTS = ("config", "tasks", "errors", "trigger", "reset-failures", "targets/adopt")


class ProjectRoute(APIRoute):
    """Matches only where the address is read as this route's."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and self.path.startswith(ONE):
            part = self.path.removeprefix(ONE).removeprefix("/")
            if part != _part_in(scope):
                return Match.NONE, {}
        return super().matches(scope)


def _part_in(scope: Scope) -> str | None:
    """The part of a project that is asked for, empty for the project itself; None for a fixed address."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    rest = raw.decode("latin-1").removeprefix(f"{BASE}/")
    if rest in _FIXED:
        return None
    return next((part for part in _PARTS if rest.endswith(f"/{part}")), "")
