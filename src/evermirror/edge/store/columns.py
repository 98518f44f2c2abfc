"""What tables are made of: the register of all tables, and types that are the same on both engines."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

COUNT_MAX = 2**63 - 1  # what an integer column holds

metadata = sa.MetaData()


def text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def number() -> sa.BigInteger:
    """An id, or a count: 64 bits on both engines, so that no count that anybody tells is too large for it."""
    # SQLite makes only a column of type INTEGER its own row id.
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def count_in(value: int) -> int:
    """A sum of what nodes told, as a column takes it."""
    return min(max(0, value), COUNT_MAX)


def float_sum(of: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
    """The sum of a column that nodes told. A float, exact up to 2^53: SQLite fails where integers add up to
    more than 2^63."""
    return sa.func.sum(sa.cast(of, sa.Double()))
