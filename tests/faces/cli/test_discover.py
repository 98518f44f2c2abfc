"""`pull discover …` against a real node and stand-ins for two GitLabs, and what it asks of the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.forges.gitlab import GitLabServer
from tests.support.node import NodeThread

pytestmark = pytest.mark.timeout(120)

BASE = "/api/pull/discoveries"
CHINESE = {"LC_ALL": "zh_CN.UTF-8"}


@dataclass
class World:
    node: NodeThread
    source: GitLabServer
    target: GitLabServer

    def args(self, *more: str) -> list[str]:
        """Of a discovery from the one into the other."""
        where = ["--credential", "source", "--target", f"{self.target.base_url}/mirrors"]
        into = ["--target-credential", "target"]
        return ["pull", "discover", self.source.base_url, "--group", "devops", *where, *into, *more]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        source.add_token("token-of-source")
        target.add_token("token-of-target")
        target.add_group("mirrors")
        settings = {
            "upstreams__allow": [source.host, target.host],
            "credentials__source__token": "token-of-source",
            "credentials__target__token": "token-of-target",
            "credentials__target__forge": "gitlab",
        }
        with NodeThread(tmp_path, source.host, **settings) as node:
            yield World(node, source, target)


def test_a_group_is_shown_made_followed_stopped_and_removed(world, run):
    env = {"EVERMIRROR_SERVER": world.node.url}
    world.source.add_project("devops/core", commits=1)
    world.source.add_project("devops/tools/x", commits=1)
    world.source.add_project("devops/sandbox/y", commits=1)
    world.source.add_project("devops/badges", commits=1)
    dry = run(*world.args("--exclude", "devops/sandbox/*", "--dry-run"), env=env)
    assert dry.returncode == 0, dry.stderr
    assert "nothing was changed" in dry.stdout
    assert "mirrors/core.git (new)" in dry.stdout
    assert "sandbox" not in dry.stdout
    assert not world.target.asked("POST")
    made = run(*world.args("--exclude", "devops/sandbox/*", "--every", "2h", "--yes"), env=env)
    assert made.returncode == 0, made.stderr
    assert "Created: 2" in made.stdout
    assert "devops/tools/x" in made.stdout
    assert "refused" in made.stdout  # badges: GitLab keeps that name to itself
    assert world.target.project_at("mirrors/tools/x") is not None
    listed = run("pull", "discover", "list", env=env)
    assert "devops" in listed.stdout
    assert "2 h" in listed.stdout
    again = run(*world.args("--yes"), env=env)
    assert again.returncode == 1
    assert "followed already" in again.stderr
    assert "pull discover change 1" in again.stderr
    fewer = ["--exclude", "devops/sandbox/*", "--exclude", "devops/tools/*"]
    changed = run("pull", "discover", "change", "1", "--every", "3h", *fewer, env=env)
    assert changed.returncode == 0, changed.stderr
    assert "3 h" in changed.stdout
    assert "Gone: 1" in changed.stdout
    back = run("pull", "discover", "change", "1", "--exclude", "devops/sandbox/*", "--json", env=env)
    assert json.loads(back.stdout)["last_run"]["returned"] == 1
    shown = run("pull", "discover", "show", "1", "--state", "refused", "--json", env=env)
    (row,) = json.loads(shown.stdout)["found"]["items"]
    assert row["path"] == "devops/badges"
    chinese = run("pull", "discover", "run", "1", env=env | CHINESE)
    assert chinese.returncode == 0
    assert "未变: 2" in chinese.stdout
    stopped = run("pull", "discover", "stop", "1", "--json", env=env)
    assert json.loads(stopped.stdout)["enabled"] is False
    assert "stopped" in run("pull", "discover", "list", env=env).stdout
    started = run("pull", "discover", "start", "1", "--json", env=env)
    assert json.loads(started.stdout)["enabled"] is True
    unsure = run("pull", "discover", "remove", "1", env=env)
    assert unsure.returncode == 2
    assert "--yes" in unsure.stderr
    assert run("pull", "discover", "remove", "1", "--yes", env=env).returncode == 0
    assert "no groups are followed" in run("pull", "discover", "list", env=env).stdout
    projects = json.loads(run("pull", "list", "--json", env=env).stdout)
    assert projects["total"] == 2  # they stay


def test_a_run_that_fails_says_why_and_what_to_do(world, run):
    env = {"EVERMIRROR_SERVER": world.node.url}
    missing = run(
        "pull", "discover", world.source.base_url, "--group", "nobody", "--credential", "source", env=env
    )
    assert missing.returncode == 1
    assert "NOT_FOUND: there is no group nobody" in missing.stderr
    assert "pull discover remove 1" in missing.stderr
    assert "next look at" in missing.stderr
    preview = run(*world.args("--dry-run"), env=env)
    assert preview.returncode == 1
    assert "there is no group devops" in preview.stderr
    assert "Is its name right" in preview.stderr
    assert "remove" not in preview.stderr
    unknown = run("pull", "discover", "run", "77", env=env)
    assert unknown.returncode == 5
    assert "77" in unknown.stderr
    assert "pull discover list" in unknown.stderr
    assert "evermirror add" not in unknown.stderr


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["--group", "devops"], {"group": "devops"}),
        (["--group", "devops", "--once"], {"group": "devops", "every": None}),
        (["--group", "devops", "--every", "90m"], {"group": "devops", "every": 90}),
        (
            ["--group", "g", "--include", "g/a*", "--include", "g/b*", "--exclude", "g/ab", "--archived"],
            {"group": "g", "include": ["g/a*", "g/b*"], "exclude": ["g/ab"], "archived": True},
        ),
        (
            [
                "--group",
                "g",
                "--ssh",
                "--prefix",
                "m/",
                "--priority",
                "low",
                "--interval",
                "2h",
                "--no-subgroups",
            ],
            {
                "group": "g",
                "over_ssh": True,
                "prefix": "m/",
                "priority": "low",
                "sync_interval": 120,
                "subgroups": False,
            },
        ),
        (
            ["--group", "g", "--forge", "gitea", "--visibility", "private", "--leave-protected"],
            {"group": "g", "forge": "gitea", "visibility": "private", "protected_branches": "leave"},
        ),
    ],
)
def test_what_is_asked_of_the_api(args, body, run, api):
    api.on("POST", BASE, (201, {"id": 3, "runs_ended": 0, "run": None, "last_run": None}))
    env = {"EVERMIRROR_SERVER": api.url}
    done = run("pull", "discover", "https://gitlab.example.com", *args, "--no-wait", env=env)
    assert done.returncode == 0, done.stderr
    (asked,) = api.asked
    assert asked[3] == {"source_url": "https://gitlab.example.com", **body}


def test_the_group_may_stand_in_the_address_and_github_is_known(run, api):
    api.on("POST", BASE, (201, {"id": 3, "runs_ended": 0}))
    run("pull", "discover", "https://github.com/acme", "--no-wait", env={"EVERMIRROR_SERVER": api.url})
    (asked,) = api.asked
    assert asked[3] == {"source_url": "https://github.com", "group": "acme", "forge": "github"}


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["https://gitlab.example.com"], "--group"),
        (["https://gitlab.example.com", "--group", "g", "--once", "--every", "1h"], "--once"),
        (["https://gitlab.example.com", "--group", "g", "--forge", "svn"], "svn"),
        (["https://gitlab.example.com", "--group", "g", "--priority", "huge"], "huge"),
        (["https://gitlab.example.com", "--group", "g", "--every", "soon"], "soon"),
        (
            ["https://gitlab.example.com", "--group", "g", "--every", "1s"],
            "--every '1s' is not from 1 minute",
        ),
        (["https://gitlab.example.com", "--group", "g", "--every", "31d"], "30 days"),
        (["http://[x", "--group", "g"], "'http://[x' is not an address"),
        (["gitlab.example.com", "--group", "g"], "https://gitlab.example.com"),
        (["change", "1"], "nothing is to change"),
        (["change", "1", "--every", "1s"], "30 days"),
        (["change", "1", "--exclude", "g/*", "--without", "exclude"], "--without exclude"),
        (["change", "1", "--without", "group"], "group"),
        (["run", "x"], "x"),
        (["show", "1", "--state", "odd"], "odd"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_nothing_is_asked(args, words, run, api):
    done = run("pull", "discover", *args, env={"EVERMIRROR_SERVER": api.url})
    assert done.returncode == 2
    assert words in done.stderr
    assert not api.asked


@pytest.mark.parametrize(
    "args",
    [
        ["http://user:hush-hush@127.0.0.1:1/", "--group", "x", "--dry-run"],
        ["http://127.0.0.1:1?private_token=hush-hush", "--group", "x"],
        ["http://127.0.0.1:1/devops#hush-hush"],
        ["hush-hush@127.0.0.1", "--group", "x"],
        ["http://127.0.0.1:1", "--group", "x", "--target", "https://u:hush-hush@t.example.com/m"],
        ["http://127.0.0.1:1", "--group", "x", "--target", "https://t.example.com/m?t=hush-hush"],
        ["change", "1", "--target", "https://u:hush-hush@t.example.com/m"],
    ],
)
def test_secrets_in_an_address_are_neither_shown_nor_sent(args, run, api):
    done = run("pull", "discover", *args, env={"EVERMIRROR_SERVER": api.url})
    assert done.returncode == 2
    assert "hush" not in done.stdout + done.stderr
    assert "credential" in done.stderr
    assert not api.asked


@pytest.mark.parametrize(
    ("args", "body"),
    [
        (["--exclude", "g/x*", "--every", "2h"], {"exclude": ["g/x*"], "every": 120}),
        (["--once", "--no-archived", "--subgroups"], {"every": None, "archived": False, "subgroups": True}),
        (["--open-protected", "--no-ssh"], {"protected_branches": "open", "over_ssh": False}),
        (
            ["--without", "include", "--without", "--target", "--without", "interval", "--without", "prefix"],
            {"include": [], "target_url": None, "sync_interval": None, "prefix": ""},
        ),
        (
            ["--target", "https://github.com/acme", "--target-credential", "t", "--visibility", "private"],
            {
                "target_url": "https://github.com/acme",
                "target_forge": "github",
                "target_credential": "t",
                "visibility": "private",
            },
        ),
    ],
)
def test_what_is_changed(args, body, run, api):
    api.on("PUT", f"{BASE}/3", (200, {"id": 3, "runs_ended": 0, "enabled": True}))
    done = run("pull", "discover", "change", "3", *args, "--no-wait", env={"EVERMIRROR_SERVER": api.url})
    assert done.returncode == 0, done.stderr
    (asked,) = api.asked
    assert asked[3] == body


LATER = "2199-01-01T00:00:00Z"
RAN = {"ended_at": "2026-11-16T09:00:00Z", "held": 0, "error": None}


def an_answer(**fields: object) -> dict[str, object]:
    calm = {"id": 3, "enabled": True, "runs_ended": 5, "run": None, "last_run": RAN, "next_run_at": LATER}
    return {**calm, **fields}


def test_all_projects_of_a_group_are_shown_as_json_however_many(run, api):
    api.on("GET", f"{BASE}/3", (200, an_answer()))
    pages = [[{"path": f"g/{n}"} for n in range(begin, end)] for begin, end in ((0, 1000), (1000, 1003))]
    api.on("GET", f"{BASE}/3/projects", *((200, {"items": items, "total": 1003}) for items in pages))
    done = run("pull", "discover", "show", "3", "--all", "--json", env={"EVERMIRROR_SERVER": api.url})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["found"]
    assert [row["path"] for row in found["items"]] == [f"g/{n}" for n in range(1003)]


def test_a_discovery_that_is_stopped_is_waited_for_no_longer(run, api):
    api.on("POST", f"{BASE}/3/run", (200, an_answer()))
    running = an_answer(run={"phase": "listing"})
    stopped = an_answer(enabled=False, next_run_at=None)
    api.on("GET", f"{BASE}/3", (200, an_answer()), (200, running), (200, stopped))
    done = run("pull", "discover", "run", "3", "--json", env={"EVERMIRROR_SERVER": api.url})
    assert done.returncode == 1
    assert "discovery 3 was stopped before its run ended" in done.stderr
    assert "pull discover start 3" in done.stderr


def test_a_restart_of_the_server_does_not_end_the_waiting_with_the_run_before(run, api):
    failed = {**RAN, "ended_at": "2026-11-16T10:00:00Z", "error": {"error_type": "UNKNOWN", "hint": ""}}
    api.on("POST", f"{BASE}/3/run", (200, an_answer()))
    api.on(
        "GET",
        f"{BASE}/3",
        (200, an_answer(run={"phase": "listing"})),
        (200, an_answer(runs_ended=0)),
        (200, an_answer(runs_ended=1, last_run=failed)),
    )
    done = run("pull", "discover", "run", "3", "--json", env={"EVERMIRROR_SERVER": api.url})
    assert done.returncode == 1
    assert json.loads(done.stdout)["last_run"]["ended_at"] == failed["ended_at"]


def test_when_it_is_looked_at_again_is_said_where_a_run_failed(run, api):
    error = {"error_type": "RATE_LIMITED", "error_message": "HTTP 429", "hint": "It goes on by itself"}
    api.on("POST", f"{BASE}/3/run", (200, an_answer()))
    api.on("GET", f"{BASE}/3", (200, an_answer(runs_ended=6, last_run={**RAN, "error": error})))
    env = {"EVERMIRROR_SERVER": api.url, "TZ": "UTC"}
    done = run("pull", "discover", "run", "3", "--json", env=env)
    assert done.returncode == 1
    assert "It goes on by itself; next look at 01-01 00:00" in done.stderr
    api.on("GET", f"{BASE}/3/projects", (200, {"items": [], "total": 0}))
    shown = run("pull", "discover", "show", "3", env=env)
    assert "Next run: 01-01 00:00" in shown.stdout


@pytest.mark.parametrize(
    ("env", "words"), [({}, "4 projects are gone at once and wait"), (CHINESE, "一次消失了 4 个项目")]
)
def test_removals_that_wait_have_their_own_exit_code(env, words, run, api):
    api.on("POST", f"{BASE}/3/run", (200, an_answer()))
    api.on("GET", f"{BASE}/3", (200, an_answer(runs_ended=6, last_run={**RAN, "held": 4})))
    api.on("GET", f"{BASE}/3/projects", (200, {"items": [], "total": 0}))
    env = {"EVERMIRROR_SERVER": api.url} | env
    for more in ([], ["--json"]):
        done = run("pull", "discover", "run", "3", *more, env=env)
        assert done.returncode == 6
        assert done.stderr.count(words) == 1
        assert "pull discover run 3 --accept" in done.stderr
    shown = run("pull", "discover", "show", "3", env=env)
    assert shown.returncode == 0
    assert words in shown.stderr


def test_what_is_removed_is_said_in_the_readers_language(run, api):
    api.on("DELETE", f"{BASE}/3", (200, {"id": 3, "status": "removed"}))
    env = {"EVERMIRROR_SERVER": api.url}
    assert "removed  3" in run("pull", "discover", "remove", "3", "--yes", env=env).stdout
    assert "已移除  3" in run("pull", "discover", "remove", "3", "--yes", env=env | CHINESE).stdout
    assert "忘记发现任务 3" in run("pull", "discover", "remove", "3", env=env | CHINESE).stderr


def test_usage_shows_the_source_once(run):
    shown = run("pull", "discover", "https://x.example.com", "--help")
    assert "pull discover SOURCE [OPTIONS]" in shown.stdout
    assert "SOURCE SOURCE" not in shown.stdout
