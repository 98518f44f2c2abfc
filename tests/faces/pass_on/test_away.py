"""The coordinator is away, slow, or breaks off: what is known is told, and nothing is made up."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import httpx2
import pytest

from evermirror.faces.pass_on import kept, reads
from tests.faces.pass_on.pair import Pair, until

URL = "https://example.org/o/r"


class Scripted:
    """A coordinator that does as the test says; ``asked`` counts, ``left`` tells of clients that went."""

    def __init__(self):
        self.asked = 0
        self.left = asyncio.Event()
        self.go = asyncio.Event()
        self.hold = False
        self.body = b'{"n": 1}'
        self.status = 200
        self.headers = [(b"content-type", b"application/json")]

    async def __call__(self, scope, receive, send):
        self.asked += 1
        if self.hold:
            await self.held(receive)
        start = {"type": "http.response.start", "status": self.status, "headers": self.headers}
        await send(start)
        await send({"type": "http.response.body", "body": self.body})

    async def held(self, receive):
        while not self.go.is_set():
            left = asyncio.create_task(receive())
            await asyncio.wait(
                {left, asyncio.create_task(self.go.wait())}, return_when=asyncio.FIRST_COMPLETED
            )
            if left.done() and left.result()["type"] == "http.disconnect":
                self.left.set()
                return
            left.cancel()


@pytest.fixture
async def scripted():
    app = Scripted()
    async with Pair(app=app).running() as pair:
        yield pair


# Kept for a moment


async def test_reads_within_a_moment_ask_once_each_token_for_itself(scripted, monkeypatch):
    fresh_s = kept.FRESH_S
    monkeypatch.setattr(kept, "FRESH_S", 60.0)  # a busy machine is slow
    async with scripted.client() as public, scripted.client("a") as a, scripted.client("b") as b:
        for client in (public, a, b):
            for _ in range(5):
                assert (await client.get("/api/x?y=1")).json() == {"n": 1}
        assert scripted.app.asked == 3
        await public.get("/api/x?y=2")
        assert scripted.app.asked == 4
        monkeypatch.setattr(kept, "FRESH_S", fresh_s)
        await asyncio.sleep(kept.FRESH_S + 0.1)
        scripted.app.body = b'{"n": 2}'
        assert (await public.get("/api/x?y=1")).json() == {"n": 2}
        assert (await public.head("/api/x?y=1")).headers["content-length"] == "8"


async def test_pages_are_kept_by_language(pair):
    async with pair.client() as client:
        for language in ("zh", "en", "zh"):
            got = await client.get("/", headers={"Accept-Language": language})
            assert f'<html lang="{language}">' in got.text


async def test_an_unchanged_page_is_not_sent_again(pair):
    async with pair.client() as client:
        first = await client.get("/static/style.css")
        again = await client.get("/static/style.css", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]


async def test_whoever_wrote_something_sees_it_at_once(pair):
    async with pair.client("em_operator") as client, pair.client() as other:
        for n in range(5):
            await client.get("/api/git_urls")
            await other.get("/api/git_urls")
            await client.post("/api/git_urls", json={"git_url": f"{URL}{n}"})
            assert len((await client.get("/api/git_urls")).json()["items"]) == n + 1
            assert len((await other.get("/api/git_urls")).json()["items"]) == n + 1


async def test_many_who_want_the_same_ask_once(scripted, monkeypatch):
    monkeypatch.setattr(kept, "FRESH_S", 60.0)  # for those who come late
    scripted.app.hold = True
    async with scripted.client() as client:
        asks = [asyncio.create_task(client.get("/api/x")) for _ in range(30)]
        await until(lambda: scripted.app.asked == 1)
        await asyncio.sleep(0.1)
        scripted.app.go.set()
        assert {(await ask).status_code for ask in asks} == {200}
        assert scripted.app.asked == 1


async def test_a_refusal_is_for_the_one_who_asked(scripted):
    scripted.app.hold, scripted.app.status = True, 429
    async with scripted.client() as client:
        asks = [asyncio.create_task(client.get("/api/x")) for _ in range(4)]
        await until(lambda: scripted.app.asked == 1)
        await asyncio.sleep(0.1)
        scripted.app.go.set()
        assert {(await ask).status_code for ask in asks} == {429}
        assert scripted.app.asked == 4


async def test_a_write_is_never_kept_nor_asked_twice(scripted):
    async with scripted.client() as client:
        for _ in range(3):
            await client.post("/api/x", json={})
        assert scripted.app.asked == 3


# Away


async def test_while_it_is_away_the_last_answer_is_given_and_marked(pair):
    async with pair.client("em_reader") as client, pair.client() as public:
        good = await client.get("/api/overview")
        assert "x-evermirror-stale" not in good.headers
        await pair.stop()
        await asyncio.sleep(kept.FRESH_S + 0.2)
        old = await client.get("/api/overview")
        assert (old.status_code, old.content) == (200, good.content)
        assert old.headers["x-evermirror-stale"].endswith("Z")
        assert int(old.headers["age"]) >= 1
        assert (await client.head("/api/overview")).headers["x-evermirror-stale"]
        none = await public.get("/api/overview")
        assert none.status_code == 503, "what a token was told is for that token"
        problem = none.json()
        assert problem["type"] == "/problems/unavailable"
        assert "coordinator is away" in problem["detail"]
        assert "git clone" in problem["hint"]
        assert none.headers["retry-after"] == "10"
        assert none.headers["content-security-policy"]
        await pair.start()
        await asyncio.sleep(reads.REST_S)
        back = await client.get("/api/overview")
        assert (back.status_code, "x-evermirror-stale" in back.headers) == (200, False)


async def test_old_answers_are_given_for_a_bounded_time(pair, monkeypatch):
    async with pair.client() as client:
        await client.get("/api/version")
        await pair.stop()
        monkeypatch.setattr(kept, "STALE_S", 0.5)
        await asyncio.sleep(kept.FRESH_S + 0.2)
        assert (await client.get("/api/version")).status_code == 503


async def test_the_page_is_there_while_the_coordinator_is_not(pair):
    await pair.stop()
    async with pair.client() as client:
        page = await client.get("/", headers={"Accept-Language": "zh"})
        assert page.status_code == 200
        assert '<html lang="zh">' in page.text
        assert page.headers["content-security-policy"]
        assert (await client.get("/static/style.css")).status_code == 200
        assert (await client.get("/static/none.css")).status_code == 404
        assert (await client.get("/openapi.json")).status_code == 503


async def test_a_write_that_did_not_get_there_says_so(pair):
    await pair.stop()
    async with pair.client("em_operator") as client:
        got = await client.post("/api/git_urls", json={"git_url": URL})
        assert got.status_code == 503
        assert "nothing was changed" in got.json()["detail"]


async def test_a_write_that_may_have_got_there_is_uncertain_and_not_repeated(scripted):
    scripted.app.hold = True
    async with scripted.client("t") as client:
        ask = asyncio.create_task(client.post("/api/git_urls", json={"git_url": URL}))
        await until(lambda: scripted.app.asked == 1)
        await scripted.stop()
        got = await ask
        assert (got.status_code, got.json()["type"]) == (502, "/problems/uncertain")
        assert "may have been done" in got.json()["hint"]
        scripted.app.go.set()
        await scripted.start()
        await asyncio.sleep(0.3)
        assert scripted.app.asked == 1


async def test_where_the_connection_breaks_a_read_is_asked_once_more_and_a_write_is_not(pair):
    await pair.stop()
    asked = []

    async def hang_up(reader, writer):
        asked.append((await reader.readuntil(b"\r\n\r\n")).split()[0])
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", pair.port), pair.client("t") as client:
        for body in (None, b"{}"):
            asked.clear()
            got = await client.post("/api/git_urls", content=body)
            assert (got.status_code, asked) == (502, [b"POST"])
        asked.clear()
        assert (await client.get("/api/git_urls")).status_code == 503
        assert asked == [b"GET", b"GET"]


async def test_what_a_refused_token_was_told_is_not_told_again(pair):
    async with pair.client("em_reader") as client:
        assert (await client.get("/api/overview")).status_code == 200
        del pair.tokens.known["em_reader"]
        pair.app = pair.api()  # which remembers no token
        assert (await client.get("/api/repos/example.org/x")).status_code == 401
        await pair.stop()
        await asyncio.sleep(kept.FRESH_S + 0.2)
        assert (await client.get("/api/overview")).status_code == 503


async def test_without_a_good_pass_nothing_is_passed_on(pair):
    async with pair.client("em_admin") as client:
        pair.passes = ""
        got = await client.post("/api/git_urls", json={"git_url": URL})
        assert (got.status_code, pair.seen) == (503, [])
        pair.passes = pair.sealed(until_s=-5)
        got = await client.post("/api/git_urls", json={"git_url": URL})
        assert (got.status_code, pair.service.repos) == (503, {})
        assert "pass" in got.json()["detail"]


async def test_a_proxys_word_is_not_the_coordinators(scripted):
    async with scripted.client() as client:
        await client.get("/api/x")
        await asyncio.sleep(kept.FRESH_S + 0.1)
        own = scripted.app.headers
        scripted.app.status, scripted.app.headers = 502, [(b"content-type", b"text/html")]
        assert (await client.get("/api/x")).headers["x-evermirror-stale"]
        assert (await client.post("/api/x")).json()["type"] == "/problems/uncertain"
        scripted.app.status, scripted.app.headers = 503, own
        await asyncio.sleep(reads.REST_S)
        assert (await client.get("/api/x")).status_code == 503, "its own word is passed on"


# Slow


async def test_a_coordinator_that_hangs_is_away_for_reads(scripted, monkeypatch):
    monkeypatch.setattr(reads, "REST_S", 60.0)
    async with scripted.client() as client:
        await client.get("/api/x")
        await asyncio.sleep(kept.FRESH_S + 0.1)
        monkeypatch.setattr(reads, "READ_S", 0.5)
        scripted.app.hold = True
        asks = await asyncio.gather(*(client.get("/api/x") for _ in range(5)))
        assert all(a.headers["x-evermirror-stale"] for a in asks)
        monkeypatch.setattr(reads, "READ_S", 15.0)  # longer than a busy machine takes to answer
        asked, started = scripted.app.asked, asyncio.get_running_loop().time()
        assert (await client.get("/api/x")).headers["x-evermirror-stale"]
        assert asyncio.get_running_loop().time() - started < 10, "nobody waits again so soon"
        assert scripted.app.asked == asked
        monkeypatch.setattr(reads, "READ_S", 0.5)
        other = await client.get("/api/y")
        assert (other.status_code, "in time" in other.json()["detail"]) == (503, True)


async def test_an_answer_that_trickles_is_away_too(pair, monkeypatch):
    monkeypatch.setattr(reads, "READ_S", 0.5)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(50):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            await asyncio.sleep(0.1)

    pair.app = app
    async with pair.client() as client:
        assert (await client.get("/api/x")).status_code == 503


async def test_a_wait_is_passed_on_and_ends_when_its_client_leaves(scripted):
    scripted.app.hold = True
    for method, path in (("POST", "/api/tasks"), ("GET", "/api/x?wait=60")):
        scripted.app.left.clear()
        asked = scripted.app.asked
        async with scripted.client() as client:
            ask = asyncio.create_task(client.request(method, path))
            await until(lambda asked=asked: scripted.app.asked == asked + 1)
            ask.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ask
        async with asyncio.timeout(20):
            await scripted.app.left.wait()


# Streams


class Events:
    """Server-sent events, one at each ``next``."""

    def __init__(self):
        self.next = asyncio.Queue()
        self.ended = asyncio.Event()

    async def __call__(self, scope, receive, send):
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.create_task(self.until_left(receive))
        while not leaving.done():
            more = asyncio.create_task(self.next.get())
            await asyncio.wait({leaving, more}, return_when=asyncio.FIRST_COMPLETED)
            if more.done():
                await send({"type": "http.response.body", "body": more.result(), "more_body": True})
            else:
                more.cancel()
        self.ended.set()

    async def until_left(self, receive):
        while (await receive())["type"] != "http.disconnect":
            pass


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*"])
async def test_events_come_one_by_one_and_end_with_the_client(accept):
    events = Events()
    async with Pair(app=events).running() as pair, pair.client() as client:
        async with client.stream("GET", "/api/events", headers={"Accept": accept}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            parts = answer.aiter_raw()
            for n in range(3):
                events.next.put_nowait(b"data: %d\n\n" % n)
                async with asyncio.timeout(20):
                    assert await anext(parts) == b"data: %d\n\n" % n
        async with asyncio.timeout(20):
            await events.ended.wait()


class Huge:
    """Sends as much as is taken, up to ``total``; ``sent`` counts."""

    def __init__(self, total, told):
        self.total, self.told, self.sent = total, told, 0

    async def __call__(self, scope, receive, send):
        length = [(b"content-length", str(self.total).encode())] if self.told else []
        await send({"type": "http.response.start", "status": 200, "headers": length})
        while self.sent < self.total:
            self.sent += 100_000
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("told", [True, False])
async def test_a_huge_answer_flows_through_and_waits_for_its_reader(told):
    huge = Huge(100_000_000, told)
    async with Pair(app=huge).running() as pair:
        reader, writer = await asyncio.open_connection(sock=_small(pair.url), limit=65536)
        writer.write(b"GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        await until(lambda: huge.sent > 0)
        await asyncio.sleep(1.0)
        assert huge.sent < 30_000_000, "what nobody takes is not fetched"
        got = 0
        while part := await reader.read(1_000_000):
            got += len(part)
        writer.close()
        assert got >= 100_000_000
        assert pair.upstream.state.answers


def _small(url):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    host, _, port = url.removeprefix("http://").partition(":")
    sock.connect((host, int(port)))
    sock.setblocking(False)
    return sock


async def test_an_answer_that_breaks_off_is_not_taken_for_whole():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 3_000_000, "more_body": True})
        raise ConnectionError("gone")

    async with Pair(app=app).running() as pair, pair.client() as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/api/large")
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post("/api/large")


async def test_an_answer_that_breaks_off_early_is_none():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise ConnectionError("gone")

    async with Pair(app=app).running() as pair, pair.client() as client:
        assert (await client.get("/api/small")).status_code == 503
