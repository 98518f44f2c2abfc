"""`sync` with all it can be asked for: what goes to the server, and what is shown of the answer."""

from __future__ import annotations

import json

import pytest

from tests.faces.cli.test_client import HOSTILE, KEY, task
from tests.faces.cli.test_program import on_terminal

COMMIT = "ab" * 20
PENDING = (200, {"task_id": "7", "status": "pending"})


@pytest.mark.parametrize(
    ("args", "params"),
    [
        (["--min-commit", COMMIT], {"min_commit": COMMIT}),
        (["--min-commit", COMMIT, "--wait", "20"], {"min_commit": COMMIT, "within": 20.0}),
        (["--min-commit", COMMIT, "--wait"], {"min_commit": COMMIT, "within": 600.0}),
        (["--min-commit", COMMIT, "--wait", "3d"], {"min_commit": COMMIT, "within": 3600.0}),
        (["--priority", "critical", "--force"], {"priority": "critical", "force": True}),
        (["--wait"], {}),
    ],
)
def test_what_is_asked_for_reaches_the_server(args, params, ask, api):
    api.on("POST", "/api/tasks", PENDING)
    api.on("GET", "/api/tasks/7", (200, task("skipped", {}, "100%")))
    result = ask("sync", KEY, *args)
    assert result.returncode == 0, result.stderr
    assert api.asked[0][3] == {"git_url": KEY, "additional_params": params}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--min-commit", "abc"], "40 or 64 hex digits"),
        (["--min-commit", "g" * 40], "40 or 64 hex digits"),
        (["--min-commit", COMMIT + "\n"], "40 or 64 hex digits"),
        (["--min-commit", HOSTILE], "40 or 64 hex digits"),
        (["--priority", "urgent"], "critical, high, normal, low"),
        (["--wait", "9y"], "9y"),
        (["--wait=-5"], ""),
        (["--wait=nan"], ""),
        (["--wait=soon"], ""),
    ],
)
def test_wrong_ones_are_refused_before_anything_is_asked(args, words, ask, api):
    result = ask("sync", KEY, *args)
    assert (result.returncode, api.asked) == (2, []), result.stderr
    assert words in " ".join(result.stderr.split())
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stderr)


CHANGES = [
    {"ref": "refs/heads/main", "old": "a" * 40, "new": "b" * 40},
    {"ref": "refs/heads/x", "old": None, "new": "c" * 40},
    {"ref": "refs/heads/y", "old": "d" * 40, "new": None},
    {"ref": "refs/heads/z", "old": "e" * 40, "new": "f" * 40},
]
KEPT = [
    {"ref": "refs/heads/main", "why": "rewritten"},
    {"ref": "refs/heads/y", "why": "deleted"},
    "odd",
]


def test_refs_that_moved_are_shown_with_their_marks_and_how_it_was_done(ask, api):
    about = {"commits": 3, "received_bytes": 1234, "duration_s": 0.25, "worker": "ann"}
    result = {"changes": CHANGES, "changes_total": 4, "kept": KEPT, **about}
    api.on("POST", "/api/tasks", PENDING)
    api.on("GET", "/api/tasks/7", (200, task("success", result, "100%")))
    out = ask("sync", KEY, "--wait").stdout
    assert f"{KEY}: 4 refs moved (3 commits, 1.2kB, in 250 ms, by ann)\n" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["refs/heads/main", "a" * 12, "b" * 12, "rewritten"] in rows
    assert ["refs/heads/x", "–", "c" * 12, "new"] in rows
    assert ["refs/heads/y", "d" * 12, "–", "deleted"] in rows
    assert ["refs/heads/z", "e" * 12, "f" * 12] in rows


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({}, ""),
        ({"duration_s": 75, "worker": None, "commits": 0, "received_bytes": 0}, " (in 1.2 min)"),
        ({"worker": HOSTILE}, " (by evil"),
        ({"duration_s": "x", "worker": 7, "commits": None, "received_bytes": "x", "kept": 5}, ""),
    ],
)
def test_only_what_is_known_is_said(about, words, ask, api):
    api.on("POST", "/api/tasks", PENDING)
    api.on("GET", "/api/tasks/7", (200, task("skipped", about, "100%")))
    result = ask("sync", KEY, "--wait")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{KEY}: nothing had changed{words or chr(10)}")
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(result.stdout)


def test_the_bar_shows_the_phase_and_the_percentage(api, tmp_path):
    api.on("POST", "/api/tasks", PENDING)
    running = [(200, {**task("running", progress="42%"), "phase": "receiving"})] * 3
    api.on("GET", "/api/tasks/7", *running, (200, task("success", {}, "100%")))
    out = on_terminal(["sync", KEY, "--wait", "--server", api.url], {}, tmp_path).decode()
    assert "receiving" in out
    assert "42 %" in out


def test_an_aggregator_is_given_a_moment_to_have_it_too(ask, api):
    api.on("POST", "/api/tasks", PENDING)
    behind, there = ({**task("success", {}, "100%"), "served": s} for s in (False, True))
    api.on("GET", "/api/tasks/7", (200, behind), (200, behind), (200, there))
    result = ask("sync", KEY, "--wait", "--json")
    assert json.loads(result.stdout)["served"] is True
    assert len(api.asked) == 4


def test_an_aggregator_that_does_not_have_it_is_told_of(ask, api):
    api.on("POST", "/api/tasks", PENDING)
    api.on("GET", "/api/tasks/7", (200, {**task("success", {}, "100%"), "served": False}))
    result = ask("sync", KEY, "--wait", "1s")
    assert result.returncode == 0, result.stderr
    assert "does not have it yet" in " ".join(result.stderr.split())
