"""The client against servers that keep alive, close, drip, flood, cut, or are not who they say."""

import asyncio
import gzip
import ssl
import zlib

import pytest
import trustme

from evermirror.edge.git.connection import HttpLimits, Origin
from evermirror.edge.git.httpclient import HttpClient, tls_context
from evermirror.model.failure import FailureError, FailureKind
from tests.support.raw_server import always, http, raw_server

ADDRESS = ("127.0.0.1",)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
async def make_client():
    clients = []

    def make(tls=None, **limits):
        clients.append(HttpClient(HttpLimits(**limits), tls or ssl.create_default_context()))
        return clients[-1]

    yield make
    for client in clients:
        await client.close()


def origin(server, scheme="http", host="git.example"):
    return Origin(scheme, host, server.port)


async def failure(awaitable):
    with pytest.raises(FailureError) as e:
        await asyncio.wait_for(awaitable, 20)
    return e.value.failure


async def test_one_connection_serves_request_after_request(make_client):
    client = make_client()
    async with raw_server(always(http(b"one"), http(b"two"))) as server:
        bodies = [(await client.request(origin(server), ADDRESS, GET)).body for _ in range(3)]
        assert bodies == [b"one", b"two", b"two"]
        assert server.connections == 1
        assert (client.stats.opened, client.stats.reused, client.idle) == (1, 2, 1)


async def test_requests_at_once_get_their_own_connections_and_their_own_answers(make_client):
    client = make_client()

    async def echo(c):
        while True:
            path = (await c.request()).split()[1]
            await c.say(http(path))

    async with raw_server(echo) as server:

        async def ask(n):
            return await client.request(origin(server), ADDRESS, b"GET /%d HTTP/1.1\r\n\r\n" % n)

        answers = await asyncio.gather(*(ask(n) for n in range(20)))
        assert [a.body for a in answers] == [b"/%d" % n for n in range(20)]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX: y\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
@pytest.mark.parametrize("piecemeal", [False, True])
async def test_every_way_to_end_a_body_is_understood(make_client, answer, piecemeal):
    async def talk(c):
        await c.request()
        for piece in [answer[i : i + 1] for i in range(len(answer))] if piecemeal else [answer]:
            await c.say(piece)
            await asyncio.sleep(0)

    async with raw_server(talk) as server:
        response = await make_client().request(origin(server), ADDRESS, GET)
        assert (response.status, response.body) == (200, b"hello")
        assert response.header("x") == ""


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(b"hello" * 100, mtime=0)),
        ("deflate", zlib.compress(b"hello" * 100)),
        ("identity", b"hello" * 100),
    ],
)
async def test_packed_bodies_are_unpacked(make_client, coding, packed):
    async with raw_server(always(http(packed, more=f"Content-Encoding: {coding}\r\n"))) as server:
        assert (await make_client().request(origin(server), ADDRESS, GET)).body == b"hello" * 100


@pytest.mark.parametrize(
    ("packed", "coding", "says"),
    [
        (gzip.compress(b"\0" * 10_000_000, mtime=0), "gzip", "larger than 1000000 bytes"),
        (gzip.compress(b"hello", mtime=0)[:-9], "gzip", "cut short"),
        (b"hello", "gzip", "not gzip"),
        (b"hello", "br", "not asked for"),
    ],
)
async def test_bombs_and_bad_packing_are_refused(make_client, packed, coding, says):
    client = make_client(answer_bytes=1_000_000)
    async with raw_server(always(http(packed, more=f"Content-Encoding: {coding}\r\n"))) as server:
        found = await failure(client.request(origin(server), ADDRESS, GET))
        assert found.kind is FailureKind.UNKNOWN
        assert says in found.message


async def test_a_connection_closed_between_requests_is_replaced_silently(make_client):
    client = make_client()
    closed = asyncio.Event()

    async def once(c):
        await c.request()
        await c.say(http(b"%d" % c.number))
        await closed.wait()

    async with raw_server(once) as server:
        assert (await client.request(origin(server), ADDRESS, GET)).body == b"1"
        closed.set()  # the client may learn of it before or after it writes
        assert (await client.request(origin(server), ADDRESS, GET)).body == b"2"


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_connection_ended_as_we_write_is_tried_once_more_on_a_fresh_one(make_client, how):
    client = make_client()

    async def talk(c):
        await c.request()
        if c.number == 1:
            await c.say(http(b"1"))
            await c.request()
        else:
            await c.say(http(b"2"))
        if how == "reset":
            c.reset()

    async with raw_server(talk) as server:
        await client.request(origin(server), ADDRESS, GET)
        assert (await client.request(origin(server), ADDRESS, GET)).body == b"2"
        assert server.connections == 2


async def test_a_fresh_connection_that_ends_without_an_answer_is_the_networks_fault(make_client):
    async def talk(c):
        await c.request()

    async with raw_server(talk) as server:
        found = await failure(make_client().request(origin(server), ADDRESS, GET))
        assert found.kind is FailureKind.NETWORK_TIMEOUT
        assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-",
    ],
)
async def test_an_answer_cut_short_is_never_taken_for_whole(make_client, answer):
    async def talk(c):
        await c.request()
        await c.say(answer)

    async with raw_server(talk) as server:
        found = await failure(make_client().request(origin(server), ADDRESS, GET))
        assert found.kind is FailureKind.NETWORK_TIMEOUT
        assert "bytes of an answer" in found.message


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/9.9 nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nrubbish",
    ],
)
async def test_what_is_not_http_is_malformed(make_client, answer):
    client = make_client(answer_s=5)
    async with raw_server(always(answer)) as server:
        found = await failure(client.request(origin(server), ADDRESS, GET))
        assert (found.kind, found.message) == (FailureKind.UNKNOWN, "malformed answer: not HTTP")
        assert client.idle == 0


@pytest.mark.parametrize(
    ("start", "more", "says"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536, "larger than 500000 bytes"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"400\r\n" + b"x" * 1024 + b"\r\n",
            "larger than",
        ),
        (b"HTTP/1.1 200 OK\r\n", b"A: " + b"b" * 1000 + b"\r\n", "endless headers"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b" * 1000, "endless headers"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "endless headers"),
    ],
)
async def test_an_endless_answer_ends_at_its_bound(make_client, start, more, says):
    async def talk(c):
        await c.request()
        await c.say(start)
        while True:
            await c.say(more)

    client = make_client(answer_bytes=500_000)
    async with raw_server(talk) as server:
        found = await failure(client.request(origin(server), ADDRESS, GET))
        assert found.kind is FailureKind.UNKNOWN
        assert says in found.message


async def test_a_silent_server_is_left_after_the_answers_time(make_client):
    async def talk(c):
        await c.request()
        await c.reader.read()

    client = make_client(answer_s=0.2)
    async with raw_server(talk) as server:
        found = await failure(client.request(origin(server), ADDRESS, GET))
        assert (found.kind, found.message) == (FailureKind.NETWORK_TIMEOUT, "no complete answer in 0.2 s")


async def drip(c, head):
    await c.request()
    await c.say(head)
    while True:
        await c.say(b"x")
        await asyncio.sleep(0.01)


async def test_a_dripping_body_is_left_for_want_of_progress(make_client):
    client = make_client(answer_s=60, progress_check_s=0.1)
    async with raw_server(lambda c: drip(c, b"HTTP/1.1 200 OK\r\n\r\n")) as server:
        found = await failure(client.request(origin(server), ADDRESS, GET))
        assert found.kind is FailureKind.NETWORK_TIMEOUT
        assert "stalled after" in found.message


async def test_a_dripping_header_ends_with_the_answers_time(make_client):
    client = make_client(answer_s=0.3, progress_check_s=0.1)
    async with raw_server(lambda c: drip(c, b"HTTP/1.1 200 OK\r\nA: ")) as server:
        found = await failure(client.request(origin(server), ADDRESS, GET))
        assert found.message == "no complete answer in 0.3 s"


async def test_what_nobody_asked_for_ends_the_connection_and_reaches_nobody(make_client):
    client = make_client()

    async def talk(c):
        await c.request()
        await c.say(http(b"%d" % c.number) + http(b"poison"))
        await c.reader.read()

    async with raw_server(talk) as server:
        bodies = [(await client.request(origin(server), ADDRESS, GET)).body for _ in range(3)]
        assert bodies == [b"1", b"2", b"3"]


async def test_a_late_second_answer_does_not_poison_an_idle_connection(make_client):
    client = make_client()
    go, said = asyncio.Event(), asyncio.Event()

    async def talk(c):
        await c.request()
        await c.say(http(b"%d" % c.number))
        await go.wait()
        await c.say(http(b"poison"))
        said.set()
        await c.reader.read()

    async with raw_server(talk) as server:
        await client.request(origin(server), ADDRESS, GET)
        go.set()
        await said.wait()
        while client.idle:
            await asyncio.sleep(0.01)
        assert (await client.request(origin(server), ADDRESS, GET)).body == b"2"


async def test_a_cancelled_request_leaves_no_connection_behind(make_client):
    client = make_client()
    asked = asyncio.Event()

    async def talk(c):
        await c.request()
        asked.set()
        await c.reader.read()

    async with raw_server(talk) as server:
        task = asyncio.create_task(client.request(origin(server), ADDRESS, GET))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client.idle == 0


async def test_closing_ends_requests_under_way(make_client):
    client = make_client()
    asked = asyncio.Event()

    async def talk(c):
        await c.request()
        asked.set()
        await c.reader.read()

    async with raw_server(talk) as server:
        task = asyncio.create_task(client.request(origin(server), ADDRESS, GET))
        await asked.wait()
        await client.close()
        assert (await failure(task)).message == "stopped"


async def test_idle_connections_are_bounded_oldest_first_and_by_age(make_client):
    client = make_client(idle_max=2, idle_s=1.0)
    async with raw_server(always(http(b"x"))) as server:
        await asyncio.gather(*(client.request(origin(server), ADDRESS, GET) for _ in range(5)))
        assert client.idle == 2
        async with asyncio.timeout(10):
            while client.idle:
                await asyncio.sleep(0.02)


async def test_large_answers_take_turns_and_all_arrive(make_client):
    client = make_client(large_bytes=100_000, large_at_once=1)
    body = b"x" * 3_000_000
    async with raw_server(always(http(body))) as server:
        answers = await asyncio.gather(*(client.request(origin(server), ADDRESS, GET) for _ in range(4)))
        assert all(a.body == body for a in answers)


async def test_a_large_answer_that_waits_for_its_turn_is_still_bounded_in_time(make_client):
    client = make_client(large_bytes=100_000, large_at_once=1, answer_s=1.5, progress_check_s=0.5)

    async def talk(c):
        await c.request()
        await c.say(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b"x" * 200_000)
        while True:
            await asyncio.sleep(0.02)
            await c.say(b"y" * 5000)

    async with raw_server(talk) as server:
        asked = [client.request(origin(server), ADDRESS, GET) for _ in range(3)]
        for found in await asyncio.gather(*(failure(a) for a in asked)):
            assert found.message == "no complete answer in 1.5 s"


# Connecting


async def test_a_refused_connection_and_the_next_address(make_client):
    client = make_client()
    async with raw_server(always(http(b"x"))) as server:
        # Nothing listens on 127.0.0.2 at that port.
        response = await client.request(origin(server), ("127.0.0.2", "127.0.0.1"), GET)
        assert response.body == b"x"
    found = await failure(client.request(origin(server), ("127.0.0.2",), GET))
    assert found.kind is FailureKind.NETWORK_TIMEOUT
    assert found.message == f"connection to git.example:{server.port} refused"


async def test_a_handshake_that_never_comes_ends_in_time(make_client):
    async def mute(c):
        await c.reader.read()

    client = make_client(connect_s=0.2)
    async with raw_server(mute) as server:
        found = await failure(client.request(origin(server, "https"), ADDRESS, GET))
        assert found.message == f"no connection to git.example:{server.port} in 0.2 s"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def server_tls(authority, *names):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


@pytest.fixture
def client_tls(authority, tmp_path):
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return tls_context(str(tmp_path / "ca.pem"))


async def test_tls_goes_to_the_pinned_address_and_checks_the_name(make_client, authority, client_tls):
    client = make_client(client_tls)
    names = []
    context = server_tls(authority, "git.example")
    context.sni_callback = lambda _, name, __: names.append(name)
    async with raw_server(always(http(b"secret")), context) as server:
        for _ in range(2):
            assert (await client.request(origin(server, "https"), ADDRESS, GET)).body == b"secret"
        assert (names, server.connections) == (["git.example"], 1)


async def test_a_certificate_for_another_name_is_refused(make_client, authority, client_tls):
    async with raw_server(always(http(b"x")), server_tls(authority, "other.example")) as server:
        found = await failure(make_client(client_tls).request(origin(server, "https"), ADDRESS, GET))
        assert found.kind is FailureKind.UNKNOWN
        assert found.message.startswith(
            f"certificate of git.example:{server.port} refused: Hostname mismatch"
        )


async def test_an_unknown_authority_is_refused(make_client, authority):
    async with raw_server(always(http(b"x")), server_tls(authority, "git.example")) as server:
        found = await failure(make_client(tls_context()).request(origin(server, "https"), ADDRESS, GET))
        assert found.kind is FailureKind.UNKNOWN
        assert "certificate" in found.message


async def test_a_plain_server_behind_https_is_a_tls_failure(make_client, client_tls):
    async def talk(c):
        await c.reader.read(1)
        await c.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(talk) as server:
        found = await failure(make_client(client_tls).request(origin(server, "https"), ADDRESS, GET))
        assert found.kind is FailureKind.NETWORK_TIMEOUT
        assert "TLS" in found.message


async def test_names_never_share_a_connection_even_at_one_address(make_client):
    client = make_client()
    async with raw_server(always(http(b"x"))) as server:
        for host in ("a.example", "b.example", "a.example"):
            await client.request(origin(server, host=host), ADDRESS, GET)
        assert server.connections == 2
