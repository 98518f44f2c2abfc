"""Pull mirroring with real processes: what people ask of projects over HTTP, targets that can be held up, one
node by itself, and a fleet."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

from tests.support.fleet_processes import LOOK_S, WITHIN_S, FleetProcesses, Node
from tests.support.gitrepo import UpstreamRepo
from tests.support.upstream import UpstreamServer

ENDS = ("success", "failed", "skipped")
HELD_S = 90  # a push that nobody lets through is refused then, so that no process is left

Fields = dict[str, Any]
Until = Callable[[Callable[[], object]], None]


def target_at(forge: UpstreamServer, name: str) -> UpstreamRepo:
    """An empty repository that takes pushes."""
    repo = forge.create(name, commits=0)
    repo.git("config", "http.receivepack", "true")
    return repo


class Gate:
    """A target's hook at which pushes wait until they are let through, each by its number."""

    def __init__(self, target: UpstreamRepo) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gate-", dir=target.path))
        self._hook = target.path / "hooks" / "pre-receive"

    def __enter__(self) -> Self:
        self._hook.parent.mkdir(exist_ok=True)
        self._hook.write_text(
            f"#!/bin/sh\ncd '{self._folder}' || exit 1\n"
            f"n=1; until mkdir $n 2>/dev/null; do n=$((n + 1)); done\n"
            f"for i in $(seq {HELD_S * 20}); do [ -e $n/open ] && exit 0; sleep 0.05; done; exit 1\n"
        )
        self._hook.chmod(0o755)
        return self

    def __exit__(self, *error: object) -> None:
        self.open()

    @property
    def arrived(self) -> int:
        """Pushes that came here, with their packs."""
        return len(list(self._folder.iterdir()))

    def let(self, number: int) -> None:
        """The push that came as this one, from 1."""
        (self._folder / str(number) / "open").touch()

    def open(self) -> None:
        """For everyone from now on."""
        self._hook.unlink(missing_ok=True)
        for path in self._folder.iterdir():
            (path / "open").touch()


class Projects:
    """The pull API, as a person uses it."""

    def __init__(self, client: httpx2.Client, until: Until) -> None:
        self._client = client
        self._until = until

    def create(self, name: str, source: UpstreamRepo, *targets: UpstreamRepo, **more: object) -> Fields:
        body = {
            "project_key": name,
            "source_url": source.url,
            "targets": [{"url": target.url} for target in targets],
            **more,
        }
        return self._asked("POST", "/api/pull/projects", body)

    def created(self, name: str, source: UpstreamRepo, *targets: UpstreamRepo, **more: object) -> None:
        """Until its first pull has ended, however."""
        self.create(name, source, *targets, **more)
        self._until(lambda: self.get(name)["last_status"] and not self.get(name)["task_id"])

    def get(self, name: str) -> Fields:
        return self._asked("GET", f"/api/pull/projects/{name}/config")

    def target(self, name: str, target: UpstreamRepo) -> Fields:
        """What is known of one target."""
        (found,) = [t for t in self.get(name)["targets"] if t["url"] == target.url]
        return dict(found)

    def tasks(self, name: str) -> list[Fields]:
        return list(self._asked("GET", f"/api/pull/projects/{name}/tasks?limit=100")["items"])

    def task(self, task_id: int) -> Fields:
        return self._asked("GET", f"/api/pull/tasks/{task_id}")

    def trigger(self, name: str, **how: object) -> int:
        return int(self._asked("POST", f"/api/pull/projects/{name}/trigger", how)["task_id"])

    def trigger_batch(self, names: list[str]) -> list[int]:
        """They start as there is room."""
        return list(self._asked("POST", "/api/pull/trigger/batch", {"project_keys": names})["task_ids"])

    def set_strategy(self, **values: object) -> None:
        self._asked("PUT", "/api/pull/strategy", values)

    def ended(self, task_id: int) -> Fields:
        self._until(lambda: self.task(task_id)["status"] in ENDS)
        return self.task(task_id)

    def pull(self, name: str, **how: object) -> Fields:
        """Triggered, and ended."""
        return self.ended(self.trigger(name, **how))

    def adopt(self, name: str, target: UpstreamRepo) -> None:
        self._asked("POST", f"/api/pull/projects/{name}/targets/adopt", {"url": target.url})

    def _asked(self, method: str, path: str, body: object = None) -> Fields:
        answer = self._client.request(method, path, json=body)
        assert answer.status_code in (200, 201), (path, answer.text)
        found: Fields = answer.json()
        return found


class PullNode:
    """``evermirror up``, whose git processes are counted."""

    def __init__(self, folder: Path, upstream: UpstreamServer, forge: UpstreamServer) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.upstream = upstream
        self.forge = forge
        self._started = folder / "git-started"
        self.node = Node(
            folder,
            "up",
            {
                "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
                "EVERMIRROR_UPSTREAMS__ALLOW": f'["{upstream.host}", "{forge.host}"]',
                "EVERMIRROR_LIMITS__HOST_RATE": "100/s",
                "EVERMIRROR_GIT__BINARY": str(self._counting_git()),
            },
        )
        self.projects = Projects(self.node.client, self.until)

    def _counting_git(self) -> Path:
        git = self.folder / "git"
        git.write_text(f"#!/bin/sh\necho \"$*\" >>'{self._started}'\nexec '{shutil.which('git')}' \"$@\"\n")
        git.chmod(0o755)
        return git

    def start(self) -> None:
        self.node.start("up")
        self.until(self.node.ready)

    def close(self) -> None:
        self.node.close()

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + WITHIN_S
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if holds():
                    return
            assert self.node.running, self.node.log()
            assert time.monotonic() < end, self.node.log()[-9000:]
            time.sleep(LOOK_S)

    def gits(self) -> list[str]:
        """The command lines of all git processes since the start."""
        return self._started.read_text().splitlines() if self._started.exists() else []

    def cli(self, *words: str, code: int = 0) -> str:
        """``gitlab-mirror pull …`` as a person types it; what it says, on stderr where it fails."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("gitlab-mirror")), "pull", *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.folder),
                "EVERMIRROR_SERVER": str(self.node.client.base_url),
            },
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == code, (words, done)
        assert "Traceback" not in done.stderr
        return done.stderr if code else done.stdout

    def cli_json(self, *words: str) -> Fields:
        found: Fields = json.loads(self.cli(*words, "--json"))
        return found


class PullFleet(FleetProcesses):
    """Every repo is a project of the same name, with one target."""

    def __init__(
        self, folder: Path, upstream: UpstreamServer, forge: UpstreamServer, settings: Mapping[str, str]
    ) -> None:
        hosts = f'["{upstream.host}", "{forge.host}"]'
        super().__init__(folder, upstream, {**settings, "EVERMIRROR_UPSTREAMS__ALLOW": hosts})
        self.forge = forge
        self.targets: dict[str, UpstreamRepo] = {}
        self.projects = Projects(self.coordinator.client, self.until)

    def write_catalog(self) -> None:
        for key in self.repos.keys() - self.targets.keys():
            self.targets[key] = target_at(self.forge, self.name(key))
        new = self.catalog.with_suffix(".new")
        lines = [
            f"{r.url} alias={r.name} interval=60m target={self.targets[k].url}" for k, r in self.repos.items()
        ]
        new.write_text("\n".join([*lines, ""]))
        new.replace(self.catalog)

    def name(self, key: str) -> str:
        return self.repos[key].name

    def is_idle(self) -> bool:
        """All targets have what the sources have, and no task is open."""
        return all(
            self.targets[key].refs() == repo.public_refs() and self.projects.get(repo.name)["task_id"] is None
            for key, repo in self.repos.items()
        )

    def pushed_by(self, name: str) -> list[str]:
        """The keys of what this worker put at targets, from its log."""
        told = [json.loads(line) for line in self.workers[name].log().splitlines() if line.startswith("{")]
        return [line["repo"] for line in told if line["event"] == "pushed"]
