"""A coordinator made from settings: the store, the fleet's mind restored from it, the catalog's watch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from evermirror.config import Config
from evermirror.core.fleet.events import Moment
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.faces.api.metrics import Metrics
from evermirror.model.worker import WorkerId
from evermirror.nodes.catalog_watch import CatalogWatch
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator import Coordinator
from evermirror.nodes.fleet import Fleet
from evermirror.nodes.fleet_admin import FleetAdmin
from evermirror.nodes.orders import Orders
from evermirror.nodes.running import running
from evermirror.nodes.wiring import make_catalog, url_rules

log = structlog.get_logger(__name__)

DAY_S = 86_400.0
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

    async def begin(self, stack: contextlib.AsyncExitStack, broken: asyncio.Event) -> None:
        """The catalog is loaded and work is given out, until ``stack`` is left."""
        await self.catalog.load()
        await self.coordinator.resume()
        for work in (self.coordinator.run, self.catalog.run, self.coordinator.keep_house):
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
) -> AsyncIterator[Lead]:
    """Everything but the doors; on leaving, what was decided is on the disk."""
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
            fresh_bound_s=config.schedule.max_gap or DAY_S,
            clock=clock,
            observe=metrics.observe,
        )
        now = Moment(time.monotonic(), clock())
        machine = FleetMachine(settings, await store.next_epoch(), now, await store.load_fleet())
        fleet = Fleet(
            machine,
            recorder=recorder,
            orders=Orders(store, lambda worker: _name_of(machine, worker)),
            bound=await store.bound_tokens(),
            listener=coordinator,
            utc=clock,
            http_url=http_url,
        )
        coordinator.lead(fleet)
        admin = FleetAdmin(fleet, store, coordinator.statuses, alerts=lambda: coordinator.alerts, utc=clock)
        coordinator.add_warnings(admin.warnings)
        catalog, publisher = make_catalog(
            config, credentials, store, coordinator, clock, accept_removals=accept_removals
        )
        await stack.enter_async_context(running(fleet.run, broken))
        stack.push_async_callback(_settle, fleet)
        if publisher is not None:
            await stack.enter_async_context(running(publisher.run, broken))
        yield Lead(store, recorder, coordinator, fleet, catalog, admin, metrics)


async def _settle(fleet: Fleet) -> None:
    try:
        async with asyncio.timeout(SETTLE_S):
            await fleet.settled()
    except TimeoutError:
        log.warning("not everything that was decided is on the disk")  # it follows again at the next start


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
    )


def _name_of(machine: FleetMachine, worker: WorkerId) -> str:
    return next((w.record.facts.name for w in machine.workers() if w.record.id == worker), str(worker))
