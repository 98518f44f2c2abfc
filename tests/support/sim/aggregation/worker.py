"""Upstreams, workers and the coordinator, as the simulated aggregator meets them.

Refs of upstreams move, sometimes back, sometimes by a loss, sometimes away. Workers do their best, or lie:
one kind of liar for each charge. The coordinator has what it was told, and a numbered feed of changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from evermirror.model.changes import Change, HolderReport, RepoHolders
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey, RepoSpec


def digest_of(text: str) -> RefsDigest:
    return RefsDigest(hashlib.sha256(text.encode()).hexdigest())


@dataclass(slots=True)
class Upstream:
    """One repo. ``history`` has every digest it ever had, the present one last; ``loss`` says that the last
    push looks like one, so that guards hold it back."""

    spec: RepoSpec
    history: list[RefsDigest] = field(default_factory=list)
    pushes: int = 0
    away_until: float = 0.0
    loss: bool = False

    @property
    def digest(self) -> RefsDigest:
        return self.history[-1]

    def push(self, *, loss: bool = False) -> None:
        self.pushes += 1
        self.history.append(digest_of(f"{self.spec.key} {self.pushes}"))
        self.loss = loss

    def go_back(self) -> None:
        """A push that takes the one before back."""
        if len(self.history) > 1:
            self.history.append(self.history[-2])
            self.loss = False

    def ask(self, now: float) -> RefsDigest | None:
        return None if now < self.away_until else self.digest


class Kind(Enum):
    HONEST = "honest"
    STALE = "stale"  # tells old refs as just seen
    FORGER = "forger"  # tells refs that nobody ever had
    HOLLOW = "hollow"  # advertises upstream's refs and gives no objects
    SWITCHER = "switcher"  # serves other refs than it tells
    CORRUPT = "corrupt"  # gives broken objects


@dataclass(slots=True)
class Copy:
    """A repo on a worker: what it really has, and since when a guard holds upstream's change back."""

    digest: RefsDigest | None = None
    had: set[RefsDigest] = field(default_factory=set)
    held_since: float | None = None


@dataclass(slots=True)
class Told:
    """A report on its way to the coordinator. ``digest`` None: only that a change is held back, or not."""

    node: NodeId
    key: RepoKey
    digest: RefsDigest | None
    verified_at: float | None
    held_back: bool


@dataclass(slots=True)
class Worker:
    """``clock_s`` is what its clock is ahead by; ``pace_s`` how often it looks at each repo."""

    node: NodeId
    kind: Kind
    operator: str
    trusted: bool
    clock_s: float
    pace_s: float
    copies: dict[RepoKey, Copy] = field(default_factory=dict)
    reachable: bool = True
    quarantined: bool = False

    @property
    def lies(self) -> bool:
        return self.kind is not Kind.HONEST

    def look(self, upstream: Upstream, looked_at: float, confirm_s: float) -> Told | None:
        """It saw upstream's refs at ``looked_at``, has fetched them by now, and says so; None: nothing to
        say."""
        copy = self.copies[upstream.spec.key]
        seen = upstream.ask(looked_at)
        if seen is None:
            return None
        if copy.digest is not None and upstream.loss and seen != copy.digest:
            copy.held_since = looked_at if copy.held_since is None else copy.held_since
            if looked_at - copy.held_since < confirm_s:
                return Told(self.node, upstream.spec.key, None, None, held_back=True)
        copy.held_since = None
        if self.kind is not Kind.STALE or copy.digest is None:
            copy.digest = seen
            copy.had.add(seen)
        told = digest_of(f"forged {self.node} {upstream.pushes}") if self.kind is Kind.FORGER else copy.digest
        return Told(self.node, upstream.spec.key, told, looked_at + self.clock_s, held_back=False)

    def serves(self, key: RepoKey, upstream: Upstream) -> RefsDigest | None:
        """The refs that it advertises."""
        if self.kind is Kind.HOLLOW:
            return upstream.digest
        if self.kind is Kind.SWITCHER:
            return digest_of(f"switched {self.node} {key}")
        return self.copies[key].digest

    def gives(self, key: RepoKey, digest: RefsDigest) -> bool:
        """Whether the objects of these refs come from it."""
        return self.kind is not Kind.HOLLOW and digest in self.copies[key].had


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
