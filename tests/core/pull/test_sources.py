"""Hosts in bad weather: closed, probed, and used again step by step; and target hosts that are silent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.silence import HOSTS_MAX, Silence, host_of
from evermirror.core.pull.sources import ALIKE_S, PAUSE_LAST_S, RETRY_AFTER_MAX_S, Sources
from evermirror.model.push import TargetId
from evermirror.model.repo import Host
from tests.core.pull.small import FORGE, MINUTE, NOW, key

LIMIT = 8


def room(sources, now, host=FORGE):
    """How many would be started one after the other."""
    count = 0
    while sources.has_room(host, now) and count < 100:
        sources.began(host)
        count += 1
    for _ in range(count):
        sources.ended(host)
    return count


def closed(sources=None, now=NOW, **fields):
    sources = sources or Sources()
    sources.failed(FORGE, now, asked=False, **fields)
    return sources


def test_a_calm_host_has_room_for_all():
    assert room(Sources(), NOW) == 100


def test_a_closed_host_is_left_alone_and_then_probed_by_one():
    sources = closed()
    assert room(sources, NOW + MINUTE - 1) == 0
    assert room(sources, NOW + MINUTE) == 1


def test_each_probe_that_fails_doubles_the_pause_up_to_ten_minutes():
    sources, now, pauses = Sources(), NOW, []
    for _ in range(6):
        sources.failed(FORGE, now, asked=False)
        until = sources.closed_until(FORGE, now)
        pauses.append((until - now) / MINUTE)
        now = until
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_what_was_on_its_way_does_not_lengthen_the_pause():
    sources = closed()
    for second in range(1, 30):
        sources.failed(FORGE, NOW + second, asked=False)
    assert sources.closed_until(FORGE, NOW + 30) == NOW + MINUTE


def test_a_success_opens_it_and_the_room_doubles_with_each_further_one():
    sources, rooms = closed(), []
    now = NOW + MINUTE
    for _ in range(5):
        sources.succeeded(FORGE, LIMIT, now)
        rooms.append(room(sources, now))
    assert rooms == [2, 4, 100, 100, 100]  # 8 is the limit itself: calm


def test_an_uncounted_failure_while_it_ramps_closes_it_again_for_longer():
    sources = closed()
    sources.succeeded(FORGE, LIMIT, NOW + MINUTE)
    closed(sources, NOW + MINUTE)
    assert sources.closed_until(FORGE, NOW + MINUTE) == NOW + 3 * MINUTE


def test_pauses_start_small_again_once_it_is_calm():
    sources = closed(closed(), NOW + MINUTE)
    for _ in range(4):
        sources.succeeded(FORGE, LIMIT, NOW + 3 * MINUTE)
    closed(sources, NOW + 4 * MINUTE)
    assert sources.closed_until(FORGE, NOW + 4 * MINUTE) == NOW + 5 * MINUTE


@pytest.mark.parametrize(
    ("asked_for", "given_s"),
    [(90.0, 90.0), (0.0, 1.0), (-5.0, 1.0), (1e9, RETRY_AFTER_MAX_S), (float("nan"), 1.0)],
)
def test_a_host_is_left_alone_for_as_long_as_it_asked_within_bounds(asked_for, given_s):
    sources = Sources()
    sources.failed(FORGE, NOW, asked=True, retry_after_s=asked_for)
    assert sources.closed_until(FORGE, NOW) == NOW + given_s


def test_a_success_that_was_on_its_way_opens_a_stormy_host_but_not_one_that_asked_us_to_wait():
    stormy, limited = closed(), Sources()
    limited.failed(FORGE, NOW, asked=True, retry_after_s=300)
    for sources in (stormy, limited):
        sources.succeeded(FORGE, LIMIT, NOW + 1)
    assert stormy.has_room(FORGE, NOW + 1)
    assert not limited.has_room(FORGE, NOW + 1)


def test_a_host_that_asks_for_more_time_while_it_is_closed_gets_it():
    sources = closed()
    sources.failed(FORGE, NOW + 1, asked=True, retry_after_s=500)
    assert sources.closed_until(FORGE, NOW + 2) == NOW + 501
    sources.failed(FORGE, NOW + 2, asked=True, retry_after_s=10)
    assert sources.closed_until(FORGE, NOW + 2) == NOW + 501


def test_people_are_told_once_that_a_host_fails_and_once_that_it_is_back_but_not_of_rate_limits():
    sources = Sources()
    assert not sources.failed(FORGE, NOW, asked=True)
    assert sources.failed(FORGE, NOW + MINUTE, asked=False)
    assert not sources.failed(FORGE, NOW + 5 * MINUTE, asked=False)
    assert sources.succeeded(FORGE, LIMIT, NOW + 20 * MINUTE)
    assert not sources.succeeded(FORGE, LIMIT, NOW + 20 * MINUTE)


def test_it_says_when_the_next_pause_is_over_and_whose():
    sources, other = closed(), Host("other")
    sources.failed(other, NOW + 10, asked=False)
    assert sources.next_at() == NOW + MINUTE
    assert sources.closed(NOW + 10) == (FORGE, other)
    assert sources.reopened(NOW + MINUTE - 1) == []
    assert sources.reopened(NOW + MINUTE) == [FORGE]
    assert sources.next_at() == NOW + 10 + MINUTE
    sources.moved_in(other)
    sources.moved_in(other)
    assert not sources.moved_out(other)
    assert sources.next_at() == NOW + 10 + MINUTE
    assert sources.moved_out(other)  # the last one: people need not know of its weather any more
    assert sources.next_at() is None


def test_a_projects_own_timeout_is_the_weathers_where_there_is_some():
    sources = Sources()
    assert sources.timed_out(FORGE, key("a"), NOW) is None
    assert room(sources, NOW) == 100
    closed(sources)
    assert sources.timed_out(FORGE, key("a"), NOW + MINUTE) == {}


def test_the_third_project_that_times_out_shows_that_it_is_the_host_and_excuses_the_others():
    sources, names = Sources(), ["a", "a", "b", "a", "c"]
    told = [sources.timed_out(FORGE, key(name), NOW + n * MINUTE) for n, name in enumerate(names)]
    assert told == [None] * 4 + [{key("a"): 3, key("b"): 1}]
    assert sources.timed_out(Host("other"), key("a"), NOW) is None


@pytest.mark.parametrize("between", ["an answer", "a day", "nobody lives there"])
def test_timeouts_are_forgotten_with(between):
    sources, now = Sources(), NOW
    sources.moved_in(FORGE)
    for name in "ab":
        sources.timed_out(FORGE, key(name), now)
    match between:
        case "an answer":
            sources.succeeded(FORGE, LIMIT, now)
        case "a day":
            now += ALIKE_S
        case "nobody lives there":
            sources.moved_out(FORGE)
    assert [sources.timed_out(FORGE, key(name), now) for name in "cde"] == [
        None,
        None,
        {key("c"): 1, key("d"): 1},
    ]


def test_a_clock_that_was_ahead_does_not_close_a_host_for_ever():
    sources = closed(now=NOW + 1e8)
    sources.clock_went_back(NOW)
    assert sources.closed_until(FORGE, NOW) == NOW + RETRY_AFTER_MAX_S
    assert sources.next_at() == NOW + RETRY_AFTER_MAX_S


def test_a_pause_that_is_not_over_by_a_clock_that_went_back_ends_all_the_same():
    sources = closed()
    assert sources.reopened(NOW + MINUTE) == [FORGE]
    sources.clock_went_back(NOW + 1)
    assert sources.next_at() == NOW + MINUTE


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from(["fail", "ask", "succeed", "own"]), st.floats(0, 400)), max_size=40)
)
def test_a_host_is_never_closed_for_longer_than_an_hour_and_never_without_an_end(events):
    sources, now = Sources(), NOW
    asked = any(what == "ask" for what, _ in events)
    for what, gap in events:
        now += gap
        match what:
            case "fail":
                sources.failed(FORGE, now, asked=False)
            case "ask":
                sources.failed(FORGE, now, asked=True, retry_after_s=gap * 20)
            case "succeed":
                sources.succeeded(FORGE, LIMIT, now)
            case "own":
                if sources.timed_out(FORGE, key(str(gap)), now) is not None:
                    sources.failed(FORGE, now, asked=False)
        until = sources.closed_until(FORGE, now)
        assert (until is None) == (room(sources, now) > 0)
        if until is not None:
            assert now < until <= now + (RETRY_AFTER_MAX_S if asked else PAUSE_LAST_S)
            assert sources.next_at() == until
            assert room(sources, until) == 1


# Target hosts


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Target.example:8443/a/b.git", "target.example:8443"),
        ("ssh://git@target.example/a", "target.example"),
        ("git@target.example:a/b.git", "target.example"),
    ],
)
def test_the_host_of_a_target(url, host):
    assert host_of(url) == host


def test_a_target_host_is_silent_after_three_targets_until_one_answers():
    silence, url = Silence(), "https://target.example/x"

    def fails(name):
        return silence.failed(url, (key(name), TargetId(1)))

    assert [fails(n) for n in ("a", "a", "a", "b", "c", "a", "d")] == [False] * 4 + [True] * 3
    assert not silence.failed("https://other.example/x", (key("a"), TargetId(1)))
    silence.succeeded("https://target.example/y")
    assert [fails(n) for n in ("a", "b")] == [False, False]


def test_few_silent_hosts_are_remembered():
    silence = Silence()
    for n in range(2 * HOSTS_MAX):
        silence.failed(f"https://h{n}/x", (key("a"), TargetId(1)))
    assert len(silence._hosts) == HOSTS_MAX
