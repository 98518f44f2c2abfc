"""Requests to a forge: what is tried again, how long is waited, what is told."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from evermirror.edge.forge.http import Pace
from evermirror.edge.forge.make import api_url
from evermirror.edge.forge.words import refusal
from evermirror.errors import InvalidUrl
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge, NewTarget, Visibility
from tests.edge.forge.forge_world import QUICK, client, start


@pytest.fixture
def server(tmp_path):
    with start(Forge.GITLAB, tmp_path) as made:
        made.add_project("team/x")
        yield made


@pytest.fixture
async def api(server):
    made = client(Forge.GITLAB, server)
    yield made
    await made.close()


async def failure_of(awaitable):
    with pytest.raises(FailureError) as raised:
        await awaitable
    return raised.value.failure


@pytest.mark.parametrize(
    "spoilt", [{"status": 500}, {"status": 502}, {"status": 503}, {"status": 504}, {"cut": 10}, {"cut": 0}]
)
async def test_a_read_is_tried_five_times_and_no_more(server, api, spoilt):
    server.fault("/groups", times=4, **spoilt)
    assert (await api.find_group("team")).path == "team"
    assert len(server.asked()) == 5
    server.requests.clear()
    server.fault("/groups", times=None, **spoilt)
    failure = await failure_of(api.find_group("team"))
    assert failure.kind is FailureKind.NETWORK_TIMEOUT
    assert len(server.asked()) == 5


async def test_a_connection_reset_is_tried_again(server, api):
    server.drop_connection = True
    failure = await failure_of(api.find_group("team"))
    assert failure.kind is FailureKind.NETWORK_TIMEOUT
    assert len(server.asked()) == 5
    server.heal()
    assert (await api.find_group("team")).path == "team"


async def test_a_server_that_is_away_is_tried_again_also_to_write(server, api):
    server.close()
    begin = time.monotonic()
    for ask in (api.find_group("team"), api._http.write("POST", "/projects", {})):
        failure = await failure_of(ask)
        assert failure.kind is FailureKind.NETWORK_TIMEOUT
        assert "not connected" in failure.message
    assert time.monotonic() - begin < 10


async def test_no_answer_in_time(server):
    api = client(Forge.GITLAB, server, patience=replace(QUICK, timeout_s=0.3, attempts=2))
    server.delay_s = 2.0
    failure = await failure_of(api.find_group("team"))
    assert failure.kind is FailureKind.NETWORK_TIMEOUT
    assert "within 0.3 s" in failure.message
    await api.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, FailureKind.CONFLICT),
        (401, FailureKind.AUTH_FAILED),
        (403, FailureKind.PERMISSION_DENIED),
        (405, FailureKind.UNKNOWN),
        (409, FailureKind.CONFLICT),
        (418, FailureKind.UNKNOWN),
        (422, FailureKind.CONFLICT),
    ],
)
async def test_a_refusal_is_told_at_once(server, api, status, kind):
    server.fault("/groups", status=status, body='{"message": "no, because"}', times=None)
    failure = await failure_of(api.find_group("team"))
    assert failure.kind is kind
    assert "no, because" in failure.message
    assert len(server.asked()) == 1


# Limits


async def test_a_short_wait_is_sat_out_by_reads_and_writes(server, api):
    for method in ("GET", "POST"):
        server.fault("", method=method, status=429, headers={"Retry-After": "1"}, body="Retry later")
    begin = time.monotonic()
    made = await api.create_project(NewTarget("team/y", "y", Visibility.PRIVATE, "", None))
    assert made.path == "team/y"
    assert 2.0 <= time.monotonic() - begin < 15


async def test_a_long_wait_is_told_and_nothing_is_asked_meanwhile(server, api):
    server.fault("/groups", status=429, headers={"Retry-After": "3600"}, body="Retry later")
    failure = await failure_of(api.find_group("team"))
    assert (failure.kind, failure.retry_after_s) == (FailureKind.RATE_LIMITED, 3600.0)
    assert "Retry later" in failure.message
    again = await failure_of(api.find_group("team"))
    assert again.kind is FailureKind.RATE_LIMITED
    assert 3500 < again.retry_after_s <= 3600
    assert len(server.asked()) == 1


@pytest.mark.parametrize(
    ("status", "headers", "body", "least", "most"),
    [
        (429, {"Retry-After": "not a number"}, "", 60, 60),
        (429, {}, "", 60, 60),
        (429, {"Retry-After": "-5"}, "", 60, 60),
        (429, {"Retry-After": "1e300"}, "", 60, 60),
        (429, {"Retry-After": "nan"}, "", 60, 60),
        (429, {"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}, "", 60, 60),
        (429, {"RateLimit-Reset": "{soon}"}, "", 890, 900),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "{soon}"}, "", 890, 900),
        (403, {"Retry-After": "77"}, '{"message": "slow down"}', 77, 77),
        (403, {}, '{"message": "You have exceeded a secondary rate limit"}', 60, 60),
    ],
)
async def test_how_long_a_forge_wants_us_to_wait(server, api, status, headers, body, least, most):
    told = {k: v.format(soon=int(time.time()) + 900) for k, v in headers.items()}
    server.fault("/groups", status=status, headers=told, body=body)
    failure = await failure_of(api.find_group("team"))
    assert failure.kind is FailureKind.RATE_LIMITED
    assert least <= failure.retry_after_s <= most


async def test_a_limit_that_is_used_up_is_waited_for_before_it_is_broken(server, api):
    soon = str(int(time.time()) + 900)
    body = '{"id": 7, "full_path": "team", "name": "team", "visibility": "public"}'
    server.fault("/groups", headers={"RateLimit-Remaining": "0", "RateLimit-Reset": soon}, body=body)
    assert (await api.find_group("team")).id == "id:7"
    failure = await failure_of(api.find_group("team"))
    assert failure.kind is FailureKind.RATE_LIMITED
    assert len(server.asked()) == 1


async def test_requests_are_paced_for_an_instance_and_not_for_a_client(server):
    pace, patience = Pace(), replace(QUICK, gap_s=0.2)
    first, second = (client(Forge.GITLAB, server, pace=pace, patience=patience) for _ in range(2))
    begin = time.monotonic()
    for api in (first, second, first, second):
        await api.find_group("team")
    assert time.monotonic() - begin >= 0.6
    await first.close()
    await second.close()


async def test_a_limit_that_is_told_is_never_broken(tmp_path):
    with start(Forge.GITLAB, tmp_path, per_minute=3) as server:
        server.add_project("team/x")
        api = client(Forge.GITLAB, server)
        failures = set()
        for _ in range(8):
            try:
                await api.find_group("team")
            except FailureError as error:
                failures.add(error.failure.kind)
            assert server._minute[1] <= 3
        assert failures == {FailureKind.RATE_LIMITED}
        await api.close()


# Words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            b'{"message": {"path": ["is taken", "is bad"], "name": ["too"]}}',
            "path is taken, is bad; name too",
        ),
        (b'{"error": "x is missing"}', "x is missing"),
        (b'{"error": "insufficient_scope", "error_description": "more"}', "more"),
        (b'{"message": "failed", "errors": [{"message": "name exists"}]}', "failed, name exists"),
        (b"plain \x1b[2J text", "plain \ufffd[2J text"),
        (b"[1, 2]", "1, 2"),
        (b'{"a": 1}', "a 1"),
        (b"", ""),
    ],
)
def test_a_forges_own_words(body, words):
    assert refusal(body) == words


def test_words_without_end():
    assert len(refusal(b'{"message": "' + b"x" * 100_000 + b'"}')) <= 4_000
    assert refusal(b'{"message":' + b"[" * 50_000)


@pytest.mark.parametrize(
    ("forge", "base", "url"),
    [
        (Forge.GITLAB, "https://h", "https://h/api/v4"),
        (Forge.GITLAB, "https://h:8443/sub/", "https://h:8443/sub/api/v4"),
        (Forge.GITEA, "https://h/git", "https://h/git/api/v1"),
        (Forge.GITHUB, "https://github.com", "https://api.github.com"),
        (Forge.GITHUB, "https://ghe.example/", "https://ghe.example/api/v3"),
    ],
)
def test_where_the_api_is(forge, base, url):
    assert api_url(forge, base) == url


@pytest.mark.parametrize(
    "base", ["h", "ssh://h/x", "https://", "https://u:p@h", "https://h?x=1", "https://h#x"]
)
def test_what_is_no_address_of_a_forge(base):
    with pytest.raises(InvalidUrl):
        api_url(Forge.GITLAB, base)
