"""Accepts connections, within bounds, and waits while the system has no descriptors left.

asyncio's own server tries each connection in its backlog again when there is no descriptor, and logs every
one of these with a traceback: thousands a second. Here accepting pauses, and one line a minute tells so.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from evermirror.core.fairness import FairShare

BATCH = 64  # connections accepted in one turn of the event loop
PAUSE_S = 0.5  # until the next try, once there was no descriptor
LOG_EVERY_S = 60.0
HANDSHAKE_S = 15.0  # for TLS
OPEN_FILES_MAX = 65_536  # that we ask for; more than a node can use, and no burden for its children
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset, and keep nothing of it

log = structlog.get_logger(__name__)


class _Connection(socket.socket):
    """Tells when it is closed, whoever closes it."""

    closed: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        if self.closed is not None:
            closed, self.closed = self.closed, None
            closed()


class Acceptor:
    """Begins to accept at once, until ``close``, which closes the listening sockets too.

    ``room`` bounds the connections in all and of each client, by ``client_of`` of its address; None is
    whoever connects for many. It has those parts of ``asyncio.Server`` that others ask for."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None = None,
        room: FairShare | None = None,
        client_of: Callable[[str], str | None] = str,
    ) -> None:
        self.sockets = tuple(sockets)
        self._make_protocol = make_protocol
        self._tls = tls
        self._room = room
        self._client_of = client_of
        self._loop = asyncio.get_running_loop()
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._greeting: set[asyncio.Task[None]] = set()
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        for sock in self.sockets:
            sock.setblocking(False)  # else the loop stands still once nobody is left to accept
            self._resume(sock)

    def close(self) -> None:
        for sock in self.sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock)
                sock.close()
        for timer in self._paused.values():
            timer.cancel()
        for task in self._greeting:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._greeting, return_exceptions=True)

    def _resume(self, sock: socket.socket) -> None:
        self._paused.pop(sock, None)
        self._loop.add_reader(sock, self._accept, sock)

    def _pause(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        self._paused[sock] = self._loop.call_later(PAUSE_S, self._resume, sock)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(sock)
                self._say("new connections wait: the system gives us no more open files", error=str(error))
                return
            self._greet(accepted, self._client_of(address[0]) if address else "")

    def _greet(self, accepted: socket.socket, client: str | None) -> None:
        if self._room is not None and not self._room.take(client):
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            accepted.close()
            self._say("connections were refused: there are too many", client=client or "a trusted proxy")
            return
        connection = _Connection(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        if (room := self._room) is not None:
            connection.closed = lambda: room.give_back(client)
        connection.setblocking(False)
        task = self._loop.create_task(self._connect(connection))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    async def _connect(self, connection: _Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_S if self._tls is not None else None,
            )
        except OSError as error:  # also of TLS: strangers say anything
            log.debug("a connection ended before its first byte", error=str(error))
            connection.close()
        except BaseException:
            connection.close()
            raise

    def _say(self, what: str, **more: str) -> None:
        """One line for all that happened since the last one."""
        now = self._loop.time()
        self._unlogged[what] = self._unlogged.get(what, 0) + 1
        if now - self._logged_at.get(what, -LOG_EVERY_S) >= LOG_EVERY_S:
            log.warning(what, times=self._unlogged.pop(what), open_files_max=open_files_max(), **more)
            self._logged_at[what] = now


async def listen(
    host: str | None, port: int, make_protocol: Callable[[], asyncio.BaseProtocol], backlog: int
) -> Acceptor:
    """Accepts on every address of ``host``."""
    bound = await asyncio.get_running_loop().create_server(make_protocol, host, port, start_serving=False)
    sockets = [sock.dup() for sock in bound.sockets]
    bound.close()  # asyncio has found the addresses and bound them; it does not listen itself
    for sock in sockets:
        sock.setblocking(False)
        sock.listen(backlog)
    return Acceptor(sockets, make_protocol)


def open_files_max() -> int:
    """How many files and connections this process may have open; the bound is raised as far as we may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft
