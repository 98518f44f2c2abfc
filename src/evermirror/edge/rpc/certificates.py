"""A server's certificate as gRPC wants it: read again when its file changed: renewal needs no restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc
import structlog

from evermirror.edge.rpc.pki import TlsFiles
from evermirror.errors import EnvironmentUnfit

LOOK_EVERY_S = 10.0  # at most; handshakes may come by the thousand

log = structlog.get_logger(__name__)


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Raises EnvironmentUnfit where the files cannot be read."""
    watcher = cast(Callable[[], grpc.ServerCertificateConfiguration], _Watcher(files))  # None is fine too
    return grpc.dynamic_ssl_server_credentials(_read(files), watcher)


class _Watcher:
    """Asked by gRPC at each handshake, in a thread of its own: a new configuration, or None for the last."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._state = _state(files)
        self._looked_at = time.monotonic()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return None
        self._looked_at = now
        try:
            state = _state(self._files)
            if state == self._state:
                return None
            configuration = _read(self._files)
        except (OSError, EnvironmentUnfit) as e:
            log.warning("the new certificate cannot be read; the last one is used", error=str(e))
            return None
        self._state = state
        return configuration


def _state(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    return tuple((s.st_mtime_ns, s.st_ino) for s in (files.chain.stat(), files.key.stat()))


def _read(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(_bytes(files.key), _bytes(files.chain))])


def _bytes(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError as e:
        raise EnvironmentUnfit(
            f"{place} cannot be read: {e.strerror}", hint="See server.grpc_listen"
        ) from None
