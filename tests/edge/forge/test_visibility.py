"""Who may see a repository, by its forge's API; a target is only ever made less visible."""

from __future__ import annotations

import json

import pytest

from evermirror.edge.forge import visibility
from evermirror.edge.forge.http import status_of
from evermirror.edge.forge.visibility import Visibilities
from evermirror.edge.git.credentials import Credential, Redactor
from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import Visibility
from tests.support.forges.gitlab import GitLabServer

CREDENTIAL = Credential("c", "robot", token="glpat-good", forge="gitlab")


@pytest.fixture
def server(tmp_path):
    with GitLabServer(tmp_path / "forge") as made:
        made.add_group("team", "public")
        made.add_token("glpat-good")
        yield made


@pytest.fixture
def forges(server):
    async def resolve(url):
        return (server.address,)

    return Visibilities(resolve, Redactor((CREDENTIAL,)), server.ca_file if server.tls else None)


@pytest.mark.parametrize("there", list(Visibility))
@pytest.mark.parametrize("wanted", list(Visibility))
async def test_a_target_is_never_made_more_visible(server, forges, there, wanted):
    server.add_project("team/x", visibility=there.value)
    now = await forges.lower(server.url("team/x.git"), CREDENTIAL, wanted)
    assert (
        now.value
        == server.project_at("team/x").visibility
        == min(there, wanted, key=lambda one: one.rank).value
    )
    assert len(server.asked("PUT")) == (there.rank > wanted.rank)


@pytest.mark.parametrize(
    ("level", "seen"),
    [
        ("enabled", Visibility.PUBLIC),
        ("private", Visibility.PRIVATE),
        ("disabled", Visibility.PRIVATE),
    ],
)
async def test_code_for_members_only_is_private_in_a_public_project(server, forges, level, seen):
    server.add_project("team/x", visibility="public")
    body = json.dumps({"visibility": "public", "repository_access_level": level})
    server.fault("/projects/", status=200, body=body)
    assert await forges.of(server.url("team/x.git"), CREDENTIAL) is seen


LIMIT = '{"message": "API rate limit exceeded"}'


@pytest.mark.parametrize(
    ("status", "body", "told"), [(403, "{}", 403), (404, "{}", 404), (403, LIMIT, 0), (503, "", 503)]
)
async def test_a_refusal_is_told_apart_from_trouble(server, forges, status, body, told):
    server.add_project("team/x")
    server.fault("/projects/", status=status, body=body, times=None)
    with pytest.raises(FailureError) as caught:
        await forges.of(server.url("team/x.git"), CREDENTIAL)
    assert (caught.value.failure.kind, status_of(caught.value)) == (FailureKind.NETWORK_TIMEOUT, told)
    assert f"{server.host.partition(':')[0]} does not say who may see it: HTTP {status}" in str(caught.value)


async def test_no_answer_in_time_is_trouble(server, forges, monkeypatch):
    monkeypatch.setattr(visibility, "TIMEOUT_S", 0.2)
    server.add_project("team/x")
    server.fault("/projects/", delay_s=30.0)
    with pytest.raises(FailureError) as caught:
        await forges.of(server.url("team/x.git"), CREDENTIAL)
    assert status_of(caught.value) == 0
