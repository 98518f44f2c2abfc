"""What makes the tests quicker changes nothing in what they show."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from pathlib import Path

import pytest

from evermirror.edge.store.store import Store
from tests.support import quick_disk
from tests.support.migrated import TablesAtOnce
from tests.support.order import arranged, asks_for_campaigns, file_of, scope_of, stays_together
from tests.support.quick_disk import quick_folder


def everything_in(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        found = list(connection.iterdump())
    connection.close()
    return [re.sub(r"('events\.began',)'\d+'", r"\1 the time", line) for line in found]


def test_tables_made_at_once_are_those_that_the_steps_make(tmp_path, monkeypatch):
    async def make(name: str) -> None:
        await (await Store.open(f"sqlite:///{tmp_path / name}")).close()

    asyncio.run(make("by-steps"))
    monkeypatch.setattr("evermirror.edge.store.store.migrate", TablesAtOnce())
    for name in ("learned", "at-once", "at-once"):  # the last opens what has tables already
        asyncio.run(make(name))
    steps = everything_in(tmp_path / "by-steps")
    assert len(steps) > 20
    assert everything_in(tmp_path / "learned") == steps
    assert everything_in(tmp_path / "at-once") == steps


def test_only_the_first_empty_file_takes_the_steps(tmp_path, monkeypatch):
    taken = []
    at_once = TablesAtOnce()
    learn = at_once._learn

    async def noted(database):
        taken.append(database.path.name)
        return await learn(database)

    monkeypatch.setattr(at_once, "_learn", noted)
    monkeypatch.setattr("evermirror.edge.store.store.migrate", at_once)

    async def make(name: str) -> None:
        await (await Store.open(f"sqlite:///{tmp_path / name}")).close()

    for name in ("a", "b", "c"):
        asyncio.run(make(name))
    assert taken == ["a"]


def test_no_test_is_lost_what_waits_is_between_what_computes_and_the_rest_comes_last():
    tests = [f"tests/core/{f}.py::{n}" for f in "abcdef" for n in range(7)]
    tests += [f"tests/scenarios/{f}.py::{n}" for f in "xyz" for n in range(4)]
    tests += [f"tests/sim/s.py::{n}" for n in range(9)]
    ordered = arranged(tests, file_of)
    assert sorted(ordered) == sorted(tests)
    assert [ordered.index(f"tests/scenarios/{f}.py::0") for f in "xyz"] == [0, 7, 14]
    assert [ordered.index(f"tests/sim/s.py::{n}") for n in (0, 3, 6)] == [4, 11, 18]
    assert ordered[21:] == tests[:42]


def test_only_files_of_long_computations_are_split():
    assert stays_together("tests/scenarios/test_readers.py")
    assert stays_together("tests/core/fleet/test_machine.py")
    assert not stays_together("tests/support/sim/fleet/test_seeds.py")


def test_tests_in_a_browser_are_one_process_own_and_start_early():
    browser = [f"tests/browser/{f}.py::{n}" for f in "ab" for n in range(3)]
    other = ["tests/core/x.py::1", "tests/scenarios/y.py::1", "tests/sim/z.py::1"]
    assert len({scope_of(test) for test in browser}) == 1
    assert [scope_of(test) for test in other] == [
        "tests/core/x.py",
        "tests/scenarios/y.py",
        "tests/sim/z.py::1",
    ]
    assert arranged([*browser, *other], file_of)[:6] == browser


@pytest.mark.parametrize(
    "tests", [[], ["tests/core/a.py::1"], ["tests/scenarios/a.py::1"], ["tests/sim/a.py::1"]]
)
def test_few_tests_stay_as_they_are(tests):
    assert arranged(tests, file_of) == tests


def told(folder: Path, kilobytes: int) -> Path:
    file = folder / "meminfo"
    file.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {kilobytes} kB\n")
    return file


def test_memory_is_used_where_there_is_room_and_programs_may_run(tmp_path, monkeypatch):
    monkeypatch.setattr(quick_disk, "FREE_BYTES_MIN", 1 << 20)
    assert quick_folder(tmp_path, told(tmp_path, 1 << 10)) == tmp_path
    assert quick_folder(tmp_path, told(tmp_path, (1 << 10) - 1)) is None
    assert quick_folder(tmp_path, tmp_path / "none") is None
    assert quick_folder(tmp_path / "none", told(tmp_path, 1 << 10)) is None
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*real[:8], os.ST_NOEXEC, *real[9:])))
    assert quick_folder(tmp_path, told(tmp_path, 1 << 10)) is None


@pytest.mark.parametrize(
    ("marks", "args", "asked"),
    [
        ("", ["tests"], False),
        ("not slow", ["tests"], False),
        ("campaign", ["tests"], True),
        ("", ["tests/campaigns"], True),
        ("", ["tests/campaigns/test_clients.py::test_npm_installs[main]"], True),
        ("", ["tests/scenarios", "tests/core"], False),
    ],
)
def test_campaigns_run_only_where_they_are_asked_for(marks, args, asked):
    assert asks_for_campaigns(marks, args) is asked


def test_ci_runs_the_tests_and_then_the_campaigns():
    lines = (Path(__file__).parents[2] / ".ci/run").read_text("utf-8").splitlines()
    assert lines[-2:] == ["make test", "make test-all"]
