"""What this machine is called."""

from __future__ import annotations

import socket


def host_name() -> str:
    """In printable ASCII. Without asking the name system, which may be what is down."""
    name = socket.gethostname()
    fine = name.isascii() and name.isprintable() and " " not in name
    return name if name and fine else "localhost"
