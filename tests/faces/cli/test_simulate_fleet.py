"""`simulate fleet`: a table or JSON on stdout, a picture in a file, and clear words about what cannot be."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from evermirror.errors import UsageError
from evermirror.faces.cli import simulate_fleet

SMALL = ["simulate", "fleet", "--workers", "9", "--repos", "180", "--mean-size", "5"]


def test_a_lost_third_is_told_in_a_table(run):
    result = run(*SMALL, "--lose", "1/3")
    assert (result.returncode, result.stderr) == (0, "")
    head, assumed, *rows = result.stdout.splitlines()
    assert head == "3 of 9 workers are lost for good"
    assert assumed.startswith("180 repos × 1, 5MB in the mean; 10 MB/s")
    told = {row[:18].strip(): row[18:].strip() for row in rows}
    assert told["brake"] == "not engaged"
    assert "1.00 × what had to move" in told["moved"]
    assert told["every repo owned"].startswith("after 10m2")
    assert "were simulated in" in rows[-1]


def test_the_brake_is_said_before_the_figures(run):
    result = run(*SMALL, "--lose", "2/3")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[2].startswith("The brake engaged after")
    assert "overrules the brake" in result.stdout


def test_json_holds_question_and_answer_and_the_same_seed_gives_the_same(run):
    args = (*SMALL, "--join", "3", "--seed", "7", "--json")
    first, second = (json.loads(run(*args).stdout) for _ in range(2))
    assert first.pop("took_s") >= 0
    second.pop("took_s")
    assert first == second
    assert (first["study"]["change"], first["study"]["count"], first["study"]["seed"]) == ("join", 3, 7)
    assert first["findings"]["moved"] == first["findings"]["cloned"] > 0
    assert {"at_s", "owned", "held", "alive", "upstream_mb_s"} <= set(first["findings"]["points"][0])


def test_the_picture_is_written_and_named(run, here):
    (here / "fleet.svg").write_text("an older one")
    result = run(*SMALL, "--drain", "30%", "--svg", "fleet.svg")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "drawn into fleet.svg"
    drawn = ElementTree.parse(here / "fleet.svg")  # noqa: S314 (our own)
    assert drawn.getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_options_reach_the_study(run):
    given = ["--lose", "1", "--back-after", "2m", "--grace", "5m", "--bandwidth", "3", "--slots", "4"]
    more = ["--replicas", "2", "--trusted", "0.5", "--private", "0.2", "--days", "1", "--hours", "2"]
    study = json.loads(run(*SMALL, *given, *more, "--json").stdout)["study"]
    assert study == {
        "workers": 9,
        "repos": 180,
        "change": "lose",
        "count": 1,
        "replicas": 2,
        "back_after_s": 120,
        "seed": 1,
        "grace_s": 300,
        "bandwidth_mb_s": 3,
        "mean_mb": 5,
        "slots": 4,
        "trusted": 0.5,
        "private": 0.2,
        "longest_s": 26 * 3600,
    }


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--lose", "1/3", "--workers", "0"], "workers is 0"),
        (["--lose", "1/3", "--repos", "0"], "repos is 0"),
        (["--lose", "4/3"], "more than the whole fleet"),
        (["--lose", "101%"], "more than the whole fleet"),
        (["--lose", "x"], "neither a share nor a number"),
        (["--lose", "-1"], "neither a share nor a number"),
        (["--lose", "1/0"], "divides by 0"),
        (["--lose", "0/3"], "no worker at all"),
        (["--lose", "0"], "workers to lose is 0"),
        (["--lose", "10"], "workers to lose is 10"),
        (["--lose", "1/3", "--replicas", "10"], "replicas is 10"),
        (["--lose", "1/3", "--join", "1"], "--lose and --join"),
        ([], "nothing happens"),
        (["--join", "0"], "workers to join is 0"),
        (["--drain", "9"], "nobody is left"),
        (["--drain", "1", "--back-after", "5m"], "only workers that were lost"),
        (["--lose", "1", "--back-after", "soon"], "not a duration"),
        (["--lose", "1", "--grace", "10"], "not a duration"),
        (["--lose", "1", "--bandwidth", "0"], "bandwidth is 0"),
        (["--lose", "1", "--hours", "0"], "time studied is 0"),
        (["--lose", "1", "--svg", "no/such/folder/x.svg"], "No such file or directory"),
        (["--lose", "1", "--svg", "."], "Is a directory"),
    ],
)
def test_what_cannot_be_studied_is_2_with_what_to_do_before_any_work(args, told, run, monkeypatch):
    monkeypatch.setattr("evermirror.sim.fleet.study.run", lambda *_: pytest.fail("the work began"))
    result = run(*SMALL, *args)
    assert (result.returncode, result.stdout) == (2, "")
    assert told in result.stderr
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr


def test_a_picture_that_was_not_there_is_not_left_behind_by_a_run_that_fails(run, here, monkeypatch):
    def fail(*_: object) -> None:
        raise UsageError("no")

    monkeypatch.setattr("evermirror.sim.fleet.study.run", fail)
    assert run(*SMALL, "--lose", "1", "--svg", "fleet.svg").returncode == 2
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [("1/3", 33), ("2/3", 67), ("30%", 30), ("0.5%", 1), (".25", 25), ("0.25", 25), ("7", 7), ("1.0", 100)],
)
def test_shares_and_numbers_of_workers(text, count):
    assert simulate_fleet.part_of(100, text, "--lose") == count
