"""Counts of 64 bits on PostgreSQL: one that is too large for its column must not stop the writes of others.

SQLite's integers have 64 bits already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"

_COUNTS = {
    "repos": ("consecutive_failures",),
    "tasks": ("retry_count",),
    "event_hooks": ("failures",),
    "event_letters": ("attempts",),
    "hook_memories": ("told", "missed", "needed"),
    "pull_projects": ("failures", "max_retries"),
    "pull_sync_schedule": (
        "max_concurrent_pulls", "peak_max_concurrent", "off_peak_max_concurrent", "night_max_concurrent",
    ),
    "pull_targets": ("failures",),
    "pull_course": ("slots", "running", "queued"),
    "alert_notices": ("attempts",),
    "discoveries": ("failures",),
}  # fmt: skip


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, columns in _COUNTS.items():  # one statement a table: each rewrites it
        changes = ", ".join(f'ALTER COLUMN "{column}" TYPE BIGINT' for column in columns)
        op.execute(sa.text(f'ALTER TABLE "{table}" {changes}'))
