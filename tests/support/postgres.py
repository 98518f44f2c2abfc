"""A real PostgreSQL server for tests: one for each test process, a fresh database for each test that asks."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.ports import free_port
from tests.support.processes import SERVANTS

START_TIMEOUT_S = 60
TRIES = 5  # another process may take the port between our look and the server's bind


def find_bin_dir() -> Path | None:
    """Debian keeps the server's programs out of PATH, one folder per version: the newest is taken."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if folders:
        return folders[-1].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class PostgresServer:
    """One server on 127.0.0.1 that ends with this process, even when it is killed."""

    def __init__(self, bin_dir: Path) -> None:
        self._bin = bin_dir
        self._dir = Path(tempfile.mkdtemp(prefix="evermirror-pg-"))
        self._as_user = _drop_to_user(self._dir)
        self._made = 0
        self._run(
            "initdb", "-D", f"{self._dir}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync",
        )  # fmt: skip
        for attempt in range(TRIES):
            self.port = free_port()
            if self._start():
                return
            if attempt == TRIES - 1:
                log = (self._dir / "log").read_text(errors="replace")
                self.close()
                raise RuntimeError(f"PostgreSQL does not start:\n{log[-2000:]}")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, like: str = "") -> str:
        """The URL of a new database: empty, or a copy of the one at ``like``, which nobody uses now."""
        self._made += 1
        name = f"test_{os.getpid()}_{self._made}"
        template = ["--template", like.rsplit("/", 1)[1]] if like else []
        self._run("createdb", *self._where(), *template, name)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self._run("dropdb", *self._where(), "--force", url.rsplit("/", 1)[1])

    def stop(self) -> None:
        """Whoever is connected loses the connection."""
        if self._process.poll() is None:
            self._process.send_signal(2)  # SIGINT: "fast shutdown"
            self._process.wait(30)
        SERVANTS.discard(self._process.pid)

    def start_again(self) -> None:
        """On the same data and port."""
        assert self._start()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._dir, ignore_errors=True)

    def _where(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]

    def _start(self) -> bool:
        with open(self._dir / "log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    *self._as_user, "--pdeathsig", "INT", str(self._bin / "postgres"),
                    "-D", f"{self._dir}/data", "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
                    "-c", f"unix_socket_directories={self._dir}",
                    "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
            )  # fmt: skip
        SERVANTS.add(self._process.pid)
        end = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < end:
            ready = [str(self._bin / "pg_isready"), "-q", *self._where()]
            if subprocess.run(ready, check=False).returncode == 0:
                return True
            time.sleep(0.05)
        SERVANTS.discard(self._process.pid)
        self._process.kill()
        self._process.wait()
        return False

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [*self._as_user, str(self._bin / program), *args], capture_output=True, cwd="/", check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")


def _drop_to_user(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: then it runs as the user that Debian's package made."""
    if os.geteuid() != 0:
        return ["setpriv"]
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", "--reuid", "postgres", "--regid", str(user.pw_gid), "--clear-groups"]
