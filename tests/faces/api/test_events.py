"""GET /api/events over a real server, a real feed and a real store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from pathlib import Path

import httpx2
import pytest

from evermirror.edge.store.store import Store
from evermirror.faces.api import event_stream
from evermirror.faces.api.auth import Auth
from evermirror.faces.api.event_door import EventDoor
from evermirror.model.event import EventId, EventType, NewEvent
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import Progress
from evermirror.model.repo import Host, RepoRecord, RepoSpec
from evermirror.nodes.coordinator.events import event_feed
from evermirror.nodes.coordinator.events.event_feed import EventFeed
from evermirror.nodes.event_service import EventFilter
from evermirror.nodes.http_server import serving
from tests.support.migrated import tables_at_once
from tests.support.news import put_events
from tests.support.sse import following

A, B, SECRET = "example.org/team/a", "example.org/team/b", "example.org/team/secret"
JSON = {"Accept": "application/json"}
READER = {"Authorization": "Bearer em_reader"}


def note(n=0, key=A, type_=EventType.REPO_GONE, worker=None):
    return NewEvent(type_, 100.0 + n, key, worker, {"n": n})


def repo(key, *, private=False):
    return RepoRecord(RepoSpec(key, f"https://{key}", Host("example.org"), private=private))


class Desk:
    """A store, its feed and a server over it; ``restart`` makes them anew over the same file."""

    def __init__(self, house, path):
        self.house = house
        self.path = path

    @contextlib.asynccontextmanager
    async def running(self, port=0, **options):
        options = {"retention_s": 1e9, "keep": 10**6, "gather_s": 0.01} | options
        with tables_at_once():
            self.store = await Store.open(f"sqlite:///{self.path}")
        self.feed = EventFeed(self.store, time.time, **options)
        await self.feed.load()
        self.store.on_event = self.feed.wake
        self.house.events = self.feed
        running = asyncio.create_task(self.feed.run())
        listener = socket.create_server(("127.0.0.1", port))
        self.port = listener.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        try:
            self.app = self.house.app()
            async with serving(self.app, listener):
                try:
                    yield self
                finally:
                    self.feed.stop()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await self.store.close()

    async def put(self, *news):
        await put_events(self.store, news)

    async def page(self, headers=READER, **query):
        async with httpx2.AsyncClient(base_url=self.base, trust_env=False) as client:
            return await client.get("/api/events", params=query, headers=JSON | headers)


@pytest.fixture
def desk(house, tmp_path):
    return Desk(house.with_tokens(), tmp_path / "store.db")


@pytest.fixture
async def open_desk(desk):
    async with desk.running():
        await desk.store.upsert_repos([repo(A), repo(B), repo(SECRET, private=True)])
        await desk.feed.beyond(EventId((await desk.store.latest_event()) - 1))
        yield desk


def numbers(events):
    return [e.data["data"]["n"] for e in events]


# The stream


async def test_a_follower_gets_what_happens_from_now_on(open_desk):
    async with following(open_desk.base, token="em_reader") as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.answer.headers["cache-control"] == "no-store"
        await open_desk.put(note(1), note(2, worker="alpha"))
        first, second = await stream.take(2)
    assert stream.retry_ms == 2000
    assert (first.type, first.last_id) == ("repo.gone", str(first.data["id"]))
    assert first.data == {
        "version": 1,
        "id": int(first.last_id),
        "type": "repo.gone",
        "at": "1970-01-01T00:01:41.000Z",
        "repo": A,
        "worker": None,
        "data": {"n": 1},
    }
    assert second.data["worker"] == "alpha"


async def test_nothing_is_lost_or_doubled_by_those_who_come_back_while_many_write(open_desk):
    count = 600
    latest = str(open_desk.feed.latest())

    async def write():
        for n in range(0, count, 3):
            await open_desk.put(note(n), note(n + 1), note(n + 2))

    async def follow(at_once):
        seen, last = [], latest
        while len(seen) < count:
            async with following(open_desk.base, token="em_reader", last_id=last) as stream:
                some = await stream.take(min(at_once, count - len(seen)))
                seen += some
                last = seen[-1].last_id
        return seen

    *followers, _ = await asyncio.gather(follow(1000), follow(37), follow(101), write())
    for seen in followers:
        assert numbers(seen) == list(range(count))


async def test_a_restart_of_the_server_loses_nothing(desk):
    async with desk.running():
        await desk.put(*(note(n) for n in range(3)))
        async with following(desk.base, token="em_reader", after="0") as stream:
            seen = await stream.take(2)
        port = desk.port
    async with desk.running(port):
        await desk.put(note(3))
        async with following(desk.base, token="em_reader", last_id=seen[-1].last_id) as stream:
            seen += await stream.take(2)
    assert numbers(seen) == [0, 1, 2, 3]


async def test_the_header_goes_before_the_address(open_desk):
    await open_desk.put(note(1), note(2))
    newest = (await open_desk.page()).json()["items"]
    async with following(
        open_desk.base, token="em_reader", after="0", last_id=str(newest[-2]["id"])
    ) as stream:
        assert numbers(await stream.take(1)) == [2]


async def test_a_follower_who_is_behind_the_ring_is_served_from_the_disk(desk):
    async with desk.running(ring=5):
        await desk.put(*(note(n) for n in range(100)))
        await desk.feed.beyond(EventId((await desk.store.latest_event()) - 1))
        assert len(desk.feed._ring) < 20
        async with following(desk.base, token="em_reader", after="0") as stream:
            seen = await stream.take(100)
    assert numbers(seen) == list(range(100))


async def test_what_is_no_longer_kept_is_told_as_a_gap(desk):
    async with desk.running(ring=1):
        await desk.put(*(note(n) for n in range(10)))
        ids = [e.id for e in (await desk.store.events_after(EventId(0), 100)).events]
        await desk.store.clean_events(0.0, keep=4)
        async with following(desk.base, token="em_reader", last_id=str(ids[2])) as stream:
            gap, *rest = await stream.take(5)
        assert (gap.type, gap.last_id) == ("gap", str(ids[5]))
        assert gap.data == {"version": 1, "type": "gap", "after": ids[2], "until": ids[5]}
        assert numbers(rest) == [6, 7, 8, 9]
        page = (await desk.page(after=ids[2])).json()
        assert page["gap"] == {"after": ids[2], "until": ids[5]}
        async with following(desk.base, token="em_reader", last_id=str(ids[5])) as stream:
            assert (await stream.take(1))[0].type == "repo.gone"


async def test_a_number_of_another_database_is_a_gap_and_not_silence(open_desk):
    async with following(open_desk.base, token="em_reader", last_id=str(2**60)) as stream:
        [gap] = await stream.take(1)
        assert gap.type == "gap"
        await open_desk.put(note(1))
        assert numbers(await stream.take(1)) == [1]


async def test_a_number_that_an_earlier_database_gave_out_is_a_gap(open_desk):
    async with following(open_desk.base, token="em_reader", last_id="1700000000000000") as stream:
        gap, *rest = await stream.take(4)
    assert (gap.type, [e.type for e in rest]) == ("gap", ["repo.added"] * 3)
    page = (await open_desk.page(after=1700000000000000)).json()
    assert page["gap"] == {"after": 1700000000000000, "until": gap.data["until"]}
    ahead = (await open_desk.page(after=2**60)).json()
    assert ahead["gap"] == {"after": 2**60, "until": ahead["next_after"]}
    assert ahead["next_after"] == open_desk.feed.latest()


async def test_a_database_that_is_away_for_a_moment_ends_no_stream(open_desk, monkeypatch):
    monkeypatch.setattr(event_stream, "CHECK_S", 0.01)
    asked, identify = [], Auth.identify

    async def and_fail(self, asked_by):
        asked.append(1)
        if len(asked) > 1:
            raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))
        return await identify(self, asked_by)

    monkeypatch.setattr(Auth, "identify", and_fail)
    async with following(open_desk.base, token="em_reader") as stream:
        async with asyncio.timeout(10):
            while len(asked) < 3:
                await asyncio.sleep(0.01)
        await open_desk.put(note(1))
        assert numbers(await stream.take(1)) == [1]


async def test_followers_do_not_count_as_slow_answers(open_desk):
    asked = time.monotonic()
    async with following(open_desk.base, token="em_reader") as stream:
        begins_s = time.monotonic() - asked  # at most: this is what counts
        await asyncio.sleep(1.0)
        await open_desk.put(note(1))
        await stream.take(1)
    async with asyncio.timeout(10), httpx2.AsyncClient(base_url=open_desk.base, trust_env=False) as client:
        while 'seconds_count{route="/api/events"}' not in (text := (await client.get("/metrics")).text):
            await asyncio.sleep(0.01)
    [spent] = re.findall(r'evermirror_http_seconds_sum\{route="/api/events"\} (\S+)', text)
    assert float(spent) < begins_s + 0.5


async def test_who_wants_nothing_that_happens_resumes_behind_it(desk):
    async with (
        desk.running(idle_s=0.2),
        following(desk.base, token="em_reader", types="worker.*") as stream,
    ):
        await desk.put(note(1))
        latest = str(await desk.store.latest_event())
        taking = asyncio.create_task(stream.take(1))
        async with asyncio.timeout(20):
            while stream.comments < 3 or stream.last_id != latest:
                await asyncio.sleep(0.01)
        assert not taking.done()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


# Filters, and who may see what


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"types": "repo.gone,sync.*"}, [0, 1, 2]),
        ({"types": "*.failed"}, [2]),
        ({"repos": "*/b"}, [1]),
        ({"repos": "example.org/team/*", "types": "repo.*"}, [0, 1]),
        ({"worker": "alpha"}, [2, 3]),
    ],
)
async def test_filters(open_desk, query, expected):
    await open_desk.put(
        note(0),
        note(1, B),
        note(2, type_=EventType.SYNC_FAILED, worker="alpha"),
        note(3, None, EventType.WORKER_UP, "alpha"),
    )
    made = await open_desk.store.latest_event() - 4
    async with following(open_desk.base, token="em_reader", after=made, **query) as stream:
        assert numbers(await stream.take(len(expected))) == expected
    page = (await open_desk.page(after=made, **query)).json()
    assert [item["data"]["n"] for item in page["items"]] == expected
    assert page["next_after"] == made + 4


async def test_who_shows_no_token_sees_public_repos_only(open_desk):
    hidden = [
        note(1, SECRET),
        note(2, None, EventType.WORKER_DOWN, "alpha"),
        note(3, None, EventType.ALERT_RAISED),
        note(4, A, EventType.TASK_ENDED),
        note(5, A, EventType.PUSH_ENDED),
        note(6, A, EventType.HOOKS_SILENT),
        note(7, None, EventType.CATALOG_CHANGED),
    ]
    made = open_desk.feed.latest()
    await open_desk.put(note(0), *hidden, note(8, B, EventType.SYNC_FAILED))
    async with following(open_desk.base, after=made) as stream:
        first, gap, last = await stream.take(3)  # they too are to read the catalog anew
        assert (numbers([first, last]), gap.type, set(gap.data)) == (
            [0, 8],
            "gap",
            {"version", "type", "after", "until"},
        )
    page = (await open_desk.page(headers={}, after=made)).json()
    assert [item["data"]["n"] for item in page["items"]] == [0, 8]
    whole = (await open_desk.page(after=made)).json()
    assert [item["data"]["n"] for item in whole["items"]] == list(range(9))


async def test_a_repo_that_became_private_hides_what_was_told_of_it_before(open_desk):
    made = open_desk.feed.latest()
    await open_desk.put(note(1), note(2, B))
    await open_desk.feed.beyond(EventId(made + 1))
    await open_desk.store.upsert_repos([repo(A, private=True)])
    await open_desk.feed.beyond(EventId((await open_desk.store.latest_event()) - 1))
    page = (await open_desk.page(headers={}, after=made)).json()
    assert [item["data"]["n"] for item in page["items"]] == [2]


async def test_a_stream_ends_soon_after_its_token_was_revoked(open_desk, monkeypatch):
    monkeypatch.setattr(event_stream, "CHECK_S", 0.05)
    async with following(open_desk.base, token="em_reader") as stream:
        await open_desk.put(note(1))
        await stream.take(1)
        del open_desk.house.tokens.known["em_reader"]
        open_desk.house.clock.now += 10.0
        async with asyncio.timeout(20):
            assert await stream.take(1) == []


async def test_wrong_tokens_of_others_at_an_address_end_no_stream_and_hide_no_revocation(
    open_desk, monkeypatch
):
    monkeypatch.setattr(event_stream, "CHECK_S", 0.01)
    async with following(open_desk.base, token="em_reader") as stream:
        await open_desk.put(note(1))
        await stream.take(1)
        async with httpx2.AsyncClient(base_url=open_desk.base, trust_env=False) as client:
            wrong = [await client.get("/api/me", headers={"Authorization": "Bearer no"}) for _ in range(12)]
        assert wrong[-1].status_code == 429
        lookups = open_desk.house.tokens.lookups
        open_desk.house.clock.now += 4.0  # what is known of its token is looked up again
        async with asyncio.timeout(20):
            while open_desk.house.tokens.lookups == lookups:
                await asyncio.sleep(0.01)
            await open_desk.put(note(2))
            assert len(await stream.take(1)) == 1
            del open_desk.house.tokens.known["em_reader"]
            open_desk.house.clock.now += 4.0
            assert await stream.take(1) == []


async def test_progress_is_told_to_those_who_ask_and_not_kept(open_desk, monkeypatch):
    monkeypatch.setattr(event_feed, "PROGRESS_S", 0.05)
    async with following(open_desk.base, token="em_reader", progress="true", repos="*/a") as stream:
        while not open_desk.feed._listening:
            await asyncio.sleep(0.01)
        for percent in (10.0, 20.0):
            open_desk.feed.heard(Progress(A, (7,), "receiving", percent, 123, 100.0))
        open_desk.feed.heard(Progress(B, (), "receiving", 1.0, 0, 100.0))
        [told] = await stream.take(1)
    assert told.type == "progress"
    assert told.data["repo"] == A
    assert told.data["data"] == {
        "phase": "receiving",
        "percent": 20.0,
        "received_bytes": 123,
        "task_ids": ["7"],
    }
    async with httpx2.AsyncClient(base_url=open_desk.base, trust_env=False) as client:
        refused = await client.get("/api/events", params={"progress": "true"})
    assert refused.status_code == 401


# Bounds


async def test_so_many_may_follow_and_no_more(open_desk):
    open_desk.app.state.api.event_door = EventDoor(streams=1)
    async with following(open_desk.base) as stream:
        assert stream.answer.status_code == 200
        async with following(open_desk.base) as other:
            assert other.answer.status_code == 503
            assert int(other.answer.headers["retry-after"]) > 0
    async with asyncio.timeout(20):
        while True:
            async with following(open_desk.base) as again:
                if again.answer.status_code == 200:
                    break
            await asyncio.sleep(0.05)


async def test_a_client_that_takes_nothing_is_cut_and_costs_no_memory(open_desk, monkeypatch):
    monkeypatch.setattr(event_stream, "SLOW_S", 0.5)
    big = NewEvent(EventType.REPO_GONE, 1.0, A, None, {"text": "x" * 50_000})
    reader, writer = await asyncio.open_connection("127.0.0.1", open_desk.port, limit=1024)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer em_reader\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert open_desk.feed.followers == 1
    for _ in range(40):
        await open_desk.put(*[big] * 10)
    async with asyncio.timeout(10):
        while open_desk.feed.followers:
            await asyncio.sleep(0.05)
    writer.close()


async def test_a_client_that_leaves_is_let_go(open_desk):
    async with following(open_desk.base):
        while not open_desk.feed.followers:
            await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        while open_desk.feed.followers:
            await asyncio.sleep(0.01)


async def test_a_stop_ends_open_streams_at_once_and_whole(desk):
    async with desk.running(), contextlib.AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(following(desk.base)) for _ in range(20)]
        while desk.feed.followers < 20:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        desk.feed.stop()
        assert [await stream.take(1) for stream in streams] == [[]] * 20
    assert time.monotonic() - began < 10.0


async def test_a_server_that_is_stopped_with_open_streams_stops_in_time(desk):
    async with contextlib.AsyncExitStack() as stack:
        async with desk.running():
            for _ in range(5):
                await stack.enter_async_context(following(desk.base))
            while desk.feed.followers < 5:
                await asyncio.sleep(0.01)
            began = time.monotonic()
        assert time.monotonic() - began < 10.0


async def test_head_is_answered_and_ends(open_desk):
    async with httpx2.AsyncClient(base_url=open_desk.base, trust_env=False, timeout=20) as client:
        answer = await client.head("/api/events")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert open_desk.feed.followers == 0


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ({"after": "-1"}, {}),
        ({"after": "x"}, {}),
        ({"after": str(2**63)}, {}),
        ({"types": "refs.moved"}, {}),
        ({"types": ",".join(["repo.*"] * 51)}, {}),
        ({"repos": "\x00"}, {}),
        ({"limit": "0"}, {}),
        ({"progress": "maybe"}, {}),
        ({}, {"Last-Event-ID": "twelve"}),
        ({}, {"Last-Event-ID": "9" * 30}),
    ],
)
async def test_what_cannot_be_meant_is_refused(open_desk, query, headers):
    async with httpx2.AsyncClient(base_url=open_desk.base, trust_env=False) as client:
        answer = await client.get("/api/events", params=query, headers=headers)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_server_that_keeps_no_events_says_so(house):
    async with house.client() as client:
        assert (await client.get("/api/events")).status_code == 404


# Pages


async def test_pages_go_on_where_the_one_before_ended(open_desk):
    made = open_desk.feed.latest()
    await open_desk.put(*(note(n) for n in range(25)))
    seen, after = [], made
    for size in (10, 10, 5, 0):
        page = (await open_desk.page(after=after, limit=10)).json()
        assert len(page["items"]) == size
        seen += [item["data"]["n"] for item in page["items"]]
        after = page["next_after"]
    assert seen == list(range(25))
    newest = (await open_desk.page(limit=3)).json()
    assert [item["data"]["n"] for item in newest["items"]] == [22, 23, 24]
    assert newest["next_after"] == after


async def test_bytes_that_are_no_text_are_told_as_text(open_desk):
    name = b"refs/heads/\xff\xe9".decode("utf-8", "surrogateescape")
    await open_desk.put(NewEvent(EventType.REPO_GONE, 1.0, A, None, {"ref": name, "x": "\ud800"}))
    answer = await open_desk.page(limit=1)
    assert "refs/heads/" in json.loads(answer.content.decode("utf-8"))["items"][0]["data"]["ref"]


async def test_pages_of_rare_events_are_found_in_bounded_steps(open_desk, monkeypatch):
    monkeypatch.setattr(event_feed, "SCAN_MAX", 500)
    made = open_desk.feed.latest()
    await open_desk.put(*(note(n) for n in range(1200)), note(5000, B))
    which = EventFilter(repos=(B,))
    after = made
    for _ in range(2):
        found, after = await open_desk.feed.page(which, after, 10)
        assert found == ()
    found, after = await open_desk.feed.page(which, after, 10)
    assert found[0].data == {"n": 5000}


async def test_the_documented_program_misses_nothing_over_a_restart(desk):
    text = (Path(__file__).parents[3] / "docs" / "events.md").read_text("utf-8")
    names: dict = {}
    exec(re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1], names)  # noqa: S102
    async with desk.running():
        await desk.put(note(1), note(2))
        port, base = desk.port, desk.base
        first = (await desk.store.events_after(EventId(0), 1)).events[0].id
        events = names["events"](base, "em_reader", str(first - 1))
        assert [(await asyncio.to_thread(next, events))["data"]["n"] for _ in range(2)] == [1, 2]
    async with desk.running(port):
        await desk.put(note(3))
        assert (await asyncio.to_thread(next, events))["data"]["n"] == 3
        events.close()


async def test_a_database_in_trouble_ends_the_stream_and_the_client_comes_back(desk, monkeypatch):
    async with desk.running(ring=1):
        await desk.put(*(note(n) for n in range(5)))
        await desk.feed.beyond(EventId((await desk.store.latest_event()) - 1))
        after, failing = desk.store.events_after, True

        async def events_after(number, limit):
            if failing:
                raise FailureError(Failure(FailureKind.UNKNOWN, "the disk is full"))
            return await after(number, limit)

        monkeypatch.setattr(desk.store, "events_after", events_after)
        async with following(desk.base, token="em_reader", after=0) as stream:
            async with asyncio.timeout(20):
                assert await stream.take(1) == []
        failing = False
        async with following(desk.base, token="em_reader", last_id=stream.last_id) as stream:
            assert numbers(await stream.take(5)) == list(range(5))
