"""Events, who is told of them, and letters that could not be delivered; what is known of repos' hooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    _events()
    _hooks()


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _id(), primary_key=True, autoincrement=False),
        sa.Column("type", _text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("repo", _text()),
        sa.Column("worker", _text()),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
    )
    op.add_column("repos", sa.Column("told_digest", _text()))
    op.add_column("repos", sa.Column("told_status", _text()))
    op.execute("UPDATE repos SET told_digest = digest WHERE digest IS NOT NULL")
    op.execute("UPDATE repos SET told_status = status WHERE status IN ('gone', 'held')")
    op.create_table(
        "event_hooks",
        sa.Column("name", _text(), primary_key=True),
        sa.Column("after", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger()),
        sa.Column("failures", sa.Integer(), nullable=False),
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
        sa.Column("id", _id(), primary_key=True),
        sa.Column("hook", _text(), nullable=False),
        sa.Column("event", sa.BigInteger(), nullable=False),
        sa.Column("type", _text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("reason", _text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("again", sa.Boolean(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_letters_hook", "event_letters", ["hook", "id"])
    op.create_index("ux_event_letters_event", "event_letters", ["hook", "event"], unique=True)


def _hooks() -> None:
    op.add_column("repos", sa.Column("hooked", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_table(
        "hook_memories",
        sa.Column("key", _text(), primary_key=True),
        sa.Column("trust", _text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.Column("told", sa.Integer(), nullable=False),
        sa.Column("missed", sa.Integer(), nullable=False),
        sa.Column("needed", sa.Integer(), nullable=False),
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


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _id() -> sa.BigInteger:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
