"""All promises of pull mirroring, asked at every step of a simulated day."""

from __future__ import annotations

from collections.abc import Sequence

from evermirror.core.pull.events import Event, OpenTask, PullDecision, StartTask, TaskEnded
from evermirror.model.alert import Alert
from evermirror.model.failure import FailureKind
from evermirror.model.pull import LoadLevel, Project
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus, Trigger
from evermirror.sim.pull.world import TICK_S, OpenRow
from tests.support.sim.pull.truth import LIMITED, Broken, Truth

# Never more at once than the strategy says, in peak hours only the urgent, and one task for each project.

LATE_LOAD_S = 120.0  # an overload is told every minute, and each step of the limit takes one
SPARED = 2  # what is left after enough of them


class Limits:
    """A task of the schedule takes its room when it is opened, one of a batch when it starts."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._room: set[TaskId] = set()
        self._overloaded_since: float | None = None
        self.most = 0  # that ever ran at once

    @property
    def used(self) -> int:
        return len(self._room)

    def opened(self, row: OpenRow, order: OpenTask, now: float) -> None:
        """By the schedule."""
        truth, project = self._truth, order.project
        others = [r for r in truth.store.open.values() if r.key == row.key and r.id != row.id]
        if others:
            raise Broken(f"{row.key} has two tasks: {row} and {others[0]}")
        if not project.config.enabled:
            raise Broken(f"{row.key} is disabled, and was started")
        if not truth.strategy.enabled:
            raise Broken(f"the strategy is off, and {row.key} was started")
        rank = truth.rank(project)
        if truth.in_peak(now) and rank > Priority.HIGH.rank:
            raise Broken(f"{row.key} ({_name(rank)}) was started in peak hours")
        if not truth.may_run(rank, now):
            raise Broken(f"{row.key} ({_name(rank)}) was started while the source is overloaded")
        self._take(row.id, now)

    def started(self, order: StartTask, row: OpenRow, now: float) -> None:
        if row.trigger in LIMITED and order.task_id not in self._room:
            self._take(order.task_id, now)

    def ended(self, task: TaskId) -> None:
        self._room.discard(task)

    def booted(self) -> None:
        """Who ran goes on: each has its room. What waited, or had not begun, waits again."""
        store = self._truth.store
        self._room = {i for i in store.begun if store.open[i].trigger in LIMITED}
        self._overloaded_since = None

    def tick(self, now: float) -> None:
        if not self._truth.overloaded():
            self._overloaded_since = None
        elif self._overloaded_since is None:
            self._overloaded_since = now

    def _take(self, task: TaskId, now: float) -> None:
        self._room.add(task)
        self.most = max(self.most, self.used)
        figure, since = self._truth.figure(now), self._overloaded_since
        if since is not None and self._truth.overloaded() and now - since > LATE_LOAD_S + 60.0 * figure:
            figure = min(figure, SPARED)
        if self.used > figure:
            raise Broken(f"{self.used} run at once, and {figure} may")


def _name(rank: int) -> str:
    return next(p.value for p in Priority if p.rank == rank)


# A source in bad weather is left alone, probed ever more rarely, and then used again step by step.

PAUSE_FIRST_S, PAUSE_LAST_S = 60.0, 600.0
ROOM_FIRST = 2
BACKLOG_S = 900.0  # given to what waited for the source, or while its class might not run
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


# Nobody is started much later than it was due, apart from what its class, the source or a crash excuse.

BOUNDS_S = {  # from its time until it is started, while its class may run
    Priority.CRITICAL.rank: 60.0,
    Priority.HIGH.rank: 180.0,
    Priority.NORMAL.rank: 900.0,
    Priority.LOW.rank: 1800.0,
}
TASK_MAX_S = 3600.0  # no task is open for longer than this and its excuses
OVERLOADED = 0.8  # others keep so much of the source busy that everything takes many times as long
SLOW_SHARE = 0.8  # of that time is excused
BOOT_S = 120.0  # given to what waited for the coordinator


class Punctual:
    """Excused time is added up for each class, minute by minute: what is late is late beyond it.

    ``cron_s``: the schedule wakes by a cron only, so far apart."""

    def __init__(self, truth: Truth, began_at: float, warm_up_s: float, cron_s: float) -> None:
        self._truth = truth
        self._bounds_s = {rank: bound_s + cron_s for rank, bound_s in BOUNDS_S.items()}
        self._began_at = began_at
        self._warm_until = began_at + warm_up_s
        self._excused_s: dict[int, list[float]] = {rank: [0.0] for rank in BOUNDS_S}
        self._busy_until = dict.fromkeys(BOUNDS_S, began_at)
        self._slow_until = began_at
        self.latest_s = dict.fromkeys(BOUNDS_S, 0.0)

    def tick(self, now: float, weather: bool) -> None:
        """Every minute; ``weather``: the source excuses everybody."""
        truth = self._truth
        for rank, added in self._excused_s.items():
            if not truth.may_run(rank, now):
                self._busy_until[rank] = now + BACKLOG_S
            excused = truth.away or weather or now < self._warm_until or now < self._busy_until[rank]
            added.append(added[-1] + TICK_S * (1.0 if excused else self._slow_share(now)))
        if truth.away:
            return
        running = {row.key for row in truth.store.open.values()}
        for project in truth.store.projects.values():
            if project.next_sync_at < now and project.config.enabled and project.key not in running:
                self._look_at(project, now)
        for row in truth.store.open.values():
            self._look_at_task(row, now)

    def opened(self, project: Project, now: float) -> None:
        """By the schedule; as it was before. Judged to the second where nothing is excused."""
        rank, due_at = self._truth.rank(project), project.next_sync_at
        late_s, added = now - due_at, self._excused_s[rank]
        if added[-1] == added[self._minute(due_at - TICK_S, added)] and not self._excuses(rank, now):
            self.latest_s[rank] = max(self.latest_s[rank], late_s)
            if late_s > self._bounds_s[rank]:
                raise Broken(f"{project.key} was started {late_s:.1f} s late: {project}")

    def _excuses(self, rank: int, now: float) -> bool:
        booting = self._truth.booted_at + BOOT_S
        return now < max(self._warm_until, self._busy_until[rank], self._slow_until, booting)

    def _slow_share(self, now: float) -> float:
        if self._truth.source.others >= OVERLOADED:
            self._slow_until = now + BACKLOG_S
        return SLOW_SHARE if now < self._slow_until else 0.0

    def _late_s(self, since: float, rank: int, now: float) -> float:
        added = self._excused_s[rank]
        return now - since - (added[-1] - added[self._minute(since, added)])

    def _minute(self, time: float, added: list[float]) -> int:
        return min(max(0, int((time - self._began_at) / TICK_S)), len(added) - 1)

    def _look_at(self, project: Project, now: float) -> None:
        rank = self._truth.rank(project)
        late_s = self._late_s(project.next_sync_at, rank, now)
        if late_s > self._bounds_s[rank] + 2 * TICK_S:
            raise Broken(f"{project.key} ({project.config.priority.value}) is {late_s:.0f} s late: {project}")

    def _look_at_task(self, row: OpenRow, now: float) -> None:
        rank = self._truth.rank(self._truth.store.projects[row.key])
        if self._late_s(row.opened_at, rank, now) > TASK_MAX_S:
            raise Broken(f"{row} has been open for {now - row.opened_at:.0f} s")


# After a failure the next attempt comes when the table says: sooner at first, then as ever, then no more.

COUNTED = frozenset({FailureKind.NETWORK_TIMEOUT, FailureKind.UNKNOWN})
FINAL = frozenset({FailureKind.AUTH_FAILED, FailureKind.NOT_FOUND})
RETRY_SLACK_S = 0.01
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
        if abs(project.next_sync_at - now - wanted_s) > RETRY_SLACK_S:
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
        if abs(after.next_sync_at - now - wanted_s) > RETRY_SLACK_S:
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


# The source counts as overloaded when it is, and hardly ever when it is not.

NOTICED_S = 1200.0  # that it may take to notice either
WRONG_SHARE = 0.05  # of all minutes
MISSED_SHARE = 0.5  # of the minutes of an overload, where only our own polls tell


class Alarms:
    """Asked every minute."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._since = 0.0  # the source is as it is now
        self._was = False
        self.minutes = self.wrong = self.overloaded = self.missed = 0

    def tick(self, now: float, excused: bool) -> None:
        """``excused``: time-outs tell nothing about its load."""
        truth = self._truth
        is_so = truth.source.others >= OVERLOADED
        if is_so is not self._was or excused or truth.away or now < truth.booted_at + NOTICED_S:
            self._since, self._was = now, is_so
        if now < self._since + NOTICED_S:
            return
        believed = truth.load is LoadLevel.HIGH
        self.minutes += 1
        self.wrong += believed and not is_so
        self.overloaded += is_so
        self.missed += is_so and truth.load is not None and not believed

    def settled(self) -> None:
        if self.wrong > WRONG_SHARE * self.minutes:
            raise Broken(
                f"in {self.wrong} of {self.minutes} minutes the source seemed overloaded and was not"
            )
        if self.missed > MISSED_SHARE * self.overloaded:
            raise Broken(f"{self.missed} of {self.overloaded} minutes of overload were not noticed")


# All of them

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
