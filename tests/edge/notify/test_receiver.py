"""Events to somebody's server: signed, numbered, and every answer understood."""

from __future__ import annotations

import json
import ssl
import time

import pytest
import trustme

from evermirror.core.deliver.decisions import Item, NotTaken, Post, Taken
from evermirror.core.deliver.message import delivery_id
from evermirror.edge.notify.receiver import Receiver
from evermirror.model.event import EventId
from tests.support.event_receiver import SECRET, event_receiver
from tests.support.http_sink import Reply, http_sink
from tests.support.ports import free_port
from tests.support.raw_server import Conversation, raw_server


def post_of(*numbers: int) -> Post:
    items = tuple(
        Item(
            EventId(number),
            "refs.changed",
            1.0,
            json.dumps({"id": number, "ä": "主分支"}, ensure_ascii=False),
        )
        for number in numbers
    )
    return Post(delivery_id("ci", items), items)


async def test_the_receiver_can_check_what_it_is_sent_and_knows_it_again():
    with event_receiver() as there:
        to = Receiver("ci", there.url, SECRET)
        assert await to.post(post_of(1, 2)) == Taken()
        assert await to.post(post_of(1, 2)) == Taken()
        assert await to.post(post_of(1)) == Taken()
        wrong = await Receiver("ci", there.url, "another-secret-of-16").post(post_of(3))
        assert wrong == NotTaken("HTTP 401", refused=True)
        late = await Receiver("ci", there.url, SECRET, clock=lambda: time.time() - 1000).post(post_of(3))
        assert late == NotTaken("HTTP 401", refused=True)
    assert there.ids == [1, 2, 1]
    assert len(there.again) == 1
    first = there.sink.taken[0]
    assert json.loads(first.body)["hook"] == "ci"
    assert json.loads(first.body)["version"] == 1
    assert "evermirror-event" not in first.headers
    assert there.sink.taken[2].headers["evermirror-event"] == "refs.changed"
    assert to.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("reply", "means"),
    [
        (Reply(200, b"thanks"), Taken()),
        (Reply(301, headers={"Location": "http://127.0.0.1:1/"}), "redirects are not followed"),
        (Reply(400), NotTaken("HTTP 400", refused=True)),
        (Reply(413), NotTaken("HTTP 413", refused=True)),
        (Reply(408), NotTaken("HTTP 408")),
        (Reply(410), NotTaken("HTTP 410", gone=True)),
        (Reply(425), NotTaken("HTTP 425")),
        (Reply(429, headers={"Retry-After": "17"}), NotTaken("HTTP 429", retry_after_s=17.0)),
        (Reply(500), NotTaken("HTTP 500")),
        (Reply(503, headers={"Retry-After": "99999999"}), NotTaken("HTTP 503", retry_after_s=3600.0)),
        (Reply(999), NotTaken("HTTP 999")),
    ],
)
async def test_what_each_answer_means(reply, means):
    with http_sink(reply) as sink:
        answer = await Receiver("ci", sink.base + "/", SECRET).post(post_of(1))
    if isinstance(means, str):
        assert isinstance(answer, NotTaken)
        assert means in answer.reason
        assert not answer.refused
    else:
        assert answer == means
    assert len(sink.taken) == 1


async def test_a_receiver_that_is_away_hangs_or_hangs_up_is_weather():
    away = await Receiver("ci", f"http://127.0.0.1:{free_port()}/", SECRET).post(post_of(1))
    assert away == NotTaken("Connection refused")
    with http_sink(Reply(delay_s=20)) as sink:
        slow = await Receiver("ci", sink.base + "/c4n4ry", SECRET, timeout_s=0.3).post(post_of(1))
    assert slow == NotTaken("no answer within 0.3 s")

    async def hang_up(talk: Conversation) -> None:
        await talk.reader.read(100)

    async with raw_server(hang_up) as server:
        cut = await Receiver("ci", f"http://127.0.0.1:{server.port}/c4n4ry", SECRET).post(post_of(1))
    assert isinstance(cut, NotTaken)
    assert not cut.refused
    assert "c4n4ry" not in cut.reason


async def test_tls_is_checked_against_the_ca_of_the_settings(tmp_path):
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    with event_receiver(context) as there:
        assert (
            await Receiver("ci", there.url, SECRET, ca_file=tmp_path / "ca.pem").post(post_of(1)) == Taken()
        )
        unknown = await Receiver("ci", there.url, SECRET).post(post_of(2))
    assert isinstance(unknown, NotTaken)
    assert "certificate is not trusted" in unknown.reason
    assert there.ids == [1]
