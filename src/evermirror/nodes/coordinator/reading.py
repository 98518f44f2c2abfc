"""What is known of a repo by its place in the fleet: who holds it, and what its worker says when asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from evermirror.core.fleet.explain import WHY
from evermirror.core.fleet.views import CopyView
from evermirror.edge.rpc.transport import PeerGone
from evermirror.errors import NotFound, Unavailable
from evermirror.faces.api.buckets import Buckets, Rate
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.plan import PollPlan, StepCode
from evermirror.model.push import Standings
from evermirror.model.refs import RefSnapshot, short_digest
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.wire import Answer
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.service import Holder, Upkeep
from evermirror.nodes.worker.questions import ANSWER_S, RemoteView

_COMPLAINTS = Rate(per_s=1 / 60, burst=3.0)  # lines in the log about one worker's answers

log = structlog.get_logger(__name__)


class Reading:
    """Of repos that are in the catalog. Asks a repo's primary; raises Unavailable where it is silent."""

    def __init__(self, fleet: Callable[[], Fleet]) -> None:
        self._fleet = fleet
        self._complaints = Buckets(_COMPLAINTS, time.monotonic)

    def _view(self, key: RepoKey) -> RemoteView | None:
        """The worker to be asked about a repo: its primary; None where nobody is there."""
        fleet = self._fleet()
        repo = fleet.machine.repo(key)
        worker = repo.primary if repo is not None else None
        if worker is None or worker not in fleet.connected():
            return None

        async def ask(what: str, key: RepoKey) -> Answer:
            try:
                return await fleet.ask(worker, what, key, ANSWER_S)
            except (PeerGone, TimeoutError):
                raise Unavailable(f"the worker that holds {key} does not answer", hint="Try again") from None

        def complain(what: str, key: RepoKey, why: str) -> None:
            name = self._name(worker) or str(worker)
            if self._complaints.take(name) == 0:
                words = "a worker gave an answer that cannot be read"
                log.warning(words, worker=name, asked=what, repo=key, reason=why)

        return RemoteView(ask, complain)

    async def refs(self, key: RepoKey) -> RefSnapshot:
        view = self._view(key)
        if view is None:
            raise NotFound(f"there is no mirror of {key} yet", hint="Wait for its first sync")
        return await view.refs(key)

    async def plan(self, key: RepoKey) -> PollPlan:
        view = self._view(key)
        if view is None:
            return PollPlan.without_time(StepCode.NOT_PLACED, "not assigned to a worker that is there")
        return replace(await view.plan(key), worker=self._name(self._fleet().machine.primary_of(key)))

    def _name(self, worker: WorkerId | None) -> str | None:
        record = self._fleet().machine.record(worker) if worker is not None else None
        return record.facts.name if record is not None else None

    async def guard(self, key: RepoKey) -> GuardMemory | None:
        view = self._view(key)
        return await view.guard(key) if view is not None else None

    async def upkeep(self, key: RepoKey) -> Upkeep | None:
        view = self._view(key)
        return await view.upkeep(key) if view is not None else None

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]:
        view = self._view(key)
        return await view.history(key) if view is not None else ()

    async def standings(self, key: RepoKey) -> Standings | None:
        """None where nobody can say."""
        view = self._view(key)
        try:
            return await view.standings(key) if view is not None else None
        except (NotFound, Unavailable):  # no mirror yet; a worker of the version before
            return None

    def holders(self, record: RepoRecord) -> tuple[Holder, ...]:
        machine = self._fleet().machine
        repo = machine.repo(record.key)
        if repo is None:
            return ()
        return tuple(
            _holder(
                record,
                copy,
                self._name(copy.worker) or str(copy.worker),
                primary=copy.worker == repo.primary,
                verified=repo.verified,
            )
            for copy in repo.copies
        )


def _holder(record: RepoRecord, copy: CopyView, name: str, *, primary: bool, verified: bool) -> Holder:
    newest = short_digest(record.digest)
    equal = newest != 0 and copy.digest == newest
    verified_at = copy.verified_s
    if equal:  # what the primary saw of upstream holds for everybody with the same refs
        verified_at = max(verified_at, record.verified_at or 0.0)
    return Holder(
        worker=name,
        primary=primary,
        digest=record.digest if equal else None,
        verified_at=verified_at or None,
        state=copy.state,
        wanted=copy.rank is not None,
        reason=WHY[copy.reason],
        verified=verified,
    )
