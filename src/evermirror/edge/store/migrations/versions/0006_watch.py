"""Alerts with their history, silences and notices; groups that are followed; the course of each class."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    _course()
    _alerts()
    _discoveries()


def _course() -> None:
    for column in (
        sa.Column("worst_delay_s", sa.Double()),
        sa.Column("equal", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("compared", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("slots", sa.Integer()),
        sa.Column("running", sa.Integer()),
        sa.Column("queued", sa.Integer()),
        sa.Column("load_level", _text()),
        sa.Column("load_reason", _text()),
        sa.Column("looks", sa.BigInteger()),
        sa.Column("source_s", sa.Double()),
        sa.Column("received_bytes", sa.BigInteger()),
    ):
        op.add_column("pull_course", column)
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


def _alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("id", _id(), primary_key=True, autoincrement=False),
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
    op.create_index("ix_alerts_raised_at", "alerts", ["raised_at"])
    op.create_index("ix_alerts_ended_at", "alerts", ["ended_at"])
    _partial("ix_alerts_standing", "alerts", ["id"], "ended_at IS NULL")
    op.create_table(
        "alert_notices",
        sa.Column("id", _id(), primary_key=True, autoincrement=False),
        sa.Column("channel", _text(), nullable=False),
        sa.Column("alert", sa.BigInteger()),
        sa.Column("turn", _text(), nullable=False),
        sa.Column("level", _text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=False),
        sa.Column("sent_at", sa.Double()),
        sa.Column("given_up_at", sa.Double()),
        sa.Column("error", _text(), nullable=False),
    )
    for column in ("alert", "created_at", "sent_at", "given_up_at"):
        op.create_index(f"ix_alert_notices_{column}", "alert_notices", [column])
    waits = "sent_at IS NULL AND given_up_at IS NULL"
    _partial("ix_alert_notices_waiting", "alert_notices", ["id"], waits)
    op.create_table(
        "alert_silences",
        sa.Column("id", _id(), primary_key=True, autoincrement=False),
        sa.Column("kind", _text(), nullable=False),
        sa.Column("about", _text(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("by", _text(), nullable=False),
        sa.Column("reason", _text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
    )


def _discoveries() -> None:
    op.create_table(
        "discoveries",
        sa.Column("id", _id(), primary_key=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_by", _text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("group_id", _text(), nullable=False),
        sa.Column("next_at", sa.Double()),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("run", sa.Text()),
        sa.Column("last", sa.Text()),
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
    op.create_index("ix_discovered_state", "discovered", ["discovery", "state"])
    op.create_index("ix_discovered_key", "discovered", ["key"])
    op.create_table(
        "discovery_finds",
        sa.Column("discovery", sa.BigInteger(), primary_key=True),
        sa.Column("forge_id", _text(), primary_key=True),
        sa.Column("data", sa.Text(), nullable=False),
    )


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _id() -> sa.BigInteger:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
