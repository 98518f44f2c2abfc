"""Syslog (RFC 5424): a record for each alert, over UDP (5426), TCP with octet counting (6587) or TLS (5425).

<27>1 2026-11-16T08:00:00.000Z host evermirror - project-failing [evermirror@32473 about="…" …] the text
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from evermirror.edge.notify.here import host_name
from evermirror.edge.notify.reasons import TIMEOUT_S, Reasons, Trust
from evermirror.edge.notify.words import ABOUT_BYTES_MAX, TITLE_BYTES_MAX, between, clip, label, line, more
from evermirror.model.alert import Level, Message, MessageItem, Turn

DATAGRAM_BYTES_MAX = 2_048  # what every receiver of RFC 5426 should take
RECORD_BYTES_MAX = 8_192  # over a stream; rsyslog's own default
NAME_BYTES_MAX = 100  # of a server, a kind: so that the text has room, however much must be escaped
REFUSAL_WAIT_S = 0.5  # by ICMP or a TLS alert a receiver says no a moment after it was sent something
ADDRESSES_MAX = 8  # of one name that are tried, each for so long
GOODBYE_S = 2.0  # for the receiver to close its end, once it has read everything
_ID = "evermirror@32473"  # a name needs a private enterprise number; this one is for whoever has none
_BOM = "\ufeff"
_FACILITIES = {"user": 1, "daemon": 3, **{f"local{n}": 16 + n for n in range(8)}}
_SEVERITIES = {Level.CRITICAL: 2, Level.ERROR: 3, Level.WARNING: 4}
_NOTICE, _INFO = 5, 6
_NOT_PRINTABLE = re.compile(r"[^!-~]")
_Address = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]  # as the system tells it
_PARAM_SPECIAL = re.compile(r'(["\\\]])')


class Transport(Enum):
    UDP = "udp"
    TCP = "tcp"
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class SyslogSettings:
    host: str
    port: int
    transport: Transport = Transport.UDP
    facility: str = "daemon"
    ca_file: Path | None = None


class Syslog:
    """Sends to one receiver. Syslog has no receipts: what is known is told, and that is all there is."""

    def __init__(self, settings: SyslogSettings, *, timeout_s: float = TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._trust = Trust(settings.ca_file)
        self._reasons = Reasons()

    async def send(self, message: Message) -> None:
        udp = self._settings.transport is Transport.UDP
        limit = DATAGRAM_BYTES_MAX if udp else RECORD_BYTES_MAX
        records = syslog_records(message, self._settings.facility, limit)
        context = await self._trust.context() if self._settings.transport is Transport.TLS else None
        async with self._reasons.bounded(self._timeout_s):
            if udp:
                await self._send_datagrams(records)
            else:
                await self._send_stream(records, context)

    async def _send_datagrams(self, records: Sequence[bytes]) -> None:
        """To the first address of the name that does not say no."""
        found = await asyncio.get_running_loop().getaddrinfo(
            self._settings.host, self._settings.port, type=socket.SOCK_DGRAM
        )
        *others, last = [(family, address) for family, *_, address in found[:ADDRESSES_MAX]]
        for family, address in others:
            try:
                await _send_datagrams_to(family, address, records)
            except OSError:
                continue
            return
        await _send_datagrams_to(*last, records)

    async def _send_stream(self, records: Sequence[bytes], context: ssl.SSLContext | None) -> None:
        name = self._settings.host if context is not None else None
        reader, writer = await asyncio.open_connection(
            self._settings.host, self._settings.port, ssl=context, server_hostname=name, limit=1024
        )
        writer.transport.set_write_buffer_limits(high=0)  # drained: all of it is on its way
        try:
            for record in records:
                writer.write(b"%d %b" % (len(record), record))
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
                await _goes_on(reader, GOODBYE_S)  # or it ends too: then it has read everything
            elif not await _goes_on(reader, REFUSAL_WAIT_S):
                raise ConnectionResetError(errno.ECONNRESET, "")
        finally:
            writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await writer.wait_closed()


async def _send_datagrams_to(family: int, address: _Address, records: Sequence[bytes]) -> None:
    to = socket.socket(family, socket.SOCK_DGRAM)
    try:
        to.setblocking(False)
        to.connect(address)
        transport, refusal = await asyncio.get_running_loop().create_datagram_endpoint(_Refusal, sock=to)
    except BaseException:
        to.close()
        raise
    try:
        for record in records:
            transport.sendto(record)
        with suppress(TimeoutError):
            async with asyncio.timeout(REFUSAL_WAIT_S):
                await refusal.told
    finally:
        transport.close()


async def _goes_on(reader: asyncio.StreamReader, wait_s: float) -> bool:
    """Whether the other side says nothing for so long; a connection that breaks raises."""
    try:
        async with asyncio.timeout(wait_s):
            return await reader.read(1) != b""
    except TimeoutError:
        return True


class _Refusal(asyncio.DatagramProtocol):
    """``told`` fails where the other side, or this machine, says that a datagram cannot arrive."""

    def __init__(self) -> None:
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def error_received(self, exc: Exception) -> None:
        if not self.told.done():
            self.told.set_exception(exc)


def syslog_records(message: Message, facility: str, limit_bytes: int) -> list[bytes]:
    """A record for each alert, and one that counts those which the message has no room for."""
    records = [_record(message, item, facility, limit_bytes) for item in message.items]
    if message.more:
        head = _head(message, _SEVERITIES[message.level], facility, "more")
        params = _params({"server": message.server, "more": str(message.more)})
        records.append(_encoded(f"{head} {params}", more(message.more, message.language), limit_bytes))
    return records


def _record(message: Message, item: MessageItem, facility: str, limit_bytes: int) -> bytes:
    params = {
        "kind": item.kind,
        "about": item.about,
        "level": item.level.value,
        "turn": item.turn.value,
        "server": message.server,
    }
    if item.alert is not None:
        params["alert"] = str(item.alert)
    language = message.language
    text = (
        f"{label(item, language)}{between(language)}{line(item.title, TITLE_BYTES_MAX)} "
        f"({line(item.about, ABOUT_BYTES_MAX)}){between(language)}{line(item.text, limit_bytes)}"
    )
    head = _head(message, _severity(item), facility, item.kind)
    return _encoded(f"{head} {_params(params)}", text, limit_bytes)


def _severity(item: MessageItem) -> int:
    if item.turn is Turn.TEST:
        return _INFO
    return _NOTICE if item.turn is Turn.OVER else _SEVERITIES[item.level]


def _head(message: Message, severity: int, facility: str, kind: str) -> str:
    at = datetime.fromtimestamp(message.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    host = _name(message.server if message.server.isascii() else host_name(), NAME_BYTES_MAX)
    return f"<{_FACILITIES[facility] * 8 + severity}>1 {at} {host} evermirror - {_name(kind, 32)}"


def _name(text: str, chars_max: int) -> str:
    """Printable ASCII without spaces, as the fields of the head are."""
    return _NOT_PRINTABLE.sub("_", text)[:chars_max] or "-"


def _params(params: dict[str, str]) -> str:
    told = (
        f'{name}="{_escaped(line(value, ABOUT_BYTES_MAX if name == "about" else NAME_BYTES_MAX))}"'
        for name, value in params.items()
    )
    return f"[{_ID} {' '.join(told)}]"


def _escaped(value: str) -> str:
    return _PARAM_SPECIAL.sub(r"\\\1", value)


def _encoded(head: str, text: str, limit_bytes: int) -> bytes:
    begun = head.encode("utf-8") + b" "
    if not text.isascii():
        begun += _BOM.encode("utf-8")  # how the standard marks UTF-8
    return begun + clip(text, limit_bytes - len(begun)).encode("utf-8")
