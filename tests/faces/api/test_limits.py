"""Bytes, rates and headers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.faces.api.auth import LOCAL, PUBLIC, Caller
from evermirror.faces.api.buckets import Buckets, Rate
from evermirror.faces.api.limits import BodyRule, LimitSettings, limited_by
from tests.faces.api.fake import ManualClock

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_413_also_without_a_length(client, chunked):
    async def endless():
        while True:
            yield b" " * 100_000

    if chunked:
        answer = await client.post("/api/git_urls", content=endless(), headers=JSON)
    else:
        answer = await client.post("/api/git_urls", content=b" " * 1_000_001, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["type"] == "/problems/body-too-large"


async def test_a_lying_length_does_not_help(client):
    headers = JSON | {"content-length": "10"}
    answer = await client.post("/api/git_urls", content=b" " * 1_000_001, headers=headers)
    assert answer.status_code in (400, 413)


async def test_a_body_that_never_ends_is_408(house):
    limits = LimitSettings(body=BodyRule(max_bytes=1_000_000, timeout_s=0.05))
    house.settings = replace(house.settings, limits=limits)

    async def stuck():
        yield b"{"
        await asyncio.Event().wait()

    async with house.client() as client:
        answer = await client.post("/api/git_urls", content=stuck(), headers=JSON)
    assert answer.status_code == 408


async def test_a_body_that_trickles_is_408_long_before_its_time_is_over(house):
    rule = BodyRule(max_bytes=1_000_000, timeout_s=3_600, window_s=0.2, window_bytes=1_000)
    house.settings = replace(house.settings, limits=LimitSettings(body=rule))

    async def trickle():
        yield b" " * 900_000  # what came before is no credit
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    async with house.client() as client:
        answer = await client.post("/api/git_urls", content=trickle(), headers=JSON)
    assert answer.status_code == 408


async def test_a_client_that_asks_too_often_waits(house):
    limits = LimitSettings(requests=Rate(per_s=0.001, burst=3.0))
    house.settings = replace(house.settings, limits=limits)
    house.auth = replace(house.auth, listen_host="0.0.0.0")
    app = house.app()
    async with house.client(app=app, address="203.0.113.9") as client:
        codes = [(await client.get("/api/version")).status_code for _ in range(5)]
        assert codes == [200] * 3 + [429] * 2
        refused = await client.get("/api/version")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await client.get("/healthz")).status_code == 200
    async with house.client(app=app, address="203.0.113.10") as other:
        assert (await other.get("/api/version")).status_code == 200
    async with house.client(app=app) as local:
        assert {(await local.get("/api/version")).status_code for _ in range(50)} == {200}


async def test_a_token_holder_goes_on_beside_strangers_who_flood_from_the_same_address(house):
    limits = LimitSettings(requests=Rate(per_s=0.001, burst=3.0))
    house.settings = replace(house.settings, limits=limits)
    house.auth = replace(house.auth, listen_host="0.0.0.0")
    house.with_tokens()
    app = house.app()
    async with house.client(app=app, address="203.0.113.9") as stranger:
        while (await stranger.get("/api/version")).status_code == 200:
            pass
        for token, codes in {"em_reader": [200] * 3 + [429], "em_admin": [200], "wrong": [401]}.items():
            async with house.client(token, app=app, address="203.0.113.9") as holder:
                assert [(await holder.get("/api/version")).status_code for _ in codes] == codes
        assert (await stranger.get("/api/version")).status_code == 429


@pytest.mark.parametrize("path", ["/", "/api/overview", "/nothing", "/metrics", "/healthz", "/static/app.js"])
async def test_every_answer_binds_the_browser(client, path):
    headers = (await client.get(path)).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


async def test_head_is_get_without_a_body(client):
    for path in ("/", "/healthz", "/api/overview"):
        answer = await client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")


@given(st.lists(st.floats(0, 3), max_size=60))
def test_a_bucket_never_gives_more_than_burst_plus_rate(gaps):
    clock, given_at = ManualClock(), []
    buckets = Buckets(Rate(per_s=2.0, burst=5.0), clock)
    for gap in gaps:
        clock.now += gap
        wait_s = buckets.take("a")
        if wait_s == 0:
            given_at.append(clock.now)
        else:
            assert 0 < wait_s <= 0.5 + 1e-9
    for i, first in enumerate(given_at):
        for j in range(i, len(given_at)):
            assert j - i + 1 <= 5 + 2 * (given_at[j] - first) + 1e-6


def test_buckets_forget_the_longest_idle_client_first():
    buckets = Buckets(Rate(1.0, 1.0), ManualClock(), max_names=2)
    for name in "abca":
        assert buckets.take(name) == 0


def test_a_token_counts_for_itself_at_each_address_and_an_address_for_all_others():
    def by(address, caller):
        return limited_by({"client": (address, 1), "state": {"caller": caller}})

    ci = Caller("ci", 1)
    assert by("203.0.113.9", ci) == by("203.0.113.9", ci) != by("203.0.113.9", PUBLIC)
    assert by("203.0.113.9", ci) != by("203.0.113.10", ci)
    assert by("203.0.113.9", ci) != by("203.0.113.9", Caller("other", 1))
    assert by("2001:db8::1", ci) == by("2001:db8::2", ci)
    assert by("127.0.0.1", LOCAL) == by("127.0.0.1", PUBLIC) != by("127.0.0.2", LOCAL)
    assert by("2001:db8::1", PUBLIC) == by("2001:db8::2", PUBLIC)
