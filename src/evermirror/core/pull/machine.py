"""The mind of pull mirroring: one door for everything that happens, and what follows from it.

    event ──▶ handle ──▶ the project's state ──▶ its place in the queue ──▶ free slots are filled
                                                                                 │
                                                                                 ▼
                                                  PullDecision(opens, saves, starts, alerts, logs)

One project:

                  due, room, its class may run                TaskOpened
       ┌▶ waiting ────────────────────────────▶ opening ───────────────────────┐
       │    │ ▲                                    │                           ▼
       │    │ └──── ProjectPut: was impossible ────┘                        running ──TaskEnded of the last─┐
       │    │ TaskOpened: MANUAL_BATCH, or of      room, its class may run     ▲                            │
       │    │ the schedule after a restart                          TaskBegan  │                            │
       │    └───────────────────────────▶ waiting for room ────────────────────┤                            │
       │                      TaskOpened: MANUAL, API, WEBHOOK, from anywhere ─┘                            │
       └────────────────────────────────────────────────────────────────────────────────────────────────────┘
    disabled, by failures or a person: it does not wait, but runs when it is asked for

Rules
- Saves and opens are in the store before anything starts. What a new machine is told of the store is all
  that it needs: tasks that ran go on, and are given out once more (that is harmless); the others wait.
- Due: enabled, next_sync_at ≤ now, fewer than ``pause_after`` failures, no open task. Order: class (one
  lower while it fails), batches before the schedule's, oldest sync, key.
- The schedule and batches start while fewer run than the limit, in classes that may run now (strategy.py),
  at hosts that may be asked (sources.py). What people start by hand runs at once, and counts as running. A
  strategy that is off stops the schedule and nothing else.
- Never two tasks of a project by the machine's own will. Whoever asks while one runs is passed on: the
  worker makes one more round of it. Several tasks that one sync answered count once.
- A refused task says nothing: the project is due again soon. A task that nobody can do now (its repo has no
  worker) is set aside: it takes no room, and waits for some, as a batch does, when somebody can.
- Before the first ``Woke`` nothing is opened: by then all was told, and what was open and was not has gone.
- With ``by_cron`` projects become due at a cron's times only, and are then started as slots free up.
- The parts: pace (how many), queue, sources (who), outcome (what an end means). This file only routes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import tzinfo

from evermirror.core.pull.draft import Draft
from evermirror.core.pull.events import (
    Event,
    FailureExcused,
    LoadSeen,
    ProjectPut,
    ProjectRemoved,
    PullDecision,
    StartTask,
    StrategySet,
    TaskBegan,
    TaskEnded,
    TaskOpened,
    TaskSetAside,
    TaskTakenUp,
    Woke,
)
from evermirror.core.pull.hearing import hear, judged, weather_over
from evermirror.core.pull.outcome import Moment, alerts_between, conclude, excuse, unremarkable
from evermirror.core.pull.pace import Pace
from evermirror.core.pull.queue import DueQueue
from evermirror.core.pull.reasoning import Grounds, class_wait, plan_of, wait_of
from evermirror.core.pull.retry import longest_wait_s
from evermirror.core.pull.roll import Roll
from evermirror.core.pull.settings import PullSettings
from evermirror.core.pull.silence import Silence
from evermirror.core.pull.sources import Sources
from evermirror.core.pull.strategy import ALL
from evermirror.core.pull.stretched import Stretched
from evermirror.core.pull.tracked import AT_ONCE, OpenOne, Tracked, due_at
from evermirror.core.pull.views import PullView
from evermirror.model.plan import PollPlan
from evermirror.model.pull import MINUTE, Project, Strategy, Wait, Waiting
from evermirror.model.repo import Host, RepoKey
from evermirror.model.task import TaskId, Trigger

CLOCK_BACK_S = MINUTE  # less only makes projects a little late
REFUSED_S = MINUTE  # until a project is due again whose task nobody could do
REFUSED_SHARE = 0.1  # of the interval, where that is longer


class PullMachine(Roll):
    """Handles one event at a time; ``now`` in UTC seconds."""

    def __init__(self, settings: PullSettings, zone: tzinfo, strategy: Strategy | None = None) -> None:
        super().__init__()
        self.settings = settings
        self._zone = zone
        self._pace = Pace(strategy or Strategy(), zone, settings)
        self._queue = DueQueue()
        self._sources = Sources()
        self._silence = Silence()
        self._stretched = Stretched()
        self._awake = False
        self._last: float | None = None

    def anew(self) -> PullMachine:
        """One with the same settings that knows no project yet."""
        return PullMachine(self.settings, self._zone)

    # Views

    @property
    def strategy(self) -> Strategy:
        return self._pace.strategy

    def view(self, now: float) -> PullView:
        allowed, hours = self._pace.allowance(now), self._pace.hours(now)
        return PullView(
            allowed.limit,
            allowed.classes,
            hours.in_peak,
            hours.at_night,
            len(self._busy),
            {p: self._queue.ready[p.rank] for p in ALL},
            self._pace.load(now),
            self._sources.closed(now),
            len(self._tracked),
        )

    def plan(self, key: RepoKey, now: float) -> PollPlan | None:
        """When it is pulled next, and why then; None: no project."""
        tracked = self._tracked.get(key)
        return plan_of(tracked, self._grounds(now)) if tracked is not None else None

    def wait(self, key: RepoKey, now: float) -> Wait | None:
        """What its task that was asked for waits for; None: nothing."""
        tracked = self._tracked.get(key)
        return wait_of(tracked, self._grounds(now)) if tracked is not None else None

    def held(self, now: float) -> tuple[Waiting, ...]:
        """How many are due, or asked for, in classes that do not run now."""
        grounds, counts = self._grounds(now), Counter[Wait]()
        for priority in ALL:
            count = self._queue.ready[priority.rank]
            if count and (wait := class_wait(priority.rank, grounds)) is not None:
                counts[wait] += count
        return tuple(Waiting(wait, count) for wait, count in counts.items())

    def _grounds(self, now: float) -> Grounds:
        return Grounds(self.settings, self._pace, self._sources, self._stretched, len(self._busy), now)

    def next_wake(self, now: float) -> float | None:
        """When to say ``Woke`` if nothing happens before; None: time alone changes nothing."""
        if not self._awake:
            return now
        times = [self._pace.next_at(now), self._sources.next_at()]
        has_room = len(self._busy) < self._pace.allowance(now).limit
        if has_room and self.strategy.enabled and not self.settings.by_cron:
            times.append(self._queue.next_at())
        return min((at for at in times if at is not None), default=None)

    # The door

    def handle(self, event: Event, now: float) -> PullDecision:
        draft = Draft()
        self._mind_the_clock(now, draft)
        if not self.settings.by_cron:
            self._queue.release(now)
        match event:
            case ProjectPut():
                self._put(event.project, now, draft)
            case ProjectRemoved():
                self._removed(event.key, draft)
            case StrategySet():
                self._pace.set_strategy(event.strategy)
            case LoadSeen():
                self._pace.outside.tell(event.load, now)
            case TaskOpened():
                self._opened(event, now, draft)
            case TaskBegan() | TaskSetAside() | TaskTakenUp():
                self._stands(event, now, draft)
            case TaskEnded():
                self._ended(event, now, draft)
            case FailureExcused():
                self._excused(event.key, 1, draft)
            case Woke():
                self._woke(event, now, draft)
        self._relax(now, draft)
        self._fill(now, draft)
        return draft.decision()

    def _fill(self, now: float, draft: Draft) -> None:
        """As many as may run, the next ones first."""
        for host in self._sources.reopened(now):
            self._queue.unpark(host)
        draft.log(self._pace.step(now))
        if not self._awake:
            return
        allowed, batches_only = self._pace.allowance(now), not self.strategy.enabled
        ranks = allowed.ranks

        def has_room(host: Host) -> bool:
            return self._sources.has_room(host, now)

        while len(self._busy) < allowed.limit:
            waiter = self._queue.take(ranks, has_room, batches_only=batches_only)
            if waiter is None:
                return
            self._launch(self._tracked[waiter.key], now, draft)

    def _launch(self, tracked: Tracked, now: float, draft: Draft) -> None:
        """Its turn has come: a batch task that waited, or the schedule."""
        waiting = tracked.batch_waiting()
        if waiting is None:
            tracked.opening = True
            tracked.project = self._moved_on(tracked.project, now)
            draft.open(tracked.project)
        else:
            task_id, task = waiting
            self._start(tracked, task_id, task, now, draft)
        self._count(tracked)

    def _start(self, tracked: Tracked, task_id: TaskId, task: OpenOne, now: float, draft: Draft) -> None:
        task.running, task.aside, task.renewed = True, False, frozenset()
        if task.trigger is not Trigger.SCHEDULE:
            tracked.project = self._moved_on(tracked.project, now)
            draft.save(tracked.project)
        draft.start(StartTask(tracked.key, task_id, tracked.push_to(task.trigger, now)))

    def _moved_on(self, project: Project, now: float) -> Project:
        """Due again an interval from now."""
        interval_s = self._interval_s(project, now)
        self._stretched.note(project, now, interval_s)
        return due_at(project, now + interval_s)

    def _interval_s(self, project: Project, now: float) -> float:
        return self._pace.stretched(project.config.interval_s, now)

    def _relax(self, now: float, draft: Draft) -> None:
        """The load is over: nobody waits longer than an interval any more."""
        if not self._stretched or self._pace.stretches(now):
            return
        for tracked in [self._tracked[key] for key in self._stretched.all()]:
            self._change(tracked, self._stretched.relaxed(tracked.project, now), draft)
            self._settle(tracked)

    # Where a project stands

    def _settle(self, tracked: Tracked) -> None:
        """Counted as running, or in its place in the queue, as its state says."""
        self._queue.leave(tracked)
        self._count(tracked)
        if not tracked.busy:
            at = tracked.take_place(self.settings)
            if at is not None:
                self._queue.enter(tracked, at)

    def _count(self, tracked: Tracked) -> None:
        runs = tracked.runs
        if runs and not tracked.busy:
            self._busy.add(tracked.key)
            self._sources.began(tracked.host)
        elif tracked.busy and not runs:
            self._busy.discard(tracked.key)
            self._sources.ended(tracked.host)
            self._queue.unpark(tracked.host)
        tracked.busy = runs

    # Projects

    def _put(self, project: Project, now: float, draft: Draft) -> None:
        tracked = self._tracked.get(project.key)
        longest_s = self._longest_wait_s(project)
        if tracked is None:
            tracked = self._tracked[project.key] = Tracked(project)
            self._sources.moved_in(project.host)
        else:
            before = tracked.project
            draft.alert(alerts_between(before, project, self.settings))
            self._queue.leave(tracked)
            self._move(tracked, project.host, draft)
            if project.config.interval_s != before.config.interval_s:
                longest_s = project.config.interval_s
        if self._awake or tracked.tasks:
            project = replace(project, task=tracked.first_task)
        if project.next_sync_at > now + longest_s:
            project = replace(project, next_sync_at=now + longest_s)
            draft.save(project)
        tracked.change(project)
        tracked.opening = False
        self._settle(tracked)

    def _longest_wait_s(self, project: Project) -> float:
        return longest_wait_s(project.config, self.settings)

    def _move(self, tracked: Tracked, host: Host, draft: Draft) -> None:
        """Its source is at another host now."""
        if host == tracked.host:
            return
        if tracked.busy:
            self._sources.ended(tracked.host)
            self._sources.began(host)
        self._sources.moved_in(host)
        self._moved_out(tracked.host, draft)
        tracked.host = host

    def _moved_out(self, host: Host, draft: Draft) -> None:
        if self._sources.moved_out(host):
            draft.alert([weather_over(host, "has no projects any more")])

    def _removed(self, key: RepoKey, draft: Draft) -> None:
        tracked = self._tracked.pop(key, None)
        if tracked is None:
            return
        project = tracked.project
        draft.alert(alerts_between(project, unremarkable(project), self.settings))
        self._stretched.forget(key)
        self._queue.leave(tracked)
        tracked.tasks, tracked.opening = None, False
        self._count(tracked)
        self._moved_out(tracked.host, draft)

    def _excused(self, key: RepoKey, count: int, draft: Draft) -> None:
        tracked = self._tracked.get(key)
        if tracked is not None:
            self._change(tracked, excuse(tracked.project, self.settings, count), draft)
            self._settle(tracked)

    def _change(self, tracked: Tracked, project: Project, draft: Draft) -> None:
        """Saved, and people told, where it is different."""
        before = tracked.project
        if project != before:
            tracked.project = project
            draft.save(project)
            draft.alert(alerts_between(before, project, self.settings))

    # Tasks

    def _opened(self, event: TaskOpened, now: float, draft: Draft) -> None:
        tracked = self._tracked.get(event.key)
        if tracked is None:
            return
        task = tracked.find(event.task_id)
        if task is not None and (task.running or event.trigger not in AT_ONCE):
            return
        if task is None:
            task = OpenOne(event.trigger, event.priority_rank, running=False)
            tracked.add(event.task_id, task)
        task.trigger = event.trigger
        tracked.project = replace(tracked.project, task=tracked.first_task)
        awaited = tracked.opening and event.trigger is Trigger.SCHEDULE
        if awaited or event.trigger in AT_ONCE:
            tracked.opening = tracked.opening and not awaited
            self._start(tracked, event.task_id, task, now, draft)
        else:
            draft.save(tracked.project)
        self._settle(tracked)

    def _stands(self, event: TaskBegan | TaskSetAside | TaskTakenUp, now: float, draft: Draft) -> None:
        """A worker works on it, perhaps since before this machine; nobody can; somebody can again."""
        found = self._task(event.key, event.task_id)
        if found is None:
            return
        tracked, task = found
        match event:
            case TaskBegan() if not task.running:
                self._start(tracked, event.task_id, task, now, draft)
            case TaskSetAside():
                task.running, task.aside = False, True
            case TaskTakenUp() if task.aside:
                task.aside = False
                if task.trigger in AT_ONCE:
                    self._start(tracked, event.task_id, task, now, draft)
            case _:
                return
        self._settle(tracked)

    def _ended(self, event: TaskEnded, now: float, draft: Draft) -> None:
        tracked = self._tracked.get(event.key)
        if tracked is None:
            return
        task = tracked.drop(event.task_id)
        project = tracked.project
        if event.refused:
            if task is not None and task.trigger not in AT_ONCE:
                soon_s = max(REFUSED_S, REFUSED_SHARE * project.config.interval_s)
                project = due_at(project, now + soon_s)
        elif event.ended_at > tracked.applied_at or (task and event.ended_at != tracked.applied_at):
            project = self._applied(tracked, event, task, now, draft)
        self._change(tracked, replace(project, task=tracked.first_task), draft)
        self._settle(tracked)
        self._queue.unpark(tracked.host)

    def _applied(
        self, tracked: Tracked, event: TaskEnded, task: OpenOne | None, now: float, draft: Draft
    ) -> Project:
        """What a sync says about the source, and then about the project."""
        tracked.applied_at = event.ended_at
        event, excused = judged(event, tracked.host, now, self._sources)
        for key, count in excused.items():
            self._excused(key, count, draft)
        hear(tracked.host, event, now, self._sources, self._pace, draft)
        until = self._sources.closed_until(tracked.host, now)
        renewed = task.renewed if task is not None else frozenset()
        moment = Moment(now, self._interval_s(tracked.project, now), until, renewed)
        project = conclude(tracked.project, event, moment, self._silence, self.settings)
        if project.next_sync_at == now + moment.interval_s:
            self._stretched.note(project, now, moment.interval_s)
        return project

    # Time

    def _woke(self, event: Woke, now: float, draft: Draft) -> None:
        if event.cron and self.settings.by_cron:
            self._queue.release(now)
        if self._awake:
            return
        self._awake = True
        for tracked in self._tracked.values():
            if tracked.project.task is not None and tracked.tasks is None:
                self._change(tracked, replace(tracked.project, task=None), draft)

    def _mind_the_clock(self, now: float, draft: Draft) -> None:
        """A clock that was ahead must not hold projects back once it is right."""
        last, self._last = self._last, now
        if last is None or now >= last - CLOCK_BACK_S:
            return
        self._sources.clock_went_back(now)
        self._queue.rewind(now)
        for tracked in self._tracked.values():
            project = tracked.project
            longest_s = self._longest_wait_s(project)
            if project.next_sync_at > now + longest_s:
                self._change(tracked, replace(project, next_sync_at=now + longest_s), draft)
            self._settle(tracked)
