"""How far event hooks are, and their letters: the same on both databases."""

from __future__ import annotations

from evermirror.core.deliver.decisions import Decision, Item, LayAside, LetterEnd, Wait
from evermirror.edge.store import deliveries
from evermirror.model.delivery import HookProgress, LetterId
from evermirror.model.event import EventId, EventType, NewEvent
from tests.support.news import put_events

WAIT = Wait(None)
WHOLE = HookProgress(
    "ci",
    EventId(2**61),
    EventId(2**61 + 5),
    failures=7,
    not_before=1234.5,
    failing_since=1000.25,
    last_error="HTTP 503",
    delivered_at=900.0,
    delivered_total=2**40,
    laid_aside_total=3,
    stopped=True,
)


def aside(number: int, body: str = "{}") -> LayAside:
    return LayAside(Item(EventId(number), "refs.changed", 5.0, body), "HTTP 400", 3)


async def numbers(store, hook=None, limit=100, before=None):
    return [letter.event for letter in await store.letters(hook, limit, before)]


async def test_a_hooks_place_is_kept_whole_and_replaced(store):
    await store.begin_event_hooks({"ci": HookProgress("ci", EventId(5))}, {"ci"})
    assert await store.load_event_hooks() == {"ci": HookProgress("ci", EventId(5))}
    await store.save_delivery("ci", Decision(WAIT, WHOLE))
    assert await store.load_event_hooks() == {"ci": WHOLE}


async def test_a_hook_that_left_the_settings_loses_its_place_and_keeps_its_letters(store):
    places = {name: HookProgress(name, EventId(5)) for name in ("ci", "old")}
    await store.begin_event_hooks(places, places.keys())
    await store.save_delivery("old", Decision(WAIT, aside=(aside(6),)))
    await store.begin_event_hooks({}, {"ci"})
    assert set(await store.load_event_hooks()) == {"ci"}
    assert await numbers(store, "old") == [6]


async def test_a_step_is_one_transaction_and_the_same_again_changes_nothing(store, clock):
    clock.now = 77.0
    step = Decision(WAIT, WHOLE, aside=(aside(1, '{"ä":"\\u0000"}'), aside(2)))
    await store.save_delivery("ci", step)
    await store.save_delivery("ci", step)
    two, one = await store.letters("ci", 10)
    assert (one.event, one.body, one.reason, one.attempts, one.at) == (
        1,
        '{"ä":"\\u0000"}',
        "HTTP 400",
        3,
        77.0,
    )
    assert (one.hook, one.type, one.again, two.event) == ("ci", "refs.changed", False, 2)
    assert await store.letter_counts() == {"ci": 2}


async def test_letters_are_paged_newest_first_and_by_hook(store):
    await store.save_delivery("a", Decision(WAIT, aside=tuple(aside(n) for n in range(1, 6))))
    await store.save_delivery("b", Decision(WAIT, aside=(aside(9),)))
    assert await numbers(store) == [9, 5, 4, 3, 2, 1]
    first = await store.letters("a", 2)
    assert [letter.event for letter in first] == [5, 4]
    assert await numbers(store, "a", 2, first[-1].id) == [3, 2]
    assert await numbers(store, "nobody") == await numbers(store, "\0") == await numbers(store, "a", 0) == []
    assert await numbers(store, "a", before=LetterId(2**70)) == [5, 4, 3, 2, 1]


async def test_letters_are_wanted_again_one_by_one_and_end(store):
    await store.save_delivery("a", Decision(WAIT, aside=(aside(1), aside(2), aside(3))))
    await store.save_delivery("b", Decision(WAIT, aside=(aside(1),)))
    _, two, one = await store.letters("a", 10)
    assert await store.next_letter_again("a") is None
    assert await store.send_letters_again("a", [one.id, two.id, LetterId(2**70)]) == 2
    assert await store.next_letter_again("b") is None
    found = await store.next_letter_again("a")
    assert found is not None
    assert (found.event, found.again) == (1, True)
    await store.save_delivery("a", Decision(WAIT, letter=LetterEnd(one.id, taken=True)))
    await store.save_delivery("a", Decision(WAIT, letter=LetterEnd(two.id, taken=False, reason="HTTP 422")))
    assert await store.next_letter_again("a") is None
    _, two = await store.letters("a", 10)
    assert (two.event, two.again, two.reason, two.attempts) == (2, False, "HTTP 422", 4)
    assert await store.send_letters_again("a", None) == 2


async def test_letters_are_forgotten_by_person_and_by_age(store, clock):
    clock.now = 10.0
    await store.save_delivery("a", Decision(WAIT, aside=(aside(1), aside(2))))
    clock.now = 20.0
    await store.save_delivery("a", Decision(WAIT, aside=(aside(3), aside(4))))
    assert await store.clean_letters(15.0) == 2
    four, three = await store.letters("a", 10)
    assert await store.forget_letters("b", [three.id]) == 0
    assert await store.forget_letters("a", [three.id]) == 1
    assert await numbers(store) == [four.event]
    assert await store.forget_letters("a", None) == 1


async def test_of_too_many_letters_of_a_hook_the_oldest_go(store, monkeypatch):
    monkeypatch.setattr(deliveries, "LETTERS_MAX", 3)
    await store.save_delivery("b", Decision(WAIT, aside=(aside(1),)))
    for number in range(1, 6):
        await store.save_delivery("a", Decision(WAIT, aside=(aside(number),)))
    assert await numbers(store, "a") == [5, 4, 3]
    assert await numbers(store, "b") == [1]


async def test_what_waits_is_counted_up_to_a_bound(store, monkeypatch):
    await put_events(store, [NewEvent(EventType.REFS_CHANGED, 1.0) for _ in range(5)])
    latest = await store.latest_event()
    assert await store.events_waiting(EventId(0)) == 5
    assert await store.events_waiting(EventId(latest - 2)) == 2
    monkeypatch.setattr(deliveries, "WAITING_MAX", 3)
    assert await store.events_waiting(EventId(0)) == 3
