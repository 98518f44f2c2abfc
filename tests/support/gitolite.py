"""A real gitolite behind a real sshd: who may read what is its business."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.ssh import SshUpstream

COMMAND = "/usr/bin/gitolite"
SETUP_TIMEOUT_S = 60


class Gitolite(SshUpstream):
    """``key_file`` is bob's, who may read and write ``open``, read ``readonly``, and has no right to
    ``closed``."""

    def __init__(self, folder: Path, sshd: str) -> None:
        super().__init__(folder, sshd)
        self.home = folder / "home"
        self.home.mkdir()
        self._run("setup", "-a", "admin")
        config = self.home / ".gitolite" / "conf" / "gitolite.conf"
        config.write_text(
            "repo open\n RW+ = bob\nrepo readonly\n R = bob\nrepo closed\n RW+ = ann\n", "utf-8"
        )
        self._run("compile")
        self._run("trigger", "POST_COMPILE")
        self.let_in(f"HOME={self.home} /usr/share/gitolite3/gitolite-shell bob")

    def url(self, name: str) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}/{name}"

    def path(self, name: str) -> Path:
        return self.home / "repositories" / f"{name}.git"

    def _run(self, *args: str) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "USER": self.user}
        subprocess.run(
            [COMMAND, *args], env=env, check=True, capture_output=True, timeout=SETUP_TIMEOUT_S, cwd=self.home
        )
