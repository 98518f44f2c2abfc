"""Tables of what others are told, and of hooks that tell us; migrations/ makes them.

Numbers of events are given in the transaction that makes them so; writers take turns (database.py). They are
never below the clock (in microseconds): a database put back from a backup goes on above all it ever gave out.
"""

from __future__ import annotations

import sqlalchemy as sa

from evermirror.edge.store.columns import metadata, number, text

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", number(), primary_key=True, autoincrement=False),
    sa.Column("type", text(), nullable=False),
    sa.Column("at", sa.Double(), nullable=False),
    sa.Column("repo", text()),
    sa.Column("worker", text()),
    sa.Column("data", sa.Text(), nullable=False),
    sa.Column("private", sa.Boolean(), nullable=False),  # its repo was, then; or it is about none
)

event_hooks = sa.Table(
    "event_hooks",
    metadata,
    sa.Column("name", text(), primary_key=True),
    sa.Column("after", sa.BigInteger(), nullable=False),
    sa.Column("until", sa.BigInteger()),
    sa.Column("failures", number(), nullable=False),
    sa.Column("not_before", sa.Double(), nullable=False),
    sa.Column("failing_since", sa.Double()),
    sa.Column("last_error", text(), nullable=False),
    sa.Column("delivered_at", sa.Double()),
    sa.Column("delivered_total", sa.BigInteger(), nullable=False),
    sa.Column("laid_aside_total", sa.BigInteger(), nullable=False),
    sa.Column("stopped", sa.Boolean(), nullable=False),
)

event_letters = sa.Table(
    "event_letters",
    metadata,
    sa.Column("id", number(), primary_key=True),
    sa.Column("hook", text(), nullable=False),
    sa.Column("event", sa.BigInteger(), nullable=False),
    sa.Column("type", text(), nullable=False),
    sa.Column("body", sa.Text(), nullable=False),
    sa.Column("reason", text(), nullable=False),
    sa.Column("attempts", number(), nullable=False),
    sa.Column("at", sa.Double(), nullable=False),
    sa.Column("again", sa.Boolean(), nullable=False),
    sa.Index("ix_event_letters_hook", "hook", "id"),
    sa.Index("ux_event_letters_event", "hook", "event", unique=True),
    sqlite_autoincrement=True,
)

hook_memories = sa.Table(
    "hook_memories",
    metadata,
    sa.Column("key", text(), primary_key=True),
    sa.Column("trust", text(), nullable=False),
    sa.Column("since", sa.Double(), nullable=False),
    sa.Column("received", sa.BigInteger(), nullable=False),
    sa.Column("last_at", sa.Double(), nullable=False),
    sa.Column("told", number(), nullable=False),
    sa.Column("missed", number(), nullable=False),
    sa.Column("needed", number(), nullable=False),
    sa.Column("told_total", sa.BigInteger(), nullable=False),
    sa.Column("missed_total", sa.BigInteger(), nullable=False),
)

hook_registrations = sa.Table(
    "hook_registrations",
    metadata,
    sa.Column("key", text(), primary_key=True),
    sa.Column("forge", text(), nullable=False),
    sa.Column("state", text(), nullable=False),
    sa.Column("hook_id", text(), nullable=False),
    sa.Column("problem", text(), nullable=False),
    sa.Column("checked_at", sa.Double(), nullable=False),
)
