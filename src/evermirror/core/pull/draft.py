"""A decision in the making: each project is saved once, as it is in the end."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.pull.events import OpenTask, PullDecision, StartTask
from evermirror.model.alert import Alert
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey

NOTHING = PullDecision()


class Draft:
    """Collects what one event leads to."""

    __slots__ = ("_alerts", "_logs", "_opens", "_saves", "_starts")

    def __init__(self) -> None:
        self._opens: list[OpenTask] = []
        self._saves: dict[RepoKey, Project] = {}
        self._starts: list[StartTask] = []
        self._alerts: list[Alert] = []
        self._logs: list[str] = []

    def save(self, project: Project) -> None:
        self._saves[project.key] = project

    def open(self, project: Project) -> None:
        """It is saved with its task."""
        self._saves.pop(project.key, None)
        self._opens.append(OpenTask(project, project.failures))

    def start(self, start: StartTask) -> None:
        self._starts.append(start)

    def alert(self, alerts: Iterable[Alert]) -> None:
        self._alerts += alerts

    def log(self, line: str | None) -> None:
        """None: there is nothing to be said."""
        if line is not None:
            self._logs.append(line)

    def decision(self) -> PullDecision:
        if not (self._opens or self._saves or self._starts or self._alerts or self._logs):
            return NOTHING
        return PullDecision(
            tuple(self._opens),
            tuple(self._saves.values()),
            tuple(self._starts),
            tuple(self._alerts),
            tuple(self._logs),
        )
