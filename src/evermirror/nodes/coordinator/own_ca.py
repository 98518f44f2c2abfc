"""Where the coordinator's own CA is, and for which names it vouches; for commands that run no node, too."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

from evermirror.config import Config, split_host_port

NAMES_FILE = "names"


def pki_folder(config: Config) -> Path:
    return config.data.dir / "pki"


def server_names(config: Config) -> list[str]:
    """By what names and addresses workers may reach this machine."""
    host, _ = split_host_port(config.server.grpc_listen)
    own = socket.gethostname()
    wild = host in ("0.0.0.0", "::")  # noqa: S104 (compared, not listened on)
    return list(dict.fromkeys([own, *([] if wild else [host]), *config.server.names, *_kept_names(config)]))


def keep_names(config: Config, names: Iterable[str]) -> None:
    """Names given to `coordinator init`: later certificates have them too."""
    folder = pki_folder(config)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / NAMES_FILE).write_text("".join(f"{name}\n" for name in names), "utf-8")


def _kept_names(config: Config) -> list[str]:
    try:
        return (pki_folder(config) / NAMES_FILE).read_text("utf-8").split()
    except FileNotFoundError:
        return []
