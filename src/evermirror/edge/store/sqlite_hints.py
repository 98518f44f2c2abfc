"""``with_hint`` for SQLite: INDEXED BY and NOT INDEXED, which SQLAlchemy leaves out by itself."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import Engine


class _Hinting(SQLiteCompiler):
    def get_from_hint_text(self, table: sa.FromClause, text: str | None) -> str | None:
        return text


def take_hints(engine: Engine) -> None:
    """Statements of this engine name the index that they are told to take."""
    engine.dialect.statement_compiler = _Hinting
