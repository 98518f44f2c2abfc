"""The command line in this process, and a stand-in for its server."""

from __future__ import annotations

from tests.faces.cli.conftest import _commands_made_once, api, ask, here, progress, run

__all__ = ["_commands_made_once", "api", "ask", "here", "progress", "run"]
