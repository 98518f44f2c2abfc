"""What the coordinator tells an aggregator: which repos changed, and who has them."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey, RepoSpec


@dataclass(frozen=True, slots=True)
class HolderReport:
    """A connected worker that holds the repo, by its own word."""

    node: NodeId
    name: str
    trusted: bool
    operator: str  # who runs it: of one operator's workers only one counts in a quorum
    primary: bool
    digest: RefsDigest | None  # None where it is not known
    verified_at: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """A repo as it is now: ``seq`` is that of its latest change, and each repo is told with its latest only.

    ``held_back``: a guard holds upstream's change back, so that what workers report differs from upstream
    for a stated reason. ``removed``: it left the catalog; nothing else counts then."""

    seq: int
    spec: RepoSpec
    alias: str | None = None
    enabled: bool = True
    digest: RefsDigest | None = None  # as last reported; None: never synced
    verified_at: float | None = None
    changed_at: float | None = None
    size_bytes: int = 0
    held_back: bool = False
    holders: tuple[HolderReport, ...] = ()  # connected now, primary first; bounded
    removed: bool = False

    @property
    def key(self) -> RepoKey:
        return self.spec.key


@dataclass(frozen=True, slots=True)
class RepoHolders:
    """Who holds a repo now; nobody where it is not in the catalog, or none is connected."""

    key: RepoKey
    holders: tuple[HolderReport, ...]
