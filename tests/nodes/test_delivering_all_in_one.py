"""Event hooks in one process: from a push upstream to real receivers, through restarts and other settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from evermirror.nodes.event_service import PostEnd
from tests.support.event_receiver import SECRET, EventReceiver, event_receiver
from tests.support.http_sink import Reply

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def there() -> Iterator[EventReceiver]:
    with event_receiver() as receiver:
        yield receiver


@pytest.fixture
def other() -> Iterator[EventReceiver]:
    with event_receiver() as receiver:
        yield receiver


def hook(name: str, receiver: EventReceiver, **more: object) -> dict[str, object]:
    settings = {"url": receiver.url, "secret": SECRET, **more}
    return {f"{name}.{key}": value for key, value in settings.items()}


async def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.02)


def moves(receiver: EventReceiver, repo: str) -> list[dict]:
    return [event for event in receiver.events if event["type"] == "refs.changed" and event["repo"] == repo]


async def test_a_push_upstream_reaches_a_receiver_signed_and_one_that_is_dead_is_no_bother(stage, there):
    repo = stage.upstream.create("team/x")
    dead = {"dead.url": "http://127.0.0.1:9/", "dead.secret": SECRET}
    async with stage.up(event_hooks=hook("ci", there) | dead) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        key = up.key("team/x")
        await until(lambda: bool(moves(there, key)))
        tip = repo.commit()
        await up.sync("team/x")
        await until(lambda: len(moves(there, key)) == 2)
        assert tip in str(moves(there, key)[1]["data"])
        figures = up.node.lead.delivering.figures
        await until(lambda: figures()["dead"].posts[PostEnd.FAILED] >= 1)
        shown = {one["name"]: one for one in (await up.client.get("/api/event_hooks")).json()["items"]}
        assert shown["ci"]["state"] == "fine"
        assert (shown["dead"]["state"], shown["dead"]["error"]) == ("failing", "Connection refused")
        stopping = time.monotonic()
    assert time.monotonic() - stopping < 30.0
    assert there.ids == sorted(set(there.ids))
    assert not there.unsigned


async def test_what_happened_while_the_receiver_was_away_arrives_after_a_restart(stage, there):
    repo = stage.upstream.create("team/x")
    there.mood = lambda _: Reply(503)
    async with stage.up(event_hooks=hook("ci", there, types=["refs.changed"])) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        await until(lambda: bool(there.sink.taken))
        tip = repo.commit()
        await up.sync("team/x")
    there.mood = lambda _: None
    async with stage.up(event_hooks=hook("ci", there, types=["refs.changed"])) as up:
        await until(lambda: len(moves(there, up.key("team/x"))) == 2)
    assert tip in str(there.events[-1])


async def test_other_settings_are_taken_over_without_a_restart(stage, there, other):
    repo = stage.upstream.create("team/x")
    async with stage.up(event_hooks=hook("ci", there)) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        key = up.key("team/x")
        await until(lambda: bool(moves(there, key)))
        line = up.node.lead.delivering.lines["ci"]
        before = line.parts.mark
        up.node.reload(lambda: stage.config(event_hooks=hook("ci", other)))
        await until(lambda: line.parts.mark != before)
        repo.commit()
        await up.sync("team/x")
        await until(lambda: bool(moves(other, key)))
        assert len(moves(there, key)) == 1
        tested = (await up.client.post("/api/event_hooks/ci/test")).json()
        assert tested == {"hook": "ci", "sent": True, "error": ""}
        metrics = (await up.client.get("/metrics")).text
        assert 'evermirror_event_hook_posts_total{hook="ci",result="taken"}' in metrics
        up.node.reload(lambda: stage.config())
        await until(lambda: not up.node.lead.delivering.lines)
        assert (await up.client.get("/api/event_hooks")).json() == {"items": []}
