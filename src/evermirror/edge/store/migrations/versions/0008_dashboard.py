"""The course of the whole over days; what lists of repos are ordered and filtered by; changes in bulk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    _course()
    _bulk()
    _lists()


def _course() -> None:
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


def _bulk() -> None:
    op.create_table(
        "bulk_orders",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
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


def _lists() -> None:
    here = sa.text("removed_at IS NULL")
    columns = (
        *("key", "status", "verified_at", "priority", "host", "private", "size_bytes", "changed_at"),
        *("consecutive_failures", "failure_kind", "removed_at"),
    )
    op.create_index(
        "ix_repos_list",
        "repos",
        columns,
        sqlite_where=here,  # which has a row's number in each index anyway
        postgresql_where=here,
        postgresql_include=["id"],
    )


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
