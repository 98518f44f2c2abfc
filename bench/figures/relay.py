"""A clone from a worker that nobody can reach: line, relay and gateway, against the same clone direct."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.measure import Bench, Context, Line, Sense
from bench.worlds.big_repo import BIG, make_big
from bench.worlds.population import link_tree
from evermirror.edge.relay.seal import new_private_key
from tests.support.gitrepo import clean_git_env
from tests.support.ports import free_port
from tests.support.processes import children_of_me
from tests.support.ssh import SshUpstream, find_sshd

WAIT_S = 30
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Way:
    """A URL, and the processes on its way; gits that they start are not counted, as every way has them."""

    url: str
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        ticks = 0
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            ticks += sum(int(t) for t in fields[11:13])
        return ticks * TICK_S


@dataclass(frozen=True, slots=True)
class Cloned:
    wall_s: float
    cpu_s: float


@contextmanager
def _end(which: str, folder: Path) -> Iterator[Way]:
    command = [sys.executable, "-m", "bench.worlds.relay_process", which, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Way(json.loads(process.stdout.readline())["url"], (process.pid,))
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()


@contextmanager
def _ssh(folder: Path, direct: Way) -> Iterator[Way | None]:
    """The same HTTP through ``ssh -R``, as it is set up by hand; None where there is no sshd."""
    sshd = find_sshd()
    if sshd is None:
        yield None
        return
    server = SshUpstream(folder / "ssh", sshd)
    port = free_port()
    (folder / "known_hosts").write_text(server.known_hosts_line, "utf-8")
    there = direct.url.removeprefix("http://").partition("/")[0]
    options = [f"UserKnownHostsFile={folder}/known_hosts", "BatchMode=yes", "ExitOnForwardFailure=yes"]
    command = ["ssh", "-F", "none", "-N", "-i", str(server.key_file), "-p", str(server.port)]
    command += [word for option in options for word in ("-o", option)]
    command += ["-R", f"127.0.0.1:{port}:{there}", f"{server.user}@127.0.0.1"]
    client = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        url = direct.url.replace(there, f"127.0.0.1:{port}")
        _until_answered(url, client)
        sessions = [c.pid for c in children_of_me() if c.command.startswith("sshd: ")]
        yield Way(url, (*direct.pids, client.pid, *sessions))
    finally:
        client.terminate()
        client.wait(WAIT_S)
        server.close()


def _until_answered(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_S
    while subprocess.run(["git", "ls-remote", "-q", url], capture_output=True, check=False).returncode:
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"no tunnel: {process.returncode}")
        time.sleep(0.1)


def _clone(way: Way, folder: Path) -> Cloned:
    target = folder / "clone.git"
    began, cpu_s = time.perf_counter(), way.cpu_s()
    command = ["git", "clone", "--quiet", "--bare", way.url, str(target)]
    subprocess.run(command, env=clean_git_env(folder), check=True)
    cost = Cloned(time.perf_counter() - began, way.cpu_s() - cpu_s)
    shutil.rmtree(target)
    return cost


def _run(context: Context) -> list[Line]:
    size_mb, rounds = context.size(300, 8), context.repeats(3)
    folder = context.folder
    (folder / "seal.key").write_bytes(new_private_key())
    link_tree(context.shared.made(f"big-{size_mb}", partial(make_big, size_mb=size_mb)) / BIG, folder / BIG)
    with ExitStack() as stack:
        reader = stack.enter_context(_end("reader", folder))
        direct = stack.enter_context(_end("worker", folder))
        tunnel = Way(reader.url, (*direct.pids, *reader.pids))
        ssh = stack.enter_context(_ssh(folder, direct))
        ways = {"tunnel": tunnel, "direct": direct, **({"ssh": ssh} if ssh is not None else {})}
        _clone(direct, folder)  # the disk's cache is warm for all
        costs: dict[str, list[Cloned]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                costs[name].append(_clone(way, folder))
    return _lines(costs, size_mb)


def _lines(costs: dict[str, list[Cloned]], size_mb: int) -> list[Line]:
    what = f"clone of {size_mb} MB"
    per_gb = 1000 / size_mb

    def walls(name: str) -> tuple[float, ...]:
        return tuple(c.wall_s for c in costs.get(name, ()))

    def cpus(name: str) -> tuple[float, ...]:
        return tuple(c.cpu_s * per_gb for c in costs.get(name, ()))

    more = tuple(t - d for t, d in zip(cpus("tunnel"), cpus("direct"), strict=True))
    lines = [
        Line(
            f"{what} by relay",
            "s wall",
            walls("tunnel"),
            walls("direct"),
            Sense.TIMES_AS_MUCH,
            1.18,
            "direct",
            "relay-speed",
        ),
        Line(
            "CPU of both ends, TLS, without git's",
            "CPU-s/GB",
            cpus("tunnel"),
            (),
            Sense.AT_MOST,
            5,
            promise="relay-cpu",
        ),
        Line("CPU that a direct answer does not cost", "CPU-s/GB", more, (), Sense.AT_MOST, 5),
    ]
    if "ssh" in costs:
        lines += [
            Line(
                f"{what} by relay",
                "s wall",
                walls("tunnel"),
                walls("ssh"),
                Sense.TIMES_AS_MUCH,
                None,
                "ssh -R",
                "relay-ssh",
            ),
            Line(
                "CPU of both ends",
                "CPU-s/GB",
                cpus("tunnel"),
                cpus("ssh"),
                Sense.TIMES_AS_MUCH,
                None,
                "ssh -R",
                "relay-ssh",
            ),
        ]
    return lines


BENCH = Bench(
    name="relay",
    measures="clones from a worker that nobody can reach: time, and CPU of both ends of the tunnel",
    alternative="the same clone straight from that worker by HTTP, and through ssh -R",
    run=_run,
    order=61,
    takes_s=32,
)
