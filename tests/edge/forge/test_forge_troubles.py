"""Answers that are lost, wrong or refused, of every forge: what is told, what is not repeated, not shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from evermirror.model.failure import FailureError, FailureKind
from evermirror.model.forge import NewTarget, Visibility
from tests.edge.forge.forge_world import FOLLOWED, QUICK, TOKEN, client, start


@pytest.fixture(params=FOLLOWED, ids=lambda f: f.value)
def forge(request):
    return request.param


@pytest.fixture
def server(forge, tmp_path):
    with start(forge, tmp_path) as made:
        yield made


@pytest.fixture
async def api(forge, server):
    made = client(forge, server)
    yield made
    await made.close()


def new(path="team/x", **more):
    wanted = {"visibility": Visibility.PRIVATE, "description": "what it is", "default_branch": None} | more
    return NewTarget(path, path.rpartition("/")[2], **wanted)


# Answers that are none


async def test_a_creation_whose_answer_is_lost_is_looked_for_and_not_repeated(server, api):
    server.add_group("team")
    api._http._patience = replace(QUICK, timeout_s=2.0)
    for number, spoilt in enumerate(({"status": 502}, {"body": "<html>"}, {"cut": 20}, {"delay_s": 3.0})):
        server.requests.clear()
        server.fault("", method="POST", done=True, **spoilt)
        path = f"team/x{number}"
        made = await api.create_project(new(path))
        assert made.path == path
        assert len(server.asked("POST")) == 1, spoilt


async def test_a_creation_that_was_not_done_is_told(server, api):
    server.add_group("team")
    server.requests.clear()
    server.fault("", method="POST", status=503)
    with pytest.raises(FailureError) as raised:
        await api.create_project(new())
    assert raised.value.failure.kind is FailureKind.NETWORK_TIMEOUT
    assert len(server.asked("POST")) == 1
    assert server.project_at("team/x") is None


async def test_a_project_of_somebody_elses_is_not_taken_for_ours(server, api):
    server.add_group("team")
    server.add_project("team/x", commits=1)
    server.fault("", method="POST", status=503)
    with pytest.raises(FailureError, match="not by us") as raised:
        await api.create_project(new())
    assert raised.value.failure.kind is FailureKind.CONFLICT


async def test_a_change_whose_answer_is_lost_is_looked_for(server, api):
    server.add_project("team/x")
    server.protect("team/x", "main")
    server.repo("team/x").commit()
    project = await api.find_project("team/x")
    server.fault("", done=True, cut=0, method="DELETE")
    assert await api.open_branches(project) == ("main",)
    assert server.protected("team/x") == {}


@pytest.mark.parametrize(
    "body",
    [
        "<html>login</html>",
        "[1]",
        "[[]]",
        "{}",
        "null",
        '"x"',
        '[{"id": "7"}]',
        '[{"id": true, "full_name": 1}]',
        '{"data": {}}',
        '{"data": [{"id": -1}]}',
        "[" * 5000,
        "",
    ],
)
async def test_a_wrong_shape_is_said_in_words(server, api, body):
    server.add_project("team/x")
    group = await api.find_group("team")
    server.fault("/repos", body=body, times=None)
    server.fault("/projects", body=body, times=None)
    with pytest.raises(FailureError, match="promises") as raised:
        await api.projects(group, subgroups=True, archived=False)
    assert raised.value.failure.kind is FailureKind.UNKNOWN
    assert raised.value.failure.hint


async def test_a_lookup_that_answers_nonsense_is_not_taken_for_absence(server, api):
    server.add_project("team/x")
    for body in ("[]", "<html>", '{"id": null}'):
        server.fault("team", body=body)
        with pytest.raises(FailureError) as raised:
            await api.find_project("team/x")
        assert raised.value.failure.kind is FailureKind.UNKNOWN


# Tokens


async def test_a_token_that_is_wrong_or_expired(server, forge):
    server.add_project("team/x", visibility="public")
    server.add_token("old-token", expires="2020-01-01")
    for token in ("no-token-of-this-forge", "old-token"):
        api = client(forge, server, token=token)
        for ask in (api.token(), api.find_group("team"), api.find_project("team/x")):
            with pytest.raises(FailureError) as raised:
                await ask
            assert raised.value.failure.kind is FailureKind.AUTH_FAILED
            assert "new one" in raised.value.failure.hint
        await api.close()


async def test_a_token_that_may_only_read_makes_nothing(server, forge):
    server.add_group("team")
    server.add_token("reader", scopes=("read_api", "read:repository", "public_repo"))
    api = client(forge, server, token="reader")
    with pytest.raises(FailureError) as raised:
        await api.create_project(new())
    assert raised.value.failure.kind is FailureKind.PERMISSION_DENIED
    assert "scope" in raised.value.failure.hint
    await api.close()


async def test_the_token_is_in_no_error(server, api):
    for status in (400, 401, 403, 404, 409, 418, 422, 429, 500, 302):
        said = json.dumps({"message": f"bad {TOKEN} here", "error": TOKEN})
        headers = {"Location": f"https://x/?private_token={TOKEN}", "Retry-After": "3600"}
        server.fault("", status=status, body=said, headers=headers, times=None)
        fresh = client(api.forge, server)
        with pytest.raises(FailureError) as raised:
            await fresh.create_project(new())
        shown = repr(raised.value.failure) + str(raised.value)
        assert TOKEN not in shown
        await fresh.close()
        server.heal()


@pytest.mark.parametrize("token", ["canary-token\nX: y", "canary-tokenü", "canary-token\x00"])
async def test_a_token_that_cannot_be_sent_is_not_shown(server, forge, token):
    api = client(forge, server, token=token)
    with pytest.raises(FailureError, match="cannot be sent") as raised:
        await api.find_group("team")
    assert "canary" not in repr(raised.value.failure)
    assert server.asked() == []
    await api.close()


async def test_no_redirect_is_followed(server, api):
    server.add_project("team/x")
    server.fault("", status=302, headers={"Location": "http://127.0.0.1:1/"})
    with pytest.raises(FailureError):
        await api.find_group("team")
    assert len(server.asked()) == 1


async def test_an_answer_without_end_is_left(forge, server):
    server.add_project("team/x")
    api = client(forge, server, patience=replace(QUICK, answer_bytes_max=10_000))
    server.fault("", body="[" + "1," * 10_000)
    with pytest.raises(FailureError, match="longer than") as raised:
        await api.find_group("team")
    assert raised.value.failure.kind is FailureKind.UNKNOWN
    await api.close()


async def test_over_tls_by_the_instances_own_certificate(forge, tmp_path):
    with start(forge, tmp_path, tls=True) as server:
        server.add_project("team/x")
        api = client(forge, server)
        assert (await api.find_group("team")).path == "team"
        await api.close()
        strange = client(forge, server, trusts=False)
        with pytest.raises(FailureError, match="certificate") as raised:
            await strange.find_group("team")
        assert raised.value.failure.kind is FailureKind.UNKNOWN
        assert "ca_file" in raised.value.failure.hint
        await strange.close()
