"""What comes to the path of another, groups that are deleted, and numbers for names: against real forges'
stand-ins, with real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from evermirror.core.discover.tell import FAILED, HELD
from tests.nodes.discovery_house import Following, following
from tests.support.forges.gitea import GiteaServer
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)


async def confirmed(it: Following, key: str) -> bool:
    return (await it.client.post(f"/api/repos/{key}/-/confirm")).status_code < 300


async def test_a_new_project_at_the_path_of_a_renamed_one_has_a_target_of_its_own(tmp_path: Path):
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        target.add_group("mirrors")
        source.add_project("devops/core", commits=3)
        async with following(tmp_path, source, target) as it:
            await it.create()
            await it.equal("devops/core", "mirrors/core")
            change = {"priority": "critical"}
            answer = await it.client.put("/api/pull/projects/devops/core/config", json=change)
            assert answer.status_code == 200, answer.text
            source.rename_project("devops/core", "devops/core-old")
            source.add_project("devops/core", commits=2)
            row = source.project_at("devops/core")
            own = f"mirrors/core-{row.id}"
            last = (await it.run())["last_run"]
            assert (last["renamed"], last["created"], last["refused"]) == (1, 1, 0), await it.found()
            await it.equal("devops/core-old", "mirrors/core")
            key = (await it.found())["devops/core"]["repo_key"]
            # The mirror here has the old one's history: a person says that the new one may take its place
            await it.up.until(lambda: confirmed(it, key), 30.0)
            await it.equal("devops/core", own)
            await it.equal("devops/core-old", "mirrors/core")
            targets = {
                name: (await it.project(name))["targets"] for name in ("devops/core", "devops/core-old")
            }
            assert [t["url"] for t in targets["devops/core"]] == [f"{target.base_url}/{own}.git"]
            assert [t["url"] for t in targets["devops/core-old"]] == [f"{target.base_url}/mirrors/core.git"]
            assert (await it.project("devops/core-old"))["priority"] == "critical"
            assert (await it.run())["last_run"]["unchanged"] == 2


async def test_a_group_that_is_deleted_is_not_followed_as_a_rename(tmp_path: Path):
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        target.add_group("mirrors")
        for name in "abc":
            source.add_project(f"devops/{name}", commits=1)
        async with following(tmp_path, source, target) as it:
            await it.create()
            source.schedule_group_deletion("devops")
            last = (await it.run())["last_run"]
            assert last["error"]["error_type"] == "NOT_FOUND"
            assert await it.projects() == {"devops/a", "devops/b", "devops/c"}
            assert set((await it.states()).values()) == {"active"}
            assert FAILED in await it.alerts()


async def test_a_page_that_shows_nothing_pauses_nothing(tmp_path: Path):
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        target.add_group("mirrors")
        for name in "abc":
            source.add_project(f"devops/{name}", commits=1)
        async with following(tmp_path, source, target) as it:
            await it.create()
            source.fault("/projects", body="[]", headers={"X-Next-Page": "2", "X-Total": "3"})
            assert (await it.run())["last_run"]["error"]["error_type"] == "UNKNOWN"
            assert set((await it.states()).values()) == {"active"}
            source.fault("/projects", body="[]", headers={"X-Next-Page": "", "X-Total": "0"})
            last = (await it.run())["last_run"]
            assert (last["held"], last["gone"]) == (3, 0)
            assert HELD in await it.alerts()
            assert set((await it.states()).values()) == {"active"}


async def test_the_last_project_of_a_gitea_organisation_may_go(tmp_path: Path):
    with GiteaServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        source.add_project("acme/one", commits=1)
        async with following(tmp_path, source, target) as it:
            await it.create("acme", forge="gitea", target_url=None, target_credential=None)
            source.remove_project("acme/one")
            last = (await it.run())["last_run"]
            assert (last["gone"], last["error"]) == (1, None)
            assert await it.states() == {"acme/one": "gone"}
