"""The coordinator as a process of its own: the catalog, the fleet's mind, the API, the door for workers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.relay.seal import Unsealer
from evermirror.edge.relay.seal_key import own_sealer
from evermirror.errors import ConfigError
from evermirror.model.relay import Denial, RelayAddress
from evermirror.nodes import lifecycle
from evermirror.nodes.basics import credentials_of, git_settings
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.coordinator.door import Door
from evermirror.nodes.coordinator.front import check_exposure, http_front
from evermirror.nodes.coordinator.lead import Lead, fleet_settings, leading
from evermirror.nodes.coordinator.own_ca import pki_folder
from evermirror.nodes.data_folder import with_absolute_data
from evermirror.nodes.http_server import url_of
from evermirror.nodes.running import live, until_stopped
from evermirror.nodes.supervisor import Supervisor

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """A running coordinator."""

    config: Config
    url: str
    grpc_port: int
    lead: Lead
    supervisor: Supervisor

    def reload(self, load: Callable[[], Config]) -> None:
        """SIGHUP: channels of alerts, hooks and event hooks are taken over, the catalog is looked at again;
        the rest needs a restart."""
        try:
            self.lead.configure(load())
        except ConfigError as error:
            log.error("settings have errors", problems=error.problems)
        self.lead.catalog.look_now()


def run(config: Config, reload: Callable[[], Config], *, accept_removals: bool) -> int:
    """Runs until a signal asks for a stop; returns the process's exit code."""
    return asyncio.run(_main(config, reload, accept_removals))


async def _main(config: Config, reload: Callable[[], Config], accept_removals: bool) -> int:
    signals = lifecycle.Signals()
    signals.install()
    config = with_absolute_data(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(lifecycle.claimed(config.data.dir))

        async def one_life() -> bool:
            async with coordinating(config, accept_removals=accept_removals) as node:
                lifecycle.notify("READY=1")
                joining = f"workers join at port {node.grpc_port}"
                print(f"\n  coordinator is up: {node.url}/, {joining}\n", flush=True)
                return await until_stopped(signals, node.supervisor.lost, lambda: node.reload(reload))

        return await live(signals, one_life)


@contextlib.asynccontextmanager
async def coordinating(config: Config, *, accept_removals: bool = False) -> AsyncIterator[CoordinatorNode]:
    """Everything started and, on leaving, stopped: doors first, then what was decided goes to the disk."""
    sock = lifecycle.bind(config.server.listen)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        credentials = credentials_of(config)
        git = Git(git_settings(config), credentials)
        await git.version()
        url = url_of(config, sock)
        clock = SteadyClock()
        relay: RelayAddress | None = None
        on_denied: Callable[[tuple[Denial, ...]], None] | None = None
        if config.relay.in_coordinator:
            on_denied, relay = await stack.enter_async_context(_relay(config, clock))
        lead = await stack.enter_async_context(
            leading(
                config,
                credentials,
                clock,
                settings=fleet_settings(config, alone=False),
                http_url=url,
                accept_removals=accept_removals,
                own_relay=lambda: relay,
            )
        )
        if on_denied is not None:
            lead.feeds.on_denied = on_denied
            on_denied(lead.passes.denials())
        await check_exposure(config, lead.store)
        await stack.enter_async_context(http_front(config, sock, lead))
        await lead.begin(stack)
        door = Door(config, lead.store, lead.reception.serve, lead.supervisor)
        server = await stack.enter_async_context(door.open())
        yield CoordinatorNode(config, url, server.port, lead, lead.supervisor)


@contextlib.asynccontextmanager
async def _relay(
    config: Config, clock: SteadyClock
) -> AsyncIterator[tuple[Callable[[tuple[Denial, ...]], None], RelayAddress]]:
    """Workers are read through it as through an aggregator's; what tells it whom to refuse, and where it
    is."""
    from evermirror.nodes.aggregator.aggregator_relay import relaying  # 2 MB, which few coordinators need

    sealer = await asyncio.to_thread(own_sealer, pki_folder(config))
    unsealer = Unsealer(sealer.public_key)
    async with relaying(config, socket.gethostname, lambda: unsealer, clock) as (server, address):
        log.info("relay listens", address=address.address)
        yield server.deny, address
