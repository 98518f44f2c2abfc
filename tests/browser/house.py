"""One real ``evermirror up`` that has lived a little: all that a page can show of it is there.

It is a process of its own, so that tests may use Playwright's plain, synchronous way. Nothing happens by
itself while tests look (no repo is due within the hour) but what is under way: one clone that stands still.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from evermirror.config import load_config
from evermirror.edge.store.store import Store
from evermirror.model.access import Role
from tests.browser.day_before import note_day_before
from tests.browser.world import PASSWORD, World, world
from tests.support.fleet_processes import Node

ROLES = ("admin", "operator", "submitter", "reader")
WITHIN_S = 60.0
LOOK_S = 0.05
PUSHES = 4
AT_ONCE = 8
ALERTS = 2  # that stand: a repo is held, a target is in conflict

Fields = dict[str, Any]


class House:
    """``tokens`` by role; ``url`` is where a browser goes."""

    def __init__(self, folder: Path, of: World) -> None:
        folder.mkdir(parents=True)
        self.world = of
        self.node = Node(folder, "up", {"EVERMIRROR_CONFIG": str(folder / "evermirror.toml")})
        self.tokens: dict[str, str] = {}
        self._folder = folder

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.node.port}"

    @property
    def client(self) -> httpx2.Client:
        """An admin's."""
        return self.node.client

    # Life

    def start(self) -> None:
        (self._folder / "evermirror.toml").write_text(_settings(self.world))
        catalog = self._folder / "catalog.txt"
        catalog.write_text("".join(f"{line}\n" for line in self.world.lines))
        with ThreadPoolExecutor(1) as pool:  # where Playwright is, a loop may run already
            self.tokens = pool.submit(asyncio.run, self._prepare()).result()
        self.client.headers["Authorization"] = f"Bearer {self.tokens['admin']}"
        self.node.start("up", "--catalog", str(catalog))
        self.until(self.node.ready)

    async def _prepare(self) -> dict[str, str]:
        """A token of each role, and a past."""
        config = load_config(self._folder / "evermirror.toml", {}, {"data.dir": self.node.data})
        config.data.dir.mkdir()
        store = await Store.open(config.store_url)
        try:
            await note_day_before(store, time.time())
            return {name: (await store.create_token(f"the {name}", Role(name)))[0] for name in ROLES}
        finally:
            await store.close()

    def live(self) -> None:
        """Until everything that the world does has been seen."""
        slow = self.world.key("large/archive")
        self.until(lambda: not self._pending())
        for round_ in range(PUSHES):
            self.sync(self.world.push_round(round_))
        self.sync([*self.world.rewrite(), *self.world.empty()])
        self.until(lambda: self.repo("team/emptied")["status"] == "held")
        self.until(lambda: self._project()["last_status"])
        self.until(lambda: len(self._alerts()) >= ALERTS)
        self.until(lambda: [sync["key"] for sync in self.get("/api/overview")["running"]] == [slow])

    def close(self) -> None:
        self.world.let_on()
        self.node.close()

    # Asking

    def get(self, path: str) -> Fields:
        answer = self.client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        found: Fields = answer.json()
        return found

    def repo(self, name: str) -> Fields:
        return self.get(f"/api/git_urls/{self.world.key(name).replace('%', '%25')}")

    def sync(self, names: Iterable[str]) -> None:
        """As people ask for it; all at the same time."""

        def one(name: str) -> None:
            body = {"git_url": self.world.repos[name].url, "additional_params": {"wait": 30}}
            answer = self.client.post("/api/tasks", json=body, timeout=60)
            assert answer.status_code < 300, answer.text

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, names))

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if holds():
                    return
            assert self.node.running, self.node.log()[-3000:]
            assert time.monotonic() < end, self.node.log()[-3000:]
            time.sleep(LOOK_S)

    def _pending(self) -> list[str]:
        """Those of which nothing is known yet, without the one that is held up."""
        items = self.get("/api/git_urls?status=pending&limit=1000")["items"]
        stays = (self.world.key("large/archive"), *(self.world.busy.host, self.world.nobody))
        return [item["key"] for item in items if not item["key"].startswith(stays)]

    def _alerts(self) -> list[Fields]:
        found: list[Fields] = self.get("/api/alerts")["items"]
        return found

    def _project(self) -> Fields:
        return self.get("/api/pull/projects/pulled/project/config")


def _settings(of: World) -> str:
    vault = f'username = "robot"\npassword = "{PASSWORD}"\nhosts = ["{of.code.host}"]'
    return f"""
[upstreams]
schemes = ["http"]
allow = {json.dumps(of.hosts)}

[schedule]
min_gap = "1h"

[limits]
host_rate = "100/s"
no_progress = "1h"  # of the clone that stands still, however long the tests before take

[scheduled_jobs.error_monitoring]
cron = "*/2 * * * * ?"

[credentials.vault]
{vault}

[channels.hotline]
type = "webhook"
url = "{of.hotline.base}/alerts"
secret = "{PASSWORD}"
"""


@contextlib.contextmanager
def house_of(folder: Path) -> Iterator[House]:
    """Started, lived in, and ended with the block."""
    with world(folder / "upstreams") as of:
        house = House(folder / "house", of)
        try:
            house.start()
            house.live()
            yield house
        finally:
            house.close()
