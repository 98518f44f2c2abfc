"""Tables of what people are told, and of groups that are followed; migrations/ makes them.

Ids of alerts, silences and notices are given out by the alerts' mind (core/watch), which goes on from the
setting ``alerts.given``: none is used again, also after old ones were cleaned away.
"""

from __future__ import annotations

import sqlalchemy as sa

from evermirror.edge.store.columns import metadata, number, text

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("id", number(), primary_key=True, autoincrement=False),
    sa.Column("kind", text(), nullable=False),
    sa.Column("about", text(), nullable=False),
    sa.Column("level", text(), nullable=False),
    sa.Column("text", text(), nullable=False),
    sa.Column("facts", sa.Text(), nullable=False),
    sa.Column("raised_at", sa.Double(), nullable=False),
    sa.Column("changed_at", sa.Double(), nullable=False),
    sa.Column("ended_at", sa.Double()),  # null: it stands
    sa.Column("end_text", text(), nullable=False),
    sa.Column("noticed", text()),
    sa.Index("ix_alerts_raised_at", "raised_at"),
    sa.Index("ix_alerts_ended_at", "ended_at"),
)

STANDS = alerts.c.ended_at.is_(None)
sa.Index("ix_alerts_standing", alerts.c.id, sqlite_where=STANDS, postgresql_where=STANDS)

alert_notices = sa.Table(
    "alert_notices",
    metadata,
    sa.Column("id", number(), primary_key=True, autoincrement=False),
    sa.Column("channel", text(), nullable=False),
    sa.Column("alert", sa.BigInteger()),  # alerts.id; null: a test
    sa.Column("turn", text(), nullable=False),
    sa.Column("level", text(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("attempts", number(), nullable=False),
    sa.Column("not_before", sa.Double(), nullable=False),
    sa.Column("sent_at", sa.Double()),
    sa.Column("given_up_at", sa.Double()),
    sa.Column("error", text(), nullable=False),
    sa.Index("ix_alert_notices_alert", "alert"),
    sa.Index("ix_alert_notices_created_at", "created_at"),
    sa.Index("ix_alert_notices_sent_at", "sent_at"),
    sa.Index("ix_alert_notices_given_up_at", "given_up_at"),
)

WAITS = sa.and_(alert_notices.c.sent_at.is_(None), alert_notices.c.given_up_at.is_(None))
sa.Index("ix_alert_notices_waiting", alert_notices.c.id, sqlite_where=WAITS, postgresql_where=WAITS)

alert_silences = sa.Table(
    "alert_silences",
    metadata,
    sa.Column("id", number(), primary_key=True, autoincrement=False),
    sa.Column("kind", text(), nullable=False),
    sa.Column("about", text(), nullable=False),
    sa.Column("until", sa.Double(), nullable=False),
    sa.Column("by", text(), nullable=False),
    sa.Column("reason", text(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
)

discoveries = sa.Table(
    "discoveries",
    metadata,
    sa.Column("id", number(), primary_key=True),
    sa.Column("spec", sa.Text(), nullable=False),
    sa.Column("created_by", text(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("enabled", sa.Boolean(), nullable=False),
    sa.Column("group_id", text(), nullable=False),
    sa.Column("next_at", sa.Double()),
    sa.Column("runs", sa.BigInteger(), nullable=False),
    sa.Column("failures", number(), nullable=False),
    sa.Column("run", sa.Text()),  # null: none is under way
    sa.Column("last", sa.Text()),
    sa.Column("seen_as", sa.Text()),  # null: not known
    sqlite_autoincrement=True,
)

# Projects at the source, and what stands for each here. By their path too: one that was renamed is here once
# as it was, and once as it is.
discovered = sa.Table(
    "discovered",
    metadata,
    sa.Column("discovery", sa.BigInteger(), primary_key=True),  # discoveries.id
    sa.Column("forge_id", text(), primary_key=True),
    sa.Column("path", text(), primary_key=True),
    sa.Column("state", text(), nullable=False),
    sa.Column("key", text()),
    sa.Column("project_key", text(), nullable=False),
    sa.Column("target_url", text()),
    sa.Column("made_target", sa.Boolean(), nullable=False),
    sa.Column("branches_open", sa.Boolean(), nullable=False),
    sa.Column("why", text(), nullable=False),
    sa.Column("run", sa.BigInteger(), nullable=False),
    sa.Column("updated_at", sa.Double(), nullable=False),
    sa.Index("ix_discovered_state", "discovery", "state"),
    sa.Index("ix_discovered_key", "key"),
)

# What the listing under way has found so far: it goes on after a restart.
discovery_finds = sa.Table(
    "discovery_finds",
    metadata,
    sa.Column("discovery", sa.BigInteger(), primary_key=True),  # discoveries.id
    sa.Column("forge_id", text(), primary_key=True),
    sa.Column("data", sa.Text(), nullable=False),
)
