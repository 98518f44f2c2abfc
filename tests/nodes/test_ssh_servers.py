"""What real ssh servers and a real git that dies are told as: gitolite, git-shell, sshd, git http-backend."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from tests.nodes.test_pull_all_in_one import Pulls
from tests.support.stage import Stage

pytestmark = pytest.mark.timeout(120)


def sections(server, **more):
    return {
        "upstreams": {"schemes": ["ssh"], "allow": [f"127.0.0.1:{server.port}"], **more},
        "credentials": {"deploy.ssh_key_file": str(server.key_file)},
        "schedule": {"min_gap": "1h"},
    }


def stage_of(tmp_path, server):
    server.host = f"127.0.0.1:{server.port}"
    return Stage(tmp_path, server)


async def synced(up, url):
    body = {"git_url": url, "additional_params": {"wait": 60}}
    return (await up.client.post("/api/tasks", json=body)).json()


async def refused(up, url):
    """The result of a sync of a repo that is added with the credential."""
    await up.add(url, credential="deploy")
    task = await synced(up, url)
    assert task["status"] == "failure", task
    return task["result"]


@pytest.mark.parametrize("name", ["closed", "nowhere", "tools/rate-limiter"])
async def test_gitolite_denies(tmp_path, gitolite, name):
    async with stage_of(tmp_path, gitolite).up(**sections(gitolite)) as up:
        result = await refused(up, gitolite.url(name))
        assert result["error_type"] == "AUTH_FAILED"
        assert result["error_message"] == f"FATAL: R any {name} bob DENIED by fallthru"
        assert "ssh_key_file" in result["hint"]
        shown = (await up.client.get(f"/api/repos/{gitolite.host}/{name}")).json()
        assert shown["status"] == "auth", "it is looked at once in max_gap, not every minute"


async def test_gitolite_lets_read_and_denies_a_push(tmp_path, gitolite, upstream):
    source = upstream.create("team/x")
    target = gitolite.url("readonly")
    options = sections(gitolite, schemes=["ssh", "http"])
    options["upstreams"]["allow"].append(upstream.host)
    async with stage_of(tmp_path, gitolite).up(**options) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, targets=[{"url": target, "credential": "deploy"}])
        task = await pulls.until_ended("x")
        assert (task["status"], task["error_type"]) == ("failed", "PERMISSION_DENIED")
        assert task["error_message"] == "FATAL: W any readonly bob DENIED by fallthru"
        error = (await pulls.task(task["task_id"]))["error"]
        assert error["git_command"].startswith("git push --porcelain")
        assert target in error["git_command"]
        assert "DENIED by fallthru" in error["stderr"]


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        ('git-shell -c \\"$SSH_ORIGINAL_COMMAND\\"', "NOT_FOUND", "does not appear to be a git repository"),
        ("git-shell -c ls", "AUTH_FAILED", "unrecognized command 'ls'"),
        ("/usr/sbin/nologin", "UNKNOWN", "something else than git answers: bad line length character: This"),
        ("no-git-upload-pack", "NOT_FOUND", "git-upload-pack: command not found"),
        ("echo Please try again later >&2; exit 1", "RATE_LIMITED", "Please try again later"),
        ("exit 1", "UNKNOWN", "the server closed the connection without a word"),
    ],
)
async def test_what_stands_behind_sshd(tmp_path, upstream_ssh, command, kind, words):
    upstream_ssh.let_in(command)
    async with stage_of(tmp_path, upstream_ssh).up(**sections(upstream_ssh)) as up:
        result = await refused(up, upstream_ssh.url("gone.git"))
        assert result["error_type"] == kind, result
        assert words in result["error_message"]


async def test_a_repository_named_like_sshs_complaint_says_nothing_of_its_host(tmp_path, upstream_ssh):
    async with stage_of(tmp_path, upstream_ssh).up(**sections(upstream_ssh)) as up:
        result = await refused(up, upstream_ssh.url("Host%20key%20verification%20failed"))
        assert result["error_type"] == "NOT_FOUND", result
        assert "Host key verification failed' does not appear" in result["error_message"]
        assert "known_hosts" not in result["hint"]


async def test_a_changed_host_key_names_the_host_and_all_its_repos_recover(tmp_path, upstream_ssh):
    repos = [upstream_ssh.create(f"team/{n}") for n in "xy"]
    stage = stage_of(tmp_path, upstream_ssh)
    host = f"[127.0.0.1]:{upstream_ssh.port}"
    keys = [f"{upstream_ssh.host}{upstream_ssh.root}/team/{n}" for n in "xy"]
    options = {**sections(upstream_ssh), "schedule": {"min_gap": "2s", "max_gap": "3s"}}
    async with stage.up(**options) as up:

        async def shown(key):
            return (await up.client.get(f"/api/repos/{key}")).json()

        for repo in repos:
            await up.add(repo.url, credential="deploy")
            assert (await synced(up, repo.url))["status"] in ("success", "skipped")
        upstream_ssh.change_host_key()
        tips = [repo.commit() for repo in repos]
        for repo, key in zip(repos, keys, strict=True):
            task = await synced(up, repo.url)
            result = task["result"]
            assert (task["status"], result["error_type"], result["counted"]) == (
                "failure",
                "AUTH_FAILED",
                False,
            )
            assert result["error_message"].startswith(f"the ssh host key of {host} has changed (SHA256:")
            assert (await shown(key))["status"] == "active", "it says nothing about the repo"

        async def told() -> bool:
            hosts = (await up.client.get("/api/overview")).json()["hosts"]
            return any(f"the ssh host key of {host} has changed" in h["reason"] for h in hosts)

        await up.until(told)
        command = result["hint"].partition("data folder: ")[2].partition(". ")[0]
        subprocess.run(shlex.split(command), check=True, cwd=stage.data, capture_output=True)
        assert (await synced(up, repos[0].url))["status"] == "success"

        async def all_well() -> bool:
            heads = [(await shown(key))["head_commit"] for key in keys]
            return heads == tips

        await up.until(all_well)


async def test_a_project_is_not_paused_for_a_changed_host_key(tmp_path, upstream_ssh):
    source = upstream_ssh.create("team/x")
    async with stage_of(tmp_path, upstream_ssh).up(**sections(upstream_ssh)) as up:
        pulls = Pulls(up)
        await pulls.create("x", source, source_credential="deploy")
        assert (await pulls.until_ended("x"))["status"] == "success"
        upstream_ssh.change_host_key()
        failed = await pulls.trigger("x")
        assert (failed["status"], failed["error_type"]) == ("failed", "AUTH_FAILED")
        config = await pulls.config("x")
        assert (config["enabled"], config["consecutive_failures"]) == (True, 0)


async def test_an_upstream_whose_pack_objects_dies_is_shown_with_its_own_words(stage, upstream):
    repo = upstream.create("team/x", commits=0)
    repo.big_blob(200_000)
    for pack in list(repo.path.glob("objects/pack/*.pack")):
        content = pack.read_bytes()
        for file in pack.parent.glob(f"{pack.stem}.*"):
            file.unlink()
        subprocess.run(
            ["git", "unpack-objects", "-q"],
            input=content,
            check=True,
            env={"PATH": os.environ["PATH"], "GIT_DIR": str(repo.path)},
        )
    lost = repo.git("ls-tree", "-r", "main").split()[2]
    (repo.path / "objects" / lost[:2] / lost[2:]).unlink()
    async with stage.up() as up:
        await up.add(repo.url)
        task = await up.sync("team/x")
        assert task["status"] == "failure"
        result = task["result"]
        assert result["error_type"] == "UNKNOWN"
        assert result["error_message"] == f"upstream's git failed: unable to read {lost}"
