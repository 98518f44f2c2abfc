"""Hooks that a discovery registers at what it finds: also after a rename, and for what comes later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from evermirror.nodes.coordinator.discovery import discovering
from tests.nodes.discovery_house import Following, following
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)

HERE = "http://127.0.0.1:9"  # nobody listens: no hook has to come
WEBHOOKS = {"url": HERE, "gitlab_secret": "a-secret-for-new-hooks"}
NO_TARGET = {"target_url": None, "target_credential": None}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovering, "BRANCHES_S", 0.1)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "source") as server:
        for name in ("a", "b"):
            server.add_project(f"devops/{name}", commits=1)
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "target") as server:
        yield server


def told(source: GitLabServer, path: str) -> list[str]:
    """The repos that our hooks at this project name."""
    urls = [row.url for row in source.hooks_of(path) if row.url.startswith(HERE)]
    return [unquote(url.partition("repo=")[2]) for url in urls]


async def until_told(it: Following, source: GitLabServer, *paths: str) -> None:
    async def holds() -> bool:
        return all(told(source, path) == [f"{source.host}/{path}"] for path in paths)

    await it.up.until(holds, 40.0)


async def test_hooks_are_made_for_what_is_found_and_follow_a_rename(tmp_path, source, target):
    async with following(tmp_path, source, target, webhooks=WEBHOOKS) as it:
        made = await it.create(**NO_TARGET, hooks=True)
        assert made["hooks"] is True
        await until_told(it, source, "devops/a", "devops/b")
        first = source.hooks_of("devops/a")[0].id
        source.rename_project("devops/a", "devops/renamed")
        source.add_project("devops/c", commits=1)
        asked = len([path for path in source.asked() if "devops%2Fb/hooks" in path])
        await it.run()
        await until_told(it, source, "devops/renamed", "devops/b", "devops/c")
        assert [row.id for row in source.hooks_of("devops/renamed")] == [first], (
            "the same hook, not another one"
        )
        again = len([path for path in source.asked() if "devops%2Fb/hooks" in path])
        assert again == asked, "what is known to be well is not asked about"
        orders = (await it.client.get("/api/hooks/registrations")).json()
        assert "discovery 1" in str(orders), orders


async def test_without_being_asked_no_hook_is_made_and_it_can_be_asked_for_later(tmp_path, source, target):
    async with following(tmp_path, source, target, webhooks=WEBHOOKS) as it:
        assert (await it.create(**NO_TARGET))["hooks"] is False
        await it.run()
        assert not [path for path in source.asked() if "/hooks" in path]
        changed = await it.client.put("/api/pull/discoveries/1", json={"hooks": True})
        assert changed.status_code == 200, changed.text
        await until_told(it, source, "devops/a", "devops/b")


async def test_an_order_of_a_person_goes_first(tmp_path, source, target):
    async with following(tmp_path, source, target, webhooks=WEBHOOKS) as it:
        await it.create(**NO_TARGET)
        source.fault("/hooks", method="GET", delay_s=1.0, times=2)
        order = {"action": "check", "all": True, "forge": "gitlab"}
        assert (await it.client.post("/api/hooks/registrations", json=order)).status_code == 202
        await it.client.put("/api/pull/discoveries/1", json={"hooks": True})
        await until_told(it, source, "devops/a", "devops/b")


async def test_what_cannot_be_registered_is_refused_at_once(tmp_path, source, target):
    async with following(tmp_path, source, target) as it:
        assert "webhooks.url" in await it.refused(422, **NO_TARGET, hooks=True)
    async with following(tmp_path, source, target, webhooks=WEBHOOKS) as it:
        assert "token" in await it.refused(422, **NO_TARGET, hooks=True, credential=None)
