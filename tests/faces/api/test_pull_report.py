"""GET /api/pull/report: its fields, its bounds, what the public is told, and one of a real node."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from evermirror.model.failure import FailureKind
from evermirror.model.figures import ClassProgress, KindCount
from evermirror.model.pull import Load, LoadLevel
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.report import EndedTasks, Failing, ReportFacts, StepLag, StepPressure
from evermirror.model.task import TaskStatus
from tests.faces.api.test_pull_real import create, pulled, writable
from tests.support.node import NodeThread

URL = "/api/pull/report"
FACTS = ReportFacts(
    tasks=(
        EndedTasks(0, Priority.HIGH, TaskStatus.SUCCESS, 6, 40),
        EndedTasks(1, Priority.HIGH, TaskStatus.FAILED, 2, 0),
    ),
    errors={FailureKind.CONFLICT: KindCount(2, 1)},
    failing=(Failing(RepoKey("a/b"), "team/b\ud800", 2, FailureKind.CONFLICT, 3, paused=True),),
    pressure=(StepPressure(0, 12, 5.0, 2.5, 0.0, 2, 5, 6, 3, 6, 12, 6, 0, 120, 36.0, 1000),),
    lag=(StepLag(0, Priority.HIGH, 90.0, 400.0, 9, 10, measured=10),),
)


async def test_a_report_tells_days_classes_errors_and_pressure(client, pull):
    pull.facts = FACTS
    pull.figures[Priority.HIGH] = ClassProgress(10, 7, 1, 1, 1, 0, 60.0, 10)
    pull.load = Load(LoadLevel.HIGH, "cpu 91 %")
    shown = (await client.get(f"{URL}?days=2")).json()
    assert (shown["from"], shown["to"], shown["days"]) == (
        "2025-12-11T00:00:00Z",
        "2025-12-13T23:55:00Z",
        2,
    )
    assert [day["date"] for day in shown["by_day"]] == ["2025-12-11", "2025-12-12", "2025-12-13"]
    assert [day["success_rate"] for day in shown["by_day"]] == [1.0, 0.0, None]
    high = shown["by_priority"]["high"]
    assert (high["tasks"], high["success"], high["failed"], high["changes"]) == (8, 6, 2, 40)
    assert (high["projects"], high["synced"], high["pending"], high["failing"]) == (10, 8, 1, 1)
    assert (high["lag_average_s"], high["lag_worst_s"], high["equal_share"]) == (90.0, 400.0, 0.9)
    assert shown["by_priority"]["low"]["success_rate"] is None
    assert shown["overall"]["success_rate"] == 0.75
    assert shown["errors"] == [{"type": "CONFLICT", "count": 2, "affected_projects": 1}]
    (failing,) = shown["failing"]
    assert failing["project_key"].startswith("team/b")
    assert (failing["errors"], failing["consecutive_failures"], failing["paused"]) == (2, 3, True)
    told = shown["pressure"]
    assert (told["looks"], told["looks_per_hour"], told["source_seconds"]) == (120, 120.0, 36.0)
    assert (told["above_limit_share"], told["at_limit_share"], told["load_high_share"]) == (0.25, 0.5, 0.5)
    assert told["load"] == {"level": "high", "reason": "cpu 91 %"}
    first, second = shown["course"][:2]
    assert (first["limit"], first["running"], first["load_high_share"]) == (5.0, 2.5, 0.5)
    assert first["lag_s"] == {"critical": None, "high": 90.0, "normal": None, "low": None}
    assert second["limit"] is None
    assert shown["step_minutes"] == 60
    assert len(shown["course"]) == 72


async def test_a_week_is_reported_where_no_days_are_named(client, pull):
    assert (await client.get(URL)).json()["days"] == 7
    assert pull.asked[-1] == (7, False)


@pytest.mark.parametrize("days", ["0", "367", "-1", "x", "1.5", "", "1e2"])
async def test_days_are_bounded(client, days):
    answer = await client.get(f"{URL}?days={days}")
    assert answer.status_code == 422
    assert "days" in answer.text


async def test_private_projects_are_named_for_token_holders_only(house, pull):
    app = house.with_tokens().app()
    for token, public in ((None, True), ("em_reader", False)):
        async with house.client(app=app, token=token) as client:
            assert (await client.get(URL)).status_code == 200
        assert pull.asked[-1] == (7, public)


def test_a_real_node_reports_what_it_did(tmp_path, upstream):
    settings = {"schedule__min_gap": "1h", "scheduled_jobs__progress_statistics__cron": "* * * * * ?"}
    source, target = upstream.create("devops/core"), writable(upstream, "mirror/core")
    began = datetime.now(UTC).date().isoformat()
    upstream.delay_s = 0.2  # what sources are asked for is told in tenths of a second
    with NodeThread(tmp_path, upstream.host, **settings) as node:
        create(node, "devops/core", source.url, target, priority="high")
        create(node, "devops/gone", upstream.url("nobody.git"))

        def told() -> dict:
            return node.client.get(f"{URL}?days=1").json()

        def both_ended() -> bool:
            counts = node.client.get("/api/pull/progress/overview?from=2020-01-01").json()["period"]
            return counts["success"] >= 1 and counts["failed"] >= 1

        node.until(both_ended)

        def noted() -> bool:
            return len(node.client.get("/api/pull/progress/course").json()["items"]) >= 3

        node.until(noted)
        shown = told()
        today = shown["by_day"][-1]
        assert today["date"] == datetime.fromisoformat(shown["to"]).astimezone(UTC).date().isoformat()
        days = [day for day in shown["by_day"] if day["date"] >= began]  # two where it was midnight since
        assert [sum(day[end] for day in days) for end in ("success", "failed")] == [1, 1]
        assert shown["by_priority"]["high"]["success"] == 1
        assert [one["project_key"] for one in shown["failing"]] == ["devops/gone"]
        assert shown["failing"][0]["error_type"] == "NOT_FOUND"
        assert shown["pressure"]["notes"] >= 3
        assert shown["pressure"]["looks"] >= 2
        assert shown["pressure"]["source_seconds"] > 0
        assert shown["pressure"]["received_bytes"] > 0
        assert shown["course"][-1]["limit"] == 5
        assert shown["course"][-1]["lag_s"]["high"] is not None
        pulled(node, "devops/core")
        assert told()["by_day"] == shown["by_day"]  # kept for a minute
