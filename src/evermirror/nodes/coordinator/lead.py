"""A coordinator made from settings: the store, the fleet's mind restored from it, the catalog's watch."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial

import structlog

from evermirror.config import Config
from evermirror.core.fleet.events import Moment
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.watch.kinds import PART_KINDS
from evermirror.core.watch.parts import part_alert
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.relay.seal_key import own_sealer
from evermirror.edge.store.key_file import KeyFile
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.faces.api.metrics import Metrics
from evermirror.model.address import AllowList
from evermirror.model.messages import Report
from evermirror.model.relay import RelayAddress
from evermirror.model.worker import WorkerId
from evermirror.nodes.basics import credentials_of, url_rules
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator.aggregators.accusing import Accusations
from evermirror.nodes.coordinator.aggregators.feeds import Feeds
from evermirror.nodes.coordinator.aggregators.holders import Holders
from evermirror.nodes.coordinator.aggregators.passes import Passes
from evermirror.nodes.coordinator.aggregators.registry import Registry
from evermirror.nodes.coordinator.alerts.alert_admin import AlertAdmin
from evermirror.nodes.coordinator.alerts.alert_parts import alert_settings, make_alerting
from evermirror.nodes.coordinator.alerts.alerting import Alerting
from evermirror.nodes.coordinator.bulk.acting import Acting
from evermirror.nodes.coordinator.bulk.bulk_orders import BulkOrders
from evermirror.nodes.coordinator.catalog.catalog_watch import CatalogWatch
from evermirror.nodes.coordinator.catalog.catalog_wiring import make_catalog
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.discovery.credential_watch import CredentialWatch
from evermirror.nodes.coordinator.discovery.discovering import Discovering
from evermirror.nodes.coordinator.discovery.discovery_parts import Paces, make_discovering
from evermirror.nodes.coordinator.events.delivering import Delivering
from evermirror.nodes.coordinator.events.delivery_parts import hook_parts, make_delivering
from evermirror.nodes.coordinator.events.event_desk import EventDesk
from evermirror.nodes.coordinator.events.event_feed import EventFeed
from evermirror.nodes.coordinator.events.event_parts import configure_events, make_events
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.fleet_admin import FleetAdmin
from evermirror.nodes.coordinator.fleet_alerts import FleetAlerts, FleetWatch
from evermirror.nodes.coordinator.footprint import keep_small, settle_memory, start_small
from evermirror.nodes.coordinator.hooks.hook_admin import HookAdmin
from evermirror.nodes.coordinator.hooks.hook_parts import Observers, configure_hooks, make_hooking
from evermirror.nodes.coordinator.hooks.hook_trust import HookLearning, make_learning
from evermirror.nodes.coordinator.hooks.hooking import Hooking
from evermirror.nodes.coordinator.hooks.registering import Registering
from evermirror.nodes.coordinator.hooks.registering_parts import make_registering
from evermirror.nodes.coordinator.orders import Orders
from evermirror.nodes.coordinator.own_ca import pki_folder
from evermirror.nodes.coordinator.pull.load_watch import LoadWatch, make_load_watch
from evermirror.nodes.coordinator.pull.pull_admin import PullAdmin
from evermirror.nodes.coordinator.pull.pull_jobs import PullJobs
from evermirror.nodes.coordinator.pull.pull_parts import fresh_bound_s, make_pulling
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.coordinator.reception import Reception
from evermirror.nodes.coordinator.reported import Reported
from evermirror.nodes.senders import make_senders
from evermirror.nodes.supervisor import PartState, Supervisor

log = structlog.get_logger(__name__)

MAY_END = frozenset({"catalog", "load of sources", "jobs of pulling"})  # where settings give them no work
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
    load: LoadWatch
    alerting: Alerting
    alerts: AlertAdmin
    discovering: Discovering
    credential_watch: CredentialWatch
    event_feed: EventFeed
    delivering: Delivering
    events: EventDesk
    hooking: Hooking
    hooks: HookAdmin
    hook_learning: HookLearning
    registering: Registering
    bulk: BulkOrders
    supervisor: Supervisor

    def configure(self, config: Config) -> None:
        """What needs no restart."""
        self.alerting.configure(alert_settings(config), make_senders(config))
        configure_hooks(self.hooking, config)
        self.registering.configure(
            config.webhooks.url, config.webhooks.as_secrets(), credentials_of(config).by_name
        )
        configure_events(self.event_feed, config)
        self.delivering.configure(hook_parts(config))

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        """The catalog is loaded and work is given out, until ``stack`` is left."""
        await self.catalog.load()
        settle_memory()
        await self.coordinator.resume()
        works = {
            "tasks": self.coordinator.run,
            "figures": self.coordinator.figures.run,
            "catalog": self.catalog.run,
            "pulling": self.pulling.run,
            "jobs of pulling": self.jobs.run,
            "load of sources": self.load.run,
            "discovery": self.discovering.follow,
            "credentials": self.credential_watch.run,
            "event hooks": self.delivering.run,
            "webhooks": self.hooking.run,
            "trust in webhooks": self.hook_learning.run,
            "registration of webhooks": self.registering.run,
            "bulk orders": self.bulk.run,
            "alerts of the fleet": FleetWatch(self.admin.view, self.alerting).run,
            "memory": keep_small,
        }
        for name, work in works.items():
            part = self.supervisor.running(name, work, may_end=name in MAY_END)
            await stack.enter_async_context(part)


@contextlib.asynccontextmanager
async def leading(
    config: Config,
    credentials: Credentials,
    clock: SteadyClock,
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
        alerting = await make_alerting(config, store, clock)
        supervisor = Supervisor(partial(_stand, alerting))
        _stand(alerting, ())  # what failed in the process before runs anew
        event_feed = await make_events(config, store, clock)
        observers = Observers(metrics.observe)
        observers.add(event_feed.heard)
        coordinator = _make_coordinator(config, store, recorder, clock, observers, FleetAlerts(alerting))
        coordinator.add_warnings(alerting.warnings)
        coordinator.add_warnings(supervisor.warnings)  # also while alerting itself fails
        epoch = await store.next_epoch()
        restored = await store.load_fleet(KeyFile(config.data.dir))
        machine = FleetMachine(settings, epoch, Moment(time.monotonic(), clock()), restored)
        sealer = await asyncio.to_thread(own_sealer, pki_folder(config))
        passes = Passes(sealer, clock, machine.record, machine.may_read)
        told = _Told(http_url, config.upstreams.refs_extra)
        reported = Reported()
        learning = await make_learning(store, coordinator, machine.primary_of, alerting, clock)
        heard = partial(_tell_each, (reported.noted, learning.reported))
        fleet = await _make_fleet(machine, store, recorder, coordinator, passes, heard, told, clock)
        coordinator.lead(fleet)
        pulling, jobs, pull = await make_pulling(config, store, recorder, coordinator, alerting, clock)
        hooking = make_hooking(config, store, recorder, coordinator, pulling, alerting, clock)
        observers.add(hooking.heard)
        hooking.on_hook = learning.heard
        admin = FleetAdmin(fleet, store, coordinator.statuses, alerts=lambda: coordinator.alerts, utc=clock)
        coordinator.add_warnings(admin.warnings)
        registry = Registry(
            store,
            coordinator.alert,
            away_s=settings.heartbeat_s * (settings.max_missed + 1),
            utc=clock,
            mono=time.monotonic,
        )
        await registry.load()
        feeds = Feeds(
            fleet,
            store,
            Holders(fleet, reported),
            Accusations(admin, coordinator.alert),
            passes,
            registry,
            epoch=epoch,
            utc=clock,
            http_url=told.http_url,
            own_relay=own_relay,
            refs_extra=told.refs_extra,
        )
        coordinator.add_warnings(feeds.warnings)
        passes.relays, store.on_change = feeds.relays, feeds.wake
        feeds.restore(restored.workers)
        fleet.on_duty = feeds.duty_changed
        admin.aggregators, admin.registered, admin.collected = feeds.view, registry.records, feeds.collected
        catalog, publisher = make_catalog(
            config, credentials, store, coordinator, clock, accept_removals=accept_removals
        )
        resolver = Resolver(AllowList.parse(list(config.upstreams.allow)))
        stack.callback(resolver.close)
        paces = Paces()
        registering = await make_registering(
            config,
            credentials,
            resolver,
            paces=paces,
            store=store,
            find=coordinator.find_repo,
            clock=clock,
            expect=learning.expect,
            unexpected=learning.forget,
        )
        discovering, credential_watch = await make_discovering(
            config,
            credentials,
            resolver,
            store=store,
            pull=pull,
            pulling=pulling,
            alerting=alerting,
            clock=clock,
            paces=paces,
            registering=registering,
        )
        delivering = await make_delivering(config, store, event_feed, alerting, clock, supervisor)
        # These end after all that tell them something. What peers send does not end the fleet's mind; what
        # does may have left a decision half done: then the node is made anew from the database.
        await stack.enter_async_context(supervisor.running("events", event_feed.run))
        await stack.enter_async_context(supervisor.running("alerts", alerting.run))
        await stack.enter_async_context(supervisor.running("fleet", fleet.run, lost_on=(Exception,)))
        stack.push_async_callback(_settle, fleet)
        await stack.enter_async_context(supervisor.running("changes for aggregators", feeds.run))
        if publisher is not None:
            await stack.enter_async_context(supervisor.running("publishing", publisher.run))
        yield Lead(
            store=store,
            recorder=recorder,
            coordinator=coordinator,
            fleet=fleet,
            catalog=catalog,
            admin=admin,
            metrics=metrics,
            feeds=feeds,
            reception=Reception(fleet, feeds),
            passes=passes,
            pulling=pulling,
            jobs=jobs,
            pull=pull,
            load=make_load_watch(config, pulling.see_load),
            alerting=alerting,
            alerts=AlertAdmin(alerting, store, clock),
            discovering=discovering,
            credential_watch=credential_watch,
            event_feed=event_feed,
            delivering=delivering,
            events=EventDesk(event_feed, delivering, store, clock),
            hooking=hooking,
            hooks=HookAdmin(hooking, learning, registering),
            hook_learning=learning,
            registering=registering,
            bulk=await _make_bulk(config, store, coordinator, pulling, clock),
            supervisor=supervisor,
        )


def _make_coordinator(
    config: Config,
    store: Store,
    recorder: Recorder,
    clock: SteadyClock,
    observe: Callable[[Report], None],
    alerts: FleetAlerts,
) -> Coordinator:
    return Coordinator(
        store=store,
        recorder=recorder,
        rules=url_rules(config),
        credentials=frozenset(config.credentials),
        fresh_bound_s=fresh_bound_s(config),
        clock=clock,
        observe=observe,
        alerts=alerts,
        task_patience_s=config.fleet.task_patience,
    )


async def _make_bulk(
    config: Config, store: Store, coordinator: Coordinator, pulling: Pulling, clock: SteadyClock
) -> BulkOrders:
    orders = BulkOrders(store, Acting(store, coordinator, pulling, clock), url_rules(config), clock)
    await orders.load()
    return orders


@dataclass(frozen=True, slots=True)
class _Told:
    """What every node is told of this coordinator, and must agree with it about."""

    http_url: str
    refs_extra: tuple[str, ...]


async def _make_fleet(
    machine: FleetMachine,
    store: Store,
    recorder: Recorder,
    coordinator: Coordinator,
    passes: Passes,
    heard: Callable[[WorkerId, Report], None],
    told: _Told,
    clock: SteadyClock,
) -> Fleet:
    return Fleet(
        machine,
        recorder=recorder,
        orders=Orders(
            store,
            passes.source,
            machine.primary_of,
            machine.may_read,
            machine.repo,
            lambda worker: (record := machine.record(worker)) is not None and record.facts.trusted,
        ),
        bound=await store.bound_tokens(),
        listener=coordinator,
        utc=clock,
        http_url=told.http_url,
        access=passes.of_worker,
        heard=heard,
        refs_extra=told.refs_extra,
    )


def _stand(alerting: Alerting, states: tuple[PartState, ...]) -> None:
    alerting.stand(PART_KINDS, [part_alert(s.name, s.error, s.failures) for s in states if s.failing])


async def _settle(fleet: Fleet) -> None:
    try:
        async with asyncio.timeout(SETTLE_S):
            await fleet.settled()
    except TimeoutError:
        log.warning("not everything that was decided is on the disk")  # it follows again at the next start


def _tell_each(those: Iterable[Callable[[WorkerId, Report], None]], worker: WorkerId, report: Report) -> None:
    for one in those:
        one(worker, report)


def fleet_settings(config: Config, *, alone: bool) -> FleetSettings:
    """``alone``: all-in-one, whose own worker is always there: nothing to wait for."""
    fleet, usual = config.fleet, FleetSettings()
    return FleetSettings(
        replicas=fleet.replicas,
        heartbeat_s=fleet.heartbeat,
        max_missed=fleet.max_missed,
        grace_s=fleet.grace,
        clone_patience_s=fleet.clone_patience,
        warm_up_s=0.0 if alone else fleet.warm_up,
        min_workers=fleet.min_workers,
        rebalance_gap_s=min(usual.rebalance_gap_s, fleet.grace),
        tick_s=min(usual.tick_s, fleet.heartbeat),
        host_rate=config.limits.host_rate,
        polls_per_second=config.schedule.polls_per_second,
        min_gap_s=config.schedule.min_gap,
    )
