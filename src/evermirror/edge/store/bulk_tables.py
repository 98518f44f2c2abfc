"""The table of orders about many repos at once; migrations/ makes it."""

from __future__ import annotations

import sqlalchemy as sa

from evermirror.edge.store.columns import metadata, number, text

bulk_orders = sa.Table(
    "bulk_orders",
    metadata,
    sa.Column("id", number(), primary_key=True),
    sa.Column("action", text(), nullable=False),
    sa.Column("which", sa.Text(), nullable=False),  # keys, filter and the new priority, as JSON
    sa.Column("actor", text(), nullable=False),
    sa.Column("matched", sa.BigInteger(), nullable=False),
    sa.Column("status", text(), nullable=False),
    sa.Column("done", sa.BigInteger(), nullable=False),
    sa.Column("unchanged", sa.BigInteger(), nullable=False),
    sa.Column("failed", sa.BigInteger(), nullable=False),
    sa.Column("looks", sa.BigInteger(), nullable=False),
    sa.Column("first_error", text(), nullable=False),
    sa.Column("after", text()),  # the last key of those that were acted on
    sa.Column("working", sa.Text(), nullable=False),  # the next ones, and which of them were changed, as JSON
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("updated_at", sa.Double(), nullable=False),
    sqlite_autoincrement=True,  # a number is never used again
)
