"""Projects as people see them: those with a pull configuration, and repos that workers poll by themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence

from evermirror.core.pull.retry import effective_priority
from evermirror.edge.store.store import Store
from evermirror.errors import NotFound, Unavailable
from evermirror.model.pull import INTERVALS_S, Project, PullConfig
from evermirror.model.repo import RepoKey, RepoRecord
from evermirror.model.task import TaskStatus
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.pull_service import ProjectView


class ProjectViews:
    """``syncing`` tells what is being synced at this moment."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        pulling: Pulling,
        syncing: Callable[[], Collection[RepoKey]],
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._pulling = pulling
        self._syncing = syncing
        self._clock = clock

    async def of(self, record: RepoRecord, *, planned: bool = True) -> ProjectView:
        """``planned``: the worker of a repo without a pull configuration is asked when it looks; that may
        take as long as it is silent."""
        project = self._pulling.project(record.key)
        if project is None:
            return await self._adaptive(record, planned)
        return self._pulled(project, record)

    async def all(self, projects: Sequence[Project]) -> tuple[ProjectView, ...]:
        """As they are by now; one that left in between is left out."""
        records = await self._store.find_repos([project.key for project in projects])
        return tuple(
            self._pulled(self._pulling.project(stored.key) or stored, records[stored.key])
            for stored in projects
            if stored.key in records
        )

    def _pulled(self, project: Project, record: RepoRecord) -> ProjectView:
        machine = self._pulling.machine
        return ProjectView(
            project,
            record,
            True,
            machine.is_running(record.key),
            effective_priority(project, machine.settings.demote_after),
            machine.wait(record.key, self._clock()),
        )

    async def _adaptive(self, record: RepoRecord, planned: bool) -> ProjectView:
        """Its worker says when it looks; where that is silent or not asked, the interval of its class stands
        in."""
        spec = record.spec
        gap_s: float | None = None
        next_at: float | None = None
        if planned:
            with contextlib.suppress(NotFound, Unavailable):
                plan = await self._coordinator.plan(record.key)
                gap_s, next_at = plan.gap_s, plan.next_poll_at
        status = None
        if record.verified_at is not None or record.consecutive_failures:
            status = TaskStatus.FAILED if record.consecutive_failures else TaskStatus.SUCCESS
        project = Project(
            spec.key,
            record.alias or spec.key,
            spec.host,
            PullConfig(spec.priority, spec.interval_s or gap_s or INTERVALS_S[spec.priority], record.enabled),
            source_credential=spec.credential,
            last_sync_at=record.verified_at,
            next_sync_at=next_at or 0.0,
            failures=record.consecutive_failures,
            last_status=status,
            last_failure=record.last_failure,
            last_failure_at=record.last_failure_at,
            created_at=record.created_at,
            updated_at=record.updated_at,
        )
        return ProjectView(project, record, False, spec.key in self._syncing(), spec.priority)
