"""A real Prometheus over the configuration that we ship, only in more of a hurry."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
import yaml

from tests.support.ports import free_port

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
START_S = 15.0


class Prometheus:
    """Scrapes ``targets`` of each job every second, with ``token``; rules wait for a second."""

    def __init__(self, folder: Path, targets: dict[str, list[str]], token: str) -> None:
        self._folder = folder
        self._targets = targets
        self._token = token
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{free_port()}"
        self.client = httpx2.Client(base_url=self.url, timeout=10, trust_env=False)

    def __enter__(self) -> Self:
        folder = self._folder
        folder.mkdir()
        config = yaml.safe_load((SHIPPED / "prometheus.yml").read_text("utf-8"))
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": self._targets.get(job["job_name"], [])}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        (folder / "evermirror.token").write_text(self._token)
        rules = (SHIPPED / "evermirror.rules.yml").read_text("utf-8")
        (folder / "evermirror.rules.yml").write_text(re.sub(r"(?m)^( +for:) .*$", r"\1 1s", rules))
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdout=log,
                stderr=log,
            )
        self.until(self._ready, START_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _ready(self) -> bool:
        try:
            return self.client.get("/-/ready").status_code == 200
        except httpx2.HTTPError:
            return False

    def until(self, holds: Callable[[], object], within_s: float) -> None:
        end = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < end, (self._folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def asked(self, path: str, **query: str) -> dict:
        answer = self.client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def query(self, expression: str) -> list[dict]:
        return self.asked("query", query=expression)["result"]

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """The labels of what fires, by alert."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self.asked("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found
