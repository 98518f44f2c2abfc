"""The default branch of a target follows the source's, where its forge can be asked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from evermirror.config import Config
from evermirror.edge.forge import default_branch
from evermirror.edge.forge.default_branch import DefaultBranches, project_of
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.push import RefOutcome
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.nodes.basics import credentials_of
from tests.edge.git.push_world import PushWorld
from tests.support.forge import ForgeServer

FORGES = ("gitlab", "gitea", "github", "gitee")
CREDENTIAL = Credential("c", "robot", token="forge-token")


@pytest.fixture(params=FORGES)
def forge(request, tmp_path):
    with ForgeServer(tmp_path / "forge", api=request.param) as server:
        yield server


def make(server, *credentials):
    async def resolve(url):
        assert url.startswith(("http://", "https://"))
        return (server.address,)

    ca_file = server.ca_file if server.tls else None
    return DefaultBranches(resolve, Redactor(credentials), ca_file)


def credential_of(server, **more):
    return replace(CREDENTIAL, forge=server.api, **more)


async def follow(server, url, head="refs/heads/trunk", credential=None):
    credential = credential or credential_of(server)
    return await make(server, credential).follow(url, credential, head)


async def test_it_is_set_where_it_differs_and_only_then(forge):
    repo = forge.create("team/x", commits=2)
    repo.branch("trunk")
    assert await follow(forge, repo.url) == ""
    assert repo.head() == "refs/heads/trunk"
    assert [r.method for r in forge.requests] == ["GET", "PUT" if forge.api == "gitlab" else "PATCH"]
    assert forge.requests[-1].headers["host"] == forge.host
    forge.requests.clear()
    assert await follow(forge, repo.url) == ""
    assert [r.method for r in forge.requests] == ["GET"]


async def test_a_branch_with_slashes_and_letters_of_all_kinds(forge):
    repo = forge.create("team/x", commits=2)
    repo.branch("release/分支-1")
    assert await follow(forge, repo.url, "refs/heads/release/分支-1") == ""
    assert repo.head() == "refs/heads/release/分支-1"


async def test_groups_within_groups(tmp_path):
    with ForgeServer(tmp_path / "forge") as server:
        repo = server.create("a/b/c d/x", commits=2)
        repo.branch("trunk")
        assert await follow(server, repo.url.replace(" ", "%20")) == ""
        assert repo.head() == "refs/heads/trunk"


async def test_over_tls_by_name_to_the_address_that_was_checked(tmp_path):
    with ForgeServer(tmp_path / "forge", tls=True) as server:
        repo = server.create("team/x", commits=2)
        repo.branch("trunk")
        url = server.url("team/x.git", host="localhost")
        assert await follow(server, url) == ""
        assert server.requests[-1].headers["host"] == f"localhost:{server.port}"
        elsewhere = server.url("team/x.git", host="elsewhere.example")
        assert "certificate" in (await follow(server, elsewhere)).lower()


async def test_a_token_that_is_refused_is_told_and_not_shown(forge):
    repo = forge.create("team/x", commits=2)
    repo.branch("trunk")
    forge.fail_with(403, body=json.dumps({"message": "canary-token may not do this"}), path="/api/")
    credential = credential_of(forge, token="canary-token")
    told = await follow(forge, repo.url, credential=credential)
    assert "HTTP 403" in told
    assert "*** may not do this" in told
    assert "trunk" in told
    assert repo.head() == "refs/heads/main"


async def test_everything_else_that_forges_do_is_told_too(forge, monkeypatch):
    repo = forge.create("team/x", commits=2)
    monkeypatch.setattr(default_branch, "ANSWER_BYTES_MAX", 10_000)
    monkeypatch.setattr(default_branch, "TIMEOUT_S", 0.5)
    assert "does not exist" in await follow(forge, repo.url)
    assert "HTTP 401" in await follow(forge, repo.url, credential=credential_of(forge, token="other"))
    assert "HTTP 404" in await follow(forge, forge.url("team/other.git"))
    assert "UTF-8" in await follow(forge, repo.url, "refs/heads/\udcff")
    for body, status, words in [
        (b"x" * 20_000, 200, "longer than"),
        (b"<html>", 200, "not"),
        (b"[]", 200, "promises"),
        (b"", 302, "HTTP 302"),
        (b"\xff\x1b[2J", 500, "HTTP 500"),
        (b'{"default_branch": "main"}', 200, "was not"),
        (b"[" * 9_000, 200, "recursion"),
        (b"[" * 9_000, 500, "HTTP 500"),
        (b"[" * 900 + b"]" * 900, 500, "HTTP 500"),
    ]:
        forge.fail_with(status, {"Location": "http://127.0.0.1:1/"}, body, path="/api/")
        told = await follow(forge, repo.url)
        assert told, body[:20]
        assert told.isprintable()
        assert words in told or words == "not"
        forge.heal()
    forge.delay_s = 3
    assert "within" in await follow(forge, repo.url)
    forge.heal()
    forge.close()
    assert await follow(forge, repo.url)


@pytest.mark.parametrize(
    ("forge_name", "target", "url"),
    [
        ("gitlab", "https://h/a/b/c.git", "https://h/api/v4/projects/a%2Fb%2Fc"),
        ("gitlab", "https://h:8443/a/b%20c", "https://h:8443/api/v4/projects/a%2Fb%20c"),
        ("gitlab", "ssh://git@h:2222/a/b.git", "https://h/api/v4/projects/a%2Fb"),
        ("gitea", "http://h:3000/o/r.git", "http://h:3000/api/v1/repos/o/r"),
        ("gitea", "https://h/sub/path/o/r", "https://h/sub/path/api/v1/repos/o/r"),
        ("gitee", "https://gitee.com/o/r.git", "https://gitee.com/api/v5/repos/o/r"),
        ("github", "https://github.com/o/r.git", "https://api.github.com/repos/o/r"),
        ("github", "ssh://git@github.com/o/r", "https://api.github.com/repos/o/r"),
        ("github", "https://ghe.example/o/r", "https://ghe.example/api/v3/repos/o/r"),
    ],
)
def test_where_each_forge_is_asked(forge_name, target, url):
    assert project_of(target, replace(CREDENTIAL, forge=forge_name)).url == url


def test_what_cannot_be_asked():
    for target, credential in [
        ("https://h/only", replace(CREDENTIAL, forge="gitea")),
        ("https://h/o/r", replace(CREDENTIAL, forge="sourcehut")),
        ("/srv/o/r", replace(CREDENTIAL, forge="gitea")),
        ("https://h/o/r", Credential("c", forge="gitea")),
    ]:
        with pytest.raises(ValueError):  # noqa: PT011 - told to people by its words
            project_of(target, credential)


def test_gitea_takes_a_password_too():
    password = Credential("c", "robot", password="p", forge="gitea")
    assert project_of("https://h/o/r", password).headers["Authorization"].startswith("Basic ")


def test_the_setting_reaches_the_credential():
    config = Config.model_validate(
        {"credentials": {"a": {"token": "x", "forge": "gitea"}, "b": {"token": "y"}}}
    )
    found = credentials_of(config)
    spec = RepoSpec(RepoKey("h/x"), "https://h/x", Host("h"))
    assert found.find(replace(spec, credential="a")).forge == "gitea"
    assert found.find(replace(spec, credential="b")).forge == ""
    with pytest.raises(ValueError, match="forge"):
        Config.model_validate({"credentials": {"a": {"token": "x", "forge": "sourcehut"}}})


# With a push


@pytest.fixture
async def world(tmp_path, forge):
    made = PushWorld(tmp_path, forge, [credential_of(forge), replace(CREDENTIAL, name="plain")])
    yield made
    await made.prober.close()


async def test_a_push_follows_a_default_branch_that_was_renamed(world):
    repo, target = world.upstream.create("team/x", commits=3), world.target("team/t")
    first = await world.sync_and_push(repo, target, credential="c")
    assert (first.failure, first.warning) == (None, "")
    repo.branch("trunk")
    repo.set_head("trunk")
    repo.delete_branch("main")
    pushed = await world.sync_and_push(repo, target, credential="c")
    world.assert_there(repo, target, pushed)
    assert pushed.warning == ""
    assert target.head() == "refs/heads/trunk", "before main goes, which the target would not give up"
    assert RefOutcome.DELETED in {r.outcome for r in pushed.refs}


async def test_a_default_branch_that_changes_alone_is_noticed(world):
    repo, target = world.upstream.create("team/x", commits=3), world.target("team/t")
    repo.branch("trunk")
    await world.sync_and_push(repo, target, credential="c")
    repo.set_head("trunk")
    await world.sync(repo)
    assert await world.behind(repo, target, credential="c")
    pushed = await world.push(repo, target, credential="c")
    assert (pushed.failure, pushed.changed, target.head()) == (None, False, "refs/heads/trunk")
    assert not await world.behind(repo, target, credential="c")
    world.upstream.requests.clear()
    repo.commit("trunk")
    await world.sync_and_push(repo, target, credential="c")
    assert not [r for r in world.upstream.requests if "/api/" in r.path], "the target's HEAD said enough"


async def test_a_forge_that_does_not_do_it_is_a_warning_and_no_failure(world):
    repo, target = world.upstream.create("team/x", commits=3), world.target("team/t")
    repo.branch("trunk")
    repo.set_head("trunk")
    world.upstream.fail_with(403, path="/api/")
    pushed = await world.sync_and_push(repo, target, credential="c")
    world.assert_there(repo, target, pushed)
    assert "HTTP 403" in pushed.warning
    assert pushed.failure is None


async def test_a_default_branch_that_could_not_be_set_is_tried_again(world):
    repo, target = world.upstream.create("team/x", commits=3), world.target("team/t")
    repo.branch("trunk")
    repo.set_head("trunk")
    world.upstream.fail_with(503, path="/api/")
    assert (await world.sync_and_push(repo, target, credential="c")).warning
    world.upstream.heal()
    assert await world.behind(repo, target, credential="c")
    pushed = await world.push(repo, target, credential="c")
    assert (pushed.failure, pushed.warning, target.head()) == (None, "", "refs/heads/trunk")
    assert not await world.behind(repo, target, credential="c")


async def test_who_is_out_of_contact_does_not_set_it(world):
    repo, target = world.upstream.create("team/x", commits=3), world.target("team/t")
    repo.branch("trunk")
    await world.sync_and_push(repo, target, credential="c")
    repo.set_head("trunk")
    world.upstream.requests.clear()
    pushed = await world.sync_and_push(repo, target, credential="c", may_push=lambda: False)
    assert "not heard its coordinator" in pushed.warning
    assert not [r for r in world.upstream.requests if "/api/" in r.path]
    assert target.head() == "refs/heads/main"
    pushed = await world.push(repo, target, credential="c")
    assert (pushed.warning, target.head()) == ("", "refs/heads/trunk")


async def test_nobody_is_asked_where_no_forge_is_named(world):
    repo, target = world.upstream.create("team/x", commits=3), world.target("team/t")
    repo.branch("trunk")
    repo.set_head("trunk")
    for credential in ("plain", None):
        pushed = await world.sync_and_push(repo, target, credential=credential, force=True)
        assert (pushed.failure, pushed.warning) == (None, "")
    assert not [r for r in world.upstream.requests if "/api/" in r.path]
