"""Room for hooks on their way: whoever sends much, or slowly, keeps nobody else out."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import structlog
from starlette.requests import Request

from evermirror.faces.api.hook_door import HookDoor
from evermirror.faces.api.problems import ApiProblem, Kind


class Senders:
    """Each sends so many bytes, and then nothing more until ``whole`` is set."""

    def __init__(self, room_bytes):
        self.door = HookDoor(room_bytes=room_bytes)
        self.tasks = []
        self.whole = asyncio.Event()
        self.answered = asyncio.Event()

    async def send(self, size, address="203.0.113.9"):
        """Raises where there is no room for it."""
        arrived = asyncio.Event()

        async def receive():
            if not arrived.is_set():
                arrived.set()
                return {"type": "http.request", "body": b"x" * size, "more_body": True}
            waiting.set()
            await self.whole.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def take():
            async with self.door.body_of(request):
                waiting.set()
                await self.answered.wait()

        waiting = asyncio.Event()
        request = Request({"type": "http", "headers": [], "client": (address, 1)}, receive)
        task = asyncio.create_task(take())
        self.tasks.append(task)
        waits = asyncio.create_task(waiting.wait())
        await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        if task.done():
            task.result()

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def senders(room_bytes):
    made = Senders(room_bytes)
    try:
        yield made
    finally:
        await made.end()
    assert made.door.held_bytes == 0
    assert not made.door._on_their_way


async def test_large_bodies_leave_half_of_the_room_to_others():
    async with senders(4_000_000) as many:
        await many.send(1_900_000, "203.0.113.1")
        with pytest.raises(ApiProblem, match="Too many"):
            await many.send(1_100_000, "203.0.113.2")
        await many.send(900_000, "203.0.113.3")
        assert many.door.held_bytes == 2_800_000


async def test_slow_bodies_of_a_usual_size_leave_room_to_small_ones():
    async with senders(64_000_000) as many:
        for n in range(48):
            await many.send(999_000, f"203.0.113.{n}")
        with pytest.raises(ApiProblem, match="Too many hooks come at the same time") as refused:
            await many.send(999_000, "203.0.113.48")
        assert int(refused.value.headers["Retry-After"]) > 0
        await many.send(100_000, "198.51.100.1")


async def test_one_address_has_a_share_of_what_is_on_its_way():
    async with senders(64_000_000) as many:
        for _ in range(16):
            await many.send(999_000)
        with pytest.raises(ApiProblem, match="from this address"):
            await many.send(999_000)
        await many.send(999_000, "198.51.100.1")


async def test_one_body_alone_is_within_the_share_and_so_is_what_is_here_in_full():
    async with senders(64_000_000) as many:
        await many.send(25_000_000)
    async with senders(64_000_000) as many:
        many.whole.set()
        for _ in range(600):  # a burst of a whole GitLab, while the database is slow
            await many.send(50_000)
        assert many.door.held_bytes == 30_000_000


async def test_a_proxy_on_this_machine_sends_for_everybody():
    async with senders(64_000_000) as many:
        for _ in range(40):
            await many.send(999_000, "127.0.0.1")


def test_refusals_are_in_the_log_a_few_of_each_address():
    now = 0.0
    door = HookDoor(lambda: now)
    why = ApiProblem(Kind.HOOK_REFUSED, "no")
    with structlog.testing.capture_logs() as lines:
        for _ in range(50):
            assert door.refusal("203.0.113.1", "gitea", "it is not signed", why) is why
        door.refusal("203.0.113.2", "github", "it is not signed", why)
        now = 61.0
        door.refusal("203.0.113.1", "gitea", "it is not signed", why)
    assert [line["address"] for line in lines] == ["203.0.113.1"] * 3 + ["203.0.113.2", "203.0.113.1"]
    assert lines[0] == {
        "event": "hook refused",
        "log_level": "warning",
        "address": "203.0.113.1",
        "forge": "gitea",
        "reason": "it is not signed",
    }
