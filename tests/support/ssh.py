"""A real sshd on 127.0.0.1 that serves bare repositories to whoever holds its one key."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.support.gitrepo import UpstreamRepo
from tests.support.ports import free_port
from tests.support.processes import SERVANTS

START_TIMEOUT_S = 20
_CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
AllowUsers {user}
"""


def find_sshd() -> str | None:
    """sshd must be started by its absolute path; Debian keeps it out of most users' PATH."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class SshUpstream:
    """Repositories below ``folder``/repos, as ssh://user@127.0.0.1:port/…; ``key_file`` is let in."""

    def __init__(self, folder: Path, sshd: str) -> None:
        self.folder = folder
        self.root = folder / "repos"
        self.root.mkdir(parents=True)
        self.user = getpass.getuser()
        self.port = free_port()
        self.key_file = _make_key(folder / "client_key")
        self.authorized_keys = folder / "authorized_keys"
        shutil.copy(f"{self.key_file}.pub", self.authorized_keys)
        config = folder / "sshd_config"
        config.write_text(_CONFIG.format(port=self.port, folder=folder, user=self.user), "utf-8")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(
                mode=0o755, exist_ok=True
            )  # sshd's own demand; its service makes it otherwise
        self._sshd = sshd
        self._start()

    def _start(self) -> None:
        host_key = _make_key(self.folder / "host_key")
        kind, blob = Path(f"{host_key}.pub").read_text("utf-8").split()[:2]
        self.known_hosts_line = f"[127.0.0.1]:{self.port} {kind} {blob}\n"
        with open(self.folder / "log", "ab") as log:
            command = [self._sshd, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        SERVANTS.add(self._process.pid)
        self._wait()

    def change_host_key(self) -> None:
        """As after the machine was set up anew."""
        self.close()
        for name in ("host_key", "host_key.pub"):
            (self.folder / name).unlink()
        self._start()

    def let_in(self, command: str, key_file: Path | None = None) -> None:
        """Whoever holds the key gets this program, and no shell."""
        key = Path(f"{key_file or self.key_file}.pub").read_text("utf-8")
        self.authorized_keys.write_text(f'restrict,command="{command}" {key}', "utf-8")

    def url(self, name: str) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}{self.root}/{name}"

    def create(self, name: str, commits: int = 3) -> UpstreamRepo:
        repo = UpstreamRepo.init(self.root / f"{name}.git", name, self.url(f"{name}.git"))
        if commits:
            repo.bulk_commits(commits)
        return repo

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        SERVANTS.discard(self._process.pid)

    def _wait(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None and time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.close()
        raise RuntimeError(f"sshd does not start:\n{(self.folder / 'log').read_text(errors='replace')}")


def _make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path
