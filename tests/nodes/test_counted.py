"""What is dear to count is counted once for all who ask, and no more at a time than can be borne."""

from __future__ import annotations

import asyncio

import pytest

from evermirror.errors import Unavailable
from evermirror.model.figures import ErrorFilter
from evermirror.model.repo import Priority
from evermirror.nodes.coordinator import counted as counting
from evermirror.nodes.coordinator.counted import FRESH_S, Counted, Recounted
from evermirror.nodes.coordinator.pull.pull_counts import PullCounts
from tests.nodes.test_coordinator import Clock


class Slow:
    """Counts how often it is asked, and answers when told to."""

    def __init__(self):
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.go = asyncio.Event()

    async def count(self):
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.go.wait()
            return self.asked
        finally:
            self.at_once -= 1


async def soon(*doing):
    tasks = [asyncio.ensure_future(one) for one in doing]
    await asyncio.sleep(0.01)
    return tasks


async def test_all_who_ask_during_a_count_get_that_one():
    clock, slow = Clock(), Slow()
    counted = Counted(clock)
    asking = await soon(*(counted.get("all", slow.count) for _ in range(50)))
    asking[0].cancel()  # whoever began it may go
    clock.now += 10 * FRESH_S  # it takes longer than it is fresh
    asking += await soon(counted.get("all", slow.count))
    slow.go.set()
    assert await asyncio.gather(*asking[1:]) == [1] * 50
    assert await counted.get("all", slow.count) == 1
    clock.now += FRESH_S
    assert await counted.get("all", slow.count) == 2
    clock.now -= 100.0  # a clock that was set back
    assert await counted.get("all", slow.count) == 3


async def test_a_count_that_failed_is_everybodys_and_is_not_remembered():
    clock, slow = Clock(), Slow()
    counted = Counted(clock)

    async def fails():
        await slow.count()
        raise OSError("no database")

    asking = await soon(*(counted.get("all", fails) for _ in range(3)))
    slow.go.set()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(one) for one in told] == ["no database"] * 3
    assert await counted.get("all", slow.count) == 2


async def test_different_figures_take_turns_and_few_may_wait():
    clock, slow = Clock(), Slow()
    counted = Counted(clock, most=3)
    asking = await soon(*(counted.get(n, slow.count) for n in range(3)))
    with pytest.raises(Unavailable):
        await counted.get(3, slow.count)
    asking += await soon(counted.get(1, slow.count))  # who asks for the same still may
    slow.go.set()
    assert await asyncio.gather(*asking) == [1, 2, 3, 2]
    assert slow.most_at_once == 1
    assert await counted.get(3, slow.count) == 4  # the first is forgotten for it
    assert await counted.get(2, slow.count) == 3
    assert await counted.get(0, slow.count) == 5


async def test_the_figure_before_stands_in_while_it_is_counted_anew_for_long(monkeypatch):
    monkeypatch.setattr(counting, "PATIENCE_S", 0.0)
    clock, slow, begun = Clock(), Slow(), []

    async def count(now):
        begun.append(now)
        return await slow.count()

    figure = Recounted(clock, count)
    first = await soon(figure.get(), figure.get())
    clock.now += 0.1
    slow.go.set()
    assert await asyncio.gather(*first) == [1, 1]  # there is none before
    slow.go.clear()
    clock.now += 0.1 * counting.REST - 0.01
    assert (await figure.get(), slow.asked) == (1, 1)  # it rests
    clock.now += 0.02
    assert [await figure.get() for _ in range(3)] == [1, 1, 1]
    assert (slow.asked, begun[1]) == (2, clock.now)
    clock.now = begun[0] + counting.STAND_IN_MAX_S
    assert await figure.get() == 1
    clock.now += 0.01
    [late] = await soon(figure.get())
    assert not late.done()  # one so old stands in for nothing
    slow.go.set()
    assert await late == 2
    clock.now -= 1000.0  # a clock that was set back
    assert (await figure.get(), slow.asked) == (3, 3)


async def test_a_quick_count_is_waited_for_and_a_failed_one_is_not_remembered():
    clock, slow = Clock(), Slow()
    slow.go.set()
    trouble = [None, OSError("no database"), None]

    async def count(now):
        error = trouble.pop(0)
        await slow.count()
        if error:
            raise error
        return slow.asked

    figure = Recounted(clock, count)
    assert await figure.get() == 1
    with pytest.raises(OSError, match="no database"):
        await figure.get()
    assert await figure.get() == 3


async def test_who_leaves_waits_for_a_count_under_way(monkeypatch):
    monkeypatch.setattr(counting, "PATIENCE_S", 0.0)
    clock, slow = Clock(), Slow()
    figure = Recounted(clock, lambda now: slow.count())
    await figure.settled()  # there is none
    slow.go.set()
    await figure.get()
    slow.go.clear()
    assert await figure.get() == 1
    [leaving] = await soon(figure.settled())
    assert (leaving.done(), slow.at_once) == (False, 1)
    slow.go.set()
    await leaving
    assert slow.at_once == 0


class CountingStore:
    def __init__(self):
        self.asked = []

    async def pull_progress(self, now, syncing):
        self.asked.append("progress")
        await asyncio.sleep(0.01)
        return {}

    async def periods(self, begin, end):
        self.asked.append((begin, end))
        await asyncio.sleep(0.01)
        return {}

    async def error_statistics(self, begin, end):
        self.asked.append("statistics")
        await asyncio.sleep(0.01)
        return {}

    async def error_page(self, repo, which, *, public):
        self.asked.append("public" if public else "all")
        await asyncio.sleep(0.01)
        return (), 0

    async def find_repos(self, keys, *, removed):
        return {}


async def test_what_anybody_may_ask_for_is_asked_of_the_store_once():
    store, clock = CountingStore(), Clock()
    counts = PullCounts(store, tuple, clock)
    told = await asyncio.gather(*(counts.progress(0.5, 99.0 + n / 100) for n in range(1, 20)))
    assert {(one.period.begin, one.period.end) for one in told} == {
        (0.5, 99.0 + n / 100) for n in range(1, 20)
    }
    await asyncio.gather(*(counts.errors(24.0) for _ in range(20)))
    await asyncio.gather(*(counts.public_errors(ErrorFilter()) for _ in range(20)))
    assert store.asked == ["progress", (0.0, 100.0), "statistics", "public"]
    assert Priority.LOW not in told[0].periods
