"""Clones of one large mirror from ``evermirror up``, against nginx with ``git http-backend``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

from bench.measure import Bench, Context, Line, Sense
from bench.worlds.big_repo import BIG, make_big
from bench.worlds.population import link_tree
from bench.worlds.server import GitServer
from evermirror.model.layout import mirror_path
from evermirror.model.repo import RepoKey
from tests.support.gitrepo import clean_git_env
from tests.support.ports import free_port

WAIT_S = 300
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
BACKEND = "/usr/lib/git-core/git-http-backend"
NGINX_CONF = """
{user}
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; client_max_body_size 0;
  client_body_temp_path {folder}/body; fastcgi_temp_path {folder}/fastcgi;
  proxy_temp_path {folder}/proxy; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      fastcgi_pass unix:{folder}/cgi.sock;
      fastcgi_param SCRIPT_FILENAME {backend};
      fastcgi_param GIT_PROJECT_ROOT {root};
      fastcgi_param GIT_HTTP_EXPORT_ALL 1;
      fastcgi_param HOME {folder};
      fastcgi_param PATH_INFO $uri;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_TYPE $content_type;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param REMOTE_ADDR $remote_addr;
      fastcgi_param GIT_PROTOCOL $http_git_protocol;
    }}
  }}
}}
"""


class Side:
    """A server in processes of its own, and where it has the mirror."""

    def __init__(self, url: str, pids: Callable[[], list[int]]) -> None:
        self.url = url
        self.pids = pids

    def cpu_s(self) -> float:
        """User and system time of its processes, and of all children that they have waited for."""
        ticks = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            ticks += sum(int(t) for t in fields[11:15])
        return ticks * TICK_S

    def rss_mb(self, which: str) -> float:
        status = Path(f"/proc/{self.pids()[0]}/status").read_text()
        return int(status.split(f"{which}:")[1].split()[0]) / 1000


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in found)]


def _until(there: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_S
    while not there():
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"{process.args!r} did not start: {process.returncode}")
        time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    finally:
        process.kill()


@contextmanager
def _evermirror(upstream: GitServer, data: Path, catalog: Path, key: RepoKey) -> Iterator[Side]:
    settings = {
        "UPSTREAMS__ALLOW": json.dumps(["127.0.0.1"]),
        "UPSTREAMS__SCHEMES": json.dumps(["http"]),
        "SCHEDULE__MIN_GAP": "1h",
        "SCHEDULE__MAX_GAP": "24h",
        "LOG__LEVEL": "warning",
    }
    env = {**os.environ, **{f"EVERMIRROR_{k}": v for k, v in settings.items()}}
    address = f"127.0.0.1:{free_port()}"
    flags = ["--data", str(data), "--catalog", str(catalog), "--listen", address]
    command = [sys.executable, "-m", "evermirror", "up", *flags]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        _until(lambda: _active(f"http://{address}/api/repos/{key}"), process)
        yield Side(f"http://{address}/git/{key}", lambda: [process.pid])
    finally:
        _stop(process)


def _active(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["status"] == "active"
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def _nginx(folder: Path, root: Path, name: str) -> Iterator[Side]:
    folder.mkdir()
    port = free_port()
    user = "user root;" if os.getuid() == 0 else ""
    conf = folder / "nginx.conf"
    conf.write_text(NGINX_CONF.format(folder=folder, root=root, port=port, backend=BACKEND, user=user))
    env = clean_git_env(folder)
    command = ["/usr/sbin/fcgiwrap", "-c", "2", "-s", f"unix:{folder}/cgi.sock"]
    cgi = subprocess.Popen(command, env=env, start_new_session=True)
    try:
        _until((folder / "cgi.sock").exists, cgi)
        nginx = subprocess.Popen(["/usr/sbin/nginx", "-c", str(conf), "-p", str(folder)], env=env)
        try:
            _until((folder / "nginx.pid").exists, nginx)
            yield Side(
                f"http://127.0.0.1:{port}/{quote(name)}", lambda: [*_children(nginx.pid), *_children(cgi.pid)]
            )
        finally:
            _stop(nginx)
    finally:
        os.killpg(cgi.pid, signal.SIGTERM)  # its children do not end with it
        _stop(cgi)


def _clone(side: Side, folder: Path) -> tuple[float, float]:
    """Wall seconds, and the server's CPU seconds."""
    target = folder / "clone.git"
    began, cpu_s = time.perf_counter(), side.cpu_s()
    command = ["git", "clone", "--quiet", "--bare", side.url, str(target)]
    subprocess.run(command, env=clean_git_env(folder), check=True)
    wall_s = time.perf_counter() - began
    time.sleep(0.1)  # its processes have been waited for by now
    cost = wall_s, side.cpu_s() - cpu_s
    shutil.rmtree(target)
    return cost


def _run(context: Context) -> list[Line]:
    size_mb, rounds = context.size(300, 8), context.repeats(3)
    folder = context.folder
    big = context.shared.made(f"big-{size_mb}", partial(make_big, size_mb=size_mb))
    with GitServer(folder / "up", tls=False) as upstream:
        link_tree(big / BIG, upstream.folder / "team/big.git")
        catalog = folder / "urls.txt"
        catalog.write_text(upstream.url("team/big") + "\n", "utf-8")
        key = RepoKey(f"127.0.0.1:{upstream.port}/team/big")
        mirrors, name = folder / "data" / "mirrors", mirror_path(key)
        with (
            _evermirror(upstream, folder / "data", catalog, key) as ours,
            _nginx(folder / "nginx", mirrors, str(name)) as theirs,
        ):
            return _compare(ours, theirs, mirrors / name, size_mb, rounds, folder)


def _compare(ours: Side, theirs: Side, mirror: Path, size_mb: int, rounds: int, folder: Path) -> list[Line]:
    _clone(theirs, folder)  # the disk's cache is warm for both
    rss_mb = ours.rss_mb("VmRSS")
    cold, other = [], []
    for _ in range(rounds):
        os.utime(mirror / "HEAD")  # as a change of refs: what is cached is worth nothing
        time.sleep(0.3)
        cold.append(_clone(ours, folder))
        other.append(_clone(theirs, folder))
    hot = [_clone(ours, folder) for _ in range(rounds)]
    grown_mb = ours.rss_mb("VmHWM") - rss_mb
    what = f"clone of {size_mb} MB"
    return [
        Line(
            f"{what}, first",
            "s wall",
            _walls(cold),
            _walls(other),
            Sense.TIMES_AS_MUCH,
            1.11,
            promise="clone-speed",
        ),
        Line(f"{what}, first", "s server CPU", _cpus(cold), _cpus(other), Sense.TIMES_AS_MUCH),
        Line(
            f"{what}, hot",
            "s wall",
            _walls(hot),
            _walls(other),
            Sense.TIMES_AS_MUCH,
            1.11,
            promise="clone-speed",
        ),
        Line(
            f"{what}, hot",
            "s server CPU",
            _cpus(hot),
            _cpus(other),
            Sense.TIMES_AS_MUCH,
            1 / 3,
            promise="clone-hot",
        ),
        Line(
            "server's memory, growth at its peak",
            "MB",
            (grown_mb,),
            sense=Sense.AT_MOST,
            goal=32,
            promise="clone-memory",
        ),
    ]


def _walls(costs: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(wall for wall, _ in costs)


def _cpus(costs: list[tuple[float, float]]) -> tuple[float, ...]:
    return tuple(cpu for _, cpu in costs)


BENCH = Bench(
    name="clone",
    measures="clones of a large mirror from evermirror up: time, the server's CPU with its gits, its memory",
    alternative="nginx, fcgiwrap and git http-backend on the same folder",
    run=_run,
    order=60,
    takes_s=46,
)
