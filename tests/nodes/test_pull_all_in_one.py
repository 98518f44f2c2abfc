"""Projects in one process, over the API, from a real git server to real git servers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.gitrepo import UpstreamRepo
from tests.support.stage import Running
from tests.support.upstream import UpstreamServer

pytestmark = pytest.mark.timeout(120)

SECRET = "hunter2-of-the-target"
STORED_KEYS = {
    "error_type", "error_message", "git_command", "source_url", "target_url", "timestamp", "retry_count",
}  # fmt: skip


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[UpstreamServer]:
    """Where the targets are."""
    with UpstreamServer(tmp_path / "forge") as server:
        yield server


def target_of(forge: UpstreamServer, name: str) -> UpstreamRepo:
    repo = forge.create(name, commits=0)
    repo.git("config", "http.receivepack", "true")
    return repo


class Pulls:
    """What people do with projects."""

    def __init__(self, up: Running) -> None:
        self.up = up
        self.client = up.client

    async def create(self, name: str, source: UpstreamRepo, *targets: UpstreamRepo, **more: object) -> dict:
        body = {
            "project_key": name,
            "source_url": source.url,
            "targets": [{"url": target.url} for target in targets],
            **more,
        }
        answer = await self.client.post("/api/pull/projects", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def config(self, name: str) -> dict:
        answer = await self.client.get(f"/api/pull/projects/{name}/config")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def put(self, name: str, **values: object) -> dict:
        answer = await self.client.put(f"/api/pull/projects/{name}/config", json=values)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def tasks(self, name: str) -> list[dict]:
        return (await self.client.get(f"/api/pull/projects/{name}/tasks?limit=50")).json()["items"]

    async def until_ended(self, name: str, count: int = 1) -> dict:
        """The newest task once so many have ended."""

        async def ended() -> bool:
            tasks = await self.tasks(name)
            over = [t for t in tasks if t["status"] in ("success", "failed", "skipped")]
            return len(over) >= count and len(over) == len(tasks)

        await self.up.until(ended)
        return (await self.tasks(name))[0]

    async def trigger(self, name: str, **how: object) -> dict:
        """Triggered, and ended."""
        answer = await self.client.post(f"/api/pull/projects/{name}/trigger", json=how)
        assert answer.status_code < 300, answer.text
        task_id = answer.json()["task_id"]

        async def ended() -> bool:
            return (await self.task(task_id))["status"] in ("success", "failed", "skipped")

        await self.up.until(ended)
        return await self.task(task_id)

    async def task(self, task_id: int) -> dict:
        return (await self.client.get(f"/api/pull/tasks/{task_id}")).json()


def allowing(*servers: UpstreamServer, **more: object) -> dict[str, object]:
    return {"allow": [server.host for server in servers], **more}


MANY = 12  # more than are pulled at once


@pytest.mark.parametrize("how", ["api", "catalog"])
async def test_many_new_projects_are_synced_once_each(how, stage, upstream, forge, tmp_path):
    names = [f"devops/p{n}" for n in range(MANY)]
    first = upstream.create(names[0], commits=3)
    sources = [first, *(upstream.copy(first, name) for name in names[1:])]
    targets = [target_of(forge, name) for name in names]
    listed = tmp_path / "urls.txt"
    lines = [f"{s.url} alias={n} target={t.url}" for n, s, t in zip(names, sources, targets, strict=True)]
    listed.write_text("\n".join(lines) if how == "catalog" else "")
    async with stage.up(upstreams=allowing(upstream, forge), catalog={"sources": [str(listed)]}) as up:
        pulls = Pulls(up)
        for name, source, target in zip(names, sources, targets, strict=True) if how == "api" else ():
            await pulls.create(name, source, target)
        for name in names:
            ended = await pulls.until_ended(name)
            assert (ended["status"], ended["changes_count"], ended["has_changes"]) == ("success", 3, True)
        assert [len(await pulls.tasks(name)) for name in names] == [1] * MANY
        assert all(target.refs() == first.public_refs() for target in targets)
        asked = Counter(request.path.partition(".git")[0] for request in upstream.requests)
        assert set(asked.values()) == {3}  # refs by us, then git's clone: its refs and its pack


async def test_a_new_project_is_not_cloned_before_the_strategy_lets_it(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "a/x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await up.client.put("/api/pull/strategy", json={"enabled": False})
        await pulls.create("devops/x", source, target)
        shown = (await up.client.get(f"/api/repos/{up.key('team/x')}")).json()
        assert (shown["status"], shown["holders"]) == ("pending", [])
        assert shown["plan"]["reason"] == "the schedule of all pulls is off"
        other = upstream.create("team/other")
        await up.client.post("/api/git_urls", json={"git_url": other.url})
        await up.until_status("team/other", "active")
        assert not [r for r in upstream.requests if r.path.startswith("/team/x")]
        assert (await pulls.trigger("devops/x"))["status"] == "success"  # who asks for it need not wait
        assert target.refs() == source.public_refs()


async def test_projects_that_wait_for_their_first_task_wait_after_a_restart_too(stage, upstream, forge):
    waiting = upstream.create("team/x")
    sources = [waiting, upstream.copy(waiting, "team/y")]
    target, settings = target_of(forge, "a/x"), {"upstreams": allowing(upstream, forge)}
    async with stage.up(**settings) as up:
        await up.client.put("/api/pull/strategy", json={"enabled": False})
        await Pulls(up).create("devops/x", waiting, target)
        await Pulls(up).create("devops/y", sources[1])
    async with stage.up(**settings) as up:
        other = upstream.create("team/other")  # placed and cloned behind all that a start places
        await up.client.post("/api/git_urls", json={"git_url": other.url})
        await up.until_status("team/other", "active")
        shown = (await up.client.get(f"/api/repos/{up.key('team/x')}")).json()
        assert (shown["status"], shown["holders"]) == ("pending", [])
        assert not [r for r in upstream.requests if not r.path.startswith("/team/other")]
        assert (await Pulls(up).trigger("devops/x"))["status"] == "success"
        assert target.refs() == waiting.public_refs()
        assert not [r for r in upstream.requests if r.path.startswith("/team/y")]


async def test_a_project_is_mirrored_and_pushed_on_to_all_its_targets_and_follows(stage, upstream, forge):
    source = upstream.create("team/x", commits=3)
    source.branch("dev")
    source.tag("v1")
    source.hidden_ref("refs/pull/1/head")
    one, two = target_of(forge, "a/x"), target_of(forge, "b/x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        created = await pulls.create("devops/core", source, one, two, priority="critical", sync_interval=10)
        assert created["project_key"] == "devops/core"
        first = await pulls.until_ended("devops/core")
        assert (first["status"], first["has_changes"]) == ("success", True)
        assert one.refs() == two.refs() == source.public_refs()
        assert first["source_commit_sha"] == first["target_commit_sha"] == source.tip()
        tip = source.commit()
        source.delete_branch("dev")
        second = await pulls.trigger("devops/core")
        assert (second["status"], second["has_changes"]) == ("success", True)
        assert one.refs() == two.refs() == source.public_refs()
        assert one.tip() == tip
        skipped = await pulls.trigger("devops/core")
        assert (skipped["status"], skipped["has_changes"]) == ("skipped", False)
        progress = (await up.client.get("/api/pull/progress/overview")).json()
        assert (progress["total_projects"], progress["synced"], progress["success_rate"]) == (1, 1, 1.0)


async def test_force_on_an_unchanged_project_compares_both_ends_and_is_a_success(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    source.branch("dev")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, target, sync_interval=60)
        await pulls.until_ended("x")
        asked, told = len(upstream.requests), len(forge.requests)
        forced = await pulls.trigger("x", force=True)
        assert (forced["status"], forced["has_changes"], forced["progress"]) == ("success", False, "Done")
        assert [push["put_total"] for push in forced["pushes"]] == [0]
        assert len(upstream.requests) > asked
        assert len(forge.requests) > told, "the target was read"
        target.delete_branch("dev")
        assert (await pulls.trigger("x"))["status"] == "skipped"
        repaired = await pulls.trigger("x", force=True)
        assert (repaired["status"], repaired["pushes"][0]["put_total"]) == ("success", 1)
        assert target.refs() == source.public_refs()


async def test_force_leaves_what_others_changed_at_the_target_in_conflict(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, target, sync_interval=60)
        await pulls.until_ended("x")
        theirs = target.commit()
        forced = await pulls.trigger("x", force=True)
        assert (forced["status"], forced["error_type"]) == ("failed", "CONFLICT")
        assert target.tip() == theirs


async def test_force_on_a_repo_without_targets_is_a_success_too(stage, upstream):
    source = upstream.create("team/x")
    source.branch("dev")
    async with stage.up(upstreams=allowing(upstream)) as up:
        await up.add(source.url)
        await up.until_status("team/x", "active")
        task = await up.sync("team/x", force=True)
        assert (task["status"], task["result"]["changes_total"]) == ("success", 0)
        mirror = str(stage.mirror(up.key("team/x")))
        git = ["git", "-c", "safe.bareRepository=all", "-C", mirror]
        subprocess.run([*git, "update-ref", "-d", "refs/heads/dev"], check=True)
        assert (await up.sync("team/x"))["status"] == "skipped"
        task = await up.sync("team/x", force=True)
        assert (task["status"], task["result"]["changes_total"]) == ("success", 1), "refs were compared"
        assert up.refs("team/x") == source.public_refs()


async def test_a_project_is_looked_at_by_its_interval_and_not_by_its_worker(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:  # min_gap is 0: a worker would never rest
        pulls = Pulls(up)
        await pulls.create("x", source, target, sync_interval=60)
        await pulls.until_ended("x")
        asked = len(upstream.requests)
        source.commit()
        await asyncio.sleep(0.7)
        assert len(upstream.requests) == asked
        answer = await up.client.delete("/api/pull/projects/x/config")
        assert answer.status_code == 200, answer.text


async def test_settings_say_whether_due_projects_are_started_how_they_are_retried_and_what_is_kept(
    stage, upstream, forge
):
    source = upstream.create("team/x", commits=1)
    jobs = {"pull_scheduler.enabled": False, "task_cleanup.retention_days": 7}
    policy = {"max_retries": 9, "retry_delay": 1.5, "backoff_multiplier": 3}
    async with stage.up(upstreams=allowing(upstream, forge), scheduled_jobs=jobs, retry_policy=policy) as up:
        pull = Pulls(up)
        made = await pull.create("p/x", source, target_of(forge, "a/x"))
        assert (made["max_retries"], made["retry_delay"]) == (9, 1.5)
        assert (await pull.trigger("p/x"))["status"] == "success"
        assert [task["trigger_type"] for task in await pull.tasks("p/x")] == ["manual"], "nothing by itself"
        settings = up.node.lead.pulling.machine.settings
        assert (settings.by_cron, settings.retry.backoff_multiplier) == (True, 3)


async def test_a_skip_costs_the_source_one_request_and_the_target_none(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, target)
        await pulls.until_ended("x")
        asked, reached = len(upstream.requests), len(forge.requests)
        assert (await pulls.trigger("x"))["status"] == "skipped"
        assert (len(upstream.requests) - asked, len(forge.requests) - reached) == (1, 0)
        target.git("update-ref", "-d", "refs/heads/main")  # somebody deleted it there
        assert (await pulls.trigger("x"))["status"] == "skipped"
        repaired = await pulls.trigger("x", force=True)
        assert repaired["status"] == "success", repaired
        assert target.refs() == source.public_refs()


async def test_a_task_of_the_other_api_pushes_too(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, target)
        await pulls.until_ended("x")
        tip = source.commit()
        assert (await up.sync("team/x"))["status"] == "success"
        assert target.tip() == tip


async def test_what_somebody_else_put_at_a_target_is_a_conflict_until_it_is_adopted(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    other = upstream.create("team/other", commits=2)
    target.git("fetch", "-q", str(other.path), "refs/heads/main:refs/heads/main")
    foreign = target.tip()
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, target)
        task = await pulls.until_ended("x")
        assert (task["status"], task["error_type"]) == ("failed", "CONFLICT")
        assert target.tip() == foreign
        config = await pulls.config("x")
        assert config["enabled"] is True

        async def told() -> bool:  # the task is stored first, and then what follows from it is told
            warnings = (await up.client.get("/api/overview")).json()["warnings"]
            return any("a person is needed" in w for w in warnings)

        await up.until(told)
        answer = await up.client.post("/api/pull/projects/x/targets/adopt", json={"url": target.url})
        assert answer.status_code == 200, answer.text

        async def adopted() -> bool:
            return target.refs() == source.public_refs()

        await up.until(adopted)
        assert (await pulls.until_ended("x", 2))["status"] == "success"


async def test_a_target_that_refuses_is_paused_and_the_other_is_served(stage, upstream, forge):
    source, good = upstream.create("team/x"), target_of(forge, "good")
    closed = forge.create("closed", commits=0)
    closed.git("config", "http.receivepack", "false")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, good, closed)
        task = await pulls.until_ended("x")
        assert task["status"] == "success"
        assert good.refs() == source.public_refs()

        async def paused() -> bool:  # the task is stored first, and then what follows from it is known
            return any(t["paused"] for t in (await pulls.config("x"))["targets"])

        await up.until(paused)
        targets = {t["url"]: t for t in (await pulls.config("x"))["targets"]}
        assert not targets[good.url]["paused"]
        assert targets[closed.url]["paused"]
        closed.git("config", "http.receivepack", "true")
        answer = await up.client.post("/api/pull/projects/x/reset-failures")
        assert answer.status_code == 200, answer.text

        async def served() -> bool:
            return closed.refs() == source.public_refs()

        await up.until(served)


async def test_a_credential_reaches_the_target_and_is_told_nowhere(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    forge.require_basic("robot", SECRET)
    credentials = {"push.username": "robot", "push.password": SECRET}
    async with stage.up(upstreams=allowing(upstream, forge), credentials=credentials) as up:
        pulls = Pulls(up)
        created = await pulls.create("x", source, sync_interval=10)
        await pulls.until_ended("x")
        assert created["targets"] == []
        refused = await up.client.put(
            "/api/pull/projects/x/config", json={"targets": [{"url": target.url, "credential": "nobody"}]}
        )
        assert refused.status_code == 422, refused.text
        await pulls.put("x", targets=[{"url": target.url, "credential": "push"}])

        async def served() -> bool:
            return target.refs() == source.public_refs()

        await up.until(served)
        told = [
            (await up.client.get(path)).text
            for path in ("/api/pull/projects/x/config", "/api/pull/projects/x/tasks", "/api/overview")
        ]
    log = b"".join(p.read_bytes() for p in stage.data.rglob("*") if p.is_file() and ".db" in p.name)
    assert SECRET not in "".join(told)
    assert SECRET.encode() not in log


async def test_an_error_is_stored_with_all_that_is_known_and_without_secrets(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    credentials = {"both.username": "robot", "both.password": SECRET}
    login = base64.b64encode(f"robot:{SECRET}".encode()).decode()
    async with stage.up(upstreams=allowing(upstream, forge), credentials=credentials) as up:
        pulls = Pulls(up)
        await pulls.create(
            "x", source, source_credential="both", targets=[{"url": target.url, "credential": "both"}]
        )
        await pulls.until_ended("x")
        echo = f"you said Basic {login}, that is {SECRET}"
        upstream.fail_with(503, body=echo)
        looked = (await pulls.trigger("x"))["error"]
        upstream.heal()
        source.commit()
        hook = target.path / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {echo!r} >&2\nexit 1\n")
        hook.chmod(0o755)
        pushed = await pulls.trigger("x")
        told = (await up.client.get("/api/pull/projects/x/errors")).text + str(pushed)
    assert looked["git_command"].startswith(f"git ls-remote --symref {source.url} ")
    assert (looked["http_status"], looked["source_url"], looked["target_url"]) == (503, source.url, None)
    assert looked["http_body"].startswith("you said Basic ***, that is ***")
    error = pushed["error"]
    assert error["git_command"].startswith("git push --porcelain")
    assert "you said Basic ***" in error["stderr"]
    assert "hook declined" in error["stdout"]
    assert (error["source_url"], error["target_url"]) == (source.url, target.url)
    kept = pushed["pushes"][0]["failure"]
    assert (kept["git_command"], kept["stderr"]) == (error["git_command"], error["stderr"])
    with contextlib.closing(sqlite3.connect(stage.data / "evermirror.db")) as database:
        rows = database.execute(
            "SELECT failure, retry_count FROM tasks WHERE failure IS NOT NULL ORDER BY id"
        )
        stored = [(json.loads(text), retries) for text, retries in rows]
    assert [failure["error_type"] for failure, _ in stored][:1] == ["NETWORK_TIMEOUT"]
    assert len(stored) == 2
    for failure, retries in stored:
        assert failure.keys() >= STORED_KEYS
        assert failure["git_command"]
        assert failure["error_message"]
        assert failure["source_url"] == source.url
        assert failure["retry_count"] == retries
        assert datetime.fromisoformat(failure["timestamp"]).tzinfo is not None
    assert [failure["target_url"] for failure, _ in stored] == [None, target.url]
    files = b"".join(p.read_bytes() for p in stage.data.rglob("*") if p.is_file() and ".db" in p.name)
    for secret in (SECRET, login):
        assert secret not in told
        assert secret.encode() not in files


async def test_lines_of_the_catalog_with_targets_are_projects_until_they_lose_them(
    stage, upstream, forge, tmp_path
):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    first, second = target_of(forge, "one"), target_of(forge, "two")
    file = tmp_path / "urls.txt"
    file.write_text(
        f"{one.url} alias=p/one priority=high interval=20m target={first.url}\n"
        f"{two.url} alias=p/two target={second.url}\n"
    )
    settings = {"catalog": {"sources": [str(file)]}, "upstreams": allowing(upstream, forge)}
    async with stage.up(**settings) as up:
        pulls = Pulls(up)
        for name, source, target in (("p/one", one, first), ("p/two", two, second)):
            assert (await pulls.until_ended(name))["status"] == "success"
            assert target.refs() == source.public_refs()
        config = await pulls.config("p/one")
        assert (config["priority"], config["sync_interval"], config["overrides"]) == ("high", 20, [])
        config = await pulls.put("p/one", sync_interval=45)
        assert (config["sync_interval"], config["overrides"]) == (45, ["sync_interval"])
        file.write_text(f"{one.url} alias=p/one priority=low interval=30m\n{two.url} alias=p/two\n")
        await up.node.catalog.look()
        config = await pulls.config("p/one")  # a person spoke: it stays a project
        assert (config["configured"], config["priority"], config["sync_interval"]) == (True, "low", 45)
        assert config["targets"] == []
        assert (await pulls.config("p/two"))["configured"] is False
        tip = two.commit()

        async def followed() -> bool:  # its worker looks by itself again
            return (await up.repo("team/two")).head_commit == tip

        await up.until(followed)
        assert second.tip() != tip
        answer = await up.client.delete("/api/pull/projects/p/one")
        assert answer.status_code == 409
    file.write_text(f"{one.url} alias=p/one target={first.url} target={second.url}\n{two.url}\n")
    async with stage.up(**settings) as up:
        pulls = Pulls(up)
        config = await pulls.config("p/one")
        assert (config["sync_interval"], [t["url"] for t in config["targets"]]) == (
            45,
            [first.url, second.url],
        )
        answer = await up.client.delete("/api/pull/projects/p/one/config")
        config = answer.json()
        assert (config["sync_interval"], config["overrides"], config["configured"]) == (120, [], True)


async def test_a_source_behind_a_password_is_mirrored_in_private(stage, upstream, forge, tmp_path):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    upstream.require_basic("reader", SECRET)
    file = tmp_path / "urls.txt"
    file.write_text(f"{source.url} alias=p/x credential=corp target={target.url}\n")
    async with stage.up(
        catalog={"sources": [str(file)]},
        upstreams=allowing(upstream, forge),
        credentials={"corp.username": "reader", "corp.password": SECRET},
        pull={"public_targets": [f"{forge.host}/*"]},  # whose targets anybody may read
    ) as up:
        await Pulls(up).until_ended("p/x")
        assert target.refs() == source.public_refs()
        assert (await up.repo("team/x")).spec.private


async def test_an_interrupted_project_is_finished_after_a_restart(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    source.big_blob(2_000_000)
    upstream.stall_after_bytes = 100_000
    settings = {"upstreams": allowing(upstream, forge)}
    async with stage.up(**settings) as up:
        await Pulls(up).create("x", source, target)

        async def syncing() -> bool:
            return bool(up.node.worker.status().running)

        await up.until(syncing)
        (task,) = await Pulls(up).tasks("x")
    upstream.stall_after_bytes = None
    async with stage.up(**settings) as up:
        await Pulls(up).until_ended("x")
        # The worker may have begun the clone by itself, before it was told of the task again.
        assert (await Pulls(up).task(task["task_id"]))["status"] == "success"
        assert target.refs() == source.public_refs()


async def test_a_source_that_is_gone_pauses_its_project_and_empties_no_target(stage, upstream, forge):
    source, target = upstream.create("team/x"), target_of(forge, "x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, target)
        await pulls.until_ended("x")
        before = target.refs()
        upstream.delete(source)
        assert (await pulls.trigger("x"))["status"] == "failed"

        async def paused() -> bool:
            return (await pulls.config("x"))["enabled"] is False

        await up.until(paused)
        answer = await up.client.post("/api/pull/projects/x/trigger", json={})
        assert answer.status_code == 409
        assert "errors reset" in answer.json()["hint"]
        assert target.refs() == before
        failed = (await up.client.get("/api/pull/projects/failed?consecutive_failures_gte=1")).json()["items"]
        assert [(p["project_key"], p["last_error_type"], p["enabled"]) for p in failed] == [
            ("x", "NOT_FOUND", False)
        ]


async def test_refs_that_a_target_takes_long_to_get_are_told_once_they_are_there(
    stage, upstream, forge, tmp_path
):
    """Meanwhile the fleet hears that the mirror has them; what moved comes with the report at the end."""
    source, one = upstream.create("team/x", commits=2), target_of(forge, "a/x")
    async with stage.up(upstreams=allowing(upstream, forge)) as up:
        pulls = Pulls(up)
        await pulls.create("devops/core", source, one, priority="critical", sync_interval=600)
        await pulls.until_ended("devops/core")
        before, go = (await up.repo("team/x")).digest, tmp_path / "go"
        hook = Path(one.git("rev-parse", "--absolute-git-dir").strip()) / "hooks" / "pre-receive"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.05; done\n")
        hook.chmod(0o755)
        source.commit()
        triggered = asyncio.create_task(pulls.trigger("devops/core"))

        async def heard() -> bool:
            return (await up.repo("team/x")).digest != before

        try:
            await up.until(heard)
        finally:
            go.touch()
        assert (await triggered)["has_changes"] is True
        answer = await up.client.get("/api/events", headers={"Accept": "application/json"})
        told = [item["data"] for item in answer.json()["items"] if item["type"] == "refs.changed"]
        assert [(data["first"], data["changes_total"]) for data in told] == [(True, 1), (False, 1)]
