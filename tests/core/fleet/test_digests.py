import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.digests import RANGES, RangeDigests, differing, digests_of, range_of, ranges_of
from tests.support.plain_hashing import key_hash, mix_one

WORD = st.integers(0, 2**64 - 1)
# Few values, so that pairs meet in a range, come twice and share hash or digest.
NEAR = st.sampled_from([0, 1, 2, 2**56, 2**56 + 1, 7 << 56, 2**64 - 1])
PAIRS = st.lists(st.tuples(WORD | NEAR, WORD | NEAR), max_size=40)


def digests(pairs):
    hashes = np.array([h for h, _ in pairs], dtype=np.uint64)
    return digests_of(hashes, np.array([d for _, d in pairs], dtype=np.uint64))


def dumb(pairs):
    values = []
    for number in range(RANGES):
        inside = [mix_one(h ^ mix_one(d)) for h, d in pairs if h // 2**56 == number]
        values.append((sum(inside) + mix_one(len(inside))) % 2**64)
    return tuple(values)


@given(PAIRS)
def test_it_is_the_sum_over_each_range(pairs):
    assert digests(pairs).values == dumb(pairs)


@given(PAIRS, PAIRS)
def test_exactly_the_ranges_that_hold_something_else_differ(ours, theirs):
    def inside(pairs, number):
        return sorted(pair for pair in pairs if range_of(pair[0]) == number)

    expected = tuple(n for n in range(RANGES) if inside(ours, n) != inside(theirs, n))
    assert differing(digests(ours), digests(theirs)) == expected


@given(PAIRS, st.randoms(use_true_random=False))
def test_order_does_not_matter(pairs, chance):
    mixed = list(pairs)
    chance.shuffle(mixed)
    assert digests(mixed) == digests(pairs)


def test_the_same_pair_twice_is_not_the_same_as_once_or_not_at_all():
    seen = {digests([(5, 9)] * times).values[0] for times in range(200)}
    assert len(seen) == 200


def test_a_pair_that_mixes_to_nothing_is_still_counted():
    assert mix_one(0) == 0
    assert digests([(0, 0)]) != digests([])


def test_a_repo_that_moved_on_is_told_from_one_that_was_exchanged():
    assert differing(digests([(1, 10), (2, 20)]), digests([(1, 20), (2, 10)])) == (0,)


def test_an_empty_set_is_all_zero():
    assert digests([]).values == (0,) * RANGES


def test_ranges_are_the_top_eight_bits_and_fill_evenly():
    hashes = [key_hash(f"example.org/team/{n}") for n in range(25_600)]
    ranges = ranges_of(np.array(hashes, dtype=np.uint64))
    assert ranges.tolist() == [range_of(h) for h in hashes]
    assert (range_of(0), range_of(2**56), range_of(2**64 - 1)) == (0, 1, RANGES - 1)
    counts = np.bincount(ranges, minlength=RANGES)
    assert 50 < counts.min() <= counts.max() < 150


def test_what_is_no_set_of_digests_is_refused():
    with pytest.raises(ValueError, match="3 digests"):
        RangeDigests((1, 2, 3))
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match="unsigned"):
            RangeDigests((0,) * (RANGES - 1) + (wrong,))
    with pytest.raises(ValueError, match="hashes"):
        digests_of(np.zeros(3, dtype=np.uint64), np.zeros(2, dtype=np.uint64))
