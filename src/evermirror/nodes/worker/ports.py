"""What a worker sees of its coordinator, and what is asked of a worker directly."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from evermirror.edge.git.transfer import Seed
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import Command, Report
from evermirror.model.refs import RefSnapshot
from evermirror.model.relay import Source
from evermirror.model.repo import RepoKey
from evermirror.nodes.service import PollPlan, Upkeep


class WorkerPort(Protocol):
    """A worker's end of the line to its coordinator."""

    async def next_command(self) -> Command: ...

    async def report(self, report: Report) -> None: ...


class Seeds(Protocol):
    """Holders of repos that are nearer than their upstreams."""

    def note(self, sources: Iterable[Source]) -> None:
        """Where repos may be copied from, as the coordinator says."""
        ...

    def seed(self, key: RepoKey) -> AbstractAsyncContextManager[Seed | None]:
        """For one sync of the repo; None where upstream is to be asked for all of it."""
        ...


class NoSeeds:
    """Upstream is asked for everything."""

    def note(self, sources: Iterable[Source]) -> None:
        return

    def seed(self, key: RepoKey) -> AbstractAsyncContextManager[Seed | None]:
        return nullcontext()


class WorkerView(Protocol):
    """Small reads that need no task."""

    def plan(self, key: RepoKey) -> PollPlan: ...

    async def refs(self, key: RepoKey) -> RefSnapshot: ...

    def guard(self, key: RepoKey) -> GuardMemory | None: ...

    async def upkeep(self, key: RepoKey) -> Upkeep | None: ...

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]: ...
