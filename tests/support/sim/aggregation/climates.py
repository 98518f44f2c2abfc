"""Runs of the simulated aggregator: rough weather of several kinds, then calm; promises checked throughout.

upstreams push ─▶ workers look, report ─▶ coordinator ─▶ feed ─▶ aggregator ─▶ attempts at workers, upstreams

`tools/soak --collect` plays every climate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from evermirror.core.collect.settings import CollectMode, CollectSettings, Verify
from evermirror.model.relay import NodeId
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec
from evermirror.sim.clock import VirtualTime
from tests.support.sim.aggregation.aggregator import MIRROR_BYTES, Aggregator
from tests.support.sim.aggregation.checks import Broken
from tests.support.sim.aggregation.worker import Coordinator, Copy, Kind, Told, Upstream, Worker

START_S = 1_000_000.0  # UTC: far from 0, so that a time that is missing shows
CONFIRM_S = 1_800.0  # a loss is believed after this


@dataclass(frozen=True, slots=True)
class Climate:
    """How rough it is. Gaps are means, in seconds; 0: never."""

    settings: CollectSettings = field(default_factory=CollectSettings)
    repos: int = 24
    liars: tuple[Kind, ...] = ()
    honest: int = 4
    trusted: int = 1
    operators: int = 3
    holders: int = 2  # of each repo, beside one honest
    push_gap_s: float = 20.0
    back_share: float = 0.03  # of pushes that take the last one back
    loss_share: float = 0.03
    away_gap_s: float = 600.0  # an upstream goes away
    drop_gap_s: float = 300.0  # a worker cannot be reached for a while
    cut_gap_s: float = 1200.0  # the coordinator cannot be reached
    crash_gap_s: float = 900.0
    client_gap_s: float = 15.0
    leave_gap_s: float = 2400.0  # a repo leaves the catalog
    report_delay_s: float = 2.0
    disk_repos: int = 1_000  # that the disk takes
    rough_s: float = 5_400.0
    calm_s: float = 9_000.0


class World:
    """Everybody, wired; ``run`` plays it all."""

    def __init__(self, climate: Climate, seed: int) -> None:
        self.climate = climate
        self._chance = chance = Random(seed)
        self.time = VirtualTime()
        self.time.now = START_S
        self.upstreams: dict[RepoKey, Upstream] = {}
        self.workers: dict[NodeId, Worker] = {}
        self._make_workers()
        disk = climate.disk_repos * MIRROR_BYTES
        self.aggregator = Aggregator(climate.settings, self.time, chance, self.upstreams, self.workers, disk)
        self.coordinator = Coordinator(self.workers, self.aggregator.follow)
        self.aggregator.coordinator = self.coordinator
        self.aggregator.on_doubt = self._let_look
        self._rough = True
        self._make_repos()

    def _make_workers(self) -> None:
        climate, chance = self.climate, self._chance
        kinds = [Kind.HONEST] * climate.honest + list(climate.liars)
        for number, kind in enumerate(kinds):
            trusted = number < climate.trusted
            operator = f"operator{number % climate.operators}" if kind is Kind.HONEST else f"liar{number}"
            clock_s = chance.choice([0.0, 0.0, -120.0, 60.0, 250.0])
            node = NodeId(f"worker/{number}")
            pace_s = chance.uniform(20.0, 240.0)
            self.workers[node] = Worker(node, kind, operator, trusted, clock_s, pace_s)

    def _make_repos(self) -> None:
        chance = self._chance
        honest = [w for w in self.workers.values() if not w.lies]
        for number in range(self.climate.repos):
            key = RepoKey(f"forge.example/group/repo{number}")
            priority = chance.choice(list(Priority))
            spec = RepoSpec(key, f"https://{key}", Host("forge.example"), priority)
            self.upstreams[key] = Upstream(spec)
            self.upstreams[key].push()
            self.coordinator.add(spec)
            for worker in {w.node: w for w in [chance.choice(honest), *self._some_workers()]}.values():
                worker.copies[key] = Copy()
                self.time.after(chance.uniform(0.0, 60.0), self._polls, worker, key)

    def _some_workers(self) -> list[Worker]:
        return self._chance.sample(list(self.workers.values()), min(self.climate.holders, len(self.workers)))

    # What goes on

    def run(self) -> None:
        """Raises Broken."""
        climate = self.climate
        self.aggregator.start()
        for gap_s, happen in (
            (climate.push_gap_s, self._push),
            (climate.away_gap_s, self._upstream_away),
            (climate.drop_gap_s, self._drop_worker),
            (climate.cut_gap_s, self._cut),
            (climate.crash_gap_s, self.aggregator.crash),
            (climate.client_gap_s, self._client),
            (climate.leave_gap_s, self._leave),
        ):
            if gap_s:
                self._repeat(gap_s, happen)
        self.time.run(START_S + climate.rough_s)
        self._rough = False
        self.time.run(START_S + climate.rough_s + climate.calm_s)
        self._settled()

    def _repeat(self, gap_s: float, happen: object) -> None:
        def again() -> None:
            if self._rough:
                happen()  # type: ignore[operator]
                self.time.after(self._chance.expovariate(1.0 / gap_s), again)

        self.time.after(self._chance.expovariate(1.0 / gap_s), again)

    def _any_upstream(self) -> Upstream:
        return self._chance.choice(list(self.upstreams.values()))

    def _push(self) -> None:
        upstream, kind = self._any_upstream(), self._chance.random()
        if kind < self.climate.back_share:
            upstream.go_back()
        else:
            upstream.push(loss=kind > 1.0 - self.climate.loss_share)

    def _upstream_away(self) -> None:
        self._any_upstream().away_until = self.time.now + self._chance.expovariate(1 / 300.0)

    def _drop_worker(self) -> None:
        worker = self._chance.choice(list(self.workers.values()))
        if worker.reachable:
            worker.reachable = False
            self.aggregator.tell_reachable()
            self.time.after(self._chance.expovariate(1 / 120.0), self._back, worker)

    def _back(self, worker: Worker) -> None:
        worker.reachable = True
        self.aggregator.tell_reachable()

    def _cut(self) -> None:
        if self.aggregator.linked:
            self.aggregator.linked = False
            self.time.after(self._chance.expovariate(1 / 120.0), self._mend)

    def _mend(self) -> None:
        self.aggregator.linked = True
        self.aggregator.follow()

    def _client(self) -> None:
        self.aggregator.want(self._any_upstream().spec.key)

    def _leave(self) -> None:
        live = [key for key, repo in self.coordinator.repos.items() if not repo.removed]
        if len(live) > self.climate.repos // 2:
            self.coordinator.remove(self._chance.choice(live))

    # Workers' days

    def _polls(self, worker: Worker, key: RepoKey) -> None:
        self.time.after(worker.pace_s * self._chance.uniform(0.5, 1.5), self._polls, worker, key)
        self._looks(worker, key)

    def _looks(self, worker: Worker, key: RepoKey) -> None:
        """What it sees now it has a moment later, and then says so."""
        upstream, looked_at = self.upstreams[key], self.time.now
        seen = Upstream(
            upstream.spec, list(upstream.history), upstream.pushes, upstream.away_until, upstream.loss
        )
        self.time.after(self._chance.expovariate(0.5), self._has_looked, worker, seen, looked_at)

    def _has_looked(self, worker: Worker, seen: Upstream, looked_at: float) -> None:
        told = worker.look(seen, looked_at, CONFIRM_S)
        if told is not None:
            delay_s = self._chance.expovariate(1.0 / self.climate.report_delay_s)
            self.time.after(delay_s, self._reports, told)

    def _reports(self, told: Told) -> None:
        self.coordinator.hear(told, self.time.now)

    def _let_look(self, key: RepoKey) -> None:
        for worker in self.workers.values():
            if key in worker.copies and not worker.quarantined:
                self.time.after(self._chance.expovariate(0.2), self._looks, worker, key)

    # The end

    def _settled(self) -> None:
        full = self.climate.settings.mode is CollectMode.FULL
        for key, known in self.coordinator.repos.items():
            row = self.aggregator.shelf.rows.get(key)
            if known.removed:
                if row is not None:
                    raise Broken(f"{key} left the catalog, and is still known")
            elif row is None or (full and not row.served):
                raise Broken(f"{key} is not here: {row}")
            elif row.here is not None and row.here.digest != self.upstreams[key].digest:
                raise Broken(f"{key} is not as upstream: {row}")
        free = [w.node for w in self.workers.values() if self._must_be_found(w) and not w.quarantined]
        if free:
            raise Broken(f"not found out: {free}")

    def _must_be_found(self, worker: Worker) -> bool:
        """Who told untruths in the calm about a repo that only untrusted workers hold."""
        return any(
            not self.coordinator.repos[key].removed and self._lied(worker, key) and self._is_audited(key)
            for key in worker.copies
        )

    def _lied(self, worker: Worker, key: RepoKey) -> bool:
        told = self.coordinator.repos[key].reports.get(worker.node)
        return worker.lies and told is not None and told[0] != self.upstreams[key].digest

    def _is_audited(self, key: RepoKey) -> bool:
        row = self.aggregator.shelf.rows.get(key)
        return row is not None and row.here is not None and row.untrusted


SMALL = CollectSettings(fetches=4, per_holder=2, looks=2, queue_max=64, load_batch=10, rescan_s=60.0)
TIGHT = CollectSettings(fetches=2, per_holder=1, looks=1, queue_max=6, load_batch=3, rescan_s=30.0)
PULL = CollectSettings(mode=CollectMode.PULL_THROUGH, fetches=4, queue_max=64, rescan_s=60.0)
ALL = CollectSettings(verify=Verify.ALL, fetches=4, queue_max=64, rescan_s=60.0)

CLIMATES: dict[str, Climate] = {
    "honest": Climate(SMALL, trusted=0, honest=6, holders=3),
    "trusted": Climate(SMALL, trusted=3, honest=5),
    "liars": Climate(SMALL, trusted=0, liars=(Kind.STALE, Kind.FORGER, Kind.CORRUPT, Kind.HOLLOW)),
    "switchers": Climate(SMALL, liars=(Kind.SWITCHER, Kind.STALE), trusted=2, away_gap_s=60.0),
    "tight": Climate(TIGHT, repos=40, trusted=1, liars=(Kind.STALE,), push_gap_s=60.0, crash_gap_s=300.0),
    "pull": Climate(PULL, trusted=1, liars=(Kind.STALE,), client_gap_s=3.0, disk_repos=12),
    "verify": Climate(ALL, trusted=2, liars=(Kind.FORGER,)),
    "lagging": Climate(SMALL, trusted=1, honest=5, report_delay_s=60.0, cut_gap_s=300.0, push_gap_s=8.0),
    "swinging": Climate(SMALL, trusted=0, honest=4, back_share=0.3, push_gap_s=6.0),
}


@dataclass(frozen=True, slots=True)
class Run:
    """``story`` is empty where every promise held."""

    climate: str
    seed: int
    events: int
    served: int
    accused: int
    story: str = ""


def play(climate: str, seed: int) -> Run:
    """One whole run."""
    world = World(CLIMATES[climate], seed)
    story = ""
    try:
        world.run()
    except Broken as broken:
        at = world.time.now
        story = f"collect, climate {climate}, seed {seed}, at {at:.1f}: {broken}"
    checks = world.aggregator.checks
    return Run(climate, seed, world.aggregator.events, checks.served, len(checks.accused), story)
