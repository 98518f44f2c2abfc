"""The page of a run: its tables hold together, its charts are there, and it says what was missed and why."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bench.measure import Line, Sense
from bench.telling.page import charts, write_page
from bench.telling.results import read
from tests.bench.records import CURVE, DULWICH, MACHINE, POLL, RECORD, ran, record_of


@pytest.fixture
def page(tmp_path):
    return write_page(RECORD, tmp_path).read_text("utf-8")


def tables(text: str) -> list[list[str]]:
    """The rows of each table, as they stand."""
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [rows for rows in blocks if rows[0].startswith("| ")]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_it_says_when_on_what_and_of_which_commit(page):
    head = page.split("\n\n")[2]
    for told in ("2026-11-16", "19:00 UTC", "abc1234", "15 min", "A CPU, 2 cores, 8 GB", "Python 3.11.2"):
        assert told in head
    assert "load before: 0.1" in head


def test_every_row_of_every_table_has_as_many_cells_as_its_head(page):
    found = tables(page)
    assert cells(found[2][2])[-2:] == ["≤ 250, 350", "**MISSED**, met"]
    assert len(found) == 3  # the promises, poll, coordinator
    for rows in found:
        assert {len(cells(row)) for row in rows} == {len(cells(rows[0]))}


def test_the_promises_come_first_with_goal_figure_alternative_and_verdict(page):
    promised = {cells(row)[0]: cells(row) for row in tables(page)[0]}
    row = promised["an unchanged poll, end to end: at least 300 times less CPU than git ls-remote"]
    assert row[2:] == [
        "[poll](#poll)",
        "≥ 300",
        "323 ×less",
        "unchanged poll: 0.110 ms CPU ±9%",
        "35.5 ms CPU ±1%, git ls-remote",
        "met",
    ]
    assert promised["the coordinator takes at most 250 MB without workers"][-1] == "**MISSED**"
    assert promised["the cost of a poll from 100 to 1M repos, shown"][-1] == "shown"
    assert promised["500 hooks a second: at most one sync per repo and change"][-1] == "not measured"


def test_what_was_missed_stands_with_its_limit_harmless_in_markdown(page):
    assert (
        "- the coordinator takes at most 250 MB without workers: imports \\| alone take &lt;120> MB." in page
    )
    assert "> hooks did not run to its end: RuntimeError: no port \\| was free" in page


def test_the_sentence_counts(page):
    assert re.search(r"\*\*3 of 4 promised figures met, 3 more promised to be shown and shown, \d+ not", page)


def test_each_benchmark_has_its_lines_and_the_command_that_repeats_it(page):
    for name in ("poll", "coordinator", "growth", "hooks"):
        assert f"### {name}\n" in page
        assert f"`make bench BENCH={name}`" in page


def test_charts_are_there_told_in_words_and_nothing_stale_is_left(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for name in ("bench-old.svg", "dashboard.png", "other.svg"):
        (images / name).write_text("old")
    text = write_page(RECORD, tmp_path).read_text("utf-8")
    shown = re.findall(r"!\[(.*)\]\((images/[^)]+)\)", text)
    assert len(shown) == 2
    for alt, file in shown:
        assert (tmp_path / file).read_text("utf-8").startswith("<svg ")
        assert len(alt) > 40
    assert CURVE.says in text
    assert sorted(f.name for f in images.iterdir()) == sorted(
        ["dashboard.png", "other.svg", *(file.removeprefix("images/") for _, file in shown)]
    )


def test_lines_of_one_thing_against_several_alternatives_become_bars():
    alone = Line("sync", "ms CPU", (1.0,), (2.0,), against="git fetch")
    (chart,) = charts(record_of(ran("poll", POLL, DULWICH, alone)))
    assert chart.title == "Unchanged poll (ms CPU)"
    assert (
        "evermirror: 0.11; dulwich: 1.75 (ours 15.9 ×less); git ls-remote: 35.5 (ours 323 ×less)" in chart.alt
    )


def test_charts_of_the_same_name_do_not_overwrite_each_other(tmp_path):
    write_page(record_of(ran("growth", CURVE, CURVE)), tmp_path)
    assert len(list((tmp_path / "images").iterdir())) == 2


def test_it_can_be_made_again_from_the_json_beside_it(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_page(RECORD, first)
    write_page(read(first / "benchmarks.json"), second)
    for file in first.rglob("*.*"):
        assert (second / file.relative_to(first)).read_bytes() == file.read_bytes()


def test_a_busy_machine_a_part_and_tiny_sizes_are_said(tmp_path):
    busy = replace(RECORD, whole=False, quick=True, machine={**MACHINE, "load_before": 3.2})
    text = write_page(busy, tmp_path).read_text("utf-8")
    assert "> The machine was busy before (load 3.2)" in text
    assert "> Not all benchmarks were run" in text
    assert "> Sizes were tiny" in text
    assert "> " not in write_page(record_of(ran("poll", POLL)), tmp_path).read_text("utf-8")


def test_hostile_words_stay_words(tmp_path):
    odd = Line("a|b\n<img> [x](y) `c` *d* _e_", "ms|", (1.0,), sense=Sense.AT_MOST)
    text = write_page(record_of(ran("poll", odd)), tmp_path).read_text("utf-8")
    row = cells(tables(text)[1][2])
    assert row[0] == "a\\|b &lt;img> \\[x\\](y) \\`c\\` \\*d\\* \\_e\\_"
    assert len(row) == 11
