from itertools import pairwise
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.liveness import Rounds

HEARTBEAT_S = 5.0
MAX_MISSED = 4
HOUR_S = 3600.0


class Coordinator:
    """Ticks every second, and hears some workers once in each heartbeat."""

    def __init__(self, *workers, max_missed=MAX_MISSED):
        self.rounds, self.now_s, self.told = Rounds(HEARTBEAT_S, max_missed), 100.0, []
        for worker in workers:
            self.rounds.watch(worker)
        self.rounds.tick(self.now_s)

    def live(self, seconds, hear=(), tick_s=1.0):
        """Goes on for so long; returns who was told as silent meanwhile."""
        told, heard_s, until_s = [], self.now_s, self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += tick_s
            if self.now_s - heard_s >= HEARTBEAT_S:
                heard_s = self.now_s
                for worker in hear:
                    self.rounds.heard(worker)
            self.rounds.tick(self.now_s)
            told += self.rounds.overdue()
        return told

    def pause(self, seconds):
        self.now_s += seconds
        self.rounds.tick(self.now_s)
        return self.rounds.overdue()


def test_who_is_heard_every_round_is_never_told():
    coordinator = Coordinator(1, 2)
    assert coordinator.live(HOUR_S, hear=(1, 2)) == []


def test_the_silent_one_is_told_once_after_more_than_max_missed_rounds():
    coordinator = Coordinator(1, 2)
    coordinator.live(60, hear=(1, 2))
    assert coordinator.live(MAX_MISSED * HEARTBEAT_S, hear=(1,)) == []
    assert coordinator.live(2 * HEARTBEAT_S, hear=(1,)) == [2]
    assert coordinator.live(HOUR_S, hear=(1,)) == []


def test_exactly_max_missed_rounds_are_forgiven():
    rounds = Rounds(HEARTBEAT_S, 2)
    rounds.tick(0.0)
    rounds.heard(1)  # in the round that ends at 5
    for end_s in (5.0, 10.0, 15.0):  # the rounds that end at 10 and 15 are missed
        rounds.tick(end_s)
        assert rounds.overdue() == []
    rounds.tick(20.0)
    assert rounds.overdue() == [1]


def test_with_no_round_to_be_missed_who_is_heard_in_each_is_not_told():
    rounds = Rounds(HEARTBEAT_S, 0)
    rounds.tick(0.0)
    for n in range(1, 100):
        rounds.heard(1)
        rounds.tick(n * HEARTBEAT_S)
        assert rounds.overdue() == []
    rounds.tick(100 * HEARTBEAT_S)
    assert rounds.overdue() == [1]


def test_a_worker_that_was_told_is_watched_again_once_it_is_heard():
    coordinator = Coordinator(1)
    assert coordinator.live(60) == [1]
    assert coordinator.live(60, hear=(1,)) == []
    assert coordinator.live(60) == [1]


def test_the_longest_silence_is_told_first():
    coordinator = Coordinator(1, 2, 3)
    coordinator.live(5, hear=(2, 1, 3))
    coordinator.live(5, hear=(1, 3))
    coordinator.live(5, hear=(3,))
    assert coordinator.live(120) == [2, 1, 3]


@pytest.mark.parametrize("before_s", [0.0, 1.0, 4.0, 5.0, 19.0, 24.0])
def test_a_coordinator_paused_for_an_hour_suspects_nobody_on_waking(before_s):
    coordinator = Coordinator(*range(10))
    assert coordinator.live(before_s) == []  # the longer ones are near to being told already
    assert coordinator.pause(HOUR_S) == []
    assert coordinator.live(HEARTBEAT_S - 1.0) == []  # what waits in the sockets has a heartbeat to be read
    assert coordinator.live(HOUR_S, hear=range(10)) == []


def test_whoever_did_not_survive_the_pause_is_told_after_as_many_rounds_as_ever():
    coordinator = Coordinator(1, 2)
    coordinator.live(60, hear=(1, 2))
    coordinator.pause(HOUR_S)
    assert coordinator.live(MAX_MISSED * HEARTBEAT_S, hear=(1,)) == []
    assert coordinator.live(2 * HEARTBEAT_S, hear=(1,)) == [2]


def test_nothing_of_a_pause_was_lived_so_that_no_grace_ends_on_waking():
    coordinator = Coordinator(1)
    coordinator.live(30)
    lived_s = coordinator.rounds.lived_s
    coordinator.pause(HOUR_S)
    assert coordinator.rounds.lived_s == lived_s
    coordinator.live(10)
    assert coordinator.rounds.lived_s == lived_s + 10.0


def test_a_coordinator_that_always_ticks_far_too_late_still_finds_the_dead():
    coordinator = Coordinator(1, 2)
    told = []
    for _ in range(MAX_MISSED + 3):
        coordinator.rounds.heard(1)
        told += coordinator.pause(60.0)
    assert told == [2]
    assert coordinator.rounds.rounds == MAX_MISSED + 2
    assert coordinator.rounds.lived_s == 2 * HEARTBEAT_S * (MAX_MISSED + 2)


def test_a_thousand_ticks_a_second_count_no_more_rounds_than_one_a_second():
    often, seldom = Coordinator(), Coordinator()
    often.live(60.5, tick_s=1 / 1024)  # without rounding
    seldom.live(60.5, tick_s=1.0)
    assert often.rounds.rounds == seldom.rounds.rounds == 12


def test_ticks_at_the_same_moment_are_no_time():
    rounds = Rounds(HEARTBEAT_S, 0)
    rounds.watch(1)
    for _ in range(1000):
        rounds.tick(7.0)
    assert (rounds.lived_s, rounds.rounds, rounds.overdue()) == (0.0, 0, [])


def test_a_clock_that_steps_back_neither_counts_nor_stops_the_count():
    rounds = Rounds(HEARTBEAT_S, MAX_MISSED)
    rounds.tick(1000.0)
    rounds.tick(10.0)
    assert rounds.lived_s == 0.0
    for second in range(11, 21):
        rounds.tick(float(second))
    assert (rounds.lived_s, rounds.rounds) == (10.0, 2)


def test_the_first_tick_only_says_where_time_begins():
    rounds = Rounds(HEARTBEAT_S, 0)
    rounds.watch(1)
    rounds.tick(123_456_789.0)
    assert (rounds.lived_s, rounds.rounds, rounds.overdue()) == (0.0, 0, [])


def test_after_a_restart_all_known_workers_have_as_long_as_if_heard_just_now():
    coordinator = Coordinator(*range(1000))
    assert coordinator.live(MAX_MISSED * HEARTBEAT_S) == []
    assert coordinator.live(2 * HEARTBEAT_S) == list(range(1000))


def test_who_is_heard_before_it_is_watched_is_watched_and_watching_it_then_gives_no_more_time():
    coordinator = Coordinator()
    coordinator.rounds.heard(1)
    assert coordinator.live(MAX_MISSED * HEARTBEAT_S) == []
    coordinator.rounds.watch(1)
    assert coordinator.live(2 * HEARTBEAT_S) == [1]


def test_who_is_not_watched_any_more_is_not_told():
    coordinator = Coordinator(1, 2)
    coordinator.rounds.unwatch(1)
    coordinator.rounds.unwatch(1)
    coordinator.rounds.unwatch(99)
    assert coordinator.live(60) == [2]


def test_rounds_need_a_heartbeat_and_no_less_than_no_missed_ones():
    for heartbeat_s, max_missed in ((0.0, 4), (-1.0, 4), (float("nan"), 4), (5.0, -1)):
        with pytest.raises(ValueError, match="rounds"):
            Rounds(heartbeat_s, max_missed)


quarters = st.integers(0, 10)  # up to half a heartbeat: 2.5 s
gaps = st.one_of(quarters, st.integers(0, 60), st.integers(41, 100_000))


@given(st.lists(quarters, max_size=200))
def test_without_late_ticks_there_is_one_round_for_every_heartbeat_lived(gaps):
    rounds, now_s = Rounds(HEARTBEAT_S, MAX_MISSED), 0.0
    rounds.tick(now_s)
    for gap in gaps:
        now_s += gap / 4
        rounds.tick(now_s)
        assert rounds.lived_s == now_s
        assert rounds.rounds == now_s // HEARTBEAT_S


@given(st.lists(gaps, max_size=100))
def test_whatever_the_ticks_rounds_are_never_faster_than_heartbeats_and_a_tick_ends_one_at_most(gaps):
    rounds, now_s, paused, ends = Rounds(HEARTBEAT_S, MAX_MISSED), 0.0, False, []
    rounds.tick(now_s)
    for gap in gaps:
        lived_s, ended, now_s = rounds.lived_s, rounds.rounds, now_s + gap / 4
        rounds.tick(now_s)
        assert 0.0 <= rounds.lived_s - lived_s <= min(gap / 4, 2 * HEARTBEAT_S)
        assert rounds.rounds - ended in (0, 1)
        assert rounds.rounds * HEARTBEAT_S <= rounds.lived_s <= now_s
        if gap > 40 and not paused:  # a pause after none: as if no time had passed
            assert (rounds.lived_s, rounds.rounds) == (lived_s, ended)
        if gap:
            paused = gap > 40
        if rounds.rounds > ended:
            ends.append(now_s)
    assert all(after - before >= HEARTBEAT_S / 2 for before, after in pairwise(ends))


class DumbRounds:
    """Keeps all that happened, and counts the rounds without a sign of life anew for everybody each time."""

    def __init__(self, max_missed):
        self.max_missed, self.ended, self.watched = max_missed, [], []  # rounds: who was heard in each
        self.under_way = set()

    def heard(self, worker):
        self.under_way.add(worker)
        self.watched = [*(other for other in self.watched if other != worker), worker]

    def watch(self, worker):
        if worker not in self.watched:
            self.heard(worker)

    def unwatch(self, worker):
        self.watched = [other for other in self.watched if other != worker]

    def end_round(self):
        self.ended.append(self.under_way)
        self.under_way = set()

    def missed(self, worker):
        count = 0
        for heard in reversed([*self.ended, self.under_way]):
            if worker in heard:
                break
            count += 1
        return max(0, count - 1)  # the one under way is not missed yet

    def overdue(self):
        silent = [worker for worker in self.watched if self.missed(worker) > self.max_missed]
        self.watched = [worker for worker in self.watched if worker not in silent]
        return silent


workers = st.integers(0, 5)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), gaps),
        st.tuples(st.just("tick"), st.just(20)),  # a round
        st.tuples(st.just("tick"), st.just(20)),
        st.tuples(st.just("heard"), workers),
        st.tuples(st.just("watch"), workers),
        st.tuples(st.just("unwatch"), workers),
        st.tuples(st.just("overdue")),
    ),
    max_size=100,
)


@given(happenings, st.integers(0, 3))
def test_the_silent_are_those_with_too_many_rounds_in_which_nothing_was_heard(happenings, max_missed):
    rounds, dumb, now_s = Rounds(HEARTBEAT_S, max_missed), DumbRounds(max_missed), 0.0
    rounds.tick(now_s)
    for name, *args in [*happenings, ("overdue",)]:
        if name == "tick":
            ended, now_s = rounds.rounds, now_s + args[0] / 4
            rounds.tick(now_s)
            if rounds.rounds > ended:
                dumb.end_round()
        else:
            assert getattr(rounds, name)(*args) == getattr(dumb, name)(*args)


def test_a_sign_of_life_costs_less_than_two_microseconds():
    rounds, best = Rounds(HEARTBEAT_S, MAX_MISSED), float("inf")
    for _ in range(5):
        began = perf_counter()
        for n in range(20_000):
            rounds.heard(n * 7 % 1000)
        best = min(best, (perf_counter() - began) / 20_000)
    assert best < 2e-6


def test_asking_who_is_overdue_costs_the_same_for_ten_workers_as_for_fifty_thousand():
    def asking_s(workers):
        rounds, best = Rounds(HEARTBEAT_S, MAX_MISSED), float("inf")
        for worker in range(workers):
            rounds.watch(worker)
        for _ in range(5):
            began = perf_counter()
            for _ in range(1000):
                rounds.overdue()
            best = min(best, perf_counter() - began)
        return best

    assert asking_s(50_000) < 10 * asking_s(10)  # looking at each would be thousands of times as much
