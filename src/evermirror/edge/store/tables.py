"""The coordinator's tables, as SQLAlchemy Core sees them; migrations/ makes them.

Times are UTC seconds since the epoch. Texts are ordered by their bytes on both engines (collation "C" on
PostgreSQL, BINARY on SQLite), which is Python's own order of strings. JSON is kept as ASCII text: so NUL
and lone surrogates, which PostgreSQL refuses in text and jsonb, survive in what upstreams and people gave us.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from evermirror.edge.store.columns import metadata as metadata
from evermirror.edge.store.columns import number as _count
from evermirror.edge.store.columns import number as _id
from evermirror.edge.store.columns import text as _text
from evermirror.model.repo import Priority

repos = sa.Table(
    "repos",
    metadata,
    sa.Column("id", _id(), primary_key=True),
    sa.Column("key", _text(), nullable=False, unique=True),
    sa.Column("url", _text(), nullable=False),
    sa.Column("host", _text(), nullable=False),
    sa.Column("alias", _text()),
    sa.Column("source", _text(), nullable=False),
    sa.Column("info", sa.Text(), nullable=False),
    sa.Column("priority", _text(), nullable=False),
    sa.Column("interval_s", sa.Double()),
    sa.Column("mode", _text(), nullable=False),
    sa.Column("private", sa.Boolean(), nullable=False),
    sa.Column("credential", _text()),
    sa.Column("fallbacks", sa.Text(), nullable=False, server_default="[]"),
    sa.Column("pins", sa.Text(), nullable=False, server_default="[]"),
    sa.Column("fsck_allow", sa.Text(), nullable=False, server_default="[]"),
    sa.Column("fsck_reason", sa.Text()),
    sa.Column("enabled", sa.Boolean(), nullable=False),
    sa.Column("status", _text(), nullable=False),
    sa.Column("digest", _text()),
    sa.Column("head_commit", _text()),
    sa.Column("refs_count", sa.BigInteger(), nullable=False),
    sa.Column("size_bytes", sa.BigInteger(), nullable=False),
    sa.Column("verified_at", sa.Double()),
    sa.Column("changed_at", sa.Double()),
    sa.Column("consecutive_failures", _count(), nullable=False),
    # The kind of the failure that stands now; last_failure also remembers one that is over.
    sa.Column("failure_kind", _text()),
    sa.Column("last_failure", sa.Text()),
    sa.Column("last_failure_at", sa.Double()),
    sa.Column("activity_fast", sa.Double(), nullable=False),
    sa.Column("activity_middle", sa.Double(), nullable=False),
    sa.Column("activity_slow", sa.Double(), nullable=False),
    sa.Column("activity_as_of", sa.Double(), nullable=False),
    sa.Column("last_push_at", sa.Double(), nullable=False),
    sa.Column("activity_rhythm", sa.LargeBinary()),  # rhythms.py
    sa.Column("removed_at", sa.Double()),  # null: in the catalog
    sa.Column("salt", sa.SmallInteger(), nullable=False, server_default="0"),  # how often it was handed back
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("updated_at", sa.Double(), nullable=False),
    sa.Column("change_seq", sa.BigInteger(), nullable=False, server_default="0"),  # changes.py
    sa.Column("pulled", sa.Boolean(), nullable=False, server_default=sa.false()),  # is in pull_projects
    sa.Column("hooked", sa.Boolean(), nullable=False, server_default=sa.false()),  # its hooks are reliable
    # What others were last told of it: its refs, and that it is gone or held. Written with the event only.
    sa.Column("told_digest", _text()),
    sa.Column("told_status", _text()),
    sa.Index("ix_repos_change_seq", "change_seq"),
)

IN_CATALOG = repos.c.removed_at.is_(None)


def _in_catalog_index(name: str, *columns: str, unique: bool = False) -> sa.Index:
    of = (repos.c[c] for c in columns)
    return sa.Index(name, *of, unique=unique, sqlite_where=IN_CATALOG, postgresql_where=IN_CATALOG)


# Lists page by key; with a filter they walk one of the first two instead of every repo. The overview is
# counted from indexes alone: they hold removed_at, because SQLite would look it up in each row otherwise.
_in_catalog_index("ix_repos_host_key", "host", "key")
_in_catalog_index("ix_repos_status_key", "status", "key", "removed_at")
_in_catalog_index("ix_repos_priority", "priority", "removed_at")
_in_catalog_index("ix_repos_freshness", "pulled", "priority", "status", "verified_at", "removed_at")
PRIVATE = sa.and_(repos.c.removed_at.is_(None), repos.c.private)
sa.Index(
    "ix_repos_private", repos.c.removed_at, repos.c.private, sqlite_where=PRIVATE, postgresql_where=PRIVATE
)
# An alias names one repo of the catalog; a removed one does not keep its alias from others.
_in_catalog_index("uq_repos_alias", "alias", unique=True)
# All that lists are filtered and ordered by, in the order of keys: any question is one walk through it.
sa.Index(
    "ix_repos_list",
    *(repos.c[name] for name in ("key", "status", "verified_at", "priority", "host", "private")),
    *(repos.c[name] for name in ("size_bytes", "changed_at", "consecutive_failures", "failure_kind")),
    repos.c.removed_at,
    sqlite_where=IN_CATALOG,  # which has a row's number in each index anyway
    postgresql_where=IN_CATALOG,
    postgresql_include=["id"],
)
_FAILING = sa.and_(repos.c.removed_at.is_(None), repos.c.failure_kind.is_not(None))
sa.Index(
    "ix_repos_failure_kind",
    repos.c.failure_kind,
    repos.c.removed_at,
    sqlite_where=_FAILING,
    postgresql_where=_FAILING,
)

# Projects that are not counted, because their repos left the catalog: few, and known without a look at any.
_LEFT = sa.and_(repos.c.removed_at.is_not(None), repos.c.pulled)
sa.Index(
    "ix_repos_pulled_left", repos.c.removed_at, repos.c.pulled, sqlite_where=_LEFT, postgresql_where=_LEFT
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", _id(), primary_key=True),
    # No foreign key: a report may speak of a repo that nobody knows any more, and must not block the others.
    sa.Column("repo", _text(), nullable=False),
    # The repo's class when it was made.
    sa.Column("priority", _text(), nullable=False, server_default=Priority.NORMAL.value),
    sa.Column("status", _text(), nullable=False),
    sa.Column("trigger", _text(), nullable=False),
    sa.Column("user", _text(), nullable=False),
    sa.Column("scheduled_at", sa.Double(), nullable=False),
    sa.Column("started_at", sa.Double()),
    sa.Column("completed_at", sa.Double()),
    sa.Column("source_commit", _text()),
    sa.Column("target_commit", _text()),
    sa.Column("has_changes", sa.Boolean(), nullable=False),
    sa.Column("changes_count", sa.BigInteger(), nullable=False),
    sa.Column("progress_percent", sa.Double()),
    sa.Column("progress_phase", _text(), nullable=False),
    sa.Column("result", sa.Text()),
    sa.Column("failure", sa.Text()),
    sa.Column("failure_kind", _text()),  # of ``failure``
    sa.Column("retry_count", _count(), nullable=False),
    sa.Column("params", sa.Text()),
    sa.Column("folded", sa.BigInteger(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("updated_at", sa.Double(), nullable=False),
    sa.Index("ix_tasks_repo_id", "repo", "id"),
    sa.Index("ix_tasks_status_id", "status", "id"),
    sa.Index("ix_tasks_updated_at", "updated_at"),
    sqlite_autoincrement=True,  # ids are never used again, also after old tasks were cleaned away
)

# What happened in a time is counted from indexes alone, and errors are listed by the time they ended.
_ENDED = tasks.c.completed_at.is_not(None)
sa.Index(
    "ix_tasks_ended",
    *(
        tasks.c[name]
        for name in ("priority", "status", "completed_at", "folded", "created_at", "changes_count")
    ),
    sqlite_where=_ENDED,
    postgresql_where=_ENDED,
)
_FAILED = tasks.c.failure_kind.is_not(None)
for _name, _columns in (
    ("ix_tasks_errors", ("completed_at", "failure_kind", "repo")),
    ("ix_tasks_repo_errors", ("repo", "completed_at", "failure_kind")),
):
    sa.Index(_name, *(tasks.c[c] for c in _columns), sqlite_where=_FAILED, postgresql_where=_FAILED)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", _id(), primary_key=True),
    sa.Column("name", _text(), nullable=False),
    sa.Column("role", _text(), nullable=False),
    sa.Column("hash", _text(), nullable=False, unique=True),  # SHA-256 of 256 random bits: needs no salt
    sa.Column("trusted", sa.Boolean(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("last_used_at", sa.Double()),
    sa.Column("revoked_at", sa.Double()),
    sa.Column("operator", _text(), nullable=False, server_default=""),  # who runs the node that shows it
    sa.Column("weight", sa.Double()),  # of an untrusted worker, like its capacity; NULL: the default
    sa.Column("capacity", sa.BigInteger()),
    sqlite_autoincrement=True,
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", _id(), primary_key=True),
    sa.Column("at", sa.Double(), nullable=False),
    sa.Column("actor", _text(), nullable=False),
    sa.Column("action", _text(), nullable=False),
    sa.Column("subject", _text(), nullable=False),
    sa.Column("detail", sa.Text(), nullable=False),
    sqlite_autoincrement=True,
)

# Every worker ever seen, until its id is given to another; one that retired is still known by its token.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("token_id", sa.BigInteger(), unique=True),
    sa.Column("name", _text(), nullable=False),
    sa.Column("trusted", sa.Boolean(), nullable=False),
    sa.Column("weight", sa.Double(), nullable=False),
    sa.Column("capacity", sa.BigInteger()),
    sa.Column("liveness", _text(), nullable=False),
    sa.Column("duty", _text(), nullable=False),
    sa.Column("joined_at", sa.Double(), nullable=False),
    sa.Column("last_alive_at", sa.Double(), nullable=False),
    sa.Column("flap_score", sa.Double(), nullable=False),
    sa.Column("flap_at", sa.Double(), nullable=False),
    sa.Column("history", sa.Text(), nullable=False),
)

# By their tokens: an aggregator has no other number.
aggregators = sa.Table(
    "aggregators",
    metadata,
    sa.Column("token_id", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("name", _text(), nullable=False),
    sa.Column("http_url", _text(), nullable=False),
    sa.Column("relay", _text(), nullable=False),
    sa.Column("version", _text(), nullable=False),
    sa.Column("liveness", _text(), nullable=False),
    sa.Column("retired", sa.Boolean(), nullable=False),
    sa.Column("joined_at", sa.Double(), nullable=False),
    sa.Column("last_alive_at", sa.Double(), nullable=False),
    sa.Column("history", sa.Text(), nullable=False),
)

# Where each repo is, and should be. By the number of the repo: a copy is then a few bytes, and a million come
# back without a look at any key.
copies = sa.Table(
    "copies",
    metadata,
    sa.Column("repo", sa.BigInteger(), primary_key=True),  # repos.id
    sa.Column("worker", sa.Integer(), primary_key=True),
    sa.Column("rank", sa.SmallInteger()),  # null: held, but not wanted there
    sa.Column("state", sa.SmallInteger(), nullable=False),
    sa.Column("reason", sa.SmallInteger(), nullable=False),
    sa.Column("since", sa.Double(), nullable=False),
    sa.Index("ix_copies_worker", "worker"),
    sqlite_with_rowid=False,  # the key is the table, and not kept twice
)

# How far each worker's reports were taken in, by the file they are numbered in; ``taken`` grows with each.
reports_taken = sa.Table(
    "reports_taken",
    metadata,
    sa.Column("worker", sa.Integer(), primary_key=True),
    sa.Column("generation", sa.BigInteger(), primary_key=True),
    sa.Column("sequence", sa.BigInteger(), nullable=False),
    sa.Column("taken", sa.BigInteger(), nullable=False),
)

settings = sa.Table(
    "settings",
    metadata,
    sa.Column("key", _text(), primary_key=True),
    sa.Column("value", sa.Text(), nullable=False),
)

# Repos with a pull configuration, by their number. They stay when the repo leaves the catalog.
pull_projects = sa.Table(
    "pull_projects",
    metadata,
    sa.Column("repo", _id(), primary_key=True, autoincrement=False),  # repos.id
    sa.Column("priority", _text(), nullable=False),
    sa.Column("interval_s", sa.Double(), nullable=False),
    sa.Column("enabled", sa.Boolean(), nullable=False),
    sa.Column("last_status", _text()),
    sa.Column("last_sync_at", sa.Double()),
    sa.Column("next_sync_at", sa.Double(), nullable=False),
    sa.Column("task", sa.BigInteger()),
    sa.Column("failures", _count(), nullable=False),
    sa.Column("paused", _text(), nullable=False),
    sa.Column("max_retries", _count(), nullable=False),
    sa.Column("retry_delay_s", sa.Double(), nullable=False),
    sa.Column("overrides", sa.Text(), nullable=False),
    sa.Column("catalog", sa.Text(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("updated_at", sa.Double(), nullable=False),
    sa.Column("last_failure", sa.Text()),
    sa.Column("last_failure_kind", _text()),
    sa.Column("last_failure_at", sa.Double()),
    # What it counts as (core/watch/progress.py) until the time when it is overdue.
    sa.Column("standing", _text(), nullable=False),
    sa.Column("overdue_at", sa.Double(), nullable=False),
    sa.Column("priority_before", _text()),  # of its repo, while a person set another
    sa.Index("ix_pull_projects_progress", "priority", "standing", "overdue_at", "last_sync_at"),
)

_FAILS = pull_projects.c.failures > 0
sa.Index("ix_pull_projects_failures", pull_projects.c.failures, sqlite_where=_FAILS, postgresql_where=_FAILS)

# The one strategy: at most one row.
pull_sync_schedule = sa.Table(
    "pull_sync_schedule",
    metadata,
    sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
    sa.Column("strategy_name", _text(), nullable=False),
    sa.Column("max_concurrent_pulls", _count(), nullable=False),
    sa.Column("enable_peak_avoidance", sa.Boolean(), nullable=False),
    sa.Column("peak_hours_start", sa.Integer(), nullable=False),
    sa.Column("peak_hours_end", sa.Integer(), nullable=False),
    sa.Column("peak_max_concurrent", _count(), nullable=False),
    sa.Column("off_peak_max_concurrent", _count(), nullable=False),
    sa.Column("night_hours_start", sa.Integer()),
    sa.Column("night_hours_end", sa.Integer()),
    sa.Column("night_max_concurrent", _count()),
    sa.Column("enable_adaptive", sa.Boolean(), nullable=False),
    sa.Column("enabled", sa.Boolean(), nullable=False),
    sa.Column("created_at", sa.Double(), nullable=False),
    sa.Column("updated_at", sa.Double(), nullable=False),
)

pull_targets = sa.Table(
    "pull_targets",
    metadata,
    sa.Column("id", _id(), primary_key=True),
    sa.Column("repo", sa.BigInteger(), nullable=False),  # repos.id
    sa.Column("place", sa.Integer(), nullable=False),  # among the project's targets
    sa.Column("url", _text(), nullable=False),
    sa.Column("credential", _text()),
    sa.Column("put", _text()),
    sa.Column("put_at", sa.Double()),
    sa.Column("target_commit", _text()),
    sa.Column("failures", _count(), nullable=False),
    sa.Column("not_before", sa.Double(), nullable=False),
    sa.Column("paused", _text(), nullable=False),
    sa.Column("adopt", sa.Boolean(), nullable=False),
    sa.Column("last_failure", sa.Text()),
    sa.Column("last_failure_at", sa.Double()),
    sa.Index("ix_pull_targets_repo", "repo"),
    sqlite_autoincrement=True,  # workers keep what they put at a target by its id: it is nobody else's, ever
)


def _progress() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("synced", sa.BigInteger(), nullable=False),
        sa.Column("syncing", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("disabled", sa.BigInteger(), nullable=False),
        sa.Column("average_delay_s", sa.Double()),
        sa.Column("measured", sa.BigInteger(), nullable=False),
        sa.Column("worst_delay_s", sa.Double()),
        sa.Column("equal", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("compared", sa.BigInteger(), nullable=False, server_default="0"),
    )


# How far all projects were at times: the course of days.
pull_course = sa.Table(
    "pull_course",
    metadata,
    sa.Column("at", sa.Double(), primary_key=True),
    *_progress(),
    # What sources bore; null: it was not known.
    sa.Column("slots", _count()),
    sa.Column("running", _count()),
    sa.Column("queued", _count()),
    sa.Column("load_level", _text()),
    sa.Column("load_reason", _text()),
    sa.Column("looks", sa.BigInteger()),
    sa.Column("source_s", sa.Double()),
    sa.Column("received_bytes", sa.BigInteger()),
)

# The same, of each class.
pull_course_classes = sa.Table(
    "pull_course_classes",
    metadata,
    sa.Column("at", sa.Double(), primary_key=True),
    sa.Column("priority", _text(), primary_key=True),
    *_progress(),
)
