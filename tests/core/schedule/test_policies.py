import math

import pytest

from evermirror.core.schedule.intensity import intensity, learn
from evermirror.core.schedule.policies import POLICIES, policy_named
from evermirror.errors import UsageError
from evermirror.model.activity import Activity
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec

NOW = 1_700_000_000.0
MONTH = 2_592_000


def pushed(seconds_ago):
    return learn(Activity(), [NOW - seconds_ago], after=0.0, now=NOW)


def seeds_formula(old_pri, fails, last_commit_time, now):
    """get_repo_priority and cal_priority of the seeds, as they are written there; 0 is also: not cloned."""
    step = (fails + 1) * MONTH ** (1 / 3)
    if last_commit_time == 0:
        return old_pri + step
    interval = now - last_commit_time
    if interval <= 0:
        return old_pri + step
    return old_pri + interval ** (1 / 3)


@pytest.mark.parametrize("fails", [0, 1, 5])
@pytest.mark.parametrize("seconds_ago", [None, 0, 1, 3600, 86400 * 700])
def test_cbrt_age_is_the_seeds_formula_to_the_letter(fails, seconds_ago):
    activity = Activity() if seconds_ago is None else pushed(seconds_ago)
    step = POLICIES["cbrt-age"].stride(1.0, fails, activity, NOW)
    assert math.isclose(100.0 + step, seeds_formula(100.0, fails, activity.last_push_at, NOW))


@pytest.mark.parametrize("name", ["adaptive", "cbrt-age"])
def test_the_class_weight_divides_the_stride_by_its_root(name):
    strides = [POLICIES[name].stride(p.weight, 0, pushed(5000), NOW) for p in Priority]
    assert (
        strides[0] * 4
        == pytest.approx(strides[1] * 2)
        == pytest.approx(strides[2])
        == pytest.approx(strides[3] / 2)
    )


def test_adaptive_goes_by_the_root_of_intensity_and_slows_with_failures():
    activity = pushed(5000)
    stride = POLICIES["adaptive"].stride(1.0, 0, activity, NOW)
    assert stride == pytest.approx(intensity(activity, NOW) ** -0.5)
    assert POLICIES["adaptive"].stride(1.0, 2, activity, NOW) == pytest.approx(3 * stride)


def test_fixed_takes_the_repos_interval_else_its_class():
    def interval(priority, own=None):
        spec = RepoSpec(RepoKey("h/x"), "https://h/x", Host("h"), priority, own)
        return POLICIES["fixed"].interval_s(spec)

    assert [interval(p) for p in Priority] == [600, 1800, 7200, 21600]
    assert interval(Priority.LOW, 42.0) == 42.0


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(UsageError, match="adaptive, cbrt-age, fixed"):
        policy_named("fifo")
