"""What a person waits for who only types a command: the program's start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Bench, Context, Cost, Line, Sense, Stopwatch, alternate

OURS = (str(Path(sys.executable).with_name("evermirror")), "--version")
PYTHON = (sys.executable, "-c", "pass")
GOAL_S = 0.3


def _started(command: Sequence[str]) -> Cost:
    with Stopwatch() as watch:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return watch.cost


def _run(context: Context) -> list[Line]:
    _started(OURS)  # compiles what was not
    ours, theirs = alternate(context.repeats(11), lambda: _started(OURS), lambda: _started(PYTHON))
    what = "evermirror --version"
    return [
        Line(
            what,
            "s wall",
            tuple(c.wall_s for c in ours),
            tuple(c.wall_s for c in theirs),
            Sense.AT_MOST,
            GOAL_S,
            promise="version",
        ),
        Line(
            what,
            "s CPU",
            tuple(c.cpu_s for c in ours),
            tuple(c.cpu_s for c in theirs),
            Sense.TIMES_AS_MUCH,
        ),
    ]


BENCH = Bench(
    name="command",
    measures="the start of the program for a command",
    alternative="a Python that starts and ends",
    run=_run,
    order=5,
    takes_s=6,
)
