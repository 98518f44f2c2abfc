"""The benchmarks' own arithmetic, and that each of them still runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import discover, figure_text, row_of, table_text
from bench.measure import Line, Sense, Stopwatch, alternate, spread

ROOT = Path(__file__).parent.parent.parent


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
    ],
)
def test_a_goal_is_judged_by_the_medians(line, figure, met):
    assert line.figure == pytest.approx(figure)
    assert line.met is met


def test_the_table_has_one_row_a_line_and_says_what_was_missed():
    lines = [
        Line("a", "ms", (1.0, 3.0), (200.0,), goal=150),
        Line("b", "MB", (100.0,), sense=Sense.AT_MOST, goal=200),
    ]
    text = table_text([row_of("demo", line) for line in lines])
    assert len(text.splitlines()) == 4
    assert "MISSED" in text.splitlines()[2]
    assert "≥ 150" in text.splitlines()[2]
    assert "MISSED" not in text.splitlines()[3]


def test_figures_are_short():
    shown = [figure_text(x) for x in (None, 1234567.8, 12.34, 1.234, 0.1234, 0.00012)]
    assert shown == ["–", "1,234,568", "12.3", "1.23", "0.123", "0.00012"]
    assert spread((1.0, 2.0, 3.0)) == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", discover())
def test_each_benchmark_runs_and_leaves_its_figures_as_json(name, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "bench", name, "--quick", "--rounds", "1", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    found = json.loads(file.read_text())
    assert found["machine"]["cores"] >= 1
    assert [b["name"] for b in found["benches"]] == [name]
    assert all(line["ours"] for line in found["benches"][0]["lines"])
