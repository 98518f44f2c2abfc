"""`evermirror alerts …`: what the server is asked, and what a person sees, in English or Chinese."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evermirror.faces.cli import alerts
from evermirror.faces.cli.alert_labels import _CHINESE
from tests.faces.cli.conftest import clean_env
from tests.faces.cli.pull_answers import CHINESE, HOSTILE, page
from tests.faces.cli.test_program import on_terminal

ALERT = {
    "id": 17, "kind": "project-failing", "level": "error", "about": "devops/core", "title": "Project fails",
    "text": "it failed 3 times in a row", "standing": True, "raised_at": "2025-12-13T23:50:00Z",
    "changed_at": "2025-12-13T23:55:00Z", "ended_at": None, "end_text": "", "silenced_by": None,
    "facts": {"failures": "3"},
}  # fmt: skip
SILENCED = {**ALERT, "id": 16, "silenced_by": 3}
OVER = {
    **ALERT, "id": 15, "level": "critical", "standing": False, "ended_at": "2025-12-13T23:58:00Z",
    "end_text": "it works again",
}  # fmt: skip
NOTICES = [
    {
        "channel": "ops", "turn": "raised", "state": "sent", "created_at": "2025-12-13T23:50:00Z",
        "sent_at": "2025-12-13T23:50:01Z", "given_up_at": None, "attempts": 1, "next_attempt_at": None,
        "error": "",
    },
    {
        "channel": "mail", "turn": "over", "state": "waiting", "created_at": "2025-12-13T23:58:00Z",
        "sent_at": None, "given_up_at": None, "attempts": 4, "next_attempt_at": "2025-12-14T00:00:00Z",
        "error": "421 try later",
    },
]  # fmt: skip
CHANNELS = {
    "items": [
        {"name": "ops", "type": "dingtalk", "state": "fine", "waiting": 0,
         "sent_at": "2025-12-13T23:50:01Z", "failing_since": None, "error": ""},
        {"name": "mail", "type": "mail", "state": "failing", "waiting": 4, "sent_at": None,
         "failing_since": "2025-12-13T23:40:00Z", "error": "no answer"},
        {"name": "hook", "type": "webhook", "state": "unused", "waiting": 0, "sent_at": None,
         "failing_since": None, "error": ""},
    ]
}  # fmt: skip
SILENCE = {
    "id": 3, "kind": "project-*", "about": "devops/*", "until": "2025-12-14T01:55:00Z", "by": "ann",
    "reason": "moving house", "created_at": "2025-12-13T23:55:00Z",
}  # fmt: skip
UTC = {"TZ": "UTC"}


def test_what_stands_is_listed(ask, api):
    api.on("GET", "/api/alerts", page(ALERT, SILENCED))
    out = ask("alerts", "list", env=UTC).stdout
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert rows[1:] == [
        ["Id", "Level", "Alert", "About", "What", "Since", "State"],
        ["17", "error", "Project fails", "devops/core", "it failed 3 times in a row",
         "2025-12-13 23:50:00", "standing"],
        ["16", "error", "Project fails", "devops/core", "it failed 3 times in a row",
         "2025-12-13 23:50:00", "standing, silenced"],
    ]  # fmt: skip
    assert api.asked[0][2] == {"state": ["standing"], "language": ["en"], "page": ["1"], "size": ["50"]}


@pytest.mark.parametrize("width", [80, 100, 159])
def test_on_a_terminal_the_text_has_the_room_and_no_word_is_cut(api, tmp_path, width):
    text = "could not resolve the name of the source after three attempts in a row, one hour apart"
    named = {**ALERT, "id": 18, "text": f"devops/core failed: {text}", "level": "critical"}
    api.on("GET", "/api/alerts", page({**ALERT, "text": text}, named, SILENCED, OVER))
    env = {"COLUMNS": str(width), "NO_COLOR": "1", **UTC}
    args = ["alerts", "list", "--all", "--server", api.url]
    out = on_terminal(args, env, tmp_path).decode()
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert lines[1] == ["Id", "Level", "Since", "State", "What"]
    rows: dict[str, list[str]] = {}
    cells: dict[str, list[str]] = {}
    row = ""
    for number, *middle, what in lines[2:]:
        row = number or row  # a row's further lines have no number
        rows.setdefault(row, []).append(what)
        cells.setdefault(row, middle)
    assert cells == {
        "17": ["error", "12-13 23:50", "–"], "18": ["critical", "12-13 23:50", "–"],
        "16": ["error", "12-13 23:50", "silenced"], "15": ["critical", "12-13 23:50", "over"],
    }  # fmt: skip
    assert " ".join(rows["17"]) == f"devops/core: {text}"
    assert " ".join(rows["18"]) == f"devops/core failed: {text}"
    assert len(rows["17"]) <= 3


def test_options_reach_the_server(ask, api):
    api.on("GET", "/api/alerts", page(OVER))
    given = ["--all", "--level", "error", "--kind", "worker-down", "--about", "w7", "--limit", "5"]
    times = ["--from", "2025-12-13T00:00:00Z", "--to", "2025-12-14T00:00:00Z"]
    done = ask("alerts", "list", *given, *times, env=UTC)
    assert api.asked[0][2] == {
        "state": ["all"], "language": ["en"], "level": ["error"], "kind": ["worker-down"], "about": ["w7"],
        "from": ["2025-12-13T00:00:00Z"], "to": ["2025-12-14T00:00:00Z"], "page": ["1"], "size": ["5"],
    }  # fmt: skip
    assert "over since 2025-12-13 23:58:00" in done.stdout


def test_a_list_that_goes_on_says_so_and_an_empty_one_too(ask, api):
    api.on("GET", "/api/alerts", page(ALERT, total=9), page(), page())
    assert "1 of 9 shown; --limit shows more" in ask("alerts", "list", "--limit=1").stdout
    assert ask("alerts", "list").stdout == "no alerts stand\n"
    assert ask("alerts", "list", "--all").stdout == "no alerts\n"


def test_one_alert_is_shown_with_who_was_told(ask, api):
    api.on("GET", "/api/alerts/15", (200, {**OVER, "notices": NOTICES}), (200, {**ALERT, "notices": []}))
    out = ask("alerts", "show", "15", env=UTC).stdout
    for words in (
        "Alert 15: Project fails", "Level: critical", "Kind: project-failing", "About: devops/core",
        "State: over since 2025-12-13 23:58:00", "How it ended: it works again",
        "│ ops     │ raised │ sent    │ 2025-12-13 23:50:01 │ 1     │ –             │",
        "│ mail    │ over   │ waiting │ 2025-12-13 23:58:00 │ 4     │ 421 try later │",
    ):  # fmt: skip
        assert words in out
    out = ask("alerts", "show", "15").stdout
    assert "nobody was told" in out
    assert "How it ended" not in out


def test_chinese_readers_see_chinese(ask, api):
    told = {**ALERT, "title": "项目同步失败", "text": "连续失败 3 次"}
    api.on("GET", "/api/alerts", page(told, {**SILENCED, **told, "silenced_by": 1}, OVER, total=9))
    api.on("GET", "/api/alerts/17", (200, {**told, "notices": NOTICES}))
    api.on("GET", "/api/alerts/channels", (200, CHANNELS))
    api.on("GET", "/api/alerts/silences", (200, {"items": [SILENCE]}))
    api.on("POST", "/api/alerts/silences", (201, SILENCE))
    api.on("DELETE", "/api/alerts/silences/3", (200, {"id": 3, "status": "removed"}))
    out = ask("alerts", "list", "--all", env=CHINESE).stdout
    assert api.asked[0][2]["language"] == ["zh"]
    for words in (
        "│ 告警",
        "错误",
        "项目同步失败",
        "持续中，已静默",
        "已于 2025-12-13 23:58:00 恢复",
        "共 9 条",
    ):
        assert words in out
    rest = [
        ask("alerts", "show", "17", env=CHINESE),
        ask("alerts", "channels", env=CHINESE),
        ask("alerts", "silences", env=CHINESE),
        ask("alerts", "silence", "project-*", "--for", "2h", env=CHINESE),
        ask("alerts", "unsilence", "3", env=CHINESE),
    ]
    out += "".join(done.stdout for done in rest)
    for text in _CHINESE:
        if "{" not in text and text[0].isupper():
            assert f"│ {text} " not in out, text
            assert f"{text}:" not in out, text
    assert "静默 3: project-*，对象 devops/*，至 2025-12-14 01:55:00" in rest[3].stdout
    assert rest[4].stdout == "静默 3 已结束\n"


def test_every_label_is_translated_and_every_translation_used():
    source = Path(alerts.__file__).read_text("utf-8")
    said = set()
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "label":
            texts = [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)]
            said.update(text for text in texts if isinstance(text, str))
    fields = {"level", "state", "turn", "sent", "silenced_by"}  # of answers that labels are chosen by
    assert said - fields - _CHINESE.keys() == set()
    of_answers = {"warning", "error", "critical", "raised", "worse", "over", "test", "waiting", "sent",
                  "given-up", "fine", "unused"}  # fmt: skip
    assert {t for t in _CHINESE if f'"{t}"' not in source and f"'{t}'" not in source} <= of_answers


def test_channels_say_how_they_are(ask, api):
    api.on("GET", "/api/alerts/channels", (200, CHANNELS), (200, CHANNELS), (200, {"items": []}))
    out = ask("alerts", "channels", env=UTC).stdout
    assert "│ ops     │ dingtalk │ fine                              │ 0       │ 2025-12-13 23:50:01 │" in out
    assert "failing since 2025-12-13 23:40:00" in out
    assert "unused" in out
    assert json.loads(ask("alerts", "channels", "--json").stdout) == CHANNELS
    assert ask("alerts", "channels").stdout == "no channels\n"


def test_a_test_fails_where_one_channel_does(ask, api):
    fine, bad = (
        {"channel": "ops", "sent": True, "error": ""},
        {"channel": "mail", "sent": False, "error": "550"},
    )
    api.on("POST", "/api/alerts/test", (200, {"items": [fine]}), (200, {"items": [fine, bad]}))
    done = ask("alerts", "test", "ops")
    assert (done.returncode, api.asked[0][3]) == (0, {"channel": "ops"})
    assert "│ ops     │ sent   │ –     │" in done.stdout
    done = ask("alerts", "test")
    assert (done.returncode, api.asked[1][3]) == (1, {})
    assert "│ mail    │ not sent │ 550   │" in done.stdout
    done = ask("alerts", "test", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, {"items": [fine, bad]})


def test_a_channel_that_is_not_there_and_none_at_all(ask, api):
    missing = {"type": "/problems/not-found", "status": 404, "detail": "there is no channel 'x'"}
    none = {
        "type": "/problems/conflict",
        "status": 409,
        "detail": "no channel is configured",
        "hint": "Add one",
    }
    api.on("POST", "/api/alerts/test", (404, missing), (409, none))
    done = ask("alerts", "test", "x")
    assert (done.returncode, "alerts channels" in done.stderr) == (5, True)
    done = ask("alerts", "test")
    assert (done.returncode, "hint: Add one" in done.stderr) == (1, True)


def test_a_silence_is_made_listed_and_ended(ask, api):
    api.on("POST", "/api/alerts/silences", (201, SILENCE))
    api.on("GET", "/api/alerts/silences", (200, {"items": [SILENCE]}), (200, {"items": []}))
    api.on("DELETE", "/api/alerts/silences/3", (200, {"id": 3, "status": "removed"}))
    done = ask(
        "alerts", "silence", "project-*", "devops/*", "--for", "2h", "--reason", "moving house", env=UTC
    )
    assert done.stdout == "silence 3: project-* about devops/* until 2025-12-14 01:55:00\n"
    assert api.asked[0][3] == {
        "kind": "project-*", "about": "devops/*", "for_s": 7200.0, "reason": "moving house",
    }  # fmt: skip
    ask("alerts", "silence", "worker-down", "--for", "30m", "--json")
    assert api.asked[1][3] == {"kind": "worker-down", "about": "*", "for_s": 1800.0, "reason": ""}
    out = ask("alerts", "silences", env=UTC).stdout
    assert "│ 3  │ project-* │ devops/* │ 2025-12-14 01:55:00 │ ann │ moving house │" in out
    assert ask("alerts", "silences").stdout == "no silences\n"
    assert ask("alerts", "unsilence", "3").stdout == "silence 3 ended\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("list", "--level", "fatal"), "'fatal' is not one of warning, error, critical"),
        (("list", "--from", "soon"), "--from 'soon' is not a time"),
        (("list", "--limit", "0"), "'0' is not a whole number"),
        (("show", "abc"), "'abc' is not the number of one"),
        (("unsilence", "../x"), "'../x' is not the number of one"),
        (("silence", "x", "--for", "2 hours"), "--for '2 hours' is not a duration"),
        (("silence", "x", "--for", "0"), "--for '0' is not"),
        (("silence", "x", "--for", "500d"), "--for '500d' is not"),
        (("silence", "x"), "--for"),
        (("show", "x"), "`evermirror alerts list --all` shows them"),
        (("unsilence", "x"), "`evermirror alerts silences` shows them"),
    ],
)
def test_what_cannot_be_asked_is_told_before_anything_is(ask, api, args, words):
    done = ask("alerts", *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert api.asked == []


@pytest.mark.parametrize(
    ("path", "args", "hint"),
    [
        ("GET /api/alerts/99", ("show", "99"), "alerts list --all"),
        ("DELETE /api/alerts/silences/99", ("unsilence", "99"), "alerts silences"),
    ],
)
def test_what_is_not_there_is_named_with_where_to_look(ask, path, args, hint):
    done = ask("alerts", *args)
    assert done.returncode == 5
    assert "99" in done.stderr
    assert hint in done.stderr


def test_a_token_that_may_not_is_denied(ask, api):
    problem = {"type": "/problems/role-too-low", "status": 403, "detail": "This needs the role operator"}
    api.on("POST", "/api/alerts/silences", (403, problem))
    assert ask("alerts", "silence", "*", "--for", "1h").returncode == 4
    api.on(
        "GET", "/api/alerts", (401, {"type": "/problems/token-needed", "status": 401, "detail": "No token"})
    )
    done = ask("alerts", "list")
    assert (done.returncode, "EVERMIRROR_TOKEN" in done.stderr) == (4, True)


def test_names_from_outside_cannot_write_to_the_terminal(ask, api):
    bad = {**ALERT, "about": HOSTILE, "text": HOSTILE, "title": HOSTILE, "notices": [{"channel": HOSTILE}]}
    api.on("GET", "/api/alerts", page(bad))
    api.on("GET", "/api/alerts/17", (200, bad))
    api.on("GET", "/api/alerts/silences", (200, {"items": [{**SILENCE, "reason": HOSTILE}]}))
    for args in (("list",), ("show", "17"), ("silences",)):
        out = ask("alerts", *args).stdout
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_watching_goes_on_until_it_is_interrupted(api, tmp_path):
    api.on("GET", "/api/alerts", page(ALERT), page())
    running = subprocess.Popen(
        [sys.executable, "-m", "evermirror", "alerts", "list", "--watch", "--json", "--server", api.url],
        env=clean_env(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert running.stdout is not None
        first, second = json.loads(running.stdout.readline()), json.loads(running.stdout.readline())
        assert ([a["id"] for a in first["items"]], second["items"]) == ([17], [])
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(10) == 130
    finally:
        running.kill()
        running.communicate()
