"""What people ask and order about pull mirroring: implements ``PullService`` over the store and ``Pulling``.

Changes are checked as a whole, stored, written to the audit log, and told to the machine and the workers. A
change of a project starts from what the machine knows of it, while nothing else is decided (``changing``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo

from evermirror.core.pull.layers import (
    ProjectChange,
    adopted,
    changed,
    enabled,
    placed_by,
    taken_back,
    with_priority,
)
from evermirror.core.pull.strategy import expected_delays
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, EvermirrorError, InvalidUrl, InvalidValue, NotFound, UsageError
from evermirror.model.failure import FailureError
from evermirror.model.figures import ErrorFilter, ProgressNote
from evermirror.model.plan import PollPlan
from evermirror.model.pull import Project, Strategy
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.model.report import Report
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from evermirror.model.url import UrlRules, check_alias, parse_url
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.pull.pull_checks import (
    check_credential,
    check_enabled,
    checked_change,
    new_strategy,
)
from evermirror.nodes.coordinator.pull.pull_counts import PullCounts, errors_of_all
from evermirror.nodes.coordinator.pull.pull_report import Reports
from evermirror.nodes.coordinator.pull.pull_targets import TargetStates
from evermirror.nodes.coordinator.pull.pull_triggers import Triggers
from evermirror.nodes.coordinator.pull.pull_turn import to_the_end
from evermirror.nodes.coordinator.pull.pull_views import ProjectViews
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.coordinator.tasks.submission import apply_info
from evermirror.nodes.pull_service import (
    BatchTriggered,
    BatchUpdated,
    ErrorStatistics,
    NewestTasks,
    NewProject,
    Progress,
    ProjectPage,
    ProjectView,
    StrategyView,
    TargetState,
    TaskPage,
)

NAMES_MAX = 10_000  # of one batch
HOURS_MAX = 24 * 366.0


@dataclass(frozen=True, slots=True)
class PullAdminSettings:
    """What the answers depend on."""

    rules: UrlRules
    credentials: frozenset[str]
    time_zone: str
    zone: tzinfo = UTC


class PullAdmin:
    """One for the whole coordinator. ``syncing`` tells what is being synced at this moment."""

    def __init__(
        self,
        settings: PullAdminSettings,
        *,
        store: Store,
        coordinator: Coordinator,
        pulling: Pulling,
        syncing: Callable[[], Collection[RepoKey]],
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._store = store
        self._coordinator = coordinator
        self._pulling = pulling
        self.changing = pulling.changing
        self._syncing = syncing
        self._clock = clock
        self._views = ProjectViews(store, coordinator, pulling, syncing, clock)
        self._target_states = TargetStates(store, coordinator, pulling)
        self._counts = PullCounts(store, syncing, clock)
        self._reports = Reports(
            store, self._counts, lambda: pulling.machine.view(clock()).load, settings.zone, clock
        )
        self._triggers = Triggers(store, pulling, coordinator.tasks, clock)

    # The strategy

    async def strategy(self) -> StrategyView:
        view = self._pulling.machine.view(self._clock())
        strategy = await self._store.get_strategy() or Strategy()
        return StrategyView(
            strategy,
            self._settings.time_zone,
            view.in_peak,
            view.limit,
            view.running,
            view.load,
            expected_delays(strategy, await self._counts.intervals(self._pulling.projects)),
        )

    @to_the_end
    async def set_strategy(self, values: Mapping[str, object], *, actor: str) -> StrategyView:
        async with self.changing:
            known = await self._store.get_strategy() or Strategy()
            strategy = new_strategy(known, values)
            await self._pulling.put_strategy(strategy)
        await self._store.audit(actor, "pull.strategy", "", dict(values))
        return await self.strategy()

    # Projects

    @to_the_end
    async def create_project(self, new: NewProject, *, actor: str) -> ProjectView:
        try:
            name = check_alias(new.name)
        except InvalidValue as error:
            raise UsageError(f"project_key: {error.message}", hint=error.hint) from None
        try:
            source = parse_url(new.source_url, self._settings.rules)
        except InvalidUrl as error:
            raise InvalidUrl(f"source_url: {error.reason}", hint=error.hint) from None
        check_credential("source_credential", new.source_credential, self._settings.credentials)
        change = self._checked(replace(new.change, targets=new.change.targets or ()), source.key)
        found = await self._store.find_repo(name)
        half = found is not None and self._is_half_made(found, name, source.key)
        if found is not None and not half:
            raise Conflict(f"there is a project {name} already", hint="Choose another project_key")
        _, record = await self._coordinator.put(source.text, _info(name, new), actor=actor, new=not half)
        over = replace(change, priority=None, interval_s=None)  # the repo itself has these
        try:
            async with self.changing:
                await self._pulling.put(
                    [changed(record, None, over, self._clock(), self._pulling.retry_policy)]
                )
        except (FailureError, EvermirrorError):
            if not half:
                with contextlib.suppress(FailureError, EvermirrorError):  # who asks again takes it over
                    await self._coordinator.release([record.key])
            raise
        await self._store.audit(actor, "pull.project.created", record.key, _told(new.change))
        await self._coordinator.assign([record])
        return await self.find_project(record.key)

    def _is_half_made(self, record: RepoRecord, name: str, source: RepoKey) -> bool:
        """Whether a crash may have cut its making short: it is the same repo, by the API, and no project."""
        same = (record.alias, record.key, record.source) == (name, source, "api")
        return same and not self._pulling.is_project(record.key)

    async def find_project(self, name: str, *, planned: bool = True) -> ProjectView:
        return await self._views.of(await self._find(name), planned=planned)

    async def plan(self, key: RepoKey) -> PollPlan | None:
        return self._pulling.machine.plan(key, self._clock())

    async def targets(self, key: RepoKey) -> tuple[TargetState, ...]:
        return await self._target_states.of(key)

    async def list_projects(
        self,
        *,
        search: str = "",
        priority: Priority | None = None,
        page: int = 1,
        size: int = 50,
        public: bool = False,
    ) -> ProjectPage:
        found, total = await self._store.page_projects(
            search=search, priority=priority, page=page, size=size, public=public
        )
        return ProjectPage(await self._views.all(found), total, page, size)

    @to_the_end
    async def change_project(self, name: str, change: ProjectChange, *, actor: str) -> ProjectView:
        record = await self._find(name)
        change = self._checked(change, record.key)
        if not change.said():
            return await self._views.of(record)
        _check_repo_enabled(record, change)
        policy = self._pulling.retry_policy
        if change.priority is None:
            await self._change(record, lambda project, now: changed(record, project, change, now, policy))
        else:
            await self._prioritize([record], change)
        await self._store.audit(actor, "pull.project.changed", record.key, _told(change))
        return await self.find_project(record.key)

    @to_the_end
    async def reset_project(self, name: str, *, actor: str) -> ProjectView:
        record, policy = await self._find(name), self._pulling.retry_policy
        async with self._coordinator.changing:
            record = await self._find(record.key)
            known = self._pulling.project(record.key)
            before = known.priority_before if known is not None else None
            if before is not None:
                await self._store.upsert_repos([_prioritized(record, before, back=True)])
            await self._change(record, lambda p, now: p and taken_back(record, p, now, policy))
        await self._store.audit(actor, "pull.project.reset", record.key, None)
        if before is not None:
            await self._coordinator.assign([await self._find(record.key)])
            self._coordinator.on_api_change()
        return await self.find_project(record.key)

    @to_the_end
    async def delete_project(self, name: str, *, actor: str) -> None:
        record = await self._find(name)
        await self._coordinator.remove_repo(record.key, actor=actor)
        await self._store.audit(actor, "pull.project.deleted", record.key, None)

    @to_the_end
    async def set_priority(self, names: Sequence[str], priority: Priority, *, actor: str) -> BatchUpdated:
        records, unknown = await self._find_all(names)
        done = await self._prioritize(records, ProjectChange(priority=priority))
        detail = {"priority": priority.value, "projects": [p.name for p in done][:100], "total": len(done)}
        await self._store.audit(actor, "pull.projects.priority", "", detail)
        return BatchUpdated(len(done), unknown)

    @to_the_end
    async def reset_failures(self, name: str, *, actor: str) -> ProjectView:
        record = await self._find(name)
        _check_repo_enabled(record, ProjectChange(enabled=True))
        if self._pulling.is_project(record.key):
            await self._change(
                record, lambda project, now: None if project is None else enabled(project, now)
            )
        await self._store.audit(actor, "pull.errors.reset", record.key, None)
        return await self.find_project(record.key)

    @to_the_end
    async def adopt_target(self, name: str, url: str | None, *, actor: str) -> ProjectView:
        record = await self._find(name)
        project = self._pulling.project(record.key)
        if project is None or not project.targets:
            raise Conflict(f"{record.alias or record.key} has no targets", hint="Set some first")
        wanted = self._targets_meant(project, url)

        def may_overwrite(project: Project | None, now: float) -> Project | None:
            if project is None:
                return None
            after = adopted(project, wanted, now)
            check_enabled(after)
            return after

        _check_repo_enabled(record, ProjectChange(enabled=True))
        await self._change(record, may_overwrite)
        await self._store.audit(actor, "pull.target.adopted", record.key, sorted(wanted))
        return await self.find_project(record.key)

    # Tasks

    async def tasks(self, name: str, *, page: int = 1, size: int = 10) -> TaskPage:
        record = await self._find(name)
        items, total = await self._store.task_page(record.key, page, size)
        return TaskPage(items, total, page, size, {record.key: record})

    async def newest_tasks(self, status: TaskStatus | None, before: TaskId | None, limit: int) -> NewestTasks:
        items = await self._store.newest_tasks(status, before, limit)
        return NewestTasks(items, await self._store.find_repos([task.repo for task in items], removed=True))

    async def task(self, task_id: TaskId) -> tuple[TaskRecord, ProjectView | None]:
        task = await self._coordinator.get_task(task_id)
        try:
            return task, await self.find_project(task.repo, planned=False)
        except NotFound:
            return task, None

    @to_the_end
    async def trigger(
        self, name: str, *, force: bool = False, trigger: Trigger = Trigger.MANUAL, actor: str
    ) -> tuple[TaskRecord, bool]:
        record = await self._find(name)
        task, new = await self._triggers.one(record, force=force, trigger=trigger, actor=actor)
        await self._store.audit(actor, "pull.triggered", record.key, {"task": task.id, "force": force})
        return task, new

    @to_the_end
    async def trigger_batch(
        self, names: Sequence[str], priority: Priority | None, *, force: bool = False, actor: str
    ) -> BatchTriggered:
        records, unknown = await self._find_all(names)
        done = await self._triggers.many(records, priority, force=force, actor=actor)
        ids = tuple(done.task_ids)
        detail = {"tasks": len(ids), "force": force, "priority": priority.value if priority else None}
        await self._store.audit(actor, "pull.triggered-batch", "", detail)
        return BatchTriggered(
            ids, done.skipped_running, unknown, tuple(done.disabled), done.already_pending, done.waiting()
        )

    # Figures

    async def progress(self, begin: float | None = None, end: float | None = None) -> Progress:
        counted = await self._counts.progress(begin, end)
        return replace(counted, waiting=self._pulling.machine.held(self._clock()))

    async def course(self, begin: float, end: float) -> tuple[ProgressNote, ...]:
        return await self._store.progress_course(begin, end)

    async def report(self, days: int, *, public: bool = False) -> Report:
        return await self._reports.of(days, public=public)

    async def errors(self, name: str | None, which: ErrorFilter, *, public: bool = False) -> TaskPage:
        if name is not None:
            record = await self._find(name)
            items, total = await self._store.error_page(record.key, which)
            return TaskPage(items, total, which.page, which.size, {record.key: record})
        return await (self._counts.public_errors(which) if public else errors_of_all(self._store, which))

    async def error_statistics(self, hours: float) -> ErrorStatistics:
        if not 0 < hours <= HOURS_MAX:
            raise UsageError(f"hours must be more than 0, up to {HOURS_MAX:.0f}", hint="For example 24")
        return await self._counts.errors(hours)

    async def failed_projects(
        self, at_least: int, *, page: int = 1, size: int = 100, public: bool = False
    ) -> ProjectPage:
        found, total = await self._store.failed_projects(at_least, page, size, public=public)
        return ProjectPage(await self._views.all(found), total, page, size)

    # Inside

    async def _find(self, name: str) -> RepoRecord:
        try:
            return await self._coordinator.find_repo(name)
        except NotFound:
            raise NotFound(f"no project {name!r}", hint="GET /api/pull/projects lists them") from None

    async def _find_all(self, names: Sequence[str]) -> tuple[list[RepoRecord], tuple[str, ...]]:
        """Each once, and the names that are nobody's."""
        if len(names) > NAMES_MAX:
            raise UsageError(f"{len(names)} projects are named, and at most {NAMES_MAX} can be at once")
        wanted = {name: self._plain(name) for name in names}
        known = await self._store.find_named(plain for plain in wanted.values() if plain)
        found = {r.key: r for plain in wanted.values() if (r := known.get(plain)) is not None}
        return list(found.values()), tuple(name for name, plain in wanted.items() if plain not in known)

    def _plain(self, name: str) -> str:
        """A key or an alias, of a name in any spelling; empty where it is none."""
        if "://" not in name and "@" not in name:
            return name.rstrip("/").removesuffix(".git")
        try:
            return parse_url(name, self._settings.rules).key
        except InvalidUrl:
            return ""

    def _checked(self, change: ProjectChange, source: RepoKey) -> ProjectChange:
        return checked_change(change, self._settings.rules, self._settings.credentials, source)

    def _targets_meant(self, project: Project, url: str | None) -> set[str]:
        known = {target.url for target in project.targets}
        if url is None:
            return known
        spelt = url if url in known else parse_url(url, self._settings.rules).text
        if spelt not in known:
            raise NotFound(
                f"{url!r} is no target of {project.name}", hint=f"It has: {', '.join(sorted(known))}"
            )
        return {spelt}

    async def _prioritize(self, records: Sequence[RepoRecord], change: ProjectChange) -> tuple[Project, ...]:
        """A change with a priority, which repo and project have in common: first of the repo."""
        if change.priority is None:
            raise ValueError("a priority is to be changed")
        async with self._coordinator.changing:
            known = await self._store.find_repos([record.key for record in records])
            put = [_prioritized(record, change.priority) for record in known.values()]
            await self._store.upsert_repos(put)
            async with self.changing:
                now, of = self._clock(), self._pulling.project
                done = await self._pulling.put(
                    [changed(r, of(r.key), change, now, self._pulling.retry_policy) for r in known.values()]
                )
        await self._coordinator.assign(put)
        self._coordinator.on_api_change()
        return done

    async def _change(
        self, record: RepoRecord, make: Callable[[Project | None, float], Project | None]
    ) -> None:
        """The project as ``make`` makes it of what is known; None: it is none any more."""
        async with self.changing:
            before = self._pulling.project(record.key)
            after = make(before, self._clock())
            if after is not None:
                await self._pulling.put([after])
            elif before is not None:
                await self._pulling.remove([record.key])
        if placed_by(before) != placed_by(after):
            await self._coordinator.assign([record])


def _info(name: str, new: NewProject) -> dict[str, object]:
    """What the repo itself is told: who has its password is alone to see it."""
    change = new.change
    info: dict[str, object] = {"alias": name}
    if new.source_credential is not None:
        info |= {"credential": new.source_credential, "private": True}
    if change.priority is not None:
        info["priority"] = change.priority.value
    if change.interval_s is not None:
        info["interval"] = f"{change.interval_s:.0f}s"
    return info


def _prioritized(record: RepoRecord, priority: Priority, *, back: bool = False) -> RepoRecord:
    """``back``: as the catalog says, or whoever added it."""
    if not back or record.source == "api":
        return apply_info(record, {"priority": priority.value}, credentials=frozenset())
    info = {name: value for name, value in record.info.items() if name != "priority"}
    return replace(with_priority(record, priority), info=info)


def _check_repo_enabled(record: RepoRecord, change: ProjectChange) -> None:
    if change.enabled and not record.enabled:
        raise Conflict(
            f"the repo {record.key} is disabled", hint='Enable it first: additional_info {"enabled": true}'
        )


def _told(change: ProjectChange) -> dict[str, object]:
    """For the audit log: what was said, and no secret is in it."""
    told: dict[str, object] = {
        "priority": change.priority.value if change.priority is not None else None,
        "interval_s": change.interval_s,
        "enabled": change.enabled,
        "max_retries": change.max_retries,
        "retry_delay_s": change.retry_delay_s,
        "targets": None if change.targets is None else [target.url for target in change.targets],
    }
    return {name: value for name, value in told.items() if value is not None}
