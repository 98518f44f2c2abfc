"""What the parents of new commits prove about a branch that moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.keep import ancestry
from evermirror.core.keep.ancestry import moved_forward


def test_a_branch_that_grew_by_commits_or_by_a_merge_moved_forward_and_a_rewritten_one_did_not():
    parents = {"3": ("2",), "2": ("1",), "m": ("x", "2"), "r": ("0",)}
    assert moved_forward([("1", "3"), ("1", "m"), ("1", "r"), ("2", "2")], parents) == {
        ("1", "3"),
        ("1", "m"),
        ("2", "2"),
    }


def test_a_walk_too_long_proves_nothing(monkeypatch):
    monkeypatch.setattr(ancestry, "STEPS_MAX", 10)
    parents = {str(i): (str(i - 1),) for i in range(100)}
    assert moved_forward([("0", "99")], parents) == frozenset()
    assert moved_forward([("95", "99"), ("0", "99")], parents) == {("95", "99")}


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=3), max_size=30), st.integers(0, 30), st.integers(0, 30)
)
def test_it_says_what_a_dumb_search_says(graph, old, new):
    parents = {str(i): tuple(str(p) for p in ps if p < i) for i, ps in enumerate(graph)}

    def reaches(commit):
        return commit == str(old) or any(reaches(p) for p in set(parents.get(commit, ())))

    if new < 16:  # the dumb one is exponential
        assert bool(moved_forward([(str(old), str(new))], parents)) == reaches(str(new))
