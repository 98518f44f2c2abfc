"""An aggregator's line to a coordinator that follows a script, over the in-process transport."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from evermirror.edge.relay.seal import Sealer, new_private_key
from evermirror.edge.rpc.inprocess import InProcessServer
from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.model.access import Role
from evermirror.model.messages import HeldRepo, WorkerStatus
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId, RelayAddress
from evermirror.model.repo import RepoKey
from evermirror.model.wire import (
    PROTOCOL,
    Access,
    Accused,
    AskHolders,
    Beat,
    Changes,
    Doubted,
    Follow,
    Followed,
    Have,
    Hello,
    Holders,
    Lack,
    Rejected,
    Welcomed,
)
from evermirror.nodes.aggregator import aggregator_uplink
from evermirror.nodes.aggregator.aggregator_uplink import AggregatorUplink
from evermirror.nodes.redial import Phase

RELAY = RelayAddress("192.0.2.1:9", "ab" * 32)


def key(n: int) -> RepoKey:
    return RepoKey(f"h.org/{n:05d}")


def held(n: int) -> HeldRepo:
    return HeldRepo(key(n), RefsDigest(f"{n:064x}"), 1.0)


class Collection:
    """``disk`` is what is served; ``gate`` holds writes up."""

    def __init__(self) -> None:
        self.known = 0
        self.disk: dict[RepoKey, HeldRepo] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.reading = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.told: list[object] = []

    async def since(self) -> int:
        return self.known

    async def take(self, changes: Changes) -> None:
        await self.gate.wait()
        self.known = changes.upto

    def unreached(self) -> tuple[str, ...]:
        return ()

    def holders_told(self, items: tuple[object, ...]) -> None:
        self.told.append(items)

    async def served(self, after: RepoKey | None, limit: int) -> list[HeldRepo]:
        found = [self.disk[k] for k in sorted(self.disk) if after is None or k > after][:limit]
        self.reading.set()
        await self.may_read.wait()
        return found

    def status(self) -> WorkerStatus:
        return WorkerStatus(0, 0, 0.0, 0, 0, (), 0, (), 1, 2, True, (), 0.0)


class Script:
    """The coordinator: ``next`` gives the next connection, its Hello taken."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.over = asyncio.Event()

    async def accept(self, peer: Peer) -> None:
        self.peers.put_nowait(peer)
        await self.over.wait()

    async def next(self) -> tuple[Peer, Hello]:
        async with asyncio.timeout(5):
            peer = await self.peers.get()
            hello = await peer.receive()
        assert isinstance(hello, Hello)
        return peer, hello

    async def welcomes(self) -> Peer:
        peer, _ = await self.next()
        await peer.send(Welcomed(7, 1, resumed=False, heartbeat_s=60.0))
        return peer


async def hear(peer: Peer, *kinds: type) -> object:
    """The next frame of these kinds; others are passed over."""
    async with asyncio.timeout(5):
        while not isinstance(frame := await peer.receive(), kinds):
            pass
    return frame


@pytest.fixture
def collection() -> Collection:
    return Collection()


@pytest.fixture
async def script():
    return Script()


@pytest.fixture
async def uplink(script, collection):
    async with InProcessServer(script.accept) as server:
        line = AggregatorUplink(
            server.dialer(Identity(7, "agg", Role.AGGREGATOR, trusted=True)),
            name="agg",
            boot=5,
            version="1.0",
            clock=lambda: 0.0,
            chance=random.Random(1),
            sleep=lambda pause_s: asyncio.sleep(0.01),
        )
        line.relay = RELAY
        line.attach(collection)
        task = asyncio.create_task(line.run())
        yield line
        script.over.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_says_who_it_is_and_follows_from_what_is_on_its_disk(script, uplink, collection):
    collection.known = 41
    peer, hello = await script.next()
    assert hello == Hello(PROTOCOL, "1.0", "agg", 5, 0, relay=RELAY, role=Role.AGGREGATOR)
    await peer.send(Welcomed(7, 1, resumed=False, heartbeat_s=60.0))
    assert await hear(peer, Follow) == Follow(41)
    collection.gate.clear()
    await peer.send(Changes((), 50))
    assert isinstance(await hear(peer, Beat), Beat)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await hear(peer, Followed)
    collection.gate.set()
    assert await hear(peer, Followed) == Followed(50)
    assert collection.known == 50


async def test_a_pass_is_taken_over_and_one_that_is_none_ends_the_session(script, uplink):
    sealer = Sealer(new_private_key())
    heard = []
    uplink.on_access = heard.append
    peer = await script.welcomes()
    assert (uplink.reader_pass(), uplink.unsealer()) == ("", None)
    access = Access(NodeId("aggregator/7"), "sealed", 9.0, sealer.public_key, (RELAY,))
    await peer.send(access)
    async with asyncio.timeout(5):
        while not heard:
            await asyncio.sleep(0.01)
    assert (heard, uplink.reader_pass()) == ([access], "sealed")
    assert uplink.unsealer() is not None
    await peer.send(Access(NodeId("aggregator/7"), "sealed", 9.0, b"short"))
    await script.welcomes()
    assert uplink.reader_pass() == "sealed"


async def test_a_pass_that_has_ended_is_none(script, uplink):
    peer = await script.welcomes()
    assert not uplink.has_pass()
    for until, good in ((9.0, True), (0.0, False)):
        access = Access(
            NodeId("aggregator/7"), f"sealed {until}", until, Sealer(new_private_key()).public_key
        )
        await peer.send(access)
        async with asyncio.timeout(5):
            while uplink.access != access:
                await asyncio.sleep(0.01)
        assert uplink.has_pass() is good


async def test_each_session_begins_with_all_that_is_served_in_parts(script, uplink, collection, monkeypatch):
    monkeypatch.setattr(aggregator_uplink, "TOLD_AT_ONCE", 10)
    collection.disk = {key(n): held(n) for n in range(25)}
    for _ in range(2):
        peer = await script.welcomes()
        heard = [await hear(peer, Have) for _ in range(3)]
        assert [len(h.items) for h in heard] == [10, 10, 5]
        assert {i for h in heard for i in h.items} == set(collection.disk.values())
        await peer.close("again")


async def test_what_changes_while_the_store_is_read_is_told_last(script, uplink, collection):
    collection.disk = {key(n): held(n) for n in range(3)}
    collection.may_read.clear()
    peer = await script.welcomes()
    await asyncio.wait_for(collection.reading.wait(), 5)
    del collection.disk[key(1)]
    uplink.lack(key(1))
    assert await hear(peer, Lack) == Lack((key(1),))
    collection.may_read.set()
    assert await hear(peer, Have) == Have((held(0), held(2))), "not again what has just left"


async def test_the_latest_word_on_each_repo_is_told(script, uplink):
    peer = await script.welcomes()
    await hear(peer, Follow)
    uplink.have(held(1))
    uplink.lack(key(1))
    uplink.lack(key(2))
    uplink.have(held(2))
    assert await hear(peer, Have, Lack) == Have((held(2),))
    assert await hear(peer, Have, Lack) == Lack((key(1),))


async def test_questions_and_doubts_are_asked_now_or_not_at_all_but_accusations_wait(
    script, uplink, collection
):
    peer, _ = await script.next()
    uplink.ask_holders((key(1),))
    uplink.doubt(key(1))
    accused = Accused(NodeId("worker/1"), key(1), "lies", "digests")
    uplink.accuse(accused)
    await peer.close("not now")
    peer = await script.welcomes()
    first = await hear(peer, Accused, AskHolders, Doubted)
    assert first == accused
    uplink.ask_holders(tuple(key(n) for n in range(3)))
    uplink.doubt(key(3))
    assert await hear(peer, AskHolders, Doubted) == AskHolders(1, tuple(key(n) for n in range(3)))
    assert await hear(peer, AskHolders, Doubted) == Doubted((key(3),))
    await peer.send(Holders(1, ()))
    async with asyncio.timeout(5):
        while collection.told != [()]:
            await asyncio.sleep(0.01)


async def test_who_is_refused_says_why_and_comes_again(script, uplink):
    peer, _ = await script.next()
    await peer.send(Rejected("this is a worker's token", final=True))
    await script.next()
    assert (uplink.state.phase, uplink.state.reason) == (Phase.REFUSED, "this is a worker's token")


@pytest.mark.parametrize("frames", [[Changes((), n) for n in range(1, 9)], [Welcomed(1, 1, True, 1.0)]])
async def test_a_coordinator_that_breaks_the_rules_is_left(script, uplink, collection, frames):
    collection.gate.clear()
    peer = await script.welcomes()
    with contextlib.suppress(PeerGone):
        for frame in frames:
            await peer.send(frame)
    await script.welcomes()
