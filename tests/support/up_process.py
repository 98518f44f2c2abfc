"""``evermirror up`` as a real process, on a folder of its own: for scenarios and campaigns."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx2

from tests.support.fleet_processes import COMMAND, LOOK_S, WITHIN_S, Node
from tests.support.gitrepo import clean_git_env

CLIENT_S = 300  # a command or a client's git that takes longer hangs


class UpProcess(Node):
    """Started with a catalog, or without one; asked by its API, its command line and by git clients."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def clone_url(self, key: str) -> str:
        return f"{self.url}/git/{key}"

    def until(self, holds: Callable[[], object], within_s: float = WITHIN_S, look_s: float = LOOK_S) -> None:
        end = time.monotonic() + within_s
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if holds():
                    return
            assert self.running, self.log()
            assert time.monotonic() < end, f"in vain for {within_s:g} s\n{self.log()[-5000:]}"
            time.sleep(look_s)

    def repo(self, key: str) -> dict[str, object]:
        answer = self.client.get(f"/api/repos/{key}")
        return answer.json() if answer.status_code == 200 else {"status": "unknown"}

    def is_served(self, key: str) -> bool:
        """It is here and told so: a moment after its folder is."""
        return self.repo(key)["status"] == "active"

    def add(self, url: str, **info: object) -> None:
        answer = self.client.post("/api/git_urls", json={"git_url": url, "additional_info": info})
        assert answer.status_code == 200, answer.text

    def sync(self, url: str, wait_s: float = 60, **params: object) -> dict[str, object]:
        """A task that is waited for, as the API tells it."""
        body = {"git_url": url, "additional_params": {"wait": wait_s, **params}}
        answer = self.client.post("/api/tasks", json=body, timeout=wait_s + 20)
        assert answer.status_code in (200, 201, 202), answer.text
        told: dict[str, object] = answer.json()
        return told

    def command(self, *args: str) -> subprocess.CompletedProcess[str]:
        """The command line, told where the server is."""
        env = {**self._env, "EVERMIRROR_SERVER": self.url}
        return subprocess.run(
            [*COMMAND, *args],
            env=env,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=CLIENT_S,
            check=False,
        )

    def git(self, *args: str, cwd: Path | None = None) -> str:
        """A client's git, which knows nothing of this machine."""
        done = subprocess.run(
            ["git", *args],
            cwd=cwd or self._folder,
            env=clean_git_env(self._folder),
            capture_output=True,
            timeout=CLIENT_S,
            check=False,
        )
        assert done.returncode == 0, f"git {args} → {done.returncode}\n{done.stderr.decode(errors='replace')}"
        return done.stdout.decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def up(
    folder: Path, settings: Mapping[str, str], catalog: Path | None = None, *, name: str = "up"
) -> Iterator[UpProcess]:
    """It is ready on entry, and gone on the way out."""
    node = UpProcess(folder, name, settings)
    try:
        node.start("up", *(("--catalog", str(catalog)) if catalog is not None else ()))
        node.until(node.ready)
        yield node
    finally:
        node.close()
