import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evermirror.core.fleet.pace import Pace
from evermirror.model.worker import WorkerId

ANNA, BERT, CARL = WorkerId(0), WorkerId(1), WorkerId(2)


def take_all(pace, worker, at_most=10**6):
    """Asks the worker for as much as it may be asked for."""
    taken = []
    while len(taken) < at_most and (copy := pace.take(worker)) is not None:
        pace.asked(worker)
        taken.append(copy)
    return taken


def queued(worker=ANNA, count=1000, first=4, per_worker=64, total=10_000, orphan=False):
    pace = Pace(first, per_worker, total)
    pace.plan(worker, np.arange(count, dtype=np.int32), orphan)
    return pace


def test_copies_are_taken_in_the_order_planned_up_to_the_first_window():
    pace = queued()
    assert take_all(pace, ANNA) == [0, 1, 2, 3]
    assert pace.take(ANNA) is None
    assert (pace.outstanding(ANNA), pace.queued(ANNA)) == (4, 996)


def test_the_window_doubles_with_each_windowful_done_up_to_its_bound():
    pace, windows = queued(), []
    for _ in range(6):
        windows.append(len(take_all(pace, ANNA)))
        pace.done(ANNA, windows[-1])
    assert windows == [4, 8, 16, 32, 64, 64]


def test_hastened_copies_are_taken_first():
    pace = queued(orphan=True)
    pace.hasten(ANNA, 500)
    pace.plan(BERT, (7,), orphan=True)
    assert take_all(pace, ANNA) == [500, 0, 1, 2]


def test_a_windowful_may_be_done_one_by_one():
    pace = queued()
    take_all(pace, ANNA)
    for _ in range(3):
        pace.done(ANNA)
    assert pace.window(ANNA) == 4
    pace.done(ANNA)
    assert pace.window(ANNA) == 8


def test_each_handed_back_halves_the_window_and_growth_begins_anew():
    pace = queued()
    for _ in range(3):
        pace.done(ANNA, len(take_all(pace, ANNA)))
    take_all(pace, ANNA)
    pace.done(ANNA, 15)
    pace.failed(ANNA)
    assert pace.window(ANNA) == 16
    pace.done(ANNA, 1)
    assert pace.window(ANNA) == 16
    pace.failed(ANNA, 2)
    assert pace.window(ANNA) == 4
    pace.failed(ANNA, 13)
    assert pace.window(ANNA) == 1


def test_after_hand_backs_nothing_is_asked_until_the_rest_is_below_the_window():
    pace = queued()
    take_all(pace, ANNA)
    pace.failed(ANNA)
    assert (pace.window(ANNA), pace.outstanding(ANNA)) == (2, 3)
    assert list(pace.ready()) == []
    pace.done(ANNA)
    pace.done(ANNA)
    assert list(pace.ready()) == [ANNA]


def test_what_is_stopped_says_nothing_of_the_worker():
    pace = queued()
    take_all(pace, ANNA)
    pace.stopped(ANNA, 4)
    assert (pace.window(ANNA), pace.outstanding(ANNA)) == (4, 0)
    assert take_all(pace, ANNA) == [4, 5, 6, 7]


def test_orphans_go_before_the_rest_of_a_worker():
    pace = queued(count=2)
    pace.plan(ANNA, np.array([70, 71], dtype=np.int32), orphan=True)
    assert take_all(pace, ANNA) == [70, 71, 0, 1]


def test_workers_with_orphans_are_offered_first():
    pace = queued(ANNA)
    pace.plan(BERT, [7], orphan=True)
    assert next(iter(pace.ready())) == BERT
    assert set(pace.ready()) == {ANNA, BERT}


def test_the_total_holds_over_all_workers_and_they_take_turns():
    pace = Pace(4, 64, total=6)
    for worker in (ANNA, BERT, CARL):
        pace.plan(worker, np.arange(100, dtype=np.int32), orphan=False)
    assert [(worker, len(take_all(pace, worker))) for worker in pace.ready()] == [(ANNA, 4), (BERT, 2)]
    assert list(pace.ready()) == []
    assert pace.take(CARL) is None
    pace.done(ANNA)
    assert [(worker, len(take_all(pace, worker))) for worker in pace.ready()] == [(CARL, 1)]


def test_one_slot_at_a_time_goes_round():
    pace, served = Pace(4, 64, total=1), []
    for worker in (ANNA, BERT, CARL):
        pace.plan(worker, np.arange(100, dtype=np.int32), orphan=False)
    for _ in range(7):
        for worker in pace.ready():
            take_all(pace, worker)
            served.append(worker)
        pace.done(served[-1])
    assert served == [ANNA, BERT, CARL, ANNA, BERT, CARL, ANNA]


def test_one_that_is_offered_and_takes_nothing_does_not_hold_up_others():
    pace = queued(ANNA)
    pace.plan(BERT, [1], orphan=False)
    assert [next(iter(pace.ready())) for _ in range(4)] == [ANNA, BERT, ANNA, BERT]


def test_an_outdated_entry_takes_nothing_from_the_window():
    pace = queued(first=2)
    assert [pace.take(ANNA) for _ in range(3)] == [0, 1, 2]
    assert take_all(pace, ANNA) == [3, 4]


def test_a_paused_worker_keeps_its_queue_and_is_passed_over():
    pace = queued()
    pace.pause(ANNA)
    assert list(pace.ready()) == []
    assert pace.take(ANNA) is None
    pace.resume(ANNA)
    assert list(pace.ready()) == [ANNA]
    assert take_all(pace, ANNA) == [0, 1, 2, 3]


def test_what_was_asked_before_a_restart_counts_even_over_the_bounds():
    pace = Pace(2, 4, total=5)
    pace.asked(ANNA, 7)
    pace.plan(ANNA, [1], orphan=False)
    pace.plan(BERT, [2], orphan=False)
    assert list(pace.ready()) == []
    pace.done(ANNA, 3)
    assert list(pace.ready()) == [BERT]
    assert pace.total_outstanding == 4


def test_a_worker_forgotten_has_nothing_outstanding_and_begins_anew():
    pace = queued()
    pace.done(ANNA, len(take_all(pace, ANNA)))
    take_all(pace, ANNA)
    pace.forget(ANNA, keep_queue=True)
    assert (pace.window(ANNA), pace.outstanding(ANNA), pace.total_outstanding) == (4, 0, 0)
    assert take_all(pace, ANNA) == [12, 13, 14, 15]
    pace.forget(ANNA)
    assert (pace.queued(ANNA), pace.total_outstanding, list(pace.ready())) == (0, 0, [])


def test_a_paused_worker_that_is_forgotten_stays_paused_where_its_queue_is_kept():
    pace = queued()
    pace.pause(ANNA)
    pace.forget(ANNA, keep_queue=True)
    assert list(pace.ready()) == []
    pace.forget(ANNA)
    pace.plan(ANNA, [1], orphan=False)
    assert list(pace.ready()) == [ANNA]


def test_a_late_report_of_a_forgotten_worker_counts_for_nothing():
    pace = queued(total=1)
    take_all(pace, ANNA)
    pace.forget(ANNA)
    pace.asked(BERT)
    pace.done(ANNA, 100)
    pace.failed(ANNA)
    assert (pace.total_outstanding, pace.outstanding(BERT), pace.window(ANNA)) == (1, 1, 4)


def test_bounds_below_one_do_not_stop_everything():
    pace = Pace(0, 0, 0)
    pace.plan(ANNA, [1, 2], orphan=False)
    assert take_all(pace, ANNA) == [1]


def test_a_first_window_is_never_above_the_bound_of_a_worker():
    assert Pace(8, 2, 100).window(ANNA) == 2


def test_the_same_copies_planned_over_and_over_do_not_pile_up():
    pace, copies = Pace(8, 256, 1000), np.arange(500, dtype=np.int32)
    for _ in range(200):
        pace.plan(ANNA, copies, orphan=False)
    assert pace.queued(ANNA) <= 2 * 500 + 1024 + 500
    pace = Pace(256, 256, 1000)
    pace.plan(ANNA, np.concatenate([copies[::-1]] * 10), orphan=False)
    assert take_all(pace, ANNA, at_most=256) == copies[::-1][:256].tolist()


def test_thinning_out_brings_nothing_back_that_was_taken():
    pace = queued(count=500)
    assert take_all(pace, ANNA) == [0, 1, 2, 3]
    for _ in range(20):
        pace.plan(ANNA, np.arange(4, 500, dtype=np.int32), orphan=False)
    pace.done(ANNA, 4)
    assert take_all(pace, ANNA) == list(range(4, 12))


def test_what_was_taken_needs_no_memory():
    pace = Pace(8, 8, 8)
    tracemalloc.start()
    for n in range(100_000):
        pace.plan(ANNA, [n], orphan=False)
        assert pace.take(ANNA) == n
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 64 * 1024


@pytest.mark.parametrize("count", [1, 1023, 1024, 5000])
def test_a_long_queue_gives_every_copy_once_in_order(count):
    pace = queued(count=count, first=10**6, per_worker=10**6, total=10**6)
    assert take_all(pace, ANNA) == list(range(count))
    assert pace.queued(ANNA) == 0


class AgainstLists(RuleBasedStateMachine):
    """The dumb twin counts by looking through the list of everything that is outstanding."""

    workers = st.integers(0, 2).map(WorkerId)
    counts = st.integers(1, 4)

    @initialize(first=st.integers(1, 4), per_worker=st.integers(1, 8), total=st.integers(1, 10))
    def begin(self, first, per_worker, total):
        self.pace = Pace(first, per_worker, total)
        self.first, self.per_worker, self.total = min(first, per_worker), per_worker, total
        self.out, self.paused = [], set()
        self.windows, self.so_far, self.lanes = {}, {}, {}
        self.copies = 0

    def window(self, worker):
        return self.windows.get(worker, self.first)

    def lane(self, worker, orphan):
        return self.lanes.setdefault((worker, orphan), [])

    def waits(self, worker):
        return self.lane(worker, True) + self.lane(worker, False)

    def able(self, worker):
        room = self.out.count(worker) < self.window(worker) and len(self.out) < self.total
        return room and worker not in self.paused and bool(self.waits(worker))

    def end(self, worker, count):
        ended = min(count, self.out.count(worker))
        for _ in range(ended):
            self.out.remove(worker)
        return ended

    @rule(worker=workers, count=counts, orphan=st.booleans())
    def plan(self, worker, count, orphan):
        copies = list(range(self.copies, self.copies + count))
        self.copies += count
        self.lane(worker, orphan).extend(copies)
        self.pace.plan(worker, np.array(copies, dtype=np.int32), orphan)

    @rule(worker=workers, outdated=st.booleans())
    def take(self, worker, outdated):
        expected = self.waits(worker)[0] if self.able(worker) else None
        assert self.pace.take(worker) == expected
        if expected is not None:
            self.lane(worker, bool(self.lane(worker, True))).pop(0)
            if not outdated:
                self.out.append(worker)
                self.pace.asked(worker)

    @rule()
    def take_round(self):
        offered = []
        for worker in self.pace.ready():
            assert self.able(worker)
            offered.append(worker)
            while self.pace.take(worker) is not None:
                self.lane(worker, bool(self.lane(worker, True))).pop(0)
                self.out.append(worker)
                self.pace.asked(worker)
        assert len(offered) == len(set(offered))
        assert not any(self.able(WorkerId(n)) for n in range(3))

    @rule(worker=workers, count=counts)
    def asked(self, worker, count):
        self.out += [worker] * count
        self.pace.asked(worker, count)

    @rule(worker=workers, count=counts)
    def done(self, worker, count):
        for _ in range(self.end(worker, count)):
            self.so_far[worker] = self.so_far.get(worker, 0) + 1
            if self.so_far[worker] >= self.window(worker):
                self.so_far[worker] = 0
                self.windows[worker] = min(2 * self.window(worker), self.per_worker)
        self.pace.done(worker, count)

    @rule(worker=workers, count=counts)
    def failed(self, worker, count):
        for _ in range(self.end(worker, count)):
            self.windows[worker] = max(self.window(worker) // 2, 1)
            self.so_far[worker] = 0
        self.pace.failed(worker, count)

    @rule(worker=workers, count=counts)
    def stopped(self, worker, count):
        self.end(worker, count)
        self.pace.stopped(worker, count)

    @rule(worker=workers, paused=st.booleans())
    def pause(self, worker, paused):
        (self.paused.add if paused else self.paused.discard)(worker)
        (self.pace.pause if paused else self.pace.resume)(worker)

    @rule(worker=workers, keep=st.booleans())
    def forget(self, worker, keep):
        self.end(worker, 10**6)
        self.windows.pop(worker, None)
        self.so_far.pop(worker, None)
        if not keep:
            self.paused.discard(worker)
            self.lane(worker, True).clear()
            self.lane(worker, False).clear()
        self.pace.forget(worker, keep_queue=keep)

    @invariant()
    def the_same_is_counted(self):
        if not hasattr(self, "pace"):
            return
        assert self.pace.total_outstanding == len(self.out)
        for worker in map(WorkerId, range(3)):
            counted = (self.pace.outstanding(worker), self.pace.window(worker), self.pace.queued(worker))
            assert counted == (self.out.count(worker), self.window(worker), len(self.waits(worker)))

    @invariant()
    def exactly_the_able_are_offered_and_those_with_orphans_first(self):
        if hasattr(self, "pace"):
            offered = list(self.pace.ready())
            assert sorted(offered) == [n for n in range(3) if self.able(WorkerId(n))]
            orphans = [bool(self.lane(worker, True)) for worker in offered]
            assert orphans == sorted(orphans, reverse=True)


AgainstLists.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgainstLists = AgainstLists.TestCase


@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=10), st.integers(0, 30))
def test_thinning_out_keeps_the_first_of_each(chunks, taken_between):
    """Planned often enough to be thinned out, a queue gives the same distinct copies in the same order."""
    pace = Pace(10**6, 10**6, 10**6)
    seen, entries = [], []
    for chunk in chunks:
        pace.plan(ANNA, np.array(chunk * 100, dtype=np.int32), orphan=False)
        entries += chunk * 100
        seen += [copy for _ in range(taken_between) if (copy := pace.take(ANNA)) is not None]
    while (copy := pace.take(ANNA)) is not None:
        seen.append(copy)
    assert list(dict.fromkeys(seen)) == list(dict.fromkeys(entries))
