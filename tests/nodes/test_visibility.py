"""A source that is made private, or a target public, while mirrored: held, told, followed by setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodes.discovery_house import Following, following
from tests.support.forges.api_server import ApiServer
from tests.support.forges.gitea import GiteaServer
from tests.support.forges.github import GitHubServer
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)

KNOWN = {"source.forge": "gitlab"}


def shown(server: ApiServer, path: str, visibility: str) -> None:
    row = server.project_at(path)
    assert row is not None
    row.visibility = visibility


async def told(it: Following, stands: bool) -> None:
    async def holds() -> bool:
        return ("visibility" in await it.alerts()) == stands

    await it.up.until(holds)


async def mirrored(it: Following, source: GitLabServer, **more: object) -> None:
    source.add_project("devops/core", commits=2, visibility="public")
    assert (await it.create(**more))["last_run"]["created"] == 1
    await it.equal("devops/core", "mirrors/core")


@pytest.fixture
def forges(tmp_path: Path):
    with GitLabServer(tmp_path / "source") as source, GitLabServer(tmp_path / "target") as target:
        target.add_group("mirrors", "public")
        yield source, target


@pytest.mark.parametrize("known", [KNOWN, {}], ids=["by the api", "by a look without a token"])
async def test_a_source_that_became_private_is_held_until_its_target_is(tmp_path, forges, known):
    source, target = forges
    async with following(tmp_path, source, target, credentials=known) as it:
        await mirrored(it, source)
        before = target.repo("mirrors/core").public_refs()
        shown(source, "devops/core", "private")
        source.repo("devops/core").commit()
        await it.trigger("devops/core")
        await told(it, stands=True)
        state = (await it.project("devops/core"))["targets"][0]
        assert state["last_error"]["error_type"] == "CONFLICT"
        assert "the target is public" in state["last_error"]["error_message"]
        assert target.repo("mirrors/core").public_refs() == before
        assert "target-conflict" not in await it.alerts()
        seen = (await it.client.get(f"/api/repos/{source.host}/devops/core/-/targets")).json()
        assert [one["status"] for one in seen["targets"]] == ["exposed"], seen
        shown(target, "mirrors/core", "private")
        await it.trigger("devops/core")
        await it.equal("devops/core", "mirrors/core")
        await told(it, stands=False)


@pytest.mark.parametrize(
    ("known", "at_source", "at_target"),
    [
        (KNOWN, "internal", "public"),
        (KNOWN, "private", "internal"),
        (KNOWN, "private", "public"),
        pytest.param({}, "private", "public", id="a source that is only known not to be public"),
    ],
)
async def test_a_target_that_somebody_made_more_visible_follows_by_setting(
    tmp_path, forges, known, at_source, at_target
):
    source, target = forges
    async with following(tmp_path, source, target, credentials=known, pull={"visibility": "follow"}) as it:
        await mirrored(it, source)
        shown(source, "devops/core", at_source)
        shown(target, "mirrors/core", at_target)
        source.repo("devops/core").commit()
        await it.trigger("devops/core")
        await it.equal("devops/core", "mirrors/core")
        row = target.project_at("mirrors/core")
        assert row is not None
        assert row.visibility == at_source
        assert "visibility" not in await it.alerts()


@pytest.mark.parametrize(("kind", "server"), [("gitea", GiteaServer), ("github", GitHubServer)])
async def test_other_forges_follow_as_far_as_they_can(tmp_path: Path, kind: str, server: type):
    with GitLabServer(tmp_path / "source") as source, server(tmp_path / "target") as target:
        target.add_group("mirrors", "public")
        settings = {**KNOWN, "target.forge": kind}
        pull = {"visibility": "follow"}
        async with following(tmp_path, source, target, credentials=settings, pull=pull) as it:
            await mirrored(it, source, target_forge=kind)
            shown(source, "devops/core", "internal")
            source.repo("devops/core").commit()
            await it.trigger("devops/core")
            await it.equal("devops/core", "mirrors/core")
            row = target.project_at("mirrors/core")
            assert row is not None
            assert row.visibility == "private"


async def test_a_follow_that_the_target_refuses_holds_and_says_why(tmp_path, forges):
    source, target = forges
    async with following(tmp_path, source, target, credentials=KNOWN, pull={"visibility": "follow"}) as it:
        await mirrored(it, source)
        shown(source, "devops/core", "private")
        target.fault("/projects/", method="PUT", status=403, body='{"message":"403 Forbidden"}', times=None)
        source.repo("devops/core").commit()
        await it.trigger("devops/core")
        await told(it, stands=True)
        assert "403" in (await it.alerts())["visibility"]
        target.heal()
        await it.trigger("devops/core")
        await it.equal("devops/core", "mirrors/core")
        await told(it, stands=False)


@pytest.mark.parametrize("away", ["source", "target"])
async def test_nothing_is_pushed_while_an_api_that_could_tell_is_away(tmp_path, forges, away):
    source, target = forges
    async with following(tmp_path, source, target, credentials=KNOWN) as it:
        await mirrored(it, source)
        before = target.repo("mirrors/core").public_refs()
        shown(source, "devops/core", "private")
        shown(target, "mirrors/core", "internal")
        (source if away == "source" else target).fault("/projects/", status=503, times=None)
        source.repo("devops/core").commit()
        await it.trigger("devops/core")

        async def failed() -> bool:
            state = (await it.project("devops/core"))["targets"][0]
            return "who may see it: HTTP 503" in str(state["last_error"])

        await it.up.until(failed)
        assert target.repo("mirrors/core").public_refs() == before
        source.heal()
        target.heal()
        await it.trigger("devops/core")
        await told(it, stands=True)
        assert target.repo("mirrors/core").public_refs() == before


@pytest.mark.parametrize("status", [403, 301], ids=["closed to the token", "renamed"])
async def test_an_api_that_has_no_answer_for_us_gives_way_to_a_look_without_a_token(tmp_path, forges, status):
    source, target = forges
    async with following(tmp_path, source, target, credentials=KNOWN) as it:
        await mirrored(it, source)
        source.fault("/projects/", status=status, times=None)
        source.repo("devops/core").commit()
        await it.trigger("devops/core")
        await it.equal("devops/core", "mirrors/core")
        before = target.repo("mirrors/core").public_refs()
        shown(source, "devops/core", "private")
        source.repo("devops/core").commit()
        await it.trigger("devops/core")
        await told(it, stands=True)
        state = (await it.project("devops/core"))["targets"][0]
        assert "its source is not public" in state["last_error"]["error_message"]
        assert target.repo("mirrors/core").public_refs() == before
