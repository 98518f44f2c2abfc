"""The guard against removing too much, and entries as values."""

import dataclasses

import pytest

from evermirror.core.catalog.diff import held_back
from evermirror.core.catalog.entry import CatalogEntry
from evermirror.model.repo import Priority, RepoSpec


def entry(name, priority=Priority.NORMAL, **more):
    return CatalogEntry(RepoSpec(f"h/{name}", f"https://h/{name}", "h", priority), **more)


@pytest.mark.parametrize("change", [{"alias": "x"}, {"targets": ("t",)}, {"pins": ("w",)}])
def test_whatever_is_configured_counts(change):
    assert entry("a") != entry("a", **change)


def test_moving_a_line_to_another_place_changes_nothing():
    assert entry("a", file="1", line=1) == entry("a", file="2", line=9)


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
