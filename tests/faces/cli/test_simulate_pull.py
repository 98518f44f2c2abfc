"""`simulate pull`: a day under a strategy, in a table or as JSON, and clear words about what cannot be."""

from __future__ import annotations

import json

import pytest

SMALL = [
    "simulate",
    "pull",
    "--critical",
    "2",
    "--high",
    "4",
    "--normal",
    "10",
    "--low",
    "4",
    "--days",
    "0.5",
]


def test_a_day_is_told_in_a_table(run):
    result = run(*SMALL)
    assert (result.returncode, result.stderr) == (0, "")
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
    assert [rows[name][1] for name in ("critical", "high", "normal", "low")] == ["2", "4", "10", "4"]
    assert int(rows["critical"][2]) >= 100  # in half a day, every ten minutes
    assert "of the source's 16 processors" in result.stdout
    assert "12 h were simulated in" in result.stdout


def test_json_holds_question_and_answer_and_the_same_seed_gives_the_same(run):
    first, second = (json.loads(run(*SMALL, "--seed", "7", "--json").stdout) for _ in range(2))
    assert first.pop("took_s") >= 0
    second.pop("took_s")
    assert first == second
    assert first["study"]["projects"] == {"critical": 2, "high": 4, "normal": 10, "low": 4}
    assert first["study"]["strategy"]["peak_start"] == 9
    assert first["findings"]["most_at_once"] <= 8


def test_the_strategy_makes_the_difference(run):
    """Without peak hours normal projects do not wait for their end."""
    told = [
        json.loads(run(*SMALL, "--json", "--peak-hours", hours).stdout)["findings"]["classes"]["normal"]
        for hours in ("6-12", "none")
    ]
    assert told[0]["longest_wait_s"] > 3600
    assert told[1]["longest_wait_s"] < 60
    assert told[0]["pulls"] < told[1]["pulls"]


def test_an_outage_is_felt(run):
    day = ["simulate", "pull", "--critical", "3", "--high", "0", "--normal", "0", "--low", "0", "--json"]
    calm, away = (json.loads(run(*day, *more).stdout)["findings"] for more in ((), ("--outage", "2h")))
    assert calm["classes"]["critical"]["longest_wait_s"] < 60
    assert away["classes"]["critical"]["failed"] > calm["classes"]["critical"]["failed"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--peak-hours", "9"], "--peak-hours '9' is no part of the day"),
        (["--peak-hours", "9-25"], "--peak-hours '9-25' is no part of the day"),
        (["--time-zone", "Mars/Base"], "'Mars/Base' is not a time zone"),
        (["--days", "0"], "0.0 days cannot be studied"),
        (["--low", "-1"], "projects cannot be studied"),
        (["--normal", "100000"], "100010 projects cannot be studied"),
        (["--off-peak-concurrent", "0"], "a limit is out of bounds"),
        (["--outage", "2d"], "an outage of more than a day cannot be studied"),
        (["--outage", "soon"], "'soon' is not a duration"),
    ],
)
def test_what_cannot_be_is_said(run, more, said):
    result = run(*SMALL, *more)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_the_command_explains_itself(run):
    result = run("simulate", "pull", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Usage: evermirror simulate pull" in result.stdout
    assert "--off-peak-concurrent" in result.stdout
