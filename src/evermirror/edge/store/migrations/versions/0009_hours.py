"""The hours at which a repo is pushed to, beside its fading counts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("repos", sa.Column("activity_rhythm", sa.LargeBinary()))
