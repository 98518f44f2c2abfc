"""The part of the store that tells what happened to projects, and how far they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from evermirror.edge.store import pull_course, pull_history, pull_progress, pull_report
from evermirror.edge.store.part import StorePart
from evermirror.edge.store.whole import whole
from evermirror.model.failure import FailureKind
from evermirror.model.figures import ClassProgress, ErrorFilter, KindCount, Period, Pressure, ProgressNote
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.report import ReportFacts, Span
from evermirror.model.task import TaskId, TaskRecord, TaskStatus


class HistoryStore(StorePart):
    async def task_page(self, repo: RepoKey, page: int, size: int) -> tuple[tuple[TaskRecord, ...], int]:
        """Newest first, and how many there are."""
        return await whole(pull_history.task_page(self._db, repo, page, size))

    async def newest_tasks(
        self, status: TaskStatus | None, before: TaskId | None, limit: int
    ) -> tuple[TaskRecord, ...]:
        """Of all repos, newest first; ``before`` is the id of the last one already seen."""
        return await whole(pull_history.newest_tasks(self._db, status, before, limit))

    async def error_page(
        self, repo: RepoKey | None, which: ErrorFilter, *, public: bool = False
    ) -> tuple[tuple[TaskRecord, ...], int]:
        """Tasks with a failure, of one repo or of all: newest end first, and how many there are.
        ``public``: without those of private repos."""
        return await whole(pull_history.error_page(self._db, repo, which, public=public))

    async def error_statistics(self, begin: float, end: float) -> Mapping[FailureKind, KindCount]:
        """Kinds that occurred, most frequent first."""
        return await whole(pull_history.error_statistics(self._db, begin, end))

    async def periods(self, begin: float, end: float) -> Mapping[Priority, Period]:
        """What ended between these times, by the class of its repo then."""
        return await whole(pull_history.periods(self._db, begin, end))

    async def pull_progress(
        self, now: float, syncing: Collection[RepoKey]
    ) -> Mapping[Priority, ClassProgress]:
        """Every class, also those without a project."""
        return await whole(pull_progress.progress(self._db, now, syncing))

    async def note_progress(
        self,
        at: float,
        overall: ClassProgress,
        classes: Mapping[Priority, ClassProgress] = MappingProxyType({}),
        pressure: Pressure | None = None,
    ) -> None:
        await whole(pull_course.note(self._db, ProgressNote(at, overall, classes, pressure)))

    async def progress_course(self, begin: float, end: float) -> tuple[ProgressNote, ...]:
        """Oldest first."""
        return await whole(pull_course.course(self._db, begin, end))

    async def report_facts(self, span: Span, *, public: bool = False) -> ReportFacts:
        """What a report is made from; ``public``: without the names of private projects."""
        return await whole(pull_report.report_facts(self._db, span, public=public))
