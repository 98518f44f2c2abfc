"""Stored failures have their keys as the pull API prints them: error_type, error_message."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_KINDS = (
    "NETWORK_TIMEOUT",
    "RATE_LIMITED",
    "AUTH_FAILED",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "CONFLICT",
    "DISK_FULL",
    "UNKNOWN",
)
_COLUMNS = (
    ("tasks", "failure"),
    ("repos", "last_failure"),
    ("pull_projects", "last_failure"),
    ("pull_targets", "last_failure"),
)


def upgrade() -> None:
    """The two keys are the first ones of each text, and a kind needs no escapes."""
    for table, name in _COLUMNS:
        for kind in _KINDS:
            _rename(table, name, f'{{"kind":"{kind}","message":', f'{{"error_type":"{kind}","error_message":')
    for kind in _KINDS:  # how a run ended has its failure as a text within a text
        old = f'{{\\"kind\\":\\"{kind}\\",\\"message\\":'
        new = f'{{\\"error_type\\":\\"{kind}\\",\\"error_message\\":'
        runs = sa.table("discoveries", sa.column("last", sa.Text()))
        op.execute(runs.update().values(last=sa.func.replace(runs.c.last, old, new)))


def _rename(table: str, name: str, old: str, new: str) -> None:
    rows = sa.table(table, sa.column(name, sa.Text()))
    column = rows.c[name]
    text = sa.literal(new, sa.Text()).concat(sa.func.substr(column, len(old) + 1))
    op.execute(rows.update().where(column.startswith(old, autoescape=True)).values({name: text}))
