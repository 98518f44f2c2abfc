"""The HTTP server's own bounds, seen from a socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from evermirror.faces.api.problems import CatchAll
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


async def client_told(headers: bytes, **options) -> bytes:
    """Which client an application sees in a request from this machine."""

    async def tell(scope, receive, send):
        address = scope["client"][0].encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"<" + address + b">"})

    sock = lifecycle.bind("127.0.0.1:0")
    async with http_server.serving(tell, sock, **options):
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + headers + b"\r\n")
        async with asyncio.timeout(10):
            answer = await reader.read()
        writer.close()
    return answer.partition(b"<")[2].partition(b">")[0]


FORWARDED = b"X-Forwarded-For: 198.51.100.1, 203.0.113.9\r\n"


async def test_nobodys_forwarding_header_is_believed_unless_set(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own setting
    assert await client_told(FORWARDED) == b"127.0.0.1"
    assert await client_told(FORWARDED, trusted_proxies=["127.0.0.2"]) == b"127.0.0.1"


async def test_a_trusted_proxy_says_who_its_client_is():
    assert await client_told(FORWARDED, trusted_proxies=["127.0.0.1"]) == b"203.0.113.9"
    assert await client_told(b"", trusted_proxies=["127.0.0.1"]) == b"127.0.0.1"


@pytest.mark.parametrize(("proxies", "answered"), [([], 2), (["127.0.0.0/8"], 6)])
async def test_a_trusted_proxy_may_use_all_connections_and_others_their_share(proxies, answered):
    """Six are open in all, two for each address: a proxy has the connections of all its clients."""
    sock = lifecycle.bind("127.0.0.1:0")
    bounds = {"connections": 6, "connections_per_address": 2}
    async with (
        http_server.serving(app, sock, trusted_proxies=proxies, **bounds),
        asyncio.timeout(10),
        contextlib.AsyncExitStack() as stack,
    ):
        count = 0
        for _ in range(8):
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(*sock.getsockname())
                stack.callback(writer.close)
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                count += (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        assert count == answered


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


async def test_who_still_waits_at_a_stop_is_told_to_come_again(monkeypatch):
    monkeypatch.setattr(http_server, "STOP_S", 0.1)
    sock = lifecycle.bind("127.0.0.1:0")
    async with contextlib.AsyncExitStack() as stack:
        stop = await stack.enter_async_context(contextlib.AsyncExitStack())
        await stop.enter_async_context(http_server.serving(CatchAll(app), sock))
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        stack.callback(writer.close)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        other = await asyncio.open_connection(*sock.getsockname())
        other[1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await other[0].readuntil(b"ok")  # so the first is being read, too
        other[1].close()
        async with asyncio.timeout(10):
            await stop.aclose()
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 503")
    assert b"retry-after: 5" in lines
    assert b"connection: close" in lines
    assert b"being stopped" in body


async def test_an_answer_that_has_begun_is_cut_off_at_a_stop():
    async def endless(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    sent = []

    async def send(message):
        sent.append(message)

    task = asyncio.create_task(CatchAll(endless)({"type": "http"}, None, send))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [message["type"] for message in sent] == ["http.response.start"]
