"""Workers take turns in telling what they hold, and a session keeps nothing of what it sent."""

import asyncio
import gc
import weakref

import pytest

from evermirror.nodes.coordinator.session import SENDING_MAX, Session
from evermirror.nodes.coordinator.turns import Turns

SOON_S = 0.02


def nothing():
    pass


async def begun(turns, session, meanwhile=nothing):
    task = asyncio.create_task(turns.begin(session, meanwhile, SOON_S))
    await asyncio.sleep(0)
    return task


async def test_so_many_at_a_time_and_the_others_in_the_order_they_came():
    turns = Turns(most=2)
    tasks = [await begun(turns, n) for n in range(5)]
    assert [t.done() for t in tasks] == [True, True, False, False, False]
    turns.end(1)
    await asyncio.sleep(0.01)
    assert [t.done() for t in tasks] == [True, True, True, False, False]
    turns.end(0)
    turns.end(2)
    await asyncio.sleep(0.01)
    assert all(t.done() for t in tasks)


async def test_who_waits_is_told_to_be_there():
    turns, calls = Turns(most=1), []
    await begun(turns, 1)
    task = await begun(turns, 2, lambda: calls.append(2))
    async with asyncio.timeout(10):
        while len(calls) < 2:
            await asyncio.sleep(SOON_S)
    turns.end(1)
    await task
    told = len(calls)
    await asyncio.sleep(3 * SOON_S)
    assert len(calls) == told


@pytest.mark.parametrize("how", ["cancelled", "ended"])
async def test_who_goes_while_waiting_takes_no_place(how):
    turns = Turns(most=1)
    await begun(turns, 1)
    leaving, staying = await begun(turns, 2), await begun(turns, 3)
    if how == "ended":
        turns.end(2)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert not staying.done()
    turns.end(1)
    await asyncio.wait_for(staying, 10)


async def test_one_that_does_not_get_on_does_not_hold_up_the_others():
    turns = Turns(most=1, longest_s=SOON_S)
    await begun(turns, 1)
    await asyncio.wait_for(turns.begin(2, nothing, 60), 10)


async def test_an_end_without_a_beginning_is_nothing():
    turns = Turns(most=1)
    turns.end(7)
    await begun(turns, 1)
    turns.end(7)
    assert not (await begun(turns, 2)).done()


async def test_a_session_keeps_nothing_of_what_it_sent():
    class Peer:
        sent = 0

        async def send(self, frame):
            self.sent += 1

    class Large:
        async def __call__(self):
            return self

    peer = Peer()
    session = Session(1, peer)
    large = Large()
    kept = weakref.ref(large)
    assert session.put(large)
    del large
    await session.sent()
    await asyncio.sleep(0)
    gc.collect()
    assert peer.sent == 1
    assert kept() is None


class Reader:
    """A peer that takes frames when it is let."""

    def __init__(self):
        self.taking = asyncio.Event()
        self.sent = []
        self.closed = None

    address = "a test"

    async def send(self, frame):
        await self.taking.wait()
        self.sent.append(frame)

    async def close(self, reason):
        self.closed = reason


def ready(frame):
    async def make():
        return frame

    return make


async def test_a_session_sends_in_order_also_what_comes_while_it_sends_and_after_a_pause():
    peer = Reader()
    session = Session(1, peer)
    assert session.put(ready(1))
    assert session.put(ready(2))
    await asyncio.sleep(0)
    assert session.put(ready(3))
    peer.taking.set()
    await session.sent()
    assert (peer.sent, session.waiting) == ([1, 2, 3], 0)
    assert session.put(ready(4))
    await session.sent()
    assert peer.sent == [1, 2, 3, 4]


async def test_a_session_keeps_so_many_frames_for_one_who_does_not_read():
    session = Session(1, Reader())
    assert all(session.put(ready(n)) for n in range(SENDING_MAX))
    assert not session.put(ready(-1))
    await session.stop()


async def test_a_session_that_failed_ends_its_connection_and_keeps_nothing_more():
    async def broken():
        raise ValueError("a bug")

    peer = Reader()
    session = Session(1, peer)
    session.put(broken)
    session.put(ready(1))
    await session.sent()
    assert peer.closed == "the coordinator failed"
    assert session.put(ready(2))
    assert (session.waiting, peer.sent) == (0, [])


async def test_a_stopped_session_sends_nothing_more():
    peer = Reader()
    session = Session(1, peer)
    session.put(ready(1))
    await asyncio.sleep(0)
    await session.stop()
    peer.taking.set()
    assert session.put(ready(2))
    await session.sent()
    assert peer.sent == []
