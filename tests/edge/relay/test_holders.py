"""The lines of a node at a relay: those of a burst stay for its next question, and go when it is over."""

from __future__ import annotations

import asyncio

from evermirror.edge.relay.holders import Holders
from evermirror.edge.relay.limits import RelayLimits
from evermirror.model.relay import NodeId

NODE = NodeId("worker/1")
LIMITS = RelayLimits(free_lines_max=2, spare_s=0.4)  # far above what a busy machine oversleeps


class OpenLine:
    """As much of a line as holders look at."""

    def __init__(self):
        self.fresh = True
        self.closed = ""

    def close(self, why):
        self.closed, self.fresh = why, False

    abort = close


def entered(count):
    holders = Holders(LIMITS)
    lines = [OpenLine() for _ in range(count)]
    for line in lines:
        holders.enter(NODE, line)
    return holders, lines


async def until_few(lines):
    async with asyncio.timeout(10):
        while open_ones(lines) > LIMITS.free_lines_max:
            await asyncio.sleep(LIMITS.spare_s / 4)
    await asyncio.sleep(2 * LIMITS.spare_s)
    assert open_ones(lines) == LIMITS.free_lines_max


def open_ones(lines):
    return sum(not line.closed for line in lines)


async def test_lines_that_nobody_needs_are_closed_after_a_while_but_for_some():
    _, lines = entered(6)
    assert open_ones(lines) == 6
    await until_few(lines)


async def test_as_many_as_a_burst_needs_stay_while_it_lasts():
    holders, lines = entered(6)
    for _ in range(12):
        taken = [await holders.take(NODE) for _ in range(5)]
        for line in taken:
            holders.give_back(NODE, line)
        await asyncio.sleep(LIMITS.spare_s / 4)
        assert open_ones(lines) >= 5, "one was never needed; the others were, within each look"
    await until_few(lines)
    assert holders.free == LIMITS.free_lines_max


async def test_a_node_that_left_meanwhile_is_no_trouble():
    holders, lines = entered(4)
    for line in lines:
        holders.leave(NODE, line)
    await asyncio.sleep(1.5 * LIMITS.spare_s)
    assert holders.free == 0
