"""What tables are made of: the register of all tables, and types that are the same on both engines."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()


def text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def number() -> sa.BigInteger:
    # SQLite makes only a column of type INTEGER its own row id.
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
