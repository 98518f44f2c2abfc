"""Numbers of changes, for who follows them; operators of nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("repos", sa.Column("change_seq", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("UPDATE repos SET change_seq = id")
    op.create_index("ix_repos_change_seq", "repos", ["change_seq"])
    op.add_column("tokens", sa.Column("operator", _text(), nullable=False, server_default=""))


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
