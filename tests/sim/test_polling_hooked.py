"""Hooks in simulated polling: what they save, what is lost when they fall silent."""

import pytest

from evermirror.errors import UsageError
from evermirror.sim.polling import HookedRun, Trace, Traces, simulate, simulate_hooked
from tests.sim.test_polling import DAY, END, made_up

DAYS = {"days": 20, "warm_in_days": 5}


@pytest.fixture(scope="module")
def traces():
    return made_up(repos=30)


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age"])
def test_hooks_save_polls_and_the_others_are_seen_sooner(traces, policy):
    without = simulate(traces, policy, 3600.0, **DAYS)
    half = simulate_hooked(traces, policy, 3600.0, 0.5, **DAYS)
    silent = simulate_hooked(traces, policy, 3600.0, 0.5, silent=True, **DAYS)
    assert without.pushes == half.pushes == silent.pushes, "every push is seen once"
    assert half.mean_s < 0.7 * without.mean_s
    assert half.hooked_polls < 0.8 * silent.hooked_polls, "once they are silent they are polled as before"
    assert (without.hooks, half.hooks, silent.hooks) == ("", "reliable", "silent")


def test_where_all_have_hooks_hardly_any_delay_is_left(traces):
    everybody = simulate_hooked(traces, "adaptive", 3600.0, 1.0, **DAYS)
    assert everybody.p95_s < 60.0
    assert everybody.share_within_5min == 1.0


def test_what_silence_costs_is_bounded_as_it_is_noticed(traces):
    without = simulate(traces, "adaptive", 3600.0, **DAYS)
    silent = simulate_hooked(traces, "adaptive", 3600.0, 1.0, silent=True, **DAYS)
    assert silent.mean_s > without.mean_s * 0.9, "nothing is won any more"
    assert silent.mean_s < without.mean_s * 1.5, "three that are late are enough to notice it"


def test_the_budget_is_the_same(traces):
    for silent in (False, True):
        result = simulate_hooked(traces, "adaptive", 3600.0, 0.5, silent=silent, **DAYS)
        assert result.polls == pytest.approx(20 * 24 * 30, rel=0.02)


def test_the_same_run_twice_gives_the_same_figures(traces):
    first, second = (simulate_hooked(traces, "adaptive", 3600.0, 0.3, **DAYS) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("share", "hooked"), [(0.1, 3), (0.5, 15), (1.0, 30)])
def test_the_share_is_kept_and_spread(traces, share, hooked):
    run = HookedRun(traces, "adaptive", 3600.0, END - 10 * DAY, share)
    assert len(run.hooked) == hooked


@pytest.mark.parametrize("share", [-0.1, 0.0, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(traces, share):
    with pytest.raises(UsageError):
        simulate_hooked(traces, "adaptive", 3600.0, share, **DAYS)
    with pytest.raises(UsageError):
        simulate_hooked(Traces((), END), "adaptive", 3600.0, 0.5)


def test_a_repo_without_pushes_is_no_trouble():
    traces = Traces((Trace("a", []), Trace("b", [END - 4000.0])), END)
    result = simulate_hooked(traces, "adaptive", 3600.0, 1.0, days=2, warm_in_days=1)
    assert (result.pushes, result.mean_s) == (1, 0.0)
