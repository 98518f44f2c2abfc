from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.schedule.bucket import TokenBucket


@given(st.floats(0.01, 100), st.floats(1, 20), st.lists(st.floats(0, 3), min_size=1, max_size=200))
def test_no_window_ever_sees_more_than_burst_plus_rate(rate, burst, steps):
    bucket, now, taken = TokenBucket(rate, burst), 1e9, []
    for step in steps:
        now += step
        if bucket.take(now):
            taken.append(now)
    for i, start in enumerate(taken):
        for j in range(i, len(taken)):
            assert j - i + 1 <= burst + rate * (taken[j] - start) + 1e-4


@given(st.floats(0.01, 100), st.integers(1, 50))
def test_a_token_is_there_exactly_when_it_was_promised(rate, takes):
    bucket, now = TokenBucket(rate, 1), 1e9
    for _ in range(takes):
        assert bucket.take(now)
        assert not bucket.take(now)
        assert bucket.ready_at() > now
        now = bucket.ready_at()


def test_no_rate_is_no_limit():
    bucket = TokenBucket(None)
    assert all(bucket.take(5.0) for _ in range(1000))


def test_a_new_rate_keeps_what_was_spent():
    bucket = TokenBucket(0.1)
    bucket.take(0.0)
    bucket.set_rate(1.0)
    assert not bucket.take(9.0)
    assert bucket.take(10.0)


def test_with_the_time_what_was_spent_comes_back_at_the_new_rate():
    bucket = TokenBucket(0.001)
    bucket.take(0.0)
    bucket.set_rate(1.0, now=0.0)
    assert bucket.ready_at() == 1.0
    bucket = TokenBucket(5.0)
    while bucket.take(0.0):
        pass
    bucket.set_rate(0.01, now=0.0)
    assert bucket.ready_at() == 100.0  # one is owed, as the bucket holds no more
