"""The program as people start, stop and kill it: real processes, real signals, real upstreams."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.gitrepo import UpstreamRepo, read_refs
from tests.support.ports import free_port
from tests.support.processes import children_of_me

WITHIN_S = 90.0  # most take a second or two; a busy machine is slow


class Process:
    """``evermirror up`` on a folder of its own."""

    def __init__(self, folder: Path, allow: str, *args: str, env: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.data = folder / "data"
        self.out = folder / f"out-{self.port}.log"
        settings = {
            "EVERMIRROR_UPSTREAMS__SCHEMES": '["http"]',
            "EVERMIRROR_UPSTREAMS__ALLOW": f'["{allow}"]',
            "EVERMIRROR_SCHEDULE__MIN_GAP": "0s",
            "EVERMIRROR_LIMITS__HOST_RATE": "100/s",
            **(env or {}),
        }
        argv = [sys.executable, "-m", "evermirror", "up", "--listen", f"127.0.0.1:{self.port}"]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [*argv, "--data", str(self.data), *args],
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "HOME": str(folder), **settings},
            )
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def log(self) -> str:
        return self.out.read_text()

    def until(self, holds, within_s: float = WITHIN_S) -> None:
        end = time.monotonic() + within_s
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if holds():
                    return
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def ready(self) -> None:
        self.until(lambda: self.client.get("/readyz").status_code == 200)

    def status(self, key: str) -> str:
        return str(self.client.get(f"/api/repos/{key}").json().get("status"))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=WITHIN_S)

    def mirror(self, key: str) -> Path:
        return self.data / "mirrors" / (key.replace(":", "%3A") + ".git")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.client.close()


def assert_sound(mirror: Path, repo: UpstreamRepo) -> None:
    done = subprocess.run(["git", "-C", mirror, "fsck", "--strict"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert read_refs(mirror) == repo.public_refs()


@pytest.fixture
def start(tmp_path, upstream) -> Iterator:
    started: list[Process] = []

    def go(*args: str, env: dict[str, str] | None = None, allow: str | None = None) -> Process:
        started.append(Process(tmp_path, allow or upstream.host, *args, env=env))
        return started[-1]

    yield go
    for process in started:
        process.close()


def test_sigterm_ends_a_running_clone_and_leaves_nothing_half_written(start, upstream):
    repo = upstream.create("team/x")
    repo.big_blob(3_000_000)
    upstream.stall_after_bytes = 100_000
    node = start()
    node.ready()
    node.client.post("/api/git_urls", json={"git_url": repo.url})
    node.until(lambda: node.client.get("/api/overview").json()["running"])
    began = time.monotonic()
    assert node.stop() == 0, node.log()
    assert time.monotonic() - began < 45  # the clone would not end
    key = f"{upstream.host}/team/x"
    assert not node.mirror(key).exists()
    assert not [c for c in children_of_me() if "index-pack" in c.command or "fetch" in c.command]
    assert "Traceback" not in node.log()


@pytest.mark.parametrize("delay_s", [0.0, 0.05, 0.15, 0.4])
def test_kill_9_in_the_middle_of_syncs_loses_nothing_and_converges(start, upstream, delay_s):
    repos = [upstream.create(f"team/x{n}") for n in range(4)]
    for repo in repos:
        repo.big_blob(400_000)
    node = start()
    node.ready()
    for repo in repos:
        node.client.post("/api/git_urls", json={"git_url": repo.url})
    node.until(lambda: node.status(f"{upstream.host}/team/x0") == "active")
    for repo in repos:
        repo.commit()
        repo.branch("feature/a")
    time.sleep(delay_s)
    node.stop(signal.SIGKILL)
    again = start()
    again.ready()
    for n, repo in enumerate(repos):
        key = f"{upstream.host}/team/x{n}"
        again.until(
            lambda key=key, repo=repo: (
                again.mirror(key).exists() and read_refs(again.mirror(key)) == repo.public_refs()
            )
        )
        assert_sound(again.mirror(key), repo)
    assert again.stop() == 0


def test_a_second_process_on_the_same_data_is_refused(start):
    start().ready()
    second = start()
    assert second.process.wait(timeout=WITHIN_S) == 2
    assert "in use by another evermirror" in second.log()
    assert "Traceback" not in second.log()


def test_a_port_in_use_is_told_with_what_to_do(start, tmp_path):
    first = start()
    first.ready()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "evermirror",
            "up",
            "--listen",
            f"127.0.0.1:{first.port}",
            "--data",
            str(tmp_path / "other"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=WITHIN_S,
    )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{first.port}" in done.stderr
    assert "--listen" in done.stderr


def test_a_public_address_without_a_token_is_refused(start):
    node = start("--listen", f"0.0.0.0:{free_port()}")
    assert node.process.wait(timeout=WITHIN_S) == 2
    assert "without any token" in node.log()


def test_git_missing_or_too_old_is_told(start, tmp_path):
    old = tmp_path / "old-git"
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)
    for binary, words in (("/nonexistent/git", "git was not found"), (str(old), "too old")):
        node = start(env={"EVERMIRROR_GIT__BINARY": binary})
        assert node.process.wait(timeout=WITHIN_S) == 2
        assert words in node.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a read-only folder")
def test_an_unwritable_data_folder_is_told(tmp_path):
    folder = tmp_path / "ro"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], check=True)
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "evermirror",
                "up",
                "--data",
                str(folder / "data"),
                "--listen",
                f"127.0.0.1:{free_port()}",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=WITHIN_S,
        )
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "--data" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_stops_the_clone_and_heals_when_there_is_room(tmp_path, upstream):
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True)
    big, small = upstream.create("team/big"), upstream.create("team/small")
    big.big_blob(40_000_000)
    node = Process(folder, upstream.host)
    try:
        node.ready()
        node.client.post("/api/git_urls", json={"git_url": small.url})
        node.until(lambda: node.status(f"{upstream.host}/team/small") == "active")
        body = {"git_url": big.url, "additional_params": {"wait": 60}}
        task = node.client.post("/api/tasks", json=body, timeout=90).json()
        assert task["result"]["error_type"] == "DISK_FULL", task
        node.until(lambda: node.client.get("/api/overview").json()["accepting_clones"] is False)
        tip = small.commit()
        node.until(
            lambda: node.client.get(f"/api/repos/{upstream.host}/team/small").json()["head_commit"] == tip
        )
        assert node.stop() == 0
    finally:
        node.close()
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_playground_prints_a_clone_line_that_works(start, tmp_path):
    node = start("--playground")
    node.until(lambda: "git clone" in node.log())
    line = re.search(r"git clone (\S+)", node.log())
    done = subprocess.run(
        ["git", "clone", "-q", line[1], str(tmp_path / "clone")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "clone").iterdir())
    assert node.client.get("/").status_code == 200
    assert node.stop(signal.SIGINT) == 0


def test_an_interrupt_stops_what_a_shell_started_in_the_background(start):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `evermirror up &` in a script begins
    try:
        node = start()
    finally:
        signal.signal(signal.SIGINT, before)
    node.ready()
    assert node.stop(signal.SIGINT) == 0


def test_sighup_reads_the_catalog_again(start, upstream, tmp_path):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    file = tmp_path / "urls.txt"
    file.write_text(one.url + "\n")
    node = start("--catalog", str(file))
    node.until(lambda: node.status(f"{upstream.host}/team/one") == "active")
    file.write_text(f"{one.url}\n{two.url}\n")
    node.process.send_signal(signal.SIGHUP)
    node.until(lambda: node.status(f"{upstream.host}/team/two") == "active")


def test_a_secret_appears_nowhere(start, upstream, tmp_path):
    canary = "c4nary-s3cret"
    upstream.require_basic("bot", canary)
    repo = upstream.create("team/x")
    repo.big_blob(200_000)
    node = start(
        env={
            "EVERMIRROR_CREDENTIALS__CORP__USERNAME": "bot",
            "EVERMIRROR_CREDENTIALS__CORP__PASSWORD": canary,
            "EVERMIRROR_LOG__LEVEL": "debug",
        }
    )
    node.ready()
    body = {"git_url": repo.url, "additional_info": {"credential": "corp"}}
    assert node.client.post("/api/git_urls", json=body).status_code < 300
    node.until(lambda: node.status(f"{upstream.host}/team/x") == "active")
    upstream.require_basic("bot", "another")
    answer = node.client.post("/api/tasks", json={"git_url": repo.url, "additional_params": {"wait": 20}})
    assert answer.json()["result"]["error_type"] == "AUTH_FAILED"
    seen = [answer.text, node.log(), node.client.get(f"/api/repos/{upstream.host}/team/x").text]
    assert node.stop() == 0
    seen += [f.read_bytes().decode("latin-1") for f in node.data.rglob("*") if f.is_file()]
    assert not [text for text in seen if canary in text]
