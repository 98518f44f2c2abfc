"""Webhooks: a documented body, a signature that the receiver can check, no redirects, bounded answers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import ssl
import time
from dataclasses import replace
from email.utils import formatdate

import pytest
import trustme
from hypothesis import given, settings

from evermirror.edge.notify.http import Poster
from evermirror.edge.notify.sender import NotSent
from evermirror.edge.notify.webhook import Webhook, webhook_body
from tests.edge.notify.messages import CHINESE, ITEM, MESSAGE, OVER, digest, hostile_message, messages
from tests.support.http_sink import HttpSink, Reply, Taken, http_sink
from tests.support.ports import free_port
from tests.support.raw_server import Conversation, raw_server

SECRET = "c4n4ry-s3cret"
PATH = "/hooks/c4n4ry-p4th?token=c4n4ry-t0ken"


def checking(request: Taken) -> Reply:
    """A receiver that follows the documentation."""
    parts = dict(part.split("=", 1) for part in request.headers["evermirror-signature"].split(","))
    expected = hmac.new(SECRET.encode(), parts["t"].encode() + b"." + request.body, hashlib.sha256)
    fresh = abs(time.time() - int(parts["t"])) < 300
    return Reply(204 if fresh and hmac.compare_digest(expected.hexdigest(), parts["v1"]) else 401)


def webhook_at(sink: HttpSink, **more: object) -> Webhook:
    return Webhook(sink.base + PATH, SECRET, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("message", [MESSAGE, CHINESE, digest(100, 5), hostile_message()])
async def test_the_receiver_can_check_the_signature(message):
    with http_sink(checking) as sink:
        await webhook_at(sink).send(message)
        with pytest.raises(NotSent, match="HTTP 401") as caught:
            await Webhook(sink.base + PATH, "other").send(message)
        assert not caught.value.permanent
        with pytest.raises(NotSent, match="HTTP 401"):
            await webhook_at(sink, clock=lambda: time.time() - 1000).send(message)
    assert sink.taken[0].target == PATH
    assert sink.taken[0].headers["content-type"] == "application/json; charset=utf-8"


async def test_the_body_is_as_documented():
    over = replace(OVER, alert=None)
    with http_sink() as sink:
        await webhook_at(sink).send(replace(MESSAGE, items=(ITEM, over), more=3))
    assert json.loads(sink.taken[0].body) == {
        "version": 1,
        "server": "mirror-1",
        "at": "2026-11-16T00:00:00Z",
        "language": "en",
        "level": "error",
        "title": "Project fails: openeuler/kernel",
        "more": 3,
        "alerts": [
            {
                "id": 12,
                "kind": "project-failing",
                "about": "openeuler/kernel",
                "level": "error",
                "turn": "raised",
                "title": "Project fails",
                "text": "failed 3 times in a row: cannot resolve gitlab.example.org",
                "raised_at": "2026-11-15T23:00:00Z",
                "ended_at": None,
            },
            {
                "id": None,
                "kind": "project-failing",
                "about": "openeuler/kernel",
                "level": "error",
                "turn": "over",
                "title": "Project fails",
                "text": "failed 3 times in a row: cannot resolve gitlab.example.org",
                "raised_at": "2026-11-15T23:00:00Z",
                "ended_at": "2026-11-16T00:00:00Z",
            },
        ],
    }


@given(message=messages)
@settings(max_examples=60, deadline=None)
def test_every_message_is_json_of_a_bounded_size(message):
    body = webhook_body(message)
    told = json.loads(body)
    assert len(told["alerts"]) == len(message.items)
    assert len(body) <= 2 * 2_000 * (4 * len(message.items) + 2) + 1_000 * (len(message.items) + 1)


@pytest.mark.parametrize(
    ("status", "permanent"),
    [
        (413, True),
        (415, True),
        (400, False),
        (422, False),
        (401, False),
        (403, False),
        (404, False),
        (410, False),
        (408, False),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
    ],
)
async def test_only_a_bad_message_is_given_up(status, permanent):
    with http_sink(Reply(status, b"words that nobody reads")) as sink, pytest.raises(NotSent) as caught:
        await webhook_at(sink).send(MESSAGE)
    assert caught.value.reason == f"HTTP {status}"
    assert caught.value.permanent is permanent


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status):
    with http_sink() as elsewhere, http_sink(Reply(status, b"", {"Location": elsewhere.base + "/x"})) as sink:
        with pytest.raises(NotSent, match="redirects are not followed") as caught:
            await webhook_at(sink).send(MESSAGE)
        assert not caught.value.permanent
        assert len(sink.taken) == 1
        assert elsewhere.taken == []


@pytest.mark.parametrize(
    ("said", "wait_s"),
    [
        ("120", 120),
        ("0", 0),
        ("99999999999999999999", 3600),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("٣", None),
        (formatdate(1_000_090, usegmt=True), 90),
        (formatdate(1, usegmt=True), 0),
        (formatdate(9_000_000_000, usegmt=True), 3600),
        ("Sat, 99 Xxx 9999 99:99:99 GMT", None),
    ],
)
async def test_retry_after_is_seconds_or_a_date_and_bounded(said, wait_s):
    headers = {"Retry-After": said.encode().decode("latin-1")}
    with http_sink(Reply(503, b"", headers)) as sink, pytest.raises(NotSent) as caught:
        await webhook_at(sink, clock=lambda: 1_000_000.0).send(MESSAGE)
    assert caught.value.retry_after_s == wait_s


async def test_a_receiver_that_is_not_there_is_told_without_its_url():
    url = f"http://127.0.0.1:{free_port()}{PATH}"
    with pytest.raises(NotSent, match="Connection refused") as caught:
        await Webhook(url, SECRET).send(MESSAGE)
    assert "c4n4ry" not in caught.value.reason
    with pytest.raises(NotSent) as caught:
        await Webhook(f"http://nowhere.invalid{PATH}", SECRET).send(MESSAGE)
    assert "c4n4ry" not in caught.value.reason
    assert caught.value.reason


async def test_a_slow_receiver_takes_no_longer_than_the_timeout():
    with http_sink(Reply(200, delay_s=10)) as sink:
        begun = time.monotonic()
        with pytest.raises(NotSent, match=r"no answer within 0\.3 s"):
            await webhook_at(sink, timeout_s=0.3).send(MESSAGE)
        assert time.monotonic() - begun < 8  # less than the answer takes


async def test_an_answer_that_trickles_takes_no_longer_either():
    async def trickle(c: Conversation) -> None:
        await c.request()
        await c.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            await c.say(b"X-Pad: x\r\n")
            await asyncio.sleep(0.05)

    async with raw_server(trickle) as server:
        with pytest.raises(NotSent, match="within"):
            await Webhook(f"http://127.0.0.1:{server.port}/", SECRET, timeout_s=0.4).send(MESSAGE)


async def test_an_answer_without_end_is_not_read_to_its_end():
    said = 0

    async def endless(c: Conversation) -> None:
        nonlocal said
        await c.request()
        await c.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await c.say(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            said += 0x10000

    async with raw_server(endless) as server:
        await Webhook(f"http://127.0.0.1:{server.port}/", SECRET, timeout_s=5).send(MESSAGE)
        answer = await Poster(f"http://127.0.0.1:{server.port}/").post(b"{}", {})
    assert (len(answer.body), answer.whole) == (64_000, False)
    assert said < 50_000_000


@pytest.mark.parametrize(
    "garbage", [b"", b"\x00" * 100, b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9"]
)
async def test_what_is_no_http_is_a_failure(garbage):
    async def talk(c: Conversation) -> None:
        await c.request()
        await c.say(garbage)

    async with raw_server(talk) as server:
        with pytest.raises(NotSent) as caught:
            await Webhook(f"http://127.0.0.1:{server.port}{PATH}", SECRET).send(MESSAGE)
    assert caught.value.reason
    assert "c4n4ry" not in caught.value.reason


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    ca = trustme.CA()
    ca_file = tmp_path_factory.mktemp("ca") / "ca.pem"
    ca.cert_pem.write_to_path(str(ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    return ca_file, context


async def test_certificates_are_checked(authority, tmp_path):
    ca_file, context = authority
    with http_sink(checking, context) as sink:
        await webhook_at(sink, ca_file=ca_file).send(MESSAGE)
        with pytest.raises(NotSent, match="certificate is not trusted") as caught:
            await webhook_at(sink).send(MESSAGE)
        assert not caught.value.permanent
        by_address = sink.base.replace("localhost", "127.0.0.1") + PATH
        with pytest.raises(NotSent, match="certificate is not trusted"):
            await Webhook(by_address, SECRET, ca_file=ca_file).send(MESSAGE)
        with pytest.raises(NotSent, match="cannot be used: No such file"):
            await webhook_at(sink, ca_file=tmp_path / "none").send(MESSAGE)
        (tmp_path / "empty").write_text("")
        with pytest.raises(NotSent, match="cannot be used"):
            await webhook_at(sink, ca_file=tmp_path / "empty").send(MESSAGE)
    assert len(sink.taken) == 1
