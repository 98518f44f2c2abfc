"""Sends prepared requests over kept-alive connections, each pinned to an address that was checked before.

A connection goes to the *address*; its TLS certificate is checked against the *name*. Redirects are returned,
never followed; there are no proxies and no cookies. A kept-alive connection that the server closes before the
first byte of an answer says nothing about the server (it closed while we wrote): the request is sent once
more, on a fresh connection.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections import OrderedDict
from dataclasses import dataclass

from evermirror.edge.git.connection import (
    ClosedEarly,
    Connection,
    HttpLimits,
    Origin,
    Response,
    malformed,
    too_large,
)
from evermirror.model.failure import Failure, FailureError, FailureKind

CONNECT_ATTEMPTS = 4  # addresses of one name that are tried before the host counts as away
_WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}  # zlib's numbers for the containers


@dataclass(slots=True)
class HttpStats:
    """Counts since the start."""

    requests: int = 0
    opened: int = 0
    reused: int = 0
    received_bytes: int = 0


class HttpClient:
    """One event loop, any number of tasks; the caller limits how many requests a host gets at once."""

    def __init__(self, limits: HttpLimits, tls: ssl.SSLContext) -> None:
        self.limits = limits
        self.stats = HttpStats()
        self._tls = tls
        self._open: set[Connection] = set()
        self._idle: dict[tuple[Origin, str], list[Connection]] = {}
        self._idle_since: OrderedDict[Connection, float] = OrderedDict()  # oldest first
        self._sweep: asyncio.TimerHandle | None = None
        self._large = 0
        self._large_queue: OrderedDict[Connection, None] = OrderedDict()
        self._all_lost: asyncio.Future[None] | None = None

    @property
    def idle(self) -> int:
        """Connections that wait for their next request."""
        return len(self._idle_since)

    async def request(
        self, origin: Origin, addresses: tuple[str, ...], data: bytes, bytes_max: int | None = None
    ) -> Response:
        """Sends ``data``, a complete request, to one of ``addresses``; FailureError where no answer came, or
        one of more than ``bytes_max``."""
        self.stats.requests += 1
        connection = self._take(origin, addresses)
        if connection is not None:
            self.stats.reused += 1
            try:
                return await self._exchange(connection, data, bytes_max)
            except ClosedEarly:
                self.stats.reused -= 1
        connection = await self._connect(origin, addresses)
        try:
            return await self._exchange(connection, data, bytes_max)
        except ClosedEarly:
            message = "connection closed before an answer"
            raise FailureError(Failure(FailureKind.NETWORK_TIMEOUT, message)) from None

    async def close(self) -> None:
        """Ends every connection and waits until their sockets are closed."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        if self._open:
            self._all_lost = asyncio.get_running_loop().create_future()
            for connection in list(self._open):
                connection.fail(Failure(FailureKind.NETWORK_TIMEOUT, "stopped"))
            await self._all_lost

    async def _exchange(self, connection: Connection, data: bytes, bytes_max: int | None) -> Response:
        try:
            response = await connection.send(data, bytes_max)
        except BaseException:
            connection.abort()
            raise
        self.stats.received_bytes += response.received_bytes
        if connection.reusable:
            self._put(connection)
        else:
            connection.close()
        encoding = response.header("content-encoding")
        most = self.limits.answer_bytes if bytes_max is None else bytes_max
        return self._unpack(response, encoding.lower(), most) if encoding else response

    def _unpack(self, response: Response, encoding: str, bytes_max: int) -> Response:
        """We ask for no packing, since it costs us more than it saves; some servers pack all the same."""
        if encoding == "identity":
            return response
        if encoding not in _WBITS:
            raise FailureError(malformed("a content-encoding that was not asked for"))
        unpacker = zlib.decompressobj(_WBITS[encoding])
        try:
            body = unpacker.decompress(response.body, bytes_max + 1)
        except zlib.error:
            raise FailureError(malformed(f"not {encoding}")) from None
        if len(body) > bytes_max:
            raise FailureError(too_large(bytes_max))
        if not unpacker.eof:
            raise FailureError(malformed(f"{encoding} cut short"))
        return Response(response.status, response.headers, body, response.received_bytes)

    async def _connect(self, origin: Origin, addresses: tuple[str, ...]) -> Connection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.limits.connect_s
        tried = addresses[:CONNECT_ATTEMPTS]
        failure = Failure(FailureKind.NETWORK_TIMEOUT, f"{origin.host} has no address")
        for n, address in enumerate(tried):
            # An address that swallows packets must not eat the time of the ones after it.
            budget_s = max(0.0, deadline - loop.time()) / (len(tried) - n)
            try:
                return await self._connect_to(origin, address, budget_s)
            except OSError as e:  # TimeoutError and ssl's errors are OSErrors too
                failure = _connect_failure(origin, e, self.limits.connect_s)
        raise FailureError(failure)

    async def _connect_to(self, origin: Origin, address: str, timeout_s: float) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(self, (origin, address), loop)
        secure = origin.scheme == "https"
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(
                    lambda: connection,
                    address,
                    origin.port,
                    ssl=self._tls if secure else None,
                    server_hostname=origin.host if secure else None,
                    ssl_handshake_timeout=self.limits.connect_s if secure else None,
                )
        except BaseException:
            connection.abort()  # a handshake may end just as its caller gives up
            raise
        self.stats.opened += 1
        return connection

    def _take(self, origin: Origin, addresses: tuple[str, ...]) -> Connection | None:
        for address in addresses:
            idle = self._idle.get((origin, address))
            if idle:
                connection = idle.pop()  # the one used last is the one least likely to be closed by now
                del self._idle_since[connection]
                return connection
        return None

    def _put(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        self._idle.setdefault(connection.key, []).append(connection)
        self._idle_since[connection] = loop.time()
        if len(self._idle_since) > self.limits.idle_max:
            oldest = next(iter(self._idle_since))
            self._drop_idle(oldest)
            oldest.close()
        if self._sweep is None:
            self._sweep = loop.call_later(self.limits.idle_s, self._close_aged)

    def _drop_idle(self, connection: Connection) -> None:
        if self._idle_since.pop(connection, None) is not None:
            self._idle[connection.key].remove(connection)

    def _close_aged(self) -> None:
        """One timer for all idle connections; places without any are forgotten here."""
        loop = asyncio.get_running_loop()
        self._sweep = None
        while self._idle_since:
            oldest, since = next(iter(self._idle_since.items()))
            due = since + self.limits.idle_s
            if due > loop.time():
                self._sweep = loop.call_at(due, self._close_aged)
                break
            self._drop_idle(oldest)
            oldest.close()
        self._idle = {key: idle for key, idle in self._idle.items() if idle}

    # Connections call these

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._drop_idle(connection)
        if self._all_lost is not None and not self._open and not self._all_lost.done():
            self._all_lost.set_result(None)

    def enter_large(self, connection: Connection) -> bool:
        """Whether a large answer may go on now; otherwise it is resumed when its turn comes."""
        if self._large < self.limits.large_at_once:
            self._large += 1
            return True
        self._large_queue[connection] = None
        return False

    def leave_large(self, connection: Connection) -> None:
        """A large answer ended, or gave up waiting for its slot."""
        if connection in self._large_queue:
            del self._large_queue[connection]
        elif self._large_queue:
            following, _ = self._large_queue.popitem(last=False)
            following.resume()  # takes over the slot
        else:
            self._large -= 1


def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """Verifies name and chain; ``ca_file`` replaces the system's authorities, as git's sslCAInfo does."""
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _connect_failure(origin: Origin, error: OSError, timeout_s: float) -> Failure:
    """Why there is no connection, in one line."""
    where = f"{origin.host}:{origin.port}"
    match error:
        case ssl.SSLCertVerificationError():
            return Failure(
                FailureKind.UNKNOWN,
                f"certificate of {where} refused: {error.verify_message or 'not valid'}",
                hint="upstreams.ca_file names the authorities that are trusted",
            )
        case ssl.SSLError():
            return _away(f"TLS with {where} failed: {error.reason or 'handshake'}")
        case TimeoutError():
            return _away(f"no connection to {where} in {timeout_s:g} s")
        case ConnectionRefusedError():
            return _away(f"connection to {where} refused")
        case _:
            return _away(f"connection to {where} failed: {error.strerror or 'lost'}")


def _away(message: str) -> Failure:
    return Failure(FailureKind.NETWORK_TIMEOUT, message)
