"""Pull mirroring in memory: enough of the service to show how HTTP treats it."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from datetime import UTC

from evermirror.core.pull.strategy import expected_delays
from evermirror.core.watch.report import report_of, span_of
from evermirror.errors import Conflict, InvalidUrl, NotFound, UsageError
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ClassProgress, KindCount, Period, ProgressNote
from evermirror.model.pull import INTERVALS_S, Load, LoadLevel, Project, PullConfig, Strategy, Target, Waiting
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, Priority, RepoRecord, RepoSpec
from evermirror.model.report import ReportFacts
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from evermirror.nodes.pull_service import (
    BatchTriggered,
    BatchUpdated,
    ErrorStatistics,
    NewestTasks,
    Progress,
    ProjectPage,
    ProjectView,
    StrategyView,
    TaskPage,
)
from tests.faces.api.fake import key_of

NOW = 1_765_670_100.0  # 2025-12-13T23:55:00Z
MINUTE = 60.0
CONFIG_FIELDS = ("priority", "interval_s", "enabled", "max_retries", "retry_delay_s")


class FakePull:
    """``audit`` has (actor, what, name); ``notes`` are the course's; ``figures`` the progress by class."""

    def __init__(self):
        self.now = NOW
        self.the_strategy = Strategy(updated_at=NOW)
        self.load = Load(LoadLevel.NORMAL, "cpu 55 %")
        self.views = {}
        self.plans = {}
        self.target_states = {}
        self.tasks_by_id = {}
        self.audit = []
        self.notes = ()
        self.figures = {priority: ClassProgress(0, 0, 0, 0, 0, 0, None) for priority in Priority}
        self.asked = []
        self.facts = ReportFacts()  # of reports
        self.planned = self.targets_asked = 0  # how often a worker would have been asked
        self.explode = None
        self._ids = itertools.count(1)

    def add(self, name, url=None, *, private=False, config=None, targets=(), configured=True, **state):
        key = key_of(url or f"https://git.example.org/{name}")
        spec = RepoSpec(key, url or f"https://{key}", Host(key.partition("/")[0]), private=private)
        record = RepoRecord(spec, alias=name, created_at=self.now)
        made = tuple(
            Target(TargetId(n), spec.url, spec.credential) for n, spec in enumerate(targets, start=1)
        )
        project = Project(
            key, name, spec.host, config or PullConfig(), targets=made, next_sync_at=self.now,
            created_at=self.now, updated_at=self.now,
        )  # fmt: skip
        view = ProjectView(
            replace(project, **state), record, configured, False, (config or PullConfig()).priority
        )
        self.views[key] = view
        return view

    async def plan(self, key):
        return self.plans.get(key)

    async def targets(self, key):
        self.targets_asked += 1
        return self.target_states.get(key, ())

    def set(self, name, **changes):
        view = self._find(name)
        own = {f.name for f in fields(ProjectView)}
        of_view = {k: v for k, v in changes.items() if k in own}
        of_project = {k: v for k, v in changes.items() if k not in own}
        self.views[view.record.key] = replace(view, project=replace(view.project, **of_project), **of_view)

    def put_task(self, name, task_id, status, **fields_):
        key = self._find(name).record.key
        times = {"scheduled_at": self.now, "created_at": self.now, "updated_at": self.now}
        task = TaskRecord(
            TaskId(task_id), key, status, fields_.pop("trigger", Trigger.SCHEDULE), **{**times, **fields_}
        )
        self.tasks_by_id[task_id] = task
        return task

    def _find(self, name):
        if self.explode:
            raise self.explode
        for view in self.views.values():
            if name in (view.project.name, view.record.key):
                return view
        try:
            return self.views[key_of(name)]
        except (InvalidUrl, KeyError):
            raise NotFound(f"no project {name}") from None

    # PullService

    async def strategy(self):
        expected = expected_delays(self.the_strategy, INTERVALS_S)
        return StrategyView(self.the_strategy, "Asia/Shanghai", True, 3, 2, self.load, expected)

    async def set_strategy(self, values, *, actor):
        self.audit.append((actor, "strategy", dict(values)))
        self.the_strategy = replace(self.the_strategy, **values)
        return await self.strategy()

    async def create_project(self, new, *, actor):
        for view in self.views.values():
            if new.name == view.project.name or key_of(new.source_url) == view.record.key:
                raise Conflict(f"there is a project {view.project.name} already")
        self.audit.append((actor, "create", new.name))
        self.add(new.name, new.source_url, targets=new.change.targets or ())
        self._change(new.name, replace(new.change, targets=None))
        return self._find(new.name)

    async def find_project(self, name, *, planned=True):
        self.planned += planned
        return self._find(name)

    def _page(self, views, page, size, public):
        shown = [v for v in views if not (public and v.record.spec.private)]
        return ProjectPage(tuple(shown[(page - 1) * size : page * size]), len(shown), page, size)

    async def list_projects(self, *, search="", priority=None, page=1, size=50, public=False):
        found = [
            v
            for v in sorted(self.views.values(), key=lambda v: v.project.name)
            if v.configured and search in v.project.name and priority in (None, v.project.config.priority)
        ]
        return self._page(found, page, size, public)

    def _change(self, name, change):
        view = self._find(name)
        said = {f: getattr(change, f) for f in CONFIG_FIELDS if getattr(change, f) is not None}
        if "priority" in said and "interval_s" not in said:
            said["interval_s"] = INTERVALS_S[said["priority"]]
        config = replace(view.project.config, **said)
        overrides = view.project.overrides | change.said()
        self.set(name, config=config, overrides=overrides, configured=True)
        if change.targets is not None:
            made = tuple(
                Target(TargetId(n), t.url, t.credential) for n, t in enumerate(change.targets, start=1)
            )
            self.set(name, targets=made)

    async def change_project(self, name, change, *, actor):
        self._find(name)
        self.audit.append((actor, "config", name))
        for n, target in enumerate(change.targets or ()):
            try:
                key_of(target.url)
            except InvalidUrl as error:
                raise InvalidUrl(f"targets.{n}.url: {error.reason}", hint=error.hint) from None
        self._change(name, change)
        return self._find(name)

    async def reset_project(self, name, *, actor):
        self.audit.append((actor, "reset-config", name))
        self.set(name, config=PullConfig(), overrides=frozenset())
        return self._find(name)

    async def delete_project(self, name, *, actor):
        view = self._find(name)
        if view.record.source != "api":
            raise Conflict(f"{name} is in the catalog")
        self.audit.append((actor, "delete", name))
        del self.views[view.record.key]

    async def set_priority(self, names, priority, *, actor):
        self.audit.append((actor, "priority", tuple(names)))
        unknown, updated = [], 0
        for name in names:
            try:
                view = self._find(name)
            except NotFound:
                unknown.append(name)
                continue
            self.set(view.record.key, config=replace(view.project.config, priority=priority))
            updated += 1
        return BatchUpdated(updated, tuple(unknown))

    async def progress(self, begin=None, end=None):
        self.asked.append((begin, end))
        classes = self.figures.values()
        measured = sum(c.measured for c in classes)
        delay = sum((c.average_delay_s or 0.0) * c.measured for c in classes)
        overall = ClassProgress(
            *(sum(getattr(c, f) for c in classes) for f in ("total", "synced", "syncing", "pending")),
            sum(c.failed for c in classes), sum(c.disabled for c in classes),
            delay / measured if measured else None, measured,
        )  # fmt: skip
        if begin is None:
            return Progress(self.now, overall, self.figures)
        period = Period(begin, end, 10, 6, 1, 3, 42)
        return Progress(self.now, overall, self.figures, period, dict.fromkeys(Priority, period))

    async def course(self, begin, end):
        self.asked.append((begin, end))
        return tuple(note for note in self.notes if begin <= note.at < end)

    async def report(self, days, *, public=False):
        self.asked.append((days, public))
        return report_of(self.facts, span_of(self.now, days, UTC), self.figures, self.load, UTC, "UTC")

    def note(self, at, **figures):
        self.notes = (
            *self.notes,
            ProgressNote(at, replace(ClassProgress(0, 0, 0, 0, 0, 0, None), **figures)),
        )

    def _task_page(self, tasks, page, size):
        newest = sorted(tasks, key=lambda t: -t.id)
        records = {t.repo: self.views[t.repo].record for t in newest if t.repo in self.views}
        return TaskPage(tuple(newest[(page - 1) * size : page * size]), len(newest), page, size, records)

    async def tasks(self, name, *, page=1, size=10):
        key = self._find(name).record.key
        return self._task_page([t for t in self.tasks_by_id.values() if t.repo == key], page, size)

    async def newest_tasks(self, status, before, limit):
        found = [
            t
            for t in sorted(self.tasks_by_id.values(), key=lambda t: -t.id)
            if status in (None, t.status) and (before is None or t.id < before)
        ][:limit]
        return NewestTasks(
            tuple(found), {t.repo: self.views[t.repo].record for t in found if t.repo in self.views}
        )

    async def task(self, task_id):
        if task_id not in self.tasks_by_id:
            raise NotFound(f"no task {task_id}")
        task = self.tasks_by_id[task_id]
        return task, self.views.get(task.repo)

    def _open(self, view, trigger, actor):
        task_id = TaskId(12_345 + next(self._ids))
        task = self.put_task(view.record.key, task_id, TaskStatus.PENDING, trigger=trigger, user=actor)
        self.set(view.record.key, task=task_id)
        return task

    async def trigger(self, name, *, force=False, trigger=Trigger.MANUAL, actor):
        view = self._find(name)
        self.audit.append((actor, "trigger", force))
        if view.running:
            raise Conflict(f"{view.project.name} is being pulled by task {view.project.task}")
        if not view.project.config.enabled:
            raise Conflict(f"{view.project.name} is disabled", hint="Enable it, or reset its failures")
        if view.project.task is not None:
            return self.tasks_by_id[view.project.task], False
        return self._open(view, trigger, actor), True

    async def trigger_batch(self, names, priority, *, force=False, actor):
        self.audit.append((actor, "batch", tuple(names)))
        wanted, unknown, disabled, running, ids, pending = {}, [], [], 0, [], 0
        for name in names:
            try:
                wanted[self._find(name).record.key] = True
            except NotFound:
                unknown.append(name)
        wanted |= {v.record.key: True for v in self.views.values() if v.project.config.priority is priority}
        for key in wanted:
            view = self.views[key]
            if view.running:
                running += 1
            elif not view.project.config.enabled:
                disabled.append(view.project.name)
            elif view.project.task is not None:
                ids.append(view.project.task)
                pending += 1
            else:
                ids.append(self._open(view, Trigger.MANUAL_BATCH, actor).id)
        waits = [Waiting(v.wait, 1) for key in wanted if (v := self.views[key]).wait is not None]
        return BatchTriggered(tuple(ids), running, tuple(unknown), tuple(disabled), pending, tuple(waits))

    async def errors(self, name, which, *, public=False):
        key = self._find(name).record.key if name is not None else None
        found = [
            t
            for t in self.tasks_by_id.values()
            if t.failure is not None
            and key in (None, t.repo)
            and which.kind in (None, t.failure.kind)
            and (which.begin is None or t.completed_at >= which.begin)
            and (which.end is None or t.completed_at < which.end)
            and not (public and self.views[t.repo].record.spec.private)
        ]
        return self._task_page(found, which.page, which.size)

    async def error_statistics(self, hours):
        begin = self.now - hours * 3600
        found = [t for t in self.tasks_by_id.values() if t.failure and begin <= t.completed_at < self.now]
        kinds = {t.failure.kind for t in found}
        counts = {
            kind: KindCount(
                sum(t.failure.kind is kind for t in found),
                len({t.repo for t in found if t.failure.kind is kind}),
            )
            for kind in kinds
        }
        return ErrorStatistics(begin, self.now, len(found), counts)

    async def failed_projects(self, at_least, *, page=1, size=100, public=False):
        found = [v for v in self.views.values() if v.project.failures >= at_least]
        found.sort(key=lambda v: -v.project.failures)
        return self._page(found, page, size, public)

    async def reset_failures(self, name, *, actor):
        view = self._find(name)
        self.audit.append((actor, "reset-failures", name))
        config = replace(view.project.config, enabled=True)
        self.set(name, config=config, failures=0, paused="", next_sync_at=self.now)
        return self._find(name)

    async def adopt_target(self, name, url, *, actor):
        view = self._find(name)
        if url is not None and url not in [t.url for t in view.project.targets]:
            raise UsageError(f"url: {view.project.name} has no target {url}")
        self.audit.append((actor, "adopt", url))
        targets = tuple(replace(t, adopt=t.adopt or url in (None, t.url)) for t in view.project.targets)
        self.set(name, targets=targets)
        return self._find(name)


def timeout(**fields_):
    """The failure of seed 003's example."""
    return Failure(
        FailureKind.NETWORK_TIMEOUT,
        "Connection timed out after 30s",
        git_command="git remote update",
        **fields_,
    )
