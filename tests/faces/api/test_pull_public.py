"""Targets are nobody's business: a public source is often pushed on to a server inside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import PullConfig, Target
from evermirror.model.push import TargetId
from evermirror.model.task import TaskId, TaskStatus, Trigger
from tests.faces.api.fake_pull import NOW

INSIDE = "gitlab.corp"
URL = f"https://{INSIDE}/mirrors/x"
REFUSED = Failure(
    FailureKind.AUTH_FAILED,
    f"{INSIDE} does not let us in",
    hint=f"Renew the token of {INSIDE}",
    git_command=f"git push {URL}",
    stderr=f"fatal: {URL}",
    context={"target_url": URL, "source_url": "https://git.example.org/open"},
)
PUSHES = [{"target": 1, "put_total": 0, "refs": [{"ref": "refs/heads/main", "reason": f"by {INSIDE}"}]}]
READS = (
    "/api/pull/projects",
    "/api/pull/projects/open",
    "/api/pull/projects/open/config",
    "/api/pull/projects/open/tasks",
    "/api/pull/projects/open/errors",
    "/api/pull/errors",
    "/api/pull/errors/statistics",
    "/api/pull/projects/failed",
    "/api/pull/tasks/1",
    "/api/tasks/1",
    "/api/repos/git.example.org/open/-/tasks",
)
TELLING = [path for path in READS if not path.endswith("statistics")]


@pytest.fixture
async def told(house, pull, api_service):
    """What each path answers, to anybody and to a reader, of a project whose target does not let us in."""
    target = Target(
        TargetId(1), URL, "corp-token", failures=1, paused=f"AUTH_FAILED, {REFUSED.message}",
        last_failure=REFUSED, last_failure_at=NOW,
    )  # fmt: skip
    pull.add(
        "open", config=PullConfig(enabled=False), failures=1,
        paused=f"all its targets are paused: {REFUSED.message}", last_status=TaskStatus.FAILED,
        last_failure=REFUSED, last_failure_at=NOW,
    )  # fmt: skip
    pull.set("open", targets=(target,))
    task = pull.put_task(
        "open", 1, TaskStatus.FAILED, completed_at=NOW, failure=REFUSED, result={"pushes": PUSHES}
    )
    await api_service.add_url("https://git.example.org/open", None, actor="me")
    api_service.tasks[TaskId(1)] = replace(task, trigger=Trigger.API)
    app = house.with_tokens().app()

    async def read(token=None):
        async with house.client(app=app, token=token) as client:
            answers = {path: await client.get(path) for path in READS}
        assert {answer.status_code for answer in answers.values()} == {200}
        return answers

    return read


async def test_the_public_hears_nothing_of_a_target_but_the_kind_of_its_failure(told):
    answers = await told()
    for path, answer in answers.items():
        assert INSIDE not in answer.text, path
        assert "corp-token" not in answer.text, path
    project = answers["/api/pull/projects/open"].json()
    assert (project["targets"], project["targets_total"]) == ([], 1)
    assert project["last_error"]["error_type"] == "AUTH_FAILED"
    assert "AUTH_FAILED" in project["paused"]
    task = answers["/api/pull/tasks/1"].json()
    assert (task["error_type"], task["pushes"], task["error"]["target_url"]) == ("AUTH_FAILED", [], None)
    assert task["error"]["git_command"] is None
    assert answers["/api/pull/errors"].json()["items"][0]["error_type"] == "AUTH_FAILED"
    failed = answers["/api/pull/projects/failed"].json()["items"][0]
    assert failed["last_error_type"] == "AUTH_FAILED"
    result = answers["/api/tasks/1"].json()["result"]
    assert result["error_type"] == "AUTH_FAILED"
    assert "pushes" not in result
    assert "pushes" not in answers["/api/repos/git.example.org/open/-/tasks"].json()["items"][0]["result"]


async def test_a_reader_is_told_everything(told):
    answers = await told("em_reader")
    for path in TELLING:
        assert INSIDE in answers[path].text, path
    project = answers["/api/pull/projects/open"].json()
    assert [(t["url"], t["credential"]) for t in project["targets"]] == [(URL, "corp-token")]
    task = answers["/api/pull/tasks/1"].json()
    assert (task["error"]["target_url"], task["pushes"][0]["target_url"]) == (URL, URL)
    assert answers["/api/tasks/1"].json()["result"]["pushes"] == PUSHES


async def test_failures_of_targets_that_name_none_are_found_by_what_was_pushed(house, pull):
    """Such as a fault of ours while it was pushed: its words may name the target all the same."""
    bug = Failure(FailureKind.UNKNOWN, f"KeyError: {URL}")
    pull.add("open", failures=1, last_failure=bug, last_failure_at=NOW)
    pull.set("open", targets=(Target(TargetId(1), URL, last_failure=bug),))
    pull.put_task("open", 1, TaskStatus.FAILED, completed_at=NOW, failure=bug, result={"pushes": PUSHES})
    async with house.with_tokens().client() as anybody:
        for path in ("projects/open", "projects/failed", "tasks/1", "errors", "projects/open/tasks"):
            assert INSIDE not in (await anybody.get(f"/api/pull/{path}")).text, path


async def test_what_a_source_says_stays_public(house, pull):
    said = Failure(FailureKind.NOT_FOUND, "the source is gone", git_command="git fetch")
    pull.add(
        "open", config=PullConfig(enabled=False), failures=1, paused="its source says NOT_FOUND",
        last_failure=said, last_failure_at=NOW,
    )  # fmt: skip
    pull.put_task("open", 1, TaskStatus.FAILED, completed_at=NOW, failure=said)
    async with house.with_tokens().client() as anybody:
        shown = (await anybody.get("/api/pull/projects/open")).json()
        assert (shown["paused"], shown["last_error"]["error_message"]) == (
            "its source says NOT_FOUND",
            "the source is gone",
        )
        error = (await anybody.get("/api/pull/errors")).json()["items"][0]
        assert (error["error_message"], error["git_command"]) == ("the source is gone", "git fetch")


async def test_a_task_outlives_its_project_for_token_holders(house, pull):
    view = pull.add("open")
    pull.put_task("open", 1, TaskStatus.FAILED, completed_at=NOW, failure=REFUSED, result={"pushes": PUSHES})
    del pull.views[view.record.key]
    app = house.with_tokens().app()
    async with house.client(app=app, token="em_reader") as reader:
        shown = (await reader.get("/api/pull/tasks/1")).json()
        assert (shown["project_key"], shown["status"]) == ("git.example.org/open", "failed")
        assert [push["target_url"] for push in shown["pushes"]] == [None]
    async with house.client(app=app) as anybody:
        assert (await anybody.get("/api/pull/tasks/1")).status_code == 404


async def test_a_worker_is_asked_for_its_plan_only_where_that_is_shown(client, pull):
    pull.add("open", configured=False)
    pull.put_task("open", 1, TaskStatus.SUCCESS, completed_at=NOW)
    for path in ("projects/open/tasks", "projects/open/errors", "tasks/1"):
        assert (await client.get(f"/api/pull/{path}")).status_code == 200
    assert (await client.post("/api/pull/projects/open/trigger")).status_code == 200
    assert pull.planned == 0
    await client.get("/api/pull/projects/open/config")
    await client.get("/api/pull/projects/open")
    assert pull.planned == 2


async def test_a_task_that_was_pending_is_not_one_that_was_created(client, pull):
    pull.add("one")
    pull.add("two")
    first = (await client.post("/api/pull/projects/one/trigger")).json()
    again = (await client.post("/api/pull/projects/one/trigger")).json()
    assert (first["task_id"], again["message"]) == (again["task_id"], "A pull task was pending already")
    shown = (await client.post("/api/pull/trigger/batch", json={"project_keys": ["one", "two"]})).json()
    assert (shown["created_tasks"], shown["already_pending"], len(shown["task_ids"])) == (1, 1, 2)
    assert first["task_id"] in shown["task_ids"]
