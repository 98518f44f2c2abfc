"""A running all-in-one against a real upstream, started and stopped by the test itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2

from evermirror.config import Config, load_config
from evermirror.errors import NotFound
from evermirror.model.repo import RepoRecord
from evermirror.nodes.all_in_one import Node, UpOptions, up
from tests.support.gitrepo import read_refs
from tests.support.upstream import UpstreamServer

WITHIN_S = 60.0  # most take a second; a busy machine is slow
FIRST_LOOK_S, LAST_LOOK_S = 0.02, 0.1  # what takes long is looked at less often: a look takes time as well


class Stage:
    """Starts nodes on one data folder, and knows how to wait for what they do."""

    def __init__(self, folder: Path, upstream: UpstreamServer) -> None:
        self.data = folder / "data"
        self.upstream = upstream

    def config(self, **sections: dict[str, object]) -> Config:
        settings: dict[str, dict[str, object]] = {
            "server": {"listen": "127.0.0.1:0"},
            "data": {"dir": str(self.data)},
            "upstreams": {"schemes": ["http"], "allow": [self.upstream.host]},
            "schedule": {"min_gap": "0s"},
            "limits": {"host_rate": "100/s"},
        }
        for name, values in sections.items():
            settings.setdefault(name, {}).update(values)
        overrides = {
            f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()
        }
        return load_config(None, {}, overrides)

    @contextlib.asynccontextmanager
    async def up(
        self, options: UpOptions | None = None, **sections: dict[str, object]
    ) -> AsyncIterator[Running]:
        async with (
            up(self.config(**sections), options or UpOptions()) as node,
            httpx2.AsyncClient(base_url=node.url, timeout=30) as client,
        ):
            yield Running(node, client, self)
            assert not node.supervisor.failures

    def mirror(self, key: str) -> Path:
        host, _, path = key.partition("/")
        return self.data / "mirrors" / host.replace(":", "%3A") / f"{path}.git"


class Running:
    """One node that is up."""

    def __init__(self, node: Node, client: httpx2.AsyncClient, stage: Stage) -> None:
        self.node = node
        self.client = client
        self.stage = stage

    def key(self, name: str) -> str:
        return f"{self.stage.upstream.host}/{name}"

    async def add(self, url: str, **info: object) -> None:
        answer = await self.client.post("/api/git_urls", json={"git_url": url, "additional_info": info})
        assert answer.status_code < 300, answer.text

    async def repo(self, name: str) -> RepoRecord:
        return await self.node.coordinator.find_repo(self.key(name))

    async def sync(self, name: str, **params: object) -> dict[str, object]:
        body = {
            "git_url": self.stage.upstream.url(f"{name}.git"),
            "additional_params": {"wait": 30, **params},
        }
        answer = await self.client.post("/api/tasks", json=body)
        assert answer.status_code < 300, answer.text
        task: dict[str, object] = answer.json()
        return task

    async def until(self, holds: Callable[[], Awaitable[bool]], within_s: float = WITHIN_S) -> None:
        pause_s = FIRST_LOOK_S
        async with asyncio.timeout(within_s):
            while not await holds():
                await asyncio.sleep(pause_s)
                pause_s = min(LAST_LOOK_S, pause_s * 1.25)

    async def until_status(self, name: str, status: str) -> None:
        async def holds() -> bool:
            try:
                return (await self.repo(name)).status.value == status
            except NotFound:
                return False

        await self.until(holds)

    def refs(self, name: str) -> dict[str, str]:
        """What upstream is to equal: without what is kept or restored."""
        refs = read_refs(self.stage.mirror(self.key(name)))
        return {n: oid for n, oid in refs.items() if not n.startswith(("refs/evermirror/", "refs/restored/"))}
