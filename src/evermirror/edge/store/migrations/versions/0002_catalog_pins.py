"""Pins and fallback addresses of repos, as catalogs give them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    for name in ("fallbacks", "pins"):
        op.add_column("repos", sa.Column(name, sa.Text(), nullable=False, server_default="[]"))
