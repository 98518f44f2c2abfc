"""A worker as a process of its own: it dials its coordinator, and goes on while that is away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.rpc.transport import Dialer
from evermirror.errors import ConfigError
from evermirror.faces.api.probes import probes_app
from evermirror.nodes import lifecycle
from evermirror.nodes.basics import credentials_of, git_settings
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.data_folder import with_absolute_data
from evermirror.nodes.http_server import serving
from evermirror.nodes.membership_card import LateDialer, card_of
from evermirror.nodes.running import live, until_stopped
from evermirror.nodes.supervisor import Supervisor
from evermirror.nodes.wiring import make_worker, schedule_settings
from evermirror.nodes.worker.uplink import Uplink
from evermirror.nodes.worker.worker import Worker

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerNode:
    """A running worker."""

    worker: Worker
    uplink: Uplink
    supervisor: Supervisor

    def reload(self, load: Callable[[], Config]) -> None:
        """SIGHUP: limits and budgets are taken over; the rest needs a restart."""
        try:
            self.worker.configure(schedule_settings(load()))
        except ConfigError as error:
            log.error("settings not reloaded: they have errors", problems=error.problems)


def run(config: Config, reload: Callable[[], Config]) -> int:
    """Runs until a signal asks for a stop; returns the process's exit code."""
    return asyncio.run(_main(config, reload))


async def _main(config: Config, reload: Callable[[], Config]) -> int:
    signals = lifecycle.Signals()
    signals.install()
    config = with_absolute_data(config)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(lifecycle.claimed(config.data.dir))
        dialer = LateDialer(config, card_of(config))

        async def one_life() -> bool:
            async with working(config, dialer) as node:
                lifecycle.notify("READY=1")
                return await until_stopped(signals, node.supervisor.lost, lambda: node.reload(reload))

        return await live(signals, one_life)


@contextlib.asynccontextmanager
async def working(config: Config, dialer: Dialer) -> AsyncIterator[WorkerNode]:
    """Everything started and, on leaving, stopped: syncs are given a moment, reports are written down."""
    sock = lifecycle.bind(config.server.listen)
    supervisor = Supervisor()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(sock.close)
        credentials = credentials_of(config)
        git = Git(git_settings(config), credentials)
        await git.version()
        clock = SteadyClock()
        worker, uplink, lines = await make_worker(
            config, git, credentials, dialer, clock, stack, supervisor, alone=False
        )
        app = probes_app(lambda: _ready(worker, uplink))
        await stack.enter_async_context(serving(app, sock, tls_cert=None, tls_key=None))
        await stack.enter_async_context(supervisor.running("lines to relays", lines.run))
        await stack.enter_async_context(supervisor.running("uplink", uplink.run))
        await stack.enter_async_context(supervisor.running("worker", worker.run))
        yield WorkerNode(worker, uplink, supervisor)


def _ready(worker: Worker, uplink: Uplink) -> tuple[bool, str]:
    """A worker that was assigned something goes on without its coordinator, also after a restart."""
    if uplink.connected:
        return True, "working"
    if uplink.welcomed is not None or worker.status().repos:
        return True, "working; the coordinator is away"
    return False, f"not yet let in by its coordinator: {uplink.state.reason or uplink.state.phase.value}"
