"""Tables of the course of the whole: how fresh repos were at times; migrations/ makes them."""

from __future__ import annotations

import sqlalchemy as sa

from evermirror.edge.store.columns import metadata, text

course = sa.Table(
    "course",
    metadata,
    sa.Column("at", sa.Double(), primary_key=True),
    sa.Column("failing", sa.BigInteger(), nullable=False),
    # Since the point before; null: the first of a process, which does not know what came before it.
    sa.Column("polls", sa.BigInteger()),
    sa.Column("changes", sa.BigInteger()),
    sa.Column("received_bytes", sa.BigInteger()),
)

course_classes = sa.Table(
    "course_classes",
    metadata,
    sa.Column("at", sa.Double(), primary_key=True),
    sa.Column("priority", text(), primary_key=True),
    sa.Column("live", sa.BigInteger(), nullable=False),
    sa.Column("fresh", sa.BigInteger(), nullable=False),
    sa.Column("worst_lag_s", sa.Double()),
)
