"""So many packs at a time, in all and for each client; a short line; then no. The slow hold nobody up."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from evermirror.core.fairness import Pace
from evermirror.edge.git.serve_gate import Gate, ServerBusy


@contextlib.asynccontextmanager
async def inside(gate, *clients):
    async with contextlib.AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(gate.hold(client))
        yield


async def enter(gate, client, order=None):
    async with gate.hold(client):
        if order is not None:
            order.append(client)
        await asyncio.sleep(0)


async def test_one_client_cannot_take_the_places_of_the_others():
    gate = Gate(total=4, per_client=2, queue=10, wait_s=0.05)
    async with inside(gate, "a", "a"):
        with pytest.raises(ServerBusy):
            await enter(gate, "a")
        await enter(gate, "b")
    await enter(gate, "a")
    assert (gate.running, gate.waiting, gate.refused) == (0, 0, 1)


async def test_who_waits_comes_in_as_soon_as_there_is_room_the_first_first():
    gate = Gate(total=1, per_client=1, queue=10, wait_s=5)
    order = []
    async with inside(gate, "x"):
        waiting = [asyncio.create_task(enter(gate, c, order)) for c in "abc"]
        await asyncio.sleep(0.01)
        assert gate.waiting == 3
    await asyncio.gather(*waiting)
    assert order == ["a", "b", "c"]


async def test_who_has_no_room_for_himself_does_not_hold_up_those_behind():
    gate = Gate(total=2, per_client=1, queue=10, wait_s=5)
    order = []
    async with inside(gate, "a"):
        async with inside(gate, "x"):
            waiting = [asyncio.create_task(enter(gate, c, order)) for c in "ab"]
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert order == ["b"]
    await asyncio.gather(*waiting)
    assert order == ["b", "a"]


async def test_a_full_line_answers_at_once_and_one_client_fills_half_of_it():
    gate = Gate(total=1, per_client=1, queue=4, wait_s=30)
    async with inside(gate, "x"):
        waiting = [asyncio.create_task(enter(gate, "a")) for _ in range(2)]
        await asyncio.sleep(0.01)
        async with asyncio.timeout(1):
            with pytest.raises(ServerBusy):
                await enter(gate, "a")
        waiting += [asyncio.create_task(enter(gate, c)) for c in "bc"]
        await asyncio.sleep(0.01)
        async with asyncio.timeout(1):
            with pytest.raises(ServerBusy):
                await enter(gate, "d")
    await asyncio.gather(*waiting)
    assert (gate.running, gate.waiting) == (0, 0)


async def test_who_leaves_the_line_or_the_room_leaves_no_hole():
    gate = Gate(total=1, per_client=1, queue=4, wait_s=30)
    async with inside(gate, "x"):
        waiting = asyncio.create_task(enter(gate, "a"))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert gate.waiting == 0
        late = asyncio.create_task(enter(gate, "b"))
        await asyncio.sleep(0.01)
    late.cancel()  # let in and cancelled in the same moment
    await asyncio.gather(late, return_exceptions=True)
    assert gate.running == 0
    await enter(gate, "c")


async def test_two_greedy_clients_leave_a_place_to_a_third():
    gate = Gate(total=16, per_client=16, queue=0, wait_s=0.05, fair=True)
    async with contextlib.AsyncExitStack() as stack:
        for client in ["a", "b"] * 16:
            with contextlib.suppress(ServerBusy):
                await stack.enter_async_context(gate.hold(client))
        await enter(gate, "c")
        assert gate.running < 16


async def test_while_somebody_waits_the_slowest_is_cut_and_nobody_else(monkeypatch):
    monkeypatch.setattr("evermirror.core.fairness.PATIENCE_S", 0.0)
    gate = Gate(total=2, per_client=2, queue=4, wait_s=30, pace_bytes_s=1_000_000)
    now = asyncio.get_running_loop().time()
    cut = []
    async with gate.hold("fast") as fast, gate.hold("slow") as slow:
        for place in (fast, slow):
            place.paces = (Pace(),)
            place.cut = lambda place=place: cut.append(place.client)
        slow.paces[0].begin(now - 10, 1_000)
        assert cut == []  # nobody waits
        async with asyncio.timeout(10):
            await enter(gate, "honest")
        assert cut == ["slow"]
        assert gate.running == 1
    assert (gate.running, gate.cut, gate.refused) == (0, 1, 0)


async def test_addresses_with_many_places_cannot_drive_out_a_long_clone_with_one():
    gate = Gate(total=16, per_client=16, queue=4, wait_s=0.05, fair=True, pace_bytes_s=64_000)
    now = asyncio.get_running_loop().time()
    cut = []
    async with gate.hold("honest") as honest, inside(gate, *"aaaaaaa", *"bbbb", *"cc", "d", "e"):
        honest.paces, honest.cut = (Pace(),), lambda: cut.append("honest")
        for second in range(3_600):
            honest.paces[0].begin(now - 3_600 + second, 2_000_000)
            honest.paces[0].end(now - 3_599 + second, 2_000_000)
        assert gate.running == 16
        with pytest.raises(ServerBusy):
            await enter(gate, "f")
    assert (cut, gate.cut) == ([], 0)
