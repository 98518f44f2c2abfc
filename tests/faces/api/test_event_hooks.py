"""Event hooks over HTTP, over a real desk: who may see them, letters, what may be asked for, figures."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from evermirror.core.deliver import courier
from evermirror.faces.api.auth import AuthSettings
from evermirror.faces.api.event_hook_metrics import EventHookCollector
from evermirror.model.event import EventType, NewEvent
from evermirror.model.repo import RepoKey
from tests.support.event_house import event_house, hook_at
from tests.support.event_receiver import event_receiver
from tests.support.http_sink import Reply
from tests.support.news import put_events

READS = ("/api/event_hooks", "/api/event_hooks/letters")
WRITES = ("/api/event_hooks/ci/retry", "/api/event_hooks/ci/forget", "/api/event_hooks/ci/test")
CANARY = "c4n4ry"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(courier, "PAUSE_MIN_S", 0.02)
    monkeypatch.setattr(courier, "REFUSED_PAUSE_MAX_S", 0.05)


@pytest.fixture
def there():
    with event_receiver() as receiver:
        yield receiver


@pytest.fixture
async def desk(tmp_path, there, house):
    async with event_house(tmp_path, hook_at("ci", there, types=("refs.*",))) as it:
        house.events = it.desk
        yield it


async def lay_aside(desk, there, count):
    """So many letters are there; the receiver takes everything again."""
    there.mood = lambda events: Reply(400) if any(e["repo"] != "h/good" for e in events) else None
    for n in range(count):  # one that is taken in between: else it is the receiver's fault
        keys = [RepoKey(f"h/{n}"), RepoKey("h/good")]
        await put_events(desk.store, [NewEvent(EventType.REFS_CHANGED, time.time(), key) for key in keys])
    await desk.until(lambda: desk.delivering.figures()["ci"].letters == count)
    await desk.until_noted("ci", count)
    there.mood = lambda _: None


async def test_hooks_and_letters_are_never_public_and_writes_need_an_operator(house, desk):
    app = replace(house.with_tokens(), auth=AuthSettings(public_reads=True)).app()
    async with house.client(app=app, address="203.0.113.9") as anybody:
        assert {(await anybody.get(path)).status_code for path in READS} == {401}
        assert {(await anybody.post(path)).status_code for path in WRITES} == {401}
    async with house.client(app=app, token="em_reader") as reader:
        assert {(await reader.get(path)).status_code for path in READS} == {200}
        assert {(await reader.post(path)).status_code for path in WRITES} == {403}
    async with house.client(app=app, token="em_operator") as operator:
        assert {(await operator.post(path)).status_code for path in WRITES} == {200}


async def test_a_hook_is_shown_without_what_of_its_url_is_secret(house, desk, there):
    async with house.client() as client:
        (unused,) = (await client.get("/api/event_hooks")).json()["items"]
        assert (unused["state"], unused["delivered_at"]) == ("unused", None)
        await desk.happen(2)
        await desk.until_noted("ci", 2)
        answer = await client.get("/api/event_hooks")
        (shown,) = answer.json()["items"]
        assert CANARY not in answer.text
        assert (shown["name"], shown["host"], shown["types"], shown["repos"]) == (
            "ci", "127.0.0.1", ["refs.*"], ["*"],
        )  # fmt: skip
        assert (shown["state"], shown["waiting"], shown["letters"], shown["error"]) == ("fine", 0, 0, "")
        assert (shown["after"], shown["delivered_total"]) == (max(there.ids), 2)
        there.mood = lambda _: Reply(500)
        await desk.happen(1)
        await desk.until(lambda: desk.delivering.lines["ci"].progress.failures > 0)
        (failing,) = (await client.get("/api/event_hooks")).json()["items"]
        assert (failing["state"], failing["error"], failing["waiting"]) == ("failing", "HTTP 500", 1)
        there.mood = lambda _: Reply(410)
        await desk.until(lambda: desk.delivering.lines["ci"].progress.stopped)
        (stopped,) = (await client.get("/api/event_hooks")).json()["items"]
        assert stopped["state"] == "stopped"


async def test_letters_are_paged_sent_again_and_forgotten(house, desk, there):
    await lay_aside(desk, there, 5)
    async with house.client() as client:
        first = (await client.get("/api/event_hooks/letters", params={"limit": 2})).json()
        assert [letter["body"]["repo"] for letter in first["items"]] == ["h/4", "h/3"]
        more = {"limit": 3, "before": first["next_before"], "hook": "ci"}
        rest = (await client.get("/api/event_hooks/letters", params=more)).json()
        assert [letter["body"]["repo"] for letter in rest["items"]] == ["h/2", "h/1", "h/0"]
        letter = rest["items"][-1]
        assert (letter["hook"], letter["type"], letter["reason"], letter["attempts"], letter["again"]) == (
            "ci", "refs.changed", "HTTP 400", 3, False,
        )  # fmt: skip
        assert letter["body"]["id"] == letter["event"]
        nobody = await client.get("/api/event_hooks/letters", params={"hook": "other"})
        assert nobody.status_code == 404

        asked = {"letters": [letter["id"], 999_999]}
        again = await client.post("/api/event_hooks/ci/retry", json=asked)
        assert again.json() == {"hook": "ci", "letters": 1}
        await desk.until(lambda: there.ids[5:] == [letter["event"]])
        await desk.until_noted("ci", 6)
        gone = await client.post("/api/event_hooks/ci/forget", json={"letters": [first["items"][0]["id"]]})
        assert gone.json() == {"hook": "ci", "letters": 1}
        assert (await client.post("/api/event_hooks/ci/forget")).json()["letters"] == 3
        assert (await client.get("/api/event_hooks/letters")).json()["items"] == []


async def test_a_test_tells_what_the_receiver_says(house, desk, there):
    async with house.client() as client:
        taken = (await client.post("/api/event_hooks/ci/test")).json()
        assert taken == {"hook": "ci", "sent": True, "error": ""}
        there.mood = lambda _: Reply(418)
        refused = (await client.post("/api/event_hooks/ci/test")).json()
        assert refused == {"hook": "ci", "sent": False, "error": "HTTP 418"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/event_hooks/nobody/test", None, 404),
        ("POST", "/api/event_hooks/nobody/retry", {}, 404),
        ("POST", "/api/event_hooks/nobody/forget", {}, 404),
        ("POST", "/api/event_hooks/ci/retry", {"letters": []}, 422),
        ("POST", "/api/event_hooks/ci/retry", {"letters": ["1"]}, 422),
        ("POST", "/api/event_hooks/ci/retry", {"letters": [0]}, 422),
        ("POST", "/api/event_hooks/ci/retry", {"letters": [2**63]}, 422),
        ("POST", "/api/event_hooks/ci/retry", {"letters": [1] * 1001}, 422),
        ("POST", "/api/event_hooks/ci/forget", {"all": True}, 422),
        ("GET", "/api/event_hooks/letters?limit=0", None, 422),
        ("GET", "/api/event_hooks/letters?limit=1001", None, 422),
        ("GET", "/api/event_hooks/letters?before=-1", None, 422),
        ("GET", f"/api/event_hooks/letters?hook={'x' * 101}", None, 422),
        ("GET", "/api/event_hooks/letters?hook=%00", None, 422),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_a_problem(house, desk, method, path, body, status):
    async with house.client() as client:
        answer = await client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_server_without_events_says_so(house):
    async with house.client() as client:
        assert (await client.get("/api/event_hooks")).status_code == 404


async def test_the_figures_of_each_hook_are_told_to_prometheus(desk, there):
    await lay_aside(desk, there, 1)
    await desk.happen(3)
    await desk.until_noted("ci", 4)
    registry = CollectorRegistry()
    registry.register(EventHookCollector(desk.desk.figures))
    text = generate_latest(registry).decode()
    assert 'evermirror_event_hook_posts_total{hook="ci",result="refused"} 4.0' in text
    assert 'evermirror_event_hook_posts_total{hook="ci",result="failed"} 0.0' in text
    assert 'evermirror_event_hook_events_total{hook="ci",result="delivered"} 4.0' in text
    assert 'evermirror_event_hook_events_total{hook="ci",result="laid_aside"} 1.0' in text
    assert 'evermirror_event_hook_letters{hook="ci"} 1.0' in text
    assert 'evermirror_event_hook_failing{hook="ci"} 0.0' in text
