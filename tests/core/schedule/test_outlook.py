import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.intensity import DAY_S, HOUR_S, MU0, SHARE, TAU_S, intensity, learn
from evermirror.core.schedule.outlook import DOUBT, HOURS_LEAST, expected
from evermirror.model.activity import NO_RHYTHM, Activity, Rhythm

NOON = 1_700_000_000.0 // DAY_S * DAY_S + 12 * HOUR_S


def without_hours(counts):
    return Activity(counts, NOON, NOON)


def stepwise(counts, ahead_s, steps=20_000):
    """The mean expected intensity by small steps: counts fade, and what is expected adds to them."""
    n, step, total = list(counts), ahead_s / steps, 0.0
    for _ in range(steps):
        rate = sum(c / tau * k for c, tau, k in zip(SHARE, TAU_S, n, strict=True))
        total += rate * step
        n = [k + step * (rate - k / tau) for k, tau in zip(n, TAU_S, strict=True)]
    return MU0 + total / ahead_s


@pytest.mark.parametrize("counts", [(1.0, 1.0, 1.0), (0.0, 0.5, 20.0), (5.0, 8.0, 9.0)])
@pytest.mark.parametrize("ahead_s", [600.0, 6 * HOUR_S, 5 * DAY_S])
def test_pushes_draw_others_after_them_as_small_steps_say(counts, ahead_s):
    assert expected(without_hours(counts), NOON, ahead_s) == pytest.approx(
        stepwise(counts, ahead_s), rel=0.02
    )


def test_the_shares_sum_to_one_on_which_the_lasting_part_rests():
    assert math.isclose(sum(SHARE), 1.0)


@given(st.tuples(*[st.floats(0.0, 1e4)] * 3), st.floats(0, 1e7))
def test_the_next_moment_is_as_the_intensity_says(counts, later):
    activity = without_hours(counts)
    now = NOON + later
    assert math.isclose(expected(activity, now, 1e-3), intensity(activity, now), rel_tol=1e-6)
    assert expected(activity, now, 0.0) == intensity(activity, now)


def test_over_a_long_gap_a_quiet_repo_deserves_more_than_its_intensity_says():
    """What one unseen push draws after it waits as well."""
    quiet = learn(Activity(), [NOON - 30 * DAY_S], after=0.0, now=NOON)
    assert expected(quiet, NOON, 3 * DAY_S) > 1.5 * intensity(quiet, NOON)


def daily(hour, days):
    return learn(
        Activity(), [NOON + (hour - 12 - 24 * d) * HOUR_S for d in range(days, 0, -1)], after=0, now=NOON
    )


def test_more_is_expected_at_the_hours_of_past_pushes():
    noons = daily(12, 200)
    at_noon, at_midnight = (expected(noons, NOON + h * HOUR_S, 600.0) for h in (24, 36))
    assert at_noon > 3 * at_midnight


def test_the_hours_are_averaged_over_the_time_ahead_and_cancel_out_over_a_day():
    noons = daily(12, 200)
    bare = Activity(noons.counts, noons.as_of, noons.last_push_at)
    night = NOON + 12 * HOUR_S
    assert expected(noons, night, 16 * HOUR_S) > expected(noons, night, 2 * HOUR_S)
    assert expected(noons, night, DAY_S) == pytest.approx(expected(bare, night, DAY_S))


def test_few_pushes_are_hardly_believed():
    once = daily(12, 1)
    bare = Activity(once.counts, once.as_of, once.last_push_at)
    ratio = expected(once, NOON + DAY_S, 600.0) / expected(bare, NOON + DAY_S, 600.0)
    assert ratio == pytest.approx(1 + 4 / (1 + DOUBT), rel=0.01)


@given(st.lists(st.integers(1, 300_000), max_size=40), st.floats(0, 1e8), st.floats(1e-6, 1e9))
def test_whatever_was_learnt_something_finite_is_expected(minutes_ago, later, ahead_s):
    activity = learn(
        Activity(), [NOON - 60 * m for m in sorted(minutes_ago, reverse=True)], after=0.0, now=NOON
    )
    bare = Activity(activity.counts, activity.as_of, activity.last_push_at)
    least = HOURS_LEAST * expected(bare, NOON + later, ahead_s)
    found = expected(activity, NOON + later, ahead_s)
    assert math.isfinite(found)
    assert found >= least * (1 - 1e-9) > 0


@given(st.lists(st.integers(1, 100_000), unique=True, max_size=20), st.integers(0, 20))
def test_hours_learnt_in_two_parts_are_those_learnt_at_once(minutes_ago, cut):
    pushes = sorted(NOON - 60 * m for m in minutes_ago)
    halfway = learn(Activity(), pushes[:cut], after=0.0, now=NOON)
    both = learn(halfway, pushes[cut:], after=halfway.as_of, now=NOON).rhythm
    once = learn(Activity(), pushes, after=0.0, now=NOON).rhythm
    assert all(abs(a - b) < 1e-6 for a, b in zip(both, once, strict=True))


def test_what_an_older_version_remembered_has_no_hours_yet_and_gets_them_soon():
    old = Activity((1.0, 5.0, 900.0), NOON - DAY_S, NOON - DAY_S)
    assert old.rhythm == NO_RHYTHM
    new = learn(old, [NOON - HOUR_S], after=NOON - DAY_S, now=NOON)
    assert isinstance(new.rhythm, Rhythm)
    assert new.rhythm.pushes == 1.0
