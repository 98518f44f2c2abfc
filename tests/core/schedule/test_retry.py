import pytest

from evermirror.core.schedule.retry import BACKOFF_STEPS, RETRY_RULES, Wait, backoff_s, retry_delay_s
from evermirror.model.failure import FailureKind


def test_every_kind_of_failure_has_a_rule():
    assert set(RETRY_RULES) == set(FailureKind)


def test_only_the_repos_own_failures_count():
    counted = {kind.name for kind, rule in RETRY_RULES.items() if rule.counted}
    assert counted == {"NETWORK_TIMEOUT", "UNKNOWN", "AUTH_FAILED", "NOT_FOUND"}


def test_backoff_doubles_from_a_minute_to_an_hour_and_never_overflows():
    assert [backoff_s(n) for n in (1, 2, 3, 6, BACKOFF_STEPS, 10**9)] == [60, 120, 240, 1920, 3600, 3600]


def test_chance_moves_the_delay_by_a_tenth_at_most():
    assert (backoff_s(1, -1.0), backoff_s(1, 1.0), backoff_s(1, 99.0)) == (54, 66, 66)


@pytest.mark.parametrize(
    ("wait", "max_gap_s", "interval_s", "delay_s"),
    [
        (Wait.BACKOFF, None, None, 960),
        (Wait.BACKOFF, None, 600, 600),
        (Wait.SLOW, None, None, 86400),
        (Wait.SLOW, 7200, None, 7200),
        (Wait.SLOW, 7200, 9000, 9000),
        (Wait.DISK, None, None, 300),
        (Wait.HOST, None, None, None),
        (Wait.NORMAL, None, None, None),
    ],
)
def test_delays_by_what_is_waited_for(wait, max_gap_s, interval_s, delay_s):
    assert retry_delay_s(wait, 5, max_gap_s=max_gap_s, interval_s=interval_s) == delay_s
