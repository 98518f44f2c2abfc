"""Weight and capacity of an untrusted worker belong to its token."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("tokens", sa.Column("weight", sa.Double()))
    op.add_column("tokens", sa.Column("capacity", sa.BigInteger()))
