"""The product's parts, wired for a ``GitServer`` as the product wires them itself."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench.worlds.server import GitServer
from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.edge.git.command import Git
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.maintain import Maintenance
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.git.probe import Prober, ProbeSettings
from evermirror.edge.net.resolver import Resolver
from evermirror.edge.store.local import LocalState
from evermirror.model.address import AllowList
from evermirror.model.messages import Command, Report
from evermirror.model.refs import RefSnapshot
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.nodes.clock import SteadyClock
from evermirror.nodes.worker.caretaker import CareSettings
from evermirror.nodes.worker.contact import Contact
from evermirror.nodes.worker.ports import NoTargets, Targets
from evermirror.nodes.worker.worker import Worker, WorkerParts

CONTACT_S = 1e9  # nobody doubts that the coordinator is there


class NoGit:
    """A poll that starts a process fails the benchmark."""

    async def ls_remote(self, spec: RepoSpec, addresses: tuple[str, ...]) -> RefSnapshot:
        raise AssertionError(f"a process was asked for: {spec.url}")


@dataclass(frozen=True, slots=True)
class Product:
    """Everything between a URL and its mirror."""

    resolver: Resolver
    prober: Prober
    git: Git
    mirrors: Mirrors

    @classmethod
    def wire(cls, server: GitServer, data: Path) -> Product:
        allow = AllowList.parse(["127.0.0.1"])
        ca_file = str(server.ca_file) if server.ca_file else None
        git = Git(
            GitSettings(data, ca_file=server.ca_file, schemes=frozenset({"https", "http"})), Credentials()
        )
        resolver = Resolver(allow)
        prober = Prober(resolver, Credentials(), NoGit(), ProbeSettings(ca_file=ca_file, allow=allow))
        return cls(resolver, prober, git, Mirrors(data / "mirrors", git))

    async def close(self) -> None:
        await self.prober.close()
        self.resolver.close()


class ScriptedPort:
    """Commands and reports of a worker without a coordinator, over two queues."""

    def __init__(self) -> None:
        self._commands: asyncio.Queue[Command] = asyncio.Queue()
        self._reports: asyncio.Queue[Report] = asyncio.Queue(4096)

    async def command(self, command: Command) -> None:
        await self._commands.put(command)

    async def next_command(self) -> Command:
        return await self._commands.get()

    async def report(self, report: Report) -> None:
        await self._reports.put(report)

    async def next_report(self) -> Report:
        return await self._reports.get()


@contextlib.asynccontextmanager
async def worker_on(
    product: Product, settings: ScheduleSettings, local_file: Path, targets: Targets | None = None
) -> AsyncIterator[tuple[Worker, ScriptedPort]]:
    """A worker as a node has it, with everything it keeps; it runs while the block does."""
    port = ScriptedPort()
    contact = Contact()
    contact.welcomed(CONTACT_S, CONTACT_S)
    local = await LocalState.open(local_file)
    parts = WorkerParts(
        port=port,
        scheduler=Scheduler(settings),
        prober=product.prober,
        mirrors=product.mirrors,
        maintenance=Maintenance(product.git),
        local=local,
        disk=DiskGuard(1.0),
        clock=SteadyClock(),
        chance=random.Random(1),
        care=CareSettings(slots=0),
        targets=targets or NoTargets(),
        contact=contact,
    )
    worker = Worker(parts, settings)
    work = asyncio.create_task(worker.run())
    try:
        yield worker, port
    finally:
        work.cancel()
        ended = (await asyncio.gather(work, return_exceptions=True))[0]
        await local.close()
        if isinstance(ended, BaseException) and not isinstance(ended, asyncio.CancelledError):
            raise ended


def spec_of(server: GitServer, name: str) -> RepoSpec:
    host = Host(f"127.0.0.1:{server.port}")
    return RepoSpec(RepoKey(f"{host}/{name}"), server.url(name), host)


def new_loop() -> asyncio.AbstractEventLoop:
    """The event loop that the product runs on."""
    return asyncio.new_event_loop()
