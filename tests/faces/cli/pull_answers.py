"""What the pull API answers, for tests whose server is a stand-in."""

from __future__ import annotations

KEY = "devops/core"
CHINESE = {"LANG": "zh_CN.UTF-8", "TZ": "UTC"}
HOSTILE = "evil\x1b]0;owned\x07\x1b[31m[bold]name\u202e\r\n"

STRATEGY: dict[str, object] = {
    "strategy_name": "default",
    "max_concurrent_pulls": 5,
    "enable_peak_avoidance": True,
    "peak_hours_start": 9,
    "peak_hours_end": 18,
    "peak_max_concurrent": 3,
    "off_peak_max_concurrent": 8,
    "night_hours_start": None,
    "night_hours_end": None,
    "night_max_concurrent": None,
    "enable_adaptive": True,
    "enabled": True,
    "time_zone": "Asia/Shanghai",
    "in_peak": True,
    "current_limit": 3,
    "running": 2,
    "load": {"level": "normal", "reason": "cpu 55 %"},
}
OVERVIEW: dict[str, object] = {
    "total_projects": 200,
    "synced": 180,
    "syncing": 5,
    "pending": 10,
    "failed": 5,
    "success_rate": 0.975,
    "average_delay_minutes": 15,
    "disabled": 0,
    "period": None,
}
BY_PRIORITY: dict[str, object] = {
    name: {"total": total, "synced": synced, "success_rate": 0.99, "avg_delay_minutes": delay, "syncing": 0,
           "pending": total - synced, "failed": 0, "disabled": 0, "period": None}
    for name, total, synced, delay in (
        ("critical", 10, 10, 5), ("high", 30, 29, 12), ("normal", 100, 92, 25), ("low", 60, 49, 120)
    )
}  # fmt: skip
PROJECT: dict[str, object] = {
    "priority": "critical",
    "sync_interval": 10,
    "enabled": True,
    "max_retries": 3,
    "retry_delay": 5,
    "last_sync_at": "2025-12-13T23:50:00Z",
    "next_sync_at": "2025-12-14T00:00:00Z",
    "consecutive_failures": 0,
    "project_key": KEY,
    "source_url": "https://git.example.org/devops/core",
    "targets": [],
    "configured": True,
    "overrides": [],
    "paused": None,
    "last_error": None,
}
TASK: dict[str, object] = {
    "task_id": 12345,
    "project_key": KEY,
    "status": "success",
    "trigger_type": "manual",
    "scheduled_at": "2025-12-13T23:50:00Z",
    "started_at": "2025-12-13T23:50:01Z",
    "completed_at": "2025-12-13T23:50:03Z",
    "duration_seconds": 2.3,
    "has_changes": True,
    "changes_count": 3,
    "source_commit_sha": "abc123" + "0" * 34,
    "target_commit_sha": "abc123" + "0" * 34,
    "retry_count": 0,
    "error_type": None,
}
ERROR: dict[str, object] = {
    "task_id": 12340,
    "occurred_at": "2025-12-13T20:00:00Z",
    "error_type": "NETWORK_TIMEOUT",
    "error_message": "Connection timed out after 30s",
    "git_command": "git remote update",
    "retry_count": 2,
}
STATISTICS: dict[str, object] = {
    "time_range": "2025-12-12T23:55:00Z - 2025-12-13T23:55:00Z",
    "total_errors": 20,
    "by_type": {
        "NOT_FOUND": {"count": 2, "affected_projects": 2},
        "NETWORK_TIMEOUT": {"count": 15, "affected_projects": 8},
        "AUTH_FAILED": {"count": 3, "affected_projects": 3},
    },
}
TARGETS: list[dict[str, object]] = [
    {"url": "https://a.example.org/x", "failures": 0, "put_at": "2025-12-13T23:50:00Z"},
    {
        "url": "https://b.example.org/x",
        "failures": 2,
        "last_error": {
            "error_type": "CONFLICT",
            "error_message": "refs/heads/main holds another's commit",
        },
    },
    {"url": "https://c.example.org/x", "failures": 1, "paused": "PERMISSION_DENIED"},
    {"url": "https://d.example.org/x", "failures": 1, "adopt": True},
    {"url": "https://e.example.org/x", "failures": 0},
]
FAILED: dict[str, object] = {
    "project_key": "devops/legacy-service",
    "consecutive_failures": 5,
    "last_error_type": "AUTH_FAILED",
    "last_error_message": "Invalid credentials",
    "last_failed_at": "2025-12-13T23:00:00Z",
    "enabled": False,
    "paused": "5 failures in a row",
}


def page(*items: object, total: int | None = None) -> tuple[int, object]:
    return 200, {"items": list(items), "total": len(items) if total is None else total, "page": 1, "size": 10}


def problem(status: int, detail: str, kind: str = "x", hint: str = "Do this") -> tuple[int, object]:
    return status, {"type": f"/problems/{kind}", "title": "T", "detail": detail, "hint": hint}


def project(rest: str = "") -> str:
    return f"/api/pull/projects/{KEY}{rest}"
