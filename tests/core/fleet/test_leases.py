import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evermirror.core.fleet.leases import Leases
from evermirror.model.worker import WorkerId

ANNA, BERT = WorkerId(0), WorkerId(1)
LEASE_S = 100.0


def leases(limit=None, **more):
    made = Leases(LEASE_S, **more)
    made.set_limit(limit)
    return made


def test_without_a_limit_everybody_gets_one():
    slots = leases()
    assert [slots.ask(ANNA, task, 10.0) for task in range(5)] == [110.0] * 5


def test_over_the_limit_the_next_waits_until_one_is_given_back():
    slots = leases(1)
    assert slots.ask(ANNA, 1, 0.0) == 100.0
    assert slots.ask(BERT, 2, 1.0) is None
    assert slots.grantable(2.0) == []
    assert slots.give_back(ANNA, 1)
    assert slots.grantable(3.0) == [(BERT, 2, 103.0)]
    assert slots.grantable(4.0) == []
    assert (slots.held, slots.waiting) == (1, 0)


def test_asking_again_renews():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    assert slots.ask(ANNA, 1, 90.0) == 190.0
    assert slots.expire(150.0) == []
    assert slots.ask(BERT, 2, 150.0) is None


def test_a_lease_not_renewed_ends_at_its_time_and_is_told_once():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    assert slots.expire(99.9) == []
    assert slots.expire(100.0) == [(ANNA, 1)]
    assert slots.expire(101.0) == []


def test_a_slot_whose_lease_ended_is_free_before_that_is_told():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    assert slots.ask(BERT, 2, 100.0) == 200.0
    assert slots.expire(100.0) == [(ANNA, 1)]


def test_one_that_ended_and_was_asked_for_again_is_not_told_as_ended():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    assert slots.ask(ANNA, 1, 150.0) == 250.0
    assert slots.expire(150.0) == []


def test_giving_back_one_whose_end_was_not_told_counts_as_its_end():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    slots.grantable(100.0)
    assert slots.give_back(ANNA, 1)
    assert slots.expire(100.0) == []
    assert not slots.give_back(ANNA, 1)


def test_first_come_first_served_and_asking_again_keeps_the_place():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    for task in (2, 3, 4, 3, 2):
        assert slots.ask(BERT, task, 1.0) is None
    slots.set_limit(3)
    assert slots.grantable(2.0) == [(BERT, 2, 102.0), (BERT, 3, 102.0)]


def test_a_newcomer_does_not_pass_those_who_wait():
    slots = leases(1)
    slots.ask(ANNA, 1, 0.0)
    slots.ask(ANNA, 2, 0.0)
    slots.give_back(ANNA, 1)
    assert slots.ask(BERT, 3, 1.0) is None
    assert slots.ask(ANNA, 2, 1.0) == 101.0


def test_one_who_waited_may_ask_before_it_is_told_if_there_is_a_slot_for_all_before_it():
    slots = leases(1)
    for task in (1, 2, 3, 4):
        slots.ask(ANNA, task, 0.0)
    slots.set_limit(3)
    assert slots.ask(ANNA, 4, 1.0) is None
    assert slots.ask(ANNA, 3, 1.0) == 101.0
    assert slots.grantable(1.0) == [(ANNA, 2, 101.0)]


def test_a_lower_limit_takes_nothing_away_and_gives_nothing_new():
    slots = leases(3)
    for task in (1, 2, 3):
        slots.ask(ANNA, task, 0.0)
    slots.set_limit(1)
    assert slots.ask(ANNA, 3, 50.0) == 150.0
    slots.ask(BERT, 4, 50.0)
    slots.give_back(ANNA, 1)
    slots.give_back(ANNA, 2)
    assert slots.grantable(60.0) == []
    slots.give_back(ANNA, 3)
    assert slots.grantable(60.0) == [(BERT, 4, 160.0)]


def test_a_limit_of_nothing_gives_nothing_and_a_negative_one_is_refused():
    slots = leases(0)
    assert slots.ask(ANNA, 1, 0.0) is None
    assert slots.grantable(1.0) == []
    with pytest.raises(ValueError, match="-1"):
        slots.set_limit(-1)


def test_lifting_the_limit_lets_all_in():
    slots = leases(0)
    slots.ask(ANNA, 1, 0.0)
    slots.ask(BERT, 2, 0.0)
    slots.set_limit(None)
    assert slots.ask(BERT, 2, 1.0) == 101.0
    assert slots.grantable(1.0) == [(ANNA, 1, 101.0)]


def test_a_worker_that_is_gone_holds_and_waits_for_nothing():
    slots = leases(2)
    slots.ask(ANNA, 1, 0.0)
    slots.ask(BERT, 2, 50.0)
    slots.ask(ANNA, 3, 50.0)
    slots.ask(BERT, 4, 50.0)
    slots.grantable(100.0)  # 1 has ended, which nobody was told; 3 has its slot
    assert slots.drop_worker(ANNA) == [3, 1]
    assert slots.expire(100.0) == []
    assert slots.grantable(100.0) == [(BERT, 4, 200.0)]


def test_one_given_back_while_it_waited_waits_no_more():
    slots = leases(0)
    slots.ask(ANNA, 1, 0.0)
    assert not slots.give_back(ANNA, 1)
    assert slots.waiting == 0


def test_leases_outlive_a_restart():
    slots = leases(1)
    slots.restore(BERT, 2, 80.0)
    slots.restore(ANNA, 1, 50.0)
    assert slots.ask(ANNA, 3, 0.0) is None
    assert slots.expire(50.0) == [(ANNA, 1)]
    assert slots.grantable(50.0) == []
    assert slots.grantable(80.0) == [(ANNA, 3, 180.0)]


def test_those_who_wait_are_bounded_and_one_turned_away_may_ask_again():
    slots = leases(0, waiting_max=2)
    for task in (1, 2, 3):
        assert slots.ask(ANNA, task, 0.0) is None
    assert slots.waiting == 2
    slots.give_back(ANNA, 1)
    slots.ask(ANNA, 3, 1.0)
    slots.set_limit(None)
    assert [task for _, task, _ in slots.grantable(2.0)] == [2, 3]


def test_renewing_over_and_over_needs_no_more_memory():
    slots = leases(2)
    tracemalloc.start()
    for n in range(20_000):
        slots.ask(ANNA, n % 2, n / 1000)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 64 * 1024


def test_many_renewals_leave_the_order_in_which_leases_end():
    slots = leases()
    for task in range(50):
        slots.restore(ANNA, task, 99.0 - task)
    for n in range(200):
        slots.ask(BERT, 0, n / 1000)
    ended = [slots.expire(float(now)) for now in range(50, 100)]
    assert ended == [[(ANNA, task)] for task in reversed(range(50))]


class AgainstLists(RuleBasedStateMachine):
    """The dumb twin keeps leases in a list of (key, until) and those who wait in another."""

    @initialize(limit=st.none() | st.integers(0, 4), waiting_max=st.integers(1, 6))
    def begin(self, limit, waiting_max):
        self.slots = leases(limit, waiting_max=waiting_max)
        self.limit, self.waiting_max, self.now = limit, waiting_max, 0.0
        self.given, self.queue, self.untold = [], [], []

    def keys(self):
        return [key for key, _ in self.given]

    def settle(self):
        for key, until in sorted(self.given, key=lambda lease: (lease[1], lease[0])):
            if until <= self.now:
                self.given.remove((key, until))
                self.untold.append(key)

    def give(self, key, until):
        self.given = [lease for lease in self.given if lease[0] != key] + [(key, until)]
        self.queue = [other for other in self.queue if other != key]
        self.untold = [other for other in self.untold if other != key]
        return until

    def free(self):
        return 10**6 if self.limit is None else max(self.limit - len(self.given), 0)

    @rule(passed=st.sampled_from([0.0, 1.0, 40.0, 100.0]))
    def wait(self, passed):
        self.now += passed

    @rule(limit=st.none() | st.integers(0, 4))
    def set_limit(self, limit):
        self.limit = limit
        self.slots.set_limit(limit)

    @rule(worker=st.integers(0, 2), task=st.integers(0, 3))
    def ask(self, worker, task):
        key, before = (worker, task), len(self.given)
        self.settle()
        line = self.queue if key in self.queue else [*self.queue, key]
        expected = None
        if key in self.keys() or line.index(key) < self.free():
            if key not in self.keys() and self.limit is not None:
                assert len(self.given) < self.limit
            expected = self.give(key, self.now + LEASE_S)
        elif key not in self.queue and len(self.queue) < self.waiting_max:
            self.queue.append(key)
        assert self.slots.ask(WorkerId(worker), task, self.now) == expected
        assert len(self.given) <= max(before, 10**6 if self.limit is None else self.limit)

    @rule()
    def grantable(self):
        self.settle()
        able = self.queue[: self.free()]
        expected = [(*key, self.give(key, self.now + LEASE_S)) for key in able]
        assert self.slots.grantable(self.now) == expected

    @rule()
    def expire(self):
        self.settle()
        assert sorted(self.slots.expire(self.now)) == sorted(self.untold)
        self.untold = []

    @rule(worker=st.integers(0, 2), task=st.integers(0, 3))
    def give_back(self, worker, task):
        key = (worker, task)
        expected = key in self.keys() or key in self.untold
        self.given = [lease for lease in self.given if lease[0] != key]
        self.queue = [other for other in self.queue if other != key]
        self.untold = [other for other in self.untold if other != key]
        assert self.slots.give_back(WorkerId(worker), task) == expected

    @rule(worker=st.integers(0, 2))
    def drop_worker(self, worker):
        expected = sorted(task for w, task in (*self.keys(), *self.untold) if w == worker)
        self.given = [lease for lease in self.given if lease[0][0] != worker]
        self.queue = [key for key in self.queue if key[0] != worker]
        self.untold = [key for key in self.untold if key[0] != worker]
        assert sorted(self.slots.drop_worker(WorkerId(worker))) == expected

    @rule(worker=st.integers(0, 2), task=st.integers(0, 3), left=st.sampled_from([1.0, 50.0, 200.0]))
    def restore(self, worker, task, left):
        self.give((worker, task), self.now + left)
        self.slots.restore(WorkerId(worker), task, self.now + left)

    @invariant()
    def the_same_hold_and_wait(self):
        if hasattr(self, "slots"):
            assert (self.slots.held, self.slots.waiting) == (len(self.given), len(self.queue))


AgainstLists.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgainstLists = AgainstLists.TestCase


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 60.0), st.sampled_from("arg")), max_size=60),
)
def test_never_more_run_at_once_than_the_limit_by_what_the_workers_were_told(limit, steps):
    """What a worker believes counts: it may run a task until the time it was told, or until it gives back."""
    slots, believed, now = leases(limit), {}, 0.0
    for task, passed, what in steps:
        now += passed
        if what == "a" and (until := slots.ask(ANNA, task, now)) is not None:
            believed[task] = until
        elif what == "r":
            slots.give_back(ANNA, task)
            believed.pop(task, None)
        else:
            believed.update({task: until for _, task, until in slots.grantable(now)})
        assert sum(until > now for until in believed.values()) <= limit
