"""Event hooks at work: a real store, real feed, real HTTP receivers that check what they get."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from evermirror.core.deliver import courier
from evermirror.errors import Conflict, NotFound
from evermirror.model.delivery import LetterId
from evermirror.model.event import EventType, NewEvent
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import RepoKey
from evermirror.nodes.event_service import PostEnd
from tests.support.event_house import event_house, hook_at
from tests.support.event_receiver import event_receiver
from tests.support.http_sink import Reply
from tests.support.news import put_events
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(courier, "PAUSE_MIN_S", 0.05)
    monkeypatch.setattr(courier, "PAUSE_MAX_S", 0.4)


@pytest.fixture
def there():
    with event_receiver() as receiver:
        yield receiver


@pytest.fixture
def other():
    with event_receiver() as receiver:
        yield receiver


async def test_events_arrive_signed_in_order_and_a_new_hook_begins_at_the_latest(tmp_path, there):
    async with event_house(tmp_path) as it:
        await it.happen(3)
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(5)
        await it.until_noted("ci", 5)
        assert there.ids == sorted(there.ids)
        assert there.events[0]["type"] == "refs.changed"
        assert there.events[0]["repo"] == "h/a"
        (view,) = await it.desk.deliveries()
        assert (view.host, view.waiting, view.letters, view.failing) == ("127.0.0.1", 0, 0, False)
        assert view.progress.delivered_total == 5
        assert it.delivering.figures()["ci"].posts[PostEnd.TAKEN] == len(there.kept)
    assert not there.unsigned


async def test_hundreds_at_once_go_in_batches(tmp_path, there):
    async with event_house(tmp_path, hook_at("ci", there, batch=50)) as it:
        await put_events(it.store, [NewEvent(EventType.REFS_CHANGED, time.time()) for _ in range(730)])
        await it.until(lambda: len(there.ids) == 730)
        assert there.ids == sorted(there.ids)
        assert max(map(len, there.kept.values())) == 50
        assert len(there.kept) <= 16


async def test_only_what_a_hook_wants_arrives(tmp_path, there, other):
    chosen = hook_at("ci", there, types=("repo.*", "refs.changed"), repos=("github.com/acme/*",))
    async with event_house(tmp_path, chosen, hook_at("all", other)) as it:
        await it.happen(1, EventType.REFS_CHANGED, "github.com/acme/x")
        await it.happen(1, EventType.SYNC_FAILED, "github.com/acme/x")
        await it.happen(1, EventType.REPO_ADDED, "github.com/other/x")
        await put_events(it.store, [NewEvent(EventType.WORKER_UP, time.time(), worker="w")])
        await it.happen(1, EventType.REPO_ADDED, "github.com/acme/y")
        await it.until(lambda: len(there.ids) == 2 and len(other.ids) == 5)
        assert [event["type"] for event in there.events] == ["refs.changed", "repo.added"]


async def test_a_receiver_that_is_down_gets_the_same_again_and_holds_up_no_other(tmp_path, there, other):
    there.mood = lambda _: Reply(500)
    async with event_house(tmp_path, hook_at("ci", there), hook_at("all", other)) as it:
        await it.happen(4)
        await it.until(lambda: len(other.ids) == 4 and len(there.sink.taken) >= 3)
        assert len({request.headers["evermirror-delivery"] for request in there.sink.taken}) == 1
        await it.happen(2)
        await it.until(lambda: len(other.ids) == 6)
        assert it.delivering.lines["ci"].progress.last_error == "HTTP 500"
        there.mood = lambda _: None
        await it.until(lambda: len(there.ids) == 6)
        assert there.ids == other.ids


async def test_a_dead_receiver_holds_up_no_other(tmp_path, there):
    dead = hook_at("dead", f"http://127.0.0.1:{free_port()}/")
    async with event_house(tmp_path, dead, hook_at("ci", there)) as it:
        await it.happen(20)
        await it.until(lambda: len(there.ids) == 20)
        await it.until(lambda: it.delivering.figures()["dead"].posts[PostEnd.FAILED] >= 1)


async def test_a_receiver_that_asks_for_a_second_is_left_alone_for_a_second(tmp_path, there):
    asked_at: list[float] = []

    def busy_at_first(_: list[dict[str, Any]]) -> Reply | None:
        asked_at.append(time.monotonic())
        return Reply(429, headers={"Retry-After": "1"}) if len(asked_at) == 1 else None

    there.mood = busy_at_first
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(1)
        await it.until(lambda: bool(there.ids))
        first, second = asked_at
        assert second - first > 0.8
        assert len(there.sink.taken) == 2


async def test_a_slow_receiver_is_waited_for_so_long_and_then_asked_again(tmp_path, there):
    slow = iter([Reply(204, delay_s=1.0)])
    there.mood = lambda _: next(slow, None)
    async with event_house(tmp_path, hook_at("ci", there, timeout_s=0.3)) as it:
        await it.happen(1)
        await it.until(lambda: bool(there.again))  # it had taken it, and knows it again
        assert len(there.ids) == 1


async def test_one_event_that_is_refused_becomes_a_letter_and_can_be_sent_again_or_forgotten(tmp_path, there):
    there.mood = lambda events: Reply(400) if any(e["repo"] == "h/bad" for e in events) else None
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await put_events(
            it.store,
            [
                NewEvent(EventType.REFS_CHANGED, time.time(), RepoKey(repo))
                for repo in ("h/a", "h/b", "h/bad", "h/c", "h/bad", "h/d")
            ],
        )
        await it.until(lambda: len(there.ids) == 4)
        await it.until(lambda: it.delivering.figures()["ci"].letters == 2)
        assert [event["repo"] for event in there.events] == ["h/a", "h/b", "h/c", "h/d"]
        second, first = await it.desk.letters("ci", 10, None)
        assert (first.reason, first.attempts, first.type) == ("HTTP 400", 3, "refs.changed")

        assert await it.desk.send_again("ci", [first.id], actor="me") == 1  # still refused
        tries = len(there.sink.taken)
        await it.until(lambda: len(there.sink.taken) > tries)
        await it.happen(1)
        await it.until(lambda: len(there.ids) == 5)
        assert len(await it.desk.letters("ci", 10, None)) == 2

        there.mood = lambda _: None
        assert await it.desk.send_again("ci", [first.id], actor="me") == 1
        await it.until(lambda: first.event in there.ids)
        await it.until(lambda: it.delivering.figures()["ci"].letters == 1)
        assert await it.desk.forget_letters("ci", None, actor="me") == 1
        assert not await it.desk.letters(None, 10, None)
        assert second.event not in there.ids
        assert [note.action for note in await it.store.list_audit(10)] == [
            "event_hooks.letters_forgotten",
            "event_hooks.retried",
            "event_hooks.retried",
        ]


async def test_a_receiver_that_is_gone_stops_the_hook_and_is_told_until_it_is_tried_again(tmp_path, there):
    there.mood = lambda _: Reply(410)
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(2)
        await it.until(lambda: bool(it.told) and not it.told[-1].over)
        assert it.told[-1].identity == ("event-hook-failing", "ci")
        assert "wants no more events (HTTP 410)" in it.told[-1].text
        await it.happen(2)
        await asyncio.sleep(0.3)
        assert len(there.sink.taken) == 1
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.until(lambda: bool(it.told) and not it.told[-1].over)
        tries = len(there.sink.taken)
        await it.desk.send_again("ci", None, actor="me")  # in vain: nobody is told that it takes events
        await it.until(lambda: len(there.sink.taken) > tries)
        await it.until(lambda: it.delivering.lines["ci"].progress.stopped)
        assert not it.told[-1].over
        assert len([alert for alert in it.told if not alert.over]) == 1
        there.mood = lambda _: None
        assert await it.desk.send_again("ci", None, actor="me") == 0
        await it.until(lambda: len(there.ids) == 4)
        await it.until(lambda: it.told[-1].over)
    assert it.told[-1].text == "event hook ci takes events again"


async def test_a_hook_that_fails_for_long_is_told_and_its_end_too(tmp_path, there, monkeypatch):
    monkeypatch.setattr(courier, "FAILING_S", 0.5)
    there.mood = lambda _: Reply(503)
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(1)
        await it.until(lambda: bool(it.told) and not it.told[-1].over)
        assert it.told[-1].text == "event hook ci does not take events: HTTP 503"
        assert it.told[-1].facts == {"reason": "HTTP 503"}
        there.mood = lambda _: None
        await it.until(lambda: it.told[-1].over)


async def test_a_test_goes_at_once_outside_the_queue(tmp_path, there):
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        assert await it.desk.test("ci", actor="me") == ""
        assert [event["type"] for event in there.events] == ["test"]
        assert there.sink.taken[0].headers["evermirror-event"] == "test"
        there.mood = lambda _: Reply(500)
        assert await it.desk.test("ci", actor="me") == "HTTP 500"
        with pytest.raises(NotFound, match="no event hook 'nobody'"):
            await it.desk.test("nobody", actor="me")
        for ask in (it.desk.send_again, it.desk.forget_letters):
            with pytest.raises(NotFound):
                await ask("nobody", None, actor="me")
            with pytest.raises(NotFound, match="ci has no letter 99"):
                await ask("ci", [LetterId(99)], actor="me")
        with pytest.raises(NotFound, match="no event hook 'nobody'"):
            await it.desk.letters("nobody", 10, None)
        assert await it.desk.letters("ci", 10, None) == ()


async def test_other_settings_are_taken_over_while_it_runs(tmp_path, there, other):
    there.mood = lambda _: Reply(500)
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(3)
        await it.until(lambda: len(there.sink.taken) >= 2)
        moved = hook_at("ci", other)  # the same hook at another place: it goes on where it was
        it.delivering.configure({"ci": moved, "new": hook_at("new", there)})
        await it.until(lambda: len(other.ids) == 3)
        there.mood = lambda _: None
        await it.until(lambda: "new" in it.delivering.lines)
        await it.happen(1)
        await it.until(lambda: len(other.ids) == 4 and len(there.ids) == 1)
        assert there.ids == other.ids[3:]

        it.delivering.configure({"ci": replace(moved, enabled=False)})
        await it.until(lambda: set(it.delivering.lines) == {"ci"})
        await it.happen(2)
        await asyncio.sleep(0.3)
        assert len(other.ids) == 4
        with pytest.raises(Conflict, match="switched off"):
            await it.desk.send_again("ci", None, actor="me")
        it.delivering.configure({"ci": moved})
        await it.until(lambda: len(other.ids) == 6)


async def test_a_restart_in_the_middle_loses_nothing_and_keeps_the_order(tmp_path, there):
    total = 0
    there.mood = lambda events: Reply(204, delay_s=0.05) if events[0]["id"] % 3 else Reply(500)
    for _ in range(4):
        async with event_house(tmp_path, hook_at("ci", there, batch=3)) as it:
            await it.happen(10)
            total += 10
            await asyncio.sleep(0.15)
    there.mood = lambda _: None
    async with event_house(tmp_path, hook_at("ci", there, batch=3)) as it:
        await it.until(lambda: len(set(there.ids)) == total)
    assert there.ids == sorted(set(there.ids))  # each once: what was under way at a stop was noted


async def test_a_stop_does_not_wait_for_a_slow_receiver_and_the_same_goes_again(tmp_path, there):
    there.mood = lambda _: Reply(204, delay_s=30.0)
    async with event_house(tmp_path, hook_at("ci", there, timeout_s=60.0)) as it:
        await it.happen(2)
        await it.until(lambda: bool(there.kept))
        begin = time.monotonic()
    assert time.monotonic() - begin < 20.0  # 2.9 by its own clock; the receiver takes 30
    there.mood = lambda _: None
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.until(lambda: bool(there.again))
        assert there.again == [next(iter(there.kept))]


async def test_what_ends_while_it_stops_is_noted_and_not_sent_again(tmp_path, there):
    there.mood = lambda _: Reply(204, delay_s=0.5)
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(2)
        await it.until(lambda: bool(there.kept))
    there.mood = lambda _: None
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(1)
        await it.until(lambda: len(there.ids) == 3)
    assert not there.again


async def test_other_types_count_from_its_place_on_and_another_url_wakes_one_that_stopped(
    tmp_path, there, other
):
    there.mood = lambda _: Reply(410)
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        await it.happen(1)
        await it.happen(1, EventType.REPO_ADDED)
        await it.until(lambda: it.delivering.lines["ci"].progress.stopped)
        it.delivering.configure({"ci": hook_at("ci", other, types=("repo.*",))})
        await it.until(lambda: bool(other.ids))
        await it.happen(1)
        await it.happen(1, EventType.REPO_REMOVED)
        await it.until(lambda: len(other.ids) == 2)
        assert [event["type"] for event in other.events] == ["repo.added", "repo.removed"]
        assert it.told[-1].over


async def test_a_database_in_trouble_is_waited_for_and_nothing_goes_before_it_is_saved(
    tmp_path, there, monkeypatch
):
    async with event_house(tmp_path, hook_at("ci", there)) as it:
        save, refused = it.store.save_delivery, []

        async def in_trouble(hook, decision):
            if len(refused) < 2:
                refused.append(decision)
                raise FailureError(Failure(FailureKind.UNKNOWN, "the disk is full"))
            assert not there.sink.taken
            monkeypatch.undo()
            await save(hook, decision)

        monkeypatch.setattr(it.store, "save_delivery", in_trouble)
        await it.happen(1)
        await it.until(lambda: bool(there.ids))
        assert len(refused) == 2
