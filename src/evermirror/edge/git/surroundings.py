"""The versions that were at work: told with each failure, so that a person elsewhere can understand it."""

from __future__ import annotations

import os

from evermirror import __version__
from evermirror.edge.git.command import Git
from evermirror.errors import EvermirrorError
from evermirror.model.failure import FailureError


async def surroundings(git: Git) -> dict[str, str]:
    """Of git, the system and this program; it asks git, so the answer is worth keeping."""
    system = os.uname()
    return {
        "git_version": await _version_of(git),
        "system": f"{system.sysname} {system.release} {system.machine}",
        "evermirror": __version__,
    }


async def _version_of(git: Git) -> str:
    try:
        return ".".join(map(str, await git.version()))
    except (FailureError, EvermirrorError):
        return "unknown"
