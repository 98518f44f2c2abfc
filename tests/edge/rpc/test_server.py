"""The gRPC server against strangers, liars and broken clients: only who may gets in, nobody harms another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
from pathlib import Path

import grpc
import pytest
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from evermirror.edge.rpc import certificates
from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.convert import FRAME_BYTES_MAX
from evermirror.edge.rpc.convert_values import FrameInvalid
from evermirror.edge.rpc.join import fetch_ca
from evermirror.edge.rpc.limits import METHOD, RpcLimits
from evermirror.edge.rpc.pki import OwnCa, ca_fingerprint, make_ca
from evermirror.edge.rpc.server import GrpcServer, is_loopback
from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.errors import EnvironmentUnfit, UsageError
from evermirror.model.access import Role
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.messages import LookAt
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Answer, Obeyed, Ordered, Taken
from tests.edge.rpc.conftest import Served, Start, works

pytestmark = pytest.mark.timeout(60)


async def refused(dialer: GrpcDialer) -> FailureError:
    with pytest.raises(FailureError) as caught:
        async with asyncio.timeout(20):
            await dialer.dial()
    return caught.value


def channel_to(served: Served) -> aio.Channel:
    """A client of its own, not held to anything."""
    credentials = grpc.ssl_channel_credentials(served.ca.ca_pem)
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return aio.secure_channel(served.address, credentials, options=options)


def bearer(token: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


async def test_a_worker_with_its_token_gets_in(served: Served):
    await works(served, await served.token())
    assert served.peers[0].identity.name == "w1"
    assert served.peers[0].address.startswith("127.0.0.1:")


async def test_an_aggregator_gets_in_too(served: Served):
    await works(served, await served.token(role=Role.AGGREGATOR))
    assert served.peers[0].identity.role is Role.AGGREGATOR


async def test_a_wrong_token_is_refused(served: Served):
    await served.token()
    error = await refused(served.dialer("em_wrongwrongwrong"))
    assert error.failure.kind is FailureKind.AUTH_FAILED
    assert "token" in error.failure.message
    assert error.failure.hint
    assert served.peers == []


async def test_a_revoked_token_is_refused_and_its_connections_are_ended(served: Served):
    token = await served.token()
    connection = await served.dialer(token).dial()
    await connection.send(Obeyed(1))
    assert await connection.receive() == Taken(0, 1)
    record = await served.store.revoke_token("w1")
    await served.server.close_token(record.id, "the token was revoked")
    with pytest.raises(PeerGone, match="revoked"):
        await connection.receive()
    await connection.close()
    assert (await refused(served.dialer(token))).failure.kind is FailureKind.AUTH_FAILED


@pytest.mark.parametrize("role", [Role.ADMIN, Role.OPERATOR, Role.SUBMITTER, Role.READER])
async def test_a_persons_token_is_not_a_workers(served: Served, role: Role):
    error = await refused(served.dialer(await served.token(role=role)))
    assert error.failure.kind is FailureKind.PERMISSION_DENIED
    assert role.value in error.failure.message


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer"),),
        (("authorization", "Basic em_x"),),
        (("authorization", "Bearer " + "x" * 600),),
        (("authorization", "Bearer a b"),),
        (("authorization", "Bearer em_a"), ("authorization", "Bearer em_b")),
    ],
)
async def test_whoever_shows_no_token_is_refused_before_anything_is_read(served: Served, metadata):
    async with channel_to(served) as channel:
        call = channel.stream_stream(METHOD)(metadata=metadata)
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
    assert served.peers == []


async def test_no_token_is_told_or_logged(served: Served, caplog: pytest.LogCaptureFixture, tmp_path: Path):
    caplog.set_level(logging.DEBUG)
    canary, good = "em_canarycanarycanary", await served.token()
    with structlog.testing.capture_logs() as logs:
        error = await refused(served.dialer(canary))
        other_ca = make_ca(tmp_path / "other", []).ca_pem
        untrusted = await refused(served.dialer(good, ca_pem=other_ca))
        await works(served, good)
    told = f"{logs}{caplog.text}{error}{error.failure}{untrusted}{untrusted.failure}"
    assert canary not in told
    assert good not in told


async def test_another_ca_is_not_believed_and_sees_no_token(own_ca: OwnCa, tmp_path: Path):
    shown: list[str] = []

    async def authenticate(token: str) -> Identity | None:
        shown.append(token)
        return Identity(1, "w", Role.WORKER, False)

    async def accept(peer: Peer) -> None:
        await peer.receive()

    impostor = make_ca(tmp_path / "impostor", [])
    async with GrpcServer(
        "127.0.0.1:0", tls=impostor.tls, authenticate=authenticate, accept=accept
    ) as server:
        dialer = GrpcDialer(f"127.0.0.1:{server.port}", "em_secret_secret", ca_pem=own_ca.ca_pem)
        error = await refused(dialer)
        assert error.failure.kind is FailureKind.AUTH_FAILED
        assert "certificate" in error.failure.message
        public = await refused(GrpcDialer(f"127.0.0.1:{server.port}", "em_secret_secret"))
        assert public.failure.kind is FailureKind.AUTH_FAILED
    assert shown == []


async def test_a_name_that_the_certificate_lacks_is_not_believed(served: Served):
    token = await served.token()
    error = await refused(served.dialer(token, server_name="elsewhere.example"))
    assert error.failure.kind is FailureKind.AUTH_FAILED
    for name in ("", "coordinator.example", "localhost", "127.0.0.1"):
        connection = await served.dialer(token, server_name=name).dial()
        await connection.close()


async def test_a_client_without_tls_gets_nowhere(served: Served):
    token = await served.token()
    error = await refused(served.dialer(token, plaintext=True))
    assert error.failure.kind is FailureKind.NETWORK_TIMEOUT
    await works(served, token)


async def test_a_server_without_tls_is_not_spoken_with(start: Start):
    async with start(tls=False) as served:
        token = await served.token()
        error = await refused(served.dialer(token))
        assert error.failure.kind is FailureKind.NETWORK_TIMEOUT
        assert served.peers == []
        connection = await served.dialer(token, plaintext=True).dial()
        await connection.close()


async def test_nobody_there_is_told_as_such(served: Served):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await refused(
            GrpcDialer(f"127.0.0.1:{taken.getsockname()[1]}", "em_x", ca_pem=served.ca.ca_pem)
        )
    assert error.failure.kind is FailureKind.NETWORK_TIMEOUT


async def test_a_server_that_accepts_and_says_nothing_is_given_up(own_ca: OwnCa):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        error = await refused(GrpcDialer(address, "em_x", ca_pem=own_ca.ca_pem, limits=RpcLimits(dial_s=1.0)))
    assert error.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "within 1 s" in error.failure.message


async def test_a_store_that_is_away_is_weather(own_ca: OwnCa):
    async def broken(_: str) -> Identity | None:
        raise ConnectionError("no database")

    async def accept(peer: Peer) -> None:
        await peer.receive()

    async with GrpcServer("127.0.0.1:0", tls=own_ca.tls, authenticate=broken, accept=accept) as server:
        error = await refused(GrpcDialer(f"127.0.0.1:{server.port}", "em_x", ca_pem=own_ca.ca_pem))
    assert error.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "database" not in error.failure.message


async def test_garbage_on_the_port_harms_nobody(served: Served):
    token = await served.token()
    living = await served.dialer(token).dial()
    rng = random.Random(5)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=served.ca.ca_pem.decode())
    context.set_alpn_protocols(["h2"])
    for number in range(60):
        start = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", preface][number % 4]
        tls = context if number % 2 else None
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port, ssl=tls)
            writer.write(start + rng.randbytes(rng.randrange(2000)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reader.read()
            writer.transport.abort()
    await living.send(Obeyed(3))
    assert await living.receive() == Taken(0, 3)
    await living.close()
    await works(served, token)


async def test_200_connections_that_send_nothing_keep_nobody_out(start: Start):
    async with start(handshake_s=2.0) as served:
        token = await served.token()
        silent = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(200)]
        await works(served, token)
        async with asyncio.timeout(10):  # and they do not stay
            for reader, _ in silent:
                with contextlib.suppress(OSError):
                    assert await reader.read() == b""
        for _, writer in silent:
            writer.transport.abort()
        await works(served, token)


async def test_connections_without_a_stream_do_not_stay(start: Start):
    async with start(idle_s=1.0) as served, channel_to(served) as channel:
        await channel.channel_ready()
        async with asyncio.timeout(10):
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert channel.get_state() is not grpc.ChannelConnectivity.READY


async def test_there_are_only_so_many_connections(start: Start):
    async with start(connections_max=3) as served:
        tokens = [await served.token(f"w{n}") for n in range(5)]
        inside = [await served.dialer(token).dial() for token in tokens[:3]]
        error = await refused(served.dialer(tokens[3]))
        assert error.failure.kind is FailureKind.RATE_LIMITED
        await inside.pop().close()
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(FailureError):
                    inside.append(await served.dialer(tokens[4]).dial())
                    break
                await asyncio.sleep(0.1)
        for connection in inside:
            await connection.close()


async def test_a_place_is_free_again_however_often_it_was_taken(start: Start):
    async with start(connections_max=3, streams_per_token=1) as served:
        token = await served.token()
        for _ in range(12):
            await works(served, token)
        assert served.server.connected() == 0


async def test_one_token_does_not_take_all_places(start: Start):
    async with start(streams_per_token=2) as served:
        greedy, other = await served.token("greedy"), await served.token("other")
        inside = [await served.dialer(greedy).dial() for _ in range(2)]
        error = await refused(served.dialer(greedy))
        assert error.failure.kind is FailureKind.RATE_LIMITED
        await works(served, other)
        await inside.pop().close()
        await works(served, greedy)
        await inside.pop().close()


async def test_a_client_that_never_reads_keeps_its_place_and_no_other(start: Start):
    """Not even its stream's end gets through to it; so the place stays taken until it reads or goes."""
    async with start(streams_per_token=1, send_s=0.5, close_s=0.2) as served:
        greedy, other = await served.token("greedy"), await served.token("other")
        deaf = await served.dialer(greedy).dial()
        await works(served, other)
        peer = served.peers[0]
        with pytest.raises(PeerGone):
            await flood(peer)
        assert (await refused(served.dialer(greedy))).failure.kind is FailureKind.RATE_LIMITED
        await works(served, other)
        await deaf.close()
        await works(served, greedy)


async def flood(peer: Peer) -> None:
    for _ in range(100):
        await peer.send(Ordered(1, LookAt((RepoKey("k" * 2000),) * 500)))


async def test_a_frame_beyond_the_bound_ends_its_connection_only(served: Served):
    token, other = await served.token(), await served.token("other")
    living = await served.dialer(other).dial()
    async with channel_to(served) as channel:
        call = channel.stream_stream(METHOD)(metadata=bearer(token))
        await call.initial_metadata()
        with contextlib.suppress(grpc.RpcError):
            await call.write(bytes(FRAME_BYTES_MAX + 1024))
        assert await call.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
    await living.send(Obeyed(1))
    assert await living.receive() == Taken(0, 1)
    await living.close()
    assert served.heard == [Obeyed(1)]


async def test_a_frame_that_breaks_the_contract_ends_its_connection_only(served: Served):
    token, other = await served.token(), await served.token("other")
    living = await served.dialer(other).dial()
    async with channel_to(served) as channel:
        for raw in (b"\xff\xff\xff", b"", b"\x12\x00"):
            call = channel.stream_stream(METHOD)(metadata=bearer(token))
            await call.initial_metadata()
            await call.write(raw)
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert "broke the contract" in await call.details()
    await living.send(Obeyed(1))
    assert await living.receive() == Taken(0, 1)
    await living.close()
    assert served.heard == [Obeyed(1)]


async def test_a_frame_too_large_to_send_leaves_the_connection_as_it_is(served: Served):
    connection = await served.dialer(await served.token()).dial()
    with pytest.raises(FrameInvalid):
        await connection.send(Answer(1, "x" * 7_000_000))
    await connection.send(Obeyed(1))
    assert await connection.receive() == Taken(0, 1)
    await connection.close()


async def test_a_compressed_bomb_is_not_unpacked(served: Served):
    token = await served.token()
    async with channel_to(served) as channel:
        call = channel.stream_stream(METHOD)(metadata=bearer(token), compression=grpc.Compression.Gzip)
        await call.initial_metadata()
        with contextlib.suppress(grpc.RpcError):
            await call.write(bytes(200_000_000))
        assert await call.code() is not grpc.StatusCode.OK
    assert served.heard == []
    await works(served, token)


async def test_unknown_methods_are_not_there(served: Served):
    async with channel_to(served) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/evermirror.v1.Fleet/Destroy")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_is_told_as_it_is(served: Served):
    async with channel_to(served) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        states = health_pb2.HealthCheckResponse
        watching = stub.Watch(health_pb2.HealthCheckRequest(service="evermirror.v1.Fleet"))
        assert (await watching.read()).status == states.NOT_SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == states.NOT_SERVING
        await served.server.tell_serving()
        assert (await watching.read()).status == states.SERVING
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == states.SERVING
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.Check(health_pb2.HealthCheckRequest(service="other"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/grpc.health.v1.Health/Check")(b"\xff")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="other"))
        assert (await unknown.read()).status == states.SERVICE_UNKNOWN


async def test_a_watcher_that_never_reads_holds_up_no_change():
    async def nobody(_: str) -> None:
        return None

    async def accept(peer: Peer) -> None:
        await peer.receive()

    states = health_pb2.HealthCheckResponse
    async with GrpcServer("127.0.0.1:0", tls=None, authenticate=nobody, accept=accept) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(watch_without_reading())
        async with aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await asyncio.sleep(0.5)  # until its answer waits to be sent
            for serving in (True, False, True):
                async with asyncio.timeout(10):
                    await server.tell_serving(serving)
                told = (await stub.Check(health_pb2.HealthCheckRequest())).status
                assert told == (states.SERVING if serving else states.NOT_SERVING)
        writer.close()


def watch_without_reading() -> bytes:
    """HTTP/2 that asks for Health.Watch, and lets the server send no byte of the answer."""

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Watch",
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
    no_window = frame(4, 0, 0, (4).to_bytes(2, "big") + bytes(4)) + frame(4, 1, 0, b"")  # SETTINGS, their ACK
    request = frame(1, 4, 1, block) + frame(0, 1, 1, bytes(5))  # HEADERS, DATA: an empty message
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + no_window + request


async def test_only_so_many_may_watch(served: Served):
    channels = [channel_to(served) for _ in range(3)]
    calls = [
        health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        for channel in channels
        for _ in range(15)
    ]
    first = [call.read() for call in calls]
    answers = await asyncio.gather(*first, return_exceptions=True)
    assert sum(isinstance(a, aio.AioRpcError) for a in answers) == len(calls) - 32
    await works(served, await served.token())
    for channel in channels:
        await channel.close()


@pytest.mark.parametrize(
    ("listen", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("example.org:1", False),
        (":1", False),
    ],
)
def test_what_is_this_machine_only(listen: str, local: bool):
    assert is_loopback(listen) is local


async def test_no_tokens_in_the_clear_unless_said_so(own_ca: OwnCa):
    async def nobody(_: str) -> None:
        return None

    async def accept(peer: Peer) -> None:
        await peer.receive()

    with pytest.raises(UsageError, match="in the clear"):
        GrpcServer("0.0.0.0:0", tls=None, authenticate=nobody, accept=accept)
    async with GrpcServer(
        "0.0.0.0:0", tls=None, authenticate=nobody, accept=accept, plaintext_allowed=True
    ) as server:
        assert server.port


async def test_a_port_that_is_taken_is_told(served: Served):
    async def nobody(_: str) -> None:
        return None

    async def accept(peer: Peer) -> None:
        await peer.receive()

    with pytest.raises(EnvironmentUnfit, match="cannot listen"):
        async with GrpcServer(served.address, tls=None, authenticate=nobody, accept=accept):
            pass


async def test_a_renewed_certificate_is_shown_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def authenticate(_: str) -> Identity:
        return Identity(1, "w", Role.WORKER, False)

    async def accept(peer: Peer) -> None:
        await peer.receive()

    monkeypatch.setattr(certificates, "LOOK_EVERY_S", 0.0)
    own = make_ca(tmp_path, [])
    async with GrpcServer("127.0.0.1:0", tls=own.tls, authenticate=authenticate, accept=accept) as server:

        async def dial(name: str) -> None:
            address = f"127.0.0.1:{server.port}"
            connection = await GrpcDialer(address, "em_x", ca_pem=own.ca_pem, server_name=name).dial()
            await connection.close()

        await dial("")
        with pytest.raises(FailureError):
            await dial("new.example")
        make_ca(tmp_path, ["new.example"])
        await dial("new.example")
        own.tls.chain.unlink()  # a mishap: the last good one is used on
        await dial("new.example")


async def test_the_servers_own_chain_leads_a_worker_to_its_ca(served: Served):
    fingerprint = ca_fingerprint(served.ca.ca_pem)
    fetched = await fetch_ca("127.0.0.1", served.server.port, fingerprint)
    assert ca_fingerprint(fetched) == fingerprint
    connection = await served.dialer(await served.token(), ca_pem=fetched).dial()
    await connection.close()


async def test_stopping_waits_for_nobody_for_long(own_ca: OwnCa):
    cancelled = asyncio.Event()

    async def authenticate(_: str) -> Identity:
        return Identity(1, "w", Role.WORKER, False)

    async def stubborn(_: Peer) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    limits = RpcLimits(stop_s=0.5, close_s=0.2)
    async with GrpcServer(
        "127.0.0.1:0", tls=own_ca.tls, authenticate=authenticate, accept=stubborn, limits=limits
    ) as server:
        connection = await GrpcDialer(f"127.0.0.1:{server.port}", "em_x", ca_pem=own_ca.ca_pem).dial()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 10
    assert cancelled.is_set()
    with pytest.raises(PeerGone):
        await connection.receive()
    await connection.close()
