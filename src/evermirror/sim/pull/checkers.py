"""All promises of pull mirroring, asked at every step of a simulated day."""

from __future__ import annotations

from evermirror.core.pull.events import Event, OpenTask, PullDecision, StartTask, TaskEnded
from evermirror.model.pull import Project
from evermirror.model.repo import RepoKey
from evermirror.model.task import Trigger
from evermirror.sim.pull.checks.alarms import Alarms
from evermirror.sim.pull.checks.limits import Limits
from evermirror.sim.pull.checks.punctual import Punctual
from evermirror.sim.pull.checks.retries import Retries
from evermirror.sim.pull.checks.weather import Weather
from evermirror.sim.pull.store import OpenRow
from evermirror.sim.pull.truth import Broken, Truth

STARTS_A_MINUTE = 5  # of one project: a task that ends at once must not be started over and over


class Checkers:
    """``cpu_max``: the share of the source's processors that we may keep busy over a minute; None: any."""

    def __init__(
        self, truth: Truth, now: float, *, warm_up_s: float, cron_s: float, cpu_max: float | None
    ) -> None:
        self._truth = truth
        self._cpu_max = cpu_max
        self.limits = Limits(truth)
        self.weather = Weather()
        self.retries = Retries(truth)
        self.punctual = Punctual(truth, now, warm_up_s, cron_s)
        self.alarms = Alarms(truth)
        self._starts: dict[RepoKey, int] = {}
        self.starts_a_minute = 0
        self._starts_now = 0

    def booted(self, now: float) -> None:
        self.limits.booted()
        self.retries.booted()
        self.weather.booted(now)

    def opened(self, row: OpenRow, order: OpenTask, before: Project, now: float) -> None:
        if row.trigger is Trigger.SCHEDULE:
            if not self.weather.excuses(now):
                self.punctual.opened(before, now)
            self.limits.opened(row, order, now)
            self.weather.opened(row.id, now)
            self.retries.opened(order, now)

    def started(self, order: StartTask, now: float) -> None:
        row = self._truth.store.open.get(order.task_id)
        if row is None:
            raise Broken(f"{order.key}: task {order.task_id} is started, and is not open")
        self.limits.started(order, row, now)
        self.retries.started(order, self._truth.store.projects[order.key])
        self._starts_now += 1
        self._starts[order.key] = self._starts.get(order.key, 0) + 1
        if self._starts[order.key] > STARTS_A_MINUTE:
            raise Broken(f"{order.key} was started {self._starts[order.key]} times in a minute")

    def decided(self, event: Event, before: Project | None, decision: PullDecision, now: float) -> None:
        """``before``: the project as it was; the store has it as it is."""
        if isinstance(event, TaskEnded):
            self.limits.ended(event.task_id)
            self.weather.ended(event, self._truth.figure(now), now)
            if before is not None:
                opened = (
                    o.project for o in decision.opens if o.project.key == event.key
                )  # due again at once
                after = next(opened, self._truth.store.projects[event.key])
                self.retries.ended(before, event, after, decision.alerts, now)

    def tick(self, now: float) -> None:
        self.limits.tick(now)
        excused = self.weather.excuses(now)
        self.punctual.tick(now, excused)
        self.alarms.tick(now, excused)
        self.starts_a_minute = max(self.starts_a_minute, self._starts_now)
        self._starts.clear()
        self._starts_now = 0
        source = self._truth.source
        source.account(now)
        if self._cpu_max is not None and source.peak_share > self._cpu_max:
            raise Broken(f"we kept {source.peak_share:.0%} of the source's processors busy for a minute")
