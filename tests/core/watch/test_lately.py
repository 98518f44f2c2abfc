"""What workers did, added up over restarts and absences, and the rate of the last minute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.watch.lately import MOST_PER_S, SPAN_MIN_S, WINDOW_S, Lately
from evermirror.model.whole import Work

STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 3), st.integers(0, 9), st.booleans())
)


@given(STEPS)
def test_the_sum_is_what_was_done_since_each_worker_was_first_heard(steps):
    """A worker that begins anew counts from 0; what it did since is not lost, as long as it can be told."""
    lately = Lately()
    counters, heard, done = {}, {}, Work()
    for n, (worker, polls, changes, received, restarts) in enumerate(steps):
        more = Work(polls, changes, received)
        if restarts:
            counters[worker] = Work()
        counters[worker] = counters.get(worker, Work()) + more
        before = heard.get(worker)
        now = counters[worker]
        if before is not None:
            unseen = now.polls >= before.polls and now.changes >= before.changes
            unseen = unseen and now.received_bytes >= before.received_bytes
            done += now - before if unseen else now
        heard[worker] = now
        was = lately.total
        lately.heard(worker, now, float(n))
        grown = lately.total - was
        assert min(grown.polls, grown.changes, grown.received_bytes) >= 0
    assert lately.total == done


def test_the_rate_is_of_the_last_minute():
    lately = Lately()
    assert lately.rates(5.0).polls == 0.0
    for second in range(0, 300, 5):  # two a second for four minutes, then none
        lately.heard(1, Work(2 * min(second, 240), second, 0), float(second))
    assert lately.rates(240.0 + WINDOW_S + 5).polls == 0.0
    lately = Lately()
    for second in range(0, 305, 5):
        lately.heard(1, Work(2 * second, 0, 1000 * second), float(second))
    rates = lately.rates(300.0)
    assert (rates.polls, rates.changes, rates.received_bytes) == pytest.approx((2.0, 0.0, 1000.0))
    assert len(lately._moments) <= WINDOW_S / 2 + 2


def test_one_change_at_the_start_makes_no_storm():
    lately = Lately()
    lately.heard(1, Work(), 0.0)
    lately.heard(1, Work(10, 1, 0), 0.5)
    assert lately.rates(0.5).polls == pytest.approx(10 / SPAN_MIN_S)


def test_what_a_worker_tells_late_is_counted_and_makes_no_rate():
    lately = Lately()
    lately.heard(1, Work(), 0.0)
    lately.heard(2, Work(), 0.0)
    for second in range(5, 4000, 5):
        lately.heard(2, Work(second, 0, 0), float(second))
    lately.heard(1, Work(9000, 9, 9), 4000.0)  # it was away for an hour
    assert lately.total == Work(3995 + 9000, 9, 9)
    assert lately.rates(4000.0).polls == pytest.approx(1.0, rel=0.1)
    lately.heard(1, Work(9060, 9, 9), 4001.0)
    assert lately.rates(4001.0).polls == pytest.approx(2.0, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.floats(-100.0, 100.0)), max_size=20))
def test_counters_that_jump_up_and_down_count_for_no_more_than_a_machine_can_do(told):
    lately, now, most = Lately(), 1000.0, 0.0
    for n, (counter, later_s) in enumerate(told):
        now += later_s  # the clock may be set back
        lately.heard(1, Work(counter, counter, counter), now)
        most += max(1.0, later_s) if n else 0.0
        for done, per_s in zip(_numbers(lately.total), _numbers(MOST_PER_S), strict=True):
            assert 0 <= done <= most * per_s
        assert min(lately.rates(now).polls, lately.rates(now).received_bytes) >= 0.0


def _numbers(work):
    return work.polls, work.changes, work.received_bytes


def test_rates_go_on_after_a_clock_was_set_back():
    lately = Lately()
    for second in range(0, 100, 2):
        lately.heard(1, Work(second, 0, 0), 3600.0 + second)
    for second in range(100, 200, 2):
        lately.heard(1, Work(second, 0, 0), float(second))
    assert lately.rates(200.0).polls == pytest.approx(1.0, abs=0.1)
    assert lately.total.polls == 198
