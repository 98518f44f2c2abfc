"""Defects of objects that a person allows for a repo, and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("repos", sa.Column("fsck_allow", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("repos", sa.Column("fsck_reason", sa.Text()))
