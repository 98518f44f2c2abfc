"""Aggregators in the registry of nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
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


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
