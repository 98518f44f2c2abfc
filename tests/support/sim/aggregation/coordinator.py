"""The coordinator of the simulated world: what it was told, and the feed of changes, with its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from evermirror.model.changes import Change, HolderReport, RepoHolders
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey, RepoSpec
from tests.support.sim.aggregation.worker import Told, Worker

CLOCK_SLACK_S = 300.0  # as the real one: later times are cut off


@dataclass(slots=True)
class Known:
    """A repo as the coordinator has it."""

    spec: RepoSpec
    seq: int
    digest: RefsDigest | None = None
    verified_at: float | None = None
    held: set[NodeId] = field(default_factory=set)
    reports: dict[NodeId, tuple[RefsDigest, float]] = field(default_factory=dict)
    removed: bool = False


class Coordinator:
    """``wake`` is called when there is something new for the aggregator."""

    def __init__(self, workers: dict[NodeId, Worker], wake: Callable[[], None]) -> None:
        self._workers = workers
        self._wake = wake
        self._seq = 0
        self.repos: dict[RepoKey, Known] = {}

    def add(self, spec: RepoSpec) -> None:
        self._seq += 1
        self.repos[spec.key] = Known(spec, self._seq)
        self._wake()

    def remove(self, key: RepoKey) -> None:
        self.repos[key].removed = True
        self._changed(self.repos[key])

    def hear(self, told: Told, now: float) -> None:
        repo = self.repos[told.key]
        if self._workers[told.node].quarantined or repo.removed:
            return
        was_held = bool(repo.held)
        (repo.held.add if told.held_back else repo.held.discard)(told.node)
        moved = bool(repo.held) != was_held
        if told.digest is not None and told.verified_at is not None:
            verified_at = min(told.verified_at, now + CLOCK_SLACK_S)
            repo.reports[told.node] = (told.digest, verified_at)
            moved = moved or told.digest != repo.digest
            repo.digest, repo.verified_at = told.digest, verified_at
        if moved:
            self._changed(repo)

    def accused(self, node: NodeId) -> None:
        self._workers[node].quarantined = True
        for repo in self.repos.values():
            repo.held.discard(node)
            if repo.reports.pop(node, None) is not None and repo.reports:
                repo.digest, repo.verified_at = max(repo.reports.values(), key=lambda each: each[1])
                self._changed(repo)

    def holders(self, key: RepoKey) -> RepoHolders:
        repo = self.repos.get(key)
        if repo is None or repo.removed:
            return RepoHolders(key, ())
        return RepoHolders(key, tuple(self._report(node, repo) for node in repo.reports))

    def changes(self, since: int, limit: int) -> list[Change]:
        """The next after that number."""
        later = sorted((r for r in self.repos.values() if r.seq > since), key=lambda r: r.seq)
        return [self._change(repo) for repo in later[:limit]]

    def _changed(self, repo: Known) -> None:
        self._seq += 1
        repo.seq = self._seq
        self._wake()

    def _change(self, repo: Known) -> Change:
        return Change(
            seq=repo.seq,
            spec=repo.spec,
            digest=repo.digest,
            verified_at=repo.verified_at,
            held_back=bool(repo.held),
            holders=self.holders(repo.spec.key).holders,
            removed=repo.removed,
        )

    def _report(self, node: NodeId, repo: Known) -> HolderReport:
        worker, (digest, verified_at) = self._workers[node], repo.reports[node]
        primary = node == next(iter(repo.reports))
        return HolderReport(node, node, worker.trusted, worker.operator, primary, digest, verified_at)
