"""`pull …`: what it asks of the API, and what it makes of the answers; the server is a stand-in."""

from __future__ import annotations

import json
import time
from datetime import datetime

import pytest

from tests.faces.cli.pull_answers import (
    BY_PRIORITY,
    CHINESE,
    ERROR,
    FAILED,
    KEY,
    OVERVIEW,
    PROJECT,
    STRATEGY,
    TARGETS,
    TASK,
    page,
    problem,
    project,
)


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (
            ["update", "--max-concurrent=5", "--peak-hours=9-18", "--peak-concurrent=3"],
            {
                "max_concurrent_pulls": 5,
                "peak_hours_start": 9,
                "peak_hours_end": 18,
                "peak_max_concurrent": 3,
            },
        ),
        (["update", "--peak-hours", "22-6"], {"peak_hours_start": 22, "peak_hours_end": 6}),
        (["update", "--peak-hours", "08:00-24:00"], {"peak_hours_start": 8, "peak_hours_end": 24}),
        (
            ["update", "--off-peak-concurrent=8", "--disable"],
            {"off_peak_max_concurrent": 8, "enabled": False},
        ),
        (
            ["update", "--night-hours=0-6", "--night-concurrent=10"],
            {"night_hours_start": 0, "night_hours_end": 6, "night_max_concurrent": 10},
        ),
        (
            ["update", "--night-hours=none"],
            {"night_hours_start": None, "night_hours_end": None, "night_max_concurrent": None},
        ),
        (["set-peak-avoidance", "--enable"], {"enable_peak_avoidance": True}),
        (["set-peak-avoidance", "--disable"], {"enable_peak_avoidance": False}),
        (["set-adaptive", "--enable"], {"enable_adaptive": True}),
        (["set-adaptive", "--disable"], {"enable_adaptive": False}),
    ],
)
def test_strategy_changes_say_just_what_was_given(args, body, ask, api):
    api.on("PUT", "/api/pull/strategy", (200, STRATEGY))
    done = ask("pull", "strategy", *args, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, STRATEGY)
    assert [(a[0], a[3]) for a in api.asked] == [("PUT", body)]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["update"], "nothing to change"),
        (["update", "--peak-hours=9"], "'9'"),
        (["update", "--peak-hours=9-25"], "'9-25'"),
        (["update", "--peak-hours=24-3"], "'24-3'"),
        (["update", "--night-hours=soon"], "'soon'"),
        (["update", "--max-concurrent=0"], "0"),
        (["update", "--max-concurrent=many"], "many"),
        (["set-adaptive"], "--enable"),
        (["set-peak-avoidance"], "--disable"),
    ],
)
def test_a_strategy_that_is_none_is_2_and_asks_nothing(args, words, ask, api):
    done = ask("pull", "strategy", *args)
    assert (done.returncode, done.stdout, api.asked) == (2, "", [])
    assert words in done.stderr


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["--priority=critical", "--interval=10"], {"priority": "critical", "sync_interval": 10}),
        (["--interval=2h"], {"sync_interval": 120}),
        (["--interval=90s"], {"sync_interval": 1.5}),
        (["--enable"], {"enabled": True}),
        (["--disable"], {"enabled": False}),
        (["--max-retries=0", "--retry-delay=7"], {"max_retries": 0, "retry_delay": 7}),
        (["--target=https://h/a"], {"targets": [{"url": "https://h/a"}]}),
        (
            ["--target=https://h/a", "--target=https://h/b", "--target-credential=lab"],
            {
                "targets": [
                    {"url": "https://h/a", "credential": "lab"},
                    {"url": "https://h/b", "credential": "lab"},
                ]
            },
        ),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_config_puts_just_what_was_given(args, body, first, ask, api):
    api.on("PUT", project("/config"), (200, PROJECT))
    done = ask("pull", "config", *([*args, KEY] if first else [KEY, *args]), "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, PROJECT), done.stderr
    assert [(a[0], a[3]) for a in api.asked] == [("PUT", body)]


def test_config_reset_takes_back(ask, api):
    api.on("DELETE", project("/config"), (200, PROJECT))
    assert "Project: devops/core" in ask("pull", "config", KEY, "--reset").stdout
    assert ask("pull", "config", KEY, "--reset", "--enable").returncode == 2
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["config", KEY, "--priority=urgent"], "'urgent'"),
        (["config", KEY, "--interval=soon"], "'soon'"),
        (["config", KEY, "--retry-delay=-3"], "-3"),
        (["config", KEY, "--max-retries=x"], "x"),
        (["config", KEY, "--target-credential=lab"], "1 credentials for 0 targets"),
        (["config", " "], "empty"),
        (["config", KEY, "--bogus"], "--bogus"),
        (["config", "batch-set-priority", "--projects=a"], "--priority"),
        (["config", "batch-set-priority", "--priority=low"], "--projects"),
        (["config", "batch-set-priority", "--projects=,", "--priority=low"], "','"),
        (["progress", "--priority=urgent"], "'urgent'"),
        (["progress", "--from=yesterday"], "'yesterday'"),
        (["tasks", KEY, "--limit=0"], "0"),
        (["tasks", KEY, "--limit=1001"], "1001"),
        (["tasks"], "KEY"),
        (["trigger"], "--projects"),
        (["trigger", KEY, "--priority=low"], "--projects"),
        (["trigger", "--priority=urgent"], "'urgent'"),
        (["trigger", KEY, "--wait=soon"], "soon"),
        (["task-status", "x1"], "'x1'"),
        (["task-status", "²"], "'²'"),
        (["errors", "statistics", "--hours=0"], "0"),
        (["errors", KEY, "--to=never"], "'never'"),
        (["add", "k", "https://h/x", "--target-credential=a", "--target-credential=b"], "2 credentials"),
        (["remove", KEY], "--yes"),
        (["targets", "adopt", KEY], "--yes"),
        (["bogus"], "bogus"),
    ],
)  # fmt: skip
def test_wrong_usage_is_2_names_the_value_and_asks_nothing(args, words, ask, api):
    done = ask("pull", *args)
    assert (done.returncode, done.stdout, api.asked) == (2, "", [])
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "args", [[], ["config"], ["errors"], ["strategy"], ["targets"], ["config", "--help"], ["errors", "-h"]]
)
def test_groups_alone_explain_themselves(args, ask):
    done = ask("pull", *args)
    shown = done.stdout + done.stderr
    assert f"Usage: {' '.join(['evermirror', 'pull', *args[:1]])} " in shown
    assert done.returncode == (0 if args[1:] else 2)


@pytest.mark.parametrize("key", ["batch-set-priority", "statistics", "KEY", "--", "failed", "a/b/config"])
def test_a_project_named_like_a_command_is_reached_after_a_double_dash(key, ask, api):
    api.on("GET", f"/api/pull/projects/{key}/config", (200, PROJECT))
    api.on("GET", f"/api/pull/projects/{key}/errors", page())
    for command in ("config", "errors"):
        assert ask("pull", command, "--", key).returncode == 0, command
    assert [a[1] for a in api.asked] == [f"/api/pull/projects/{key}/{part}" for part in ("config", "errors")]


def test_batch_set_priority_is_a_command_and_not_a_key(ask, api):
    path = "/api/pull/projects/batch-update-priority"
    api.on("POST", path, (200, {"updated": 2, "priority": "critical", "not_found": []}))
    args = [
        "pull",
        "config",
        "batch-set-priority",
        "--projects=devops/core, devops/payment",
        "--priority=critical",
    ]
    assert ask(*args).stdout == "2 projects: critical\n"
    assert api.asked[0][3] == {"projects": ["devops/core", "devops/payment"], "priority": "critical"}
    api.on("POST", path, (200, {"updated": 1, "priority": "critical", "not_found": ["devops/payment"]}))
    done = ask(*args, "--json")
    assert done.returncode == 5
    assert json.loads(done.stdout)["updated"] == 1
    assert done.stderr == "there is no project devops/payment\n"


def test_progress_json_has_the_apis_fields(ask, api, progress):
    assert json.loads(ask("pull", "progress", "--json").stdout) == {**OVERVIEW, "by_priority": BY_PRIORITY}
    one = json.loads(ask("pull", "progress", "--priority=high", "--json").stdout)
    assert one == {"high": BY_PRIORITY["high"]}
    assert "Priority: high" in ask("pull", "progress", "--priority=high").stdout


def test_progress_of_a_time_says_what_happened_in_it(ask, api):
    period = {"from": "2026-11-15T00:00:00Z", "to": "2026-11-16T00:00:00Z", "tasks": 9, "changes": 17}
    api.on("GET", "/api/pull/progress/overview", (200, {**OVERVIEW, "period": period}))
    api.on("GET", "/api/pull/progress/by-priority", (200, BY_PRIORITY))
    zone = {"TZ": "Asia/Shanghai"}
    out = ask("pull", "progress", "--from=2026-11-15T08:00", "--to=2026-11-16T00:00Z", env=zone).stdout
    assert "From 2026-11-15 08:00:00 to 2026-11-16 08:00:00" in out
    assert "- Commits: 17" in out
    assert api.asked[0][2] == {"from": ["2026-11-15T00:00:00Z"], "to": ["2026-11-16T00:00:00Z"]}
    before = time.time()
    ask("pull", "progress", "--from", "24h")
    (since,) = api.asked[-1][2]["from"]
    assert before - 1 <= datetime.fromisoformat(since).timestamp() + 86_400 <= time.time()


def test_trigger_asks_and_names_the_task(ask, api):
    made = {"task_id": 12346, "status": "pending", "message": "Pull task created successfully"}
    api.on("POST", project("/trigger"), (200, made))
    assert ask("pull", "trigger", KEY).stdout == "Task 12346: pending (Pull task created successfully)\n"
    assert ask("pull", "trigger", KEY, env=CHINESE).stdout == "任务 12346: pending (任务创建成功)\n"
    assert json.loads(ask("pull", "trigger", KEY, "--force", "--json").stdout) == made
    assert [a[3] for a in api.asked] == [{"force": False}, {"force": False}, {"force": True}]


def test_trigger_waits_for_the_end_and_shows_it(ask, api):
    api.on("POST", project("/trigger"), (200, {"task_id": 12345, "status": "pending", "message": "m"}))
    running = {**TASK, "status": "running", "progress": "Pulling changes... 42 %", "completed_at": None}
    push = {"target": 1, "target_url": "https://h/x", "put_total": 2, "deleted_total": 1, "waiting_total": 0}
    api.on("GET", "/api/pull/tasks/12345", (200, running), (200, {**TASK, "pushes": [push]}))
    out = ask("pull", "trigger", KEY, "--wait").stdout
    for words in (
        "Task: 12345",
        "State: success",
        "Changes: 3",
        "Target: https://h/x",
        "2 put, 1 deleted, 0 waiting",
    ):
        assert words in out
    api.on("GET", "/api/pull/tasks/12345", (200, TASK))
    assert json.loads(ask("pull", "trigger", "--wait", "30", KEY, "--json").stdout)["changes_count"] == 3


def test_trigger_that_fails_or_does_not_end_in_time_is_1(ask, api):
    api.on("POST", project("/trigger"), (200, {"task_id": 12345, "status": "pending", "message": "m"}))
    failed = {**TASK, "status": "failed", "error_type": "AUTH_FAILED", "error_message": "no", "hint": "Look"}
    api.on("GET", "/api/pull/tasks/12345", (200, failed))
    done = ask("pull", "trigger", KEY, "--wait", "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "failed")
    assert done.stderr == "error: sync of devops/core failed: AUTH_FAILED: no\n  hint: Look\n"
    api.on("GET", "/api/pull/tasks/12345", (200, {**TASK, "status": "running", "completed_at": None}))
    done = ask("pull", "trigger", KEY, "--wait", "200ms", name="gitlab-mirror")
    assert done.returncode == 1
    assert "has not ended after 0.2 s" in done.stderr
    assert "`gitlab-mirror pull task-status 12345`" in done.stderr


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["--projects=devops/core,devops/payment"], {"project_keys": ["devops/core", "devops/payment"]}),
        (["--priority=critical", "--force"], {"priority": "critical", "force": True}),
    ],
)
def test_trigger_of_many_tells_how_many_and_which_tasks(args, body, ask, api):
    made = {"created_tasks": 2, "skipped_running": 1, "task_ids": [5, 6], "not_found": [], "disabled": []}
    api.on("POST", "/api/pull/trigger/batch", (200, made))
    assert ask("pull", "trigger", *args).stdout == "2 created, 1 skipped (running)\nTask: 5, 6\n"
    assert api.asked[0][3] == body
    assert json.loads(ask("pull", "trigger", *args, "--json").stdout) == made


PEAK = {
    "reason": "peak",
    "text": "waits until 18:00: only critical and high run in peak hours",
    "until": "2026-11-18T10:00:00Z",
    "clock": "18:00",
}


def test_trigger_task_status_show_and_progress_say_what_is_waited_for(ask, api):
    made = {"created_tasks": 2, "skipped_running": 0, "task_ids": [5, 6], "waiting": [{**PEAK, "count": 2}]}
    api.on("POST", "/api/pull/trigger/batch", (200, made))
    api.on(
        "GET",
        "/api/pull/tasks/5",
        (200, {**TASK, "status": "pending", "completed_at": None, "waiting": PEAK}),
    )
    progress = {"total_projects": 2, "synced": 2, "waiting": [{**PEAK, "count": 1}]}
    api.on("GET", "/api/pull/progress/overview", (200, progress))
    api.on("GET", "/api/pull/progress/by-priority", (200, {}))
    many = "2 wait until 18:00: only critical and high run in peak hours\n"
    assert many in ask("pull", "trigger", "--priority=normal").stdout
    assert f"Progress: {PEAK['text']}" in ask("pull", "task-status", "5").stdout
    assert f"1 {PEAK['text']}\n" in ask("pull", "progress").stdout
    chinese = {"LANG": "zh_CN.UTF-8"}
    assert (
        "2 个等到 18:00：高峰时段只运行 critical 和 high"
        in ask("pull", "trigger", "--priority=normal", env=chinese).stdout
    )
    assert "进度: 等到 18:00：" in ask("pull", "task-status", "5", env=chinese).stdout


def test_trigger_of_many_names_those_that_nothing_was_created_for(ask, api):
    made = {
        "created_tasks": 0,
        "skipped_running": 0,
        "task_ids": [],
        "not_found": ["x/y"],
        "disabled": ["a/b"],
    }
    api.on("POST", "/api/pull/trigger/batch", (200, made))
    done = ask("pull", "trigger", "--projects=a/b,x/y")
    assert done.returncode == 5
    assert done.stderr == "project a/b is disabled: no task was created\nthere is no project x/y\n"
    api.on("POST", "/api/pull/trigger/batch", (200, {**made, "not_found": []}))
    assert ask("pull", "trigger", "--projects=a/b").returncode == 1


def test_trigger_of_many_waits_for_all_and_one_failure_is_1(ask, api):
    made = {"created_tasks": 2, "skipped_running": 0, "task_ids": [5, 6], "not_found": [], "disabled": []}
    api.on("POST", "/api/pull/trigger/batch", (200, made))
    api.on("GET", "/api/pull/tasks/5", (200, {**TASK, "task_id": 5}))
    failed = {**TASK, "task_id": 6, "status": "failed", "error_type": "NOT_FOUND", "error_message": "gone"}
    api.on("GET", "/api/pull/tasks/6", (200, failed))
    done = ask("pull", "trigger", "--priority=low", "--wait", "20")
    assert done.returncode == 1
    assert "NOT_FOUND: gone" in done.stdout
    told = json.loads(ask("pull", "trigger", "--priority=low", "--wait", "--json").stdout)
    assert [task["task_id"] for task in told["tasks"]] == [5, 6]
    api.on("GET", "/api/pull/tasks/6", (200, {**TASK, "task_id": 6}))
    assert ask("pull", "trigger", "--priority=low", "--wait").returncode == 0


def test_a_running_project_is_refused_with_the_servers_reason(ask, api):
    api.on("POST", project("/trigger"), problem(409, "task 7 of devops/core runs", "conflict"))
    done = ask("pull", "trigger", KEY)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: task 7 of devops/core runs\n  hint: Do this\n"


def test_tasks_are_listed_newest_first_as_they_come(ask, api):
    api.on("GET", project("/tasks"), page(TASK, {**TASK, "task_id": 7, "error_type": "CONFLICT"}, total=150))
    done = ask("pull", "tasks", KEY, "--limit=2", env={"TZ": "UTC"})
    assert api.asked[0][2] == {"limit": ["2"]}
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines()[3:5]]
    assert rows[0] == [
        "12345",
        "12-13 23:50",
        "success",
        "2.3s",
        "3",
        "manual",
        "abc123000000",
        "abc123000000",
        "–",
    ]
    assert rows[1][-1] == "CONFLICT"
    assert done.stderr == "2 of 150 shown; --limit shows more\n"
    assert json.loads(ask("pull", "tasks", KEY, "--json").stdout)["total"] == 150
    api.on("GET", project("/tasks"), page())
    assert ask("pull", "tasks", KEY).stdout == "devops/core: no tasks yet\n"


def test_task_status_shows_one(ask, api):
    running = {"task_id": 12346, "project_key": KEY, "status": "running", "progress": "Pulling changes...",
               "started_at": "2025-12-13T23:55:00Z"}  # fmt: skip
    api.on("GET", "/api/pull/tasks/12346", (200, running))
    out = ask("pull", "task-status", "12346").stdout
    for words in ("Task: 12346", "Project: devops/core", "State: running", "Progress: Pulling changes..."):
        assert words in out
    assert json.loads(ask("pull", "task-status", "12346", "--json").stdout) == running
    done = ask("pull", "task-status", "99999999999999999999")
    assert done.returncode == 5
    assert "99999999999999999999" in done.stderr
    assert "`evermirror pull tasks KEY`" in done.stderr


def test_task_status_shows_each_target_and_the_refs_that_wait_there(ask, api):
    refs = [{"ref": f"refs/heads/b{n}", "outcome": "conflict", "reason": "not ours"} for n in range(12)]
    failure = {"kind": "CONFLICT", "message": "12 refs wait", "hint": "adopt"}
    push = {"target": 1, "target_url": "https://h/x", "put_total": 1, "deleted_total": 2, "waiting_total": 12}
    pushes = [{**push, "refs": refs, "failure": failure}, {"target": 2, "refs": [], "warning": "no HEAD"}]
    api.on("GET", "/api/pull/tasks/7", (200, {**TASK, "status": "failed", "pushes": pushes}))
    lines = [line.strip("│ ") for line in ask("pull", "task-status", "7").stdout.splitlines()]
    assert lines[lines.index("Target: https://h/x") : -1] == [
        "Target: https://h/x",
        "1 put, 2 deleted, 12 waiting",
        "CONFLICT: 12 refs wait",
        *(f"refs/heads/b{n}: conflict: not ours" for n in range(10)),
        "… and 2 more",
        "Target: 2",
        "0 put, 0 deleted, 0 waiting",
        "no HEAD",
    ]


def test_errors_are_listed_and_filtered(ask, api):
    api.on("GET", project("/errors"), page(ERROR, total=11))
    done = ask("pull", "errors", KEY, "--limit=10", "--type=CONFLICT", "--from=2025-12-13", env={"TZ": "UTC"})
    assert api.asked[0][2] == {"limit": ["10"], "type": ["CONFLICT"], "from": ["2025-12-13T00:00:00Z"]}
    for words in ("Errors of devops/core", "Connection timed out after 30s", "git remote update", "12340"):
        assert words in done.stdout
    assert "1 of 11 shown" in done.stderr
    assert json.loads(ask("pull", "errors", KEY, "--json").stdout)["items"] == [ERROR]
    api.on("GET", "/api/pull/errors", page({**ERROR, "project_key": KEY}))
    assert KEY in ask("pull", "errors", "recent").stdout
    api.on("GET", project("/errors"), page())
    assert ask("pull", "errors", KEY).stdout == "Errors of devops/core: none\n"


def test_failed_projects_are_listed_with_why(ask, api):
    api.on("GET", "/api/pull/projects/failed", page(FAILED))
    out = ask("pull", "errors", "failed-projects", "--at-least=3").stdout
    for words in (
        "devops/legacy-service",
        "paused: 5 failures in a row",
        "AUTH_FAILED",
        "Invalid credentials",
    ):
        assert words in out
    assert api.asked[0][2]["consecutive_failures_gte"] == ["3"]
    assert json.loads(ask("pull", "errors", "failed-projects", "--json").stdout)["items"] == [FAILED]
    assert "consecutive_failures_gte" not in api.asked[1][2]
    api.on("GET", "/api/pull/projects/failed", page())
    assert ask("pull", "errors", "failed-projects").stdout == "no projects\n"


def test_reset_shows_the_project_again(ask, api):
    api.on("POST", project("/reset-failures"), (200, PROJECT))
    assert "State: enabled" in ask("pull", "errors", "reset", KEY).stdout
    assert json.loads(ask("pull", "errors", "reset", KEY, "--json").stdout) == PROJECT


def test_add_sends_all_that_is_known(ask, api):
    api.on("POST", "/api/pull/projects", (201, PROJECT))
    source, targets = "https://git.example.org/devops/core", ["https://a/x", "https://b/x"]
    args = ["--priority=critical", "--interval=10", "--max-retries=2", "--retry-delay=1m", "--credential=src"]
    more = [f"--target={url}" for url in targets] + ["--target-credential=a", "--target-credential=b"]
    assert "Project: devops/core" in ask("pull", "add", KEY, source, *args, *more).stdout
    assert api.asked[0][3] == {
        "project_key": KEY,
        "source_url": source,
        "source_credential": "src",
        "targets": [{"url": "https://a/x", "credential": "a"}, {"url": "https://b/x", "credential": "b"}],
        "priority": "critical",
        "sync_interval": 10,
        "max_retries": 2,
        "retry_delay": 1,
    }
    assert json.loads(ask("pull", "add", KEY, source, "--json").stdout) == PROJECT
    assert api.asked[1][3] == {"project_key": KEY, "source_url": source, "targets": []}


def test_remove_and_adopt_with_a_yes(ask, api):
    api.on("DELETE", project(), (200, {"project_key": KEY, "status": "removed"}))
    assert ask("pull", "remove", KEY, "--yes").stdout == "removed  devops/core\n"
    api.on("POST", project("/targets/adopt"), (200, {**PROJECT, "targets": TARGETS}))
    assert "the next push overwrites what is there" in ask("pull", "targets", "adopt", KEY, "-y").stdout
    ask("pull", "targets", "adopt", KEY, "-y", "--url=https://a/x")
    assert [a[3] for a in api.asked[1:]] == [{}, {"url": "https://a/x"}]


def test_list_pages_through_all_of_many(ask, api):
    def projects(first: int, last: int) -> tuple[int, object]:
        return page(*({**PROJECT, "project_key": f"p/{n}"} for n in range(first, last)), total=1200)

    api.on("GET", "/api/pull/projects", projects(0, 1000), projects(1000, 1200))
    listed = json.loads(ask("pull", "list", "--all", "--search=p", "--priority=low", "--json").stdout)
    assert [len(listed["items"]), listed["items"][-1]["project_key"]] == [1200, "p/1199"]
    assert [a[2]["page"] for a in api.asked] == [["1"], ["2"]]
    assert api.asked[0][2] | {"page": 0} == {
        "search": ["p"],
        "priority": ["low"],
        "size": ["1000"],
        "page": 0,
    }
    api.on("GET", "/api/pull/projects", projects(0, 50))
    done = ask("pull", "list")
    assert "p/49" in done.stdout
    assert done.stderr == "50 of 1200 shown; --all shows more\n"


@pytest.mark.parametrize(
    "option",
    [
        "--from=0001-01-01",
        "--from=9999-12-31T23:59:59-12:00",
        "--from=99999999999d",
        "--to=" + "9" * 500 + "d",
    ],
)
def test_a_time_beyond_all_times_is_2(option, ask, api):
    done = ask("pull", "progress", option)
    assert (done.returncode, api.asked) == (2, [])
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("amount", ["9" * 500, "1..5", "0x10", "inf", "nan", "-1", "٣"])
def test_an_interval_that_is_no_amount_is_2(amount, ask, api):
    done = ask("pull", "config", KEY, f"--interval={amount}")
    assert (done.returncode, api.asked) == (2, [])
    assert "Traceback" not in done.stderr


def test_times_at_the_end_of_time_are_shown_as_none(ask, api):
    api.on("GET", project("/config"), (200, {**PROJECT, "next_sync_at": "9999-12-31T23:59:59Z"}))
    done = ask("pull", "config", KEY, env={"TZ": "Asia/Shanghai"})
    assert done.returncode == 0
    assert "Next sync: –" in done.stdout
