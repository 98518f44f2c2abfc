"""`gitlab-mirror pull …` against a real node, a real source and a real target: every example of the seed."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faces.cli.conftest import clean_env
from tests.support.gitrepo import UpstreamRepo, run_git
from tests.support.node import NodeThread
from tests.support.upstream import UpstreamServer

CORE, PAYMENT = "devops/core", "devops/payment"
WITHIN_S = 60.0

# Seed 003, section 5, to the letter; lines that end in a backslash are joined.
EXAMPLES = """
gitlab-mirror pull strategy show
gitlab-mirror pull strategy update --max-concurrent=5 --peak-hours=9-18 --peak-concurrent=3
gitlab-mirror pull strategy set-peak-avoidance --enable
gitlab-mirror pull strategy set-adaptive --enable
gitlab-mirror pull config <project-key>
gitlab-mirror pull config <project-key> --priority=critical --interval=10
gitlab-mirror pull config batch-set-priority --projects=devops/core,devops/payment --priority=critical
gitlab-mirror pull config <project-key> --disable
gitlab-mirror pull config <project-key> --enable
gitlab-mirror pull progress
gitlab-mirror pull progress --priority=critical
gitlab-mirror pull tasks <project-key> --limit=10
gitlab-mirror pull trigger <project-key>
gitlab-mirror pull trigger <project-key> --force
gitlab-mirror pull trigger --projects=devops/core,devops/payment
gitlab-mirror pull trigger --priority=critical
gitlab-mirror pull task-status <task-id>
gitlab-mirror pull errors <project-key> --limit=10
gitlab-mirror pull errors statistics --hours=24
gitlab-mirror pull errors failed-projects
gitlab-mirror pull errors reset <project-key>
""".strip().splitlines()


@dataclass
class World:
    node: NodeThread
    upstream: UpstreamServer

    def source(self, name: str) -> UpstreamRepo:
        return self.upstream.create(f"source/{name}")

    def target(self, name: str) -> UpstreamRepo:
        repo = self.upstream.create(f"target/{name}", 0)
        run_git(repo.path, "config", "http.receivepack", "true")
        return repo

    def project(self, key: str) -> dict[str, object]:
        return self.node.client.get(f"/api/pull/projects/{key.replace('/', '%2F')}/config").json()

    def failed(self, key: str) -> list[dict[str, object]]:
        items = self.node.client.get("/api/pull/projects/failed").json()["items"]
        return [item for item in items if item["project_key"] == key]

    def idle(self, *keys: str) -> None:
        """Whatever runs or waits has ended."""
        for key in keys:
            self.node.until(lambda key=key: self.project(key)["task_id"] is None, WITHIN_S)

    def triggered(self, key: str) -> int:
        """A task that a person asked for; those of the schedule that find nothing new are folded into one."""
        self.idle(key)
        answer = self.node.client.post(f"/api/pull/projects/{key.replace('/', '%2F')}/trigger")
        return answer.json()["task_id"]

    def synced(self, *keys: str) -> None:
        """The first sync has ended well."""
        for key in keys:
            self.node.until(lambda key=key: self.project(key)["last_sync_at"] is not None, WITHIN_S)
        self.idle(*keys)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with (
        UpstreamServer(folder / "git") as upstream,
        NodeThread(folder, upstream.host, schedule__min_gap="1s") as node,
    ):
        yield World(node, upstream)


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(run, world) -> Cli:
    def start(*args: str, code: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        done = run("pull", *args, env={"EVERMIRROR_SERVER": world.node.url, **env}, name="gitlab-mirror")
        assert done.returncode == code, (args, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return start


@pytest.fixture
def told(cli) -> Callable[..., dict]:
    def start(*args: str, code: int = 0) -> dict:
        return json.loads(cli(*args, "--json", code=code).stdout)

    return start


@pytest.fixture(scope="module")
def projects(world: World) -> None:
    """Two that were synced once."""
    for key in (CORE, PAYMENT):
        name = key.partition("/")[2]
        body = {
            "project_key": key,
            "source_url": world.source(name).url,
            "targets": [{"url": world.target(name).url}],
        }
        assert world.node.client.post("/api/pull/projects", json=body).status_code == 201
    world.synced(CORE, PAYMENT)


def words_of(example: str, task_id: int) -> list[str]:
    program, *words = shlex.split(
        example.replace("<project-key>", CORE).replace("<task-id>", str(task_id)).replace("<", "'<'")
    )
    assert program == "gitlab-mirror"
    return words[1:]


@pytest.mark.parametrize("language", ["zh_CN.UTF-8", "en_US.UTF-8"])
def test_every_example_of_the_seed_works(world, projects, cli, language):
    task_id = world.triggered(CORE)
    for example in EXAMPLES:
        world.idle(CORE, PAYMENT)
        done = cli(*words_of(example, task_id), LANG=language)
        assert done.stdout, example
    world.idle(CORE, PAYMENT)


def test_every_example_prints_the_apis_fields_as_json(world, projects, told):
    fields = {
        "strategy": {"max_concurrent_pulls", "enable_peak_avoidance", "peak_hours_start", "peak_hours_end"}
        | {"peak_max_concurrent", "off_peak_max_concurrent", "enable_adaptive"},
        "config": {"priority", "sync_interval", "enabled", "max_retries", "retry_delay", "last_sync_at"}
        | {"next_sync_at", "consecutive_failures"},
        "config batch-set-priority": {"updated"},
        "progress": {"total_projects", "synced", "syncing", "pending", "failed", "success_rate"}
        | {"average_delay_minutes"},
        "progress --priority=critical": {"critical"},
        "tasks": {"items", "total", "page", "size"},
        "trigger": {"task_id", "status", "message"},
        "trigger --projects": {"created_tasks", "skipped_running", "task_ids"},
        "trigger --priority": {"created_tasks", "skipped_running", "task_ids"},
        "task-status": {"task_id", "project_key", "status", "progress", "started_at"},
        "errors": {"items"},
        "errors statistics": {"time_range", "total_errors", "by_type"},
        "errors failed-projects": {"items"},
        "errors reset": {"consecutive_failures", "enabled"},
    }
    task_id = world.triggered(CORE)
    for example in EXAMPLES:
        world.idle(CORE, PAYMENT)
        words = words_of(example, task_id)
        name = max((n for n in fields if " ".join(words).startswith(n)), key=len)
        assert fields[name] <= told(*words).keys(), example
    world.idle(CORE, PAYMENT)


def test_strategy_is_changed_and_stays(world, told):
    told("strategy", "update", "--max-concurrent=4", "--peak-hours=22-6", "--peak-concurrent=2")
    told("strategy", "update", "--off-peak-concurrent=7", "--night-hours=0-6", "--night-concurrent=9")
    assert told("strategy", "set-peak-avoidance", "--enable")["enable_peak_avoidance"] is True
    assert told("strategy", "set-adaptive", "--enable")["enable_adaptive"] is True
    shown = told("strategy", "show")
    expected = {
        "max_concurrent_pulls": 4,
        "peak_hours_start": 22,
        "peak_hours_end": 6,
        "peak_max_concurrent": 2,
        "off_peak_max_concurrent": 7,
        "night_max_concurrent": 9,
        "enable_peak_avoidance": True,
        "enable_adaptive": True,
        "enabled": True,
    }
    assert shown.items() >= expected.items()
    told("strategy", "update", "--night-hours=none", "--max-concurrent=5")
    assert told("strategy", "set-peak-avoidance", "--disable")["enable_peak_avoidance"] is False
    assert told("strategy", "set-adaptive", "--disable")["enable_adaptive"] is False
    assert told("strategy", "show")["night_hours_start"] is None


def test_config_is_changed_shown_and_taken_back(world, projects, told, cli):
    changed = told("config", CORE, "--priority=high", "--interval=15", "--max-retries=2", "--retry-delay=3")
    expected = {"priority": "high", "sync_interval": 15, "max_retries": 2, "retry_delay": 3}
    assert changed.items() >= expected.items()
    assert told("config", CORE).items() >= expected.items()
    assert {"priority", "sync_interval"} <= set(changed["overrides"])
    assert "优先级: high" in cli("config", CORE, LANG="zh_CN.UTF-8").stdout
    assert (
        told("config", "batch-set-priority", f"--projects={CORE},{PAYMENT}", "--priority=low")["updated"] == 2
    )
    assert [told("config", key)["priority"] for key in (CORE, PAYMENT)] == ["low", "low"]
    assert told("config", CORE, "--disable")["enabled"] is False
    assert "disabled" in cli("trigger", CORE, code=1).stderr
    assert f"project {CORE} is disabled" in cli("trigger", f"--projects={CORE},{PAYMENT}", code=1).stderr
    assert told("config", CORE, "--enable")["enabled"] is True
    world.idle(CORE, PAYMENT)


def test_list_and_show(world, projects, told, cli):
    world.triggered(CORE)  # finds nothing new
    world.idle(CORE)
    assert [p["project_key"] for p in told("list", "--search=devops/")["items"]] == [CORE, PAYMENT]
    assert told("list", "--search=nothing")["items"] == []
    assert CORE in cli("list").stdout
    shown = told("show", CORE)
    assert shown["tasks"]["items"][0]["status"] in ("success", "skipped")
    box = cli("show", CORE, LANG="zh_CN.UTF-8").stdout
    for words in (f"项目: {CORE}", "最近任务历史:", "skipped", "0个", "最近推送"):
        assert words in box


def test_a_trigger_puts_what_is_new_at_the_target_and_a_second_one_skips(world, told):
    source, target = world.source("fresh"), world.target("fresh")
    made = told(
        "add", "team/fresh", source.url, f"--target={target.url}", "--priority=critical", "--interval=1h"
    )
    assert made["sync_interval"] == 60
    world.synced("team/fresh")
    tip = source.commit()
    done = told("trigger", "team/fresh", "--wait", "60")
    assert (done["status"], done["changes_count"], done["source_commit_sha"]) == ("success", 1, tip)
    assert (done["target_commit_sha"], target.tip()) == (tip, tip)
    assert told("task-status", str(done["task_id"]))["status"] == "success"
    world.idle("team/fresh")  # it hears of an end when that is stored
    assert told("trigger", "team/fresh", "--wait")["status"] == "skipped"
    world.idle("team/fresh")
    batch = told("trigger", "--projects=team/fresh,team/none", "--wait", "60", code=5)
    assert batch["not_found"] == ["team/none"]
    assert [t["status"] for t in batch["tasks"]] == ["skipped"]
    assert [t["status"] for t in told("tasks", "team/fresh", "--limit=2")["items"]] == ["skipped", "skipped"]


def test_what_others_put_at_a_target_waits_until_it_is_adopted(world, told, cli, tmp_path):
    source, target = world.source("taken"), world.target("taken")
    told("add", "team/taken", source.url, f"--target={target.url}")
    world.synced("team/taken")
    foreign = commit_at(target, tmp_path)
    source.commit()
    done = cli("trigger", "team/taken", "--wait", "60", code=1)
    assert "CONFLICT" in done.stderr
    assert target.tip() == foreign
    assert "CONFLICT" in cli("show", "team/taken").stdout
    assert told("errors", "team/taken", "--type=CONFLICT")["items"][0]["target_url"] == target.url
    elsewhere = world.upstream.url("target/elsewhere.git")
    refusal = cli("targets", "adopt", "team/taken", f"--url={elsewhere}", "--yes", code=5).stderr
    assert elsewhere in refusal
    assert target.url in refusal
    cli("targets", "adopt", "team/taken", "--yes")
    world.node.until(lambda: target.tip() == source.tip())


def commit_at(repo: UpstreamRepo, folder: Path) -> str:
    """A commit that somebody else pushed to main."""
    clone = folder / "clone"
    run_git(folder, "clone", "--quiet", str(repo.path), str(clone))
    run_git(
        clone, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "--allow-empty", "-m", "ours"
    )
    run_git(clone, "push", "--quiet", "origin", "HEAD:main")
    return repo.tip()


def test_errors_are_told_and_a_reset_brings_a_project_back(world, told, cli):
    source = world.source("broken")
    told("add", "team/broken", source.url, f"--target={world.target('broken').url}")
    world.synced("team/broken")
    world.upstream.delete(source)
    assert "NOT_FOUND" in cli("trigger", "team/broken", "--wait", "60", code=1).stderr
    assert told("errors", "team/broken")["items"][0]["error_type"] == "NOT_FOUND"
    assert "NOT_FOUND" in cli("errors", "team/broken", "--limit=10").stdout
    assert "team/broken" in cli("errors", "recent").stdout
    assert told("errors", "statistics", "--hours=1")["by_type"]["NOT_FOUND"]["affected_projects"] == 1
    assert "1个项目" in cli("errors", "statistics", LANG="zh_CN.UTF-8").stdout
    world.node.until(lambda: any(not i["enabled"] for i in world.failed("team/broken")))
    (failed,) = [i for i in told("errors", "failed-projects")["items"] if i["project_key"] == "team/broken"]
    assert (failed["enabled"], failed["last_error_type"]) == (False, "NOT_FOUND")
    assert "paused: " in cli("show", "team/broken").stdout
    world.upstream.create("source/broken")
    assert told("errors", "reset", "team/broken")["enabled"] is True
    world.node.until(lambda: world.project("team/broken")["consecutive_failures"] == 0)
    cli("remove", "team/broken", "--yes")
    cli("config", "team/broken", code=5)


def test_progress_counts_and_watches(world, projects, told):
    world.idle(CORE, PAYMENT)
    counted = told("progress")
    listed = told("list", "--all")["total"]
    assert counted["total_projects"] == listed
    assert sum(c["total"] for c in counted["by_priority"].values()) == listed
    assert told("progress", "--from=1h")["period"]["tasks"] > 0
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "evermirror",
            "pull",
            "progress",
            "--watch",
            "--json",
            "--server",
            world.node.url,
        ],
        env=clean_env(Path.cwd()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["total_projects"] for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err, seen) == (130, "", [listed, listed])


@pytest.mark.parametrize(
    "command",
    [
        ["config", "no/such"],
        ["config", "no/such", "--enable"],
        ["config", "no/such", "--reset"],
        ["config", "batch-set-priority", "--projects=no/such", "--priority=low"],
        ["tasks", "no/such"],
        ["show", "no/such"],
        ["trigger", "no/such"],
        ["trigger", "--projects=no/such"],
        ["errors", "no/such"],
        ["errors", "reset", "no/such"],
        ["remove", "no/such", "--yes"],
        ["targets", "adopt", "no/such", "--yes"],
        ["task-status", "987654321"],
    ],
)
def test_what_is_not_known_ends_with_five_and_is_named(cli, command):
    done = cli(*command, code=5)
    assert done.stdout == ""
    assert ("987654321" if command[0] == "task-status" else "no/such") in done.stderr
    assert "`gitlab-mirror pull " in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["add", "x/y", "nonsense"], "nonsense"),
        (["add", "x/../y", "https://h.org/a"], "x/../y"),
        (["add", "x/y", "https://h.org/a"], "'https://h.org/a'"),
        (["add", "x/y", "http://h.org/a", "--target=http://h.org/b", "--target=ftp://h/x"], "ftp://h/x"),
        (["add", "x/y", "http://h.org/a", "--target=ftp://u:secret@h/x"], "'***@h/x'"),
        (["add", "x/y", "http://h.org/a", "--credential=none-such"], "none-such"),
        (["config", CORE, "--interval=0"], "'0'"),
        (["config", CORE, "--target=http://127.0.0.1:1/x"], "http://127.0.0.1:1/x"),
        (["strategy", "update", "--night-hours=0-6"], "night_max_concurrent"),
        (["errors", CORE, "--type=NONE"], "type"),
    ],
)
def test_what_the_server_refuses_ends_with_two_and_is_named(world, projects, cli, command, words):
    before = world.project(CORE)
    done = cli(*command, code=2)
    assert words in done.stderr
    assert "secret" not in done.stderr
    assert world.project(CORE) | {"next_sync_at": 0} == before | {"next_sync_at": 0}


def test_a_project_that_is_there_is_not_added_again(world, projects, cli):
    there = world.project(CORE)
    assert CORE in cli("add", CORE, world.upstream.url("source/other"), code=1).stderr
    assert "source/core" in cli("add", "other/name", str(there["source_url"]), code=1).stderr
    cli("config", "other/name", code=5)
