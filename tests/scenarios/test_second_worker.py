"""A second worker for an `evermirror up` whose disk is above the mark: nothing is taken from those who clone.

Real processes, as a person starts them: no name is set, and the worker joins right after its token was made.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.fleet_processes import COMMAND, LOOK_S, WITHIN_S, Node
from tests.support.gitrepo import clean_git_env
from tests.support.ports import free_port
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.slow

REPOS = [f"team/r{n}" for n in range(8)]


class House:
    """An `evermirror up` with a catalog file, and the commands of its owner."""

    def __init__(self, folder: Path, upstream: UpstreamServer) -> None:
        self.folder = folder
        self.upstream = upstream
        self.repos = {f"{upstream.host}/{name}": upstream.create(name) for name in REPOS}
        self.address = f"127.0.0.1:{free_port()}"
        self.catalog = folder / "catalog.txt"
        self.catalog.write_text("".join(f"{repo.url}\n" for repo in self.repos.values()))
        self.env = {
            "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
            "EVERMIRROR_UPSTREAMS__ALLOW": f'["{upstream.host}"]',
            "EVERMIRROR_SCHEDULE__MIN_GAP": "1s",
            "EVERMIRROR_SCHEDULE__MAX_GAP": "2s",
            "EVERMIRROR_LIMITS__HOST_RATE": "100/s",
            "EVERMIRROR_CATALOG__INTERVAL": "1s",
            "EVERMIRROR_SERVER__GRPC_LISTEN": self.address,
            "EVERMIRROR_AUTH__TOKENS_REQUIRED": "false",
        }
        self.up = Node(folder, "up", self.env)

    def start(self, **settings: str) -> None:
        self.up._env = {**self.up._env, **settings}
        self.up.start("up", "--catalog", str(self.catalog))
        until(self.up.ready)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **self.env}
        return subprocess.run(
            [*COMMAND, *command], capture_output=True, text=True, cwd=self.folder, env=env, timeout=WITHIN_S,
            check=False,
        )  # fmt: skip

    def token(self, name: str) -> str:
        done = self.run(
            *("token", "create", "--role", "worker", "--name", name, "--trusted", "--json"),
            *("--data", str(self.up.data)),
        )
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["token"])

    def fleet(self) -> dict:
        return self.up.client.get("/api/fleet").json()

    def worker(self, name: str) -> dict | None:
        return next((w for w in self.fleet()["workers"] if w["name"] == name), None)

    def unclonable(self) -> dict[str, str]:
        """What git says of each repo that people do not get whole from the address they use."""
        wrong = {}
        for key, repo in self.repos.items():
            url = f"http://127.0.0.1:{self.up.port}/git/{key}"
            done = subprocess.run(
                ["git", "ls-remote", url, "refs/heads/main"], capture_output=True, text=True, check=False,
                env=clean_git_env(self.folder), timeout=WITHIN_S,
            )  # fmt: skip
            if done.returncode != 0 or done.stdout.split()[:1] != [repo.tip()]:
                wrong[key] = done.stdout + done.stderr
        return wrong


def until(holds, within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        except Exception as error:
            if "onnect" not in type(error).__name__:
                raise
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(LOOK_S)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with UpstreamServer(tmp_path / "upstream") as upstream:
        house = House(tmp_path, upstream)
        try:
            yield house
        finally:
            house.up.close()


def test_a_worker_that_joins_a_machine_with_a_full_disk_takes_nothing_from_those_who_clone(house, tmp_path):
    house.start()
    until(lambda: not house.unclonable())
    assert house.up.stop() == 0
    house.start(EVERMIRROR_FLEET__DISK_HIGH="0.000001")

    attic = Node(tmp_path, "attic-process", house.env)
    try:
        attic.start("worker", "join", house.address, house.token("attic"))  # the door opens within 5 s
        until(lambda: house.worker("attic") is not None)

        def settled() -> bool:
            fleet = house.fleet()
            held = next(w["held"] for w in fleet["workers"] if w["name"] == "attic")
            return held > 0 and fleet["totals"]["moving"] == 0

        until(settled)
        assert 0 < len(attic.mirrors()) < len(REPOS), "it has its share"
        assert house.unclonable() == {}
        assert len(house.up.mirrors()) == len(REPOS)

        moved = min(attic.mirrors())
        house.repos[moved].commit()
        until(lambda: house.unclonable() == {})  # what moved is followed, not left as it was

        repo = house.upstream.create("team/new")  # beyond the mark here, so the other worker gets it
        new = f"{house.upstream.host}/team/new"
        house.repos[new] = repo
        with house.catalog.open("a") as catalog:
            catalog.write(f"{repo.url}\n")
        until(lambda: house.unclonable() == {})
        assert new in attic.mirrors()

        attic.kill()
        assert house.unclonable().keys() <= {new}  # pulled through, and kept while the disk has room
    finally:
        attic.close()


def test_two_workers_of_one_host_are_named_as_their_tokens_and_a_name_that_is_taken_is_told_before_joining(
    house, tmp_path
):
    house.start()
    nodes = [Node(tmp_path, f"process-{name}", house.env) for name in ("attic", "cellar")]
    try:
        for node, name in zip(nodes, ("attic", "cellar"), strict=True):
            node.start("worker", "join", house.address, house.token(name))
        until(lambda: {w["name"] for w in house.fleet()["workers"]} >= {"attic", "cellar"})
        for node, name in zip(nodes, ("attic", "cellar"), strict=True):
            assert f"joined {house.address} as {name}" in node.log()

        done = house.run(
            *("worker", "join", house.address, house.token("third"), "--only", "--data", str(tmp_path / "3")),
        )
        assert done.returncode == 0, done.stderr
        assert "as third" in done.stdout
        assert house.worker("third") is None, "who only asks is not registered"

        house.env["EVERMIRROR_WORKER__NAME"] = "attic"
        done = house.run(
            *("worker", "join", house.address, house.token("fourth"), "--data", str(tmp_path / "4")),
        )
        assert done.returncode == 1
        assert "joined" not in done.stdout
        assert "another worker has the name 'attic'" in done.stderr
        assert "worker.name" in done.stderr
        assert not (tmp_path / "4" / "joined.json").exists()
    finally:
        for node in nodes:
            node.close()


def test_a_worker_ends_with_the_terminal_it_was_started_from_and_reloads_while_that_is_open(tmp_path):
    data, port = tmp_path / "worker", free_port()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "EVERMIRROR_WORKER__COORDINATOR": f"127.0.0.1:{free_port()}",
        "EVERMIRROR_WORKER__TOKEN": "x" * 32,
    }
    settings = tmp_path / "evermirror.toml"
    settings.write_text("")
    command = [
        *COMMAND,
        "worker",
        "--data",
        str(data),
        "--listen",
        f"127.0.0.1:{port}",
        "--config",
        str(settings),
    ]
    log = tmp_path / "log"
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover (the child)
        out = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execve(command[0], command, env)  # noqa: S606 (ourselves)
    try:
        until(lambda: httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=5).status_code == 200)
        settings.write_text("[nonsense]\n")
        os.kill(pid, signal.SIGHUP)
        until(lambda: "settings not reloaded" in log.read_text())
        assert os.waitpid(pid, os.WNOHANG) == (0, 0), log.read_text()
        os.close(terminal)
        until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, within_s=30)
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
    assert "stopping" in log.read_text()
