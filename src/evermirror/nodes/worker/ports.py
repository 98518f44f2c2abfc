"""What a worker sees of its coordinator, and what is asked of a worker directly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from evermirror.edge.git.progress import GitProgress
from evermirror.edge.git.transfer import Seed
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.messages import Command, Report
from evermirror.model.push import Pushed, PushTo, Standings, put_digest
from evermirror.model.refs import RefsDigest, RefSnapshot
from evermirror.model.relay import Source
from evermirror.model.repo import RepoKey, RepoSpec
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

    def seed(self, spec: RepoSpec) -> AbstractAsyncContextManager[Seed | None]:
        """For one sync of the repo; None where upstream is to be asked for all of it."""
        ...


class NoSeeds:
    """Upstream is asked for everything."""

    def note(self, sources: Iterable[Source]) -> None:
        return

    def seed(self, spec: RepoSpec) -> AbstractAsyncContextManager[Seed | None]:
        return nullcontext()


class Targets(Protocol):
    """Where mirrors are pushed on to."""

    async def behind(self, key: RepoKey, to: PushTo) -> bool:
        """Whether the target may lack something that the mirror has; asks neither git nor the target."""
        ...

    async def standings(self, key: RepoKey) -> Standings:
        """How targets are, ref by ref; asks none of them."""
        ...

    async def push(
        self,
        key: RepoKey,
        to: PushTo,
        *,
        accept: bool,
        force: bool,
        may_push: Callable[[], bool],
        progressed: Callable[[GitProgress], None],
        source_url: str,
        believed: RefsDigest | None,
        source: RepoSpec,
    ) -> Pushed:
        """What did not work is the result's ``failure``, ``corrupt`` where the mirror is to be mended: so it
        is where its refs are not the ``believed`` ones. ``may_push`` is asked before each step."""
        ...


class NoTargets:
    """Nothing is pushed."""

    async def behind(self, key: RepoKey, to: PushTo) -> bool:
        return True

    async def standings(self, key: RepoKey) -> Standings:
        return Standings(0, put_digest({}))

    async def push(
        self,
        key: RepoKey,
        to: PushTo,
        *,
        accept: bool,
        force: bool,
        may_push: Callable[[], bool],
        progressed: Callable[[GitProgress], None],
        source_url: str,
        believed: RefsDigest | None,
        source: RepoSpec,
    ) -> Pushed:
        failure = Failure(FailureKind.UNKNOWN, "this worker does not push", context={"target_url": to.url})
        return Pushed(to.target, None, failure=failure)


class WorkerView(Protocol):
    """Small reads that need no task."""

    def plan(self, key: RepoKey) -> PollPlan: ...

    async def refs(self, key: RepoKey) -> RefSnapshot: ...

    def guard(self, key: RepoKey) -> GuardMemory | None: ...

    async def upkeep(self, key: RepoKey) -> Upkeep | None: ...

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]: ...

    async def standings(self, key: RepoKey) -> Standings: ...
