"""`webhook register|check|remove`: what they ask of the API, what they show, how they end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evermirror.faces.cli import webhook, webhook_list, webhook_wait
from evermirror.faces.cli.webhook_labels import _CHINESE
from evermirror.model.forge import Forge
from tests.edge.forge.forge_world import TOKEN, start
from tests.faces.cli.conftest import clean_env
from tests.support.node import NodeThread

ORDERS = "/api/hooks/registrations"
CHINESE = {"LC_ALL": "zh_CN.UTF-8"}


def answer(action: str = "register", state: str = "ended", **more: object) -> dict[str, object]:
    return {
        "id": 7, "action": action, "group": None, "all": True, "actor": "ann", "state": state,
        "started_at": "2026-11-16T12:00:00Z",
        "ended_at": "2026-11-16T12:00:42Z" if state == "ended" else None, "total": 3, "done": 3,
        "counts": {"made": 2, "as it should be": 1}, "items": [], "waiting": None, "error": None, **more,
    }  # fmt: skip


RUNNING = answer(state="running", done=1, counts={"made": 1}, waiting="rate limit of github.com, 60 s more")


def on_order(api, *ends: dict[str, object]) -> None:
    api.on("POST", ORDERS, (202, RUNNING))
    api.on("GET", f"{ORDERS}/7", *((200, end) for end in ends))


def ordered(api) -> object:
    return next(body for method, path, _, body, _ in api.asked if (method, path) == ("POST", ORDERS))


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["register", "a/b", "c/d"], {"action": "register", "repos": ["a/b", "c/d"]}),
        (["register", "--all", "--yes"], {"action": "register", "all": True}),
        (["register", "--all", "-y", "--renew"], {"action": "register", "all": True, "renew": True}),
        (["check", "--group", "github.com/a"], {"action": "check", "group": "github.com/a"}),
        (["check", "--all"], {"action": "check", "all": True}),
        (
            ["remove", "a/b", "--yes", "--credential", "hub", "--forge", "gitee"],
            {"action": "remove", "repos": ["a/b"], "credential": "hub", "forge": "gitee"},
        ),
    ],
)
def test_what_is_given_is_what_is_asked_for(api, ask, args, body):
    on_order(api, RUNNING, answer())
    done = ask("webhook", *args)
    assert done.returncode == 0, done.stderr
    assert ordered(api) == body


def test_what_became_of_the_repositories_is_shown(api, ask):
    on_order(api, RUNNING, answer())
    done = ask("webhook", "register", "--group", "github.com/a")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows == [
        ["hooks", "repositories"],
        ["made", "2"],
        ["as", "it", "should", "be", "1"],
        ["3", "repositories", "in", "42", "s"],
    ]
    assert done.stderr == ""


def test_problems_are_shown_with_the_forges_words_and_end_in_1(api, ask):
    items = [
        {"repo": "github.com/a/x", "did": "refused", "problem": "HTTP 403: The token needs \x1b[31mmore"},
        {"repo": "github.com/a/y", "did": "as it should be", "problem": None},
    ]
    counts = {"refused": 1, "not asked": 40, "as it should be": 1}
    on_order(api, answer(items=items, counts=counts))
    done = ask("webhook", "register", "--group", "github.com/a")
    assert done.returncode == 1
    assert "github.com/a/x" in done.stdout
    assert "HTTP 403: The token needs" in done.stdout
    assert "\x1b" not in done.stdout
    assert "github.com/a/y" not in done.stdout
    assert "not all hooks are as they should be: 1 refused, 40 not asked" in done.stderr


@pytest.mark.parametrize("did", ["missing", "drifted", "refused", "not asked"])
def test_a_check_that_finds_something_ends_in_1(api, ask, did):
    on_order(api, answer("check", counts={did: 1, "as it should be": 2}))
    done = ask("webhook", "check", "--all")
    assert (done.returncode, f"1 {did}" in done.stderr) == (1, True)
    on_order(api, answer("check", counts={"as it should be": 3}))
    assert ask("webhook", "check", "--all").returncode == 0


def test_hosts_without_a_forge_are_a_failure_only_where_they_were_named(api, ask):
    on_order(api, answer(counts={"no forge": 3}))
    assert ask("webhook", "register", "--all", "--yes").returncode == 0
    named = ask("webhook", "register", "plain.org/a")
    assert named.returncode == 1
    assert "--forge says whose API" in named.stderr


def test_an_order_that_was_cut_short_ends_in_1_with_the_reason(api, ask):
    on_order(api, answer(error="the database does not answer"))
    done = ask("webhook", "check", "--all")
    assert (done.returncode, "the database does not answer" in done.stderr) == (1, True)


def test_json_is_the_answer_alone_and_ends_alike(api, ask):
    end = answer("check", counts={"missing": 3})
    on_order(api, RUNNING, end)
    done = ask("webhook", "check", "--all", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (1, end)


def test_a_server_that_is_away_for_a_moment_is_waited_for(api, ask):
    on_order(api, RUNNING)
    api.on("GET", f"{ORDERS}/7", (502, b"<html>"), (200, answer()))
    done = ask("webhook", "register", "a/b")
    assert done.returncode == 0, done.stderr


def test_an_order_of_another_command_is_stopped_by_its_number(api, ask):
    end = answer(error="stopped by ann", done=1, counts={"made": 1})
    api.on("DELETE", f"{ORDERS}/7", (200, end))
    assert ask("webhook", "stop", "7").stdout.split()[:4] == ["hooks", "repositories", "made", "1"]
    assert json.loads(ask("webhook", "stop", "7", "--json").stdout) == end
    assert ask("webhook", "stop", "8").returncode == 5
    assert ask("webhook", "stop", "x").returncode == 2


def test_many_problems_are_counted_and_some_are_shown(api, ask):
    items = [{"repo": f"github.com/a/r{n}", "did": "missing", "problem": "none"} for n in range(200)]
    on_order(api, answer("check", counts={"missing": 200}, items=items))
    done = ask("webhook", "check", "--all")
    assert done.stdout.count("github.com/a/r") == 50
    assert "50 of 200 shown" in done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["register"],
        ["check", "a/b", "--all"],
        ["check", "a/b", "--group", "github.com"],
        ["check", "--group", "github.com", "--all"],
        ["check", "--group", ""],
        ["check", "--group", "//"],
        ["check", ""],
        ["check", "a/b", "--forge", "svn"],
        ["check", "a/b", "--forge", "\x1b[31m"],
        ["register", "--all"],
        ["remove", "a/b"],
        ["remove", "--all"],
        ["frobnicate"],
    ],
)
def test_wrong_usage_ends_in_2_and_nothing_is_asked(api, ask, args):
    done = ask("webhook", *args)
    assert done.returncode == 2, done.stdout
    assert done.stderr
    assert "\x1b" not in done.stderr
    assert api.asked == []


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, "token-needed", 4),
        (403, "forbidden", 4),
        (404, "not-found", 5),
        (409, "conflict", 1),
        (422, "x", 2),
    ],
)
def test_refusals_of_the_server_have_their_codes(api, ask, status, kind, code):
    problem = {"type": f"/problems/{kind}", "title": "No", "status": status, "detail": "not like this"}
    api.on("POST", ORDERS, (status, problem))
    done = ask("webhook", "check", "--all")
    assert (done.returncode, "not like this" in done.stderr) == (code, True)


def test_without_a_server_it_ends_in_3(run):
    assert run("webhook", "check", "--all", env={"EVERMIRROR_SERVER": "http://127.0.0.1:9"}).returncode == 3


@pytest.mark.parametrize("action", ["register", "check", "remove"])
def test_who_does_not_wait_gets_the_number(api, ask, action):
    on_order(api)
    done = ask("webhook", action, "a/b", "--no-wait", *(["--yes"] if action == "remove" else []))
    assert (done.returncode, done.stderr) == (0, "")
    assert "order 7 goes on: `evermirror webhook status 7` shows it" in done.stdout
    assert [method for method, *_ in api.asked] == ["POST"]
    shown = ask("webhook", action, "a/b", "--no-wait", "--json", *(["--yes"] if action == "remove" else []))
    assert json.loads(shown.stdout) == RUNNING


def test_the_orders_under_way_and_of_late_are_listed(api, ask):
    early = answer("check", id=5, all=False, group="github.com/a", error="the database is away\x1b[31m")
    orders = [RUNNING, early, answer("remove", id=4, all=False, total=None)]
    api.on("GET", ORDERS, (200, {"items": orders}))
    done = ask("webhook", "status", env={"TZ": "UTC"})
    assert done.returncode == 0, done.stderr
    head, first, second, third, *below = done.stdout.splitlines()
    assert head.split() == ["order", "what", "about", "by", "begun", "state", "done"]
    assert first.split()[:4] == ["7", "register", "all", "ann"]
    assert first.split()[4:] == ["11-16", "12:00", "running", "1", "of", "3"]
    assert second.split()[:3] == ["5", "check", "github.com/a"]
    assert "ended early" in second
    assert "named ones" in third
    assert below[0] == "7: waits: rate limit of github.com, 60 s more"
    assert below[1].startswith("5: the database is away")
    assert "\x1b" not in done.stdout
    assert json.loads(ask("webhook", "status", "--json").stdout) == {"items": orders}
    api.on("GET", ORDERS, (200, {"items": []}))
    assert ask("webhook", "status").stdout == "no orders since the server's start\n"


def test_one_order_is_shown_with_its_repositories_however_it_ended(api, ask):
    items = [{"repo": "github.com/a/x", "did": "refused", "problem": "HTTP 403"}]
    api.on("GET", f"{ORDERS}/7", (200, answer(items=items, counts={"refused": 1, "made": 2})))
    done = ask("webhook", "status", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 of 3" in done.stdout
    assert "HTTP 403" in done.stdout
    unknown = ask("webhook", "status", "8")
    assert (unknown.returncode, "`evermirror webhook status`" in unknown.stderr) == (5, True)
    assert ask("webhook", "status", "x").returncode == 2


def test_chinese_readers_get_chinese_words(api, ask):
    items = [{"repo": "github.com/a/x", "did": "drifted", "problem": "HTTP 403"}]
    on_order(api, RUNNING, answer("check", items=items, counts={"drifted": 1, "as it should be": 2}))
    done = ask("webhook", "check", "--all", env=CHINESE)
    assert done.returncode == 1
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["webhook", "仓库数"],
        ["符合要求", "2"],
        ["有偏差", "1"],
        ["仓库", "webhook", "问题"],
        ["github.com/a/x", "有偏差", "HTTP", "403"],
        ["3个仓库，用时", "42秒"],
    ]
    assert "并非所有 webhook 都符合要求：1 有偏差" in done.stderr
    api.on("GET", ORDERS, (200, {"items": [RUNNING]}))
    listed = ask("webhook", "status", env=CHINESE).stdout
    assert listed.splitlines()[1].split()[:4] == ["7", "注册", "全部", "ann"]
    assert "执行中" in listed
    assert "1/3" in listed


def test_every_word_has_its_chinese_and_every_chinese_its_use():
    files = [Path(m.__file__).read_text() for m in (webhook, webhook_wait, webhook_list)]
    joined = "".join(re.sub(r'"\s*\n\s*"', "", text) for text in files)
    said = set(re.findall(r'\blabel\(\s*"([^"]+)"', joined))
    assert said - _CHINESE.keys() == set()
    of_answers = {"unproven", "reliable", "silent", "ok", "removed"}
    assert {text for text in _CHINESE if f'"{text}"' not in joined} <= of_answers
    for text, chinese in _CHINESE.items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", chinese))


def test_ctrl_c_leaves_the_order_going_and_says_how_to_stop_it(api, tmp_path, here):
    on_order(api, RUNNING)
    command = [sys.executable, "-m", "evermirror", "webhook", "register", "--all", "--yes"]
    env = {**clean_env(tmp_path), "EVERMIRROR_SERVER": api.url}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=here, env=env, text=True, **pipes) as program:
        until = time.monotonic() + 20
        while not any(method == "GET" for method, *_ in api.asked) and time.monotonic() < until:
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=20)
    assert program.returncode == 130, err
    assert "DELETE" not in [method for method, *_ in api.asked]
    assert "order 7 goes on" in err
    assert "`evermirror webhook stop 7` stops it" in err
    assert (out, "Traceback" in err) == ("", False)


@pytest.mark.timeout(120)
def test_with_a_real_node_and_a_forge(tmp_path, run):
    with start(Forge.GITEA, tmp_path / "forge") as forge:
        settings = {
            "credentials__hooks__token": TOKEN,
            "credentials__hooks__hosts": [forge.host],
            "credentials__hooks__forge": "gitea",
            "webhooks__url": "http://127.0.0.1:9",
            "webhooks__gitea_secret": "a-secret-for-hooks",
        }
        with NodeThread(tmp_path, forge.host, **settings) as node:
            env = {"EVERMIRROR_SERVER": node.url}
            for name in ("team/x", "team/y"):
                forge.add_project(name, commits=1, visibility="public")
                node.add(forge.url(f"{name}.git"))
            missing = run("webhook", "check", "--all", env=env)
            assert (missing.returncode, "2 missing" in missing.stderr) == (1, True)
            made = run("webhook", "register", "--group", f"{forge.host}/team", env=env)
            assert made.returncode == 0, made.stderr
            assert len(forge.hooks_of("team/x")) == len(forge.hooks_of("team/y")) == 1
            right = run("webhook", "check", f"{forge.host}/team/x", "--json", env=env)
            assert json.loads(right.stdout)["counts"] == {"as it should be": 1}
            listed = json.loads(run("webhook", "status", "--json", env=env).stdout)["items"]
            assert [order["action"] for order in listed] == ["check", "register", "check"]
            assert listed[1]["group"] == f"{forge.host}/team"
            removed = run("webhook", "remove", "--all", "--yes", env=env)
            assert removed.returncode == 0, removed.stderr
            assert forge.hooks_of("team/x") == []
            unknown = run("webhook", "register", "nowhere/a", env=env)
            assert (unknown.returncode, "nowhere/a" in unknown.stderr) == (5, True)
            assert TOKEN not in missing.stdout + made.stdout + right.stdout + node.log.read_text()
