"""Workers of the simulated world: those that do their best, and one kind of liar for each charge."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from tests.support.sim.aggregation.upstream import Upstream, digest_of


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
