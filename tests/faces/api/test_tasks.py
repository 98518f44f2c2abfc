"""POST and GET /api/tasks as seed 002 has them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Priority
from evermirror.model.task import TaskId, TaskStatus

URL = "https://github.com/username/repo.git"
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


async def test_submitting_gives_exactly_an_id_as_text_and_pending(client):
    answer = await client.post("/api/tasks", json={"git_url": URL, "additional_params": {}})
    assert answer.status_code == 200
    assert answer.json() == {"task_id": "1", "status": "pending"}


async def test_additional_params_may_be_left_out_or_null(client):
    for body in ({"git_url": URL}, {"git_url": URL, "additional_params": None}):
        assert (await client.post("/api/tasks", json=body)).status_code == 200


async def test_a_task_shows_the_fields_of_the_seed(client, api_service):
    task_id = (await client.post("/api/tasks", json={"git_url": URL})).json()["task_id"]
    task = (await client.get(f"/api/tasks/{task_id}")).json()
    seed = {"task_id", "status", "progress", "result", "created_at", "updated_at"}
    assert set(task) == seed | {"phase", "served"}
    assert task["task_id"] == task_id
    assert (task["progress"], task["phase"], task["result"]) == (None, None, None)
    assert ISO.fullmatch(task["created_at"])
    assert ISO.fullmatch(task["updated_at"])


async def test_a_running_task_shows_its_percentage(client, api_service):
    await client.post("/api/tasks", json={"git_url": URL})
    await api_service.change_task(
        1, status=TaskStatus.RUNNING, progress_percent=49.7, progress_phase="receiving"
    )
    task = (await client.get("/api/tasks/1")).json()
    assert (task["status"], task["progress"], task["phase"]) == ("running", "50%", "receiving")
    await api_service.change_task(1, status=TaskStatus.SUCCESS)
    assert (await client.get("/api/tasks/1")).json()["phase"] is None


async def test_success_and_skipped_carry_their_result(client, api_service):
    await client.post("/api/tasks", json={"git_url": URL})
    for status in (TaskStatus.SUCCESS, TaskStatus.SKIPPED):
        await api_service.change_task(1, status=status, result={"head": "a" * 40, "odd": float("nan")})
        task = (await client.get("/api/tasks/1")).json()
        assert task["status"] == status.value
        assert task["result"] == {"head": "a" * 40, "odd": None}


async def test_a_failed_task_says_failure_and_why(client, api_service):
    await client.post("/api/tasks", json={"git_url": URL})
    failure = Failure(FailureKind.AUTH_FAILED, "no \udcff access", hint="Check the credential")
    await api_service.change_task(1, status=TaskStatus.FAILED, failure=failure)
    task = (await client.get("/api/tasks/1")).json()
    assert task["status"] == "failure"
    assert task["result"]["error_type"] == "AUTH_FAILED"
    assert task["result"]["error_message"] == "no � access"
    assert task["result"]["hint"] == "Check the credential"


async def test_wait_answers_with_the_whole_task_when_it_has_ended(client, api_service):
    body = {"git_url": URL, "additional_params": {"wait": 60}}
    asking = asyncio.create_task(client.post("/api/tasks", json=body))
    while not api_service.tasks:
        await asyncio.sleep(0)
    await api_service.change_task(1, status=TaskStatus.SUCCESS, result={"changes": 2})
    answer = (await asking).json()
    assert answer["status"] == "success"
    assert answer["result"] == {"changes": 2}
    assert answer == (await client.get("/api/tasks/1")).json()


async def test_wait_ends_when_its_time_is_over(client):
    answer = await client.post("/api/tasks", json={"git_url": URL, "additional_params": {"wait": 0.01}})
    assert answer.json()["status"] == "pending"
    assert "created_at" in answer.json()


async def test_more_waiters_than_allowed_are_answered_at_once(house):
    house.settings = replace(house.settings, max_waiting=0)
    async with house.client() as client:
        answer = await client.post("/api/tasks", json={"git_url": URL, "additional_params": {"wait": 300}})
    assert answer.json()["status"] == "pending"


async def test_params_reach_the_service(client, api_service):
    params = {"min_commit": "AB" * 20, "force": True, "priority": "high"}
    await client.post("/api/tasks", json={"git_url": URL, "additional_params": params})
    assert api_service.tasks[TaskId(1)].params == {
        "force": True, "min_commit": "ab" * 20, "priority": Priority.HIGH,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"colour": "red"}, "colour"),
        ({"wait": 301}, "wait"),
        ({"wait": -1}, "wait"),
        ({"wait": "30"}, "wait"),
        ({"wait": True}, "wait"),
        ({"within": 3601}, "within"),
        ({"within": -0.1}, "within"),
        ({"within": "1h"}, "within"),
        ({"min_commit": "xyz"}, "min_commit"),
        ({"min_commit": "a" * 40 + "\n"}, "min_commit"),
        ({"force": "yes"}, "force"),
        ({"priority": "urgent"}, "priority"),
    ],
)
async def test_wrong_params_are_refused_by_name(client, api_service, params, where):
    answer = await client.post("/api/tasks", json={"git_url": URL, "additional_params": params})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "/problems/invalid-input"
    assert problem["errors"][0]["where"] == f"body.additional_params.{where}"
    assert where in problem["detail"]
    assert not api_service.tasks


@pytest.mark.parametrize(
    "wait",
    [
        "31536000",
        "-1",
        "-0.001",
        "NaN",
        "Infinity",
        "-Infinity",
        '"60"',
        '"a year"',
        "true",
        "[]",
        "{}",
        "1e999",
    ],
)
@pytest.mark.parametrize(("name", "most"), [("wait", 300), ("within", 3600)])
async def test_a_time_that_is_none_is_refused_with_the_bound(client, api_service, wait, name, most):
    body = f'{{"git_url": "{URL}", "additional_params": {{"{name}": {wait}}}}}'
    answer = await client.post("/api/tasks", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["errors"][0]["where"] == f"body.additional_params.{name}"
    assert f"from 0 to {most}" in problem["detail"]
    assert not api_service.tasks


async def test_a_commit_is_looked_for_as_long_as_one_waits_or_says(client, api_service):
    commit = "ab" * 20
    asked = [{"wait": 0.01}, {"within": 90}, {"wait": 0.01, "within": 0}, {}]
    for params in asked:
        body = {"git_url": URL, "additional_params": {"min_commit": commit, **params}}
        assert (await client.post("/api/tasks", json=body)).status_code == 200
    assert api_service.within == [0.01, 90, 0, 0]


async def test_an_invalid_url_is_422_and_changes_nothing(client, api_service):
    answer = await client.post("/api/tasks", json={"git_url": "ext::sh -c true"})
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/invalid-url"
    assert answer.json()["hint"]
    assert not api_service.repos


@pytest.mark.parametrize(
    "task_id", ["0", "999", "9" * 18, "9" * 400, "-1", "1.0", "abc", "%00", "%ff", "٣", "0x1", " 1"]
)
async def test_ids_that_are_none_are_404(client, task_id):
    answer = await client.get(f"/api/tasks/{task_id}")
    assert answer.status_code == 404
    assert answer.json()["type"] == "/problems/not-found"


async def test_only_submitters_add_by_a_task(house):
    house.with_tokens()
    async with house.client(token="em_reader") as client:
        assert (await client.post("/api/tasks", json={"git_url": URL})).status_code == 404
    async with house.client(token="em_submitter") as client:
        assert (await client.post("/api/tasks", json={"git_url": URL})).status_code == 200
    async with house.client(token="em_reader") as client:
        assert (await client.post("/api/tasks", json={"git_url": URL})).status_code == 200
