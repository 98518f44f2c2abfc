"""Polls over TLS, against servers that cut, flood, stall and leave."""

import asyncio
import gc
import gzip
import ssl

import pytest
import trustme

from evermirror.edge.git.connection import HttpLimits, Origin
from evermirror.edge.git.httpclient import HttpClient, tls_context
from evermirror.model.failure import FailureError, FailureKind
from tests.support.raw_server import raw_server

ADDRESS = ("127.0.0.1",)
GET = b"GET / HTTP/1.1\r\nHost: git.example\r\n\r\n"
SMALL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def serving(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("git.example").configure_cert(context)
    return context


@pytest.fixture
async def make_client(authority, tmp_path):
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    clients = []

    def make(**limits):
        clients.append(HttpClient(HttpLimits(**limits), tls_context(str(tmp_path / "ca.pem"))))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


def asked(client, server):
    return client.request(Origin("https", "git.example", server.port), ADDRESS, GET)


async def request_read(c):
    await c.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_an_answer_of_many_records_comes_whole(make_client, serving, version):
    serving.maximum_version = version
    body = bytes(range(256)) * 12_000  # 3 MB: larger than what is read at once, and than a large answer

    async def talk(c):
        for _ in range(2):
            await request_read(c)
            await c.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    client = make_client()
    async with raw_server(talk, serving) as server:
        for _ in range(2):
            assert (await asked(client, server)).body == body
        assert server.connections == 1


async def test_a_large_answer_that_waits_for_its_slot_goes_on(make_client, serving):
    body = b"x" * 2_000_000

    async def talk(c):
        await request_read(c)
        await c.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    client = make_client(large_at_once=1)
    async with raw_server(talk, serving) as server:
        answers = await asyncio.gather(*(asked(client, server) for _ in range(3)))
        assert [len(a.body) for a in answers] == [len(body)] * 3


async def test_a_server_that_says_farewell_between_requests_is_asked_anew(make_client, serving):
    async def talk(c):
        await request_read(c)
        await c.say(SMALL)

    client = make_client()
    async with raw_server(talk, serving) as server:
        for _ in range(3):
            assert (await asked(client, server)).body == b"ok"
            async with asyncio.timeout(10):
                while client.idle:  # the farewell may come after the answer
                    await asyncio.sleep(0.01)
        assert (server.connections, client.idle) == (3, 0)


async def test_bytes_that_are_no_record_end_the_connection(make_client, serving):
    async def talk(c):
        await request_read(c)
        c.writer.transport._ssl_protocol._transport.write(b"\x17\x03\x03\x00\x20" + b"?" * 32)
        await asyncio.sleep(30)

    client = make_client()
    async with raw_server(talk, serving) as server:
        with pytest.raises(FailureError) as error:
            await asyncio.wait_for(asked(client, server), 15)
        assert error.value.failure.kind is FailureKind.NETWORK_TIMEOUT
        assert "closed before an answer" in error.value.failure.message


@pytest.mark.parametrize(("leaves", "said"), [(True, "failed: lost"), (False, "no connection to")])
async def test_hands_that_are_never_shaken(make_client, leaves, said):
    async def talk(c):
        await c.reader.read(1)
        if not leaves:
            await asyncio.sleep(30)

    client = make_client(connect_s=10 if leaves else 0.3)
    async with raw_server(talk) as server:
        with pytest.raises(FailureError) as error:
            await asyncio.wait_for(asked(client, server), 15)
        assert error.value.failure.kind is FailureKind.NETWORK_TIMEOUT
        assert said in error.value.failure.message
        assert client.stats.opened == 0


async def test_an_idle_connection_is_closed_with_a_farewell(make_client, serving):
    ended = asyncio.Event()

    async def talk(c):
        await request_read(c)
        await c.say(SMALL)
        assert await c.reader.read() == b""
        ended.set()

    client = make_client(idle_s=0.1)
    async with raw_server(talk, serving) as server:
        await asked(client, server)
        await asyncio.wait_for(ended.wait(), 3)
        assert client.idle == 0


async def test_a_large_answer_that_ended_before_its_slot_came_leaves_a_connection_that_hears(
    make_client, serving
):
    body = b"x" * 1_000_500  # a little above a large answer: paused, and complete in the same moment
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    held = asyncio.Event()

    async def talk(c):
        await request_read(c)
        await c.say(whole[:-1] if server.connections == 1 else whole)
        if server.connections == 1:
            await held.wait()
            await c.say(whole[-1:])
        await request_read(c)
        await c.say(SMALL)

    client = make_client(large_at_once=1, large_bytes=1_000_000, answer_s=5)
    async with raw_server(talk, serving) as server:
        first = asyncio.create_task(asked(client, server))
        while not client._large:
            await asyncio.sleep(0.005)
        second = await asked(client, server)
        held.set()
        assert [len(second.body), len((await first).body)] == [len(body)] * 2
        answers = await asyncio.gather(*(asked(client, server) for _ in range(2)))
        assert [a.body for a in answers] == [b"ok"] * 2
        assert server.connections == 2


@pytest.mark.parametrize("farewell", [True, False])
async def test_a_paused_answer_that_is_cut_and_too_large_ends_quietly(make_client, serving, caplog, farewell):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    held, gone = asyncio.Event(), asyncio.Event()

    async def talk(c):
        await request_read(c)
        await c.say(head + b"%x\r\n" % 1_050_000 + b"x" * 1_050_000)
        if c.number == 1:
            await held.wait()
            await c.say(b"\r\n0\r\n\r\n")
            await asyncio.sleep(30)
        await c.say(b"\r\n%x\r\n" % 100_000 + b"x" * 100_000)
        if not farewell:
            c.writer.transport._ssl_protocol._transport.close()
        gone.set()

    client = make_client(large_at_once=1, large_bytes=1_000_000, answer_bytes=1_100_000)
    async with raw_server(talk, serving) as server:
        first = asyncio.create_task(asked(client, server))
        while not client._large:
            await asyncio.sleep(0.005)
        second = asyncio.create_task(asked(client, server))
        await gone.wait()
        await asyncio.sleep(0.2)  # all of it has arrived, and waits in the connection
        held.set()
        assert len((await first).body) == 1_050_000
        with pytest.raises(FailureError, match="larger than 1100000 bytes"):
            await second
        await asyncio.sleep(0.05)
        assert len(client._open) == 1
    assert caplog.text == ""


async def test_a_server_that_says_farewell_and_reads_nothing_is_not_waited_for(make_client, serving):
    async def talk(c):
        c.writer.transport._ssl_protocol._transport.pause_reading()
        await c.say(SMALL)
        c.writer.close()
        try:
            await asyncio.sleep(30)
        finally:
            c.reset()

    client = make_client()
    async with raw_server(talk, serving) as server:
        request = GET + bytes(20_000_000)  # more than the sockets hold
        answer = await client.request(Origin("https", "git.example", server.port), ADDRESS, request)
        assert answer.body == b"ok"
        async with asyncio.timeout(5):
            while client._open:
                await asyncio.sleep(0.01)


async def test_who_is_cancelled_while_connecting_leaves_nothing_behind(make_client, serving, caplog):
    async def talk(c):
        await request_read(c)
        await c.say(SMALL)

    client = make_client()
    async with raw_server(talk, serving) as server:
        for turns in range(40):
            asking = asyncio.create_task(asked(client, server))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
    assert len(client._open) <= client.idle


async def test_a_packed_answer_is_bound_as_the_caller_says(make_client, serving):
    packed = gzip.compress(bytes(100_000))

    async def talk(c):
        await request_read(c)
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
        await c.say(head % len(packed) + packed)

    client = make_client()
    async with raw_server(talk, serving) as server:
        origin = Origin("https", "git.example", server.port)
        with pytest.raises(FailureError, match="larger than 50000 bytes"):
            await client.request(origin, ADDRESS, GET, 50_000)
