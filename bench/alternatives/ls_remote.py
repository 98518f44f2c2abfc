"""A look with ``git ls-remote``: one process, one handshake, and a list of authorities read, each time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

DEBIAN = Path("/etc/ssl/certs")  # Debian's authorities: the folder, and in it all of them in one file
BUNDLE = "ca-certificates.crt"

ONE_AUTHORITY = "git ls-remote, one authority"
CA_BUNDLE = "git ls-remote, CA bundle"
CA_FOLDER = "git ls-remote, CA folder (Debian's default)"

Look = Callable[[str], int]  # a URL in, the number of its refs out


def looks(ca_file: Path, env: dict[str, str], folder: Path) -> dict[str, Look]:
    """By the authorities it is given: the server's alone, as ours is; with Debian's, in one file; with
    Debian's folder, as git reads it by itself. The last two only where Debian's are installed."""
    empty = folder / "no-authorities"  # else curl reads its own folder too, whatever file it is given
    empty.mkdir()
    alone = {**env, "GIT_SSL_CAPATH": str(empty)}
    found: dict[str, Look] = {ONE_AUTHORITY: _look({**alone, "GIT_SSL_CAINFO": str(ca_file)})}
    if (DEBIAN / BUNDLE).exists():
        bundle = folder / "bundle.pem"
        bundle.write_bytes((DEBIAN / BUNDLE).read_bytes() + ca_file.read_bytes())
        found[CA_BUNDLE] = _look({**alone, "GIT_SSL_CAINFO": str(bundle)})
        trust = {"GIT_SSL_CAPATH": str(DEBIAN), "GIT_SSL_CAINFO": str(ca_file)}
        found[CA_FOLDER] = _look({**env, **trust})
    return found


def _look(env: dict[str, str]) -> Look:
    def look(url: str) -> int:
        told = subprocess.run(
            ["git", "ls-remote", "--refs", url], env=env, stdout=subprocess.PIPE, check=True
        )
        return told.stdout.count(b"\n")

    return look
