"""What an aggregator does besides its face: follows the coordinator, fetches from workers, checks, keeps."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

import evermirror
from evermirror.config import Config
from evermirror.core.collect.machine import Collector
from evermirror.core.collect.settings import CollectMode, CollectSettings, Verify
from evermirror.edge.git.command import Git
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober
from evermirror.edge.git.serve import GitServer
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.rpc.transport import Dialer
from evermirror.edge.store.collected import Collected
from evermirror.model.address import AllowList
from evermirror.model.failure import FailureError
from evermirror.nodes.aggregator.aggregator_relay import Reaching, reaching
from evermirror.nodes.aggregator.aggregator_uplink import AggregatorUplink
from evermirror.nodes.aggregator.attempts import Attempts
from evermirror.nodes.aggregator.collect_start import agree_with_disk
from evermirror.nodes.aggregator.collect_works import CollectWorks
from evermirror.nodes.aggregator.collected_care import CollectedCare
from evermirror.nodes.aggregator.collecting import Collecting
from evermirror.nodes.aggregator.patient_store import FileUnreadable
from evermirror.nodes.aggregator.readers import Readers
from evermirror.nodes.aggregator.served_collected import ServedCollected
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.wiring import care_settings, mirror_settings, probe_settings, upkeep_settings

log = structlog.get_logger(__name__)

FOLDER = "collected"  # in data.dir: its mirrors
FILE = "collected.db"
EVICT_SHARE = 0.05  # of the disk: so far below the mark does pull-through mode evict
TIDY_S = 3600.0  # between two looks at what is old in the trash


@dataclass(frozen=True, slots=True)
class CollectorSide:
    """A running one; ``served`` is what it has, for git clients."""

    uplink: AggregatorUplink
    collecting: Collecting
    store: Collected
    mirrors: Mirrors
    reaching: Reaching
    served: ServedCollected


@contextlib.asynccontextmanager
async def collecting_side(
    config: Config,
    dialer: Dialer,
    git: Git,
    server: GitServer,
    clock: SteadyClock,
    supervisor: Supervisor,
    *,
    coordinator: str,
    http_url: str = "",
) -> AsyncIterator[CollectorSide]:
    """Everything started and, on leaving, stopped: the line to the coordinator first, the store last."""
    async with contextlib.AsyncExitStack() as stack:
        store = await Collected.open(config.data.dir / FILE, clock=clock)
        stack.push_async_callback(store.close)
        mirrors = Mirrors(config.data.dir / FOLDER, git, mirror_settings(config), clock=clock)
        settings = collect_settings(config)
        await agree_with_disk(store, mirrors, settings.mode, clock())
        uplink = _uplink(config, dialer, clock)
        judged_by = uplink.coordinator_clock
        reached = await stack.enter_async_context(reaching(config, coordinator, uplink.unsealer, judged_by))
        uplink.relay, uplink.on_access = reached.address, reached.on_access
        uplink.http_url = http_url
        readers = Readers(clock)
        parts = _Parts(config, git, store, mirrors, readers, uplink, reached, clock, supervisor)
        care, collecting = await _collecting(parts, settings, stack)
        uplink.attach(collecting)
        reached.tell_arrivals(collecting.arrived)
        await stack.enter_async_context(supervisor.running("upkeep of mirrors", care.run, may_end=True))
        follow = functools.partial(_collect_and_tell, collecting, uplink)
        await stack.enter_async_context(supervisor.running("collecting", follow, lost_on=(FileUnreadable,)))
        tidy = functools.partial(_keep_tidy, mirrors)
        await stack.enter_async_context(supervisor.running("tidying", tidy))
        served = ServedCollected(store, mirrors, collecting, readers, care.checks, server)
        yield CollectorSide(uplink, collecting, store, mirrors, reached, served)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What collecting needs of the rest."""

    config: Config
    git: Git
    store: Collected
    mirrors: Mirrors
    readers: Readers
    uplink: AggregatorUplink
    reached: Reaching
    clock: SteadyClock
    supervisor: Supervisor


async def _collecting(
    parts: _Parts, settings: CollectSettings, stack: contextlib.AsyncExitStack
) -> tuple[CollectedCare, Collecting]:
    git, mirrors, reach, clock = parts.git, parts.mirrors, parts.reached.reach, parts.clock
    gateway = await stack.enter_async_context(Gateway(reach))
    prober = _prober(parts.config, git, stack)
    attempts = Attempts(
        git, mirrors, prober, reach, gateway, reader_pass=parts.uplink.reader_pass, clock=clock
    )
    care = CollectedCare(
        mirrors,
        Maintenance(git, upkeep_settings(parts.config)),
        slots=care_settings(parts.config).slots,
        retention_s=parts.config.keep.retention,
        clock=clock,
    )
    collecting = Collecting(
        lambda: Collector(settings),
        settings,
        store=parts.store,
        mirrors=mirrors,
        works=lambda tell: CollectWorks(attempts, mirrors, parts.readers, care, clock=clock, tell=tell),
        reach=reach,
        has_pass=parts.uplink.has_pass,
        teller=parts.uplink,
        readers=parts.readers,
        clock=clock,
        chance=random.Random(),  # noqa: S311 - picks what is audited; nobody outside sees it
        warnings=parts.supervisor.warnings,
    )
    return care, collecting


def collect_settings(config: Config) -> CollectSettings:
    section, disk_high = config.aggregator, config.fleet.disk_high
    return CollectSettings(
        mode=CollectMode(section.mode),
        verify=Verify(section.verify),
        quorum=section.quorum,
        fetches=section.fetches,
        per_holder=section.fetches_per_holder,
        audits_per_minute=section.audits_per_minute,
        client_wait_s=section.wait,
        disk_high=disk_high,
        disk_low=disk_high - min(EVICT_SHARE, disk_high / 2),
    )


def _uplink(config: Config, dialer: Dialer, clock: Callable[[], float]) -> AggregatorUplink:
    return AggregatorUplink(
        dialer,
        name=config.aggregator.name or "",
        boot=secrets.randbits(63),
        version=evermirror.__version__,
        refs_extra=config.upstreams.refs_extra,
        clock=clock,
        chance=random.Random(),  # noqa: S311 - spreads retries, guards nothing
    )


def _prober(config: Config, git: Git, stack: contextlib.AsyncExitStack) -> Prober:
    allow = AllowList.parse(list(config.upstreams.allow))
    resolver = Resolver(allow)
    stack.callback(resolver.close)
    prober = Prober(resolver, git.credentials, git, probe_settings(config, allow))
    stack.push_async_callback(prober.close)
    return prober


async def _collect_and_tell(collecting: Collecting, uplink: AggregatorUplink) -> None:
    """Both until cancelled. Where one fails, both begin anew: a new session asks for every change that is not
    on the disk yet, and tells the coordinator all that is served."""
    async with asyncio.TaskGroup() as group:
        group.create_task(collecting.run(), name="collecting")
        group.create_task(uplink.run(), name="uplink")


async def _keep_tidy(mirrors: Mirrors) -> None:
    while True:
        await asyncio.sleep(TIDY_S)
        try:
            await mirrors.tidy()
        except FailureError as error:
            log.warning("old trash not removed", reason=error.failure.message)
