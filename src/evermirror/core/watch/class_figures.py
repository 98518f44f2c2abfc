"""Projects of each priority in figures that follow every change: how long ago they were synced, and how many
are verified equal.

*Lag* is of enabled projects: ``now - last_sync_at``. One that was never synced counts from when it was made,
in the worst and in the average: a class where nothing works from the start must not look like the best.

*Verified equal* is a project every target of which took all that the mirror has: the latest push to each
ended well, and the mirror has not moved since. One that was not is equal again when a report says that all
its targets were served, and not before: forgiving failures serves nobody. It is asked of projects with
targets that are enabled, or that were given up after failures: what is broken makes the figure worse, and not
better by being paused.

A walk through all projects would hold up everything else. So each change of a project is counted when it is
seen: in a sum that is exact (whole milliseconds), and by the second that its lag counts from, of which there
are few enough to look for the least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from evermirror.core.pull.layers import is_wanted
from evermirror.model.messages import Synced
from evermirror.model.pull import Project, Target
from evermirror.model.push import TargetId
from evermirror.model.refs import short_digest
from evermirror.model.repo import Priority, RepoKey


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """One priority at a moment. Lags are None where no project is enabled; the worst is to the second."""

    projects: int = 0  # enabled
    with_targets: int = 0  # of which it is asked whether they are equal
    equal: int = 0
    lag_average_s: float | None = None
    lag_worst_s: float | None = None

    @property
    def equal_share(self) -> float:
        return self.equal / self.with_targets if self.with_targets else 1.0


@dataclass(slots=True)
class _Row:
    """What is known of one project."""

    priority: Priority
    enabled: bool = False
    since_ms: int = 0  # its lag counts from here
    targets: tuple[TargetId, ...] = ()  # empty: nothing is asked of them
    well: bool = True  # all of them, by their latest push
    mirror: int = 0  # the digest of its refs, in short; 0: not known since the start
    behind: bool = False  # a target was not well, or the mirror moved, and not all were served since

    @property
    def since(self) -> int:
        """The second."""
        return self.since_ms // 1000

    @property
    def equal(self) -> bool:
        return self.well and not self.behind


@dataclass(slots=True)
class _Class:
    enabled: int = 0
    since_ms: int = 0  # the sum
    with_targets: int = 0
    equal: int = 0
    since: dict[int, int] = field(default_factory=dict)  # projects by second

    def count(self, row: _Row, by: int) -> None:
        self.with_targets += by * bool(row.targets)
        self.equal += by * (bool(row.targets) and row.equal)
        if not row.enabled:
            return
        self.enabled += by
        self.since_ms += by * row.since_ms
        self.since[row.since] = self.since.get(row.since, 0) + by
        if not self.since[row.since]:
            del self.since[row.since]

    def figures(self, now: float) -> ClassFigures:
        average_s = now - self.since_ms / self.enabled / 1000 if self.enabled else None
        return ClassFigures(
            self.enabled,
            self.with_targets,
            self.equal,
            None if average_s is None else max(0.0, average_s),
            max(0.0, now - min(self.since)) if self.since else None,
        )


class ByClass:
    """``saw`` a project, ``synced`` by a report, ``forget``; then ``figures``."""

    def __init__(self) -> None:
        self._rows: dict[RepoKey, _Row] = {}
        self._classes = {priority: _Class() for priority in Priority}

    def saw(self, project: Project) -> None:
        """As it is now."""
        row = self._rows.get(project.key)
        if row is None:
            row = self._rows[project.key] = _Row(project.config.priority)
        else:
            self._classes[row.priority].count(row, -1)
        asked = project.targets if is_wanted(project) else ()
        at = project.last_sync_at
        row.priority = project.config.priority
        row.enabled = project.config.enabled
        row.since_ms = round((project.created_at if at is None else at) * 1000)
        row.targets = tuple(target.id for target in asked)
        stood_well, row.well = row.well, all(_is_served(target) for target in asked)
        row.behind = row.behind or (stood_well and not row.well)
        self._classes[row.priority].count(row, 1)

    def synced(self, report: Synced) -> None:
        """What the mirror has by now, and which targets have it too."""
        row = self._rows.get(report.key)
        if row is None:
            return
        served = {push.target for push in report.pushes if push.failure is None}
        mirror = short_digest(report.digest)
        moved = mirror != row.mirror if row.mirror else bool(report.changes_total) and not report.first
        self._classes[row.priority].count(row, -1)
        row.behind = not served.issuperset(row.targets) and (row.behind or moved)
        row.mirror = mirror
        self._classes[row.priority].count(row, 1)

    def forget(self, key: RepoKey) -> None:
        """It is no project any more."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._classes[row.priority].count(row, -1)

    def figures(self, now: float) -> Mapping[Priority, ClassFigures]:
        return {priority: found.figures(now) for priority, found in self._classes.items()}


def _is_served(target: Target) -> bool:
    return target.put is not None and not target.failures and not target.paused
