"""Looks that hooks ask for, with a store and a fleet that take their time: none is held for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from types import SimpleNamespace

import pytest

from evermirror.core.hooks.spacing import GAP_S, PACE_RATE, Verdict
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, Started
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.hooks.hook_looks import HookLooks

A, B = RepoKey("h/a"), RepoKey("h/b")


class World:
    """Tasks and pulling at once. ``storing`` and ``starting`` hold up what they are named for."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.held: set[int] = set()
        self.projects: set[RepoKey] = set()
        self.storing, self.starting, self.pulling = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for gate in (self.storing, self.starting, self.pulling):
            gate.set()
        self._ids = count(1)
        self.changing = self
        self.looks = HookLooks(self, self, lambda key: True, lambda: self.now)  # type: ignore[arg-type]

    def about(self, key: RepoKey, ids: Sequence[int]) -> Sequence[int]:
        return ids

    async def create_apart(self, keys: Sequence[RepoKey], *_: object, **__: object) -> list[object]:
        await self.storing.wait()
        made = [SimpleNamespace(id=next(self._ids), repo=key) for key in keys]
        self.held |= {task.id for task in made}
        return list(made)

    async def start(self, task_id: int) -> None:
        await self.starting.wait()
        self.held.remove(task_id)

    def is_project(self, key: RepoKey) -> bool:
        return key in self.projects

    async def finished(self, work: object) -> None:
        work.close()  # type: ignore[attr-defined]
        await self.pulling.wait()

    async def ask(self, *keys: RepoKey) -> dict[RepoKey, Verdict]:
        verdicts, begin = await self.looks.ask(dict.fromkeys(keys, "github"))
        await self.looks.start(begin)
        return dict(verdicts)

    async def until_none_is_held(self) -> None:
        async with asyncio.timeout(5):
            while self.held or self.looks._later:
                await asyncio.sleep(0.001)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    running = asyncio.create_task(world.looks.run())
    yield world
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_look_that_falls_due_while_it_is_being_stored_begins_once_it_is(world: World) -> None:
    assert await world.ask(A, B) == {A: Verdict.NOW, B: Verdict.NOW}
    await world.until_none_is_held()
    world.storing.clear()
    world.now += GAP_S[0] / 2
    later = asyncio.create_task(world.ask(A))
    await asyncio.sleep(0.03)
    world.now += GAP_S[0]
    world.looks.heard(Started(B, (77,), world.now))  # anything wakes the looks
    await asyncio.sleep(0.05)
    world.storing.set()
    assert await later == {A: Verdict.LATER}
    await world.until_none_is_held()
    assert next(world._ids) == 4, "one look for it, not two"


async def test_with_more_hooks_than_the_pace_allows_every_task_is_given_out(world: World) -> None:
    many = [RepoKey(f"h/r{n}") for n in range(int(PACE_RATE) + 100)]
    verdicts = await world.ask(*many)
    assert set(verdicts.values()) == {Verdict.NOW, Verdict.LATER}
    for _ in range(5):
        world.now += 0.5
        world.looks.heard(Started(many[0], (77,), world.now))
        await asyncio.sleep(0.03)
    await world.until_none_is_held()


@pytest.mark.parametrize("project", [False, True])
async def test_starting_that_takes_long_holds_up_no_other_hook(world: World, project: bool) -> None:
    world.projects = {A} if project else set()
    gate = world.pulling if project else world.starting
    gate.clear()
    async with asyncio.timeout(2):
        assert await world.ask(A) == {A: Verdict.NOW}
        assert await world.ask(B) == {B: Verdict.NOW}
        gate.set()
        if not project:
            await world.until_none_is_held()


async def test_nothing_is_kept_of_repos_that_there_was_no_room_for(world: World) -> None:
    world.looks._spacing._repos_max = 10
    many = [RepoKey(f"h/r{n}") for n in range(50)]
    await world.ask(*many)
    await world.until_none_is_held()
    for key, task_id in list(world.looks._newest.items()):
        failure = Failure(FailureKind.NETWORK_TIMEOUT, "away")
        world.looks.heard(Failed(key, (task_id,), failure, True, 1, world.now, world.now, None))
    assert not world.looks._newest
