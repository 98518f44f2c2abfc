import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.bounds import Demand, Sites, bounds_of, water_level

NO_LIMIT = 1 << 40


def sites(n, *, takes=None, trusted=None, weight=None, capacity=None, elsewhere=None, others=0):
    return Sites(
        np.ones(n, bool),
        np.array(takes or [True] * n),
        np.array(trusted or [False] * n),
        np.array(weight or [1.0] * n),
        np.array(capacity or [NO_LIMIT] * n),
        None if elsewhere is None else np.array(elsewhere),
        others,
    )


def bounds(where, copies, *, load=None, trusted=0, bound=1.1):
    load = np.array(load or [0] * len(where.member))
    return bounds_of(where, load, Demand(copies, copies, trusted, trusted), bound)


def test_the_bound_is_counted_from_the_mean_and_placing_stops_a_little_below_it():
    made = bounds(sites(1000), 1_000_000)
    assert set(made.level.tolist()) == {1000.0}
    assert set(made.placing.tolist()) == {1075}
    assert set(made.most.tolist()) == {1100}


def test_shares_follow_weight():
    assert bounds(sites(2, weight=[1.0, 3.0]), 400).level.tolist() == [100.0, 300.0]


def test_what_a_small_capacity_leaves_falls_to_the_others():
    made = bounds(sites(3, capacity=[10, NO_LIMIT, NO_LIMIT]), 210)
    assert made.level.tolist() == [100.0] * 3
    assert made.most.tolist() == [10, 110, 110]


def test_one_that_takes_nothing_counts_with_what_it_has():
    made = bounds(sites(3, takes=[False, True, True]), 210, load=[10, 100, 100])
    assert made.level.tolist() == [100.0] * 3


def test_a_worker_holds_each_repo_once_at_most_whatever_its_weight():
    where = sites(3, weight=[10.0, 1.0, 1.0])
    made = bounds_of(where, np.zeros(3, int), Demand(100, 200, 0, 0), 1.1)
    assert made.level.tolist() == [500.0, 50.0, 50.0]


def test_repos_for_trusted_workers_raise_the_level_there_alone():
    made = bounds(sites(4, trusted=[True, False, False, False]), 400, trusted=310)
    assert made.level.tolist() == [310.0, 30.0, 30.0, 30.0]
    made = bounds(sites(4, trusted=[True, False, False, False]), 400, trusted=90)
    assert made.level.tolist() == [100.0] * 4


def test_copies_elsewhere_count_too():
    assert bounds(sites(2, elsewhere=[90, 100]), 10).level.tolist() == [100.0, 100.0]


def test_the_level_is_the_same_however_few_are_placed_now():
    heavy = {"weight": [2.0, 1.0, 1.0]}
    whole = bounds_of(sites(3, **heavy), np.zeros(3, int), Demand(120, 200, 0, 0), 1.1)
    where = sites(3, elsewhere=[40, 60, 60], others=100, **heavy)
    part = bounds_of(where, np.array([40, 60, 60]), Demand(20, 40, 0, 0), 1.1)
    assert part.level.tolist() == whole.level.tolist() == [100.0, 50.0, 50.0]


def test_trusted_workers_that_are_loaded_elsewhere_keep_their_higher_level():
    where = sites(3, trusted=[True, False, False], elsewhere=[500, 50, 50])
    assert bounds(where, 2, trusted=1, load=[500, 50, 50]).level.tolist() == [501.0, 50.5, 50.5]


def test_where_capacities_are_too_small_for_all_they_are_the_only_bound():
    assert bounds(sites(2, capacity=[5, 7]), 100).most.tolist() == [5, 7]


def test_a_bound_below_the_mean_is_refused():
    with pytest.raises(ValueError, match="below the mean"):
        bounds(sites(2), 10, bound=0.9)


@given(
    st.integers(1, 2000),
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 1.0, 2.5, 40.0]), st.integers(0, 1000)), min_size=1),
)
def test_at_the_water_level_everything_has_its_place(copies, workers):
    weight, ceiling = np.array([w for w, _ in workers]), np.array([c for _, c in workers])
    level = water_level(copies, weight, ceiling)
    able = sum(c for w, c in workers if w > 0)
    assert sum(min(c, level * w) for w, c in workers) == pytest.approx(min(copies, able))
