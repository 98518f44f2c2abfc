"""What a worker sees of its coordinator, and what is asked of a worker directly."""

from __future__ import annotations

from typing import Protocol

from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import Command, Report
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import RepoKey
from evermirror.nodes.service import PollPlan, Upkeep


class WorkerPort(Protocol):
    """A worker's end of the line to its coordinator."""

    async def next_command(self) -> Command: ...

    async def report(self, report: Report) -> None: ...


class WorkerView(Protocol):
    """Small reads that need no task."""

    def plan(self, key: RepoKey) -> PollPlan: ...

    async def refs(self, key: RepoKey) -> RefSnapshot: ...

    def guard(self, key: RepoKey) -> GuardMemory | None: ...

    async def upkeep(self, key: RepoKey) -> Upkeep | None: ...

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]: ...
