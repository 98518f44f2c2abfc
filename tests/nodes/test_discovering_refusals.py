"""What a discovery is refused, here and by forges: clear words, and others go on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from evermirror.edge.forge import make
from evermirror.edge.forge.http import Patience
from tests.nodes.discovery_house import SOURCE_TOKEN, TARGET_TOKEN, following
from tests.support.forges.gitlab import GitLabServer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def source(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "source") as server:
        yield server


@pytest.fixture
def target(tmp_path: Path) -> Iterator[GitLabServer]:
    with GitLabServer(tmp_path / "target") as server:
        server.add_group("mirrors")
        yield server


async def test_two_sources_with_the_same_key(tmp_path, source, target):
    source.add_project("devops/core", commits=1)
    with GitLabServer(tmp_path / "second") as second:
        second.add_project("devops/core", commits=1)
        second.add_project("devops/only", commits=1)
        second.add_token("second-token")
        allow = {"allow": [source.host, target.host, second.host]}
        tokens = {"second.token": "second-token"}
        async with following(tmp_path, source, target, upstreams=allow, credentials=tokens) as it:
            await it.create()
            where = {"source_url": second.base_url, "credential": "second"}
            other = await it.create(**where, target_url=f"{target.base_url}/mirrors/second")
            assert (other["last_run"]["created"], other["last_run"]["refused"]) == (1, 1)
            rows = await it.found(2)
            assert rows["devops/core"]["state"] == "clash"
            assert "prefix" in rows["devops/core"]["why"]
            change = await it.client.put("/api/pull/discoveries/2", json={"prefix": "second/"})
            assert change.status_code == 200, change.text
            await it.ended(2, other["runs_ended"])
            assert await it.projects() == {"devops/core", "devops/only", "second/devops/core"}
            assert (await it.states(2)) == {"devops/core": "active", "devops/only": "active"}


async def test_names_that_the_target_refuses_are_told_in_its_words_and_others_go_on(tmp_path, source, target):
    source.add_project("devops/good", commits=1)
    source.add_project("devops/badges", commits=1)  # a reserved word at GitLab
    async with following(tmp_path, source, target) as it:
        first = await it.create()
        assert (first["last_run"]["created"], first["last_run"]["refused"]) == (1, 1)
        row = (await it.found())["devops/badges"]
        assert row["state"] == "refused"
        assert "badges" in row["why"]
        assert await it.projects() == {"devops/good"}
        assert (await it.run())["last_run"]["refused"] == 1  # tried again, and refused again


async def test_tokens_that_lack_a_scope_are_told_which(tmp_path, source, target):
    source.add_project("devops/a", commits=1)
    source.add_token(SOURCE_TOKEN, scopes=("read_user",))
    async with following(tmp_path, source, target) as it:
        error = (await it.create())["last_run"]["error"]
        assert error["error_type"] == "PERMISSION_DENIED"
        assert "read_api" in error["error_message"] + error["hint"]
        source.add_token(SOURCE_TOKEN, scopes=("read_api", "read_repository"))
        target.add_token(TARGET_TOKEN, scopes=("read_api", "write_repository"))
        last = (await it.run())["last_run"]
        assert last["error"]["error_type"] == "PERMISSION_DENIED"
        assert "api" in last["error"]["error_message"] + last["error"]["hint"]
        row = (await it.found())["devops/a"]
        assert row["state"] == "refused"
        target.add_token(TARGET_TOKEN)
        assert (await it.run())["last_run"]["created"] == 1
        await it.equal("devops/a", "mirrors/a")


async def test_what_cannot_be_followed_is_refused_at_once(tmp_path, source, target):
    async with following(tmp_path, source, target) as it:
        cases = [
            ({"group": "../x"}, "group"),
            ({"credential": "nobody"}, "nobody"),
            ({"target_credential": None}, "target_credential"),
            ({"source_url": "ftp://x.example.com"}, "source_url"),
            ({"source_url": "http://10.0.0.1"}, "source_url"),
            ({"target_url": f"{source.base_url}/devops/mirrors"}, "inside the group"),
            ({"every": 0.5}, "every"),
            ({"prefix": "../"}, "prefix"),
            ({"include": [""]}, "include"),
            ({"forge": "gitea", "group": "a/b"}, "group"),
            ({"target_forge": "github"}, "target_credential"),
        ]
        for more, words in cases:
            assert words in await it.refused(422, **more), more
        assert source.requests == target.requests == []
        source.add_project("devops/a")
        await it.create()
        assert "followed already" in await it.refused(409)


async def test_a_target_that_breaks_over_one_project_does_not_end_the_run(tmp_path, source, target):
    for name in ("a", "b", "c", "d", "e"):
        source.add_project(f"devops/{name}", commits=1)
    breaks = {"method": "POST", "status": 500, "times": None}
    target.fault("/projects", naming=b'"path":"b"', **breaks)
    async with following(tmp_path, source, target) as it:
        last = (await it.create())["last_run"]
        assert (last["complete"], last["created"], last["refused"]) == (True, 4, 1)
        assert last["error"]["error_type"] == "NETWORK_TIMEOUT"
        row = (await it.found())["devops/b"]
        assert row["state"] == "refused"
        assert "500" in row["why"]
        assert await it.projects() == {"devops/a", "devops/c", "devops/d", "devops/e"}
        assert (await it.get())["next_run_at"] is not None
        target.heal()
        again = (await it.run())["last_run"]
        assert (again["created"], again["refused"], again["error"]) == (1, 0, None)
        await it.equal("devops/b", "mirrors/b")


async def test_a_project_that_a_broken_answer_had_made_is_our_own_at_the_next_run(
    tmp_path, source, target, monkeypatch
):
    monkeypatch.setattr(make, "Patience", partial(Patience, attempts=1))
    source.add_project("devops/a", commits=1)
    source.add_project("devops/b", commits=1)
    target.protects = True
    target.fault("/projects/mirrors%2Fb", times=1, delay_s=0.0)  # the first look finds nothing
    target.fault("/projects", method="POST", naming=b'"path":"b"', status=502, done=True)
    target.fault("/projects/mirrors%2Fb", status=502, times=None)  # nobody sees that it was made
    async with following(tmp_path, source, target) as it:
        assert (await it.create())["last_run"]["created"] == 1
        assert target.project_at("mirrors/b") is not None
        row = (await it.found())["devops/b"]
        assert (row["state"], row["made_target"]) == ("refused", True)
        target.heal()
        assert (await it.run())["last_run"]["created"] == 1
        await it.equal("devops/b", "mirrors/b")
        assert (await it.found())["devops/b"]["made_target"]


async def test_a_target_that_is_away_ends_the_run_after_a_few_projects(tmp_path, source, target):
    names = [f"p{i:02}" for i in range(12)]
    for name in names:
        source.add_project(f"devops/{name}", commits=1)
    target.fault("/projects", method="POST", status=500, times=None)
    async with following(tmp_path, source, target) as it:
        last = (await it.create())["last_run"]
        assert (last["complete"], last["created"]) == (False, 0)
        assert last["error"]["error_type"] == "NETWORK_TIMEOUT"
        posts = [r for r in target.requests if r.method == "POST" and r.path.endswith("/projects")]
        assert len(posts) < len(names)
        target.heal()
        assert (await it.run())["last_run"]["created"] == len(names)
