"""Events through an aggregator: streamed, resumed, and never from memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial

import httpx2
import pytest

from evermirror.edge.store.store import Store
from evermirror.faces.api.overview_board import OverviewBoard
from evermirror.faces.pass_on.app import PassOnSettings
from evermirror.model.access import Role
from evermirror.model.event import EventId, EventType, NewEvent
from evermirror.nodes.coordinator.events.event_feed import EventFeed
from tests.faces.pass_on.pair import Pair
from tests.support.migrated import tables_at_once
from tests.support.news import put_events
from tests.support.sse import following

A = "example.org/team/a"


def note(n):
    return NewEvent(EventType.REPO_GONE, 100.0, A, None, {"n": n})


@pytest.fixture
async def feed(pair, tmp_path):
    with tables_at_once():
        store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    feed = EventFeed(store, time.time, retention_s=1e9, keep=10**6, gather_s=0.01)
    store.on_event = feed.wake
    pair.app.state.api.events = feed
    feed.put = partial(put_events, store)
    running = asyncio.create_task(feed.run())
    yield feed
    feed.stop()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_a_stream_is_passed_on_as_it_comes_and_taken_up_again(pair, feed):
    async with following(pair.url, token="em_reader") as stream:
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        for n in range(3):
            await feed.put([note(n)])
            async with asyncio.timeout(20):
                [told] = await stream.take(1)
            assert told.data["data"] == {"n": n}
        last_id = told.last_id
    await feed.put([note(3)])
    async with following(pair.url, token="em_reader", last_id=last_id) as stream:
        [told] = await stream.take(1)
    assert told.data["data"] == {"n": 3}


async def test_pages_are_never_from_memory(pair, feed):
    async with httpx2.AsyncClient(base_url=pair.url, trust_env=False) as client:
        asked = {"headers": {"Accept": "application/json", "Authorization": "Bearer em_reader"}}
        for n in range(1, 4):
            await feed.put([note(n)])
            answer = await client.get("/api/events", params={"after": 0}, **asked)
            assert len(answer.json()["items"]) == n
            assert "age" not in answer.headers


async def test_head_ends_and_leaves_nobody_following(pair, feed):
    async with httpx2.AsyncClient(base_url=pair.url, trust_env=False, timeout=20) as client:
        answer = await client.head("/api/events", headers={"Authorization": "Bearer em_reader"})
        assert answer.status_code == 200
        assert feed.followers == 0


async def test_who_leaves_the_aggregator_leaves_the_coordinator(pair, feed):
    async with following(pair.url, token="em_reader"):
        async with asyncio.timeout(20):
            while feed.followers != 1:
                await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        while feed.followers:
            await asyncio.sleep(0.01)
    assert feed.latest() == EventId(0)


async def test_streams_without_a_token_take_no_room_from_writes_and_waits(feed):
    pair = Pair(pass_on=PassOnSettings(waiting=3, followers=3))
    pair.tokens.add("em_operator", Role.OPERATOR)
    async with pair.running(), contextlib.AsyncExitStack() as stack:
        pair.app.state.api.events = feed
        for _ in range(3):
            await stack.enter_async_context(following(pair.url))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=pair.url, trust_env=False))
        assert (await client.get("/api/events")).status_code == 503
        asked = {"git_url": "https://example.org/team/a"}
        answer = await client.post("/api/tasks", json=asked, headers={"Authorization": "Bearer em_operator"})
        assert answer.status_code == 200


async def test_the_overview_comes_through_with_events_and_says_less_without_a_token(pair, feed):
    pair.app.state.api.overview_board = OverviewBoard(gap_s=0.02)
    async with following(pair.url, token="em_reader", overview="true") as stream:
        async with asyncio.timeout(20):
            [first] = await stream.take(1)
        assert (first.type, first.data["total_repos"]) == ("overview", 0)
        await feed.put([note(1)])
        async with asyncio.timeout(20):
            [event] = await stream.take(1)
        assert event.data["data"] == {"n": 1}
        await pair.service.add_url("https://example.org/team/new", None, actor="test")
        async with asyncio.timeout(20):
            [changed] = await stream.take(1)
        assert (changed.type, changed.data["total_repos"]) == ("overview", 1)
    async with following(pair.url, overview="true") as stream, asyncio.timeout(20):
        [public] = await stream.take(1)
    assert (public.data["alerts_standing"], public.data["hosts"]) == (None, [])
    async with httpx2.AsyncClient(base_url=pair.url, trust_env=False) as client:
        assert (await client.get("/api/me")).json() == {"name": None, "role": "public"}
        course = (await client.get("/api/overview/course?hours=1")).json()
    assert len(course["items"]) == 2
