"""No client takes what others need; slowness is no crime while nobody waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fairness import PATIENCE_S, FairShare, Pace, slowest


def taken(share, client):
    count = 0
    while share.take(client):
        count += 1
    return count


def test_each_greedy_client_leaves_as_much_as_it_has():
    share = FairShare(16)
    assert [taken(share, client) for client in "abcde"] == [8, 4, 2, 1, 1]


def test_a_single_place_can_be_had():
    share = FairShare(1)
    assert taken(share, "a") == 1
    share.give_back("a")
    assert taken(share, "b") == 1


def test_a_client_has_no_more_than_its_own_bound():
    share = FairShare(100, 3)
    assert taken(share, "a") == 3
    assert share.is_at_own_limit("a")
    assert not share.is_at_own_limit("b")


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-5, 9)), max_size=60))
def test_what_is_used_is_what_clients_have_and_never_more_than_all(total, steps):
    share = FairShare(total)
    has = dict.fromkeys("abcd", 0)
    for client, amount in steps:
        if amount >= 0:
            left = total - sum(has.values())
            if share.take(client, amount):
                has[client] += amount
                assert has[client] <= left
        else:
            back = min(-amount, has[client])
            share.give_back(client, back)
            has[client] -= back
        assert share.used == sum(has.values()) <= total


def paced(bytes_s, for_s, piece=100_000):
    pace, now = Pace(), 0.0
    while now < for_s:
        pace.begin(now, piece)
        now += piece / bytes_s
        pace.end(now, piece)
    return pace, now


@pytest.mark.parametrize(("bytes_s", "slow"), [(1_200, True), (50_000, True), (200_000, False)])
def test_a_client_is_too_slow_below_the_pace(bytes_s, slow):
    pace, now = paced(bytes_s, 20)
    assert (pace.shortfall(now, 64_000) > 1) is slow


def test_the_pace_rises_with_the_time_that_we_waited():
    pace, now = paced(200_000, 20)
    assert pace.shortfall(now, 64_000) < 1
    pace, now = paced(200_000, 300)
    assert pace.shortfall(now, 64_000) > 1


def test_a_fast_start_does_not_excuse_a_standstill():
    pace, now = paced(50_000_000, 10)
    pace.begin(now, 256_000)
    assert pace.shortfall(now + PATIENCE_S / 2, 64_000) < 1
    assert pace.shortfall(now + 120, 64_000) > 1


def test_a_client_that_keeps_up_is_never_slow_however_slow_git_is():
    pace = Pace()
    for second in range(1_000):
        pace.begin(second, 10)
        pace.end(second + 0.001, 10)
    assert pace.shortfall(2_000, 64_000) == 0


def test_the_slowest_is_found():
    paces = [("fast", 1, [paced(900_000, 20)[0]]), ("slow", 1, [Pace(), paced(5_000, 20)[0]]),
             ("slower", 1, [paced(1_000, 20)[0]])]  # fmt: skip
    assert slowest(paces, 100, 64_000) == "slower"
    assert slowest(paces[:1], 100, 64_000) is None


def test_those_with_the_most_units_give_way_first():
    paces = [("one", 1, [paced(1_000, 20)[0]]), ("many", 4, [paced(50_000, 20)[0]])]
    assert slowest(paces, 100, 64_000) == "many"
    assert slowest([paces[0], ("many", 4, [paced(900_000, 20)[0]])], 100, 64_000) == "one"


@pytest.mark.parametrize(
    ("bytes_s", "others", "slow"),
    [
        (2_000_000, 8, False),
        (2_000_000, 1, False),
        (100_000, 8, False),
        (100_000, 1, True),
        (5_000, 8, True),  # or many addresses could keep a place each for nearly nothing
    ],
)
def test_a_long_clone_of_a_client_with_one_unit_goes_on_while_others_have_more(bytes_s, others, slow):
    pace, now = paced(bytes_s, 3_600)
    found = slowest([("long", 1, [pace]), ("greedy", others, [Pace()])], now, 64_000)
    assert (found == "long") is slow
    assert slowest([("long", 2, [pace])], now, 64_000) == "long"
