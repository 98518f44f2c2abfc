from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.keyindex import BATCH, EMPTY, KEY_BYTES_MAX, LATELY_MAX, KeyIndex
from evermirror.core.fleet.letters import LettersInMemory
from tests.core.fleet.small import POOR, small_sizes
from tests.support.plain_hashing import key_hash

Script = list[tuple[bool, list[str]]]  # keys that are put, or forgotten

scripts = st.lists(st.tuples(st.booleans(), st.lists(st.text("abä/你", max_size=4), max_size=12)), max_size=8)


def put(index: KeyIndex, keys: Sequence[str], batch: int = BATCH) -> list[int]:
    parts = [keys[begin : begin + batch] for begin in range(0, len(keys), batch)]
    return [row for part in parts for row in index.put(part)[0].tolist()]


def check(index: KeyIndex, rows: dict[str, int], strangers: Sequence[str]) -> None:
    assert len(index) == len(rows)
    assert {name: index.row_of(name) for name in rows} == rows
    assert index.rows_of(list(rows)).tolist() == list(rows.values())
    assert [index.key_of(row) for row in rows.values()] == list(rows)
    assert index.keys_of(np.array(list(rows.values()), np.int32)) == list(rows)
    assert {index.row_of(name) for name in strangers} <= {EMPTY}
    assert index.rows_of(strangers).tolist() == [EMPTY] * len(strangers)


def agrees_with_a_dict(script: Script) -> None:
    index, rows = KeyIndex(), dict[str, int]()
    seen = {name for _, names in script for name in names}
    most = 0
    for putting, names in script:
        if putting:
            for name, row in zip(names, put(index, names, batch=3), strict=True):
                assert rows.setdefault(name, row) == row  # a known key keeps its row
            assert len(set(rows.values())) == len(rows)
            most = max(most, len(rows))
        else:
            for name in names:
                if name in rows:
                    index.forget(rows.pop(name))
        assert index.rows == most  # free numbers are used before new ones
        check(index, rows, sorted(seen - rows.keys()))


@given(scripts)
def test_agrees_with_a_dict(script: Script) -> None:
    with small_sizes():
        agrees_with_a_dict(script)


@pytest.mark.parametrize("kind", POOR)
@given(scripts)
def test_agrees_with_a_dict_also_where_hashes_collide(kind: str, script: Script) -> None:
    with small_sizes(POOR[kind]):
        agrees_with_a_dict(script)


@given(st.lists(st.integers(0, 40), max_size=30), st.permutations(range(30)))
def test_whatever_is_forgotten_the_others_are_found(homes: list[int], order: list[int]) -> None:
    """Slots that move up when one is freed: the hash is the key itself, so clusters are what is drawn."""
    names = [f"{home}.{i}" for i, home in enumerate(homes)]
    with small_sizes(lambda letters: int(letters.split(b".")[0] or 0)):
        index = KeyIndex()
        rows = dict(zip(names, put(index, names), strict=True))
        for i in order:
            if i < len(names):
                index.forget(rows.pop(names[i]))
                assert {name: index.row_of(name) for name in rows} == rows


def test_a_key_that_comes_twice_in_a_batch_has_one_row() -> None:
    index = KeyIndex()
    rows, fresh = index.put(["a", "b", "a", "c", "b"])
    assert rows.tolist() == [0, 1, 0, 2, 1]
    assert fresh.tolist() == [0, 1, 2]
    assert index.put(["c", "d", "d"])[1].tolist() == [3]


def test_hashes_stand_in_their_column() -> None:
    index = KeyIndex()
    names = [f"forge.example/team/repo-{i}" for i in range(5000)]
    rows = put(index, names)
    assert index.hash[rows].tolist() == [key_hash(name) for name in names]


def test_a_key_too_long_is_refused_and_changes_nothing() -> None:
    index = KeyIndex()
    with pytest.raises(ValueError, match="65536 bytes is longer than 65535"):
        index.put(["a", "x" * (KEY_BYTES_MAX + 1)])
    assert len(index) == 0
    assert index.row_of("a") == EMPTY
    assert index.key_of(put(index, ["x" * KEY_BYTES_MAX])[0]) == "x" * KEY_BYTES_MAX


def test_more_letters_than_can_be_counted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evermirror.core.fleet.keyindex.LETTERS_MAX", 5)
    index = KeyIndex()
    put(index, ["abc"])
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        index.put(["def"])
    assert index.rows_of(["abc", "def"]).tolist() == [0, EMPTY]


def test_letters_of_forgotten_keys_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    rewritten = []
    rewrite = KeyIndex._rewrite_blob
    monkeypatch.setattr(KeyIndex, "_rewrite_blob", lambda index: (rewritten.append(1), rewrite(index)))
    index = KeyIndex()
    for round_ in range(40):
        rows = put(index, [f"{round_}/{'x' * 200}/{i}" for i in range(1000)])
        for row in rows:
            index.forget(row)
    assert index.rows == 1000
    assert index.nbytes < 3_000_000  # 8.3 MB of letters passed through
    assert 1 <= len(rewritten) <= 8  # each time at least a megabyte was to be won


class Counted(LettersInMemory):
    reads = 0

    def read(self, start: int, end: int) -> bytes:
        self.reads += 1
        return super().read(start, end)


def test_what_was_asked_for_together_lately_is_known_without_a_read() -> None:
    letters = Counted()
    index = KeyIndex(letters)
    rows = put(index, names := [f"example.org/{n}" for n in range(3 * LATELY_MAX)])
    for at in range(0, len(names), 500):
        some = slice(at, at + 500)
        assert index.rows_of([*names[some], "never.seen/x"]).tolist() == [*rows[some], EMPTY]
        before = letters.reads
        assert [index.key_of(row) for row in rows[some]] == names[some]
        assert letters.reads == before
        assert len(index._lately) <= LATELY_MAX
        assert EMPTY not in index._lately
    index.rows_of(names)
    assert len(index._lately) <= LATELY_MAX


def test_what_was_asked_for_lately_is_known_without_a_read() -> None:
    letters = Counted()
    index = KeyIndex(letters)
    rows = put(index, names := [f"example.org/{n}" for n in range(3 * LATELY_MAX)])
    for at in range(0, len(names), 500):  # as a worker tells what it holds, and is then told of it
        some = slice(at, at + 500)
        assert [index.row_of(name) for name in names[some]] == rows[some]
        before = letters.reads
        assert [index.key_of(row) for row in rows[some]] == names[some]
        assert letters.reads - before <= 500 * (at // LATELY_MAX != (at + 500) // LATELY_MAX)
    assert len(index._lately) <= LATELY_MAX
    index.forget(rows[-1])
    assert put(index, ["example.org/another"]) == [rows[-1]]
    assert index.key_of(rows[-1]) == "example.org/another"


@pytest.mark.parametrize("n", [3_000, 100_000])
def test_what_a_key_costs_besides_its_letters(n: int) -> None:
    index = KeyIndex()
    names = [f"forge.example/{i:020}" for i in range(n)]
    put(index, names)
    assert (index.nbytes - sum(map(len, names))) / n < 40
