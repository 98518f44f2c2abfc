"""The strategy of pulls in a table of its own; one priority of a repo and its project."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_STRATEGY = "pull.strategy"
_FIELDS = {
    "name": "strategy_name", "max_concurrent": "max_concurrent_pulls",
    "peak_avoidance": "enable_peak_avoidance", "peak_start": "peak_hours_start", "peak_end": "peak_hours_end",
    "peak_max_concurrent": "peak_max_concurrent", "off_peak_max_concurrent": "off_peak_max_concurrent",
    "night_start": "night_hours_start", "night_end": "night_hours_end",
    "night_max_concurrent": "night_max_concurrent", "adaptive": "enable_adaptive", "enabled": "enabled",
    "created_at": "created_at", "updated_at": "updated_at",
}  # fmt: skip
_DIFFERENT = """
    SELECT r.id, r.info, r.priority AS was, p.priority FROM pull_projects p JOIN repos r ON r.id = p.repo
    WHERE p.priority <> r.priority
"""


def upgrade() -> None:
    _schedule()
    _priorities()


def _schedule() -> None:
    table = op.create_table(
        "pull_sync_schedule",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("strategy_name", _text(), nullable=False),
        sa.Column("max_concurrent_pulls", sa.Integer(), nullable=False),
        sa.Column("enable_peak_avoidance", sa.Boolean(), nullable=False),
        sa.Column("peak_hours_start", sa.Integer(), nullable=False),
        sa.Column("peak_hours_end", sa.Integer(), nullable=False),
        sa.Column("peak_max_concurrent", sa.Integer(), nullable=False),
        sa.Column("off_peak_max_concurrent", sa.Integer(), nullable=False),
        sa.Column("night_hours_start", sa.Integer()),
        sa.Column("night_hours_end", sa.Integer()),
        sa.Column("night_max_concurrent", sa.Integer()),
        sa.Column("enable_adaptive", sa.Boolean(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
    )
    connection = op.get_bind()
    which = {"key": _STRATEGY}
    told = connection.execute(sa.text("SELECT value FROM settings WHERE key = :key"), which).scalar()
    if told is not None:
        known = json.loads(told)
        op.bulk_insert(table, [{"id": 1} | {column: known.get(name) for name, column in _FIELDS.items()}])
        connection.execute(sa.text("DELETE FROM settings WHERE key = :key"), which)


def _priorities() -> None:
    """What a person set of a project is its repo's from now on."""
    op.add_column("pull_projects", sa.Column("priority_before", _text()))
    connection = op.get_bind()
    for row in connection.execute(sa.text(_DIFFERENT)).all():
        info = json.dumps({**json.loads(row.info), "priority": row.priority})
        connection.execute(
            sa.text("UPDATE repos SET priority = :priority, info = :info WHERE id = :id"),
            {"id": row.id, "priority": row.priority, "info": info},
        )
        connection.execute(
            sa.text("UPDATE pull_projects SET priority_before = :was WHERE repo = :id"),
            {"id": row.id, "was": row.was},
        )


def _text() -> sa.Text:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
