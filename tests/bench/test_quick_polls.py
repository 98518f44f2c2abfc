"""The benchmark's quick simulation is the product's: the same polls, to the last bit."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.figures.freshness import BEFORE, OURS, SEEDS, WARM_INS, Budget, Run, _play, _runs, _samples
from bench.worlds.quick_polls import QuickRun, quick_tally
from evermirror.sim.compare import ORACLE
from evermirror.sim.polling import Run as ProductRun
from evermirror.sim.polling import Trace, Traces, simulate
from tests.sim.test_polling import DAY, END, REAL, made_up

HOUR = 3600.0


class Watched(list):
    """The places polled, in turn: what the run writes at each poll."""

    def __init__(self, values, polls):
        super().__init__(values)
        self.polls = polls

    def __setitem__(self, repo, at):
        self.polls.append((at, repo))
        super().__setitem__(repo, at)


class WatchedKeys(dict):
    def __init__(self, values, polls):
        super().__init__(values)
        self.polls, self.places = polls, {key: n for n, key in enumerate(values)}

    def __setitem__(self, key, at):
        self.polls.append((at, self.places[key]))
        super().__setitem__(key, at)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(-12 * 1440, 0), max_size=15, unique=True), min_size=1, max_size=6),
    st.sampled_from(["adaptive", "cbrt-age"]),
    st.sampled_from([0.5, 60.0, 7200.0]),
    st.integers(0, 3 * 1440),
)
def test_each_poll_is_of_the_same_repo_at_the_same_time(minutes, policy, mean_gap_s, begun):
    traces = Traces(
        tuple(Trace(f"r{n}", sorted(END + 60.0 * m for m in mine)) for n, mine in enumerate(minutes)), END
    )
    start = END - 4 * DAY + 60.0 * begun
    product, quick = (
        ProductRun(traces, policy, mean_gap_s, start),
        QuickRun(traces, policy, mean_gap_s, start),
    )
    expected, found = [], []
    product.polled_at = WatchedKeys(product.polled_at, expected)
    quick._polled_at = Watched(quick._polled_at, found)
    for run in (product, quick):
        run.until(start + 100 * mean_gap_s)
        run.warm()
        run.until(start + 200 * mean_gap_s)
    assert expected == found
    assert len(found) > 150


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age"])
@pytest.mark.parametrize("mean_gap_s", [600.0, 6 * HOUR])
def test_the_quick_simulation_comes_to_what_the_products_own_does(policy, mean_gap_s):
    traces, days, warm_in = made_up(), 10, 3.61
    tally = quick_tally(traces, policy, mean_gap_s, days=days, warm_in_days=warm_in)
    product = simulate(traces, policy, mean_gap_s, days=days, warm_in_days=warm_in)
    assert tally.result(policy, mean_gap_s, days, len(traces.repos)) == product


def test_each_delay_is_told_with_the_gap_that_the_push_fell_into():
    tally = quick_tally(made_up(), "adaptive", HOUR, days=20, warm_in_days=3)
    assert len(tally.gaps) == len(tally.delays) > 100
    assert all(0 <= delay <= gap for delay, gap in zip(tally.delays, tally.gaps, strict=True))


def test_both_samples_are_over_equally_many_runs_so_their_middle_is_the_mean():
    budget = Budget(HOUR, 5, 6)
    for name in (OURS, BEFORE, SEEDS, "uniform"):
        assert len(_runs(name, budget)) % 2 == 0
    assert len(_runs(ORACLE, budget)) == 1
    chance = random.Random(1)
    seconds = [chance.random() for _ in range(6)]
    assert sum(_samples(seconds)) / 2 == pytest.approx(sum(seconds) / 6 / 60)
    assert _samples([120.0]) == (2.0,)


@pytest.mark.parametrize("runs", [2, 4, 6, 8, 16])
def test_the_runs_begin_at_times_spread_over_the_day(runs):
    parts = sorted(warm_in % 1 for warm_in in WARM_INS[:runs])
    gaps = [b - a for a, b in zip(parts, [*parts[1:], parts[0] + 1], strict=True)]
    assert max(gaps) < 1.7 / runs


@pytest.mark.slow
@pytest.mark.parametrize(("mean_gap_s", "days"), [(600.0, 60), (HOUR, 180), (6 * HOUR, 180)])
def test_quiet_repos_are_not_harmed_on_real_histories(mean_gap_s, days):
    """By half the gaps that their pushes fell into: one run tells it to a few per cent."""
    if not REAL.exists():
        pytest.skip(f"the bar was NOT checked: {REAL} is not here")
    runs = [Run(name, mean_gap_s, days, WARM_INS[0]) for name in (OURS, BEFORE)]
    ours, before = (_play(run).quiet_gaps_s for run in runs)
    assert ours <= 1.1 * before
