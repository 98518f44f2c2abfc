"""What Gitea and GitHub have of their own."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from evermirror.edge.forge.login import login_headers
from evermirror.edge.git.credentials import Credential
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Forge, NewTarget, Visibility
from tests.edge.forge.forge_world import TOKEN, client, list_all, start


@pytest.fixture
def gitea(tmp_path):
    with start(Forge.GITEA, tmp_path) as made:
        yield made


@pytest.fixture
def github(tmp_path):
    with start(Forge.GITHUB, tmp_path) as made:
        yield made


def new(path, visibility=Visibility.PRIVATE):
    return NewTarget(path, path.rpartition("/")[2], visibility, "", None)


async def test_gitea_with_smaller_pages_than_we_ask_for(gitea):
    gitea.page_max = 7
    for i in range(40):
        gitea.add_project(f"team/p{i:02d}")
    api = client(Forge.GITEA, gitea)
    group = await api.find_group("team")
    assert [p.path for p in await list_all(api, group)] == [f"team/p{i:02d}" for i in range(40)]
    await api.close()


@pytest.mark.parametrize("kind", ["group", "user"])
async def test_gitea_finds_an_owner_by_id_also_without_any_project(gitea, kind):
    for i in range(60):
        gitea.add_group(f"other{i:02d}")
    gitea.add_group("team", kind=kind)
    gitea.add_project("team/only")
    api = client(Forge.GITEA, gitea)
    group = await api.find_group("team")
    gitea.remove_project("team/only")
    assert await api.find_group(group.id) == group
    assert await list_all(api, group) == []
    assert await api.find_group("id:4711") is None
    await api.close()


async def test_an_owner_is_looked_for_once_for_all_projects_made(gitea, github):
    for forge, server in ((Forge.GITEA, gitea), (Forge.GITHUB, github)):
        server.add_group("team")
        api = client(forge, server)
        for name in "abc":
            await api.create_project(new(f"team/{name}"))
        assert server.asked("GET") == [f"{server.api_root}/orgs/team"]
        await api.close()


async def test_gitea_tells_who_a_token_is_and_no_more(gitea):
    api = client(Forge.GITEA, gitea)
    facts = await api.token()
    assert (facts.name, facts.scopes, facts.expires_at) == ("robot", None, None)
    await api.close()


async def test_gitea_takes_a_password(gitea):
    gitea.add_group("robot", kind="user")
    headers = login_headers(Forge.GITEA, Credential("c", "robot", password=TOKEN))
    api = client(Forge.GITEA, gitea)
    api._http._headers = headers
    assert headers["Authorization"].startswith("Basic ")
    assert (await api.create_project(new("robot/mine"))).path == "robot/mine"
    await api.close()


async def test_a_person_is_a_group_too(gitea, github):
    for forge, server in ((Forge.GITEA, gitea), (Forge.GITHUB, github)):
        server.add_group("robot", "public", kind="user")
        server.add_group("alice", "public", kind="user")
        server.add_project("alice/seen", visibility="public")
        server.add_project("robot/own", visibility="private")
        api = client(forge, server)
        assert [p.path for p in await list_all(api, await api.find_group("alice"))] == ["alice/seen"]
        assert [p.path for p in await list_all(api, await api.find_group("robot"))] == ["robot/own"]
        assert (await api.create_project(new("robot/new"))).path == "robot/new"
        with pytest.raises(FailureError) as raised:
            await api.create_project(new("alice/new"))
        assert raised.value.failure.kind is FailureKind.NOT_FOUND
        await api.close()


async def test_no_groups_within_groups(gitea, github):
    for forge, server in ((Forge.GITEA, gitea), (Forge.GITHUB, github)):
        server.add_group("team")
        api = client(forge, server)
        assert await api.find_group("team/sub") is None
        assert await api.find_project("team/sub/x") is None
        for ask in (api.create_project(new("team/sub/x")), api.create_group("team/sub", Visibility.PRIVATE)):
            with pytest.raises(FailureError) as raised:
                await ask
            assert raised.value.failure.kind is FailureKind.CONFLICT
        await api.close()


async def test_an_organisation_whose_name_is_a_number_is_not_taken_for_an_id(gitea, github):
    for forge, server in ((Forge.GITEA, gitea), (Forge.GITHUB, github)):
        server.add_project("team/x")
        number = str(server.group_at("team").id)
        server.add_project(f"{number}/y")
        api = client(forge, server)
        named, known = await api.find_group(number), await api.find_group(f"id:{number}")
        assert (named.path, known.path) == (number, "team")
        await api.close()


async def test_github_tells_when_a_token_ends(github):
    github.add_token("t", name="robot", scopes=("repo", "read:org"), expires="2999-12-01 10:00:00 UTC")
    api = client(Forge.GITHUB, github, token="t")
    facts = await api.token()
    assert (facts.name, facts.scopes) == ("robot", frozenset({"repo", "read:org"}))
    assert facts.expires_at == datetime(2999, 12, 1, 10, tzinfo=UTC).timestamp()
    github.tokens["t"].expires = "2999-12-01 12:00:00 +0200"
    assert (await api.token()).expires_at == facts.expires_at
    github.tokens["t"].expires = "some day"
    with pytest.raises(FailureError, match="not a date"):
        await api.token()
    await api.close()


async def test_a_branch_that_a_ruleset_protects_is_not_said_to_be_opened(github):
    github.add_project("team/x", commits=1)
    api = client(Forge.GITHUB, github)
    project = await api.find_project("team/x")
    github.fault("/branches?", body='[{"name": "main", "protected": true}]')
    assert await api.open_branches(project) == ()
    await api.close()
