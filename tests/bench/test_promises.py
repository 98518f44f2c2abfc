"""What was promised is measured: each promise by a benchmark that there is, in lines that it hands over."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.promises import PROMISES, promised_of
from bench.run import discover
from bench.telling.results import read
from bench.telling.verdicts import State, summary, verdicts
from tests.bench.records import MEMORY, POLL, RECORD, ran, record_of

ROOT = Path(__file__).parent.parent.parent


def test_each_promise_has_a_benchmark_and_says_who_promised():
    benches = discover()
    for key, promise in PROMISES.items():
        assert promise.key == key
        assert promise.bench in benches
        assert re.search(r"issue \d|6-performance", promise.source)
        assert promise.says


@pytest.mark.slow
@pytest.mark.parametrize("name", discover())
def test_each_benchmark_runs_and_is_about_all_that_was_promised_of_it(name, tmp_path):
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
    record = read(file)
    assert record.machine["cores"] >= 1
    assert record.quick
    assert not record.whole
    (one,) = record.benches
    assert one.name == name
    assert one.found
    about = {key for found in one.found for key in found.promises}
    assert {p.key for p in promised_of(name)} == about
    for line in one.lines:
        goals = [PROMISES[key].goal for key in line.promises if PROMISES[key].goal is not None]
        if goals and "made histories" not in line.what:
            assert line.goal in goals, f"“{line.what}” has another goal than was promised"


def test_a_promise_is_judged_by_its_own_goal_on_lines_it_shares():
    found = {v.promise.key: v for v in verdicts(RECORD)}
    assert found["poll"].state is State.MET
    assert found["poll-next"].state is State.MET
    assert found["poll-clients"].state is State.SHOWN
    assert found["coordinator-memory"].state is State.MISSED
    assert found["coordinator-memory"].limit == MEMORY.limit
    assert found["coordinator-crowd-memory"].state is State.MET
    assert found["growth-poll"].state is State.SHOWN
    assert found["hooks-one"].state is State.ABSENT
    assert found["sync"].state is State.ABSENT


def test_a_line_that_is_not_to_be_judged_shows_its_promise():
    (found,) = verdicts(record_of(ran("poll", replace(POLL, goal=None))), [PROMISES["poll"]])
    assert found.state is State.SHOWN


def test_a_promise_on_several_lines_is_met_only_by_all():
    slow = replace(POLL, ours=(1.0,))
    found = verdicts(record_of(ran("poll", POLL, slow)), [PROMISES["poll"]])
    assert [v.state for v in found] == [State.MISSED]


def test_one_sentence_counts_what_was_met():
    keys = ("poll", "poll-next", "coordinator-memory", "coordinator-crowd-memory", "growth-poll", "sync")
    text = summary(verdicts(RECORD, [PROMISES[k] for k in keys]))
    assert text == "3 of 4 promised figures met, 1 more promised to be shown and shown, 1 not measured."
