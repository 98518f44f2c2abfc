"""The HTTP server's own bounds, seen from a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from evermirror.nodes import http_server, lifecycle


async def app(scope, receive, send):
    body = b""
    while (message := await receive()).get("more_body"):
        body += message["body"]
    body += message["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def connected():
    sock = lifecycle.bind("127.0.0.1:0")
    async with http_server.serving(app, sock):
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()


async def test_headers_without_end_are_refused_and_not_kept():
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with contextlib.suppress(ConnectionError):
            for n in range(200):
                writer.write(b"X-Long-%d: %s\r\n" % (n, b"y" * 1000))
                await writer.drain()
        answer = b""
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):  # what we still sent may have reset the connection
                answer = await reader.read()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


async def test_a_head_that_never_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
        async with asyncio.timeout(10):
            assert await reader.read() == b""


@pytest.mark.parametrize("chunk", [1, 100, 100_000])
async def test_a_large_body_is_not_taken_for_a_head(chunk):
    size = 300_000 if chunk > 1 else 20_000
    async with connected() as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(size // chunk):
            writer.write(b"%x\r\n%s\r\n" % (chunk, b"z" * chunk))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_answers_do_not_wait_for_acknowledgements(monkeypatch):
    made = []
    before = http_server._BoundedHttp.connection_made

    def connection_made(self, transport):
        made.append(transport.get_extra_info("socket"))
        before(self, transport)

    monkeypatch.setattr(http_server._BoundedHttp, "connection_made", connection_made)
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"ok")
        assert made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
