"""Protected branches of targets that discoveries made: after a stop, after an outage, and only of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evermirror.edge.forge import make
from evermirror.edge.forge.gitlab import GitLab
from evermirror.model.forge import Forge
from evermirror.nodes.coordinator.discovery import discovering, discovering_branches
from tests.nodes.discovery_house import BASE, Following, following
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "source") as server:
        server.add_project("devops/core", commits=2)
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "target") as server:
        server.add_group("mirrors")
        yield server


async def opened(it: Following) -> None:
    async def holds() -> bool:
        changed = [r for r in it.target.requests if r.method != "GET" and "protected_branches" in r.path]
        return bool(changed) and it.target.protected("mirrors/core") == {}

    await it.equal("devops/core", "mirrors/core")
    await it.up.until(holds)


async def stop_in_mid_making(tmp_path: Path, source: GitLabServer, target: GitLabServer) -> None:
    """The target's project is made, and its answer never heard."""
    target.fault("/projects", method="POST", done=True, delay_s=30.0)
    async with following(tmp_path, source, target) as it:
        await it.client.post(BASE, json=it.body(every=None))

        async def made() -> bool:
            return target.project_at("mirrors/core") is not None

        await it.up.until(made)
    target.heal()


async def test_a_stop_before_the_target_answered_leaves_it_ours(tmp_path, source, target):
    await stop_in_mid_making(tmp_path, source, target)
    async with following(tmp_path, source, target) as it:
        await it.ended(1, 0)
        assert (await it.found())["devops/core"]["made_target"]
        await opened(it)
        source.repo("devops/core").force_push("main")
        await it.trigger("devops/core")
        await it.equal("devops/core", "mirrors/core")


async def test_what_somebody_filled_after_such_a_stop_is_not_ours(tmp_path, source, target):
    await stop_in_mid_making(tmp_path, source, target)
    target.repo("mirrors/core").commit()
    async with following(tmp_path, source, target) as it:
        await it.ended(1, 0)
        row = (await it.found())["devops/core"]
        assert (row["state"], row["made_target"]) == ("active", False)


async def test_an_outage_is_outlasted_and_told_meanwhile(tmp_path, source, target, monkeypatch):
    monkeypatch.setattr(discovering_branches, "RETRY_S", 0.05)
    monkeypatch.setattr(discovering_branches, "RETRY_MAX_S", 0.1)
    monkeypatch.setattr(discovering, "BRANCHES_S", 0.1)
    target.fault("/protected_branches", status=403, body='{"message":"403 Forbidden"}', times=None)
    async with following(tmp_path, source, target) as it:
        await it.create()
        await it.equal("devops/core", "mirrors/core")

        async def tried_often() -> bool:
            return sum("/protected_branches" in path for path in target.asked()) > 8

        await it.up.until(tried_often)
        row = (await it.found())["devops/core"]
        assert row["state"] == "active"
        assert "protected branches are not opened yet" in row["why"]
        target.heal()
        await opened(it)

        async def told() -> bool:
            return (await it.found())["devops/core"]["why"] == ""

        await it.up.until(told)
        asked = len(target.asked())
        await it.run()
        assert not [path for path in target.asked()[asked:] if "/protected_branches" in path]


async def test_an_answer_that_nobody_foresaw_is_a_failed_look(tmp_path, source, target, monkeypatch):
    monkeypatch.setattr(discovering_branches, "RETRY_S", 0.05)
    monkeypatch.setattr(discovering, "BRANCHES_S", 0.1)
    looks = []

    class Hostile(GitLab):
        async def open_branches(self, project):
            looks.append(project)
            if len(looks) < 3:
                raise ValueError("Exceeds the limit (4300 digits)")
            return await super().open_branches(project)

    monkeypatch.setitem(make._CLIENTS, Forge.GITLAB, Hostile)
    async with following(tmp_path, source, target) as it:
        await it.create()
        await opened(it)
        assert len(looks) == 3
        assert not it.up.node.supervisor.failures


async def test_a_discovery_that_ran_once_looks_after_a_restart(tmp_path, source, target, monkeypatch):
    monkeypatch.setattr(discovering, "BRANCHES_S", 0.2)
    target.fault("/protected_branches", status=403, body="{}", times=None)
    async with following(tmp_path, source, target) as it:
        await it.create(every=None)
        await it.equal("devops/core", "mirrors/core")
    target.heal()
    assert target.protected("mirrors/core")
    async with following(tmp_path, source, target) as it:
        await opened(it)
        assert (await it.get())["runs_ended"] == 0
