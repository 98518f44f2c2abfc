"""A port for a server that cannot be told to take any free one."""

from __future__ import annotations

import random
import socket

PORTS = range(20000, 32768)  # below the range from which the kernel takes ports for outgoing connections


def free_port() -> int:
    for port in random.sample(PORTS, 50):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port found")
