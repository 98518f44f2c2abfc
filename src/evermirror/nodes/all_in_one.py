"""All-in-one: coordinator, worker and HTTP server in one process, over the same frames as in a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.git.serve import GitServer
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Identity
from evermirror.errors import ConfigError
from evermirror.model.access import Role
from evermirror.model.repo import RepoKey, RepoStatus
from evermirror.nodes import lifecycle
from evermirror.nodes.basics import credentials_of, git_settings
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator.catalog.catalog_watch import CatalogWatch
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.door import Door
from evermirror.nodes.coordinator.fleet import OWN_TOKEN
from evermirror.nodes.coordinator.front import check_exposure, http_front
from evermirror.nodes.coordinator.lead import Lead, fleet_settings, leading
from evermirror.nodes.data_folder import with_absolute_data
from evermirror.nodes.http_server import url_of
from evermirror.nodes.playground import playground_running
from evermirror.nodes.pulled_through import PulledThrough, pulling_through, wanted_here
from evermirror.nodes.running import live, until_stopped
from evermirror.nodes.served import ServedMirrors
from evermirror.nodes.service import RepoFilter
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.wiring import make_worker, schedule_settings, serve_settings
from evermirror.nodes.worker.uplink import Uplink
from evermirror.nodes.worker.worker import Worker

log = structlog.get_logger(__name__)

FIRST_MIRROR_S = 30.0  # how long the greeting waits for something that can be cloned


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What is decided on the command line and is no setting."""

    playground: bool = False
    accept_removals: bool = False


def run(config: Config, options: UpOptions, reload: Callable[[], Config]) -> int:
    """Runs until a signal asks for a stop; returns the process's exit code."""
    return asyncio.run(_main(config, options, reload))


async def _main(config: Config, options: UpOptions, reload: Callable[[], Config]) -> int:
    signals = lifecycle.Signals()
    signals.install()
    config = with_absolute_data(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(lifecycle.claimed(config.data.dir))
        adapt: Callable[[Config], Config] = _as_it_is
        if options.playground:
            adapt = await stack.enter_async_context(playground_running(config))

        async def one_life() -> bool:
            async with up(adapt(config), options) as node:
                lifecycle.notify("READY=1")
                await _greet(node, options)
                again = functools.partial(node.reload, lambda: adapt(reload()))
                return await until_stopped(signals, node.supervisor.lost, again)

        return await live(signals, one_life)


@dataclass(slots=True)
class Node:
    """A running all-in-one."""

    config: Config
    url: str
    coordinator: Coordinator
    worker: Worker
    catalog: CatalogWatch
    lead: Lead
    uplink: Uplink
    door: Door
    supervisor: Supervisor

    def reload(self, load: Callable[[], Config]) -> None:
        """SIGHUP: limits, budgets, channels of alerts, hooks and event hooks are taken over, the catalog is
        read again; the rest needs a restart."""
        try:
            config = load()
            self.lead.configure(config)
        except ConfigError as error:
            log.error("settings not reloaded: they have errors", problems=error.problems)
            return
        self.worker.configure(schedule_settings(config))
        self.catalog.look_now()
        log.info("settings reloaded")


@contextlib.asynccontextmanager
async def up(config: Config, options: UpOptions) -> AsyncIterator[Node]:
    """Everything started and, on leaving, stopped in the order that loses nothing: the worker, then its line
    (what it still had to say is delivered, or written down), then requests, then the database."""
    sock = lifecycle.bind(config.server.listen)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        credentials = credentials_of(config)
        git = Git(git_settings(config), credentials)
        await git.version()
        clock = SteadyClock()
        url = url_of(config, sock)
        lead = await stack.enter_async_context(
            leading(
                config,
                credentials,
                clock,
                settings=fleet_settings(config, alone=True),
                http_url=url,
                accept_removals=options.accept_removals,
            )
        )
        supervisor = lead.supervisor
        await check_exposure(config, lead.store)
        name = config.worker.name or socket.gethostname()
        server = await stack.enter_async_context(InProcessServer(lead.reception.serve))
        dialer = server.dialer(Identity(OWN_TOKEN, name, Role.WORKER, trusted=True))
        worker, uplink, lines = await make_worker(
            config, git, credentials, dialer, clock, stack, supervisor, alone=True
        )
        git_server = GitServer(git, serve_settings(config))
        own = ServedMirrors(lead.coordinator, worker, git_server)
        served = PulledThrough(
            config, own, lead.coordinator.find_repo, lambda key: wanted_here(lead.fleet, key)
        )
        await stack.enter_async_context(http_front(config, sock, lead, served, git_server))
        await stack.enter_async_context(supervisor.running("lines to relays", lines.run))
        await stack.enter_async_context(supervisor.running("uplink", uplink.run))
        await stack.enter_async_context(supervisor.running("worker", worker.run))
        await lead.begin(stack)
        beside = functools.partial(
            pulling_through, config, served, server, git, git_server, clock, supervisor
        )
        door = Door(config, lead.store, lead.reception.serve, supervisor, beside)
        await door.check_address()
        await stack.enter_async_context(supervisor.running("door for workers", door.run))
        yield Node(config, url, lead.coordinator, worker, lead.catalog, lead, uplink, door, supervisor)


async def _greet(node: Node, options: UpOptions) -> None:
    lines = ["", f"  evermirror is up: {node.url}/", f"  data: {node.config.data.dir}"]
    if options.playground:
        lines.append("  It mirrors small upstreams of its own, which are pushed to now and then.")
        if (key := await _first_mirror(node)) is not None:
            lines.append(f"  Try: git clone {node.url}/git/{key}")
    print("\n".join([*lines, "  Stop with Ctrl-C.", ""]), flush=True)


async def _first_mirror(node: Node) -> RepoKey | None:
    """A repo that can be cloned, once there is one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_MIRROR_S):
            while True:
                active = await node.coordinator.list_repos(RepoFilter(status=RepoStatus.ACTIVE, limit=1))
                if active:
                    return active[0].key
                await asyncio.sleep(0.1)
    return None


def _as_it_is(config: Config) -> Config:
    return config
