"""Discovery between forges of other kinds, over https and ssh; protected branches; credentials that end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from evermirror.core.discover.expiry import EXPIRING, REFUSED
from evermirror.nodes.coordinator.discovery import credential_watch
from tests.nodes.discovery_house import SOURCE_TOKEN, TARGET_TOKEN, following
from tests.support.forges.gitea import GiteaServer
from tests.support.forges.github import GitHubServer
from tests.support.forges.gitlab import GitLabServer
from tests.support.ssh import SshUpstream

pytestmark = pytest.mark.timeout(120)


async def test_over_https_with_tokens_and_a_rewrite_of_a_protected_branch_is_followed(tmp_path: Path):
    with (
        GitLabServer(tmp_path / "source", tls=True) as source,
        GitLabServer(tmp_path / "target", tls=True) as target,
    ):
        both = tmp_path / "both.pem"
        both.write_bytes(source.ca_file.read_bytes() + target.ca_file.read_bytes())
        target.add_group("mirrors")
        repo = source.add_project("devops/core", commits=3)
        repo.hidden_ref("refs/merge-requests/1/head")
        kept = target.add_project("mirrors/kept", commits=1)
        source.add_project("devops/kept", commits=2)
        async with following(tmp_path, source, target, upstreams={"ca_file": str(both)}) as it:
            first = await it.create()
            assert (first["last_run"]["created"], first["last_run"]["error"]) == (2, None)
            await it.equal("devops/core", "mirrors/core")

            async def opened() -> bool:  # and not only: not protected yet
                changed = [r for r in target.requests if r.method != "GET" and "protected_branches" in r.path]
                return bool(changed) and target.protected("mirrors/core") == {}

            await it.up.until(opened, 40.0)
            repo.force_push("main")
            await it.trigger("devops/core")
            await it.equal("devops/core", "mirrors/core")
            # What was there before, and is not ours, is left as it is: a person is asked
            rows = await it.found()
            assert not rows["devops/kept"]["made_target"]

            async def conflict() -> bool:
                target_state = (await it.project("devops/kept"))["targets"][0]
                error = target_state["last_error"]
                return error is not None and error["error_type"] == "CONFLICT"

            tip = kept.tip()
            await it.up.until(conflict, 30.0)
            assert kept.tip() == tip


@pytest.mark.parametrize(("kind", "server"), [("gitea", GiteaServer), ("github", GitHubServer)])
async def test_an_organisation_of_another_forge(tmp_path: Path, kind: str, server: type):
    with server(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        target.add_group("mirrors")
        source.add_project("acme/one", commits=1)
        source.add_project("acme/two", commits=1)
        async with following(tmp_path, source, target) as it:
            first = await it.create("acme", forge=kind)
            assert (first["last_run"]["created"], first["last_run"]["error"]) == (2, None)
            await it.equal("acme/one", "mirrors/one")
            source.rename_project("acme/one", "acme/uno")
            source.remove_project("acme/two")
            last = (await it.run())["last_run"]
            assert (last["renamed"], last["gone"]) == (1, 1)
            await it.equal("acme/uno", "mirrors/one")


@pytest.mark.parametrize(("kind", "server"), [("gitea", GiteaServer), ("github", GitHubServer)])
async def test_into_an_organisation_that_has_no_groups_in_groups(tmp_path: Path, kind: str, server: type):
    with GitLabServer(tmp_path / "source") as source, server(tmp_path / "target") as target:
        target.add_group("mirrors")
        source.add_project("devops/tools/core", commits=1)
        settings = {"target.forge": kind}
        async with following(tmp_path, source, target, credentials=settings) as it:
            first = await it.create(target_forge=kind)
            assert (first["last_run"]["created"], first["last_run"]["error"]) == (1, None), await it.found()
            await it.equal("devops/tools/core", "mirrors/tools-core")


async def test_over_ssh(tmp_path: Path, upstream_ssh: SshUpstream):
    ssh = upstream_ssh
    with GitLabServer(ssh.root, ssh=ssh) as source, GitLabServer(tmp_path / "target") as target:
        source.add_project("devops/core", commits=2)
        keys = {"source.ssh_key_file": str(ssh.key_file)}
        async with following(tmp_path, source, target, credentials=keys) as it:
            done = await it.create(over_ssh=True, target_url=None, target_credential=None)
            assert (done["last_run"]["created"], done["last_run"]["error"]) == (1, None)
            row = (await it.found())["devops/core"]
            assert row["repo_key"] == f"127.0.0.1:{ssh.port}{ssh.root}/devops/core"

            async def synced() -> bool:
                return (await it.project("devops/core"))["last_sync_at"] is not None

            await it.up.until(synced, 30.0)


async def test_credentials_that_end_or_are_refused_are_told(tmp_path: Path):
    soon = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 5 * 86_400))
    later = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 20 * 86_400))
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        source.add_group("devops")
        target.add_group("mirrors")
        source.add_token(SOURCE_TOKEN, expires=soon)
        dates = {"target.expires": later}
        async with following(tmp_path, source, target, credentials=dates) as it:
            await it.create()
            watch = it.up.node.lead.credential_watch
            await watch.ask()
            watch.tell()

            async def told(*kinds: str) -> bool:
                return {EXPIRING, REFUSED} & set(await it.alerts()) == set(kinds)

            await it.up.until(lambda: told(EXPIRING))
            items = (await it.client.get("/api/alerts")).json()["items"]
            levels = {item["about"]: item["level"] for item in items}
            assert levels == {"source": "error", "target": "warning"}
            assert set(watch.expiries()) == {"source", "target"}
            del source.tokens[SOURCE_TOKEN]
            await watch.ask()
            watch.tell()
            await it.up.until(lambda: told(EXPIRING, REFUSED))
            assert SOURCE_TOKEN not in str(await it.alerts())
            source.add_token(SOURCE_TOKEN)
            await watch.ask()
            watch.tell()
            await it.up.until(lambda: told(EXPIRING))
            assert set(watch.expiries()) == {"target"}
            assert TARGET_TOKEN not in str(await it.alerts())


async def test_a_new_token_and_one_that_a_run_found_refused_are_asked_about_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(credential_watch, "FIRST_S", 0.1)
    monkeypatch.setattr(credential_watch, "LOOK_S", 0.2)
    soon = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 3 * 86_400))
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        source.add_group("devops")
        target.add_group("mirrors")
        source.add_token(SOURCE_TOKEN, expires=soon)
        async with following(tmp_path, source, target) as it:

            async def told(*kinds: str) -> bool:
                return {EXPIRING, REFUSED} & set(await it.alerts()) == set(kinds)

            await asyncio.sleep(1.0)  # it was looked, and there was nothing to ask
            assert await told()
            await it.create()
            await it.up.until(lambda: told(EXPIRING))
            del source.tokens[SOURCE_TOKEN]
            await it.client.post("/api/pull/discoveries/1/run", json={})
            await it.up.until(lambda: told(EXPIRING, REFUSED))
            await it.client.delete("/api/pull/discoveries/1")
            await it.up.until(lambda: told())
