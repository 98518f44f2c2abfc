"""Every refusal is a problem document; nothing hostile becomes a 500."""

from __future__ import annotations

import json

import pytest
import structlog

from evermirror.errors import Conflict, EnvironmentUnfit, EvermirrorError
from evermirror.model.failure import Failure, FailureError, FailureKind

JSON = {"content-type": "application/json"}


def is_problem(answer):
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert problem["type"].startswith("/problems/")
    assert problem["title"]
    assert problem["detail"]
    return True


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/api", 404),
        ("GET", "/api/tasks", 405),
        ("PUT", "/api/git_urls", 405),
        ("PATCH", "/api/git_urls/github.com/o/r", 405),
        ("BREW", "/api/overview", 405),
    ],
)
async def test_unknown_addresses_and_methods(client, method, path, code):
    answer = await client.request(method, path)
    assert answer.status_code == code
    assert is_problem(answer)


async def test_method_not_allowed_names_all_that_are(client):
    assert (await client.put("/api/git_urls")).headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", 400),
        (b"\xff\xfe{}", 400),
        (b'{"git_url": "\xff"}', 400),
        (b"[" * 100_000, 400),
        (b'{"git_url":' * 2_000, 400),
        (b"9" * 5_000, 400),
        (b"null", 422),
        (b"[]", 422),
        (b"3", 422),
        (b'"text"', 422),
        (b"{}", 422),
        (b'{"git_url": null}', 422),
        (b'{"git_url": 3}', 422),
        (b'{"git_url": ["https://github.com/o/r"]}', 422),
        (b'{"git_url": ""}', 422),
        (b'{"git_url": "\\u0000"}', 422),
        (b'{"git_url": "https://github.com/o/\\ud800"}', 422),
        (b'{"git_url": "https://github.com/o/r", "\\ud800": 1}', 422),
        (b'{"git_url": "https://github.com/o/r", "extra": 1}', 422),
        (b'{"git_url": "' + b"x" * 3_000 + b'"}', 422),
        (b'{"git_url": "https://github.com/o/r", "additional_info": {"a": "\\ud800"}}', 422),
        (b'{"git_url": "https://github.com/o/r", "additional_info": {"a": NaN}}', 422),
        (b'{"git_url": "https://github.com/o/r", "additional_info": {"a": 1e999}}', 422),
        (
            b'{"git_url": "https://github.com/o/r", "additional_info": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
            422,
        ),
        (b"", 422),
    ],
)
async def test_hostile_bodies_are_refused_and_change_nothing(client, api_service, body, code):
    for path in ("/api/git_urls", "/api/tasks"):
        answer = await client.post(path, content=body, headers=JSON)
        assert answer.status_code == code
        assert is_problem(answer)
    assert not api_service.repos


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "\xff"]
)
async def test_a_body_that_is_not_called_json_is_415(client, api_service, kind):
    body = json.dumps({"git_url": "https://github.com/o/r"})
    answer = await client.post(
        "/api/git_urls", content=body, headers={"content-type": kind.encode("latin-1")}
    )
    assert answer.status_code == 415
    assert is_problem(answer)
    assert "application/json" in answer.json()["hint"]
    assert not api_service.repos


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Conflict("it is running", hint="Wait"), 409),
        (EnvironmentUnfit("disk gone"), 503),
        (EvermirrorError("odd"), 500),
        (RuntimeError("the password is hunter2"), 500),
    ],
)
async def test_errors_of_the_service_become_problems(client, api_service, error, code):
    api_service.explode = error
    with structlog.testing.capture_logs() as logs:
        answer = await client.get("/api/repos/github.com/o/r")
    assert answer.status_code == code
    assert is_problem(answer)
    assert "hunter2" not in answer.text
    if code == 500:
        assert answer.json()["id"] == logs[0]["id"]
        assert logs[0]["exc_info"] is error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "the database does not answer")), 503),
        (EnvironmentUnfit("disk gone"), 503),
        (RuntimeError("the password is hunter2"), 500),
    ],
)
@pytest.mark.parametrize("token", [None, "em_reader"])
async def test_errors_while_it_is_found_out_who_asks_become_problems(house, monkeypatch, error, code, token):
    async def away(*_):
        raise error

    monkeypatch.setattr(house.tokens, "find_token", away)
    monkeypatch.setattr(house.tokens, "any_user_token", away)
    async with house.client(token) as client:
        answer = await client.get("/api/overview")
    assert answer.status_code == code
    assert is_problem(answer)
    assert "hunter2" not in answer.text


async def test_what_a_problem_type_leads_to_is_there(client):
    answer = await client.get((await client.get("/nothing")).json()["type"])
    assert answer.status_code == 200
    assert "not-found" in answer.text


async def test_a_thousand_wrong_things_are_told_in_a_bounded_answer(client):
    body = {"git_url": "https://github.com/o/r"} | {f"extra{i}": i for i in range(1000)}
    answer = await client.post("/api/git_urls", json=body)
    assert len(answer.json()["errors"]) == 20
