"""Workers, where repos are, and reports taken by generation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("repos", sa.Column("salt", sa.SmallInteger(), nullable=False, server_default="0"))
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
    # The rows of before are of worker processes that had no identity; no report of theirs can come again.
    op.drop_table("reports_taken")
    op.create_table(
        "reports_taken",
        sa.Column("worker", sa.Integer(), primary_key=True),
        sa.Column("generation", sa.BigInteger(), primary_key=True),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.BigInteger(), nullable=False),
    )


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
