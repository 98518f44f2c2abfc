"""`simulate polling`: runs on a history file, compares policies, and refuses what it cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evermirror.sim.compare import NAMES


@pytest.fixture
def traces(tmp_path: Path) -> str:
    """Three repos over 40 days: one busy, one quiet, one silent."""
    minutes = [np.arange(-57_600, 0, 60), np.arange(-57_600, 0, 5_000), np.array([-57_600])]
    file = tmp_path / "traces.npz"
    np.savez(
        file,
        name=np.array(["busy", "quiet", "silent"]),
        offset=np.cumsum([0, *(len(m) for m in minutes)]),
        minutes_before_end=np.concatenate(minutes).astype(np.int32),
        end_unix=np.int64(1_790_000_000),
    )
    return str(file)


def test_one_policy_prints_its_figures_as_json(run, traces):
    args = ["--traces", traces, "--policy", "adaptive", "--mean-gap", "2h", "--days", "10", "--json"]
    result = run("simulate", "polling", *args)
    assert (result.returncode, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert (answer["policy"], answer["mean_gap_s"], answer["repos"]) == ("adaptive", 7200, 3)
    assert answer["p50_s"] <= answer["p95_s"] <= answer["largest_gap_s"]
    assert 0 <= answer["share_within_5min"] <= 1


def test_several_policies_are_compared_in_one_table(run, traces):
    policies = ["--policy", "cbrt-age", "--policy", "adaptive"]
    result = run("simulate", "polling", "--traces", traces, *policies, "--days", "10")
    assert result.returncode == 0, result.stderr
    head, *rows = result.stdout.splitlines()
    assert head.split()[:4] == ["policy", "mean", "delay", "ratio"]
    assert [r.split()[0] for r in rows] == ["cbrt-age", "adaptive"]
    assert "1.000" in rows[0]


def test_hooks_are_tried_reliable_and_silent(run, traces):
    result = run("simulate", "polling", "--traces", traces, "--hooks", "0.5", "--days", "10")
    assert result.returncode == 0, result.stderr
    head, *rows = result.stdout.splitlines()
    assert head.endswith("of hooked")
    assert [row.split("  ")[0] for row in rows] == [
        "adaptive", "adaptive, hooks reliable", "adaptive, hooks silent",
    ]  # fmt: skip
    answer = run("simulate", "polling", "--traces", traces, "--hooks", "1", "--days", "10", "--json")
    assert [r["hooks"] for r in json.loads(answer.stdout)] == ["", "reliable", "silent"]


def test_rules_of_others_and_the_oracle_stand_beside_ours(run, traces):
    result = run("simulate", "polling", "--traces", traces, "--policy", "all", "--days", "10")
    assert (result.returncode, result.stderr) == (0, "")
    head, *rows, bound = result.stdout.splitlines()
    assert {"quiet half", "by repo", "polls"} <= {column.strip() for column in head.split("  ")}
    assert [row.split()[0] for row in rows] == [
        "adaptive", "cbrt-age", "uniform", "classes", "gitlab", "sourcegraph", "software-heritage",
        "three-counts", "clairvoyant", "oracle",
    ]  # fmt: skip
    assert bound.startswith("no schedule with this budget has a mean delay below")
    answer = run(
        *("simulate", "polling", "--traces", traces, "--policy", "uniform,oracle", "--policy", "gitlab"),
        *("--days", "10", "--json"),
    )
    told = json.loads(answer.stdout)
    assert [r["policy"] for r in told] == ["uniform", "oracle", "gitlab"]
    assert [r["least_mean_s"] is None for r in told] == [True, False, True]
    assert told[0]["polls"] == told[2]["polls"] == 720


def test_histories_are_made_kept_and_read_again(run, tmp_path):
    given = ["--policy", "uniform,adaptive", "--days", "10", "--json"]
    kept = str(tmp_path / "kept.npz")
    first = run("simulate", "polling", "--made", "200", "--seed", "3", "--out", kept, *given)
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)[0]["repos"] == 200
    again = run("simulate", "polling", "--traces", kept, *given)
    assert json.loads(again.stdout) == json.loads(first.stdout)
    other = run("simulate", "polling", "--made", "200", *given)
    assert json.loads(other.stdout) != json.loads(first.stdout), "the seed is 1 unless told"


def test_a_file_that_is_there_is_not_written_over_and_nothing_is_made_first(run, tmp_path):
    kept = tmp_path / "kept.npz"
    kept.write_text("mine")
    result = run("simulate", "polling", "--made", "0", "--out", str(kept))
    assert result.returncode == 2
    assert "is there already" in result.stderr
    assert kept.read_text() == "mine"


def test_help_names_every_policy(run):
    said = run("simulate", "polling", "--help").stdout
    assert [name for name in NAMES if name not in said] == []


@pytest.mark.parametrize(
    "args",
    [
        ["--traces", "{good}", "--made", "5"],
        ["--traces", "{good}", "--seed", "5"],
        ["--traces", "{good}", "--out", "x.npz"],
        ["--made", "0"],
        ["--made", "many"],
        ["--made", "100001"],
        ["--made", "5", "--out", "{text}"],
        ["--made", "5", "--seed", "-1"],
        ["--made", "5", "--out", "no/where.npz"],
        ["--traces", "{good}", "--policy", "adaptive,magic"],
        ["--traces", "{good}", "--policy", "gitlab", "--hooks", "0.5"],
        ["--traces", "{good}", "--hooks", "1.5"],
        ["--traces", "{good}", "--hooks", "half"],
        ["--traces", "nowhere.npz"],
        ["--traces", "{text}"],
        ["--traces", "{good}", "--policy", "magic"],
        ["--traces", "{good}", "--mean-gap", "soon"],
        ["--traces", "{good}", "--mean-gap", "0s"],
        ["--traces", "{good}", "--days", "0"],
        ["--traces", "{good}", "--days", "36501"],
        [],
    ],
)
def test_what_cannot_be_used_is_2_in_words(args, run, traces, tmp_path):
    (tmp_path / "text").write_text("not an archive")
    given = [a.format(text=tmp_path / "text", good=traces) for a in args]
    result = run("simulate", "polling", *given)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "pickle" not in result.stderr
    assert "Traceback" not in result.stderr
