"""A coordinator made from settings: the store, the fleet's mind restored from it, the catalog's watch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from evermirror.config import Config
from evermirror.core.fleet.events import Moment
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.relay.seal_key import own_sealer
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.faces.api.metrics import Metrics
from evermirror.model.relay import RelayAddress
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator.accusing import Accusations
from evermirror.nodes.coordinator.catalog_watch import CatalogWatch
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.door import pki_folder
from evermirror.nodes.coordinator.feeds import Feeds
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.fleet_admin import FleetAdmin
from evermirror.nodes.coordinator.footprint import keep_small, settle_memory, start_small
from evermirror.nodes.coordinator.holders import Holders
from evermirror.nodes.coordinator.orders import Orders
from evermirror.nodes.coordinator.passes import Passes
from evermirror.nodes.coordinator.pull_admin import PullAdmin
from evermirror.nodes.coordinator.pull_jobs import PullJobs
from evermirror.nodes.coordinator.pull_parts import fresh_bound_s, make_pulling
from evermirror.nodes.coordinator.pulling import Pulling
from evermirror.nodes.coordinator.reception import Reception
from evermirror.nodes.coordinator.reported import Reported
from evermirror.nodes.running import running
from evermirror.nodes.wiring import make_catalog, url_rules

log = structlog.get_logger(__name__)

SETTLE_S = 10.0  # at a stop, for what was decided; what a database in trouble does not take was not acted on


@dataclass(frozen=True, slots=True)
class Lead:
    """What a coordinator is made of."""

    store: Store
    recorder: Recorder
    coordinator: Coordinator
    fleet: Fleet
    catalog: CatalogWatch
    admin: FleetAdmin
    metrics: Metrics
    feeds: Feeds
    reception: Reception
    passes: Passes
    pulling: Pulling
    jobs: PullJobs
    pull: PullAdmin

    async def begin(self, stack: contextlib.AsyncExitStack, broken: asyncio.Event) -> None:
        """The catalog is loaded and work is given out, until ``stack`` is left."""
        await self.catalog.load()
        settle_memory()
        await self.coordinator.resume()
        works = (self.coordinator.run, self.catalog.run, self.pulling.run, self.jobs.run, keep_small)
        for work in works:
            await stack.enter_async_context(running(work, broken))


@contextlib.asynccontextmanager
async def leading(
    config: Config,
    credentials: Credentials,
    clock: SteadyClock,
    broken: asyncio.Event,
    *,
    settings: FleetSettings,
    http_url: str = "",
    accept_removals: bool = False,
    own_relay: Callable[[], RelayAddress | None] = lambda: None,
) -> AsyncIterator[Lead]:
    """Everything but the doors; on leaving, what was decided is on the disk. ``own_relay``: one that runs in
    this very process."""
    start_small()
    async with contextlib.AsyncExitStack() as stack:
        store = await Store.open(config.store_url)
        stack.push_async_callback(store.close)
        recorder = await stack.enter_async_context(Recorder(store))
        metrics = Metrics()
        coordinator = Coordinator(
            store=store,
            recorder=recorder,
            rules=url_rules(config),
            credentials=frozenset(config.credentials),
            fresh_bound_s=fresh_bound_s(config),
            clock=clock,
            observe=metrics.observe,
        )
        now = Moment(time.monotonic(), clock())
        epoch = await store.next_epoch()
        machine = FleetMachine(settings, epoch, now, await store.load_fleet())
        sealer = await asyncio.to_thread(own_sealer, pki_folder(config))
        passes = Passes(sealer, clock, machine.record, lambda worker: _trusts(fleet, worker))
        reported = Reported()
        fleet = Fleet(
            machine,
            recorder=recorder,
            orders=Orders(store, passes.source, lambda key: _primary_of(machine, key)),
            bound=await store.bound_tokens(),
            listener=coordinator,
            utc=clock,
            http_url=http_url,
            access=passes.of_worker,
            heard=reported.noted,
            refs_extra=config.upstreams.refs_extra,
        )
        coordinator.lead(fleet)
        pulling, jobs, pull = await make_pulling(config, store, recorder, coordinator, clock)
        admin = FleetAdmin(fleet, store, coordinator.statuses, alerts=lambda: coordinator.alerts, utc=clock)
        coordinator.add_warnings(admin.warnings)
        feeds = Feeds(
            fleet,
            store,
            Holders(fleet, reported),
            Accusations(admin, coordinator.alert),
            passes,
            epoch=epoch,
            utc=clock,
            http_url=http_url,
            own_relay=own_relay,
            refs_extra=config.upstreams.refs_extra,
        )
        passes.relays, admin.aggregators, store.on_change = feeds.relays, feeds.view, feeds.wake
        catalog, publisher = make_catalog(
            config, credentials, store, coordinator, clock, accept_removals=accept_removals
        )
        await stack.enter_async_context(running(fleet.run, broken))
        stack.push_async_callback(_settle, fleet)
        await stack.enter_async_context(running(feeds.run, broken))
        if publisher is not None:
            await stack.enter_async_context(running(publisher.run, broken))
        reception = Reception(fleet, feeds)
        yield Lead(
            store,
            recorder,
            coordinator,
            fleet,
            catalog,
            admin,
            metrics,
            feeds,
            reception,
            passes,
            pulling,
            jobs,
            pull,
        )


async def _settle(fleet: Fleet) -> None:
    try:
        async with asyncio.timeout(SETTLE_S):
            await fleet.settled()
    except TimeoutError:
        log.warning("not everything that was decided is on the disk")  # it follows again at the next start


def _primary_of(machine: FleetMachine, key: RepoKey) -> WorkerId | None:
    repo = machine.repo(key)
    return repo.primary if repo is not None else None


def _trusts(fleet: Fleet, worker: WorkerId) -> bool:
    who = fleet.about(worker)
    return who is not None and who.trusted


def fleet_settings(config: Config, *, alone: bool) -> FleetSettings:
    """``alone``: all-in-one, whose own worker is always there: nothing to wait for."""
    fleet, usual = config.fleet, FleetSettings()
    return FleetSettings(
        replicas=fleet.replicas,
        heartbeat_s=fleet.heartbeat,
        max_missed=fleet.max_missed,
        grace_s=fleet.grace,
        warm_up_s=0.0 if alone else fleet.warm_up,
        min_workers=fleet.min_workers,
        rebalance_gap_s=min(usual.rebalance_gap_s, fleet.grace),
        tick_s=min(usual.tick_s, fleet.heartbeat),
        host_rate=config.limits.host_rate,
        polls_per_second=config.schedule.polls_per_second,
        min_gap_s=config.schedule.min_gap,
    )
