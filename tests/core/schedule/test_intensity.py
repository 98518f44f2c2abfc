import math

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.intensity import DAY_S, HOUR_S, MU0, PUSHES_MAX, SHARE, TAU_S, intensity, learn
from evermirror.model.activity import Activity

NOW = 1_700_000_000.0


def dumb_intensity(pushes, now):
    return MU0 + sum(
        c / tau * math.exp(-(now - e) / tau) for e in pushes for c, tau in zip(SHARE, TAU_S, strict=True)
    )


def test_a_repo_never_seen_to_change_has_the_base_rate():
    assert intensity(Activity(), NOW) == MU0


@given(st.lists(st.integers(1, 200_000), unique=True, max_size=30), st.floats(0, 1e7))
def test_three_numbers_say_the_same_as_the_whole_history(minutes_ago, later):
    pushes = sorted(NOW - 60 * m for m in minutes_ago)
    activity = learn(Activity(), pushes, after=0.0, now=NOW)
    assert math.isclose(intensity(activity, NOW + later), dumb_intensity(pushes, NOW + later), rel_tol=1e-9)


@given(st.lists(st.integers(1, 100_000), unique=True, max_size=20), st.integers(0, 20))
def test_learning_in_two_parts_is_learning_at_once(minutes_ago, cut):
    pushes = sorted(NOW - 60 * m for m in minutes_ago)
    halfway = learn(Activity(), pushes[:cut], after=0.0, now=NOW)
    both = learn(halfway, pushes[cut:], after=halfway.as_of, now=NOW)
    assert math.isclose(intensity(both, NOW), intensity(learn(Activity(), pushes, after=0.0, now=NOW), NOW))


def test_where_nothing_is_learnt_nothing_is_made():
    known = learn(Activity(), [NOW - HOUR_S], after=0.0, now=NOW)
    for none in ([], [math.nan, math.inf]):
        assert learn(known, none, after=0.0, now=NOW) is known


hostile = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50)


@given(hostile, hostile, st.floats(0, 2e9), st.floats(0, 2e9))
def test_forged_commit_times_stay_within_what_is_possible(first, second, after, now):
    activity = learn(learn(Activity(), first, after=0.0, now=after), second, after=after, now=now)
    assert all(math.isfinite(n) and 0 <= n <= 100 for n in activity.counts)
    assert 0 <= activity.last_push_at <= max(after, now)
    assert math.isfinite(intensity(activity, now))


def test_a_push_of_many_old_commits_is_one_push_after_the_last_look():
    looked = NOW - HOUR_S
    activity = learn(Activity(), [NOW - DAY_S * d for d in range(1, 400)], after=looked, now=NOW)
    assert activity.counts[2] == 1.0
    assert activity.last_push_at == looked


def test_commits_from_the_future_count_as_now():
    assert learn(Activity(), [NOW + 10 * DAY_S], after=0.0, now=NOW).last_push_at == NOW


def test_only_the_newest_of_an_endless_log_are_learnt():
    activity = learn(Activity(), (NOW - 60.0 * m for m in range(3 * PUSHES_MAX)), after=0.0, now=NOW)
    only_newest = learn(Activity(), [NOW - 60.0 * m for m in range(PUSHES_MAX)], after=0.0, now=NOW)
    assert activity == only_newest


def test_a_clock_set_back_unlearns_nothing():
    activity = learn(Activity(), [NOW], after=0.0, now=NOW)
    assert learn(activity, [NOW - 50.0], after=0.0, now=NOW - 40.0) == activity
