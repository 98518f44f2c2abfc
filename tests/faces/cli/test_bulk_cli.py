"""`bulk`: what it asks of the API, the count that is confirmed, what it shows and how it ends."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from string import Formatter

import pytest

from evermirror.faces.cli import bulk, bulk_labels, bulk_wait
from tests.faces.cli.conftest import clean_env
from tests.support.node import NodeThread

ORDERS = "/api/bulk"
CHINESE = {"LC_ALL": "zh_CN.UTF-8"}


def answer(status: str = "done", **more: object) -> dict[str, object]:
    return {
        "id": 7, "action": "pause", "filter": {"status": "failing", "host": None}, "priority": None,
        "matched": 12, "done": 12, "unchanged": 0, "failed": 0, "status": status, "ahead": 0,
        "created_at": "2026-11-16T12:00:00Z", "updated_at": "2026-11-16T12:00:01Z", "actor": "ann",
        "first_error": None, **more,
    }  # fmt: skip


RUNNING = answer("running", done=3)


def on_order(api, *ends: dict[str, object], matched: int = 12) -> None:
    api.on("POST", ORDERS, (200, {"matched": matched}), (202, RUNNING))
    api.on("GET", f"{ORDERS}/7", *((200, end) for end in ends))


def posted(api) -> list[object]:
    return [body for method, path, _, body, _ in api.asked if (method, path) == ("POST", ORDERS)]


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["sync", "a/b", "c/d"], {"action": "sync", "keys": ["a/b", "c/d"]}),
        (["retry", "--status", "failing"], {"action": "retry", "filter": {"status": "failing"}}),
        (["reset", "--failure", "not_found"], {"action": "reset", "filter": {"failure": "NOT_FOUND"}}),
        (["pause", "--all"], {"action": "pause", "filter": {}}),
        (
            ["resume", "--search", "x", "--host", "h", "--priority", "low", "--worker", "w"],
            {"action": "resume", "filter": {"search": "x", "host": "h", "priority": "low", "worker": "w"}},
        ),
        (
            ["priority", "--to", "high", "--priority", "low"],
            {"action": "priority", "priority": "high", "filter": {"priority": "low"}},
        ),
    ],
)
def test_it_is_counted_first_and_ordered_for_that_count(api, ask, args, body):
    on_order(api, RUNNING, answer())
    done = ask("bulk", *args, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "12 repositories done\n"
    assert posted(api) == [{**body, "dry_run": True}, {**body, "expected": 12}]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["pause", "--yes"], "no repository was named"),
        (["pause", "a", "--all", "--yes"], "are given together"),
        (["pause", "a", "--host", "h", "--yes"], "are given together"),
        (["pause", " ", "--yes"], "a repository's name is empty"),
        (["pause", "--status", "ok", "--yes"], "--status 'ok' is not one of pending"),
        (["pause", "--priority", "p", "--yes"], "--priority 'p' is not one of critical"),
        (["priority", "a", "--yes"], "--to '' is not one of critical"),
        (["pause", "--all"], "this needs a yes, and there is no terminal"),
        (["stop", "x"], "not a whole number"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(api, ask, args, words):
    done = ask("bulk", *args)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.replace("│", " ").split())
    assert api.asked == []


def test_a_dry_run_tells_the_count_alone(api, ask):
    on_order(api)
    assert ask("bulk", "pause", "--all", "--dry-run").stdout == "12 repositories would be concerned\n"
    on_order(api)
    assert json.loads(ask("bulk", "pause", "--all", "--dry-run", "--json").stdout) == {"matched": 12}
    assert all(body["dry_run"] for body in posted(api))


def test_nothing_that_matches_is_5_and_nothing_is_ordered(api, ask):
    on_order(api, matched=0)
    done = ask("bulk", "pause", "--host", "nobody", "--yes")
    assert (done.returncode, len(posted(api))) == (5, 1)
    assert "no repository matches" in done.stderr


@pytest.mark.parametrize(
    ("end", "code", "out", "words"),
    [
        (answer(unchanged=5), 0, "12 repositories done, of which 5 needed nothing", ""),
        (
            answer(done=11, failed=1, first_error="a/b is paused\x1b[31m: resume it first"),
            1, "11 repositories done", "1 of 12 failed; the first: a/b is paused",
        ),
        (answer("stopped", done=3), 1, "3 repositories done", "stopped after 3 of 12"),
        (answer("failed", done=3, first_error="a mistake"), 1, "3 repositories done", "cut short: a mistake"),
    ],
)  # fmt: skip
def test_how_it_ended_is_shown_and_in_the_exit_code(api, ask, end, code, out, words):
    on_order(api, end)
    done = ask("bulk", "pause", "--all", "--yes")
    assert (done.returncode, done.stdout.strip()) == (code, out)
    assert words in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_the_order_can_be_left_going_listed_and_stopped(api, ask):
    on_order(api)
    left = ask("bulk", "pause", "--all", "--yes", "--no-wait")
    assert "order 7 goes on: `evermirror bulk list` shows it" in left.stdout
    waiting = answer("running", id=8, action="priority", priority="high", filter=None, ahead=1, done=0)
    api.on("GET", ORDERS, (200, {"items": [waiting, answer(failed=1, first_error="a/b is paused")]}))
    rows = [line.split() for line in ask("bulk", "list").stdout.splitlines()]
    assert rows[0] == ["order", "what", "about", "by", "begun", "state", "done", "failed"]
    assert rows[1][:6] == ["8", "priority", "high", "named", "ones", "ann"]
    assert rows[1][-5:] == ["waiting", "0", "of", "12", "0"]
    assert rows[2][:3] == ["7", "pause", "status=failing"]
    assert rows[3] == ["7:", "a/b", "is", "paused"]
    api.on("POST", f"{ORDERS}/7/stop", (200, answer("stopped", done=3)))
    assert ask("bulk", "stop", "7").stdout == "3 repositories done\n"
    missing = ask("bulk", "stop", "9")
    assert (missing.returncode, "`evermirror bulk list` lists" in missing.stderr) == (5, True)


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_is_asked_with_the_count(api, tmp_path, typed, code):
    on_order(api, answer())
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evermirror", "bulk", "pause", "--all"],
        env={**clean_env(tmp_path), "EVERMIRROR_SERVER": api.url},
        cwd=tmp_path,
        stdin=side,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(side)
    os.write(main, typed)
    out, err = process.communicate(timeout=60)
    os.close(main)
    assert process.returncode == code, err
    assert b"12 repositories will be paused: not mirrored until they are resumed.\nGo on?" in err
    assert len(posted(api)) == (2 if code == 0 else 1)
    assert (b"12 repositories done" in out) == (code == 0)


def test_every_word_is_there_in_chinese(api, ask):
    on_order(api, answer(unchanged=5))
    done = ask("bulk", "pause", "--all", "--yes", env=CHINESE)
    assert done.stdout == "12个仓库已处理，其中 5 个无需改动\n"
    api.on("GET", ORDERS, (200, {"items": [answer("running")]}))
    assert "执行中" in ask("bulk", "list", env=CHINESE).stdout
    known = bulk_labels._CHINESE
    for text in (*bulk._MEANINGS.values(), *bulk_wait._WORDS.values(), *bulk_wait._STATES.values()):
        assert text in known, text
    for english, chinese in known.items():
        assert _fields(english) == _fields(chinese), english


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name}


def test_against_a_real_server(run, tmp_path, upstream):
    """Paused, synced in vain, resumed and synced: what a person sees of a real coordinator and worker."""
    with NodeThread(tmp_path, upstream.host, schedule__min_gap="1h") as node:
        for name in ("x", "y"):
            node.add(upstream.create(f"team/{name}").url)
        keys = [f"{upstream.host}/team/{name}" for name in ("x", "y")]
        node.until_active(*keys)
        server = {"EVERMIRROR_SERVER": node.url}

        def go(*args):
            return run("bulk", *args, "--yes", env=server)

        assert go("pause", "--host", upstream.host).stdout == "2 repositories done\n"
        assert [node.status(key) for key in keys] == ["inactive", "inactive"]
        refused = go("sync", *keys)
        assert refused.returncode == 1
        assert f"2 of 2 failed; the first: {keys[0]} is paused: resume it first" in refused.stderr
        assert go("resume", "--status", "inactive").stdout == "2 repositories done\n"
        assert go("priority", "--all", "--to", "high").returncode == 0
        shown = [node.client.get(f"/api/git_urls/{key}").json() for key in keys]
        assert [one["priority"] for one in shown] == ["high", "high"]
        assert go("sync", "--all").stdout == "2 repositories done\n"
        tasks = [node.client.get(f"/api/repos/{key}/-/tasks").json()["items"][0] for key in keys]
        assert [task["trigger"] for task in tasks] == ["manual_batch"] * 2, tasks
        gone = go("pause", f"{upstream.host}/team/none")
        assert (gone.returncode, "nothing was done" in gone.stderr) == (5, True)
        listed = json.loads(run("bulk", "list", "--json", env=server).stdout)["items"]
        assert [one["action"] for one in listed] == ["sync", "priority", "resume", "sync", "pause"]
