"""Commands that talk to the API: what they ask, what they print, and how they end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from tests.faces.cli.conftest import clean_env
from tests.faces.cli.test_program import on_terminal

KEY = "github.com/owner/name"
HOSTILE = "evil\x1b]0;owned\x07\x1b[31m[bold]name\u202e\r\n"


def iso(ago: timedelta) -> str:
    return (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%SZ")


def item(key: str = KEY, **more: object) -> dict[str, object]:
    return {
        "key": key,
        "git_url": f"https://{key}",
        "additional_info": {},
        "last_updated": iso(timedelta(hours=2)),
        "changed_at": iso(timedelta(hours=2)),
        "status": "active",
        "priority": "normal",
        "verified_at": iso(timedelta(hours=3, minutes=6)),  # a tenth of an hour: a test takes its time
        "last_error": None,
        **more,
    }


def task(status: str, result: object = None, progress: str | None = None) -> dict[str, object]:
    now = iso(timedelta())
    return {
        "task_id": "7",
        "status": status,
        "progress": progress,
        "result": result,
        "created_at": now,
        "updated_at": now,
    }


def problem(status: int, detail: str, hint: str = "Do this") -> tuple[int, object]:
    return status, {"type": "/problems/x", "title": "T", "status": status, "detail": detail, "hint": hint}


def test_add_sends_the_url_and_what_is_known_of_it(ask, api):
    api.on("POST", "/api/git_urls", (200, {"git_url": "https://github.com/a/b", "status": "added"}))
    args = ["--priority", "high", "--interval", "10m", "--alias", "x/y", "--private"]
    result = ask("add", "https://github.com/a/b", *args)
    assert (result.returncode, result.stdout) == (0, "added  https://github.com/a/b\n")
    info = {"priority": "high", "interval": "10m", "alias": "x/y", "private": True}
    assert api.asked[0][3] == {"git_url": "https://github.com/a/b", "additional_info": info}
    assert json.loads(ask("add", "https://github.com/a/b", "--json").stdout)["status"] == "added"
    assert api.asked[1][3] == {"git_url": "https://github.com/a/b"}


def test_add_of_a_list_goes_on_after_a_refusal_and_tells_it(ask, api, tmp_path):
    (tmp_path / "list").write_text("# comment\nhttps://h/a\n\nhttps://h/b # why\nhttps://h/c\n")
    fine = (200, {"git_url": "https://h/x", "status": "added"})
    api.on("POST", "/api/git_urls", fine, problem(422, "internal address"), fine)
    result = ask("add", "--file", str(tmp_path / "list"), "--json")
    assert [a[3]["git_url"] for a in api.asked] == ["https://h/a", "https://h/b", "https://h/c"]
    assert result.returncode == 1
    assert f"{tmp_path}/list:4: https://h/b: internal address. Do this" in result.stderr
    assert [a["status"] for a in json.loads(result.stdout)] == ["added", "refused", "added"]


def test_add_of_a_list_sends_what_each_line_says_and_tells_bad_lines_with_their_place(ask, api, tmp_path):
    file = tmp_path / "list"
    file.write_text(
        "https://h/a priority=low interval=10m alias=x/y private=no mode=exact credential=corp # why\n"
        "https://h/b privte=true\n"
        "http://u:p@h/c\n"
        "ssh://git@10.0.0.1/d interval=5s\n"
        "http://localhost:3000/e target=https://t/e\n"
        "https://h/f fsck_allow=hasdot,hasDotgit fsck_reason=ticket\n"
    )
    api.on("POST", "/api/git_urls", (200, {"git_url": "https://h/x", "status": "added"}))
    result = ask("add", "--file", str(file), "--priority", "high")
    assert result.returncode == 1
    assert [a[3] for a in api.asked] == [
        {
            "git_url": "https://h/a",
            "additional_info": {
                "priority": "low",
                "interval": "10m",
                "alias": "x/y",
                "private": False,
                "mode": "exact",
                "credential": "corp",
            },
        },
        {"git_url": "http://localhost:3000/e", "additional_info": {"priority": "high"}},
        {
            "git_url": "https://h/f",
            "additional_info": {
                "priority": "high",
                "fsck_allow": ["hasDot", "hasDotgit"],
                "fsck_reason": "ticket",
            },
        },
    ]
    told = result.stderr.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{file}:{n}" for n in (2, 3, 4)]
    assert "unknown attribute 'privte'" in told[0]
    assert "interval: 5s is shorter than 10s" in told[2]
    assert "u:p" not in result.stderr
    assert len(result.stdout.splitlines()) == 3


def test_add_of_a_list_with_nothing_good_in_it_asks_nothing_and_is_1(ask, api, tmp_path):
    (tmp_path / "list").write_text("bad\n")
    result = ask("add", "--file", str(tmp_path / "list"), "--json")
    assert (result.returncode, api.asked) == (1, [])
    assert [a["status"] for a in json.loads(result.stdout)] == ["refused"]


def test_add_of_a_list_stops_where_the_token_does_not_do_and_says_where(ask, api, tmp_path):
    (tmp_path / "list").write_text("https://h/a\nhttps://h/b\n")
    api.on("POST", "/api/git_urls", problem(403, "role too low"))
    result = ask("add", "--file", str(tmp_path / "list"))
    assert (result.returncode, len(api.asked)) == (4, 1)
    assert f"error: {tmp_path}/list:1: https://h/a: role too low" in result.stderr


@pytest.mark.parametrize("args", [["add"], ["add", "--file", "nowhere"], ["add", "a", "b", "--alias", "x"]])
def test_add_without_anything_usable_asks_nothing(args, ask, api):
    assert ask(*args).returncode == 2
    assert api.asked == []


@pytest.mark.parametrize(
    "key", [KEY, "https://github.com/owner/name.git", "127.0.0.1:8080/team/x", "odd name/%2f?#"]
)
def test_remove_names_any_key_whole(key, ask, api):
    api.on("DELETE", f"/api/git_urls/{key}", (200, {"git_url": key, "status": "removed"}))
    result = ask("remove", key, "--yes")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("removed")


def test_remove_is_refused_before_anybody_is_asked(ask, api, tmp_path):
    api.on("DELETE", f"/api/git_urls/{KEY}", problem(409, f"{KEY} is in the list urls.txt"))
    shown = on_terminal(["remove", KEY], {"EVERMIRROR_SERVER": api.url, "HOME": str(tmp_path)}, tmp_path)
    assert b"is in the list urls.txt" in shown
    assert b"Stop mirroring" not in shown
    assert [query for *_, query, _, _ in api.asked] == [{"dry_run": ["true"]}]


SECRET_URLS = ["https://joe:c4n4ry@h.org/a", "https://c4n4ry@h.org/b", "https://joe:c4n/4ry@h.org/c"]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_the_password_in_a_url_is_told_to_nobody(as_json, ask, api):
    api.on("POST", "/api/git_urls", problem(422, "the URL carries a user name or password"))
    result = ask("add", *SECRET_URLS, *as_json)
    assert result.returncode == 2
    assert "https://***@h.org/a: the URL carries" in result.stderr
    for text in (result.stdout, result.stderr):
        assert "4ry" not in text
    for command in ("remove", "status", "sync"):
        api.on("DELETE", f"/api/git_urls/{SECRET_URLS[0]}", problem(404, f"{SECRET_URLS[0]!r} is not known"))
        result = ask(command, SECRET_URLS[0], *(["--yes"] if command == "remove" else []))
        assert result.returncode == 5
        assert "4ry" not in result.stderr


def test_values_that_are_not_known_are_refused_with_those_that_are(ask, api):
    for option, words in (
        ("--status", "pending, active, failing, gone, auth, held, inactive"),
        ("--priority", "critical, high, normal, low"),
        ("--sort", "key, verified, changed, size, failures"),
        ("--failure", "NETWORK_TIMEOUT"),
    ):
        result = ask("repos", option, "foo")
        assert (result.returncode, result.stdout) == (2, "")
        assert f"{option} 'foo' is not one of {words}".lower() in result.stderr.lower()
    assert "inactive: paused" in ask("repos", "--status", "foo").stderr
    assert api.asked == []


def complete(ask, words: str) -> list[str]:
    env = {"_EVERMIRROR_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return ask(env=env).stdout.split()


def test_keys_are_completed(ask, api):
    items = [item(), item("github.com/other/name", alias="other/alias")]
    api.on("GET", "/api/git_urls", (200, {"items": items, "next_cursor": None}))
    assert complete(ask, "evermirror sync ") == [KEY, "github.com/other/name"]
    assert complete(ask, "evermirror pause github.com/ow") == [KEY]
    assert complete(ask, "evermirror status ot") == ["other/alias", "other/name"]
    assert complete(ask, f"evermirror remove {KEY} own") == ["owner/name"]
    assert complete(ask, "evermirror repos --status in") == ["inactive"]
    assert api.asked[1][2] == {"search": ["github.com/ow"], "limit": ["100"]}


def test_without_a_server_no_key_is_completed(run):
    def ask(env):
        return run(env={"EVERMIRROR_SERVER": "http://127.0.0.1:1", **env})

    assert complete(ask, "evermirror sync x") == []


def test_remove_without_a_yes_removes_nothing(ask, api):
    result = ask("remove", KEY)
    assert (result.returncode, api.asked) == (2, [])
    assert "--yes" in result.stderr


def test_sync_without_wait_only_asks(ask, api):
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    assert ask("sync", KEY, "--force").stdout == "task 7: pending\n"
    assert api.asked[0][3] == {"git_url": KEY, "additional_params": {"force": True}}
    assert len(api.asked) == 1


@pytest.mark.parametrize("wait", [["--wait"], ["--wait", "20"], ["--wait=20"], ["--wait", "20s"]])
@pytest.mark.parametrize("first", [True, False])
def test_sync_waits_and_shows_the_refs_that_moved(wait, first, ask, api):
    changes = [
        {"ref": "refs/heads/main", "old": "a" * 40, "new": "b" * 40},
        {"ref": "refs/heads/" + HOSTILE, "old": None, "new": "c" * 40},
    ]
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    done = task("success", {"changes": changes, "changes_total": 30}, "100%")
    api.on("GET", "/api/tasks/7", (200, task("running", progress="40%")), (200, done))
    result = ask("sync", *([*wait, KEY] if first else [KEY, *wait]))
    assert result.returncode == 0, result.stderr
    assert f"{KEY}: 30 refs moved" in result.stdout
    assert "aaaaaaaaaaaa" in result.stdout
    assert "and 28 more" in result.stdout
    assert not {"\x1b", "\x07", "\u202e", "\r"} & set(result.stdout)


def test_sync_json_prints_the_task_alone(ask, api):
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    api.on("GET", "/api/tasks/7", (200, task("skipped", {}, "100%")))
    result = ask("sync", KEY, "--wait", "--json")
    assert json.loads(result.stdout)["status"] == "skipped"
    assert result.stderr == ""


@pytest.mark.parametrize("status", ["skipped", "success"])
def test_a_forced_sync_says_that_it_fetched_again(status, ask, api):
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    api.on("GET", "/api/tasks/7", (200, task(status, {}, "100%")))
    out = ask("sync", KEY, "--wait", "--force").stdout
    assert out == f"{KEY}: nothing had changed; all refs and objects were compared\n"


def test_a_failed_sync_is_1_with_error_and_hint(ask, api):
    failed = {"error_type": "NOT_FOUND", "error_message": "gone " + HOSTILE, "hint": "Check the URL"}
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    api.on("GET", "/api/tasks/7", (200, task("failure", failed)))
    for extra in ([], ["--json"]):
        result = ask("sync", KEY, "--wait", *extra)
        assert result.returncode == 1
        assert f"sync of {KEY} failed: NOT_FOUND: gone" in result.stderr
        assert "hint: Check the URL" in result.stderr
        assert "\x1b" not in result.stderr + result.stdout
    assert json.loads(result.stdout)["status"] == "failure"


def test_a_sync_that_takes_longer_than_the_wait_is_1_and_says_it_goes_on(ask, api):
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    api.on("GET", "/api/tasks/7", (200, task("running")))
    result = ask("sync", KEY, "--wait", "300ms")
    assert result.returncode == 1
    assert "has not ended after 0.3 s" in result.stderr
    assert "task 7" in result.stderr


def test_sync_draws_a_bar_on_a_terminal(api, tmp_path):
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    running = [(200, task("running", progress=f"{n}%")) for n in (10, 42, 90)]
    api.on("GET", "/api/tasks/7", *running, (200, task("success", {}, "100%")))
    out = on_terminal(["sync", KEY, "--wait", "--server", api.url], {}, tmp_path).decode()
    assert "42 %" in out
    assert f"{KEY}: up to date" in out


def test_repos_are_listed_with_ages_and_filters(ask, api):
    error = {"error_type": "NETWORK_TIMEOUT", "error_message": "refused", "hint": "", "at": None}
    api.on(
        "GET", "/api/git_urls", (200, {"items": [item(), item("h/x", last_error=error)], "next_cursor": None})
    )
    result = ask("repos", "--search", "na", "--status", "active", "--host", "github.com", "--limit", "5")
    assert result.returncode == 0, result.stderr
    assert api.asked[0][2] == {"search": ["na"], "status": ["active"], "host": ["github.com"], "limit": ["5"]}
    rows = result.stdout.splitlines()
    assert KEY in rows[1]
    assert "3.1 h ago" in rows[1]
    assert "2 h ago" in rows[1]
    assert "NETWORK_TIMEOUT: refused" in rows[2]


def test_repos_are_filtered_and_ordered_by_the_server_and_show_what_the_order_goes_by(ask, api):
    api.on("GET", "/api/git_urls", (200, {"items": [item(size_bytes=4711)], "next_cursor": None}))
    asked = ["--priority", "high", "--worker", "w 1", "--failure", "AUTH_FAILED", "--sort", "-size"]
    result = ask("repos", *asked)
    assert result.returncode == 0, result.stderr
    wanted = {"priority": ["high"], "worker": ["w 1"], "failure": ["AUTH_FAILED"], "sort": ["-size"]}
    assert api.asked[0][2] == {**wanted, "limit": ["50"]}
    heading, row = result.stdout.splitlines()
    assert "bytes" in heading
    assert "4711" in row


def test_repos_all_follows_the_cursor_to_the_end(ask, api):
    pages = [(200, {"items": [item(f"h/{n}")], "next_cursor": c}) for n, c in ((1, "x"), (2, "y"), (3, None))]
    api.on("GET", "/api/git_urls", *pages)
    answer = json.loads(ask("repos", "--all", "--json").stdout)
    assert [i["key"] for i in answer["items"]] == ["h/1", "h/2", "h/3"]
    assert answer["next_cursor"] is None
    assert [a[2].get("cursor") for a in api.asked] == [None, ["x"], ["y"]]


def test_repos_json_of_nothing_is_json(ask, api):
    api.on("GET", "/api/git_urls", (200, {"items": [], "next_cursor": None}))
    assert json.loads(ask("repos", "--json").stdout) == {"items": [], "next_cursor": None}


def test_hostile_names_and_errors_cannot_reach_the_terminal(ask, api):
    error = {"error_type": "UNKNOWN", "error_message": HOSTILE, "hint": HOSTILE, "at": None}
    hostile = item(HOSTILE, status=HOSTILE, last_error=error)
    api.on("GET", "/api/git_urls", (200, {"items": [hostile], "next_cursor": None}))
    api.on(
        "GET",
        "/api/repos/x",
        (200, {**hostile, "plan": {"reason": HOSTILE}, "holders": [{"worker": HOSTILE}]}),
    )
    api.on("GET", "/api/overview", (200, {**OVERVIEW, "warnings": [HOSTILE], "by_status": {HOSTILE: 3}}))
    api.on("GET", "/api/repos/y", problem(409, HOSTILE, HOSTILE))
    for args in (
        ["repos"],
        ["repos", "--json"],
        ["status", "x"],
        ["status"],
        ["status", "y"],
        ["status", "--json"],
    ):
        result = ask(*args)
        printed = result.stdout + result.stderr
        assert "evil" in printed
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(printed), args
        assert "[bold]name" in printed or args[-1] == "--json"


OVERVIEW: dict[str, object] = {
    "total_repos": 200,
    "by_status": {"active": 190, "failing": 10},
    "by_priority": {"normal": 200},
    "fresh_repos": 180,
    "fresh_share": 0.9,
    "worst_lag_s": 7200.0,
    "polls_total": 12345,
    "polls_per_second": 4.2,
    "changes_total": 17,
    "received_bytes_total": 5_000_000,
    "running": [
        {"key": KEY, "phase": "receiving", "percent": 42.0, "received_bytes": 1000, "started_at": None}
    ],
    "queued_syncs": 3,
    "hosts": [{"host": "h", "repos": 4, "state": "waiting", "until": None, "reason": "429"}],
    "failures_by_kind": {"NOT_FOUND": 10},
    "disk_free_bytes": 10**10,
    "disk_total_bytes": 10**11,
    "accepting_clones": False,
    "warnings": ["max_gap cannot be kept"],
    "started_at": "2026-11-15T00:00:00Z",
    "now": "2026-11-15T01:00:00Z",
    "version": "0.1.0",
}


def test_status_says_whether_everything_is_fresh_and_what_is_wrong(ask, api):
    api.on("GET", "/api/overview", (200, OVERVIEW))
    out = ask("status").stdout
    for words in (
        "180 (90.0%)",
        "190 active, 10 failing",
        "10 NOT_FOUND",
        "10GB free of 100GB (90 % used); too full for new clones (fleet.disk_high)",
    ):
        assert words in out
    for words in ("42 %", "1 running, 3 queued", "1 h ago", "max_gap cannot be kept", "429"):
        assert words in out
    assert json.loads(ask("status", "--json").stdout) == OVERVIEW


def test_status_tells_the_share_that_the_server_counted(ask, api):
    api.on("GET", "/api/overview", (200, {**OVERVIEW, "fresh_repos": 190, "fresh_share": 1.0}))
    assert "190 (100.0%)" in ask("status").stdout
    api.on("GET", "/api/overview", (200, {**OVERVIEW, "fresh_repos": 0, "fresh_share": None}))
    assert "(" not in next(line for line in ask("status").stdout.splitlines() if "fresh" in line)


def test_status_of_a_repo_shows_plan_and_last_error(ask, api):
    error = {
        "error_type": "NOT_FOUND",
        "error_message": "gone",
        "hint": "Check it",
        "at": iso(timedelta(days=4)),
    }
    plan = {"next_poll_at": iso(-timedelta(hours=5)), "reason": "busy lately", "gap_s": 600}
    more = {"plan": plan, "last_error": error, "holders": [], "size_bytes": 1500, "refs_count": 3}
    api.on("GET", f"/api/repos/{KEY}", (200, item(**more)))
    out = ask("status", KEY).stdout
    for words in ("in 5 h   busy lately", "10 min", "NOT_FOUND: gone   4 d ago", "Check it", "1.5kB"):
        assert words in out


def test_status_watch_goes_on_until_interrupted(api, tmp_path):
    api.on("GET", "/api/overview", (200, OVERVIEW))
    process = subprocess.Popen(
        [sys.executable, "-m", "evermirror", "status", "--watch", "--json", "--server", api.url],
        env=clean_env(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert lines == [OVERVIEW, OVERVIEW]
    assert (process.returncode, err) == (130, b"")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (problem(401, "token wanted"), 4),
        (problem(403, "role too low"), 4),
        (problem(404, "unknown"), 5),
        (problem(409, "contradiction"), 1),
        (problem(422, "bad"), 2),
        (problem(429, "slow down"), 1),
        (problem(500, "ours"), 1),
        (problem(503, "later"), 1),
        ((200, b"<html>"), 3),
        ((502, b"<html>bad gateway"), 3),
        ((302, {"detail": "elsewhere"}), 3),
    ],
)
def test_every_answer_has_its_exit_code(answer, code, ask, api):
    api.on("GET", "/api/overview", answer)
    result = ask("status", "--json")
    assert (result.returncode, result.stdout) == (code, "")
    assert "Traceback" not in result.stderr
    if isinstance(answer[1], dict) and code != 3:
        assert f"error: {answer[1]['detail']}\n  hint: Do this" in result.stderr


@pytest.mark.parametrize(
    ("kind", "status", "hint"),
    [
        (
            "not-found",
            404,
            "Add it with `evermirror add URL`, or look for it with `evermirror repos --search",
        ),
        ("token-needed", 401, "Give a token with --token-file or EVERMIRROR_TOKEN"),
        ("invalid-input", 422, None),
    ],
)
def test_hints_are_commands_not_http(kind, status, hint, ask, api):
    answer = {"type": f"/problems/{kind}", "detail": "no", "hint": "Add it by POST /api/git_urls"}
    for path in (f"/api/repos/{KEY}", f"/api/git_urls/{KEY}"):
        for method in ("GET", "DELETE"):
            api.on(method, path, (status, answer))
    for args in (["status", KEY], ["remove", KEY, "--yes"]):
        told = ask(*args).stderr
        assert "POST" not in told
        assert f"hint: {hint}" in told if hint else "hint" not in told


def test_a_task_that_is_gone_is_told_with_what_to_do(ask, api):
    api.on("POST", "/api/tasks", (200, {"task_id": "7", "status": "pending"}))
    gone = {"type": "/problems/not-found", "detail": "no task 7", "hint": "POST /api/tasks gives an id"}
    api.on("GET", "/api/tasks/7", (404, gone))
    result = ask("sync", KEY, "--wait")
    assert result.returncode == 5
    assert "ask again with `evermirror sync KEY`" in result.stderr


def test_no_server_is_3_and_says_what_to_do(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = run("repos", "--server", f"http://127.0.0.1:{port}")
    assert result.returncode == 3
    assert f"no server answers at http://127.0.0.1:{port}" in result.stderr
    assert "evermirror up" in result.stderr


@pytest.mark.parametrize("server", ["nonsense", "ftp://h", "http://", "http://h:x", "http://u:p@h"])
def test_a_server_that_is_no_url_is_2(server, run):
    assert run("repos", "--server", server).returncode == 2


def test_the_token_comes_from_flag_then_environment_then_settings(ask, run, api, tmp_path):
    api.on("GET", "/api/overview", (200, OVERVIEW))
    (tmp_path / "t").write_text("from-file\n")
    settings = tmp_path / "s.toml"
    settings.write_text(f'[client]\nserver = "{api.url}"\ntoken = "from-settings"\n')
    assert (
        ask("status", "--token-file", str(tmp_path / "t"), env={"EVERMIRROR_TOKEN": "from-env"}).returncode
        == 0
    )
    assert ask("status", env={"EVERMIRROR_TOKEN": "from-env"}).returncode == 0
    assert run("status", "--config", str(settings)).returncode == 0
    assert run("status", env={"EVERMIRROR_CONFIG": str(settings)}).returncode == 0
    assert [a[4] for a in api.asked] == [
        f"Bearer {t}" for t in ("from-file", "from-env", "from-settings", "from-settings")
    ]


def test_the_settings_token_is_sent_to_no_other_server(run, api, tmp_path):
    api.on("GET", "/api/overview", (200, OVERVIEW))
    settings = tmp_path / "s.toml"
    settings.write_text('[client]\nserver = "http://127.0.0.1:1"\ntoken = "from-settings"\n')
    assert run("status", "--config", str(settings), "--server", api.url).returncode == 0
    assert api.asked[0][4] is None


def test_the_server_of_the_settings_is_found_without_naming_it(run, api):
    api.on("GET", "/api/overview", (200, OVERVIEW))
    port = api.url.rpartition(":")[2]
    assert run("status", env={"EVERMIRROR_SERVER__LISTEN": f"0.0.0.0:{port}"}).returncode == 0


@pytest.mark.parametrize("content", ["", "two words\nlines", "ü"])
def test_a_token_file_without_a_token_is_2(content, ask, tmp_path):
    (tmp_path / "t").write_text(content)
    result = ask("status", "--token-file", str(tmp_path / "t"))
    assert result.returncode == 2
    assert "holds no token" in result.stderr
