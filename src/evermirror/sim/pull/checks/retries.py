"""After a failure the next attempt comes when the table says: sooner at first, then as ever, then no more."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.core.pull.events import OpenTask, StartTask, TaskEnded
from evermirror.model.alert import Alert
from evermirror.model.failure import FailureKind
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskStatus
from evermirror.sim.pull.truth import Broken, Truth

COUNTED = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.UNKNOWN})
FINAL = frozenset({FailureKind.AUTH_FAILED, FailureKind.NOT_FOUND})
SLACK_S = 0.01
CALM = 4  # answers in a row, after which a source of at most 16 pulls at once has all its room again


class Retries:
    """All but the figures of a project's targets, which have their own tests."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self.paused = 0
        self.booted()

    def booted(self) -> None:
        """The machine knows nothing of its source's weather."""
        self._silent: set[RepoKey] = set()  # projects that timed out, and nothing answered since
        self._stormy = False
        self._answers = CALM  # since the weather

    def opened(self, order: OpenTask, now: float) -> None:
        """The next time is an interval from now, longer while the source is overloaded."""
        project, wanted_s = order.project, self._interval_s(order.project)
        if abs(project.next_sync_at - now - wanted_s) > SLACK_S:
            raise Broken(f"{project.key} is next due in {project.next_sync_at - now:.1f} s, not {wanted_s} s")

    def started(self, order: StartTask, project: Project) -> None:
        paused = {target.id for target in project.targets if target.paused}
        for to in order.push:
            if to.target in paused:
                raise Broken(f"{order.key} is pushed to {to.url}, which is paused")

    def ended(
        self, before: Project, event: TaskEnded, after: Project, alerts: Sequence[Alert], now: float
    ) -> None:
        if event.refused:
            self._same_failures(before, after)
        elif event.status is not TaskStatus.FAILED:
            self._silent.clear()
            self._answers += 1
            self._stormy = False
            self._succeeded(event, after)
        elif not event.pushes:
            self._source_failed(before, event, after, now)
        self._told(before, after, alerts)

    def _interval_s(self, project: Project) -> float:
        stretch = self._truth.settings.stretch if self._truth.overloaded() else 1.0
        return project.config.interval_s * stretch

    def _same_failures(self, before: Project, after: Project) -> None:
        if after.failures != before.failures or after.paused != before.paused:
            raise Broken(f"{after.key} has {after.failures} failures, and none was its own")

    def _succeeded(self, event: TaskEnded, after: Project) -> None:
        if after.last_sync_at != event.ended_at:
            raise Broken(f"{after.key} was synced at {event.ended_at}, and that is not noted")
        ill = [t for t in after.targets if t.failures or t.paused]
        if after.failures and len(ill) < max(1, len(after.targets)):
            raise Broken(f"{after.key} succeeded, and still has {after.failures} failures")

    def _source_failed(self, before: Project, event: TaskEnded, after: Project, now: float) -> None:
        kind = event.failure.kind if event.failure is not None else FailureKind.UNKNOWN
        if after.last_sync_at != before.last_sync_at:
            raise Broken(f"{after.key} failed, and counts as synced")
        if kind in FINAL and event.counted:
            if before.targets and before.config.enabled:
                self._must_be_paused(after)
        elif kind in COUNTED and event.counted and not self._is_weather(kind, before, after):
            self._counted(before, after, now)
        else:
            self._stormy |= kind in COUNTED or kind is FailureKind.RATE_LIMITED
            self._answers = 0 if self._stormy else self._answers
            self._same_failures(before, after)

    def _is_weather(self, kind: FailureKind, before: Project, after: Project) -> bool:
        """Whether a time-out is the source's: in bad weather, or the third project's; where the weather was
        bad a little while ago, as the machine has it."""
        if kind is not FailureKind.NETWORK_TIMEOUT:
            return False
        self._silent.add(after.key)
        if self._stormy or len(self._silent) >= 3:
            return True
        return self._answers < CALM and after.failures == before.failures

    def _counted(self, before: Project, after: Project, now: float) -> None:
        number, config = before.failures + 1, before.config
        if after.failures != number:
            raise Broken(f"{after.key} failed {number} times in a row, and {after.failures} are noted")
        if number >= self._truth.settings.pause_after:
            if config.enabled:
                self._must_be_paused(after)
            return
        wanted_s = config.retry_delay_s * 2 ** (number - 1)
        if number > config.max_retries:
            wanted_s = self._interval_s(before)
        if abs(after.next_sync_at - now - wanted_s) > SLACK_S:
            next_s = after.next_sync_at - now
            raise Broken(f"{after.key}: after failure {number} next in {next_s:.1f} s, not {wanted_s} s")

    def _must_be_paused(self, after: Project) -> None:
        self.paused += 1
        if after.config.enabled or not after.paused:
            raise Broken(
                f"{after.key} should be paused, with {after.failures} failures: {after.last_failure}"
            )

    def _told(self, before: Project, after: Project, alerts: Sequence[Alert]) -> None:
        """People hear of it when a project begins to fail, when it is paused, and of the ends of both."""
        bound = self._truth.settings.demote_after
        for kind, was, is_so in (
            ("project-failing", before.failures >= bound, after.failures >= bound),
            ("project-paused", bool(before.paused), bool(after.paused)),
        ):
            told = [a.over for a in alerts if a.kind == kind and a.about == after.name]
            if told != ([was] if was != is_so else []):
                raise Broken(f"{after.key}: {kind} went from {was} to {is_so}, and people heard {told}")
