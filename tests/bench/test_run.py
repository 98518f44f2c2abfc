"""A run: one that breaks, hangs or is stopped costs no other its figures; and the words of the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.measure import Bench, Context, Line, Sense, Shared
from bench.run import OverdueError, discover, names, progress_text, run_all, run_one, time_text
from bench.telling.facts import machine_facts, same_machine, warnings
from bench.telling.results import Ran, read

ROOT = Path(__file__).parent.parent.parent
LINE = Line("x", "ms CPU", (1.0,), sense=Sense.AT_MOST)


def bench(name: str, run, takes_s: float = 30.0) -> Bench:
    return Bench(name, f"measures {name}", "nothing", run, takes_s=takes_s)


def breaks(_context: Context) -> list[Line]:
    raise RuntimeError("no port was free")


def hangs(_context: Context) -> list[Line]:
    time.sleep(60)
    return [LINE]


def one(of: Bench, tmp_path: Path, overdue_s: float | None = None) -> Ran:
    return run_one(of, lambda folder: Context(folder, Shared(tmp_path)), overdue_s)


def test_one_that_breaks_costs_the_others_nothing(capsys):
    told: list[Ran] = []
    benches = [bench("a", lambda _: [LINE]), bench("b", breaks), bench("c", lambda _: [LINE])]
    run_all(benches, Context, told.append)
    assert [(ran.name, len(ran.found), ran.error) for ran in told] == [
        ("a", 1, ""),
        ("b", 0, "RuntimeError: no port was free"),
        ("c", 1, ""),
    ]
    assert "b did not run to its end: RuntimeError: no port was free" in capsys.readouterr().err


def test_one_that_hangs_is_ended(tmp_path):
    began = time.monotonic()
    ran = one(bench("a", hangs), tmp_path, 0.2)
    assert ran.error.startswith(OverdueError.__name__)
    assert time.monotonic() - began < 30
    assert one(bench("b", lambda _: [LINE]), tmp_path, 1.0).error == ""
    time.sleep(1.1)  # no alarm is left behind


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (Line("x", "ms", ()), "“x” has no samples"),
        (Line("x", "ms", (1.0,), promise="pol"), "no promise of this benchmark: pol"),
        (Line("x", "ms", (1.0,), promise="sync"), "no promise of this benchmark: sync"),
        (Line("x", "ms", (1.0,), promise="poll poll-next"), ""),
    ],
)
def test_a_line_that_means_nothing_counts_as_broken_and_the_others_stay(line, error, tmp_path):
    ran = one(bench("poll", lambda _: [LINE, line]), tmp_path)
    assert ran.error == error
    assert LINE in ran.found


def test_what_several_need_is_made_once_and_gone_afterwards():
    made: list[Path] = []

    def needs(context: Context) -> list[Line]:
        assert context.shared.made("world", made.append).is_dir()
        return [LINE]

    told: list[Ran] = []
    run_all([bench("a", needs), bench("b", needs)], Context, told.append)
    assert [ran.error for ran in told] == ["", ""]
    assert len(made) == 1
    assert not made[0].exists()


def test_progress_says_where_it_is_and_how_long_it_takes_yet():
    benches = [bench("a", breaks, 60), bench("b", breaks, 240), bench("c", breaks, 45)]
    assert progress_text(benches, 0) == "1 of 3: a, about 6 min left"
    assert progress_text(benches, 2) == "3 of 3: c, about 45 s left"
    assert progress_text(benches, 1, quick=True) == "2 of 3: b"
    assert time_text(0.2) == "1 s"


def test_all_together_promise_to_stay_within_22_minutes():
    assert sum(b.takes_s for b in discover().values()) <= 22 * 60


def test_a_benchmark_is_named_as_its_file_and_alone_only_it_is_loaded():
    assert set(discover()) == set(names())
    assert list(discover(["pull-day"])) == ["pull-day"]
    told = "import sys; from bench.run import discover; discover(['command']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]


def test_the_machine_is_described_and_compared():
    facts = machine_facts()
    assert facts["cores"] == os.cpu_count()
    assert json.loads(json.dumps(facts)) == facts
    assert same_machine(facts, {**facts, "kernel": "other"})
    assert not same_machine(facts, {**facts, "cpu": "other"})
    busy = [text for text in warnings({**facts, "load_before": 2.5}) if "busy" in text]
    assert busy == ["the machine is busy (load 2.5): wait until it is idle, or trust the figures less"]
    assert not [text for text in warnings({**facts, "load_before": 0.3}) if "busy" in text]


def test_an_unknown_name_is_refused_with_what_there_is(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["pol", "--quick"])
    said = capsys.readouterr().err
    assert "no benchmark named pol (did you mean poll" in said
    assert "placement" in said


@pytest.mark.parametrize(("flag", "value"), [("--rounds", "0"), ("--rounds", "x"), ("--seconds", "-1")])
def test_odd_numbers_are_refused(flag, value, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["command", flag, value])
    assert f"{value} is not a number" in capsys.readouterr().err


def test_the_list_says_what_each_is_against_and_how_long_all_take(capsys):
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    for name in discover():
        assert f"make bench BENCH={name}\n" in said
    assert "all together about" in said


def test_a_part_writes_json_and_no_page_and_says_so(tmp_path, capsys):
    before = {file: file.stat().st_mtime_ns for file in (ROOT / "docs").glob("benchmarks.*")}
    assert main(["command", "--rounds", "2", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "1 of 1: command, about 6 s left" in said.err
    assert "docs/benchmarks.md stays as it is" in said.out
    (file,) = tmp_path.glob("*.json")
    record = read(file)
    assert [r.name for r in record.benches] == ["command"]
    assert not record.whole
    assert before == {file: file.stat().st_mtime_ns for file in (ROOT / "docs").glob("benchmarks.*")}


def test_the_page_can_be_written_elsewhere_and_again_from_the_json(tmp_path, capsys):
    results, pages = tmp_path / "results", [tmp_path / "a", tmp_path / "b"]
    assert main(["command", "--quick", "--results", str(results), "--page", str(pages[0])]) == 0
    (file,) = results.glob("*.json")
    assert main(["--page-from", str(file), "--page", str(pages[1])]) == 0
    texts = [(folder / "benchmarks.md").read_text() for folder in pages]
    assert "### command" in texts[0]
    assert texts[0] == texts[1]
    assert main(["--page-from", str(file)]) == 2
    assert "is of a part or of tiny sizes" in capsys.readouterr().err
    assert main(["--page-from", str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_whoever_reads_no_further_costs_no_file(tmp_path):
    flags = ["command", "--quick", "--results", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench", *flags], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(60) == 0
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert len(list(tmp_path.glob("*.json"))) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_it_has_what_was_measured_until_then(number, tmp_path):
    flags = ["command", "placement", "--rounds", "5", "--results", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-m", "bench", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        preexec_fn=lambda: (tmp_path / "tmp").mkdir(),
    ) as process:
        for line in process.stderr:
            if "2 of 2: placement" in line:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"Stopped by {number.name}" in err
    assert "evermirror --version" in out
    (file,) = tmp_path.glob("*.json")
    assert [r.name for r in read(file).benches] == ["command"]
    assert list((tmp_path / "tmp").glob("evermirror-bench-*")) == []
