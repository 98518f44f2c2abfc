"""The coordinator's memory: one object over one database, with the same behaviour on SQLite and PostgreSQL.

Runtime trouble of the database is a ``FailureError``; trouble at opening is ``EnvironmentUnfit``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from evermirror.core.fleet.letters import Letters
from evermirror.core.fleet.views import Restored
from evermirror.core.pull.events import OpenTask
from evermirror.edge.store import apply as batches
from evermirror.edge.store import (
    audit,
    changes,
    counts,
    epoch,
    events,
    finding,
    fleet_load,
    pull,
    pull_course,
    repo_list,
    repos,
    specs,
    tasks,
    tokens,
)
from evermirror.edge.store.aggregators import AggregatorStore
from evermirror.edge.store.backup import make_backup
from evermirror.edge.store.bulk import BulkStore
from evermirror.edge.store.counts import OverviewCounts
from evermirror.edge.store.course import CourseStore
from evermirror.edge.store.database import Database, parse_place
from evermirror.edge.store.delivery_store import DeliveryStore
from evermirror.edge.store.history_store import HistoryStore
from evermirror.edge.store.hook_memories import HookMemoryStore
from evermirror.edge.store.hook_registrations import RegistrationStore
from evermirror.edge.store.migrate import migrate
from evermirror.edge.store.news_store import NewsStore
from evermirror.edge.store.pushes import PushStore
from evermirror.edge.store.repo_list import RepoSelection
from evermirror.edge.store.repos import KnownSource, UpsertCounts
from evermirror.edge.store.specs import AssignedSpec
from evermirror.edge.store.watch_store import WatchStore
from evermirror.edge.store.whole import whole
from evermirror.edge.store.writes import Entry
from evermirror.errors import DatabaseUnreachable, EnvironmentUnfit, UsageError
from evermirror.model.access import NO_LIMITS, AuditRecord, Role, TokenLimits, TokenRecord
from evermirror.model.changes import Change
from evermirror.model.failure import FailureError
from evermirror.model.pull import Project, Strategy
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.model.task import TaskId, TaskRecord, Trigger
from evermirror.model.worker import WorkerId

Clock = Callable[[], float]


class Store(
    HistoryStore,
    WatchStore,
    DeliveryStore,
    NewsStore,
    HookMemoryStore,
    RegistrationStore,
    BulkStore,
    CourseStore,
    PushStore,
    AggregatorStore,
):
    """Every method is one transaction, not cut by a cancelled caller. Reads never wait for writes."""

    @classmethod
    async def open(cls, url: str, *, clock: Clock = time.time) -> Store:
        """``sqlite:///path`` or ``postgresql://…``. Makes or migrates the tables first."""
        place = parse_place(url)
        database = await Database.open(place)
        try:
            await whole(migrate(database))
            await whole(events.begin(database, clock()))
        except FailureError as e:
            await database.close()
            message = f"the database {place.shown} cannot be prepared: {e.failure.message}"
            unfit = EnvironmentUnfit if database.is_sqlite else DatabaseUnreachable
            raise unfit(message, hint=e.failure.hint) from None
        except BaseException:
            await database.close()
            raise
        return cls(database, clock)

    async def close(self) -> None:
        await self._db.close()

    async def rest(self) -> None:
        """After much was written at once: what is remembered of it takes no more memory."""
        await whole(self._db.rest())

    # Repos

    async def upsert_repos(self, records: Iterable[RepoRecord], *, said_stays: bool = False) -> UpsertCounts:
        """Adds repos, or takes over their configuration; what reports taught stays. All or nothing.
        ``said_stays``: those of which people said something else meanwhile are left, and told.

        Raises ``UsageError`` for a name that cannot be stored, ``Conflict`` for an alias of another repo."""
        done = await whole(repos.upsert(self._db, records, self._clock(), said_stays=said_stays))
        self._changed()
        return done

    async def find_repo(self, key_or_alias: str, *, removed: bool = False) -> RepoRecord | None:
        """``removed`` also finds one that left the catalog; it is told as inactive."""
        return await whole(finding.find(self._db, key_or_alias, removed=removed))

    async def find_removed(self, alias: str) -> RepoRecord | None:
        """The last repo that left the catalog with this alias."""
        return await whole(finding.find_removed(self._db, alias))

    async def find_repos(
        self, keys: Iterable[RepoKey], *, removed: bool = False
    ) -> dict[RepoKey, RepoRecord]:
        """Those of the keys that are in the catalog, or, with ``removed``, ever were."""
        return await whole(finding.find_keys(self._db, keys, removed=removed))

    async def find_named(self, names: Iterable[str]) -> dict[str, RepoRecord]:
        """Those of the catalog's repos that these are keys of, or else aliases."""
        return await whole(finding.find_names(self._db, names))

    async def list_repos(self, which: RepoSelection) -> tuple[RepoRecord, ...]:
        """The next page in the order asked for; at most 1,000."""
        return await whole(repo_list.page(self._db, which))

    async def keys_of(self, which: RepoSelection) -> tuple[RepoKey, ...]:
        """The next keys of a list behind ``after``, always in the order of keys; at most 10,000."""
        return await whole(repo_list.keys(self._db, which))

    async def count_repos(self, which: RepoSelection) -> int:
        """How many repos the whole list shows, on however many pages."""
        return await whole(repo_list.count(self._db, which))

    async def remove_repos(self, keys: Iterable[RepoKey], at: float) -> int:
        """They leave the catalog; their history stays. Returns how many were in it."""
        removed = await whole(repos.remove(self._db, keys, at))
        self._changed()
        return removed

    async def restore_repo(self, key: RepoKey, at: float) -> RepoRecord:
        """Back into the catalog as it was. ``NotFound``; ``Conflict`` when its alias was given away."""
        record = await whole(repos.restore(self._db, key, at))
        self._changed()
        return record

    async def changes_since(self, seq: int, limit: int) -> tuple[Change, ...]:
        """The repos that changed after this number, in the order of their numbers; without holders."""
        return await whole(changes.since(self._db, seq, limit))

    async def digests_of(self, keys: Sequence[RepoKey]) -> dict[RepoKey, RefsDigest | None]:
        """As last reported, of those of at most 500 keys that are in the catalog."""
        return await whole(changes.digests(self._db, keys))

    async def specs_of(self, keys: Sequence[RepoKey]) -> list[AssignedSpec]:
        """Those of at most 1,000 keys that are in the catalog, in the order asked."""
        return await whole(specs.assigned(self._db, keys))

    def keys_of_source(self, source: str) -> AsyncIterator[list[RepoKey]]:
        """The repos that are in the catalog because of ``source``, some thousands at a time."""
        return repos.keys_of_source(self._db, source)

    async def any_private_repo(self) -> bool:
        """Whether one is in the catalog."""
        return await whole(repos.any_private(self._db))

    async def aliases(self) -> dict[str, RepoKey]:
        """Whose alias each is, of the repos in the catalog."""
        return await whole(repos.aliases(self._db))

    async def removed_keys(self) -> list[RepoKey]:
        """The repos that left the catalog and are still remembered."""
        return await whole(repos.removed_keys(self._db))

    async def known(self, keys: Sequence[RepoKey] | None = None) -> dict[RepoKey, KnownSource]:
        """Where these repos came from and what was said of them through the API; also those that left.

        None: all that the API brought, or of which something was said there."""
        return await whole(repos.known(self._db, keys))

    async def of_source(self, source: str) -> list[RepoRecord]:
        """Every repo that is in the catalog because of ``source``, with all that is known of it."""
        return await whole(repos.of_source(self._db, source))

    async def overview_counts(self, fresh_since: float) -> OverviewCounts:
        """Fresh are live repos that were verified at this time or later."""
        return await whole(counts.overview(self._db, fresh_since))

    # Results

    async def apply(self, batch: Sequence[Entry]) -> None:
        """One transaction for the whole batch."""
        told = await whole(batches.apply(self._db, batch, self._clock()))
        self.on_change()
        if told:
            self.on_event()

    # The fleet

    async def load_fleet(self, letters: Letters | None = None) -> Restored:
        """What the fleet's machine starts from; its columns are let go as they are looked through.
        ``letters``: where those of the keys are kept; in memory where nothing is said."""
        return await whole(fleet_load.load(self._db, letters))

    async def bound_tokens(self) -> dict[int, WorkerId]:
        """Which worker shows which token; also workers that retired, until their id is given to another."""
        return await whole(fleet_load.bound_tokens(self._db))

    async def next_epoch(self) -> int:
        """The number of this life of the coordinator: above every earlier one, and on the disk by now."""
        return await whole(epoch.take(self._db, self._clock()))

    # Tasks

    async def create_task(
        self, repo: RepoKey, trigger: Trigger, *, user: str = "", params: Mapping[str, object] | None = None
    ) -> TaskRecord:
        """A pending task. It is on the disk when this returns."""
        return await whole(tasks.create(self._db, repo, trigger, user=user, params=params, now=self._clock()))

    async def create_tasks(
        self,
        keys: Sequence[RepoKey],
        trigger: Trigger,
        *,
        user: str = "",
        params: Mapping[str, object] | None = None,
    ) -> tuple[TaskRecord, ...]:
        """One for each of the repos, in their order, in one transaction."""
        now = self._clock()
        return await whole(tasks.create_many(self._db, keys, trigger, user=user, params=params, now=now))

    async def change_params(self, params: Mapping[TaskId, Mapping[str, object]]) -> tuple[TaskRecord, ...]:
        """What these tasks ask for; returns those that are pending, and ask for it now."""
        return await whole(tasks.change_params(self._db, params, self._clock()))

    async def get_task(self, task_id: TaskId) -> TaskRecord | None:
        return await whole(tasks.get(self._db, task_id))

    async def open_tasks(self, repo: RepoKey) -> tuple[TaskRecord, ...]:
        """Pending and running ones, oldest first."""
        return await whole(tasks.open_of(self._db, repo))

    async def open_tasks_of(self, keys: Iterable[RepoKey]) -> tuple[TaskRecord, ...]:
        """Those of all these repos."""
        return await whole(tasks.open_of_many(self._db, keys))

    async def list_tasks(
        self, repo: RepoKey, limit: int, before: TaskId | None = None
    ) -> tuple[TaskRecord, ...]:
        """Newest first."""
        return await whole(tasks.page(self._db, repo, limit, before))

    async def unfinished_tasks(self) -> tuple[TaskRecord, ...]:
        """What a restart has to take up again, oldest first."""
        return await whole(tasks.unfinished(self._db))

    async def cleanup_tasks(self, older_than: float) -> int:
        """Removes ended tasks last touched before ``older_than`` (UTC seconds), and the course of the time
        before; returns how many tasks."""
        await whole(pull_course.forget(self._db, older_than))
        return await whole(tasks.cleanup(self._db, older_than))

    # Pull mirroring. A project whose repo is not in the catalog is remembered, and told nowhere.

    async def load_projects(self) -> tuple[Project, ...]:
        return await whole(pull.load(self._db))

    async def find_project(self, key: RepoKey) -> Project | None:
        return (await self.find_projects([key])).get(key)

    async def find_projects(self, keys: Iterable[RepoKey]) -> dict[RepoKey, Project]:
        """Those of the keys that are projects."""
        return await whole(pull.find_many(self._db, keys))

    async def page_projects(
        self,
        *,
        search: str = "",
        priority: Priority | None = None,
        page: int = 1,
        size: int = 50,
        public: bool = False,
    ) -> tuple[tuple[Project, ...], int]:
        """By name, and how many there are; at most 1,000. Search finds a part of name, key or URL.
        ``public``: without private ones."""
        found = pull.page(self._db, search=search, priority=priority, page=page, size=size, public=public)
        return await whole(found)

    async def failed_projects(
        self, at_least: int, page: int = 1, size: int = 100, *, public: bool = False
    ) -> tuple[tuple[Project, ...], int]:
        """With so many failures in a row: most first, and how many there are."""
        return await whole(pull.failed(self._db, at_least, page, size, public=public))

    async def left_projects(self) -> frozenset[RepoKey]:
        """The projects whose repos are not in the catalog."""
        return await whole(pull.left(self._db))

    async def put_projects(self, projects: Sequence[Project]) -> tuple[Project, ...]:
        """Adds projects, or replaces all that is known of them; told as they are then: new targets (id 0)
        have ids, ``updated_at`` is newer. Left out are repos that are not in the catalog. All or nothing."""
        return await whole(pull.put(self._db, projects, self._clock()))

    async def remove_projects(self, keys: Iterable[RepoKey]) -> None:
        """The repos stay, and have no pull configuration any more."""
        await whole(pull.remove(self._db, keys))

    async def open_pull_tasks(self, opens: Sequence[OpenTask], now: float) -> tuple[TaskRecord, ...]:
        """Pending tasks, each in one transaction with its project, which names it. Left out are projects
        that are gone, or that people changed since: their ``updated_at`` is newer."""
        return await whole(pull.open_tasks(self._db, opens, now))

    async def ended_pull_tasks(self) -> tuple[TaskRecord, ...]:
        """Tasks that ended, and that their projects name as open: a crash came between."""
        return await whole(pull.ended_tasks(self._db))

    async def get_strategy(self) -> Strategy | None:
        """None where nobody ever set one."""
        return await whole(pull.get_strategy(self._db))

    async def put_strategy(self, strategy: Strategy) -> Strategy:
        """As it is kept, with its times."""
        return await whole(pull.put_strategy(self._db, strategy, self._clock()))

    # Tokens

    async def create_token(
        self,
        name: str,
        role: Role,
        *,
        trusted: bool = False,
        operator: str = "",
        limits: TokenLimits = NO_LIMITS,
    ) -> tuple[str, TokenRecord]:
        """The token itself, shown this once, and its record. ``Conflict`` when the name is in use."""
        new = tokens.create(
            self._db, name, role, trusted=trusted, operator=operator, limits=limits, now=self._clock()
        )
        return await whole(new)

    async def limit_token(self, id_or_name: int | str, limits: TokenLimits) -> TokenRecord:
        """Change the weight and capacity of an untrusted worker. Raises ``NotFound``."""
        return await whole(tokens.limit(self._db, id_or_name, limits))

    async def find_token(self, plain: str) -> TokenRecord | None:
        """None for one unknown or revoked. Record its use with ``TokenUsed``."""
        return await whole(tokens.find(self._db, plain))

    async def list_tokens(self) -> tuple[TokenRecord, ...]:
        return await whole(tokens.all_tokens(self._db))

    async def tokens_revoked_since(self, at: float) -> tuple[TokenRecord, ...]:
        """Those revoked at ``at`` (UTC seconds) or later."""
        return await whole(tokens.revoked_since(self._db, at))

    async def revoke_token(self, id_or_name: int | str) -> TokenRecord:
        """Raises ``NotFound``."""
        return await whole(tokens.revoke(self._db, id_or_name, now=self._clock()))

    async def any_tokens(self) -> bool:
        """Whether one that is not revoked exists."""
        return await whole(tokens.exist(self._db, users=False))

    async def any_user_token(self) -> bool:
        """The same of tokens that people use: those of nodes do not count."""
        return await whole(tokens.exist(self._db, users=True))

    async def cleanup_tokens(self, older_than: float) -> int:
        """Removes tokens revoked before ``older_than`` (UTC seconds); returns how many. The audit log still
        names them."""
        return await whole(tokens.cleanup(self._db, older_than))

    # Audit and small facts

    async def cleanup_audit(self, older_than: float) -> int:
        """Removes entries made before ``older_than`` (UTC seconds); returns how many."""
        return await whole(audit.cleanup(self._db, older_than))

    async def audit(self, actor: str, action: str, subject: str, detail: object = None) -> None:
        await whole(audit.note(self._db, actor, action, subject, detail, now=self._clock()))

    async def list_audit(self, limit: int, before: int | None = None) -> tuple[AuditRecord, ...]:
        """Newest first."""
        return await whole(audit.newest(self._db, limit, before))

    async def get_setting(self, key: str) -> object:
        """None where it was never set."""
        return await whole(audit.get_setting(self._db, key))

    async def put_setting(self, key: str, value: object) -> None:
        await whole(audit.put_setting(self._db, key, value))

    # Backup

    async def backup(self, path: Path) -> None:
        """A consistent copy of a SQLite database, made while it is used. ``path`` must not exist."""
        if self._db.path is None:
            raise UsageError("this database is PostgreSQL", hint="Use pg_dump")
        await asyncio.to_thread(make_backup, self._db.path, path)
