"""Whom a forge took us for when a discovery last saw all of its group."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("discoveries", sa.Column("seen_as", sa.Text()))
