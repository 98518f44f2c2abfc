"""A source in bad weather is left alone, probed ever more rarely, and then used again step by step."""

from __future__ import annotations

from evermirror.core.pull.events import TaskEnded
from evermirror.model.task import TaskId, TaskStatus
from evermirror.sim.pull.truth import Broken

PAUSE_FIRST_S, PAUSE_LAST_S = 60.0, 600.0
ROOM_FIRST = 2
BACKLOG_S = 900.0  # that what waited is given when the source is back
SLACK_S = 0.001


class Weather:
    """``room``: None while it is calm; 0 from its closing until a success."""

    def __init__(self) -> None:
        self._room: int | None = None
        self._closed_until = 0.0
        self._failed = 0  # probes since the last success
        self._begun: set[TaskId] = set()  # since it closed
        self._calm_at = 0.0

    def excuses(self, now: float) -> bool:
        """Whether lateness is the source's fault, or of what waited for it."""
        return self._room is not None or now < self._calm_at + BACKLOG_S

    def opened(self, task: TaskId, now: float) -> None:
        """By the schedule."""
        if self._room is None:
            return
        if now < self._closed_until - SLACK_S:
            raise Broken(f"the source is to be left alone until {self._closed_until:.1f}, and is asked")
        self._begun.add(task)
        allowed = max(1, self._room)
        if len(self._begun) > allowed:
            raise Broken(f"the source is just back, and is asked {len(self._begun)} at once, not {allowed}")

    def ended(self, event: TaskEnded, limit: int, now: float) -> None:
        self._begun.discard(event.task_id)
        if event.refused:
            return
        if event.status is TaskStatus.FAILED and not event.counted:
            self._closes(event, now)
        elif event.look_s is not None and self._room is not None:
            self._succeeded(limit, now)

    def booted(self, now: float) -> None:
        """A machine that starts knows of no weather."""
        if self._room is not None:
            self._calm_at = now
        self._room, self._failed = None, 0
        self._begun.clear()

    def _closes(self, event: TaskEnded, now: float) -> None:
        asked_s = event.failure.retry_after_s if event.failure is not None else None
        if self._room is None:
            self._begun.clear()
        if now >= self._closed_until or self._room is None:
            self._failed += 1
            pause_s = min(PAUSE_FIRST_S * 2 ** (self._failed - 1), PAUSE_LAST_S)
            self._closed_until = now + (pause_s if asked_s is None else asked_s)
        self._room = 0

    def _succeeded(self, limit: int, now: float) -> None:
        self._failed, self._closed_until = 0, now
        self._room = max(ROOM_FIRST, 2 * (self._room or 0))
        if self._room >= limit:
            self._room, self._calm_at = None, now
