"""A way to a server that can be cut and mended: what a browser sees of a network that fails."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.support.ports import free_port

PART_BYTES = 65_536


class Wire:
    """Forwards a port of its own to ``port``; while it is cut, nothing listens there and nothing is open."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self._to = port
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.mend()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def mend(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self._listener = listener
        threading.Thread(target=self._listen, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Twice is as good as once."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept
        listener.close()
        with self._lock:
            for end in self._open:
                _shut(end)

    def _listen(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            with self._lock:
                self._open |= {near, far}
            if self._listener is not listener:
                _shut(near)
            for source, drain in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, drain), daemon=True).start()

    def _pump(self, source: socket.socket, drain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(PART_BYTES):
                drain.sendall(part)
        _shut(drain)
        with self._lock:
            self._open.discard(source)
        source.close()


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def wire_to(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    try:
        yield wire
    finally:
        wire.cut()
