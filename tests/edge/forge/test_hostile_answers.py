"""Answers that a forge should never give: each is a failure with words, and none is taken for the truth."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest

from evermirror.edge.forge import words
from evermirror.edge.forge.github import EXPIRES
from evermirror.edge.forge.http import count_in
from evermirror.edge.forge.pinned import Answer
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge
from evermirror.nodes.coordinator.discovery.discovering_listing import usable
from tests.edge.forge.forge_world import FOLLOWED, TOKEN, client, list_all, start

LISTS = {Forge.GITLAB: "/projects", Forge.GITEA: "/repos/search", Forge.GITHUB: "/repos"}
DIGITS = "9" * 5000  # more than Python makes a number of


@pytest.fixture(params=FOLLOWED, ids=lambda f: f.value)
def forge(request):
    return request.param


@pytest.fixture
def server(forge, tmp_path):
    with start(forge, tmp_path) as made:
        yield made


@pytest.fixture
async def api(forge, server):
    made = client(forge, server)
    yield made
    await made.close()


def a_list(forge, rows):
    return json.dumps({"ok": True, "data": rows} if forge is Forge.GITEA else rows)


def a_row(number, path):
    names = {"path_with_namespace": path, "full_name": path}
    return {"id": number, "created_at": "2026-01-01T00:00:00Z", **names}


@pytest.mark.parametrize(
    "header", ["RateLimit-Remaining", "X-RateLimit-Remaining", "X-Total", "X-Total-Count"]
)
async def test_a_count_without_end_is_no_count(forge, server, api, header):
    server.add_project("team/a")
    server.fault("", times=None, headers={header: DIGITS}, done=True)
    group = await api.find_group("team")
    server.faults.clear()
    server.fault(LISTS[forge], headers={header: DIGITS}, body=a_list(forge, [a_row(1, "team/a")]))
    assert [p.path for p in await list_all(api, group)] == ["team/a"]
    assert count_in(Answer(200, {"x": DIGITS}, b""), "x") is None
    assert count_in(Answer(200, {"x": "12"}, b""), "x") == 12


@pytest.mark.parametrize("told", ["0001-01-01 00:00:00 +2300", "9999-12-31 23:59:59 -2300"])
async def test_a_moment_beyond_all_time_is_no_date(tmp_path, told):
    with start(Forge.GITHUB, tmp_path) as server:
        api = client(Forge.GITHUB, server)
        server.fault("/user", headers={EXPIRES: told}, body='{"login": "robot"}')
        with pytest.raises(FailureError, match="not a date"):
            await api.token()
        await api.close()


@pytest.mark.parametrize(
    "says", [{"X-Next-Page": "2", "X-Total": "10"}, {"X-Next-Page": "", "X-Total": "10"}]
)
async def test_an_empty_page_of_a_list_that_has_more_is_not_the_end(tmp_path, says):
    with start(Forge.GITLAB, tmp_path) as server:
        server.add_project("team/a")
        api = client(Forge.GITLAB, server)
        group = await api.find_group("team")
        server.fault("/projects", body="[]", headers=says)
        with pytest.raises(FailureError) as raised:
            await list_all(api, group)
        assert raised.value.failure.kind is FailureKind.UNKNOWN
        await api.close()


async def test_more_rows_than_were_asked_for_are_refused_before_they_are_read(forge, server, api):
    server.add_project("team/a")
    group = await api.find_group("team")
    rows = [{"nothing": "of what is promised"}] * 101
    server.fault(LISTS[forge], body=a_list(forge, rows))
    with pytest.raises(FailureError, match="were asked for"):
        await list_all(api, group)


async def test_an_answer_that_takes_long_to_read_is_not_read(forge, server, api):
    server.add_project("team/a")
    group = await api.find_group("team")
    server.fault(LISTS[forge], body="[" + ",".join(["{}"] * 2_000_000) + "]")
    with pytest.raises(FailureError, match="more in it") as raised:
        await list_all(api, group)
    assert raised.value.failure.kind is FailureKind.UNKNOWN
    long = b"[" + b"{}," * 2_600_000 + b"{}]"
    began = time.thread_time()
    with pytest.raises(FailureError, match="more in it"):
        words.parse(long)
    assert time.thread_time() - began < 0.2


@pytest.mark.parametrize("path", ["team/a\x1b[31mb", "team/a\u202eb", "team/\ud800"])
async def test_a_path_that_cannot_be_printed_is_passed_over(forge, server, api, path):
    server.add_project("team/a")
    group = await api.find_group("team")
    server.fault(LISTS[forge], body=a_list(forge, [a_row(1, path), a_row(2, "team/fine")]))
    assert [p.path for p in usable(await list_all(api, group))] == ["team/fine"]


def said_back(token):
    data = token.encode()
    return [
        token,
        base64.b64encode(data).decode(),
        base64.urlsafe_b64encode(data).decode().rstrip("="),
        quote(token).replace("-", "%2D"),
        quote(token).replace("-", "%2d"),
        "".join(f"%{byte:02X}" for byte in data),
    ]


@pytest.mark.parametrize("said", said_back(TOKEN))
async def test_a_token_that_is_said_back_in_other_letters_is_not_shown(forge, server, api, said):
    server.fault("", status=403, body=json.dumps({"message": f"bad token {said} it is"}))
    with pytest.raises(FailureError) as raised:
        await api.find_group("team")
    assert said not in str(raised.value.failure)
    assert "bad token ***" in raised.value.failure.message


def test_short_secrets_do_not_hide_words_that_have_nothing_to_do_with_them():
    known = Redactor([Credential("c", password="x")])
    assert known.clean("eA is %78") == "eA is %78"
