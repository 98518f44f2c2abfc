"""Repos, tasks, tokens, audit, reports taken, settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _repos()
    _tasks()
    _access()
    op.create_table(
        "reports_taken",
        sa.Column("worker", _text(), primary_key=True),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "settings",
        sa.Column("key", _text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _id() -> sa.BigInteger:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _repos() -> None:
    op.create_table(
        "repos",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("key", _text(), nullable=False, unique=True),
        sa.Column("url", _text(), nullable=False),
        sa.Column("host", _text(), nullable=False),
        sa.Column("alias", _text()),
        sa.Column("source", _text(), nullable=False),
        sa.Column("info", sa.Text(), nullable=False),
        sa.Column("priority", _text(), nullable=False),
        sa.Column("interval_s", sa.Double()),
        sa.Column("mode", _text(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("credential", _text()),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("status", _text(), nullable=False),
        sa.Column("digest", _text()),
        sa.Column("head_commit", _text()),
        sa.Column("refs_count", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("verified_at", sa.Double()),
        sa.Column("changed_at", sa.Double()),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("failure_kind", _text()),
        sa.Column("last_failure", sa.Text()),
        sa.Column("last_failure_at", sa.Double()),
        sa.Column("activity_fast", sa.Double(), nullable=False),
        sa.Column("activity_middle", sa.Double(), nullable=False),
        sa.Column("activity_slow", sa.Double(), nullable=False),
        sa.Column("activity_as_of", sa.Double(), nullable=False),
        sa.Column("last_push_at", sa.Double(), nullable=False),
        sa.Column("removed_at", sa.Double()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
    )
    _partial("ix_repos_host_key", ["host", "key"], "removed_at IS NULL")
    _partial("ix_repos_status_key", ["status", "key", "removed_at"], "removed_at IS NULL")
    _partial("ix_repos_priority", ["priority", "removed_at"], "removed_at IS NULL")
    _partial("ix_repos_verified_at", ["verified_at", "status", "removed_at"], "removed_at IS NULL")
    _partial("uq_repos_alias", ["alias"], "removed_at IS NULL", unique=True)
    failing = "removed_at IS NULL AND failure_kind IS NOT NULL"
    _partial("ix_repos_failure_kind", ["failure_kind", "removed_at"], failing)


def _partial(name: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name, "repos", columns, unique=unique, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
    )


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("repo", _text(), nullable=False),
        sa.Column("status", _text(), nullable=False),
        sa.Column("trigger", _text(), nullable=False),
        sa.Column("user", _text(), nullable=False),
        sa.Column("scheduled_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("completed_at", sa.Double()),
        sa.Column("source_commit", _text()),
        sa.Column("has_changes", sa.Boolean(), nullable=False),
        sa.Column("changes_count", sa.BigInteger(), nullable=False),
        sa.Column("progress_percent", sa.Double()),
        sa.Column("progress_phase", _text(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("failure", sa.Text()),
        sa.Column("retry_count", sa.Integer(), nullable=False),
        sa.Column("params", sa.Text()),
        sa.Column("folded", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_tasks_repo_id", "tasks", ["repo", "id"])
    op.create_index("ix_tasks_status_id", "tasks", ["status", "id"])
    op.create_index("ix_tasks_updated_at", "tasks", ["updated_at"])


def _access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("name", _text(), nullable=False),
        sa.Column("role", _text(), nullable=False),
        sa.Column("hash", _text(), nullable=False, unique=True),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_used_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", _text(), nullable=False),
        sa.Column("action", _text(), nullable=False),
        sa.Column("subject", _text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
