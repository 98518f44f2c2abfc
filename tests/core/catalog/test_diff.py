"""The difference between two readings of the catalog, and the guard against removing too much."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.catalog.diff import CatalogDiff, diff, held_back
from evermirror.core.catalog.listfile import CatalogEntry
from evermirror.model.repo import Priority, RepoSpec


def entry(name, priority=Priority.NORMAL, **more):
    return CatalogEntry(RepoSpec(f"h/{name}", f"https://h/{name}", "h", priority), **more)


def test_added_removed_and_changed():
    a, b, c = entry("a"), entry("b"), entry("c")
    urgent = entry("b", Priority.HIGH)
    assert diff([a, b], [urgent, c]) == CatalogDiff(added=(c,), removed=(a,), changed=(urgent,))


@pytest.mark.parametrize("change", [{"alias": "x"}, {"targets": ("t",)}])
def test_whatever_is_configured_counts(change):
    assert len(diff([entry("a")], [entry("a", **change)]).changed) == 1


def test_moving_a_line_to_another_place_changes_nothing():
    assert not diff([entry("a", file="1", line=1)], [entry("a", file="2", line=9)])


def test_what_a_bad_line_was_about_is_not_removed():
    assert diff([entry("a"), entry("b")], [], unsure={"h/a"}).removed == (entry("b"),)


@given(*[st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(Priority))] * 2)
def test_the_difference_turns_the_old_into_the_new(old, new):
    before = [entry(k, p) for k, p in old.items()]
    after = [entry(k, p) for k, p in new.items()]
    change = diff(before, after)
    result = {e.key: e for e in before}
    for gone in change.removed:
        del result[gone.key]
    result |= {e.key: e for e in change.added + change.changed}
    assert result == {e.key: e for e in after}
    assert len(change.added) + len(change.changed) + len(change.removed) == sum(
        old.get(k) != new.get(k) for k in old.keys() | new.keys()
    )


@pytest.mark.parametrize(
    ("removed", "total", "held"),
    [(0, 0, False), (9, 9, False), (10, 10, True), (10, 99, True), (10, 100, False), (11, 100, True), (100,
     1001, False),
     (101, 1000, True), (10, 0, True)],
)  # fmt: skip
def test_removing_over_a_tenth_and_at_least_ten_is_held_back(removed, total, held):
    assert held_back(removed, total) is held


def test_the_bounds_are_settings():
    assert held_back(2, 3, share=0.5, least=1)
    assert not held_back(2, 4, share=0.5, least=1)
    assert not held_back(2, 3, share=0.5, least=3)


def test_entries_are_values():
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry("a").alias = "b"
