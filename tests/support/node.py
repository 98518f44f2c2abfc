"""A real node in a thread of its own, for tests that are not coroutines: its API is asked over real HTTP."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import structlog

from evermirror.config import Config, load_config
from evermirror.nodes.all_in_one import Node, UpOptions, up

START_S = 60.0
WITHIN_S = 60.0  # most take a second; a busy machine is slow


class NodeThread:
    """``with NodeThread(folder, upstream.host) as node``; leaving it stops the node as a signal would."""

    def __init__(self, folder: Path, allow: str, **settings: object) -> None:
        self.data = folder / "data"
        overrides: dict[str, object] = {
            "server.listen": "127.0.0.1:0",
            "data.dir": str(self.data),
            "upstreams.schemes": ["http"],
            "upstreams.allow": [allow],
            "limits.host_rate": "100/s",
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        self._config: Config = load_config(None, {}, overrides)
        self.log = folder / "node.log"  # beside the data: what the program prints stays apart from it
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="node")
        self.node: Node | None = None
        self.url = ""
        self.client = httpx2.Client(timeout=30, trust_env=False)

    def __enter__(self) -> Self:
        self._log_file = self.log.open("a")
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(self._log_file))
        self._thread.start()
        assert self._started.wait(START_S)
        if self._error is not None:
            self._thread.join()
            structlog.reset_defaults()
            self._log_file.close()
            raise self._error
        self.client.base_url = self.url
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        structlog.reset_defaults()
        self._log_file.close()
        if error is None:
            assert not self._failures
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _live(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with up(self._config, UpOptions()) as node:
            self.node, self.url = node, node.url
            self._started.set()
            await self._stop.wait()
            self._failures = node.supervisor.failures

    def until(self, holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
        end = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.02)

    def add(self, url: str, **info: object) -> None:
        answer = self.client.post("/api/git_urls", json={"git_url": url, "additional_info": info})
        assert answer.status_code == 200, answer.text

    def status(self, key: str) -> str | None:
        answer = self.client.get(f"/api/repos/{key}")
        return answer.json()["status"] if answer.status_code == 200 else None

    def until_active(self, *keys: str) -> None:
        for key in keys:
            self.until(lambda key=key: self.status(key) == "active")
