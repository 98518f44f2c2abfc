"""The whole way over other transports and another database: ssh, TLS, credentials, PostgreSQL."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.stage import Stage


async def mirrored(up, url, **info):
    await up.add(url, **info)
    task = await up.client.post("/api/tasks", json={"git_url": url, "additional_params": {"wait": 60}})
    return task.json()


async def refs_at(up, key):
    answer = await up.client.get(f"/api/repos/{key}/-/refs")
    return {ref["name"]: ref["oid"] for ref in answer.json()["refs"]}


@pytest.fixture
def ssh_stage(tmp_path, upstream_ssh):
    upstream_ssh.host = f"127.0.0.1:{upstream_ssh.port}"
    return Stage(tmp_path, upstream_ssh)


async def test_a_repo_over_ssh_is_polled_cloned_and_followed_with_a_named_key(ssh_stage, upstream_ssh):
    repo = upstream_ssh.create("team/x")
    sections = {
        "upstreams": {"schemes": ["ssh"]},
        "credentials": {"deploy.ssh_key_file": str(upstream_ssh.key_file)},
        "schedule": {"min_gap": "1h"},
    }
    key = f"{upstream_ssh.host}{upstream_ssh.root}/team/x"
    async with ssh_stage.up(**sections) as up:
        task = await mirrored(up, repo.url, credential="deploy")
        assert task["status"] in ("success", "skipped"), task
        assert await refs_at(up, key) == repo.public_refs()
        repo.commit()
        task = await mirrored(up, repo.url)
        assert task["status"] == "success", task
        assert await refs_at(up, key) == repo.public_refs()


async def test_ssh_without_its_key_is_refused_and_no_other_key_is_tried(ssh_stage, upstream_ssh):
    repo = upstream_ssh.create("team/x")
    async with ssh_stage.up(upstreams={"schemes": ["ssh"]}) as up:
        task = await mirrored(up, repo.url)
        assert task["status"] == "failure"
        assert task["result"]["error_type"] == "AUTH_FAILED"


async def test_tls_is_verified_for_polls_and_for_git(tmp_path, upstream_tls):
    repo = upstream_tls.create("team/x")
    stage = Stage(tmp_path, upstream_tls)
    async with stage.up(upstreams={"schemes": ["https"]}) as up:
        task = await mirrored(up, repo.url)
        assert task["status"] == "failure", "its authority is not trusted"
        assert "certificate" in task["result"]["error_message"]
    trusted = {"schemes": ["https"], "ca_file": str(upstream_tls.ca_file)}
    async with stage.up(upstreams=trusted) as up:
        task = await mirrored(up, repo.url)
        assert task["status"] in ("success", "skipped"), task
        assert await refs_at(up, up.key("team/x")) == repo.public_refs()


async def test_postgresql_by_url_is_the_same_and_survives_a_restart(stage, upstream, postgres_database):
    repo = upstream.create("team/x")
    database = {"database": {"url": postgres_database}}
    async with stage.up(**database) as up:
        assert (await mirrored(up, repo.url))["status"] in ("success", "skipped")
        assert not list(stage.data.glob("evermirror.db*"))
    async with stage.up(**database) as up:
        repo.commit()
        assert (await up.sync("team/x"))["status"] in ("success", "skipped")
        assert up.refs("team/x") == repo.public_refs()
        tasks = (await up.client.get(f"/api/repos/{up.key('team/x')}/-/tasks")).json()["items"]
        assert len(tasks) >= 2


async def test_a_branch_that_becomes_a_folder_and_back_is_followed(stage, upstream):
    repo = upstream.create("team/x")
    repo.branch("a")
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        await mirrored(up, repo.url)
        for before, after in (("a", "a/b"), ("a/b", "a"), ("a", "a/b/c")):
            repo.delete_branch(before)
            repo.branch(after)
            assert (await up.sync("team/x"))["status"] == "success"
            assert up.refs("team/x") == repo.public_refs()
        subprocess.run(
            ["git", "-C", stage.mirror(up.key("team/x")), "fsck", "--strict"], check=True, capture_output=True
        )
