"""Progress, tasks and errors of /api/pull as seed 003 has them, sections 4.3 and 4.5, field by field."""

from __future__ import annotations

import pytest

from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ClassProgress
from evermirror.model.pull import PullConfig
from evermirror.model.repo import Priority
from evermirror.model.task import TaskStatus
from tests.faces.api.fake_pull import MINUTE, NOW, timeout

OID = "abc123" + "0" * 34

# 4.3 Progress


async def test_the_overview_has_the_seeds_fields(client, pull):
    pull.figures[Priority.NORMAL] = ClassProgress(200, 180, 5, 10, 5, 0, 15 * MINUTE, 200)
    shown = (await client.get("/api/pull/progress/overview")).json()
    expected = {
        "total_projects": 200,
        "synced": 180,
        "syncing": 5,
        "pending": 10,
        "failed": 5,
        "success_rate": 0.975,
        "average_delay_minutes": 15,
    }
    assert expected.items() <= shown.items()
    assert (shown["disabled"], shown["period"], shown["now"]) == (0, None, "2025-12-13T23:55:00Z")


async def test_progress_by_priority_has_the_seeds_fields_for_each_class(client, pull):
    pull.figures[Priority.CRITICAL] = ClassProgress(10, 10, 0, 0, 0, 0, 5 * MINUTE, 10)
    shown = (await client.get("/api/pull/progress/by-priority")).json()
    assert list(shown) == ["critical", "high", "normal", "low"]
    expected = {"total": 10, "synced": 10, "success_rate": 1.0, "avg_delay_minutes": 5}
    assert expected.items() <= shown["critical"].items()
    assert {"total": 0, "success_rate": 1.0, "avg_delay_minutes": 0}.items() <= shown["low"].items()


async def test_progress_tells_of_a_time(client, pull):
    query = {"from": "2025-12-13T00:00:00Z", "to": "2025-12-14T08:00:00+08:00"}
    shown = (await client.get("/api/pull/progress/overview", params=query)).json()
    assert shown["period"] == {
        "from": "2025-12-13T00:00:00Z", "to": "2025-12-14T00:00:00Z",
        "tasks": 10, "success": 6, "failed": 1, "skipped": 3, "changes": 42,
    }  # fmt: skip
    classes = (await client.get("/api/pull/progress/by-priority", params=query)).json()
    assert {one["period"]["tasks"] for one in classes.values()} == {10}
    await client.get("/api/pull/progress/overview?to=2025-12-13")
    assert pull.asked[-1] == (0.0, NOW - 86_100)
    await client.get("/api/pull/progress/overview?from=2025-12-13T00:00:00")
    begin, end = pull.asked[-1]
    assert (begin, end > NOW) == (NOW - 86_100, True)


async def test_the_course_tells_how_progress_went(client, pull):
    for n in range(4):
        pull.note(NOW + n * 300, total=10, synced=10 - n, failed=n, average_delay_s=90.0)
    query = {"from": "2025-12-13T23:55:00Z", "to": "2025-12-14T00:10:00Z"}
    shown = (await client.get("/api/pull/progress/course", params=query)).json()
    assert (shown["from"], shown["to"]) == (query["from"], query["to"])
    assert [note["synced"] for note in shown["items"]] == [10, 9, 8]
    assert shown["items"][1] == {
        "at": "2025-12-14T00:00:00Z", "total_projects": 10, "synced": 9, "syncing": 0, "pending": 0,
        "failed": 1, "disabled": 0, "success_rate": 0.9, "average_delay_minutes": 1.5,
    }  # fmt: skip
    pull.notes = pull.notes * 2_500
    shown = (await client.get("/api/pull/progress/course", params=query)).json()
    assert 1_000 < len(shown["items"]) <= 2_000
    await client.get("/api/pull/progress/course")
    begin, end = pull.asked[-1]
    assert end - begin == pytest.approx(86_400)


async def test_a_projects_tasks_have_the_seeds_fields_newest_first(client, pull):
    pull.add("devops/core")
    pull.put_task(
        "devops/core", 12345, TaskStatus.SUCCESS, scheduled_at=NOW - 300, started_at=NOW - 299,
        completed_at=NOW - 296.7, has_changes=True, changes_count=3, source_commit=OID, target_commit=OID,
        result={"received_bytes": 99},
    )  # fmt: skip
    for n in range(1, 12):
        pull.put_task("devops/core", n, TaskStatus.SKIPPED, folded=n)
    page = (await client.get("/api/pull/projects/devops/core/tasks?limit=10")).json()
    assert (page["total"], page["page"], page["size"], len(page["items"])) == (12, 1, 10, 10)
    expected = {
        "task_id": 12345,
        "status": "success",
        "scheduled_at": "2025-12-13T23:50:00Z",
        "started_at": "2025-12-13T23:50:01Z",
        "completed_at": "2025-12-13T23:50:03Z",
        "duration_seconds": 2.3,
        "has_changes": True,
        "changes_count": 3,
        "source_commit_sha": OID,
        "target_commit_sha": OID,
        "trigger_type": "schedule",
        "received_bytes": 99,
    }
    assert expected.items() <= page["items"][0].items()
    assert (page["items"][1]["task_id"], page["items"][1]["repeated"]) == (11, 11)
    rest = (await client.get("/api/pull/projects/devops/core/tasks?limit=10&page=2")).json()
    assert [t["task_id"] for t in rest["items"]] == [2, 1]


# 4.5 Errors


async def test_a_projects_errors_have_the_seeds_fields_and_the_whole_story(client, pull):
    view = pull.add("devops/core")
    context = {
        "target_url": "https://t.example.org/devops/core",
        "git_version": "2.45.1",
        "system": "Linux 6.1",
        "evermirror": "0.1",
    }
    pull.put_task(
        "devops/core", 12340, TaskStatus.FAILED, completed_at=NOW - 14_100, retry_count=2,
        failure=timeout(stdout="out", stderr="fatal: timed out", hint="Wait", context=context),
    )  # fmt: skip
    page = (await client.get("/api/pull/projects/devops/core/errors?limit=10")).json()
    (error,) = page["items"]
    expected = {
        "task_id": 12340,
        "occurred_at": "2025-12-13T20:00:00Z",
        "error_type": "NETWORK_TIMEOUT",
        "error_message": "Connection timed out after 30s",
        "git_command": "git remote update",
        "retry_count": 2,
        "project_key": "devops/core",
        "stdout": "out",
        "stderr": "fatal: timed out",
        "hint": "Wait",
        "source_url": view.record.spec.url,
        "target_url": "https://t.example.org/devops/core",
        "versions": {"evermirror": "0.1", "git": "2.45.1", "system": "Linux 6.1"},
    }
    assert expected.items() <= error.items()
    assert (page["total"], page["page"], page["size"]) == (1, 1, 10)


async def test_errors_are_filtered_by_type_and_time_and_listed_for_all_projects(client, pull):
    kinds = [FailureKind.NETWORK_TIMEOUT, FailureKind.AUTH_FAILED, FailureKind.NETWORK_TIMEOUT]
    for n, kind in enumerate(kinds, start=1):
        pull.add(f"team/p{n}")
        pull.put_task(
            f"team/p{n}", n, TaskStatus.FAILED, completed_at=NOW - n * 3600, failure=Failure(kind, "no")
        )

    async def ids(query, path="/api/pull/errors"):
        return [e["task_id"] for e in (await client.get(path, params=query)).json()["items"]]

    assert await ids({}) == [3, 2, 1]
    assert await ids({"type": "AUTH_FAILED"}) == [2]
    assert await ids({"from": "2025-12-13T21:55:00Z"}) == [2, 1]
    assert await ids({"to": "2025-12-13T21:55:00Z"}) == [3]
    assert await ids({"limit": 1, "page": 2}) == [2]
    assert await ids({}, "/api/pull/projects/team/p3/errors") == [3]
    assert await ids({"type": "UNKNOWN"}, "/api/pull/projects/team/p3/errors") == []
    named = (await client.get("/api/pull/errors")).json()["items"]
    assert [e["project_key"] for e in named] == ["team/p3", "team/p2", "team/p1"]
    assert named[0]["source_url"] == "https://git.example.org/team/p3"


async def test_error_statistics_have_the_seeds_fields(client, pull):
    told = {
        FailureKind.NETWORK_TIMEOUT: (15, 8),
        FailureKind.AUTH_FAILED: (3, 3),
        FailureKind.NOT_FOUND: (2, 2),
    }
    task_id = 0
    for kind, (count, affected) in told.items():
        for n in range(count):
            task_id += 1
            name = f"{kind.value.lower()}/p{n % affected}"
            pull.add(name)
            pull.put_task(
                name, task_id, TaskStatus.FAILED, completed_at=NOW - 60, failure=Failure(kind, "no")
            )
    shown = (await client.get("/api/pull/errors/statistics?hours=24")).json()
    assert shown == {
        "time_range": "2025-12-12T23:55 - 2025-12-13T23:55",
        "total_errors": 20,
        "by_type": {
            "NETWORK_TIMEOUT": {"count": 15, "affected_projects": 8},
            "AUTH_FAILED": {"count": 3, "affected_projects": 3},
            "NOT_FOUND": {"count": 2, "affected_projects": 2},
        },
    }
    assert list(shown["by_type"]) == ["NETWORK_TIMEOUT", "AUTH_FAILED", "NOT_FOUND"]
    none = (await client.get("/api/pull/errors/statistics?hours=0.01")).json()
    assert (none["total_errors"], none["by_type"]) == (0, {})


async def test_failed_projects_have_the_seeds_fields_most_failures_first(client, pull):
    failure = Failure(FailureKind.AUTH_FAILED, "Invalid credentials")
    pull.add("devops/fine", failures=2, last_failure=failure)
    pull.add("devops/bad", failures=3)
    pull.add(
        "devops/legacy-service", config=PullConfig(enabled=False), failures=5, last_failure=failure,
        last_failure_at=NOW - 3300, paused="failed 5 times in a row",
    )  # fmt: skip
    page = (await client.get("/api/pull/projects/failed?consecutive_failures_gte=3")).json()
    assert [i["project_key"] for i in page["items"]] == ["devops/legacy-service", "devops/bad"]
    expected = {
        "project_key": "devops/legacy-service",
        "consecutive_failures": 5,
        "last_error_type": "AUTH_FAILED",
        "last_error_message": "Invalid credentials",
        "last_failed_at": "2025-12-13T23:00:00Z",
        "enabled": False,
        "paused": "failed 5 times in a row",
    }
    assert expected.items() <= page["items"][0].items()
    assert (page["total"], page["page"], page["size"]) == (2, 1, 100)
    assert (await client.get("/api/pull/projects/failed")).json()["total"] == 3
