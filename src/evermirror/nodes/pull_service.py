"""What the faces may ask about pull mirroring: one protocol, so that they know no wiring.

A project is named by its project key (the repo's alias), the repo's key, or its URL; else ``NotFound``.
Every method that takes ``actor`` is written to the audit log under that name.
Bad values are ``UsageError``/``InvalidValue`` and name the field; what contradicts the state is ``Conflict``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evermirror.core.pull.layers import ProjectChange as ProjectChange
from evermirror.core.pull.strategy import ExpectedDelay as ExpectedDelay
from evermirror.model.failure import FailureKind
from evermirror.model.figures import ClassProgress as ClassProgress
from evermirror.model.figures import ErrorFilter as ErrorFilter
from evermirror.model.figures import KindCount as KindCount
from evermirror.model.figures import Period as Period
from evermirror.model.figures import ProgressNote as ProgressNote
from evermirror.model.plan import PollPlan
from evermirror.model.pull import Load, Project, Strategy, Target, Wait, Waiting
from evermirror.model.push import RefStanding
from evermirror.model.repo import Priority, RepoKey, RepoRecord
from evermirror.model.report import Report as Report
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger


@dataclass(frozen=True, slots=True)
class StrategyView:
    """The strategy, and what follows from it at this moment."""

    strategy: Strategy
    time_zone: str
    in_peak: bool
    limit: int  # pulls that may run now
    running: int
    load: Load | None
    expected: Mapping[Priority, ExpectedDelay] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewProject:
    """What a POST says: ``change`` has what is optional."""

    name: str
    source_url: str
    source_credential: str | None
    change: ProjectChange


@dataclass(frozen=True, slots=True)
class ProjectView:
    """A project as people see it. A repo without a pull configuration is one too: ``configured`` is False,
    and its interval is the policy's (``interval_s`` of its config is then the gap it aims at)."""

    project: Project
    record: RepoRecord
    configured: bool
    running: bool
    effective_priority: Priority  # one lower than its own while it fails
    wait: Wait | None = None  # what its pending task waits for


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target ref by ref. ``refs``: those not equal first, bounded; ``total`` and ``equal`` count all that
    should be there and are; None where no worker says. ``seen_at``: of the last push that looked."""

    target: Target
    refs: tuple[RefStanding, ...]
    total: int | None
    equal: int | None
    seen_at: float | None


@dataclass(frozen=True, slots=True)
class ProjectPage:
    items: tuple[ProjectView, ...]
    total: int
    page: int
    size: int


@dataclass(frozen=True, slots=True)
class TaskPage:
    """``records``: the repos of these tasks, in a list over all projects."""

    items: tuple[TaskRecord, ...]
    total: int
    page: int
    size: int
    records: Mapping[RepoKey, RepoRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewestTasks:
    """Tasks of all projects, newest first, and what is known of their repos."""

    items: tuple[TaskRecord, ...]
    records: Mapping[RepoKey, RepoRecord]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far pull mirroring is, at ``now``; what waits, as its class does not run now; and what happened in
    a time that was asked about, in all and by priority."""

    now: float
    overall: ClassProgress
    by_priority: Mapping[Priority, ClassProgress]
    period: Period | None = None
    periods: Mapping[Priority, Period] = field(default_factory=dict)
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorStatistics:
    begin: float
    end: float
    total: int
    by_kind: Mapping[FailureKind, KindCount]


@dataclass(frozen=True, slots=True)
class BatchTriggered:
    """``unknown`` and ``disabled`` name projects that nothing was created for; ``already_pending`` counts
    those of ``task_ids`` that were there before; ``waiting`` what those wait for that have not begun."""

    task_ids: tuple[TaskId, ...]
    skipped_running: int
    unknown: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    already_pending: int = 0
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchUpdated:
    updated: int
    unknown: tuple[str, ...] = ()


class PullService(Protocol):
    async def strategy(self) -> StrategyView: ...

    async def set_strategy(self, values: Mapping[str, object], *, actor: str) -> StrategyView:
        """``values`` are fields of ``Strategy`` by name; those not given stay."""
        ...

    async def create_project(self, new: NewProject, *, actor: str) -> ProjectView:
        """``Conflict`` where the project key or the source is already there."""
        ...

    async def find_project(self, name: str, *, planned: bool = True) -> ProjectView:
        """``planned``: with the times of a repo without a pull configuration, which its worker is asked
        for."""
        ...

    async def plan(self, key: RepoKey) -> PollPlan | None:
        """When it is pulled next, and why then; None for a repo without a pull configuration."""
        ...

    async def targets(self, key: RepoKey) -> tuple[TargetState, ...]:
        """How each of its targets is; none for a repo without a pull configuration."""
        ...

    async def list_projects(
        self,
        *,
        search: str = "",
        priority: Priority | None = None,
        page: int = 1,
        size: int = 50,
        public: bool = False,
    ) -> ProjectPage:
        """Projects with a pull configuration, by name; ``public``: without private ones."""
        ...

    async def change_project(self, name: str, change: ProjectChange, *, actor: str) -> ProjectView: ...

    async def reset_project(self, name: str, *, actor: str) -> ProjectView:
        """What a person set is taken back: the catalog's word holds, or the defaults."""
        ...

    async def delete_project(self, name: str, *, actor: str) -> None:
        """The repo leaves the catalog, its mirror goes to the trash; targets stay as they are. It comes
        back, as it was, when the repo is undeleted. ``Conflict`` for one that a catalog file names."""
        ...

    async def set_priority(self, names: Sequence[str], priority: Priority, *, actor: str) -> BatchUpdated: ...

    async def progress(self, begin: float | None = None, end: float | None = None) -> Progress:
        """As of now; with both times also what happened between them."""
        ...

    async def course(self, begin: float, end: float) -> tuple[ProgressNote, ...]:
        """What the statistics job noted between two times, oldest first."""
        ...

    async def report(self, days: int, *, public: bool = False) -> Report:
        """Of the last so many days, and today; at most a minute old. ``public``: private projects are not
        named."""
        ...

    async def tasks(self, name: str, *, page: int = 1, size: int = 10) -> TaskPage:
        """Newest first."""
        ...

    async def newest_tasks(self, status: TaskStatus | None, before: TaskId | None, limit: int) -> NewestTasks:
        """Of all projects; ``before`` is the id of the last one already seen."""
        ...

    async def task(self, task_id: TaskId) -> tuple[TaskRecord, ProjectView | None]:
        """None: its repo has left the catalog."""
        ...

    async def trigger(
        self, name: str, *, force: bool = False, trigger: Trigger = Trigger.MANUAL, actor: str
    ) -> tuple[TaskRecord, bool]:
        """At once, outside the limit. ``Conflict`` while it runs, or where it is disabled; one that is
        pending is answered. And whether it is new."""
        ...

    async def trigger_batch(
        self, names: Sequence[str], priority: Priority | None, *, force: bool = False, actor: str
    ) -> BatchTriggered:
        """Those named, and those of the class where one is given. Within the limit."""
        ...

    async def errors(self, name: str | None, which: ErrorFilter, *, public: bool = False) -> TaskPage:
        """Tasks with a failure, newest first; of one project, or of all (``public``: but private ones)."""
        ...

    async def error_statistics(self, hours: float) -> ErrorStatistics: ...

    async def failed_projects(
        self, at_least: int, *, page: int = 1, size: int = 100, public: bool = False
    ) -> ProjectPage:
        """By failures in a row, most first; ``public``: without private ones."""
        ...

    async def reset_failures(self, name: str, *, actor: str) -> ProjectView:
        """Enabled, due at once, its targets too."""
        ...

    async def adopt_target(self, name: str, url: str | None, *, actor: str) -> ProjectView:
        """The next push, due at once, may overwrite what is at the target; without ``url``: at all. Enabled
        where its targets had paused it; ``Conflict`` where it is disabled otherwise."""
        ...
