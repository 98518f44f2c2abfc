"""Two forges with real git behind them, and an all-in-one that follows a group of the one into the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from evermirror.core.watch.events import Woke
from tests.support.forges.api_server import ApiServer
from tests.support.gitrepo import read_refs
from tests.support.stage import Running, Stage

SOURCE_TOKEN = "glpat-of-the-source"
TARGET_TOKEN = "glpat-of-the-target"
BASE = "/api/pull/discoveries"


class Following:
    """What people do with discoveries, over the API."""

    def __init__(self, up: Running, source: ApiServer, target: ApiServer) -> None:
        self.up = up
        self.client = up.client
        self.source = source
        self.target = target

    def body(self, group: str = "devops", **more: object) -> dict[str, object]:
        """What is None is left out."""
        body = {
            "source_url": self.source.base_url,
            "group": group,
            "credential": "source",
            "target_url": f"{self.target.base_url}/mirrors",
            "target_credential": "target",
            **more,
        }
        return {name: value for name, value in body.items() if value is not None}

    async def create(self, group: str = "devops", **more: object) -> dict:
        """Made, and its first run has ended."""
        answer = await self.client.post(BASE, json=self.body(group, **more))
        assert answer.status_code == 201, answer.text
        return await self.ended(answer.json()["id"], answer.json()["runs_ended"])

    async def refused(self, status: int, **more: object) -> str:
        answer = await self.client.post(BASE, json=self.body(**more))
        assert answer.status_code == status, answer.text
        return answer.text

    async def run(self, number: int = 1, **how: object) -> dict:
        """Run again, and ended."""
        answer = await self.client.post(f"{BASE}/{number}/run", json=how)
        assert answer.status_code == 200, answer.text
        return await self.ended(number, answer.json()["runs_ended"])

    async def ended(self, number: int, before: int, within_s: float = 40.0) -> dict:
        async def holds() -> bool:
            now = await self.get(number)
            return now["run"] is None and now["runs_ended"] > before

        await self.up.until(holds, within_s)
        return await self.get(number)

    async def get(self, number: int = 1) -> dict:
        answer = await self.client.get(f"{BASE}/{number}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def found(self, number: int = 1) -> dict[str, dict]:
        answer = await self.client.get(f"{BASE}/{number}/projects?size=1000")
        assert answer.status_code == 200, answer.text
        return {row["path"]: row for row in answer.json()["items"]}

    async def states(self, number: int = 1) -> dict[str, str]:
        return {path: row["state"] for path, row in (await self.found(number)).items()}

    async def preview(self, **more: object) -> dict:
        answer = await self.client.post(BASE, json=self.body(**more, dry_run=True))
        assert answer.status_code == 202, answer.text
        number = answer.json()["id"]

        async def holds() -> bool:
            return (await self.client.get(f"{BASE}/previews/{number}")).json()["state"] != "running"

        await self.up.until(holds)
        return (await self.client.get(f"{BASE}/previews/{number}")).json()

    async def trigger(self, name: str) -> None:
        """A project is synced as soon as no other sync of it is under way: until then it is 409, also while
        the end of the one before is not reported yet."""

        async def taken() -> bool:
            answer = await self.client.post(f"/api/pull/projects/{name}/trigger", json={})
            assert answer.status_code in (200, 201, 202, 409), answer.text
            return answer.status_code != 409

        await self.up.until(taken)

    async def project(self, name: str) -> dict:
        answer = await self.client.get(f"/api/pull/projects/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def projects(self) -> set[str]:
        items = (await self.client.get("/api/pull/projects?size=1000")).json()["items"]
        return {item["project_key"] for item in items}

    async def equal(self, source: str, target: str) -> None:
        """Until the target has the source's branches and tags, and nothing else."""

        async def holds() -> bool:
            folder = self.target.root / f"{target}.git"
            return folder.is_dir() and read_refs(folder) == self.source.repo(source).public_refs() != {}

        await self.up.until(holds)

    async def alerts(self) -> dict[str, str]:
        await self.up.node.lead.alerting.ask(Woke())  # who tells does not wait: this comes after all of it
        items = (await self.client.get("/api/alerts")).json()["items"]
        return {item["kind"]: item["text"] for item in items}


@asynccontextmanager
async def following(
    folder: Path, source: ApiServer, target: ApiServer, **sections: dict[str, object]
) -> AsyncIterator[Following]:
    """An all-in-one on ``folder``, which may have been one before."""
    for server, token in ((source, SOURCE_TOKEN), (target, TARGET_TOKEN)):
        if token not in server.tokens:
            server.add_token(token)
    stage = Stage(folder, source)
    ca_file = {"ca_file": str(source.ca_file)} if source.tls else {}
    settings: dict[str, dict[str, object]] = {
        "upstreams": {
            "schemes": ["https" if source.tls else "http", "ssh"],
            "allow": [source.host, target.host, "127.0.0.1"],
            **ca_file,
        },
        "credentials": {
            "source.token": SOURCE_TOKEN,
            "target.token": TARGET_TOKEN,
            "target.forge": "gitlab",
        },
    }
    for name, values in sections.items():
        settings.setdefault(name, {}).update(values)
    async with stage.up(**settings) as up:
        yield Following(up, source, target)
