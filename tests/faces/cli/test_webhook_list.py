"""`webhook list`: what it asks, and how it shows what it is told."""

from __future__ import annotations

import json

import pytest

from tests.faces.cli.test_program import on_terminal

HOOKS = {
    "trust": "silent", "since": "2026-11-15T20:20:00Z", "received": 7, "last_at": "2026-11-15T20:20:00Z",
    "told": 0, "missed": 3, "needed": 10, "told_total": 5, "missed_total": 4,
}  # fmt: skip
MADE = {
    "forge": "github",
    "state": "missing",
    "problem": "gone\x1b[31m",
    "checked_at": "2026-11-15T20:20:00Z",
}
ITEMS = [
    {"repo": "github.com/o/a\x1b[31m", "hooks": HOOKS, "registration": None},
    {"repo": "github.com/o/b", "hooks": None, "registration": MADE},
]


def page(items=(), cursor=None):
    return 200, {"items": list(items), "next_cursor": cursor}


def test_each_repo_is_a_line(ask, api):
    api.on("GET", "/api/hooks", page(ITEMS))
    result = ask("webhook", "list")
    assert (result.returncode, result.stderr) == (0, "")
    head, first, second = result.stdout.splitlines()
    assert head.split()[:2] == ["repository", "hooks"]
    assert first.split()[1] == "silent"
    assert " 5 " in first
    assert second.split()[1] == "–"
    assert "missing" in second
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], {}),
        (["--silent"], {"trust": ["silent"]}),
        (["--reliable"], {"trust": ["reliable"]}),
        (["--missing"], {"state": ["missing"]}),
        (
            ["--silent", "--missing", "--search", "o/"],
            {"trust": ["silent"], "state": ["missing"], "search": ["o/"]},
        ),
    ],
)
def test_options_are_asked_of_the_server(ask, api, options, asked):
    api.on("GET", "/api/hooks", page())
    assert ask("webhook", "list", *options).returncode == 0
    assert api.asked[0][2] == {**asked, "limit": ["50"]}


def test_all_pages_are_shown_and_json_is_one_object(ask, api):
    api.on("GET", "/api/hooks", page(ITEMS[:1], "next"), page(ITEMS[1:]))
    assert len(ask("webhook", "list", "--all").stdout.splitlines()) == 4
    assert api.asked[1][2]["cursor"] == ["next"]
    api.on("GET", "/api/hooks", page(ITEMS[:1], "next"), page(ITEMS[1:]))
    assert json.loads(ask("webhook", "list", "--all", "--json").stdout) == {
        "items": ITEMS,
        "next_cursor": None,
    }


def test_none_is_said_in_words_and_in_chinese_to_who_reads_it(ask, api):
    api.on("GET", "/api/hooks", page())
    assert ask("webhook", "list").stdout == "no repositories\n"
    chinese = {"LC_ALL": "zh_CN.UTF-8"}
    assert ask("webhook", "list", env=chinese).stdout == "没有仓库\n"
    api.on("GET", "/api/hooks", page(ITEMS))
    head, first, second = ask("webhook", "list", env=chinese).stdout.splitlines()
    assert head.split()[:4] == ["仓库", "webhook", "自", "最近一次"]
    assert (first.split()[1], "缺失" in second) == ("无声", True)


@pytest.mark.parametrize("letters", [60, 80])
def test_a_small_terminal_has_room_for_keys_and_problems_have_lines_of_their_own(api, tmp_path, letters):
    long = "The token needs the right to manage hooks: add it at the forge, then register again. " * 2
    items = [{**ITEMS[1], "registration": {**MADE, "problem": long}}]
    api.on("GET", "/api/hooks", page(items))
    shown = on_terminal(
        ["webhook", "list", "--server", api.url], {"COLUMNS": str(letters)}, tmp_path
    ).decode()
    assert "│ github.com/o/b " in shown
    assert "│ missing " in shown
    assert f"github.com/o/b: {long.strip()}" in shown
    assert "told" not in shown


def test_both_at_once_is_refused_before_anything_is_asked(ask, api):
    result = ask("webhook", "list", "--silent", "--reliable")
    assert result.returncode == 2
    assert "No repository is both" in result.stderr
    assert api.asked == []


def test_the_status_of_a_repo_tells_of_its_hooks(ask, api):
    repo = {"key": "github.com/o/a", "git_url": "https://github.com/o/a", "hooks": HOOKS, "holders": []}
    api.on("GET", "/api/repos/github.com/o/a", (200, repo))
    api.on("GET", "/api/repos/github.com/o/a/-/tasks", page())
    result = ask("status", "github.com/o/a")
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("hooks")]
    assert "silent   since " in line
    assert "the last came" in line
    api.on("GET", "/api/repos/github.com/o/a", (200, {**repo, "hooks": None}))
    assert not [x for x in ask("status", "github.com/o/a").stdout.splitlines() if x.startswith("hooks")]
