"""What GET /api/pull/report answers, for tests whose server is a stand-in."""

from __future__ import annotations

PRIORITIES = ("critical", "high", "normal", "low")


def tasks(count: int, failed: int, changes: int = 7) -> dict[str, object]:
    success = count // 10
    return {
        "tasks": count,
        "success": success,
        "failed": failed,
        "skipped": count - success - failed,
        "changes": changes,
        "success_rate": 1 - failed / count if count else None,
    }


def of_class(count: int, lag_s: float | None) -> dict[str, object]:
    return tasks(count, 2) | {
        "projects": 50,
        "synced": 47,
        "pending": 1,
        "failing": 2,
        "disabled": 0,
        "lag_average_s": lag_s,
        "lag_worst_s": lag_s and lag_s * 9,
        "equal_share": 0.98,
    }


def report(*names: str, days: int = 2, steps: int = 60) -> dict[str, object]:
    """With projects of these names that fail."""
    return {
        "from": "2026-11-14T00:00:00Z",
        "to": "2026-11-16T12:00:00Z",
        "days": days,
        "time_zone": "Asia/Shanghai",
        "overall": of_class(4000, 2700.0),
        "by_priority": {name: of_class(1000, 60.0 * 10**n) for n, name in enumerate(PRIORITIES)},
        "by_day": [{"date": f"2026-11-{14 + n:02}"} | tasks(1600, 30 * n) for n in range(days + 1)],
        "errors": [
            {"type": "NETWORK_TIMEOUT", "count": 80, "affected_projects": 9},
            {"type": "CONFLICT", "count": 10, "affected_projects": 1},
        ],
        "failing": [
            {
                "project_key": name,
                "errors": 9 - n,
                "error_type": "CONFLICT",
                "consecutive_failures": n,
                "paused": n == 1,
            }
            for n, name in enumerate(names)
        ],
        "pressure": {
            "notes": 700,
            "looks": 51_234,
            "looks_per_hour": 283.1,
            "looks_per_hour_max": 391.4,
            "source_seconds": 12_840.5,
            "source_connections": 0.0198,
            "received_bytes": 4_312_000_000,
            "limit_min": 2,
            "limit_max": 8,
            "running_average": 1.83,
            "running_max": 9,
            "above_limit_share": 0.004,
            "at_limit_share": 0.083,
            "load_known_share": 1.0,
            "load_high_share": 0.061,
            "load": {"level": "low", "reason": "cpu 12 %"},
        },
        "step_minutes": 60,
        "course": [
            {
                "at": "2026-11-14T00:00:00Z",
                "limit": None if n == 30 else 5.0,
                "running": None if n == 30 else 2.0,
                "running_max": None if n == 30 else 4,
                "queued": None,
                "looks_per_hour": None if n == 30 else 100.0 + n,
                "source_seconds": None,
                "load_high_share": None if n == 30 else float(n == 10),
                "lag_s": dict.fromkeys(PRIORITIES, None if n == 30 else 60.0 * n),
                "equal_share": None,
            }
            for n in range(steps)
        ],
    }
