"""One large repository: random bytes, so that its pack is as large as they are, and some history besides."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.gitrepo import IDENTITY, UpstreamRepo, clean_git_env, run_git

BIG = "big.git"
BLOB_MB = 4
HISTORY = 500  # commits besides


def make_big(folder: Path, size_mb: int) -> None:
    """In one go, without a try to make smaller what cannot be."""
    repo = UpstreamRepo.init(folder / BIG, "big", "")
    repo.bulk_commits(HISTORY)
    plain = ["-c", "pack.compression=0", "fast-import", "--quiet", "--depth=0", "--date-format=now"]
    importing = subprocess.Popen(
        ["git", *plain], cwd=repo.path, env=clean_git_env(folder), stdin=subprocess.PIPE
    )
    assert importing.stdin is not None
    with importing.stdin as stream:
        for at in range(0, size_mb, BLOB_MB):
            some = os.urandom(min(BLOB_MB, size_mb - at) * 1_000_000)
            stream.write(f"commit refs/heads/main\ncommitter {IDENTITY} now\ndata 4\nblob\n".encode())
            stream.write(b"" if at else b"from refs/heads/main^0\n")
            stream.write(f"M 100644 inline {at}.bin\ndata {len(some)}\n".encode() + some + b"\n")
    if importing.wait():
        raise RuntimeError(f"git fast-import ended with {importing.returncode}")
    run_git(repo.path, "repack", "-adq", "--window=0")
