"""One stream of events by itself: how it ends."""

from __future__ import annotations

import asyncio

from evermirror.faces.api import event_stream
from evermirror.faces.api.event_door import EventDoor
from evermirror.faces.api.event_stream import EventStream
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.event import Event, EventId


async def nothing():
    await asyncio.Event().wait()
    yield ()


async def nobody():
    return None


async def test_a_client_that_takes_nothing_is_left_without_a_word_when_it_may_follow_no_more(monkeypatch):
    monkeypatch.setattr(event_stream, "SLOW_S", 0.05)
    monkeypatch.setattr(event_stream, "CHECK_S", 0.01)
    asked = 0

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive():
        await asyncio.Event().wait()

    async def identify():
        nonlocal asked
        asked += 1
        if asked > 1:
            raise ApiProblem(Kind.UNAUTHORIZED, "revoked")
        return "ann"

    door = EventDoor(streams=1)
    stream = EventStream(nothing(), door, door.enter("192.0.2.1"), identify)
    async with asyncio.timeout(10):
        await stream({"type": "http"}, receive, send)
    door.enter("192.0.2.1")


async def test_to_wait_until_the_other_half_of_a_stream_was_taken_is_not_slow(monkeypatch):
    """Events and the overview take turns: the client is slow only with what is being sent."""
    monkeypatch.setattr(event_stream, "SLOW_S", 0.0)  # all that waits at all takes too long
    taken = []

    async def send(message):
        taken.append(message["body"])

    door = EventDoor(streams=1)
    stream = EventStream(nothing(), door, door.enter("192.0.2.1"), nobody)
    async with stream._sending:  # the other half
        waiting = asyncio.create_task(stream._send(send, b"frame"))
        await asyncio.sleep(0.01)
    await waiting
    assert taken == [b"frame"]


def test_texts_that_are_kept_are_bounded_by_their_size(monkeypatch):
    door = EventDoor()
    for n in range(1, 200):
        event = Event(EventId(n), "repo.gone", 1.0, None, None, {"x": "y" * 100_000}, public=False)
        assert door.frame(event).startswith(f"id: {n}\n".encode())
        assert door.frame(event) is door.frame(event)
    assert 10 < len(door._frames) < 50
    assert door._bytes == sum(map(len, door._frames.values()))
