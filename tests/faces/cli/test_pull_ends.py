"""`pull …`: how it ends, by which name it speaks of itself, help and completion; the server is a stand-in."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from rich.cells import cell_len

from evermirror.config.pull_section import Pull, Retries, ScheduledJobs
from tests.faces.cli.conftest import SRC, clean_env
from tests.faces.cli.pull_answers import ERROR, HOSTILE, KEY, PROJECT, STRATEGY, TASK, page, problem, project
from tests.faces.cli.test_program import on_terminal
from tests.support.house import shown_commands

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (problem(401, "token wanted"), 4),
        (problem(403, "role too low"), 4),
        (problem(404, "unknown", "not-found"), 5),
        (problem(409, "contradiction"), 1),
        (problem(422, "bad"), 2),
        (problem(500, "ours"), 1),
        ((200, b"<html>"), 3),
    ],
)
@pytest.mark.parametrize(
    ("method", "rest", "args"),
    [
        ("GET", "/config", ["config", KEY]),
        ("PUT", "/config", ["config", KEY, "--enable"]),
        ("GET", "/tasks", ["tasks", KEY]),
        ("POST", "/trigger", ["trigger", KEY]),
        ("POST", "/reset-failures", ["errors", "reset", KEY]),
        ("DELETE", "", ["remove", KEY, "--yes"]),
    ],
)
def test_every_refusal_has_its_exit_code_and_names_the_project(answer, code, method, rest, args, ask, api):
    api.on(method, project(rest), answer)
    done = ask("pull", *args, "--json")
    assert (done.returncode, done.stdout) == (code, "")
    assert KEY in done.stderr
    if code == 5:
        assert "`evermirror pull list --search TEXT`" in done.stderr


def test_hostile_words_cannot_reach_the_terminal(ask, api):
    error = {"error_type": HOSTILE, "error_message": HOSTILE}
    hostile = {name: HOSTILE if isinstance(value, str) else value for name, value in PROJECT.items()}
    hostile |= {"paused": HOSTILE, "last_error": error, "overrides": [HOSTILE]}
    hostile["targets"] = [{"url": HOSTILE, "paused": HOSTILE}]
    task = {name: HOSTILE if isinstance(value, str) else value for name, value in TASK.items()}
    api.on("GET", project("/config"), (200, hostile))
    api.on("GET", project("/tasks"), page(task))
    api.on("GET", project("/errors"), page({**ERROR, **error, "git_command": HOSTILE}))
    api.on("GET", "/api/pull/projects", page(hostile))
    api.on(
        "GET",
        "/api/pull/tasks/1",
        (200, {**task, **error, "pushes": [{"target_url": HOSTILE, "failure": error}]}),
    )
    api.on("GET", "/api/pull/strategy", (200, {**STRATEGY, "strategy_name": HOSTILE, "time_zone": HOSTILE}))
    for args in (
        ["show", KEY],
        ["tasks", KEY],
        ["errors", KEY],
        ["list"],
        ["task-status", "1"],
        ["strategy", "show"],
    ):
        done = ask("pull", *args)
        assert done.returncode == 0, (args, done.stderr)
        assert "evil" in done.stdout
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(done.stdout), args
        assert len({cell_len(line) for line in done.stdout.splitlines()}) == 1


def test_progress_watch_goes_on_until_interrupted(api, progress, tmp_path):
    for extra, last in ([["--json"], "}"], [[], "┘"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "evermirror", "pull", "progress", "--watch", "--server", api.url, *extra],
            env=clean_env(tmp_path) | {"PYTHONUNBUFFERED": "1"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2 if extra else 42)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (130, "")
        assert lines[-1].rstrip().endswith(last)
        assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]


# The other name


def test_progress_watch_draws_in_place_on_a_terminal_until_ctrl_c(api, progress, tmp_path):
    main, side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "evermirror", "pull", "progress", "--watch", "--server", api.url],
        env=clean_env(tmp_path) | {"TERM": "xterm"},
        cwd=tmp_path,
        stdin=side,
        stdout=side,
        stderr=side,
        start_new_session=True,
    )
    os.close(side)
    seen = b""
    while "└──────────┴".encode() not in seen:
        seen += os.read(main, 65536)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the terminal is closed
        while chunk := os.read(main, 65536):
            seen += chunk
    os.close(main)
    assert process.wait(20) == 130
    assert "│ All projects " in seen.decode()
    assert b"\x1b[?1049l" in seen, "the screen is not given back"
    assert b"Traceback" not in seen


def test_a_trigger_that_waits_shows_the_tasks_own_words_on_a_terminal(api, tmp_path):
    api.on("POST", project("/trigger"), (200, {"task_id": 12345, "status": "pending"}))
    running = {**TASK, "status": "running", "completed_at": None, "progress": "Pulling changes... 42 %"}
    api.on("GET", "/api/pull/tasks/12345", *[(200, running)] * 4, (200, TASK))
    out = on_terminal(["pull", "trigger", KEY, "--wait", "--server", api.url], {}, tmp_path).decode()
    assert "Pulling changes..." in out
    assert "42 %" in out
    assert "State: success" in out


def test_help_hints_and_usage_bear_the_name_that_the_program_was_started_by(ask, run, api):
    done = ask("pull", "config", "no/such", name="gitlab-mirror")
    assert done.returncode == 5
    assert "`gitlab-mirror pull list --search TEXT`" in done.stderr
    assert "`evermirror" not in done.stderr
    told = run("pull", "config", "x", "--help", name="gitlab-mirror").stdout
    assert "Usage: gitlab-mirror pull config KEY [OPTIONS]" in told
    assert "gitlab-mirror pull trigger" in run("pull", "trigger", "--bogus", name="gitlab-mirror").stderr
    assert "`gitlab-mirror workers`" in run("worker", "drain", "--help", name="gitlab-mirror").stdout
    assert "`gitlab-mirror up`" in run("repos", "--server=http://127.0.0.1:1", name="gitlab-mirror").stderr
    assert run("--debug", "--version", name="gitlab-mirror").stdout.startswith("gitlab-mirror ")


def test_the_second_program_is_installed():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    assert scripts["gitlab-mirror"] == scripts["evermirror"]


@pytest.mark.parametrize("name", ["evermirror", "gitlab-mirror"])
def test_completion_knows_the_commands_of_pull(name, run):
    def complete(words: str) -> list[str]:
        index = str(len(words.split(" ")) - 1)
        variable = f"_{name}_complete".replace("-", "_").upper()
        env = {variable: "complete_bash", "COMP_WORDS": f"{name} {words}", "COMP_CWORD": str(int(index) + 1)}
        return run(env=env, name=name).stdout.split()

    assert complete("pull s") == ["show", "strategy"]
    assert complete("pull config ") == ["batch-set-priority"]
    assert complete("pull config devops/core --pri") == ["--priority"]
    assert complete("pull config --pri") == ["--priority"]
    assert complete("pull config devops/core --priority c") == ["critical"]
    assert complete("pull config batch-set-priority --pro") == ["--projects"]
    assert complete("pull errors ") == ["recent", "statistics", "failed-projects", "reset"]
    assert complete("pull trigger --priority n") == ["normal"]


@pytest.mark.parametrize(
    "command",
    [
        *("add", "remove", "list", "show", "config KEY", "config batch-set-priority", "targets adopt"),
        *("progress", "tasks", "task-status", "trigger"),
        *("errors KEY", "errors recent", "errors statistics", "errors failed-projects", "errors reset"),
        *("strategy show", "strategy update", "strategy set-peak-avoidance", "strategy set-adaptive"),
    ],
)
def test_every_command_of_pull_explains_itself_and_takes_json(command, run):
    done = run("pull", *command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: evermirror pull {command} [OPTIONS]" in done.stdout
    assert not re.search(r"<\w|list\[|\[\[|\{", done.stdout)
    assert "--json" in done.stdout


@pytest.mark.parametrize("name", ["docs/pull.md", "docs/cli.md", "README.md"])
def test_the_pages_show_commands_that_the_program_takes(name, ask, api):
    shown = [c for c in shown_commands((ROOT / name).read_text("utf-8")) if c.split()[1:2] == ["pull"]]
    assert len(shown) >= 3
    for command in shown:
        program, *words = shlex.split(command)
        done = ask(*words, "--yes") if words[1:2] in (["remove"], ["targets"]) else ask(*words, name=program)
        assert done.returncode in (0, 5), (command, done.stderr)  # 5: the stand-in knows nothing


def test_both_languages_of_the_guide_show_the_same_commands():
    english, chinese = ((ROOT / f"docs/pull{end}.md").read_text("utf-8") for end in ("", ".zh-CN"))
    assert shown_commands(english) == shown_commands(chinese)
    assert [h.count("#") for h in headings(english)] == [h.count("#") for h in headings(chinese)]


def headings(page: str) -> list[str]:
    return re.findall(r"^#+ ", page, re.MULTILINE)


def test_the_guide_names_every_setting_of_pull():
    sections = {"pull": Pull, "retry_policy": Retries, "scheduled_jobs": ScheduledJobs}
    names = [f"{section}.{name}" for section, of in sections.items() for name in of.model_fields]
    for end in ("", ".zh-CN"):
        text = (ROOT / f"docs/pull{end}.md").read_text("utf-8")
        assert [name for name in names if f"\n| `{name}` |" not in text] == []


def test_pull_imports_nothing_heavy_before_it_is_used():
    code = (
        "import sys; from evermirror.faces.cli.pull import app\n"
        "heavy = ('rich', 'pydantic', 'fastapi', 'sqlalchemy', 'grpc', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]", done.stderr
