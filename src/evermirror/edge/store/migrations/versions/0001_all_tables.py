"""All tables and indexes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _repos()
    _tasks()
    _access()
    _fleet()
    _pull()
    _progress()
    _alerts()
    _discovery()
    _events()
    _webhooks()
    _bulk()


def _repos() -> None:
    op.create_table(
        "repos",
        sa.Column("id", _number(), primary_key=True),
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
        sa.Column("fallbacks", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("pins", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("fsck_allow", sa.Text(), nullable=False, server_default="[]"),
        sa.Column("fsck_reason", sa.Text()),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("status", _text(), nullable=False),
        sa.Column("digest", _text()),
        sa.Column("head_commit", _text()),
        sa.Column("refs_count", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("verified_at", sa.Double()),
        sa.Column("changed_at", sa.Double()),
        sa.Column("consecutive_failures", _number(), nullable=False),
        sa.Column("failure_kind", _text()),
        sa.Column("last_failure", sa.Text()),
        sa.Column("last_failure_at", sa.Double()),
        sa.Column("activity_fast", sa.Double(), nullable=False),
        sa.Column("activity_middle", sa.Double(), nullable=False),
        sa.Column("activity_slow", sa.Double(), nullable=False),
        sa.Column("activity_as_of", sa.Double(), nullable=False),
        sa.Column("last_push_at", sa.Double(), nullable=False),
        sa.Column("activity_rhythm", sa.LargeBinary()),
        sa.Column("removed_at", sa.Double()),
        sa.Column("salt", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("change_seq", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("pulled", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("hooked", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("told_digest", _text()),
        sa.Column("told_status", _text()),
    )
    op.create_index("ix_repos_change_seq", "repos", ["change_seq"])
    _partial(
        "ix_repos_failure_kind",
        "repos",
        ["failure_kind", "removed_at"],
        "removed_at IS NULL AND failure_kind IS NOT NULL",
    )
    _partial(
        "ix_repos_freshness",
        "repos",
        ["pulled", "priority", "status", "verified_at", "removed_at"],
        "removed_at IS NULL",
    )
    _partial("ix_repos_host_key", "repos", ["host", "key"], "removed_at IS NULL")
    _partial(
        "ix_repos_list",
        "repos",
        [
            "key",
            "status",
            "verified_at",
            "priority",
            "host",
            "private",
            "size_bytes",
            "changed_at",
            "consecutive_failures",
            "failure_kind",
            "removed_at",
        ],
        "removed_at IS NULL",
        postgresql_include=["id"],
    )
    _partial("ix_repos_priority", "repos", ["priority", "removed_at"], "removed_at IS NULL")
    _partial(
        "ix_repos_private",
        "repos",
        ["removed_at", "private"],
        "removed_at IS NULL AND private",
        on_sqlite="removed_at IS NULL AND private = 1",
    )
    _partial(
        "ix_repos_pulled_left",
        "repos",
        ["removed_at", "pulled"],
        "removed_at IS NOT NULL AND pulled",
        on_sqlite="removed_at IS NOT NULL AND pulled = 1",
    )
    _partial("ix_repos_status_key", "repos", ["status", "key", "removed_at"], "removed_at IS NULL")
    _partial("uq_repos_alias", "repos", ["alias"], "removed_at IS NULL", unique=True)


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("repo", _text(), nullable=False),
        sa.Column("priority", _text(), nullable=False, server_default="normal"),
        sa.Column("status", _text(), nullable=False),
        sa.Column("trigger", _text(), nullable=False),
        sa.Column("user", _text(), nullable=False),
        sa.Column("scheduled_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("completed_at", sa.Double()),
        sa.Column("source_commit", _text()),
        sa.Column("target_commit", _text()),
        sa.Column("has_changes", sa.Boolean(), nullable=False),
        sa.Column("changes_count", sa.BigInteger(), nullable=False),
        sa.Column("progress_percent", sa.Double()),
        sa.Column("progress_phase", _text(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("failure", sa.Text()),
        sa.Column("failure_kind", _text()),
        sa.Column("retry_count", _number(), nullable=False),
        sa.Column("params", sa.Text()),
        sa.Column("folded", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sqlite_autoincrement=True,
    )
    _partial(
        "ix_tasks_ended",
        "tasks",
        ["priority", "status", "completed_at", "folded", "created_at", "changes_count"],
        "completed_at IS NOT NULL",
    )
    _partial("ix_tasks_errors", "tasks", ["completed_at", "failure_kind", "repo"], "failure_kind IS NOT NULL")
    _partial(
        "ix_tasks_repo_errors", "tasks", ["repo", "completed_at", "failure_kind"], "failure_kind IS NOT NULL"
    )
    op.create_index("ix_tasks_repo_id", "tasks", ["repo", "id"])
    op.create_index("ix_tasks_status_id", "tasks", ["status", "id"])
    op.create_index("ix_tasks_updated_at", "tasks", ["updated_at"])


def _access() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("name", _text(), nullable=False),
        sa.Column("role", _text(), nullable=False),
        sa.Column("hash", _text(), nullable=False, unique=True),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_used_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("operator", _text(), nullable=False, server_default=""),
        sa.Column("weight", sa.Double()),
        sa.Column("capacity", sa.BigInteger()),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "audit",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", _text(), nullable=False),
        sa.Column("action", _text(), nullable=False),
        sa.Column("subject", _text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "settings",
        sa.Column("key", _text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )


def _fleet() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("token_id", sa.BigInteger(), unique=True),
        sa.Column("name", _text(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("capacity", sa.BigInteger()),
        sa.Column("liveness", _text(), nullable=False),
        sa.Column("duty", _text(), nullable=False),
        sa.Column("joined_at", sa.Double(), nullable=False),
        sa.Column("last_alive_at", sa.Double(), nullable=False),
        sa.Column("flap_score", sa.Double(), nullable=False),
        sa.Column("flap_at", sa.Double(), nullable=False),
        sa.Column("history", sa.Text(), nullable=False),
    )
    op.create_table(
        "copies",
        sa.Column("repo", sa.BigInteger(), primary_key=True),
        sa.Column("worker", sa.Integer(), primary_key=True),
        sa.Column("rank", sa.SmallInteger()),
        sa.Column("state", sa.SmallInteger(), nullable=False),
        sa.Column("reason", sa.SmallInteger(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_copies_worker", "copies", ["worker"])
    op.create_table(
        "reports_taken",
        sa.Column("worker", sa.Integer(), primary_key=True),
        sa.Column("generation", sa.BigInteger(), primary_key=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "aggregators",
        sa.Column("token_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("name", _text(), nullable=False),
        sa.Column("http_url", _text(), nullable=False),
        sa.Column("relay", _text(), nullable=False),
        sa.Column("version", _text(), nullable=False),
        sa.Column("liveness", _text(), nullable=False),
        sa.Column("retired", sa.Boolean(), nullable=False),
        sa.Column("joined_at", sa.Double(), nullable=False),
        sa.Column("last_alive_at", sa.Double(), nullable=False),
        sa.Column("history", sa.Text(), nullable=False),
    )


def _pull() -> None:
    op.create_table(
        "pull_projects",
        sa.Column("repo", _number(), primary_key=True, autoincrement=False),
        sa.Column("priority", _text(), nullable=False),
        sa.Column("interval_s", sa.Double(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("last_status", _text()),
        sa.Column("last_sync_at", sa.Double()),
        sa.Column("next_sync_at", sa.Double(), nullable=False),
        sa.Column("task", sa.BigInteger()),
        sa.Column("failures", _number(), nullable=False),
        sa.Column("paused", _text(), nullable=False),
        sa.Column("max_retries", _number(), nullable=False),
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
        sa.Column("priority_before", _text()),
    )
    _partial("ix_pull_projects_failures", "pull_projects", ["failures"], "failures > 0")
    op.create_index(
        "ix_pull_projects_progress", "pull_projects", ["priority", "standing", "overdue_at", "last_sync_at"]
    )
    op.create_table(
        "pull_targets",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("repo", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("url", _text(), nullable=False),
        sa.Column("credential", _text()),
        sa.Column("put", _text()),
        sa.Column("put_at", sa.Double()),
        sa.Column("target_commit", _text()),
        sa.Column("failures", _number(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("paused", _text(), nullable=False),
        sa.Column("adopt", sa.Boolean(), nullable=False),
        sa.Column("last_failure", sa.Text()),
        sa.Column("last_failure_at", sa.Double()),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_pull_targets_repo", "pull_targets", ["repo"])
    op.create_table(
        "pull_sync_schedule",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("strategy_name", _text(), nullable=False),
        sa.Column("max_concurrent_pulls", _number(), nullable=False),
        sa.Column("enable_peak_avoidance", sa.Boolean(), nullable=False),
        sa.Column("peak_hours_start", sa.Integer(), nullable=False),
        sa.Column("peak_hours_end", sa.Integer(), nullable=False),
        sa.Column("peak_max_concurrent", _number(), nullable=False),
        sa.Column("off_peak_max_concurrent", _number(), nullable=False),
        sa.Column("night_hours_start", sa.Integer()),
        sa.Column("night_hours_end", sa.Integer()),
        sa.Column("night_max_concurrent", _number()),
        sa.Column("enable_adaptive", sa.Boolean(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
    )


def _progress() -> None:
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
        sa.Column("worst_delay_s", sa.Double()),
        sa.Column("equal", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("compared", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("slots", _number()),
        sa.Column("running", _number()),
        sa.Column("queued", _number()),
        sa.Column("load_level", _text()),
        sa.Column("load_reason", _text()),
        sa.Column("looks", sa.BigInteger()),
        sa.Column("source_s", sa.Double()),
        sa.Column("received_bytes", sa.BigInteger()),
    )
    op.create_table(
        "pull_course_classes",
        sa.Column("at", sa.Double(), primary_key=True),
        sa.Column("priority", _text(), primary_key=True),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("synced", sa.BigInteger(), nullable=False),
        sa.Column("syncing", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("disabled", sa.BigInteger(), nullable=False),
        sa.Column("average_delay_s", sa.Double()),
        sa.Column("measured", sa.BigInteger(), nullable=False),
        sa.Column("worst_delay_s", sa.Double()),
        sa.Column("equal", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("compared", sa.BigInteger(), nullable=False, server_default="0"),
    )
    op.create_table(
        "course",
        sa.Column("at", sa.Double(), primary_key=True),
        sa.Column("failing", sa.BigInteger(), nullable=False),
        sa.Column("polls", sa.BigInteger()),
        sa.Column("changes", sa.BigInteger()),
        sa.Column("received_bytes", sa.BigInteger()),
    )
    op.create_table(
        "course_classes",
        sa.Column("at", sa.Double(), primary_key=True),
        sa.Column("priority", _text(), primary_key=True),
        sa.Column("live", sa.BigInteger(), nullable=False),
        sa.Column("fresh", sa.BigInteger(), nullable=False),
        sa.Column("worst_lag_s", sa.Double()),
    )


def _alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", _number(), primary_key=True, autoincrement=False),
        sa.Column("kind", _text(), nullable=False),
        sa.Column("about", _text(), nullable=False),
        sa.Column("level", _text(), nullable=False),
        sa.Column("text", _text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("end_text", _text(), nullable=False),
        sa.Column("noticed", _text()),
    )
    op.create_index("ix_alerts_ended_at", "alerts", ["ended_at"])
    op.create_index("ix_alerts_raised_at", "alerts", ["raised_at"])
    _partial("ix_alerts_standing", "alerts", ["id"], "ended_at IS NULL")
    op.create_table(
        "alert_notices",
        sa.Column("id", _number(), primary_key=True, autoincrement=False),
        sa.Column("channel", _text(), nullable=False),
        sa.Column("alert", sa.BigInteger()),
        sa.Column("turn", _text(), nullable=False),
        sa.Column("level", _text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attempts", _number(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("sent_at", sa.Double()),
        sa.Column("given_up_at", sa.Double()),
        sa.Column("error", _text(), nullable=False),
    )
    op.create_index("ix_alert_notices_alert", "alert_notices", ["alert"])
    op.create_index("ix_alert_notices_created_at", "alert_notices", ["created_at"])
    op.create_index("ix_alert_notices_given_up_at", "alert_notices", ["given_up_at"])
    op.create_index("ix_alert_notices_sent_at", "alert_notices", ["sent_at"])
    _partial("ix_alert_notices_waiting", "alert_notices", ["id"], "sent_at IS NULL AND given_up_at IS NULL")
    op.create_table(
        "alert_silences",
        sa.Column("id", _number(), primary_key=True, autoincrement=False),
        sa.Column("kind", _text(), nullable=False),
        sa.Column("about", _text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("by", _text(), nullable=False),
        sa.Column("reason", _text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )


def _discovery() -> None:
    op.create_table(
        "discoveries",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_by", _text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("group_id", _text(), nullable=False),
        sa.Column("next_at", sa.Double()),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("failures", _number(), nullable=False),
        sa.Column("run", sa.Text()),
        sa.Column("last", sa.Text()),
        sa.Column("seen_as", sa.Text()),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "discovered",
        sa.Column("discovery", sa.BigInteger(), primary_key=True),
        sa.Column("forge_id", _text(), primary_key=True),
        sa.Column("path", _text(), primary_key=True),
        sa.Column("state", _text(), nullable=False),
        sa.Column("key", _text()),
        sa.Column("project_key", _text(), nullable=False),
        sa.Column("target_url", _text()),
        sa.Column("made_target", sa.Boolean(), nullable=False),
        sa.Column("branches_open", sa.Boolean(), nullable=False),
        sa.Column("why", _text(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
    )
    op.create_index("ix_discovered_key", "discovered", ["key"])
    op.create_index("ix_discovered_state", "discovered", ["discovery", "state"])
    op.create_table(
        "discovery_finds",
        sa.Column("discovery", sa.BigInteger(), primary_key=True),
        sa.Column("forge_id", _text(), primary_key=True),
        sa.Column("data", sa.Text(), nullable=False),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _number(), primary_key=True, autoincrement=False),
        sa.Column("type", _text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("repo", _text()),
        sa.Column("worker", _text()),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "event_hooks",
        sa.Column("name", _text(), primary_key=True),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.Column("failures", _number(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("failing_since", sa.Double()),
        sa.Column("last_error", _text(), nullable=False),
        sa.Column("delivered_at", sa.Double()),
        sa.Column("delivered_total", sa.BigInteger(), nullable=False),
        sa.Column("laid_aside_total", sa.BigInteger(), nullable=False),
        sa.Column("stopped", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "event_letters",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("hook", _text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("type", _text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("reason", _text(), nullable=False),
        sa.Column("attempts", _number(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_letters_hook", "event_letters", ["hook", "id"])
    op.create_index("ux_event_letters_event", "event_letters", ["hook", "event"], unique=True)


def _webhooks() -> None:
    op.create_table(
        "hook_memories",
        sa.Column("key", _text(), primary_key=True),
        sa.Column("trust", _text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("told", _number(), nullable=False),
        sa.Column("missed", _number(), nullable=False),
        sa.Column("needed", _number(), nullable=False),
        sa.Column("told_total", sa.BigInteger(), nullable=False),
        sa.Column("missed_total", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "hook_registrations",
        sa.Column("key", _text(), primary_key=True),
        sa.Column("forge", _text(), nullable=False),
        sa.Column("state", _text(), nullable=False),
        sa.Column("hook_id", _text(), nullable=False),
        sa.Column("problem", _text(), nullable=False),
        sa.Column("checked_at", sa.Double(), nullable=False),
    )


def _bulk() -> None:
    op.create_table(
        "bulk_orders",
        sa.Column("id", _number(), primary_key=True),
        sa.Column("action", _text(), nullable=False),
        sa.Column("which", sa.Text(), nullable=False),
        sa.Column("actor", _text(), nullable=False),
        sa.Column("matched", sa.BigInteger(), nullable=False),
        sa.Column("status", _text(), nullable=False),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("unchanged", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("looks", sa.BigInteger(), nullable=False),
        sa.Column("first_error", _text(), nullable=False),
        sa.Column("after", _text()),
        sa.Column("working", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sqlite_autoincrement=True,
    )


def _partial(
    name: str, table: str, columns: list[str], where: str, *, on_sqlite: str = "", **options: Any
) -> None:
    """An index of some rows. SQLite uses it only for a condition that is spelt as in the statement."""
    op.create_index(
        name,
        table,
        columns,
        sqlite_where=sa.text(on_sqlite or where),
        postgresql_where=sa.text(where),
        **options,
    )


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _number() -> sa.BigInteger:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
