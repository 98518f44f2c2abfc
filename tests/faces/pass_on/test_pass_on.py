"""What users ask of an aggregator reaches the coordinator as they asked it, and nothing else does."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from evermirror.faces.api.buckets import Rate
from evermirror.faces.api.context import ApiSettings
from evermirror.faces.api.limits import SECURITY_HEADERS, LimitSettings
from evermirror.faces.pass_on.app import PassOnSettings
from evermirror.model.access import Role
from tests.faces.pass_on.pair import Pair, until

URL = "https://example.org/o/r"


async def answer(send, status=200, headers=(), body=b"{}"):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def test_the_api_works_as_at_the_coordinator(pair):
    async with pair.client("em_operator") as client:
        added = await client.post("/api/git_urls", json={"git_url": URL})
        assert added.json() == {"git_url": URL, "status": "added"}
        task = await client.post("/api/tasks", json={"git_url": URL})
        assert task.status_code == 200
        assert (await client.get(f"/api/tasks/{task.json()['task_id']}")).json()["status"] == "pending"
        for key in (
            "example.org/o/r",
            "example.org%2Fo%2Fr",
            "https://example.org/o/r",
            "example.org/o/r.git",
        ):
            assert (await client.get(f"/api/repos/{key}")).json()["key"] == "example.org/o/r"
        assert (await client.delete("/api/git_urls/example.org/o/r")).json()["status"] == "removed"
        listed = await client.get("/api/git_urls", params={"search": "a b&c", "limit": 5})
        assert listed.json() == {"items": [], "next_cursor": None}
    assert pair.seen[-1].target == b"/api/git_urls?search=a+b%26c&limit=5"


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/static/style.css", "/favicon.ico"])
async def test_pages_are_the_coordinators(pair, path):
    async with pair.client() as client, pair.client(base=pair.coordinator) as direct:
        here, there = await client.get(path), await direct.get(path)
    assert (here.status_code, here.content) == (200, there.content)
    for name in ("content-type", "etag", "cache-control", "vary", *SECURITY_HEADERS):
        assert here.headers.get(name) == there.headers.get(name), name


async def test_errors_are_the_coordinators_too(pair):
    async with pair.client() as client:
        missing = await client.get("/api/repos/example.org/none")
        assert (missing.status_code, missing.json()["type"]) == (404, "/problems/not-found")
        wrong = await client.put("/api/tasks", headers={"Authorization": "Bearer em_admin"})
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        refused = await client.get("/api/version", headers={"Authorization": "Bearer nobody"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (
            401,
            'Bearer realm="evermirror"',
        )
        head = await client.head("/api/version")
        assert (head.status_code, head.content) == (200, b"")


# Who asks


async def test_nobody_is_taken_for_the_coordinators_own_user(pair):
    pair.tokens.known.clear()
    await asyncio.sleep(0)
    async with pair.client() as client, pair.client(base=pair.coordinator) as direct:
        assert (await direct.post("/api/git_urls", json={"git_url": URL})).status_code == 200
        here = await client.post("/api/git_urls", json={"git_url": f"{URL}2"})
        assert here.status_code == 401
        assert "warnings" in (await client.get("/api/overview")).json()
        assert (await client.get("/api/overview")).json()["hosts"] == []


async def test_limits_at_the_coordinator_count_the_real_client():
    few = LimitSettings(requests=Rate(per_s=0.001, burst=3), loopback_requests=Rate(per_s=1000, burst=1000))
    async with Pair(settings=ApiSettings(limits=few)).running() as pair:
        for address, statuses in {"203.0.113.9": [404, 404, 404, 429], "203.0.113.10": [404]}.items():
            async with pair.client(address=address) as client:
                assert [(await client.get(f"/api/repos/{n}")).status_code for n in range(4)][
                    : len(statuses)
                ] == statuses
        async with pair.client() as local:
            assert (await local.get("/api/version")).status_code == 200


async def test_wrong_tokens_are_counted_by_the_real_client(pair):
    async with pair.client("wrong", address="203.0.113.9") as bad:
        got = [(await bad.get(f"/api/repos/{n}")).status_code for n in range(12)]
        assert got == [401] * 10 + [429] * 2
    async with pair.client("em_reader", address="203.0.113.10") as good:
        assert (await good.get("/api/version")).status_code == 200


async def test_only_an_aggregators_pass_is_believed(pair):
    other = Pair().sealed()
    wrong = {
        "none": "",
        "made up": "x.y",
        "another coordinator's": other,
        "a worker's": pair.sealed(role=Role.WORKER),
        "an old one": pair.sealed(until_s=-1),
    }
    async with pair.client(base=pair.coordinator) as direct:
        for what, sealed in wrong.items():
            headers = {"X-Evermirror-Via": sealed, "X-Evermirror-For": "203.0.113.9"}
            got = await direct.get("/api/version", headers=headers)
            assert (got.status_code, got.json()["type"]) == (403, "/problems/not-an-aggregator"), what
        alone = await direct.get("/api/version", headers={"X-Evermirror-For": "203.0.113.9"})
        assert alone.status_code == 403
        strange = {"X-Evermirror-Via": pair.passes, "X-Evermirror-For": "127.0.0.1, 8.8.8.8"}
        assert (await direct.get("/api/version", headers=strange)).status_code == 403
        good = {"X-Evermirror-Via": pair.passes, "X-Evermirror-For": "203.0.113.9"}
        assert (await direct.get("/api/version", headers=good)).status_code == 200
        assert (await direct.post("/api/tasks", headers=good, json={"git_url": URL})).status_code == 401


async def test_a_client_that_a_proxy_names_strangely_is_unknown(pair):
    for name in ("_hidden", "ünknown", "203.0.113.9:443", "a b", "2001:db8::1"):
        async with pair.client(address=name.encode()) as client:
            assert (await client.post("/api/tasks", json={})).status_code == 401
    told = [seen["x-evermirror-for"] for seen in pair.seen]
    assert set(told) <= {"unknown", "203.0.113.9", "2001:db8::1"}
    assert told[-1] == "2001:db8::1"


async def test_what_an_aggregator_asks_for_itself_does_not_lock_it_out(pair):
    async with pair.client("wrong", base=pair.coordinator) as direct:
        own = {"X-Evermirror-Via": pair.passes}
        got = {(await direct.get("/api/version", headers=own)).status_code for _ in range(20)}
        assert got == {401}
        assert (await direct.get("/api/version")).status_code == 401, "nor anybody else on its machine"


async def test_a_client_cannot_speak_as_an_aggregator_and_nothing_goes_in_circles(pair):
    async with pair.client() as client:
        for headers in ({"X-Evermirror-Via": pair.passes}, {"X-Evermirror-For": "127.0.0.1"}):
            got = await client.get("/api/version", headers=headers)
            assert got.status_code == 403
            assert "coordinator_url" in got.json()["hint"]
    assert pair.seen == []


async def test_another_hosts_name_is_refused_without_a_token(pair):
    async with pair.client() as client:
        got = await client.get("/api/version", headers={"Host": "evil.example"})
        assert (got.status_code, got.json()["type"]) == (403, "/problems/wrong-host")
        assert pair.seen == []
        token = {"Host": "evil.example", "Authorization": "Bearer em_reader"}
        assert (await client.get("/api/version", headers=token)).status_code == 200


# Headers


async def test_only_listed_headers_are_passed_on(pair):
    listed = {
        "Accept-Language": "zh", "User-Agent": "tester", "X-Hub-Signature-256": "sha256=00",
        "X-GitHub-Event": "push", "X-Gitlab-Token": "t", "Content-Type": "application/json",
    }  # fmt: skip
    unlisted = {
        "Cookie": "a=b", "X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "::1",
        "Connection": "keep-alive, X-Gitee-Token", "Keep-Alive": "timeout=9", "TE": "trailers",
        "Proxy-Authorization": "Basic x", "Expect": "", "X-Anything": "1", "Range": "bytes=0-1",
        "X-Forwarded-Host": "evil", "X-Original-URL": "/metrics", "X-HTTP-Method-Override": "DELETE",
    }  # fmt: skip
    async with pair.client("em_operator") as client:
        await client.post("/api/webhooks/github", content=b"{}", headers={**listed, **unlisted})
    (seen,) = pair.seen
    for name, value in listed.items():
        assert seen[name.lower()] == value
    assert seen["authorization"] == "Bearer em_operator"
    assert seen["host"] == pair.coordinator.removeprefix("http://")
    assert seen["x-evermirror-for"] == "127.0.0.1"
    for name in unlisted:
        assert name == "Connection" or seen[name.lower()] is None, name
    assert seen["connection"] == "keep-alive"


async def test_only_listed_headers_come_back(pair):
    async def app(scope, receive, send):
        await answer(
            send,
            headers=[
                (b"content-type", b"application/json"), (b"set-cookie", b"a=b"), (b"server", b"x"),
                (b"x-inside", b"y"), (b"location", b"http://10.0.0.1/x"), (b"retry-after", b"3"),
                (b"access-control-allow-origin", b"*"), (b"content-encoding", b"gzip"),
            ],
            body=gzip.compress(b"{}"),
        )  # fmt: skip

    pair.app = app
    async with pair.client() as client:
        for method in ("GET", "POST"):
            request = client.build_request(method, "/api/x")
            got = await client.send(request, stream=True)
            await got.aclose()
            expected = {"content-type", "retry-after", "date", "age", "content-length", "transfer-encoding"}
            assert set(got.headers) - set(SECURITY_HEADERS) - {"cache-control"} <= expected
            assert got.headers["retry-after"] == "3"


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 44\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"X-A: b\r\n Content-Length: 44\r\n",
    ],
)
async def test_a_second_request_hidden_in_a_body_stays_hidden(pair, head):
    hidden = b"GET /api/hidden HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    body = b"0\r\n\r\n" + hidden
    begin = b"POST /api/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer em_reader\r\n"
    await pair.raw(begin + head + b"\r\n" + body)
    for seen in pair.seen:  # what our own server took for a request is one to the coordinator too, no more
        assert seen["x-evermirror-via"] == pair.passes
        assert seen["authorization"] == ("Bearer em_reader" if seen.method == "POST" else None)


# Paths


async def test_a_path_arrives_byte_for_byte(pair):
    targets = [
        b"/api/repos/https://example.org//o//r",
        b"/api/repos/%65xample.org%2fo%2Fr?a=%2e%2e&b=//x&c",
        b"/api//version",
        b"/api/%252e%252e/metrics",
        b"/api/repos/a%00b",
        b"/api/repos/a;b=c/@x:y",
        b"/api/repos/%ff%fe",
        b"/api/repos/a|b{c}`d?e=[f]|<g>^{}",
    ]
    for target in targets:
        pair.seen.clear()
        request = b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        here, there = await pair.raw(request), await pair.raw(request, pair.port)
        assert [seen.target for seen in pair.seen] == [target, target]
        assert here.split(b"\r\n")[0] == there.split(b"\r\n")[0]


async def test_a_path_that_leads_elsewhere_is_not_passed_on(pair):
    targets = [
        b"/api/../metrics", b"/api/%2e%2e/metrics", b"/api/..%2fmetrics", b"/api/.%2E/git/x", b"/api/./x",
        b"/api/..\\metrics", b"/api/x/..", b"//api/version", b"/metrics/", b"/git", b"/API/version", b"/api",
        b"/static/../api/version", b"/readyz/..", b"/%2fapi/version", b"*", b"/x",
    ]  # fmt: skip
    for target in targets:
        got = await pair.raw(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert got.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), (target, got)
        assert pair.seen == [], target


async def test_an_absolute_address_leads_to_the_coordinator_only(pair):
    got = await pair.raw(
        b"GET http://198.51.100.7/api/version HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    )
    assert got.startswith(b"HTTP/1.1 200")
    assert [seen.target for seen in pair.seen] == [b"/api/version"]


async def test_bytes_that_no_address_has_are_refused(pair):
    got = await pair.raw(b"GET /api/repos/\xc3\xa9 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    assert b" 400 " in got.split(b"\r\n")[0] or got == b""
    assert pair.seen == []


async def test_nothing_is_upgraded(pair):
    for name in (b"websocket", b"h2c"):
        got = await pair.raw(
            b"GET /api/version HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            b"Upgrade: " + name + b"\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"Sec-WebSocket-Version: 13\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        )
        assert b" 101 " not in got.split(b"\r\n")[0]
    for seen in pair.seen:
        assert (seen["upgrade"], seen["http2-settings"], seen["sec-websocket-key"]) == (None, None, None)


# Bodies


async def test_a_body_too_large_is_refused_here(pair):
    async with pair.client("em_operator") as client:
        got = await client.post("/api/tasks", content=b"x" * 1_000_001)
        assert got.status_code == 413
        assert pair.seen == []

        async def endless():
            for _ in range(20):
                yield b"x" * 100_000

        got = await client.post("/api/tasks", content=endless())
        assert got.status_code == 413


async def test_a_body_that_breaks_off_is_no_body(pair):
    bodies = []

    async def app(scope, receive, send):
        while True:
            message = await receive()
            bodies.append(message)
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        await answer(send)

    pair.app = app
    reader, writer = await asyncio.open_connection("127.0.0.1", int(pair.url.rpartition(":")[2]))
    writer.write(b"POST /api/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
    await until(lambda: bodies)
    writer.close()
    await until(lambda: bodies[-1]["type"] == "http.disconnect")
    assert all(message.get("more_body", True) for message in bodies[:-1])
    assert reader is not None


# Limits of its own


async def test_its_own_rate_limit_spares_the_coordinator():
    few = PassOnSettings(limits=LimitSettings(requests=Rate(per_s=0.001, burst=2)))
    async with Pair(pass_on=few).running() as pair:
        async with pair.client(address="203.0.113.9") as client:
            got = [(await client.get(f"/api/repos/{n}")).status_code for n in range(4)]
        assert got == [404, 404, 429, 429]
        assert len(pair.seen) == 2


async def test_one_client_cannot_take_all_the_room():
    gate = asyncio.Event()

    async def app(scope, receive, send):
        if b"wait" in scope["query_string"]:
            await gate.wait()
        await answer(send)

    few = Pair(pass_on=PassOnSettings(waiting=3, waiting_per_client=2), app=app)
    async with (
        few.running(),
        few.client(address="203.0.113.9") as one,
        few.client(address="203.0.113.10") as two,
        asyncio.TaskGroup() as group,
    ):
        asks = [group.create_task(one.get(f"/api/x?wait=1&n={n}")) for n in range(2)]
        await until(lambda: len(few.seen) == 2)
        assert (await one.get("/api/x?wait=1")).status_code == 429
        asks.append(group.create_task(two.get("/api/x?wait=1")))
        await until(lambda: len(few.seen) == 3)
        assert (await two.get("/api/x?wait=1")).status_code == 503
        assert (await one.get("/api/y")).status_code == 200, "reads have room of their own"
        gate.set()
        assert [(await a).status_code for a in asks] == [200] * 3
        assert (await one.get("/api/x?wait=1")).status_code == 200
