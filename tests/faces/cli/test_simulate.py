"""`simulate polling`: runs on a history file, compares policies, and refuses what it cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest


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


@pytest.mark.parametrize(
    "args",
    [
        ["--traces", "nowhere.npz"],
        ["--traces", "{text}"],
        ["--traces", "{good}", "--policy", "magic"],
        ["--traces", "{good}", "--mean-gap", "soon"],
        ["--traces", "{good}", "--mean-gap", "0s"],
        ["--traces", "{good}", "--days", "0"],
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
