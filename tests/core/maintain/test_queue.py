"""Whose turn it is, compared with the obvious slow queue."""

from __future__ import annotations

import math

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from evermirror.core.maintain.plan import Due
from evermirror.core.maintain.queue import AFTER_INTERRUPTION_S, INTERRUPTIONS_MAX, UpkeepQueue


def due(at, changed_at=math.inf, after_changes=3):
    return Due(at, None, changed_at, after_changes)


def test_the_one_due_for_longest_comes_first_and_none_before_its_time():
    queue = UpkeepQueue()
    queue.put("b", due(20))
    queue.put("a", due(10))
    queue.put("never", due(math.inf))
    assert queue.take(9) is None
    assert queue.next_at() == 10
    assert [queue.take(30), queue.take(30), queue.take(1e12)] == ["a", "b", None]
    assert len(queue) == 1


def test_a_clock_set_back_makes_nobody_wait_longer():
    queue = UpkeepQueue()
    queue.put("a", due(4000, changed_at=3700))
    assert queue.take(3600) is None
    assert queue.take(100) is None
    assert queue.next_at() == 500
    queue.changed("a", 101)
    assert queue.next_at() == 200
    assert queue.take(200) == "a"


def test_enough_changes_make_a_repo_due_at_once():
    queue = UpkeepQueue()
    queue.put("a", due(1000))
    queue.changed("a", 1)
    queue.changed("a", 2)
    assert queue.take(2) is None
    queue.changed("a", 3)
    assert queue.take(3) == "a"
    queue.changed("a", 4)  # it is being looked at: nothing to move
    assert queue.take(1e9) is None


def test_the_first_change_brings_the_full_repack_that_an_unchanged_repo_does_not_need():
    queue = UpkeepQueue()
    queue.put("a", due(1000, changed_at=500, after_changes=10))
    assert queue.next_at() == 1000
    queue.changed("a", 1)
    assert queue.next_at() == 500


def test_a_repo_that_left_is_not_taken():
    queue = UpkeepQueue()
    queue.look_at("a", 1)
    queue.drop("a")
    assert "a" not in queue
    assert queue.take(2) is None


def test_a_busy_repo_is_interrupted_a_few_times_and_then_let_through():
    queue = UpkeepQueue()
    queue.look_at("a", 0)
    now = 0.0
    for _ in range(INTERRUPTIONS_MAX):
        assert queue.take(now) == "a"
        assert queue.may_interrupt("a")
        queue.interrupted("a", now)
        queue.changed("a", now)  # the sync that it was broken off for
        assert queue.take(now) is None
        now += AFTER_INTERRUPTION_S
    assert queue.take(now) == "a"
    assert not queue.may_interrupt("a")
    queue.put("a", due(now))
    assert queue.may_interrupt("a")


def test_the_heap_stays_as_small_as_the_queue_however_often_repos_move():
    queue = UpkeepQueue()
    for n in range(10_000):
        queue.put(str(n % 10), due(n))
    assert len(queue) == 10
    assert len(queue._heap) <= 65


KEYS = st.sampled_from("abcdef")
TIMES = st.integers(0, 15)  # less than a step of the clock


class AgainstTheSlowOne(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.queue = UpkeepQueue()
        self.twin = {}  # key: [at, order, changed_at, left]
        self.order = 0

    def _set(self, key, at, changed_at, left):
        self.order += 1
        self.twin[key] = [at, self.order, changed_at, left]

    @rule(key=KEYS, at=TIMES, changed_at=TIMES, left=st.integers(1, 3))
    def put(self, key, at, changed_at, left):
        self.queue.put(key, Due(at, None, min(at, changed_at), left))
        self._set(key, at, min(at, changed_at), left)

    @rule(key=KEYS, now=TIMES)
    def changed(self, key, now):
        self.queue.changed(key, now)
        if key in self.twin:
            entry = self.twin[key]
            entry[3] -= 1
            at = now if entry[3] <= 0 else entry[2]
            if at < entry[0]:
                self._set(key, at, at, entry[3])

    @rule(key=KEYS)
    def drop(self, key):
        self.queue.drop(key)
        self.twin.pop(key, None)

    @rule(now=TIMES)
    def take(self, now):
        ready = sorted((at, order, key) for key, (at, order, *_) in self.twin.items() if at <= now)
        expected = ready[0][2] if ready else None
        assert self.queue.take(now) == expected
        self.twin.pop(expected, None)

    @invariant()
    def same_size(self):
        assert len(self.queue) == len(self.twin)
        assert self.queue.next_at() == min((e[0] for e in self.twin.values()), default=math.inf)


TestAgainstTheSlowOne = AgainstTheSlowOne.TestCase
TestAgainstTheSlowOne.settings = hypothesis_settings(max_examples=100, deadline=None)
