"""Projects whose interval was stretched: it is to be as people set it again when the load is over."""

from __future__ import annotations

from dataclasses import dataclass, replace

from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey


@dataclass(frozen=True, slots=True)
class _Times:
    stretched: float
    usual: float


class Stretched:
    """Of each project at most the latest."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[RepoKey, _Times] = {}

    def __bool__(self) -> bool:
        return bool(self._times)

    def note(self, project: Project, now: float, interval_s: float) -> None:
        """Its ``next_sync_at`` is such an interval from now."""
        usual = now + project.config.interval_s
        if now + interval_s > usual:
            self._times[project.key] = _Times(now + interval_s, usual)
        else:
            self.forget(project.key)

    def forget(self, key: RepoKey) -> None:
        self._times.pop(key, None)

    def holds(self, project: Project) -> bool:
        """Whether its ``next_sync_at`` is such an interval after what came before."""
        times = self._times.get(project.key)
        return times is not None and times.stretched == project.next_sync_at

    def all(self) -> tuple[RepoKey, ...]:
        return tuple(self._times)

    def relaxed(self, project: Project, now: float) -> Project:
        """Due as without the stretch, but not before now; whatever else decided that since stands."""
        times = self._times.pop(project.key, None)
        if times is None or times.stretched != project.next_sync_at:
            return project
        return replace(project, next_sync_at=min(times.stretched, max(times.usual, now)))
