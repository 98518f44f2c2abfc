import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.copies import NOBODY
from evermirror.core.fleet.hashing import mix
from evermirror.core.fleet.ring import FARTHEST, IDS, Ring

LAST = 2**64 - 1


def allowed(*ids):
    mask = np.zeros(IDS, bool)
    mask[list(ids)] = True
    return mask


def made_of(points):
    """A ring of these (place, owner)."""
    points = sorted(points)
    return Ring(np.array([p for p, _ in points], np.uint64), np.array([w for _, w in points], np.uint16), 1)


def test_points_are_the_same_for_ever():
    ring = Ring.build([0, 1, 7, 65_534], [1.0, 0.5, 2.0, 0.01], 200)
    told = hashlib.sha256(ring.at.astype("<u8").tobytes() + ring.owner.astype("<u2").tobytes()).hexdigest()
    assert told == "f5c6fbd824f4c36151227b83b41bb57c23b5665542c66cdc2d9d8cb9c1925224"


def test_weight_decides_how_many_points_and_nothing_else():
    small, large = Ring.build([3], [0.5], 100), Ring.build([3], [2.0], 100)
    assert (len(small), len(large)) == (50, 200)
    assert set(small.at.tolist()) < set(large.at.tolist())


def test_a_worker_that_comes_touches_nobody_elses_points():
    before, after = Ring.build([0, 1], [1.0, 1.0], 50), Ring.build([0, 2, 1], [1.0, 3.0, 1.0], 50)
    assert np.array_equal(after.at[after.owner != 2], before.at)
    assert np.array_equal(after.owner[after.owner != 2], before.owner)


def test_any_weight_has_a_point_and_no_weight_has_none():
    ring = Ring.build([0, 1, 2], [0.0001, 0.0, -1.0], 200)
    assert ring.counts[:3].tolist() == [1, 0, 0]


def test_points_are_spread_evenly():
    ring = Ring.build(range(1000), [1.0] * 1000, 200)
    owners = ring.owner[ring.after(mix(np.arange(200_000, dtype=np.uint64)))]
    shares = np.bincount(owners, minlength=1000) / 200
    assert 0.65 < shares.min() < shares.max() < 1.40  # 1.27 by points alone, the rest is the sample's
    assert len(np.unique(ring.at)) == 200_000


def test_an_empty_ring_leads_nowhere():
    ring = Ring.build([], [], 200)
    assert list(ring.walk(5)) == []
    assert ring.distance(np.array([5], np.uint64), np.array([0], np.uint16)).tolist() == [FARTHEST]
    assert ring.homes(np.empty(0, np.int32), 2, allowed()).shape == (0, 2)


@pytest.mark.parametrize(
    ("position", "walk"), [(0, [1, 2, 3]), (10, [1, 2, 3]), (11, [2, 1, 3]), (31, [3, 1, 2]), (41, [1, 2, 3])]
)
def test_a_walk_meets_each_owner_once_and_goes_round(position, walk):
    ring = made_of([(10, 1), (20, 2), (30, 1), (40, 3)])
    assert list(ring.walk(position)) == walk


places = st.one_of(st.integers(0, LAST), st.sampled_from([0, 1, 2**63, LAST - 1, LAST]))
rings = st.lists(st.tuples(places, st.integers(0, 5)), min_size=1, max_size=30, unique_by=lambda p: p[0])


@given(rings, st.lists(places, max_size=60))
def test_the_next_point_is_what_a_look_at_all_points_finds(points, positions):
    ring = made_of(points)
    at = ring.at.tolist()
    found = ring.after(np.array(positions, np.uint64))
    assert found.tolist() == [next((i for i, p in enumerate(at) if p >= x), 0) for x in positions]


@given(rings, places, st.sets(st.integers(0, 6)), st.integers(1, 4))
def test_homes_are_the_first_allowed_on_the_walk(points, position, who, width):
    ring = made_of(points)
    start = ring.after(np.array([position], np.uint64))
    walk = [w for w in ring.walk(position) if w in who]
    assert ring.homes(start, width, allowed(*who))[0].tolist() == (walk + [NOBODY] * width)[:width]


@given(rings, st.sets(st.integers(0, 5), min_size=1))
def test_next_of_and_other_are_what_single_steps_find(points, who):
    ring = made_of(points)
    n, owner = len(ring), ring.owner.tolist()
    turns = owner * 3
    if any(w in who for w in owner):
        expected = [next(j for j in range(i, 2 * n) if turns[j] in who) for i in range(n)]
        assert ring.next_of(allowed(*who)).tolist() == expected
    if len(set(owner)) > 1:
        expected = [next(j for j in range(i, 3 * n) if turns[j] != owner[i]) for i in range(n)]
        assert ring.other.tolist() == expected


@given(rings, st.lists(st.tuples(places, st.integers(0, 6)), min_size=1, max_size=10))
def test_distance_is_to_the_nearest_point_clockwise(points, asked):
    ring = made_of(points)
    positions = np.array([position for position, _ in asked], np.uint64)
    found = ring.distance(positions, np.array([owner for _, owner in asked], np.uint16)).tolist()
    for (position, owner), far in zip(asked, found, strict=True):
        steps = [((p >> 16) - (position >> 16)) % 2**48 for p, w in points if w == owner]
        assert far == min(steps, default=FARTHEST)
