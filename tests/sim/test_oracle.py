"""The oracle: nobody comes below its bound, and it is nearly what a search through all schedules finds."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.sim.compare import NAMES, _least_alone, foresee, least_total_s, play, result_of
from evermirror.sim.polling import Trace, Traces
from evermirror.sim.population import made
from tests.sim.test_peers import histories
from tests.sim.test_polling import DAY, END, made_up


def best_of_all(pushes, step_s):
    """Every schedule worth a look: polls at pushes, or as soon as the last poll is a step ago."""
    times = sorted({e for mine in pushes for e in mine})

    def go(unseen, free_at, now):
        if not any(unseen):
            return 0.0
        least = math.inf
        for repo, mine in enumerate(unseen):
            if not mine:
                continue
            for at in sorted({t for t in (*times, free_at) if t >= max(free_at, mine[0], now)}):
                seen = [e for e in mine if e <= at]
                rest = list(unseen)
                rest[repo] = mine[len(seen) :]
                least = min(least, sum(at - e for e in seen) + go(tuple(rest), at + step_s, at))
        return least

    return go(tuple(tuple(mine) for mine in pushes), -math.inf, -math.inf)


@st.composite
def few(draw):
    repos = draw(st.integers(1, 3))
    pushes = [draw(st.lists(st.integers(0, 12), max_size=2, unique=True)) for _ in range(repos)]
    return [sorted(float(e) for e in mine) for mine in pushes]


@settings(max_examples=150, deadline=None)
@given(few(), st.integers(1, 6))
def test_the_best_schedule_lies_between_bound_and_oracle(pushes, step_s):
    tally, busy = play(pushes, 1.0 / step_s, 0.0)
    best = best_of_all(pushes, step_s)
    assert least_total_s(pushes, busy, 1.0 / step_s) <= best + 1e-6
    assert sum(tally.delays) >= best - 1e-6
    assert len(tally.delays) == sum(map(len, pushes))


@given(st.lists(st.floats(0, 100), max_size=9, unique=True), st.data())
def test_a_repo_alone_is_cut_into_the_best_runs(pushes, data):
    pushes.sort()
    prices = [data.draw(st.floats(0, 50)) for _ in pushes]

    def slow(n):
        if n == 0:
            return 0.0
        return prices[n - 1] + min(slow(i) + sum(pushes[n - 1] - e for e in pushes[i:n]) for i in range(n))

    assert _least_alone(pushes, prices, 1.0) == pytest.approx(slow(len(pushes)), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(histories(repos=5, pushes=10), st.sampled_from([900.0, 7200.0, 86400.0]))
def test_no_policy_comes_below_the_bound(pushes, mean_gap_s):
    traces = Traces(tuple(Trace(f"r{i}", mine) for i, mine in enumerate(pushes)), END)
    least = result_of(traces, "oracle", mean_gap_s, days=8, warm_in_days=2).least_mean_s
    for name in NAMES:
        result = result_of(traces, name, mean_gap_s, days=8, warm_in_days=2)
        assert result.mean_s >= least - 1e-3, name


@pytest.mark.parametrize("mean_gap_s", [600.0, 6 * 3600.0, 2 * DAY])
@pytest.mark.parametrize("traces", [made_up(), made(60, seed=4)], ids=["bursts", "population"])
def test_the_oracle_is_never_beaten(traces, mean_gap_s):
    oracle = result_of(traces, "oracle", mean_gap_s, days=15, warm_in_days=3)
    assert 0 <= oracle.least_mean_s <= oracle.mean_s
    for name in NAMES:
        result = result_of(traces, name, mean_gap_s, days=15, warm_in_days=3)
        assert result.mean_s >= oracle.mean_s, name
        assert result.p95_s >= oracle.p95_s, name


def test_a_lone_push_is_seen_at_once_and_a_crowd_waits_for_tokens():
    lone = foresee([[END - 500.0], []], 100.0, END, 1.0)
    assert (lone.mean_s, lone.polls, lone.least_mean_s) == (0.0, 1, 0.0)
    crowd = foresee([[END - 500.0]] * 4, 400.0, END, 1.0)  # a poll every 100 s
    assert crowd.mean_s == pytest.approx(150.0)
    assert crowd.least_mean_s == pytest.approx(150.0), "nobody could do better, and the bound says so"


def test_of_those_that_wait_the_most_pushes_are_seen_first():
    tally, _ = play([[0.0], [1.0], [1.0, 2.0, 3.0]], 0.1, 0.0)
    assert (tally.whose, tally.delays) == ([0, 2, 2, 2, 1], [0.0, 9.0, 8.0, 7.0, 19.0])


def test_only_the_judged_days_count():
    result = foresee([[END - 3 * DAY, END - 1.0]], 60.0, END, 1.0)
    assert (result.pushes, result.repos, result.days) == (1, 1, 1.0)
    nothing = foresee([[], []], 60.0, END, 1.0)
    assert (nothing.mean_s, nothing.least_mean_s, nothing.pushes) == (0.0, 0.0, 0)
