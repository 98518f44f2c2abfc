"""What an event hook's mind decides, step by step."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from evermirror.core.deliver.courier import (
    BATCH_MAX,
    GIVE_UP_S,
    MESSAGE_CHARS_MAX,
    PAUSE_MAX_S,
    RETRY_AFTER_MAX_S,
    Courier,
)
from evermirror.core.deliver.decisions import (
    Configured,
    Found,
    NotTaken,
    Post,
    Read,
    Resumed,
    Taken,
    Wait,
    Woke,
)
from evermirror.model.delivery import DeadLetter, EventHook, HookProgress, LetterId
from evermirror.model.event import EventId
from tests.core.deliver.couriers import AWAY, GONE, REFUSED, Crashed, World, item


def test_what_is_there_goes_in_batches_in_order_and_then_it_waits_for_news():
    world = World(EventHook("ci", batch=3))
    world.add(*range(1, 9))
    assert world.run() == Wait(None)
    assert world.arrived == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert (world.saved.after, world.saved.until, world.saved.delivered_total) == (8, None, 8)
    world.add(9)
    world.run()
    assert world.arrived[-1] == [9]


def test_what_a_message_holds_is_saved_before_it_goes_and_with_the_end_of_the_one_before():
    courier = Courier(EventHook("ci", batch=2), HookProgress("ci", EventId(0)))
    assert courier.handle(Woke(), 1.0).action == Read(EventId(0), BATCH_MAX)
    first = courier.handle(Found((item(1), item(2), item(3)), EventId(3)), 1.0)
    assert first.progress is not None
    assert (first.progress.after, first.progress.until) == (0, 2)
    second = courier.handle(Taken(), 2.0)
    assert second.progress is not None
    assert (second.progress.after, second.progress.until) == (2, 3)
    assert isinstance(second.action, Post)
    assert second.progress.delivered_at == 2.0


def test_a_crash_after_the_receiver_took_it_sends_the_same_message_under_the_same_number():
    world = World(EventHook("ci", batch=10))
    world.add(1, 2, 3)

    def crash() -> None:
        if world.posts:
            raise Crashed

    world.step = crash
    with pytest.raises(Crashed):
        world.run()
    world.step = lambda: None
    world.add(4, 5)  # more is there by now: it is not mixed in
    world.start()
    world.run()
    assert world.posted == [[1, 2, 3], [1, 2, 3], [4, 5]]
    assert world.posts[0].delivery == world.posts[1].delivery != world.posts[2].delivery


def test_the_same_message_goes_again_where_the_pages_are_small_and_the_batch_is_smaller_now():
    world = World(EventHook("ci", batch=4), answer=lambda _: AWAY)
    world.add(*range(1, 7))
    world.run()
    world.page, world.hook = 1, EventHook("ci", batch=2)
    world.start()
    world.answer = lambda _: Taken()
    world.pass_time(world.now + 60)
    assert world.posted == [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6]]


def test_pauses_double_up_to_a_quarter_of_an_hour_and_the_same_message_goes_each_time():
    world = World(answer=lambda _: AWAY)
    world.add(1, 2)
    times = []

    def answer(_: Post) -> NotTaken:
        times.append(world.now)
        return AWAY

    world.answer = answer
    world.pass_time(world.now + 3 * 3600)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps[:8] == [5, 10, 20, 40, 80, 160, 320, 640]
    assert set(gaps[8:]) == {PAUSE_MAX_S}
    assert set(map(tuple, world.posted)) == {(1, 2)}
    assert len({post.delivery for post in world.posts}) == 1
    assert world.saved.failures == len(times)
    assert world.saved.last_error == "HTTP 503"
    world.answer = lambda _: Taken()
    world.pass_time(world.now + PAUSE_MAX_S)
    assert world.arrived == [[1, 2]]
    assert (world.saved.failures, world.saved.failing_since, world.saved.last_error) == (0, None, "")


@pytest.mark.parametrize(("asked_s", "waits_s"), [(2.0, 5.0), (100.0, 100.0), (1e9, RETRY_AFTER_MAX_S)])
def test_a_receiver_that_asks_for_time_gets_it_within_bounds(asked_s, waits_s):
    world = World(answer=lambda _: NotTaken("HTTP 429", retry_after_s=asked_s))
    world.add(1)
    assert world.run().until == world.now + min(waits_s, 300.0)  # also woken to tell that it fails
    assert world.saved.not_before == world.now + waits_s


def test_of_many_the_one_that_is_refused_is_laid_aside_alone_after_three_tries():
    world = World(EventHook("ci", batch=8))
    world.answer = lambda post: REFUSED if 6 in [one.event for one in post.items] else Taken()
    world.add(*range(1, 12))
    world.pass_time(world.now + 300)
    assert world.aside == [6]
    assert world.letters[0].attempts == 3
    assert world.letters[0].reason == "HTTP 400"
    assert [number for post in world.arrived for number in post] == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert world.posted.count([6]) == 3
    assert (world.saved.laid_aside_total, world.saved.delivered_total) == (1, 10)
    assert world.posted[0] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert world.posted[1] == [1, 2, 3, 4]


def test_messages_grow_again_after_what_was_refused():
    world = World(EventHook("ci", batch=8))
    world.answer = lambda post: REFUSED if 1 in [one.event for one in post.items] else Taken()
    world.add(*range(1, 30))
    world.pass_time(world.now + 300)
    assert [len(post) for post in world.arrived] == [1, 2, 4, 8, 8, 5]


def test_a_receiver_that_refuses_everything_gets_few_tries_and_is_told_as_failing():
    world = World(EventHook("ci", batch=1), answer=lambda _: REFUSED)
    world.add(*range(1, 500))
    world.pass_time(world.now + 3600)
    assert world.aside == [1, 2, 3]  # then it is the receiver's fault
    assert len(world.posts) <= 20
    assert world.courier.is_failing(world.now)
    world.answer = lambda _: Taken()
    world.pass_time(world.now + 900)
    assert [number for post in world.arrived for number in post] == list(range(4, 500))


def test_what_a_person_resumes_is_tried_as_if_nothing_had_been_refused_before():
    world = World(EventHook("ci", batch=1), answer=lambda _: REFUSED)
    world.add(*range(1, 10))
    world.pass_time(world.now + 3600)
    world.event = Resumed()
    world.pass_time(world.now + 3600)
    assert world.aside == [1, 2, 3, 4, 5, 6]


def test_what_is_older_than_a_day_is_laid_aside_while_the_receiver_is_away_and_the_rest_arrives():
    world = World(EventHook("ci", batch=2), answer=lambda _: AWAY)
    begin = world.now
    for hour in range(30):
        world.add(2 * hour + 1, 2 * hour + 2)
        world.pass_time(begin + hour * 3600 + 60)
    world.pass_time(begin + 30 * 3600)
    assert world.aside == list(range(1, len(world.aside) + 1))
    assert 10 <= len(world.aside) <= 14
    assert all(letter.reason == "HTTP 503" for letter in world.letters)
    world.answer = lambda _: Taken()
    world.pass_time(world.now + 3600)
    last_old = max(world.aside)
    assert [number for post in world.arrived for number in post] == list(range(last_old + 1, 61))
    assert world.saved.laid_aside_total == last_old


def test_a_long_stop_of_ours_lays_nothing_aside_before_the_receiver_was_tried():
    world = World(answer=lambda _: AWAY)
    world.add(1)
    world.pass_time(world.now + GIVE_UP_S - 3600)
    world.now += 3 * GIVE_UP_S
    world.answer = lambda _: Taken()
    world.start()
    world.run()
    assert world.arrived == [[1]]
    assert not world.letters


def test_a_clock_that_is_set_forward_by_a_year_lays_nothing_aside_at_once():
    world = World(answer=lambda _: AWAY)
    world.add(1)
    world.run()
    world.now += 365 * 86_400
    world.run()
    assert not world.letters
    assert len(world.posts) == 2


def test_a_clock_that_is_set_back_by_a_year_waits_an_hour_at_most():
    world = World(answer=lambda _: AWAY)
    world.add(1)
    world.run()
    world.now -= 365 * 86_400
    wait = world.run()
    assert wait.until is not None
    assert wait.until <= world.now + RETRY_AFTER_MAX_S


def test_a_receiver_that_is_gone_is_left_alone_until_somebody_resumes_it():
    world = World(answer=lambda _: GONE)
    world.add(1, 2)
    assert world.run() == Wait(None)
    assert world.saved.stopped
    assert world.courier.is_failing(world.now)
    world.add(3)
    world.pass_time(world.now + 10 * 86_400)
    world.start()
    world.run()
    assert len(world.posts) == 1
    assert not world.letters
    world.answer = lambda _: Taken()
    world.event = Resumed()
    world.run()
    assert world.arrived == [[1, 2], [3]]
    assert not world.saved.stopped


def test_other_settings_resume_it_and_are_followed_from_its_place_on():
    world = World(EventHook("ci", types=("refs.*",)), answer=lambda _: AWAY)
    world.add(1, 2, 3)
    world.run()
    world.unwanted = {1, 3}
    world.answer = lambda _: Taken()
    world.event = Configured(EventHook("ci", types=("task.*",)))
    world.run()
    assert world.arrived == [[2]]
    assert world.saved.after == 3


def test_what_nobody_wants_is_passed_over_and_that_is_saved_now_and_then():
    world = World(page=10)
    world.unwanted = set(range(1, 5001))
    for second in range(120):
        world.add(*range(second * 40 + 1, second * 40 + 41))
        world.now += 1
        world.run()
    assert not world.posts
    assert 2 <= world.saves <= 3
    world.add(5001)
    world.run()
    assert world.arrived == [[5001]]
    assert world.saved.after == 5001


def test_messages_are_bounded_in_bytes_as_well_but_one_event_always_fits():
    world = World(EventHook("ci", batch=100))
    world.add(1, 2, 3, size=MESSAGE_CHARS_MAX // 2)
    world.add(4, size=3 * MESSAGE_CHARS_MAX)
    world.run()
    assert world.arrived == [[1, 2], [3], [4]]


def test_a_letter_that_is_wanted_again_goes_alone_and_live_events_go_on_beside_it():
    world = World(EventHook("ci", batch=1))
    world.answer = lambda post: REFUSED if post.items[0].event in (1, 2) else Taken()
    world.add(1, 2, 3)
    world.pass_time(world.now + 600)
    assert world.aside == [1, 2]
    assert world.arrived == [[3]]
    world.answer = lambda post: REFUSED if post.items[0].event == 1 else Taken()
    world.letters = [replace(letter, again=True) for letter in world.letters]
    world.add(4)
    world.run()
    assert world.arrived[1:] in ([[4], [2]], [[2], [4]])
    assert world.aside == [1]
    assert not world.letters[0].again
    assert world.saved.failures == 0  # the receiver is there


def test_what_is_new_waits_for_one_letter_at_most():
    world = World(EventHook("ci", batch=2))
    world.letters = [
        DeadLetter(LetterId(n), "ci", EventId(n), "t", "{}", "why", 3, 0.0, again=True) for n in range(1, 50)
    ]
    world.add(*range(100, 106))
    world.run()
    assert [number for post in world.arrived[:6] for number in post if number >= 100] == [*range(100, 106)]
    assert sorted(n for post in world.arrived for n in post) == [*range(1, 50), *range(100, 106)]
    assert not world.letters


def test_the_message_that_was_under_way_goes_again_the_same_also_where_letters_wait():
    world = World(EventHook("ci", batch=4), page=1)
    world.saved = HookProgress("ci", EventId(0), until=EventId(3))
    world.letters = [DeadLetter(LetterId(1), "ci", EventId(90), "t", "{}", "why", 3, 0.0, again=True)]
    world.add(1, 2, 3, 4)
    world.start()
    world.run()
    assert [post for post in world.arrived if post != [90]] == [[1, 2, 3], [4]]


def test_what_is_too_old_and_was_not_read_yet_is_laid_aside_in_the_middle_of_a_pause():
    world = World(EventHook("ci", batch=1), answer=lambda _: NotTaken("HTTP 503", retry_after_s=3600.0))
    begin = world.now
    world.add(1)
    world.now += 1.0
    world.add(2)
    world.now = begin
    world.pass_time(begin + 86_401 + 60)
    wait = world.run()
    assert world.aside == [1, 2]
    assert wait.until is not None
    assert wait.until > world.now


def test_a_letter_that_cannot_be_delivered_now_stays_wanted():
    world = World(answer=lambda _: AWAY)
    world.letters = [DeadLetter(LetterId(1), "ci", EventId(7), "t", "{}", "why", 3, 0.0, again=True)]
    world.run()
    assert world.letters[0].again
    assert world.saved.failures == 1
    world.answer = lambda _: Taken()
    world.pass_time(world.now + 10)
    assert not world.letters
    assert world.saved.after == 0


def test_what_is_no_longer_kept_is_told():
    courier = Courier(EventHook("ci"), HookProgress("ci", EventId(5)))
    courier.handle(Woke(), 1.0)
    found = courier.handle(Found((item(20),), EventId(20), gone=EventId(10)), 1.0)
    assert found.lost
    assert isinstance(found.action, Post)
    gap, event = found.action.items
    assert (gap.event, gap.type, event.event) == (10, "gap", 20)
    assert json.loads(gap.body)["data"] == {"after": 5}
    courier.handle(Taken(), 2.0)
    assert courier.progress.after == 20
    assert not courier.handle(Found((), EventId(20), gone=EventId(10)), 3.0).lost


def test_it_wakes_to_tell_that_it_fails_for_five_minutes():
    world = World(answer=lambda _: AWAY)
    world.add(1)
    begin = world.now
    told = []
    while world.now < begin + 400:
        wait = world.run()
        told += [world.now - begin] if world.courier.is_failing(world.now) else []
        assert wait.until is not None
        world.now = wait.until
    assert told[0] == 300
