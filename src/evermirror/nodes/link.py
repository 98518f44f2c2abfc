"""The in-process transport: the same commands and reports that travel over gRPC between machines.

Both directions are bounded. A side that is too fast waits; nothing is dropped.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import Command, Report
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.nodes.service import PollPlan, Upkeep

COMMANDS_WAITING = 256  # commands are few and may be large (an assignment carries a chunk of repos)
REPORTS_WAITING = 4096  # a burst of results while the database is busy


class WorkerPort(Protocol):
    """What a worker sees of its coordinator."""

    async def next_command(self) -> Command: ...

    async def report(self, report: Report) -> None: ...


class CoordinatorPort(Protocol):
    """What a coordinator sees of one worker."""

    async def command(self, command: Command) -> None: ...

    async def next_report(self) -> Report: ...


class WorkerView(Protocol):
    """What is asked of a worker directly: small reads that need no task."""

    def plan(self, key: RepoKey) -> PollPlan: ...

    async def refs(self, key: RepoKey) -> RefSnapshot: ...

    def guard(self, key: RepoKey) -> GuardMemory | None: ...

    async def upkeep(self, key: RepoKey) -> Upkeep | None: ...

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]: ...


class Link:
    """Both ports over two bounded queues in one process."""

    def __init__(self) -> None:
        self._commands: asyncio.Queue[Command] = asyncio.Queue(COMMANDS_WAITING)
        self._reports: asyncio.Queue[Report] = asyncio.Queue(REPORTS_WAITING)

    async def command(self, command: Command) -> None:
        await self._commands.put(command)

    async def next_command(self) -> Command:
        return await self._commands.get()

    async def report(self, report: Report) -> None:
        await self._reports.put(report)

    async def next_report(self) -> Report:
        return await self._reports.get()

    def reports_waiting(self) -> int:
        """How many reports were sent and not yet taken; zero means that the coordinator has caught up."""
        return self._reports.qsize()
