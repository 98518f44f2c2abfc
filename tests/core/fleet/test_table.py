from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evermirror.core.fleet.columns import COPY_COLUMNS, REPO_COLUMNS
from evermirror.core.fleet.table import (
    LIVE,
    NO_ROOM,
    NOBODY,
    NONE,
    PINNED,
    REMOVED,
    REPLICAS_MAX,
    TRUSTED_ONLY,
    UNWANTED,
    CopyState,
    FleetTable,
    Reason,
)
from tests.core.fleet.small import POOR, small_sizes
from tests.support.plain_hashing import key_hash

HELD, PLANNED = CopyState.HELD, CopyState.PLANNED


def put(table: FleetTable, *keys: str, trusted_only: bool = False, replicas: int = 1) -> list[int]:
    rows = table.put_repos(keys, [trusted_only] * len(keys), [replicas] * len(keys))
    return [int(row) for row in rows]


def add_many(
    table: FleetTable, rows: Sequence[int], workers: Sequence[int], ranks: Sequence[int]
) -> list[int]:
    new = table.add_copies(
        np.array(rows, np.int32),
        np.array(workers, np.uint16),
        np.array(ranks, np.uint8),
        np.full(len(rows), Reason.HOME, np.uint8),
        PLANNED,
        1_700_000_000.9,
    )
    return [int(c) for c in new]


# Repos


def test_a_new_repo_stands_in_the_catalog_with_nothing_known_of_it() -> None:
    table = FleetTable()
    rows = table.put_repos(["a/b", "c/d"], [True, False], [1, 3])
    assert rows.tolist() == [0, 1]
    assert len(table) == table.rows == 2
    assert table.flags[rows].tolist() == [LIVE | TRUSTED_ONLY, LIVE]
    assert table.replicas[rows].tolist() == [1, 3]
    assert table.hash[rows].tolist() == [key_hash("a/b"), key_hash("c/d")]
    assert table.salt[rows].tolist() == table.witness[rows].tolist() == [0, 0]
    assert [table.copies_of(row) for row in rows.tolist()] == [[], []]


def test_a_repo_put_again_keeps_row_salt_copies_and_other_flags() -> None:
    table = FleetTable()
    (row,) = put(table, "a/b", trusted_only=True)
    c = table.add_copy(row, 4, 0, HELD, Reason.HOME, 0)
    table.salt[row], table.witness[row] = 2, 99
    table.one.flags[row] |= NO_ROOM | PINNED
    table.remove(row)
    assert put(table, "a/b", replicas=2) == [row]
    assert (table.salt[row], table.witness[row], table.replicas[row]) == (2, 99, 2)
    assert table.flags[row] == LIVE | NO_ROOM | PINNED
    assert table.copies_of(row) == [c]
    assert len(table) == 1


def test_of_a_repo_that_comes_twice_the_last_word_counts() -> None:
    table = FleetTable()
    assert table.put_repos(["a", "b", "a"], [True, False, False], [3, 1, 2]).tolist() == [0, 1, 0]
    assert len(table) == 2
    assert (table.flags[0], table.replicas[0]) == (LIVE, 2)
    table.remove(0)
    table.put_repos(["a", "a"], [True, True], [1, 1])
    assert len(table) == 2


def test_a_removed_repo_is_known_but_not_of_the_catalog() -> None:
    table = FleetTable()
    put(table, "a", "b", "c")
    table.remove(1)
    table.remove(1)
    assert len(table) == 2
    assert table.catalog_rows().tolist() == [0, 2]
    assert table.row_of("b") == 1
    assert table.flags[1] == LIVE | REMOVED


@pytest.mark.parametrize("removed_first", [True, False])
def test_a_forgotten_repo_leaves_nothing_to_the_next_in_its_row(removed_first: bool) -> None:
    table = FleetTable()
    put(table, "a", "b", trusted_only=True)
    table.salt[0], table.witness[0] = 3, 5
    if removed_first:
        table.remove(0)
    table.forget(0)
    assert len(table) == 1
    assert table.row_of("a") == NONE
    assert table.flags[0] == 0
    assert put(table, "c") == [0]
    assert len(table) == 2
    assert (table.salt[0], table.witness[0], table.flags[0]) == (0, 0, LIVE)


def test_a_repo_with_copies_is_not_forgotten() -> None:
    table = FleetTable()
    (row,) = put(table, "a/b")
    c = table.add_copy(row, 1, UNWANTED, HELD, Reason.FOUND, 0)
    with pytest.raises(ValueError, match="a/b still has copies"):
        table.forget(row)
    table.drop_copy(c)
    table.forget(row)
    with pytest.raises(ValueError, match="row 0 is free"):
        table.forget(row)


def test_repos_that_cannot_be_written_down_are_refused() -> None:
    table = FleetTable()
    with pytest.raises(ValueError, match="replicas are from 1 to 255; at most 254"):
        table.put_repos(["a", "b"], [False, False], [1, REPLICAS_MAX + 1])
    with pytest.raises(ValueError, match="replicas are from -1"):
        table.put_repos(["a"], [False], [-1])
    with pytest.raises(ValueError, match="2 keys, 1 flags and 2 replicas"):
        table.put_repos(["a", "b"], [False], [1, 1])
    assert len(table) == table.rows == 0


# Copies


@pytest.mark.parametrize("many", [False, True])
def test_a_new_copy_has_what_it_was_given_and_nothing_of_the_one_before(many: bool) -> None:
    table = FleetTable()
    (row,) = put(table, "a")
    old = table.add_copy(row, 9, 3, HELD, Reason.LOST, 5)
    table.c_digest[old], table.c_verified[old], table.c_primary[old] = 2**64 - 1, 2**32 - 1, 1
    table.drop_copy(old)
    if many:
        (c,) = add_many(table, [row], [7], [1])
    else:
        c = table.add_copy(row, 7, 1, PLANNED, Reason.HOME, 1_700_000_000.9)
    assert c == old
    assert (table.c_row[c], table.c_worker[c], table.c_rank[c]) == (row, 7, 1)
    assert (table.one.c_state[c], table.one.c_reason[c]) == (PLANNED, Reason.HOME)
    assert (table.c_digest[c], table.c_verified[c], table.c_primary[c]) == (0, 0, 0)
    assert table.c_since[c] == 1_700_000_000


def test_copies_come_by_rank_then_worker_and_unwanted_last() -> None:
    table = FleetTable()
    (row,) = put(table, "a")
    wanted = [(8, UNWANTED), (3, 1), (9, 0), (2, UNWANTED)]
    for worker, rank in wanted:
        table.add_copy(row, worker, rank, HELD, Reason.HOME, 0)
    assert [table.one.c_worker[c] for c in table.copies_of(row)] == [9, 3, 2, 8]


def test_a_worker_has_a_repo_at_most_once() -> None:
    table = FleetTable()
    a, b = put(table, "a", "b")
    table.add_copy(a, 1, 0, HELD, Reason.HOME, 0)
    table.add_copy(a, 2, 1, HELD, Reason.HOME, 0)
    with pytest.raises(ValueError, match="worker 1 has a copy of a already"):
        table.add_copy(a, 1, 2, HELD, Reason.HOME, 0)
    with pytest.raises(ValueError, match="worker 1 has a copy of a already"):
        add_many(table, [b, a], [1, 1], [0, 2])
    with pytest.raises(ValueError, match="b comes twice with the same worker"):
        add_many(table, [b, a, b], [5, 5, 5], [0, 1, 1])
    assert table.copies == 2
    assert table.copies_of(b) == []


def test_only_what_is_there_can_be_dropped_or_added_to() -> None:
    table = FleetTable()
    (row,) = put(table, "a")
    c = table.add_copy(row, 1, 0, HELD, Reason.HOME, 0)
    table.drop_copy(c)
    for none in (c, 1, NONE):
        with pytest.raises(ValueError, match=f"there is no copy {none}"):
            table.drop_copy(none)
    table.forget(row)
    with pytest.raises(ValueError, match="row 0 is free"):
        table.add_copy(row, 1, 0, HELD, Reason.HOME, 0)
    with pytest.raises(ValueError, match="not known"):
        add_many(table, [row], [1], [0])


def test_should_tells_workers_by_rank_and_leaves_holes() -> None:
    table = FleetTable()
    a, b, c = put(table, "a", "b", "c")
    add_many(table, [a, a, c, c, c], [5, 6, 7, 8, 9], [0, 1, 2, 0, UNWANTED])
    rows = np.array([c, a, b, a], np.int32)
    assert table.should(rows, 3).tolist() == [
        [8, NOBODY, 7],
        [5, 6, NOBODY],
        [NOBODY, NOBODY, NOBODY],
        [5, 6, NOBODY],
    ]
    assert table.should(rows[:2], 1).tolist() == [[8], [5]]
    assert table.should(rows[:0], 2).shape == (0, 2)


def test_one_is_the_same_memory_also_after_columns_grew() -> None:
    table = FleetTable()
    one = table.one
    rows = put(table, "r") + put(table, *(f"r{i}" for i in range(2999)))
    for row in rows[::2]:
        table.add_copy(row, 1, 0, HELD, Reason.HOME, 0)
    add_many(table, rows[1::2], [2] * 1500, [0] * 1500)
    one.c_digest[2999] = 2**64 - 1
    one.salt[2999] = 7
    assert (table.c_digest[2999], table.salt[2999]) == (2**64 - 1, 7)
    assert table.hash[rows[-1]] == key_hash("r2998")
    for name in (*REPO_COLUMNS, *COPY_COLUMNS, "hash"):
        assert getattr(table, name).tolist() == getattr(one, name).tolist()


def test_what_was_reserved_is_enough_and_columns_stay_where_they_are() -> None:
    table = FleetTable()
    table.reserve(5000, 6000)
    before = {name: getattr(table, name) for name in (*REPO_COLUMNS, *COPY_COLUMNS, "hash")}
    assert {len(before[name]) for name in (*REPO_COLUMNS, "hash")} == {5000}
    assert {len(before[name]) for name in COPY_COLUMNS} == {6000}
    rows = put(table, *(f"r{i}" for i in range(5000)))
    add_many(table, rows, [1] * 5000, [0] * 5000)
    add_many(table, rows[:1000], [2] * 1000, [1] * 1000)
    assert all(getattr(table, name) is column for name, column in before.items())
    table.reserve(10, 10)
    assert all(getattr(table, name) is column for name, column in before.items())


# Against dicts


@dataclass
class Repo:
    trusted_only: bool
    replicas: int
    removed: bool = False
    copies: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # worker: rank, state, since


class AgainstDicts(RuleBasedStateMachine):
    """The table beside a dict of repos, each with a dict of copies."""

    keys = st.text("abä", max_size=3)
    workers = st.sampled_from([0, 1, 2, 3, NOBODY - 1])
    ranks = st.sampled_from([0, 1, 2, UNWANTED])

    def __init__(self) -> None:
        super().__init__()
        self.cleanup = ExitStack()

    @initialize(kind=st.sampled_from([None, *POOR]))
    def begin(self, kind: str | None) -> None:
        self.cleanup.enter_context(small_sizes(POOR.get(kind) if kind else None))
        self.table = FleetTable()
        self.twin: dict[str, Repo] = {}
        self.now = 0

    def teardown(self) -> None:
        self.cleanup.close()

    @rule(repos=st.lists(st.tuples(keys, st.booleans(), st.integers(0, 3)), max_size=8))
    def repos_come(self, repos: list[tuple[str, bool, int]]) -> None:
        known = {key: self.table.row_of(key) for key in self.twin}
        rows = self.table.put_repos(*([list(part) for part in zip(*repos, strict=True)] or [[], [], []]))
        for (key, trusted_only, replicas), row in zip(repos, rows.tolist(), strict=True):
            assert known.setdefault(key, row) == row
            repo = self.twin.setdefault(key, Repo(trusted_only, replicas))
            repo.trusted_only, repo.replicas, repo.removed = trusted_only, replicas, False

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def a_repo_is_removed(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.twin)))
        self.table.remove(self.table.row_of(key))
        self.twin[key].removed = True

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def a_repo_is_forgotten(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.twin)))
        row = self.table.row_of(key)
        if self.twin[key].copies:
            with pytest.raises(ValueError, match="still has copies"):
                self.table.forget(row)
        else:
            self.table.forget(row)
            del self.twin[key]

    @precondition(lambda self: self.twin)
    @rule(data=st.data(), worker=workers, rank=ranks, state=st.sampled_from(CopyState))
    def a_copy_comes(self, data: st.DataObject, worker: int, rank: int, state: CopyState) -> None:
        key = data.draw(st.sampled_from(sorted(self.twin)))
        self.now += 1
        row, copies = self.table.row_of(key), self.twin[key].copies
        if worker in copies:
            with pytest.raises(ValueError, match="already"):
                self.table.add_copy(row, worker, rank, state, Reason.HOME, self.now)
        else:
            self.table.add_copy(row, worker, rank, state, Reason.HOME, self.now)
            copies[worker] = (rank, state, self.now)

    @precondition(lambda self: self.twin)
    @rule(data=st.data())
    def many_copies_come(self, data: st.DataObject) -> None:
        copy = st.tuples(st.sampled_from(sorted(self.twin)), self.workers, self.ranks)
        wanted = data.draw(st.lists(copy, max_size=6))
        self.now += 1
        pairs = [(key, worker) for key, worker, _ in wanted]
        rows = [self.table.row_of(key) for key, _ in pairs]
        columns = (rows, [worker for _, worker in pairs], [rank for _, _, rank in wanted])
        arrays = [np.array(c, kind) for c, kind in zip(columns, (np.int32, np.uint16, np.uint8), strict=True)]
        reasons = np.zeros(len(rows), np.uint8)
        there = any(worker in self.twin[key].copies for key, worker in pairs)
        if there or len(set(pairs)) < len(pairs):
            with pytest.raises(ValueError, match=r"already|twice"):
                self.table.add_copies(*arrays, reasons, HELD, self.now)
            return
        new = self.table.add_copies(*arrays, reasons, HELD, self.now)
        assert [
            self.table.find_copy(row, pair[1]) for row, pair in zip(rows, pairs, strict=True)
        ] == new.tolist()
        for key, worker, rank in wanted:
            self.twin[key].copies[worker] = (rank, HELD, self.now)

    @precondition(lambda self: any(repo.copies for repo in self.twin.values()))
    @rule(data=st.data())
    def a_copy_goes(self, data: st.DataObject) -> None:
        pairs = [(key, worker) for key, repo in sorted(self.twin.items()) for worker in repo.copies]
        key, worker = data.draw(st.sampled_from(pairs))
        self.table.drop_copy(self.table.find_copy(self.table.row_of(key), worker))
        del self.twin[key].copies[worker]

    @invariant()
    def repos_agree(self) -> None:
        table = self.table
        rows = {key: table.row_of(key) for key in self.twin}
        listed = sorted(rows[key] for key, repo in self.twin.items() if not repo.removed)
        assert len(table) == len(listed)
        assert table.catalog_rows().tolist() == listed
        assert table.rows_of(list(rows)).tolist() == list(rows.values())
        assert table.keys_of(list(rows.values())) == list(rows)
        for key, repo in self.twin.items():
            flags = LIVE | REMOVED * repo.removed | TRUSTED_ONLY * repo.trusted_only
            assert (table.flags[rows[key]], table.replicas[rows[key]]) == (flags, repo.replicas)
        assert np.count_nonzero(table.flags[: table.rows]) == len(rows)

    @invariant()
    def copies_agree(self) -> None:
        table, one = self.table, self.table.one
        on: dict[int, set[str]] = {}
        for key, repo in self.twin.items():
            row = table.row_of(key)
            found = [
                (one.c_worker[c], (one.c_rank[c], one.c_state[c], one.c_since[c]))
                for c in table.copies_of(row)
            ]
            assert found == sorted(repo.copies.items(), key=lambda item: (item[1][0], item[0]))
            assert all(one.c_row[c] == row for c in table.copies_of(row))
            assert table.find_copy(row, 77) == NONE
            for worker in repo.copies:
                on.setdefault(worker, set()).add(key)
        for worker in (0, 1, 2, 3, NOBODY - 1):
            held = table.keys_of(table.c_row[table.copies_on(worker)])
            assert sorted(held) == sorted(on.get(worker, ()))
        in_use = table.c_worker[: table.copies] != NOBODY
        assert np.count_nonzero(in_use) == sum(map(len, on.values()))

    @invariant()
    def copies_are_found_together_as_one_by_one(self) -> None:
        rows = [self.table.row_of(key) for key in self.twin]
        for worker in (0, 1, 2, 3, 77):
            found = self.table.find_copies(np.array(rows, np.int32), worker)
            assert found.tolist() == [self.table.find_copy(row, worker) for row in rows]

    @invariant()
    def should_agrees(self) -> None:
        rows = np.array([self.table.row_of(key) for key in self.twin], np.int32)
        should = self.table.should(rows, 2).tolist()
        for repo, workers in zip(self.twin.values(), should, strict=True):
            for rank, worker in enumerate(workers):
                able = {w for w, (r, _, _) in repo.copies.items() if r == rank}
                assert worker in (able or {NOBODY})


TestAgainstDicts = AgainstDicts.TestCase


# Memory


def test_a_million_repos_with_a_copy_each_fit_120_mb_and_none_is_a_python_object() -> None:
    n = 100_000  # a tenth, as the cost of each is the same
    tracemalloc.start()
    try:
        table = FleetTable()
        for begin in range(0, n, 1000):
            names = [f"forge.example/some-team/repository-{i:07}" for i in range(begin, begin + 1000)]
            put(table, *names)
        del names
        rows = table.catalog_rows()
        table.add_copies(
            rows, (rows % 1000).astype(np.uint16), *(np.zeros(n, np.uint8) for _ in range(2)), PLANNED, 0.0
        )
        del rows
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert table.nbytes <= 120 * n
    assert taken <= table.nbytes * 1.02 + 100_000
