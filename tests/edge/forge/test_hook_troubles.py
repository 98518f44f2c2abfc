"""Answers about hooks that are lost, wrong or refused: never two hooks by that, and no secret is shown."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
import structlog

from evermirror.edge.git.credentials import Redactor
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge
from tests.edge.forge.forge_world import QUICK, TOKEN, start
from tests.edge.forge.hook_world import SECRET, URL, hooks_client, wanted

CHANGE = {Forge.GITLAB: "PUT"}
SPOILT = {
    "a gateway's error": {"status": 502},
    "no JSON": {"body": "<html>"},
    "cut off": {"cut": 20},
    "too late": {"delay_s": 2.0},
}


@pytest.fixture(params=list(Forge), ids=lambda f: f.value)
def forge(request):
    return request.param


@pytest.fixture
def server(forge, tmp_path):
    with start(forge, tmp_path) as made:
        made.add_project("team/x", commits=1)
        yield made


@pytest.fixture
async def api(forge, server):
    made = hooks_client(forge, server, patience=replace(QUICK, timeout_s=1.0))
    yield made
    await made.close()


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT.keys())
async def test_a_hook_whose_making_was_not_answered_is_looked_for_and_not_made_twice(server, api, spoilt):
    server.fault("/hooks", method="POST", done=True, **spoilt)
    made = await api.make_hook("team/x", wanted(api))
    (row,) = server.hooks_of("team/x")
    assert (str(row.id), row.url, row.secret) == (made.id, URL, SECRET)
    assert len(server.asked("POST")) == 1
    assert made.events == api.events


async def test_a_hook_that_was_not_made_is_told_and_made_by_the_next_order(server, api):
    server.fault("/hooks", method="POST", status=503)
    with pytest.raises(FailureError) as raised:
        await api.make_hook("team/x", wanted(api))
    assert raised.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert server.hooks_of("team/x") == []
    assert len(server.asked("POST")) == 1
    await api.make_hook("team/x", wanted(api))
    assert len(server.hooks_of("team/x")) == 1


async def test_where_it_is_still_unclear_nothing_is_made_again(server, api):
    server.fault("/hooks", method="POST", status=502, done=True)
    server.fault("/hooks", method="GET", status=502, times=None)
    with pytest.raises(FailureError) as raised:
        await api.make_hook("team/x", wanted(api))
    assert raised.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert len(server.hooks_of("team/x")) == 1
    assert len(server.asked("POST")) == 1


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT.keys())
@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
async def test_a_change_that_was_not_answered_is_said_again(server, api, forge, spoilt, done):
    made = await api.make_hook("team/x", wanted(api, secret="the-old-one"))
    server.fault("/hooks", method=CHANGE.get(forge, "PATCH"), done=done, **spoilt)
    changed = await api.change_hook("team/x", made.id, wanted(api))
    assert (changed.id, changed.url) == (made.id, URL)
    assert [row.secret for row in server.hooks_of("team/x")] == [SECRET]


async def test_a_change_that_is_never_answered_ends(server, api, forge):
    made = await api.make_hook("team/x", wanted(api))
    method = CHANGE.get(forge, "PATCH")
    server.fault("/hooks", method=method, status=502, times=None)
    with pytest.raises(FailureError) as raised:
        await api.change_hook("team/x", made.id, wanted(api))
    assert raised.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert len(server.asked(method)) == 2


@pytest.mark.parametrize("done", [True, False], ids=["done", "not done"])
async def test_a_removal_that_was_not_answered_is_looked_at(server, api, done):
    made = await api.make_hook("team/x", wanted(api))
    server.fault("/hooks", method="DELETE", status=504, done=done)
    if done:
        await api.remove_hook("team/x", made.id)
    else:
        with pytest.raises(FailureError):
            await api.remove_hook("team/x", made.id)
    assert len(server.hooks_of("team/x")) == (0 if done else 1)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, FailureKind.CONFLICT),
        (401, FailureKind.AUTH_FAILED),
        (403, FailureKind.PERMISSION_DENIED),
        (404, FailureKind.NOT_FOUND),
        (409, FailureKind.CONFLICT),
        (422, FailureKind.CONFLICT),
        (500, FailureKind.NETWORK_TIMEOUT),
        (503, FailureKind.NETWORK_TIMEOUT),
        (302, FailureKind.CONFLICT),
    ],
)
async def test_every_refusal_has_its_kind_and_shows_no_secret(server, api, status, kind, caplog):
    made = await api.make_hook("team/x", wanted(api))
    echo = json.dumps({"message": f"not this: {SECRET} nor {TOKEN}"})
    server.fault("/hooks", status=status, body=echo, headers={"Location": "http://evil/"}, times=None)
    caplog.set_level(logging.DEBUG)
    with structlog.testing.capture_logs() as logs:
        for order in (
            lambda: api.make_hook("team/x", wanted(api)),
            lambda: api.change_hook("team/x", made.id, wanted(api)),
        ):
            with pytest.raises(FailureError) as raised:
                await order()
            assert raised.value.failure.kind is kind
            shown = f"{raised.value}{raised.value.failure!r}{raised.value.__cause__!r}{logs}{caplog.text}"
            assert SECRET not in shown
            assert TOKEN not in shown


async def test_a_redirect_is_not_followed_with_the_token(server, api, tmp_path):
    with start(Forge.GITEE, tmp_path / "other") as elsewhere:
        to = {"Location": f"{elsewhere.base_url}/api/v5/repos/team/x/hooks"}
        for status in (301, 302, 307, 308):
            server.fault("/hooks", status=status, headers=to)
            with pytest.raises(FailureError, match="not followed"):
                await api.hooks("team/x")
        assert elsewhere.requests == []


async def test_a_limit_is_waited_for_and_a_long_one_told(server, api):
    server.fault("/hooks", status=429, headers={"Retry-After": "0"})
    await api.make_hook("team/x", wanted(api))
    assert len(server.hooks_of("team/x")) == 1
    server.fault("/hooks", status=429, headers={"Retry-After": "3600"})
    with pytest.raises(FailureError) as raised:
        await api.hooks("team/x")
    assert raised.value.failure.kind is FailureKind.RATE_LIMITED
    assert raised.value.failure.retry_after_s == 3600


@pytest.mark.parametrize(
    "answer",
    ["", "null", "{}", "[1]", '[{"id": "x"}]', '[{"url": "http://x"}]', "[" * 5000, '[{"id": 1e999}]'],
)
async def test_a_list_that_is_none_is_refused_and_not_taken_for_an_empty_one(server, api, answer):
    server.fault("/hooks", method="GET", body=answer)
    with pytest.raises(FailureError) as raised:
        await api.hooks("team/x")
    assert raised.value.failure.kind is FailureKind.UNKNOWN


async def test_others_hooks_that_are_odd_do_not_spoil_the_list(server, api):
    rows = [{"id": 7, "url": 5, "config": None, "events": "push"}, {"id": 8, "url": "x" * 5000, "config": []}]
    server.fault("/hooks", method="GET", body=json.dumps(rows))
    found = await api.hooks("team/x")
    assert [(hook.id, hook.url, hook.events) for hook in found] == [
        ("7", "", frozenset()),
        ("8", "", frozenset()),
    ]


async def test_without_a_token_nobody_may(server, forge):
    api = hooks_client(forge, server, "")
    with pytest.raises(FailureError) as raised:
        await api.make_hook("team/x", wanted(api))
    assert raised.value.failure.kind in (FailureKind.AUTH_FAILED, FailureKind.NOT_FOUND)
    await api.close()


async def test_a_secret_is_forgotten_when_its_hook_is_made(api):
    await api.make_hook("team/x", wanted(api))
    assert api._redactor.clean(SECRET) == SECRET
    with api._redactor.knowing(SECRET):
        assert SECRET not in api._redactor.clean(f"a {SECRET} b {TOKEN}")
    assert isinstance(api._redactor, Redactor)
