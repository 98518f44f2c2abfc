"""Every rule of the guards, and that nothing gets round them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.keep.guard import (
    SIGHTINGS_MIN,
    GuardMemory,
    GuardReason,
    GuardSettings,
    advice,
    explain,
    judge,
)
from evermirror.model.refs import Oid, RefSnapshot

SETTINGS = GuardSettings()
DAY = SETTINGS.confirm_after_s
EMPTIED, SHRUNKEN, UNRELATED = GuardReason.EMPTIED, GuardReason.SHRUNKEN, GuardReason.UNRELATED


def refs(count, oid="a" * 40):
    return RefSnapshot({f"refs/heads/{i:04}": Oid(oid) for i in range(count)}, None)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (0, 0, None),
        (0, 10, None),
        (1, 0, EMPTIED),
        (100, 0, EMPTIED),
        (6, 1, None),  # five of six: as many as may always go
        (7, 1, SHRUNKEN),
        (25, 20, None),
        (25, 19, SHRUNKEN),
        (100, 80, None),  # just the share
        (100, 79, SHRUNKEN),
        (100, 100, None),
    ],
)
def test_what_is_held_back(before, after, reason):
    held = judge(refs(before), refs(after), None, 0.0, SETTINGS)
    assert (held.reason if held else None) is reason


def test_renamed_refs_count_as_lost_and_moved_ones_do_not():
    renamed = RefSnapshot({n + "x": o for n, o in refs(10).refs.items()}, None)
    assert judge(refs(10), renamed, None, 0.0, SETTINGS).reason is SHRUNKEN
    assert judge(refs(10), refs(10, "b" * 40), None, 0.0, SETTINGS) is None


def test_unrelated_history_comes_before_the_other_reasons_and_a_new_mirror_is_not_guarded():
    assert judge(refs(10), refs(10), None, 0.0, SETTINGS, unrelated=True).reason is UNRELATED
    assert judge(refs(10), refs(0), None, 0.0, SETTINGS, unrelated=True).reason is UNRELATED
    assert judge(refs(0), refs(10), None, 0.0, SETTINGS, unrelated=True) is None


@pytest.mark.parametrize(("after", "unrelated"), [(0, False), (2, False), (10, True)])
def test_a_person_confirms_anything(after, unrelated):
    assert judge(refs(10), refs(after), None, 0.0, SETTINGS, unrelated=unrelated, accept=True) is None


def see(times, sights, unrelated=False, before=100):
    memory = None
    for now, seen in zip(times, sights, strict=True):
        memory = judge(refs(before), refs(seen), memory, now, SETTINGS, unrelated=unrelated)
    return memory


@pytest.mark.parametrize("after", [0, 10])
def test_the_same_sight_is_followed_only_after_enough_polls_and_enough_time(after):
    assert see([0, DAY / 2, DAY], [after] * 3) is None
    assert see([0, DAY], [after] * 2).sightings == 2
    many = see([DAY * i / 100 for i in range(100)], [after] * 100)
    assert (many.sightings, many.since) == (100, 0)
    assert see([0.0] * SIGHTINGS_MIN, [after] * SIGHTINGS_MIN) is not None


def test_unrelated_history_is_never_followed_without_a_person():
    assert see([DAY * i for i in range(100)], [100] * 100, unrelated=True).reason is UNRELATED


def test_another_sight_starts_the_wait_anew():
    assert see([0, DAY, 2 * DAY], [10, 10, 0]) == GuardMemory(EMPTIED, 2 * DAY, 1, refs(0).digest(), 100)
    assert see([0, 1, 2 * DAY], [70, 70, 10]).since == 2 * DAY  # lost 30, then 90
    assert see([0, 1, DAY], [70, 68, 75]) is None  # about the same
    assert see([0, 1, DAY], [10, 100, 10]).sightings == 1  # all was well in between
    assert see([DAY, 0, DAY], [0, 0, 0]).since == 0  # the clock went back


@given(
    st.integers(1, 60),
    st.lists(st.tuples(st.floats(0, 3 * DAY), st.integers(0, 60)), min_size=1, max_size=12),
    st.booleans(),
)
def test_nothing_is_followed_that_was_not_seen_often_and_long_enough(before, looks, unrelated):
    memory = None
    history: list[float] = []
    for now, seen in sorted(looks):
        suspect = unrelated or seen == 0 or before - seen > max(5, 0.2 * before)
        memory = judge(refs(before), refs(seen), memory, now, SETTINGS, unrelated=unrelated)
        history = [*history, now] if suspect else []
        if memory is None and suspect:
            assert not unrelated
            assert len(history) >= SIGHTINGS_MIN
            assert history[-1] - history[0] >= DAY
            history = []
        assert memory is None or suspect


@pytest.mark.parametrize("reason", list(GuardReason))
def test_people_are_told_what_was_seen_and_what_to_do(reason):
    memory = GuardMemory(reason, 0.0, 1, refs(0).digest(), 3)
    assert explain(memory, refs(10), refs(7)).startswith("held back: upstream")
    assert "evermirror confirm" in advice(memory, SETTINGS)
