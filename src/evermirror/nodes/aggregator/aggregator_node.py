"""The aggregator as a process: it fetches from workers what they mirror, checks it, and serves it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.git.serve import GitServer
from evermirror.edge.rpc.transport import Dialer
from evermirror.model.access import Role
from evermirror.nodes import lifecycle
from evermirror.nodes.aggregator.aggregator_relay import public_url
from evermirror.nodes.aggregator.collector import CollectorSide, collecting_side
from evermirror.nodes.aggregator.public_face import FaceParts, public_face
from evermirror.nodes.basics import credentials_of, git_settings
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.data_folder import with_absolute_data
from evermirror.nodes.http_server import serving_as_set, url_of
from evermirror.nodes.membership_card import LateDialer, card_of
from evermirror.nodes.running import live, until_stopped
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.wiring import serve_settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AggregatorNode:
    """A running aggregator."""

    config: Config
    url: str
    side: CollectorSide
    supervisor: Supervisor


def run(config: Config) -> int:
    """Runs until a signal asks for a stop; returns the process's exit code."""
    return asyncio.run(_main(config))


async def _main(config: Config) -> int:
    signals = lifecycle.Signals()
    signals.install()
    config = with_absolute_data(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(lifecycle.claimed(config.data.dir))
        card = card_of(config, Role.AGGREGATOR)
        dialer = LateDialer(config, card)

        async def one_life() -> bool:
            async with aggregating(config, dialer, coordinator=card.coordinator) as node:
                lifecycle.notify("READY=1")
                print(f"\n  aggregator is up: {node.url}/\n", flush=True)
                return await until_stopped(signals, node.supervisor.lost, _nothing_to_reload)

        return await live(signals, one_life)


def _nothing_to_reload() -> None:
    log.warning("an aggregator takes over changed settings at its next start")


@contextlib.asynccontextmanager
async def aggregating(
    config: Config, dialer: Dialer, *, coordinator: str = "127.0.0.1:0"
) -> AsyncIterator[AggregatorNode]:
    """Everything started and, on leaving, stopped: the face first, the store last."""
    sock = lifecycle.bind(config.server.listen)
    supervisor = Supervisor()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        git = Git(git_settings(config), credentials_of(config))
        await git.version()
        clock = SteadyClock()
        server = GitServer(git, serve_settings(config))
        side = await stack.enter_async_context(
            collecting_side(
                config,
                dialer,
                git,
                server,
                clock,
                supervisor,
                coordinator=coordinator,
                http_url=public_url(config, url_of(config, sock), coordinator),
            )
        )
        face = FaceParts(
            config,
            coordinator,
            side.uplink,
            side.collecting,
            side.reaching,
            side.served,
            side.store.any_private,
            server,
            supervisor.states,
            clock,
        )
        app = await stack.enter_async_context(public_face(face))
        await stack.enter_async_context(serving_as_set(config, app, sock))
        yield AggregatorNode(config, url_of(config, sock), side, supervisor)
