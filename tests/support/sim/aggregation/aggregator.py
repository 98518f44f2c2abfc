"""The aggregator's node in the simulated world: drives the machine, makes attempts, crashes, comes back."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random

from evermirror.core.collect.decisions import (
    Accuse,
    Action,
    AskHolders,
    Belief,
    DoubtReports,
    Evict,
    Fetch,
    LoadPending,
    Look,
    PickAudit,
)
from evermirror.core.collect.events import (
    Attempt,
    AttemptEnded,
    AuditPicked,
    Changed,
    DiskTold,
    End,
    Event,
    Evicted,
    HoldersTold,
    PendingLoaded,
    Reachability,
    Ticked,
    Wanted,
)
from evermirror.core.collect.machine import Collector
from evermirror.core.collect.rows import agree
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey
from evermirror.sim.clock import VirtualTime
from tests.support.sim.aggregation.checks import Checks
from tests.support.sim.aggregation.shelf import Shelf
from tests.support.sim.aggregation.worker import Coordinator, Kind, Upstream, Worker

MIRROR_BYTES = 1_000
FEED_BATCH = 20


class Doom(Enum):
    NOW = "now"
    BEFORE_WRITES = "before writes"
    BEFORE_ACTIONS = "before actions"


class Aggregator:
    """``linked``: the coordinator can be reached; ``boot`` counts its lives, so that answers to an earlier
    one are lost. ``doomed``: it dies of its next decision, before or after that is written."""

    def __init__(
        self,
        settings: CollectSettings,
        time: VirtualTime,
        chance: Random,
        upstreams: dict[RepoKey, Upstream],
        workers: dict[NodeId, Worker],
        disk_bytes: int,
    ) -> None:
        self.settings = settings
        self._time = time
        self._chance = chance
        self._upstreams = upstreams
        self._workers = workers
        self._disk_bytes = disk_bytes
        self.shelf = Shelf()
        self.checks = Checks(settings, upstreams, workers)
        self.coordinator: Coordinator | None = None
        self.linked = True
        self.doomed: Doom | None = None
        self.boot = 0
        self.events = 0
        self.machine = Collector(settings)
        self._following = False

    # Its life

    def start(self) -> None:
        self.boot += 1
        self.machine = Collector(self.settings)
        self._following = False
        self.tell_reachable()
        self._tick(self.boot)
        self.follow()

    def crash(self) -> None:
        """At once, or at its next decision."""
        self.doomed = self._chance.choice(list(Doom))
        if self.doomed is Doom.NOW:
            self._die()

    def _die(self) -> None:
        self.doomed = None
        self.checks.crashed()
        self.start()

    def _tick(self, boot: int) -> None:
        if boot != self.boot:
            return
        self._time.after(1.0, self._tick, boot)
        self.handle(Ticked(self._chance.random()))
        if self._time.steps % 5 == 0:
            used = self.shelf.used_bytes() / self._disk_bytes
            full = self.settings.mode is CollectMode.PULL_THROUGH and used >= self.settings.disk_high
            least = self.shelf.least_used(100) if full else ()
            self.handle(DiskTold(used, self._disk_bytes, least))

    def handle(self, event: Event) -> None:
        """Writes first, then actions; it may die before either."""
        self.events += 1
        decision = self.machine.handle(event, self._time.now)
        if self.doomed is Doom.BEFORE_WRITES and decision.writes:
            return self._die()
        self.shelf.write(decision.writes)
        if isinstance(event, Changed):
            self.shelf.since = event.change.seq
        if self.doomed is Doom.BEFORE_ACTIONS and decision.actions:
            return self._die()
        self.checks.decided(decision, self._time.now)
        for action in decision.actions:
            self._act(action)
        return None

    def tell_reachable(self) -> None:
        live = (n for n, w in self._workers.items() if w.reachable and not w.quarantined)
        self.handle(Reachability(frozenset(live)))

    def want(self, key: RepoKey) -> None:
        row = self.shelf.rows.get(key)
        self.shelf.used_at[key] = self._time.now
        if row is None or not row.served:
            self.checks.waits(key, self._time.now)
            self.handle(Wanted(key, row))

    # The feed

    def follow(self) -> None:
        """Something new is there: it is read a little later, one batch at a time."""
        if not self._following and self.linked:
            self._following = True
            self._later(self._chance.expovariate(2.0), self._read_changes)

    def _read_changes(self) -> None:
        self._following = False
        if self.coordinator is None or not self.linked:
            return
        changes = self.coordinator.changes(self.shelf.since, FEED_BATCH)
        boot = self.boot
        for change in changes:
            if boot == self.boot:
                self.handle(Changed(change, self.shelf.rows.get(change.key)))
        if changes:
            self.follow()

    # Actions

    def _later(self, delay_s: float, do: Callable[..., None], *args: object) -> None:
        self._time.after(delay_s, self._if_alive, self.boot, do, args)

    def _if_alive(self, boot: int, do: Callable[..., None], args: tuple[object, ...]) -> None:
        if boot == self.boot:
            do(*args)

    def _act(self, action: Action) -> None:
        chance = self._chance
        match action:
            case Fetch() | Look():
                self._later(chance.expovariate(2.0), self._asked, action, self._time.now)
            case AskHolders(keys) if self.linked:
                self._later(chance.expovariate(5.0), self._holders, keys)
            case DoubtReports(key) if self.linked:
                self._later(chance.expovariate(1.0), self._doubted, key)
            case Accuse(node) if self.coordinator is not None:
                self.coordinator.accused(node)
                self._later(0.0, self.tell_reachable)
            case Evict(key):
                self._later(chance.expovariate(1.0), self.handle, Evicted(key))
            case LoadPending(first, after, limit):
                self._later(0.01, self._load, first, after, limit)
            case PickAudit(share, first):
                self._later(0.01, self._pick, share, first)
            case _:
                pass

    def _load(self, first: bool, after: tuple[float, RepoKey] | None, limit: int) -> None:
        rows, last = self.shelf.pending(first, after, limit)
        self.handle(PendingLoaded(first, rows, last))

    def _pick(self, share: float, first: bool) -> None:
        self.handle(AuditPicked(self.shelf.audited(share, first=first)))

    def _holders(self, keys: tuple[RepoKey, ...]) -> None:
        if self.coordinator is not None and self.linked:
            answers = tuple(self.coordinator.holders(key) for key in keys)
            self._later(self._chance.expovariate(5.0), self.handle, HoldersTold(answers))

    def _doubted(self, key: RepoKey) -> None:
        self.on_doubt(key)

    on_doubt: Callable[[RepoKey], None] = staticmethod(lambda key: None)

    # Attempts: upstream is asked, or the holder; then objects come; each takes its time

    def _asked(self, order: Fetch | Look, began: float) -> None:
        upstream = self._upstreams[order.key]
        if isinstance(order, Look) or order.belief is Belief.UPSTREAM:
            seen = upstream.ask(self._time.now)
            if seen is None:
                self._end(order, Attempt(order.number, order.key, End.UPSTREAM_AWAY, began))
            elif isinstance(order, Look):
                self._end(order, Attempt(order.number, order.key, End.LOOKED, began, upstream=seen))
            else:
                self._later(self._chance.expovariate(0.3), self._transferred, order, began, seen)
            return
        worker = self._workers[order.holder.node]
        served = worker.serves(order.key, upstream) if worker.reachable else None
        if served is None:
            self._end(order, Attempt(order.number, order.key, End.HOLDER_AWAY, began))
        elif not agree(served, order.expected):
            self._end(order, Attempt(order.number, order.key, End.DIFFERS, began, served=served))
        else:
            self._later(self._chance.expovariate(0.3), self._transferred, order, began, None, served)

    def _transferred(
        self, order: Fetch, began: float, seen: RefsDigest | None, served: RefsDigest | None = None
    ) -> None:
        worker, wanted = self._workers[order.holder.node], seen or served
        end, published = End.DONE, wanted
        if not worker.reachable or self._chance.random() < 0.02:
            end, published = End.HOLDER_AWAY, None
        elif worker.kind is Kind.CORRUPT:
            end, published = End.CORRUPT, None
        elif wanted is None or not worker.gives(order.key, wanted):
            end, published = End.MISSING, None
            if self._chance.random() < 0.9:
                served = worker.serves(order.key, self._upstreams[order.key])
        self._end(
            order,
            Attempt(order.number, order.key, end, began, seen, served, published, MIRROR_BYTES),
        )

    def _end(self, order: Fetch | Look, attempt: Attempt) -> None:
        self.checks.ended(order.key)
        self.handle(AttemptEnded(attempt))
