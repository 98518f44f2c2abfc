"""What a connection of worker and coordinator promises, over gRPC with TLS and within one process alike."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.limits import RpcLimits
from evermirror.edge.rpc.pki import OwnCa, make_ca
from evermirror.edge.rpc.server import GrpcServer
from evermirror.edge.rpc.transport import Accept, Connection, Dialer, Identity, Peer, PeerGone
from evermirror.model.access import Role
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import AssignRepos, LookAt, Synced, SyncNow
from evermirror.model.push import Pushed, PushedRef, PushTo, RefOutcome, TargetId
from evermirror.model.refs import Oid, RefsDigest
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.task import TaskId
from evermirror.model.wire import Answer, Down, Numbered, Obeyed, Ordered, Rejected, Taken, Up, Welcomed

WORKER = Identity(token_id=1, name="w1", role=Role.WORKER, trusted=True)
SEND_S = 1.0
SOON_S = 10.0
BIG = "x" * 4_000_000

pytestmark = pytest.mark.timeout(40)


@dataclass(frozen=True)
class Link:
    """A running server of one transport, and a dialer for it."""

    dialer: Dialer
    stop: Callable[[], Awaitable[None]]


Serve = Callable[[Accept], Awaitable[Link]]


@pytest.fixture(scope="module")
def own_ca(tmp_path_factory: pytest.TempPathFactory) -> OwnCa:
    return make_ca(Path(tmp_path_factory.mktemp("pki")), [])


@pytest.fixture(params=["in-process", "grpc"])
async def serve(request: pytest.FixtureRequest, own_ca: OwnCa) -> AsyncIterator[Serve]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(accept: Accept) -> Link:
            own = await stack.enter_async_context(contextlib.AsyncExitStack())
            if request.param == "in-process":
                inside = await own.enter_async_context(InProcessServer(accept, send_s=SEND_S))
                return Link(inside.dialer(WORKER), own.aclose)
            server = await own.enter_async_context(
                GrpcServer(
                    "127.0.0.1:0",
                    tls=own_ca.tls,
                    authenticate=let_in,
                    accept=accept,
                    limits=RpcLimits(send_s=SEND_S),
                )
            )
            dialer = GrpcDialer(
                f"127.0.0.1:{server.port}", "secret", ca_pem=own_ca.ca_pem, limits=RpcLimits(send_s=SEND_S)
            )
            return Link(dialer, own.aclose)

        yield start


async def let_in(_: str) -> Identity:
    return WORKER


async def soon(what: Awaitable[object]) -> object:
    async with asyncio.timeout(SOON_S):
        return await what


class Accepted:
    """Hands the coordinator's end to the test, and keeps the connection until the test is done with it."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.done = asyncio.Event()

    async def __call__(self, peer: Peer) -> None:
        await self.peers.put(peer)
        await self.done.wait()


@dataclass(frozen=True)
class Both:
    peer: Peer
    connection: Connection
    accepted: Accepted
    link: Link


@pytest.fixture
async def both(serve: Serve) -> AsyncIterator[Both]:
    accepted = Accepted()
    link = await serve(accepted)
    connection = await link.dialer.dial()
    async with asyncio.timeout(SOON_S):
        yield Both(await accepted.peers.get(), connection, accepted, link)
    accepted.done.set()
    await connection.close()


def ordered(n: int) -> Ordered:
    return Ordered(n, LookAt((RepoKey(f"example.org/team/{n}"),)))


def large(n: int) -> Ordered:
    return Ordered(n, LookAt((RepoKey("k" * 2000),) * 500))


async def flood_down(peer: Peer) -> None:
    for n in range(100):
        await peer.send(large(n))


async def flood_up(connection: Connection) -> None:
    for n in range(100):
        await connection.send(Answer(n, "x" * 1_000_000))


async def until_gone(receive: Callable[[], Awaitable[Up | Down]]) -> list[Up | Down]:
    """All that still comes."""
    got: list[Up | Down] = []
    with contextlib.suppress(PeerGone):
        while True:
            got.append(await receive())
    return got


async def test_the_coordinator_knows_who_it_is_by_its_token(both: Both):
    assert both.peer.identity == WORKER
    assert both.peer.address


async def test_frames_arrive_in_order_both_ways(both: Both):
    async def down() -> None:
        for n in range(2000):
            await both.peer.send(ordered(n))

    async def up() -> None:
        for n in range(2000):
            await both.connection.send(Obeyed(n))

    async with asyncio.TaskGroup() as group:
        group.create_task(down())
        group.create_task(up())
        received = group.create_task(_take(both.connection.receive, 2000))
        told = group.create_task(_take(both.peer.receive, 2000))
    assert received.result() == [ordered(n) for n in range(2000)]
    assert told.result() == [Obeyed(n) for n in range(2000)]


async def _take(receive: Callable[[], Awaitable[Up | Down]], n: int) -> list[Up | Down]:
    return [await receive() for _ in range(n)]


async def test_targets_of_a_sync_and_what_became_of_them_arrive_as_they_were_said(both: Both):
    key, put = RepoKey("example.org/team/x"), RefsDigest("ab" * 32)
    spec = RepoSpec(key, "https://example.org/team/x", Host("example.org"), pulled=True)
    to = PushTo(TargetId(3), "https://target.example/x.git", "bot", put, adopt=True)
    failure = Failure(FailureKind.CONFLICT, "1 ref could not be put", context={"target_url": to.url})
    ref = PushedRef("refs/heads/\udcff", Oid("1" * 40), None, RefOutcome.CONFLICT, "stale info")
    pushed = Pushed(to.target, put, Oid("2" * 40), (ref,), 4, 3, 1, 999, 1.5, 2.5, failure, "a warning")
    activity = Activity((0.0, 0.0, 0.0), 0.0, 0.0)
    synced = Synced(
        key, (TaskId(7),), put, None, 1, (), 0, 0, 0, 0, False, 1.0, 1.0, 3.0, activity,
        pushes=(pushed, Pushed(TargetId(4), None)), look_s=0.25,
    )  # fmt: skip
    down: list[Down] = [
        Welcomed(1, 2, False, 5.0, "https://here", 60.0, 600.0),
        Ordered(1, AssignRepos((spec,))),
        Ordered(2, SyncNow(key, TaskId(7), push=(to, PushTo(TargetId(4), "https://t/y")))),
    ]
    for frame in down:
        await both.peer.send(frame)
    assert await _take(both.connection.receive, len(down)) == down
    await both.connection.send(Numbered(1, 1, (synced,)))
    assert await both.peer.receive() == Numbered(1, 1, (synced,))


async def test_several_tasks_may_send_at_once(both: Both):
    async with asyncio.TaskGroup() as group:
        for n in range(100):
            group.create_task(both.peer.send(Taken(1, n)))
        got = group.create_task(_take(both.connection.receive, 100))
    assert sorted(frame.seq for frame in got.result()) == list(range(100))


async def test_a_frame_of_megabytes_arrives_whole(both: Both):
    for n in range(3):
        sending = asyncio.create_task(both.connection.send(Answer(n, BIG)))
        assert await both.peer.receive() == Answer(n, BIG)
        await sending


async def test_a_sender_waits_for_a_slow_reader(both: Both):
    sent = 0

    async def flood() -> None:
        nonlocal sent
        for n in range(30):
            await both.connection.send(Answer(n, "x" * 500_000))
            sent += 1

    flooding = asyncio.create_task(flood())
    await asyncio.sleep(0.5)
    assert sent < 25
    for n in range(30):
        assert await both.peer.receive() == Answer(n, "x" * 500_000)
    await flooding


async def test_a_worker_that_does_not_read_is_given_up(both: Both):
    with pytest.raises(PeerGone, match="read nothing"):
        await flood_down(both.peer)
    with pytest.raises(PeerGone):
        await both.peer.receive()
    got = await until_gone(both.connection.receive)
    assert len(got) < 100
    assert got == [large(n) for n in range(len(got))]


async def test_a_coordinator_that_does_not_read_is_given_up(both: Both):
    with pytest.raises(PeerGone, match="read nothing"):
        await flood_up(both.connection)
    with pytest.raises(PeerGone):
        await both.connection.receive()
    with pytest.raises(PeerGone):
        await both.connection.send(Obeyed(1))


async def test_a_stuck_peer_holds_up_nobody_else(serve: Serve):
    accepted = Accepted()
    link = await serve(accepted)
    stuck, fine = await link.dialer.dial(), await link.dialer.dial()
    async with asyncio.timeout(SOON_S):
        stuck_peer, fine_peer = await accepted.peers.get(), await accepted.peers.get()
        flooding = asyncio.create_task(flood_down(stuck_peer))
        for n in range(50):
            await fine_peer.send(ordered(n))
            assert await fine.receive() == ordered(n)
        with pytest.raises(PeerGone):
            await flooding
    accepted.done.set()
    await stuck.close()
    await fine.close()


async def test_what_the_coordinator_sent_before_it_closed_arrives(both: Both):
    for n in range(10):
        await both.peer.send(ordered(n))
    await both.peer.send(Rejected("go away", final=True))
    await both.peer.close("no room")
    both.accepted.done.set()
    assert await until_gone(both.connection.receive) == [
        *map(ordered, range(10)),
        Rejected("go away", final=True),
    ]
    with pytest.raises(PeerGone, match="no room"):
        await both.connection.receive()
    with pytest.raises(PeerGone):
        await both.connection.send(Obeyed(1))


async def test_what_the_worker_sent_before_it_closed_arrives(both: Both):
    for n in range(10):
        await both.connection.send(Obeyed(n))
    closing = asyncio.create_task(both.connection.close())
    assert await until_gone(both.peer.receive) == [Obeyed(n) for n in range(10)]
    with pytest.raises(PeerGone):
        await both.peer.send(ordered(1))
    both.accepted.done.set()
    await closing


async def test_closing_ends_ones_own_waiting_at_once(both: Both):
    waiting = asyncio.create_task(both.peer.receive())
    also = asyncio.create_task(both.connection.receive())
    await asyncio.sleep(0.1)
    await both.peer.close("enough")
    with pytest.raises(PeerGone):
        await waiting
    both.accepted.done.set()
    with pytest.raises(PeerGone, match="enough"):
        await also
    await both.connection.close()
    await both.connection.close()
    await both.peer.close("again")


async def test_a_worker_that_closes_waits_for_nothing(both: Both):
    waiting = asyncio.create_task(both.connection.receive())
    await asyncio.sleep(0.1)
    closing = asyncio.create_task(both.connection.close())
    with pytest.raises(PeerGone):
        await waiting
    with pytest.raises(PeerGone):
        await both.connection.send(Obeyed(1))
    with pytest.raises(PeerGone):
        await both.peer.receive()
    both.accepted.done.set()
    await closing


async def test_a_connection_ends_when_the_coordinator_is_done_with_it(serve: Serve):
    async def greet(peer: Peer) -> None:
        await peer.send(Taken(1, 2))

    link = await serve(greet)
    connection = await link.dialer.dial()
    assert await soon(until_gone(connection.receive)) == [Taken(1, 2)]
    await connection.close()


async def test_a_failure_at_the_coordinator_ends_only_that_connection(serve: Serve):
    async def fall(peer: Peer) -> None:
        if await peer.receive() == Obeyed(13):
            raise RuntimeError("a bug")
        await peer.send(Taken(1, 1))
        await peer.receive()

    link = await serve(fall)
    unlucky, lucky = await link.dialer.dial(), await link.dialer.dial()
    await unlucky.send(Obeyed(13))
    assert await soon(until_gone(unlucky.receive)) == []
    await lucky.send(Obeyed(1))
    assert await soon(lucky.receive()) == Taken(1, 1)
    await lucky.close()
    await unlucky.close()


async def test_a_cancelled_receive_loses_nothing(both: Both):
    for n in range(20):
        waiting = asyncio.create_task(both.connection.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await both.peer.send(ordered(n))
        if waiting.done() and not waiting.cancelled():
            assert waiting.result() == ordered(n)
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert await both.connection.receive() == ordered(n)


async def test_a_receive_that_times_out_may_be_asked_again(both: Both):
    for n in range(10):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await both.peer.receive()
        await both.connection.send(Obeyed(n))
        assert await both.peer.receive() == Obeyed(n)


async def test_a_cancelled_send_breaks_nothing(both: Both):
    """It may or may not arrive; what comes after it does, whole and in order."""
    blocked = asyncio.create_task(_send_all(both.connection, 40))
    await asyncio.sleep(0.3)
    blocked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await blocked
    last = asyncio.create_task(both.connection.send(Obeyed(99)))
    got: list[Up] = []
    while not got or got[-1] != Obeyed(99):
        got.append(await both.peer.receive())
    await last
    assert got[:-1] == [Answer(n, "x" * 300_000) for n in range(len(got) - 1)]
    assert 0 < len(got) < 40


async def _send_all(connection: Connection, n: int) -> None:
    for number in range(n):
        await connection.send(Answer(number, "x" * 300_000))


async def test_a_server_that_stops_tells_its_workers(both: Both):
    waiting = asyncio.create_task(both.connection.receive())
    stopping = asyncio.create_task(both.link.stop())
    with pytest.raises(PeerGone):
        await both.peer.receive()
    both.accepted.done.set()
    with pytest.raises(PeerGone, match="stops"):
        await waiting
    await stopping
    with pytest.raises(FailureError):
        await both.link.dialer.dial()


async def test_many_connections_live_side_by_side(serve: Serve):
    async def echo(peer: Peer) -> None:
        while True:
            frame = await peer.receive()
            await peer.send(Taken(1, frame.seq))

    link = await serve(echo)

    async def talk(_: int) -> None:
        connection = await link.dialer.dial()
        for n in range(20):
            await connection.send(Obeyed(n))
            assert await connection.receive() == Taken(1, n)
        await connection.close()

    async with asyncio.timeout(30):
        for _ in range(10):
            await asyncio.gather(*map(talk, range(4)))
