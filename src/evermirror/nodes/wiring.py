"""What the settings mean for each part of a node that has mirrors, and a worker made from them."""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
from dataclasses import replace

import evermirror
from evermirror.config import Config
from evermirror.core.keep.guard import GuardSettings
from evermirror.core.maintain.facts import UpkeepSettings
from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.edge.git.command import Git
from evermirror.edge.git.connection import HttpLimits
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.mirror import Mirrors, MirrorSettings
from evermirror.edge.git.probe import Prober, ProbeSettings
from evermirror.edge.git.push import Pusher, PushSettings
from evermirror.edge.git.serve import GitServer, ServeSettings
from evermirror.edge.git.surroundings import surroundings
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.relay.asking import AskingLines
from evermirror.edge.relay.gateway import Gateway
from evermirror.edge.relay.limits import ServingLimits
from evermirror.edge.relay.serving import ServingLines
from evermirror.edge.rpc.transport import Dialer
from evermirror.edge.store.local import LocalState
from evermirror.edge.store.report_log import ReportLog
from evermirror.model.address import AllowList
from evermirror.model.push import VisibilityRule
from evermirror.model.wire import Access
from evermirror.nodes.basics import url_rules
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.worker.caretaker import CareSettings
from evermirror.nodes.worker.line_service import MirrorLines
from evermirror.nodes.worker.nearby import Nearby
from evermirror.nodes.worker.ports import NoSeeds
from evermirror.nodes.worker.uplink import Uplink
from evermirror.nodes.worker.worker import Worker, WorkerParts


async def make_worker(
    config: Config,
    git: Git,
    credentials: Credentials,
    dialer: Dialer,
    clock: SteadyClock,
    stack: contextlib.AsyncExitStack,
    supervisor: Supervisor,
    *,
    alone: bool,
) -> tuple[Worker, Uplink, ServingLines]:
    """A worker over this node's data folder, its line to a coordinator, and those over which others read
    from it; ``stack`` closes what it opens.

    ``alone``: all-in-one, whose coordinator is always there, and where nobody else could take a clone."""
    allow = AllowList.parse(list(config.upstreams.allow))
    resolver = Resolver(allow)
    stack.callback(resolver.close)
    prober = Prober(resolver, credentials, git, probe_settings(config, allow))
    stack.push_async_callback(prober.close)
    local = await LocalState.open(config.data.dir / "worker.db")
    stack.push_async_callback(local.close)
    reports = await ReportLog.open(config.data.dir / "reports.db")
    stack.push_async_callback(reports.close)
    settings = schedule_settings(config)
    uplink = Uplink(
        dialer,
        reports,
        name=config.worker.name or (socket.gethostname() if alone else ""),
        weight=config.worker.weight,
        capacity=config.worker.capacity,
        boot=secrets.randbits(63),
        version=evermirror.__version__,
        refs_extra=config.upstreams.refs_extra,
        clock=clock,
        chance=random.Random(),  # noqa: S311 - spreads retries, guards nothing
    )
    mirrors = Mirrors(config.data.dir / "mirrors", git, mirror_settings(config))
    asking = AskingLines()
    stack.callback(asking.close)
    gateway = await stack.enter_async_context(Gateway(asking))
    judged_by = uplink.coordinator_clock  # who seals tickets says when they end
    nearby = Nearby(git, mirrors, asking, gateway, lambda: uplink.access, uplink.ask_source, judged_by)
    parts = WorkerParts(
        port=uplink,
        scheduler=Scheduler(settings),
        prober=prober,
        mirrors=mirrors,
        maintenance=Maintenance(git, upkeep_settings(config)),
        local=local,
        disk=DiskGuard(config.fleet.disk_high),
        clock=clock,
        chance=random.Random(),  # noqa: S311 - spreads retries, guards nothing
        care=care_settings(config),
        nearby=nearby if config.fleet.copy_from_holders else NoSeeds(),
        targets=Pusher(git, mirrors, prober, push_settings(config), clock),
        contact=uplink.contact,
        about=await surroundings(git),
        hands_back=not alone,
        remembers=not alone,
        supervisor=supervisor,
        warnings=tuple if alone else supervisor.warnings,  # an all-in-one's own coordinator knows them
    )
    worker = Worker(parts, settings)
    uplink.attach(worker)
    server = GitServer(git, replace(serve_settings(config), shows_kept=True, cache_folder=None))
    service = MirrorLines(
        server,
        worker.mirror_path,
        is_public=worker.is_public,
        in_contact=lambda: uplink.contact.held,
        suspect=worker.suspect,
    )
    lines = ServingLines(service, ServingLimits(config.relay.lines), clock=judged_by)

    def take_access(access: Access) -> None:
        asking.set_access(access)
        lines.set_access(access)

    uplink.on_access = take_access
    return worker, uplink, lines


def probe_settings(config: Config, allow: AllowList) -> ProbeSettings:
    limits = config.limits
    return ProbeSettings(
        http=HttpLimits(
            connect_s=limits.connect_timeout,
            answer_s=limits.answer_timeout,
            answer_bytes=limits.answer_bytes,
        ),
        ca_file=str(config.upstreams.ca_file) if config.upstreams.ca_file else None,
        refs_extra=config.upstreams.refs_extra,
        allow=allow,
    )


def guard_settings(config: Config) -> GuardSettings:
    return GuardSettings(config.keep.guard_share, config.keep.guard_least, config.keep.confirm_after)


def mirror_settings(config: Config) -> MirrorSettings:
    return MirrorSettings(
        max_repo_size=config.upstreams.max_repo_size,
        trash_age_s=config.keep.trash,
        guard=guard_settings(config),
    )


def push_settings(config: Config) -> PushSettings:
    return PushSettings(
        rules=url_rules(config),
        guard=guard_settings(config),
        silence_s=config.pull.pushes_silence,
        ca_file=config.upstreams.ca_file,
        visibility=VisibilityRule(config.pull.visibility),
        public_targets=config.pull.public_targets,
    )


def upkeep_settings(config: Config) -> UpkeepSettings:
    section = config.maintenance
    return UpkeepSettings(
        packs_max=section.packs_max,
        full_every_s=section.full_every,
        fsck_every_s=section.fsck_every,
        cruft_expiry_s=section.cruft_expiry,
        time_limit_s=section.time_limit,
    )


def care_settings(config: Config) -> CareSettings:
    slots = config.maintenance.slots if config.maintenance.enabled else 0
    return CareSettings(slots=slots, retention_s=config.keep.retention)


def schedule_settings(config: Config) -> ScheduleSettings:
    return ScheduleSettings(
        policy=config.schedule.policy,
        slots=config.schedule.slots,
        min_gap_s=config.schedule.min_gap,
        max_gap_s=config.schedule.max_gap,
        polls_per_second=config.schedule.polls_per_second,
        host_rate=config.limits.host_rate,
        host_connections=config.limits.host_connections,
        polls_in_flight=config.limits.polls_in_flight,
    )


def serve_settings(config: Config) -> ServeSettings:
    serve = config.serve
    return ServeSettings(
        packs_max=serve.packs,
        per_client=serve.per_client,
        queue=serve.queue,
        queue_wait_s=serve.queue_wait,
        pace_bytes_s=serve.pace,
        silence_s=serve.silence,
        filters=serve.filters,
        cache_bytes=serve.cache_bytes,
        cache_folder=config.data.dir / "cache" / "packs",
    )
