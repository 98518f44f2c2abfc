from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.warmup import WarmUp

WARM_UP_S = 600.0


def test_an_empty_fleet_waits_for_its_time_to_be_over():
    warm_up = WarmUp(WARM_UP_S, None, has_cache=False)
    assert not warm_up.over(0.0, 1000)
    assert not warm_up.over(599.0, 1000)
    assert warm_up.over(600.0, 1)


def test_enough_workers_cut_it_short():
    warm_up = WarmUp(WARM_UP_S, 3, has_cache=False)
    assert not warm_up.over(10.0, 2)
    assert warm_up.over(11.0, 3)


def test_with_too_few_workers_the_time_ends_it_all_the_same():
    assert WarmUp(WARM_UP_S, 30, has_cache=False).over(WARM_UP_S, 2)


def test_it_is_not_over_while_no_worker_is_there():
    for min_workers in (None, 0, 1):
        warm_up = WarmUp(WARM_UP_S, min_workers, has_cache=False)
        assert not warm_up.over(100 * WARM_UP_S, 0)
        assert warm_up.over(100 * WARM_UP_S, 1)


def test_where_a_cache_exists_there_is_none():
    assert WarmUp(WARM_UP_S, 3, has_cache=True).over(0.0, 0)


def test_a_warm_up_of_no_length_ends_with_the_first_worker():
    warm_up = WarmUp(0.0, None, has_cache=False)
    assert not warm_up.over(0.0, 0)
    assert warm_up.over(0.0, 1)


def test_workers_that_leave_while_it_lasts_do_not_count():
    warm_up = WarmUp(WARM_UP_S, 3, has_cache=False)
    assert not warm_up.over(10.0, 2)
    assert not warm_up.over(20.0, 1)
    assert not warm_up.over(30.0, 2)


@given(
    st.lists(st.tuples(st.floats(0.0, 1000.0), st.integers(0, 6))).map(
        lambda asked: list(zip(sorted(a[0] for a in asked), (a[1] for a in asked), strict=True))
    ),
    st.one_of(st.none(), st.integers(0, 5)),
    st.booleans(),
)
def test_it_is_over_from_the_first_moment_that_it_could_be_and_for_good(asked, min_workers, has_cache):
    warm_up = WarmUp(WARM_UP_S, min_workers, has_cache)
    enough = 99 if min_workers is None else max(1, min_workers)
    for n, (lived_s, alive) in enumerate(asked):
        so_far = asked[: n + 1]
        could = any(there >= enough or (s >= WARM_UP_S and there >= 1) for s, there in so_far)
        assert warm_up.over(lived_s, alive) == (has_cache or could)
