"""Tasks of rounds: one goes on with what starts when its round ended well, unless somebody waits for it."""

import asyncio

import pytest

from evermirror.model.repo import RepoKey
from evermirror.nodes.worker.jobs import Jobs
from evermirror.nodes.worker.round import Round

A, B = RepoKey("h/a"), RepoKey("h/b")


class House:
    """``b`` starts when ``a`` has ended."""

    def __init__(self, well=True):
        self.well = well
        self.jobs = Jobs(self.run, self.ended)
        self.go = asyncio.Event()
        self.ran = []
        self.left = [B]

    async def run(self, this, work):
        self.ran.append((this.key, asyncio.current_task()))
        await work(this)
        return self.well

    def ended(self):
        if self.left:
            self.jobs.start(Round(self.left.pop(), (), 0.0, 0.0), self.work)

    async def work(self, _):
        await self.go.wait()


def started(well=True):
    house = House(well)
    house.jobs.start(Round(A, (), 0.0, 0.0), house.work)
    return house


async def until(found):
    async with asyncio.timeout(3):
        while not found():
            await asyncio.sleep(0)


@pytest.mark.parametrize("well", [True, False])
async def test_only_a_task_whose_round_ended_well_goes_on(well):
    house = started(well)
    house.go.set()
    await until(lambda: len(house.ran) == 2 and not house.jobs.tasks)
    (first, task), (second, other) = house.ran
    assert ((first, second), task is other) == ((A, B), well)


async def test_a_task_that_somebody_waits_for_takes_up_nothing_more():
    house = started()
    await until(lambda: house.ran)
    seen_off = asyncio.create_task(house.jobs.see_off(house.jobs.running([A]).values()))
    await asyncio.sleep(0)
    house.work = lambda _: asyncio.sleep(30)
    house.go.set()
    await asyncio.wait_for(seen_off, 3)
    await until(lambda: len(house.ran) == 2)
    assert house.ran[0][1] is not house.ran[1][1]
    await house.jobs.stop(0)
    assert house.jobs.tasks == {}


async def test_what_starts_when_a_round_is_cancelled_has_a_task_of_its_own():
    house = started()
    await until(lambda: house.ran)
    house.jobs.running([A])[A].cancel()
    await until(lambda: len(house.ran) == 2)
    assert house.ran[0][1].cancelled()
    house.go.set()
    await until(lambda: not house.jobs.tasks)


async def test_the_task_that_went_on_is_found_by_its_new_repo():
    house = started()
    await until(lambda: house.ran)
    house.work = lambda _: asyncio.sleep(30)
    house.go.set()
    await until(lambda: len(house.ran) == 2)
    assert list(house.jobs.tasks) == [B]
    house.jobs.tasks[B].cancel()
    await until(lambda: not house.jobs.tasks)


async def test_an_end_that_nobody_could_be_told_of_leaves_no_task_to_dead_ones():
    house = started()
    told = house.ended

    def fails():
        told()
        raise RuntimeError("who is told fails")

    house.jobs._ended = fails
    house.go.set()
    (task,) = house.jobs.tasks.values()
    with pytest.raises(RuntimeError):
        await task
    house.jobs._ended = told
    house.jobs.start(Round(A, (), 0.0, 0.0), house.work)
    assert house.jobs.tasks[A] is not task
    await house.jobs.tasks[A]
    assert [key for key, _ in house.ran] == [A, A]
