"""The benchmarks' own arithmetic."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import pytest

from bench.measure import Line, Sense, Stopwatch, alternate, spread
from bench.telling.table import figure_text, table_text, unit_and_time
from tests.bench.records import POLL, ran


def burn() -> None:
    sum(i * i for i in range(300_000))


def test_cpu_of_this_process_and_of_its_children_is_counted():
    with Stopwatch() as here:
        burn()
    with Stopwatch() as child:
        subprocess.run([sys.executable, "-c", "sum(i * i for i in range(3_000_000))"], check=True)
    with Stopwatch() as idle:
        subprocess.run(["sleep", "0.2"], check=True)
    assert here.cost.cpu_s > 0.005
    assert child.cost.cpu_s > 0.05
    assert idle.cost.wall_s > 0.2
    assert idle.cost.cpu_s < 0.1


def test_a_server_that_still_runs_is_in_nobodys_figures():
    loop = "import sys\nprint(flush=True)\nwhile True: sum(range(1000))"
    with subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        with Stopwatch() as watch:
            subprocess.run(["sleep", "0.5"], check=True)
        server.kill()
    assert watch.cost.cpu_s < 0.2


def test_sides_run_in_turn():
    calls: list[str] = []
    alternate(2, lambda: calls.append("ours"), lambda: calls.append("theirs"))
    assert calls == ["ours", "theirs", "ours", "theirs"]


@pytest.mark.parametrize(
    ("line", "figure", "met"),
    [
        (Line("x", "ms", (1.0, 2.0, 9.0), (200.0, 300.0, 100.0), goal=100), 100, True),
        (Line("x", "ms", (2.1,), (200.0,), goal=100), 200 / 2.1, False),
        (Line("x", "ms", (1.3,), (1.0,), Sense.TIMES_AS_MUCH, 1.3), 1.3, True),
        (Line("x", "ms", (1.4,), (1.0,), Sense.TIMES_AS_MUCH, 1.3), 1.4, False),
        (Line("x", "MB", (250.1,), sense=Sense.AT_MOST, goal=250), 250.1, False),
        (Line("x", "per s", (9.0,), sense=Sense.AT_LEAST, goal=8), 9.0, True),
        (Line("x", "ms", (1.0,)), 1.0, None),
        (Line("x", "processes", (0.0,), (9.0,), goal=100), math.inf, True),
        (Line("x", "processes", (0.0,), (0.0,), goal=100), 1.0, False),
    ],
)
def test_a_goal_is_judged_by_the_medians(line, figure, met):
    assert line.figure == pytest.approx(figure)
    assert line.met is met


def test_the_table_has_one_row_a_line_and_says_what_was_missed():
    lines = [
        Line("a", "ms CPU", (1.0, 3.0), (200.0,), goal=150, against="git"),
        Line("b", "MB", (100.0,), sense=Sense.AT_MOST, goal=200),
    ]
    head, _, missed, met = table_text([ran("demo", *lines)]).splitlines()
    assert " ".join(missed.split()) == "demo a ms CPU 2.00 ±50% 200 git 100 ×less ≥ 150 MISSED"
    assert " ".join(met.split()) == "demo b MB 100 – 100 ≤ 200 met"
    assert head.split()[:4] == ["bench", "what", "unit", "time"]


def test_a_line_with_a_first_and_a_next_goal_is_judged_by_both():
    shown = [
        table_text([ran("poll", replace(POLL, ours=(ours,), limit="handshakes"))]).splitlines()[2:]
        for ours in (0.1, 0.2, 1.0)
    ]
    assert [row.partition("≥")[2] for row, *_ in shown] == [
        " 100, 300  met",
        " 100, 300  met, MISSED",
        " 100, 300  MISSED",
    ]
    assert [len(limit) for _, *limit in shown] == [0, 1, 1]


def test_below_a_missed_line_stands_its_limit_and_below_a_met_one_does_not():
    over = Line("RSS", "MB", (300.0,), sense=Sense.AT_MOST, goal=250, limit="imports take 120 MB")
    shown = table_text([ran("demo", over, replace(over, ours=(200.0,)))]).splitlines()
    assert shown[3].strip() == "the limit: imports take 120 MB"
    assert len(shown) == 5


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("ms CPU", ("ms", "CPU")),
        ("s wall", ("s", "wall")),
        ("CPU-s/GB", ("CPU-s/GB", "CPU")),
        ("s CPU of git at the source", ("s CPU of git at the source", "CPU")),
        ("MB", ("MB", "")),
        ("", ("", "")),
    ],
)
def test_the_table_says_which_time_a_unit_is_of(unit, told):
    assert unit_and_time(unit) == told


def test_figures_are_short():
    shown = [figure_text(x) for x in (None, 1234567.8, 12.34, 1.234, 0.1234, 0.00012, math.inf)]
    assert shown == ["–", "1,234,568", "12.3", "1.23", "0.123", "0.00012", "∞"]
    assert spread((1.0, 2.0, 3.0)) == 0.5
    assert spread((-1.0, -2.0, -3.0)) == 0.5
