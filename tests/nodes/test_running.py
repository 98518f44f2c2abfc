"""What is left to do when a task ends."""

import asyncio

import pytest

from evermirror.nodes.running import in_time


async def test_what_ends_in_time_is_told_so_and_what_fails_raises():
    async def fails():
        raise KeyError("a bug")

    assert await in_time(asyncio.sleep(0), 5)
    with pytest.raises(KeyError):
        await in_time(fails(), 5)


async def test_what_takes_too_long_is_cancelled():
    ended = asyncio.Event()

    async def hangs():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    assert not await in_time(hangs(), 0.01)
    assert ended.is_set()


async def test_it_goes_on_in_a_task_that_is_being_cancelled():
    done = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            done.append(await in_time(asyncio.Event().wait(), 0.01))
            done.append("the rest")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [False, "the rest"]
