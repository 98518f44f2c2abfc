"""Private repos are found at once: whether there is one decides what git clients without a token are told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_index(
        "ix_repos_private",
        "repos",
        ["removed_at", "private"],
        sqlite_where=sa.text("removed_at IS NULL AND private = 1"),
        postgresql_where=sa.text("removed_at IS NULL AND private"),
    )
