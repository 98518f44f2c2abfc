"""TLS between a TCP connection and the protocol that speaks over it, with as little as possible in between.

    Connection ──write──▶ TlsStream ──sealed──▶ asyncio's TCP transport
               ◀──data──            ◀──sealed──

asyncio has its own, for any protocol under any load; there an exchange of two small messages costs a third
more. Here is what a client needs who sends one request, waits for its answer, and never upgrades or half
closes. Checking the certificate and its name is the context's business, as it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import cast

RECORD_BYTES = 16 * 1024  # what one record can hold
# What is read from the socket at once; the event loop fills the buffer and hands it over in one step, so that
# one does for all streams of a loop. A session keeps as much as it was ever handed: 61 KiB a connection.
BUFFER_BYTES = 32 * 1024
FAREWELL_S = 5.0  # for what was written and is not on its way yet


class TlsStream(asyncio.Transport, asyncio.BufferedProtocol):
    """The protocol of a TCP transport, and the transport of ``above``, which is told of the connection once
    hands were shaken; ``shaken`` fails where that did not come about."""

    __slots__ = (
        "_above",
        "_arrived",
        "_broken",
        "_buffer",
        "_leaving",
        "_loop",
        "_ready",
        "_session",
        "_tcp",
        "_unsealed",
        "shaken",
    )

    def __init__(
        self,
        above: asyncio.Protocol,
        context: ssl.SSLContext,
        host: str,
        loop: asyncio.AbstractEventLoop,
        buffer: memoryview,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._buffer = buffer
        self.shaken: asyncio.Future[None] = loop.create_future()
        self._above = above
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._arrived, self._leaving, server_hostname=host)
        self._tcp: asyncio.Transport | None = None
        self._unsealed = b""  # waits for new keys, which an old server may ask for at any time
        self._broken: Exception | None = None
        self._ready = False

    # The protocol above calls these

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._session.write(rest) :]
        except ssl.SSLWantReadError:
            self._unsealed += bytes(rest)
        except ssl.SSLError as error:
            self._break(error)
            return
        if self._tcp is not None:
            self._tcp.write(self._leaving.read())

    def is_closing(self) -> bool:
        return self._tcp is None or self._tcp.is_closing()

    def close(self) -> None:
        """Says farewell, and does not wait for the other side's."""
        if self._tcp is None or self._tcp.is_closing():
            return
        with contextlib.suppress(ssl.SSLError):  # the other side's is not there yet, or will never be
            self._session.unwrap()
        self._flush()
        self._tcp.close()
        if self._tcp.get_write_buffer_size():  # who does not read is not waited for
            self._loop.call_later(FAREWELL_S, self._tcp.abort)

    def abort(self) -> None:
        self.shaken.cancel()
        if self._tcp is not None:
            self._tcp.abort()

    def pause_reading(self) -> None:
        if self._tcp is not None:
            self._tcp.pause_reading()

    def resume_reading(self) -> None:
        if self._tcp is not None:
            self._tcp.resume_reading()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._shake()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._arrived.write(self._buffer[:nbytes])
        if not self._ready:
            self._shake()
        if self._ready:
            self._open()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tcp = None
        if self._ready:
            self._above.connection_lost(exc or self._broken)
        elif not self.shaken.done():
            self.shaken.set_exception(exc or ConnectionResetError())

    # Inside

    def _shake(self) -> None:
        if self.shaken.done():  # in vain, or nobody waits for it any more
            return
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._flush()  # the other side is told why
            self.shaken.set_exception(error)
            if self._tcp is not None:
                self._tcp.close()
            return
        self._flush()
        self._ready = True
        self.shaken.set_result(None)
        self._above.connection_made(self)

    def _open(self) -> None:
        """Hands up what has arrived whole."""
        session, arrived = self._session, self._arrived
        try:
            while arrived.pending or session.pending():
                data = session.read(RECORD_BYTES)
                if not data:  # the other side said farewell
                    self.close()
                    return
                self._above.data_received(data)
                if self._tcp is None or self._tcp.is_closing():
                    return
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._break(error)
            return
        if self._unsealed:
            unsealed, self._unsealed = self._unsealed, b""
            self.write(unsealed)
        elif self._leaving.pending:  # the session answers by itself now and then
            self._flush()

    def _flush(self) -> None:
        if self._leaving.pending and self._tcp is not None:
            self._tcp.write(self._leaving.read())

    def _break(self, error: Exception) -> None:
        self._broken = error
        self.abort()
