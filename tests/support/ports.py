"""A port for a server that cannot be told to take any free one."""

from __future__ import annotations

import fcntl
import functools
import os
import random
import socket
import tempfile
from pathlib import Path

PORTS = range(20000, 32768)  # below the range from which the kernel takes ports for outgoing connections
TAKEN = Path(tempfile.gettempdir()) / f"evermirror-test-ports-{os.getuid()}"

_ours: set[int] = set()


def free_port() -> int:
    """One that no other test gets while this process runs: its server may begin late, and begin again."""
    for port in random.sample(PORTS, 50):
        if port not in _ours and _reserve(port):
            _ours.add(port)
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
                return port
    raise RuntimeError("no free port found")


def _reserve(port: int) -> bool:
    """By a lock on one byte of a file that all test processes share; it ends with this process."""
    try:
        fcntl.lockf(_taken(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@functools.cache  # and never closed: that would end its locks
def _taken() -> int:
    return os.open(TAKEN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
