"""Letters of keys in a file: the same as in memory, whatever the disk does."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.core.fleet.keyindex import KeyIndex
from evermirror.core.fleet.letters import LettersInMemory, LettersLost
from evermirror.edge.store import key_file
from evermirror.edge.store.key_file import KeyFile


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "TAIL_BYTES", 8)


def open_files(folder: Path) -> list[str]:
    """Those in ``folder`` that this process has open, also those without a name."""
    links = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return [link for link in links if link.startswith(f"{folder}/")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=12), max_size=10), st.data())
def test_reads_what_was_added_wherever_it_is_by_now(tmp_path: Path, parts: list[bytes], data) -> None:
    in_file, in_memory = KeyFile(tmp_path), LettersInMemory()
    for part in parts:
        in_file.add(part)
        in_memory.add(part)
    assert len(in_file) == len(in_memory)
    start = data.draw(st.integers(0, len(in_memory)))
    end = data.draw(st.integers(start, len(in_memory)))
    assert in_file.read(start, end) == in_memory.read(start, end) == b"".join(parts)[start:end]


def test_nothing_is_to_be_seen_of_it_and_nothing_stays(tmp_path: Path) -> None:
    letters = KeyFile(tmp_path)
    letters.add(b"many letters, more than are gathered")
    assert len(open_files(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
    assert letters.nbytes < 100
    del letters
    gc.collect()
    assert open_files(tmp_path) == []


def test_what_a_full_disk_does_not_take_stays_in_memory(tmp_path: Path, monkeypatch) -> None:
    letters = KeyFile(tmp_path)
    letters.add(b"on the disk ")
    tried = []

    def full(*_: object) -> int:
        tried.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    letters.add(b"and in memory, ")
    letters.add(b"as this is")
    assert letters.read(0, len(letters)) == b"on the disk and in memory, as this is"
    assert letters.read(3, 15) == b"the disk and"
    assert len(tried) == 1, "it is not asked again for every key"


def test_where_there_can_be_no_file_all_stays_in_memory(tmp_path: Path) -> None:
    letters = KeyFile(tmp_path / "missing")
    letters.add(b"some more letters")
    assert letters.read(5, 9) == b"more"


def test_an_index_over_it_finds_forgets_and_writes_it_anew(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("evermirror.core.fleet.keyindex.WASTE_MIN", 64)
    index = KeyIndex(KeyFile(tmp_path))
    names = [f"host{i % 3}.example/group/project-{i}" for i in range(500)]
    rows, _ = index.put(names)
    for row in rows[::2].tolist() + rows[1::4].tolist():
        index.forget(row)
    left = [name for i, name in enumerate(names) if i % 2 and i % 4 != 1]
    assert len(index) == len(left)
    found = index.rows_of(names)
    assert [name for name, row in zip(names, found.tolist(), strict=True) if row >= 0] == left
    assert index.keys_of(found[found >= 0]) == left
    assert [index.key_of(index.row_of(name)) for name in left] == left
    heads = index.heads_of(found[found >= 0], 5)
    assert np.all(heads == np.frombuffer(b"".join(n[:5].encode() for n in left), np.uint8).reshape(-1, 5))


NAMES = [f"example.org/group/project-{i}" for i in range(300)]


def over_a_file(folder: Path) -> tuple[KeyIndex, KeyFile]:
    letters = KeyFile(folder)
    index = KeyIndex(letters)
    index.put(NAMES)
    return index, letters


READS = {
    "row_of": lambda index: index.row_of(NAMES[3]),
    "key_of": lambda index: index.key_of(3),
    "rows_of": lambda index: index.rows_of(NAMES),
    "keys_of": lambda index: index.keys_of(np.arange(300, dtype=np.int32)),
    "heads_of": lambda index: index.heads_of(np.arange(300, dtype=np.int32), 5),
    "put": lambda index: index.put(NAMES),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("trouble", ["error", "short", "zeros"])
def test_what_the_disk_does_not_give_back_is_lost_for_good(tmp_path, monkeypatch, trouble, read) -> None:
    index, letters = over_a_file(tmp_path)

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    if trouble == "error":
        monkeypatch.setattr(os, "pread", fails)
    elif trouble == "short":
        os.truncate(letters._file, 50)
    else:
        os.pwrite(letters._file, bytes(200), 0)
    assert index.lost is None
    with pytest.raises(LettersLost) as told:
        READS[read](index)
    assert index.lost is told.value
    assert len(index) == index.rows == 300, "nobody got a second row"


def test_letters_that_are_lost_while_written_anew_leave_all_others_as_they_were(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("evermirror.core.fleet.keyindex.WASTE_MIN", 64)
    monkeypatch.setattr("evermirror.core.fleet.keyindex.BATCH", 50)
    index = KeyIndex(KeyFile(tmp_path))
    for begin in range(0, 300, 50):
        index.put(NAMES[begin : begin + 50])
    real, reads = os.pread, []

    def fails_the_second_time(*args: int) -> bytes:
        reads.append(args)
        if len(reads) == 2:
            raise OSError(errno.EIO, "Input/output error")
        return real(*args)

    monkeypatch.setattr(os, "pread", fails_the_second_time)
    rows = iter(range(300))
    with pytest.raises(LettersLost):
        all(index.forget(row) is None for row in rows)
    monkeypatch.setattr(os, "pread", real)
    left = list(rows)
    assert len(left) > 100
    assert [index.key_of(row) for row in left] == [NAMES[row] for row in left]


def test_a_forgotten_row_has_no_letters_and_disturbs_nobody(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("evermirror.core.fleet.keyindex.WASTE_MIN", 64)
    index, _ = over_a_file(tmp_path)
    for row in range(100, 300):
        index.forget(row)
    heads = index.heads_of(np.array([5, 299, 7], np.int32), 7)
    assert bytes(heads) == b"example" + bytes(7) + b"example"
