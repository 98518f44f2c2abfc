"""Projects that are pulled in a rhythm, their targets, the course of it all; kinds of failed tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_KINDS = (
    "NETWORK_TIMEOUT", "RATE_LIMITED", "AUTH_FAILED", "NOT_FOUND", "PERMISSION_DENIED", "CONFLICT",
    "DISK_FULL", "UNKNOWN",
)  # fmt: skip


def upgrade() -> None:
    _repos()
    _tasks()
    _projects()
    op.create_table(
        "pull_course",
        sa.Column("at", sa.Double(), primary_key=True),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("synced", sa.BigInteger(), nullable=False),
        sa.Column("syncing", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("disabled", sa.BigInteger(), nullable=False),
        sa.Column("average_delay_s", sa.Double()),
        sa.Column("measured", sa.BigInteger(), nullable=False),
    )


def _repos() -> None:
    op.add_column("repos", sa.Column("pulled", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.drop_index("ix_repos_verified_at", "repos")
    counted = ["pulled", "priority", "status", "verified_at", "removed_at"]
    _partial("ix_repos_freshness", "repos", counted, "removed_at IS NULL")
    op.create_index(
        "ix_repos_pulled_left",
        "repos",
        ["removed_at", "pulled"],
        sqlite_where=sa.text("removed_at IS NOT NULL AND pulled = 1"),  # as statements spell it there
        postgresql_where=sa.text("removed_at IS NOT NULL AND pulled"),
    )


def _tasks() -> None:
    # Tasks that are there count as normal, whatever their repos are: a million of them take a minute to look
    # up, and nobody's figures of a time before this step are worth a start that lasts that long.
    op.add_column("tasks", sa.Column("priority", _text(), nullable=False, server_default="normal"))
    op.add_column("tasks", sa.Column("target_commit", _text()))
    op.add_column("tasks", sa.Column("failure_kind", _text()))
    # A failure's text begins with its kind; JSON functions would stumble over what upstreams may have said.
    told = " ".join(f"WHEN failure LIKE '{{\"kind\":\"{kind}\"%' THEN '{kind}'" for kind in _KINDS)
    op.execute(f"UPDATE tasks SET failure_kind = CASE {told} END WHERE failure IS NOT NULL")  # noqa: S608
    ended = ["priority", "status", "completed_at", "folded", "created_at", "changes_count"]
    _partial("ix_tasks_ended", "tasks", ended, "completed_at IS NOT NULL")
    _partial("ix_tasks_errors", "tasks", ["completed_at", "failure_kind", "repo"], "failure_kind IS NOT NULL")
    _partial(
        "ix_tasks_repo_errors", "tasks", ["repo", "completed_at", "failure_kind"], "failure_kind IS NOT NULL"
    )


def _projects() -> None:
    op.create_table(
        "pull_projects",
        sa.Column("repo", _id(), primary_key=True, autoincrement=False),
        sa.Column("priority", _text(), nullable=False),
        sa.Column("interval_s", sa.Double(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("last_status", _text()),
        sa.Column("last_sync_at", sa.Double()),
        sa.Column("next_sync_at", sa.Double(), nullable=False),
        sa.Column("task", sa.BigInteger()),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("paused", _text(), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("retry_delay_s", sa.Double(), nullable=False),
        sa.Column("overrides", sa.Text(), nullable=False),
        sa.Column("catalog", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("last_failure", sa.Text()),
        sa.Column("last_failure_kind", _text()),
        sa.Column("last_failure_at", sa.Double()),
        sa.Column("standing", _text(), nullable=False),
        sa.Column("overdue_at", sa.Double(), nullable=False),
    )
    counted = ["priority", "standing", "overdue_at", "last_sync_at"]
    op.create_index("ix_pull_projects_progress", "pull_projects", counted)
    _partial("ix_pull_projects_failures", "pull_projects", ["failures"], "failures > 0")
    op.create_table(
        "pull_targets",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("repo", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("url", _text(), nullable=False),
        sa.Column("credential", _text()),
        sa.Column("put", _text()),
        sa.Column("put_at", sa.Double()),
        sa.Column("target_commit", _text()),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("paused", _text(), nullable=False),
        sa.Column("adopt", sa.Boolean(), nullable=False),
        sa.Column("last_failure", sa.Text()),
        sa.Column("last_failure_at", sa.Double()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_pull_targets_repo", "pull_targets", ["repo"])


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _id() -> sa.BigInteger:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
