"""`pull …` draws the seed's figures, in Chinese or English; the server is a stand-in."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len

from evermirror.faces.cli import pull
from evermirror.faces.cli.pull.boxes import Grid, facts_box, grid_box
from evermirror.faces.cli.pull.labels import _CHINESE
from tests.faces.cli.pull_answers import (
    BY_PRIORITY,
    CHINESE,
    ERROR,
    FAILED,
    KEY,
    OVERVIEW,
    PROJECT,
    STATISTICS,
    STRATEGY,
    TARGETS,
    TASK,
    page,
    project,
)
from tests.faces.cli.test_program import on_terminal


def test_progress_draws_the_seeds_two_figures(ask, progress):
    assert ask("pull", "progress", env=CHINESE).stdout.splitlines() == [
        "┌─────────────────────┐",
        "│ 全局统计            │",
        "├─────────────────────┤",
        "│ - 总项目数: 200     │",
        "│ - 已同步: 180 (90%) │",
        "│ - 同步中: 5 (2.5%)  │",
        "│ - 等待中: 10 (5%)   │",
        "│ - 失败: 5 (2.5%)    │",
        "│ - 平均延迟: 15分钟  │",
        "│ - 成功率: 97.5%     │",
        "└─────────────────────┘",
        "┌─────────────────────────────────────────┐",
        "│ 按优先级统计                            │",
        "├──────────┬────────┬──────────┬──────────┤",
        "│ 优先级   │ 项目数 │ 已同步   │ 平均延迟 │",
        "├──────────┼────────┼──────────┼──────────┤",
        "│ critical │ 10     │ 10(100%) │ 5分钟    │",
        "│ high     │ 30     │ 29(97%)  │ 12分钟   │",
        "│ normal   │ 100    │ 92(92%)  │ 25分钟   │",
        "│ low      │ 60     │ 49(82%)  │ 2小时    │",
        "└──────────┴────────┴──────────┴──────────┘",
    ]


def test_progress_is_english_elsewhere(ask, progress):
    lines = ask("pull", "progress", env={"LANG": "de_DE.UTF-8"}).stdout.splitlines()
    assert lines[1] == "│ All projects            │"
    assert lines[4] == "│ - Synced: 180 (90%)     │"
    assert lines[8] == "│ - Average delay: 15 min │"
    assert lines[12] == "│ By priority                                    │"
    assert lines[19] == "│ low      │ 60       │ 49(82%)  │ 2 h           │"


@pytest.mark.parametrize(
    ("env", "chinese"),
    [
        ({}, False),
        ({"LANG": "zh_TW.UTF-8"}, True),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "C", "LC_ALL": "zh_CN"}, True),
        ({"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, True),
        ({"LANG": "zh", "LC_ALL": ""}, True),
    ],
)
def test_the_language_follows_the_locale(env, chinese, ask, progress):
    assert ("全局统计" in ask("pull", "progress", env=env).stdout) is chinese


def test_chinese_reaches_a_pipe_whatever_locales_are_installed(spawn, api, progress):
    done = spawn("pull", "progress", env={"EVERMIRROR_SERVER": api.url, "LANG": "zh_CN.UTF-8"})
    assert "│ 全局统计 " in done.stdout


def test_progress_of_disabled_projects_and_of_none(ask, api):
    api.on("GET", "/api/pull/progress/overview", (200, {**OVERVIEW, "disabled": 20}), (200, {}))
    api.on("GET", "/api/pull/progress/by-priority", (200, BY_PRIORITY), (200, {}))
    assert "- Disabled: 20 (10%)" in ask("pull", "progress").stdout
    assert "- Total projects: 0" in ask("pull", "progress").stdout


def test_show_draws_the_seeds_project_box_with_its_tasks(ask, api):
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    tasks = [
        {**TASK, "started_at": f"{today}T23:50:01Z"},
        {**TASK, "started_at": f"{today}T23:40:00Z", "status": "skipped", "changes_count": 0, "repeated": 4},
        {**TASK, "started_at": None, "scheduled_at": "2025-12-12T23:30:00Z", "duration_seconds": None},
    ]
    api.on("GET", project("/config"), (200, {**PROJECT, "targets": TARGETS}))
    api.on("GET", project("/tasks"), page(*tasks))
    assert ask("pull", "show", KEY, env=CHINESE).stdout.splitlines() == [
        "┌─────────────────────────────────────────────────────────────────┐",
        "│ 项目: devops/core                                               │",
        "├─────────────────────────────────────────────────────────────────┤",
        "│ 优先级: critical                                                │",
        "│ 同步间隔: 10分钟                                                │",
        "│ 状态: 启用                                                      │",
        "│ 最后同步: 2025-12-13 23:50:00                                   │",
        "│ 下次同步: 2025-12-14 00:00:00                                   │",
        "│ 连续失败: 0次                                                   │",
        "│ 源仓库: https://git.example.org/devops/core                     │",
        "│ 最大重试: 3次                                                   │",
        "│ 重试延迟: 5分钟                                                 │",
        "│ 目标: https://a.example.org/x                                   │",
        "│   最近推送 2025-12-13 23:50:00                                  │",
        "│ 目标: https://b.example.org/x                                   │",
        "│   连续失败2次: CONFLICT: refs/heads/main holds another's commit │",
        "│ 目标: https://c.example.org/x                                   │",
        "│   已自动暂停: PERMISSION_DENIED                                 │",
        "│ 目标: https://d.example.org/x                                   │",
        "│   下次推送将覆盖目标上的内容                                    │",
        "│ 目标: https://e.example.org/x                                   │",
        "│   尚未推送                                                      │",
        "│                                                                 │",
        "│ 最近任务历史:                                                   │",
        "│ ┌─────────────┬────────────┬──────┬──────┐                      │",
        "│ │ 时间        │ 状态       │ 耗时 │ 变更 │                      │",
        "│ ├─────────────┼────────────┼──────┼──────┤                      │",
        "│ │ 23:50       │ success    │ 2.3s │ 3个  │                      │",
        "│ │ 23:40       │ skipped ×5 │ 2.3s │ 0个  │                      │",
        "│ │ 12-12 23:30 │ success    │ –    │ 3个  │                      │",
        "│ └─────────────┴────────────┴──────┴──────┘                      │",
        "└─────────────────────────────────────────────────────────────────┘",
    ]
    assert api.asked[1][2] == {"limit": ["10"]}


def test_a_paused_project_says_why_and_one_without_configuration_that_it_is_adaptive(ask, api):
    paused = {**PROJECT, "enabled": False, "paused": "5 failures in a row", "overrides": ["priority"]}
    api.on("GET", project("/config"), (200, paused), (200, {**PROJECT, "configured": False}))
    out = ask("pull", "config", KEY).stdout
    assert "State: paused: 5 failures in a row" in out
    assert "Set by hand: priority" in out
    out = ask("pull", "config", KEY).stdout
    assert "Interval: 10 min (adaptive)" in out
    assert "Retries" not in out


def test_statistics_draw_the_seeds_figure_most_frequent_first(ask, api):
    api.on("GET", "/api/pull/errors/statistics", (200, STATISTICS))
    assert ask("pull", "errors", "statistics", "--hours=24", env=CHINESE).stdout.splitlines() == [
        "┌───────────────────────────────────────┐",
        "│ 错误类型统计 (最近24小时)             │",
        "├─────────────────┬──────────┬──────────┤",
        "│ 错误类型        │ 发生次数 │ 影响项目 │",
        "├─────────────────┼──────────┼──────────┤",
        "│ NETWORK_TIMEOUT │ 15       │ 8个项目  │",
        "│ AUTH_FAILED     │ 3        │ 3个项目  │",
        "│ NOT_FOUND       │ 2        │ 2个项目  │",
        "└─────────────────┴──────────┴──────────┘",
    ]
    assert api.asked[0][2] == {"hours": ["24"]}
    assert "(last 1 h)" in ask("pull", "errors", "statistics", "--hours=1").stdout


def test_strategy_shows_what_follows_from_it_now(ask, api):
    night = {"night_hours_start": 0, "night_hours_end": 6, "night_max_concurrent": 10}
    api.on("GET", "/api/pull/strategy", (200, STRATEGY | night))
    out = ask("pull", "strategy", "show").stdout
    for words in (
        "Strategy: default",
        "Peak hours: 9-18 (Asia/Shanghai)",
        "Most at once at night: 10",
        "Now: peak hours, 2 of 3 running, load normal: cpu 55 %",
    ):
        assert words in out
    assert "当前: 高峰时段, 运行中 2/3" in ask("pull", "strategy", "show", env=CHINESE).stdout


def test_strategy_shows_how_late_each_class_may_be(ask, api):
    delays = {"high": {"usual_minutes": 30, "worst_minutes": 30}}
    delays["normal"] = {"usual_minutes": 120, "worst_minutes": 660}
    api.on("GET", "/api/pull/strategy", (200, {**STRATEGY, "expected_delay": delays}))
    out = ask("pull", "strategy", "show").stdout
    assert "Expected delay high: up to 30 min " in out
    assert "Expected delay normal: up to 2 h; up to 11 h around peak hours" in out
    out = ask("pull", "strategy", "show", env=CHINESE).stdout
    assert "预期延迟 normal: 最多2小时；遇高峰时段最多11小时" in out


def test_a_demoted_project_shows_both_classes(ask, api):
    demoted = {**PROJECT, "priority": "critical", "effective_priority": "high"}
    api.on("GET", project("/config"), (200, demoted))
    api.on("GET", "/api/pull/projects", page(demoted))
    for command in (["config", KEY], ["list"]):
        assert "critical (counts as high after failures)" in ask("pull", *command).stdout
        assert "critical (因连续失败按 high 调度)" in ask("pull", *command, env=CHINESE).stdout


def test_boxes_keep_to_the_terminal_and_fold_what_is_too_long(api, tmp_path):
    api.on("GET", project("/errors"), page({**ERROR, "error_message": "很长的错误 " * 40}))
    env = {"LANG": "zh_CN.UTF-8", "COLUMNS": "80", "NO_COLOR": "1"}
    out = on_terminal(["pull", "errors", KEY, "--server", api.url], env, tmp_path).decode()
    lines = out.splitlines()
    assert lines[0].startswith("┌")
    assert {cell_len(line) for line in lines} == {80}
    assert "".join(lines).count("很") == 40


@pytest.mark.parametrize("width", [20, 40, 77, 200])
def test_every_line_of_a_box_is_equally_wide(width):
    rows = [["a", "甲乙丙丁戊己庚辛壬癸" * 3], ["bb" * 20, None]]
    for lines in (
        grid_box(Grid(["列", "column"], rows), "标题 title", width=width),
        facts_box("标题 " * 20, ["", "x", "甲" * 50], width=width),
    ):
        assert len({cell_len(line) for line in lines}) == 1
        assert cell_len(lines[0]) <= max(width, 2 * 8 + 7)
        assert "".join(lines).count("甲") in (3, 50)


def test_every_label_is_translated():
    said: set[str] = set()
    for file in Path(pull.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "label" and call.args:
                texts = [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)]
                said.update(text for text in texts if isinstance(text, str))
    assert len(said) > 20
    fields = {"in_peak", "message"}  # of answers that labels are chosen by
    assert said - _CHINESE.keys() - fields == set()


def test_every_translation_is_used():
    files = [f for f in Path(pull.__file__).parent.glob("*.py") if f.name != "labels.py"]
    text = "".join(f.read_text("utf-8") for f in files)
    told_by_the_server = {"Pull task created successfully", "A pull task was pending already"}
    unused = {t for t in _CHINESE if f'"{t}"' not in text and f"'{t}'" not in text}
    assert unused == told_by_the_server


def test_no_command_shows_english_labels_to_chinese_readers(ask, api, progress):
    api.on("GET", "/api/pull/strategy", (200, STRATEGY))
    api.on("GET", project("/config"), (200, {**PROJECT, "targets": TARGETS}))
    api.on("GET", project("/tasks"), page(TASK, total=99))
    api.on("GET", project("/errors"), page(ERROR))
    api.on("GET", "/api/pull/errors/statistics", (200, STATISTICS))
    api.on("GET", "/api/pull/errors", page(ERROR))
    api.on("GET", "/api/pull/projects/failed", page(FAILED))
    api.on("GET", "/api/pull/projects", page(PROJECT))
    api.on("GET", "/api/pull/tasks/12345", (200, TASK))
    own = {"devops", "core", "legacy", "service", "critical", "high", "normal", "low", "success", "manual"}
    words = {"default", "Asia", "Shanghai", "cpu", "Git", "git", "remote", "update", "limit"}
    for command in (
        ["strategy", "show"],
        ["progress"],
        ["progress", "--priority=low"],
        ["tasks", KEY],
        ["errors", KEY],
        ["errors", "recent"],
        ["errors", "statistics"],
        ["errors", "failed-projects"],
        ["task-status", "12345"],
        ["list"],
    ):
        done = ask("pull", *command, env=CHINESE)
        assert done.returncode == 0, (command, done.stderr)
        printed = re.sub(
            r"https?://\S+|[A-Z]{2,}_[A-Z]+|[0-9a-f]{12,}|Connection timed out after", "", done.stdout
        )
        left = set(re.findall(r"[A-Za-z]{3,}", printed)) - own - words
        assert left <= {"Invalid", "credentials", "failures", "row"}, command
