"""A coordinator, workers that are read through the relay, and an aggregator: all real, in this process.

Nodes dial the coordinator over the in-process transport, through a doorway that stays when the coordinator is
started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2

from evermirror.config import Config, load_config
from evermirror.edge.git.command import Git
from evermirror.edge.git.serve import GitServer
from evermirror.edge.relay.ask import ReadRequest
from evermirror.edge.relay.serving import NotHere, ServingLines
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Connection, Identity
from evermirror.model.access import Role
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Access, Down, Up
from evermirror.nodes.aggregator.aggregator_node import AggregatorNode, aggregating
from evermirror.nodes.basics import git_settings
from evermirror.nodes.coordinator.coordinator_node import CoordinatorNode, coordinating
from evermirror.nodes.worker.worker import Worker
from evermirror.nodes.worker.worker_node import working
from tests.support.fleet_processes import is_clone
from tests.support.gitrepo import UpstreamRepo
from tests.support.stage import FIRST_LOOK_S, LAST_LOOK_S
from tests.support.upstream import UpstreamServer

WITHIN_S = 40.0  # most take a second; a busy machine is slow


class Doorway:
    """Where nodes find the coordinator, while there is one."""

    def __init__(self) -> None:
        self.server: InProcessServer | None = None

    async def connect(self, identity: Identity) -> Connection:
        if self.server is None:
            raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "nobody answers"))
        return await self.server.dialer(identity).dial()


class Dial:
    """A dialer. Where there is an ``on_access``, it gets the node's passes in place of the node."""

    def __init__(self, doorway: Doorway, identity: Identity) -> None:
        self._doorway = doorway
        self._identity = identity
        self.on_access: Callable[[Access], None] | None = None

    async def dial(self) -> Connection:
        return Tapped(await self._doorway.connect(self._identity), self)


class Tapped:
    def __init__(self, inner: Connection, owner: Dial) -> None:
        self._inner = inner
        self._owner = owner

    async def receive(self) -> Down:
        while True:
            frame = await self._inner.receive()
            if not isinstance(frame, Access) or self._owner.on_access is None:
                return frame
            self._owner.on_access(frame)

    async def send(self, frame: Up) -> None:
        await self._inner.send(frame)

    async def close(self) -> None:
        await self._inner.close()


class OtherLines:
    """A worker's mirrors as the test has them served: ``instead`` maps keys to other folders."""

    def __init__(self, worker: Worker, git: Git) -> None:
        self._worker = worker
        self._server = GitServer(git)
        self.instead: dict[str, Path] = {}
        self.asked: list[ReadRequest] = []
        self.silent = False

    async def handle(self, request: ReadRequest, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        self.asked.append(request)
        path = self.instead.get(request.key) or self._worker.mirror_path(request.key)
        if path is None:
            raise NotHere("not here")
        while self.silent:
            await asyncio.sleep(0.05)
        answer = (
            self._server.advertise(path, request.protocol)
            if request.service == "refs"
            else self._server.upload_pack(path, body, request.protocol)
        )
        async with contextlib.aclosing(answer):
            async for chunk in answer:
                yield chunk


class Aggregation:
    """Everybody's configuration, and how to wait for what they do."""

    def __init__(self, folder: Path, upstream: UpstreamServer) -> None:
        self.folder = folder
        self.upstream = upstream
        self.doorway = Doorway()
        self.tokens = 100
        self.lead: CoordinatorNode | None = None

    def config(self, name: str, **sections: dict[str, object]) -> Config:
        settings: dict[str, dict[str, object]] = {
            "server": {"listen": "127.0.0.1:0", "grpc_listen": "127.0.0.1:0"},
            "data": {"dir": str(self.folder / name)},
            "upstreams": {"schemes": ["http"], "allow": [self.upstream.host]},
            "schedule": {"min_gap": "0s", "max_gap": "2s"},
            "limits": {"host_rate": "100/s"},
            "fleet": {"warm_up": "0s", "heartbeat": "200ms"},
        }
        for section, values in sections.items():
            settings.setdefault(section, {}).update(values)
        flat = {f"{section}.{key}": v for section, values in settings.items() for key, v in values.items()}
        config = load_config(None, {}, flat)
        config.data.dir.mkdir(parents=True, exist_ok=True)
        return config

    @contextlib.asynccontextmanager
    async def coordinator(self, **sections: dict[str, object]) -> AsyncIterator[CoordinatorNode]:
        async with contextlib.AsyncExitStack() as stack:
            node = await stack.enter_async_context(coordinating(self.config("coordinator", **sections)))
            self.lead = node
            self.doorway.server = await stack.enter_async_context(InProcessServer(node.lead.reception.serve))
            try:
                yield node
            finally:
                self.doorway.server = None
                self.lead = None
            assert not node.supervisor.failures

    def identity(self, name: str, role: Role, *, trusted: bool, operator: str) -> Identity:
        self.tokens += 1
        return Identity(self.tokens, name, role, trusted, operator)

    @contextlib.asynccontextmanager
    async def worker(self, name: str, *, trusted: bool = True, operator: str = "") -> AsyncIterator[Worker]:
        """As it is."""
        config = self.config(name, worker={"name": name})
        identity = self.identity(name, Role.WORKER, trusted=trusted, operator=operator)
        async with working(config, Dial(self.doorway, identity)) as node:
            yield node.worker
            assert not node.supervisor.failures

    @contextlib.asynccontextmanager
    async def odd_worker(self, name: str, *, trusted: bool = False) -> AsyncIterator[OtherLines]:
        """A real worker, whose mirrors the test serves in its place."""
        config = self.config(name, worker={"name": name})
        dial = Dial(self.doorway, self.identity(name, Role.WORKER, trusted=trusted, operator=""))
        loop = asyncio.get_running_loop()
        serving: asyncio.Future[ServingLines] = loop.create_future()
        dial.on_access = lambda access: serving.add_done_callback(lambda f: f.result().set_access(access))
        async with working(config, dial) as node:
            lines = OtherLines(node.worker, Git(git_settings(config)))
            serving.set_result(ServingLines(lines))
            task = asyncio.create_task(serving.result().run())
            try:
                yield lines
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert not node.supervisor.failures

    @contextlib.asynccontextmanager
    async def aggregator(self, **sections: dict[str, object]) -> AsyncIterator[AggregatorNode]:
        settings = {"aggregator": {"audits_per_minute": 0.0, **sections.pop("aggregator", {})}}
        identity = Identity(7, "agg", Role.AGGREGATOR, trusted=True)
        config = self.config("aggregator", **settings, **sections)
        async with aggregating(config, Dial(self.doorway, identity)) as node:
            yield node
            assert not node.supervisor.failures

    # What is done

    async def add(self, name: str, commits: int = 3, **info: object) -> tuple[UpstreamRepo, str]:
        """A new repository upstream, in the catalog; and its key."""
        repo = await asyncio.to_thread(self.upstream.create, name, commits)
        await self.register(repo.url, **info)
        return repo, f"{self.upstream.host}/{name}"

    async def register(self, url: str, **info: object) -> None:
        assert self.lead is not None
        async with httpx2.AsyncClient(base_url=self.lead.url) as client:
            answer = await client.post("/api/git_urls", json={"git_url": url, "additional_info": info})
        assert answer.status_code < 300, answer.text

    async def remove(self, key: str) -> None:
        assert self.lead is not None
        async with httpx2.AsyncClient(base_url=self.lead.url) as client:
            answer = await client.delete(f"/api/git_urls/{key}")
        assert answer.status_code < 300, answer.text

    async def until(self, holds: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> None:
        pause_s = FIRST_LOOK_S
        async with asyncio.timeout(within_s):
            while not await holds():
                await asyncio.sleep(pause_s)
                pause_s = min(LAST_LOOK_S, pause_s * 1.25)

    async def until_tip(
        self, node: AggregatorNode, key: str, commit: str, within_s: float = WITHIN_S
    ) -> None:
        """The aggregator serves this commit as main."""

        async def holds() -> bool:
            return await self.tip(node, key) == commit

        await self.until(holds, within_s)

    async def tip(self, node: AggregatorNode, key: str) -> str:
        """What its git clients see of main; empty where they see nothing."""
        code, out = await run_client("ls-remote", f"{node.url}/git/{key}", "refs/heads/main")
        return out.split("\t")[0] if code == 0 else ""

    def clones(self, key: str) -> int:
        """How often the repository was cloned whole from upstream."""
        path = key.removeprefix(self.upstream.host) + ".git/"
        return sum(is_clone(r) and r.path.startswith(path) for r in list(self.upstream.requests))

    async def until_here(self, node: AggregatorNode, *keys: str) -> None:
        for key in keys:
            await self.until(lambda key=key: self.here(node, key))

    async def here(self, node: AggregatorNode, key: str) -> bool:
        row = await node.side.store.row_of(RepoKey(key))
        return row is not None and row.served


async def run_client(*args: str, cwd: Path | None = None) -> tuple[int, str]:
    """git as a user has it: exit code and all it said."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    process = await asyncio.create_subprocess_exec(
        "git",
        *args,
        cwd=cwd,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode("utf-8", "replace")
