"""What holds in every history: limits, classes, one task a project, nobody forgotten; a twin that sorts."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.events import (
    FailureExcused,
    LoadSeen,
    ProjectPut,
    ProjectRemoved,
    StrategySet,
    TaskBegan,
    TaskOpened,
    TaskSetAside,
    TaskTakenUp,
    Woke,
)
from evermirror.core.pull.load import cpu_load
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.retry import effective_rank
from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import FailureKind
from evermirror.model.pull import Strategy
from evermirror.model.repo import Host, Priority
from evermirror.model.task import TaskId, Trigger
from tests.core.pull.small import HOUR, MINUTE, NOW, SHANGHAI, SKIPPED, ended, key, project, pushed, target

HOSTS = [Host("a.example"), Host("b.example"), Host("c.example")]
PRIORITIES = list(Priority)
STRATEGIES = [
    Strategy(max_concurrent=1),
    Strategy(max_concurrent=3),
    Strategy(max_concurrent=2, enabled=False),
    Strategy(max_concurrent=4, adaptive=True),
    Strategy(
        peak_avoidance=True, peak_start=19, peak_end=7, peak_max_concurrent=2, off_peak_max_concurrent=4
    ),
    Strategy(
        peak_avoidance=True,
        peak_start=21,
        peak_end=2,
        peak_max_concurrent=1,
        night_start=2,
        night_end=6,
        night_max_concurrent=3,
        adaptive=True,
    ),
]
KINDS = [None, None, None, *FailureKind]


class SortingQueue:
    """What the queue does, by sorting everything each time."""

    def __init__(self):
        self.all = {}  # waiter → when it is due; -inf once it is
        self.released = float("-inf")

    def enter(self, waiter, at):
        self.all[waiter] = float("-inf") if waiter.batch or at <= self.released else at
        waiter.ticket = 1

    def leave(self, waiter):
        self.all.pop(waiter, None)
        waiter.ticket = 0

    def release(self, now):
        self.released = now
        self.all = {w: float("-inf") if at <= now else at for w, at in self.all.items()}

    def rewind(self, now):
        self.released = min(self.released, now)

    def unpark(self, host):
        pass

    def next_at(self):
        return min((at for at in self.all.values() if at != float("-inf")), default=None)

    @property
    def ready(self):
        ranks = [w.rank for w, at in self.all.items() if at == float("-inf")]
        return [ranks.count(rank) for rank in range(4)]

    def take(self, ranks, has_room, *, batches_only=False):
        due = [w for w, at in self.all.items() if at == float("-inf") and w.rank in ranks]
        due = [w for w in due if has_room(w.host) and (w.batch or not batches_only)]
        if not due:
            return None
        first = min(due, key=lambda w: (w.rank, not w.batch, w.since, w.key))
        self.leave(first)
        return first


class Drive:
    """Anything in any order; every decision is compared with the twin's and checked by itself."""

    def __init__(self, by_cron=False, count=9):
        self.settings = PullSettings(by_cron=by_cron)
        self.now, self.ids, self.count = NOW, 0, count
        self.strategy = STRATEGIES[1]
        self.store = {}
        self.ranks = {}  # of requests
        self.running: dict[str, dict[int, Trigger]] = {}  # key → tasks that run
        self.waiting: dict[str, dict[int, int | None]] = {}  # key → batch tasks that wait, with their rank
        self.aside: dict[str, dict[int, Trigger]] = {}  # key → tasks that nobody can do
        self.opening: set[str] = set()  # keys whose tasks are not stored yet
        self.begin()

    def begin(self):
        """As after a crash: all that is known is what is in the store."""
        self.machine = PullMachine(self.settings, SHANGHAI, self.strategy)
        self.twin = PullMachine(self.settings, SHANGHAI, self.strategy)
        self.twin._queue = SortingQueue()
        told = [*self.running.items(), *self.aside.items()]
        open_tasks = [(k, i, t) for k, tasks in told for i, t in tasks.items()]
        batches = [(k, i, r) for k, tasks in self.waiting.items() for i, r in tasks.items()]
        self.running, self.waiting, self.aside = {}, {}, {}
        for item in list(self.store.values()):
            self.do(ProjectPut(item))
        for repo, task_id, trigger in open_tasks:
            self.opened(repo, task_id, trigger)
            if task_id % 2 and task_id in self.waiting.get(repo, {}):  # its worker had begun
                self.began(repo, task_id)
        for repo, task_id, rank in batches:
            self.opened(repo, task_id, Trigger.MANUAL_BATCH, rank)
        self.do(Woke())

    def opened(self, repo, task_id, trigger, rank=None):
        self.ranks.setdefault(task_id, rank)
        awaited = trigger is Trigger.SCHEDULE and repo in self.opening
        if trigger in (Trigger.MANUAL_BATCH, Trigger.SCHEDULE) and not awaited:
            self.waiting.setdefault(repo, {})[task_id] = self.ranks[task_id]
        else:
            self.running.setdefault(repo, {})[task_id] = trigger
            self.opening.discard(repo)
            self.waiting.get(repo, {}).pop(task_id, None)
        self.do(TaskOpened(repo, task_id, trigger, self.ranks[task_id]))

    def do(self, event):
        decision = self.machine.handle(event, self.now)
        assert decision == self.twin.handle(event, self.now)
        assert self.machine.next_wake(self.now) == self.twin.next_wake(self.now)
        for saved in decision.saves:
            assert saved == self.machine.project(saved.key)
            self.store[saved.key] = saved
        self.check(event, decision)
        for opened in decision.opens:
            self.store[opened.project.key] = opened.project
            self.opening.add(opened.project.key)
        for opened in decision.opens:
            self.ids += 1
            self.opened(opened.project.key, TaskId(self.ids), Trigger.SCHEDULE)

    def check(self, event, decision):
        """The limit, the classes, the hosts, and never a second task."""
        view = self.machine.view(self.now)
        ranks = {p.rank for p in view.classes}
        busy = {k for k, tasks in self.running.items() if tasks} | self.opening
        for start in decision.starts:
            rank = self.waiting.get(start.key, {}).get(start.task_id, "no batch")
            if rank == "no batch":
                assert isinstance(event, TaskOpened | TaskTakenUp | TaskBegan)
                assert event.task_id == start.task_id
                if isinstance(event, TaskOpened) and event.trigger is Trigger.SCHEDULE:
                    assert len(busy) <= view.limit
                continue
            assert start.key not in busy, "a batch beside a task that runs"
            busy.add(start.key)
            assert len(busy) <= view.limit
            own = effective_rank(self.machine.project(start.key), self.settings.demote_after)
            assert (own if rank is None else rank) in ranks
            del self.waiting[start.key][start.task_id]
            self.running.setdefault(start.key, {})[start.task_id] = Trigger.MANUAL_BATCH
        for opened in decision.opens:
            item = opened.project
            assert item.key not in busy
            assert not self.waiting.get(item.key)
            assert not self.aside.get(item.key)
            busy.add(item.key)
            assert len(busy) <= view.limit
            assert effective_rank(item, self.settings.demote_after) in ranks
            assert item.config.enabled
            assert item.failures < self.settings.pause_after
            assert self.strategy.enabled
            assert item.host not in view.closed_hosts
        assert view.running == len(busy)

    # Steps

    def name(self, number):
        number %= self.count
        return f"r{number}", HOSTS[number % 3]

    def put(self, number):
        name, host = self.name(number)
        known = self.machine.project(key(name, host))
        fresh = project(
            name,
            PRIORITIES[number // 9 % 4],
            host=host,
            interval_s=[10 * MINUTE, HOUR, 6 * HOUR][number // 36 % 3],
            enabled=number // 108 % 5 > 0,
            next_sync_at=self.now + (number // 540 % 3) * 10 * MINUTE,
            targets=(target(1), target(2)) if number // 1620 % 2 else (),
        )
        if known is not None:
            fresh = replace(
                known, config=fresh.config, failures=0, paused="", next_sync_at=fresh.next_sync_at
            )
        self.store[fresh.key] = fresh
        self.do(ProjectPut(fresh))

    def remove(self, number):
        repo = key(*self.name(number))
        self.store.pop(repo, None)
        self.running.pop(repo, None)
        self.waiting.pop(repo, None)
        self.aside.pop(repo, None)
        self.do(ProjectRemoved(repo))

    def trigger(self, number):
        repo = key(*self.name(number))
        if repo not in self.store:
            return
        self.ids += 1
        trigger = [Trigger.MANUAL, Trigger.API, Trigger.WEBHOOK, Trigger.MANUAL_BATCH][number // 9 % 4]
        rank = (number // 36 % 4) if number // 144 % 2 else None
        self.opened(repo, TaskId(self.ids), trigger, rank)

    def hurry(self, number):
        waiting = [(k, i) for k, tasks in self.waiting.items() for i in tasks]
        if waiting:
            repo, task_id = waiting[number % len(waiting)]
            self.opened(repo, task_id, Trigger.MANUAL)

    def went_on(self, number):
        """A worker does a batch task that nobody gave it since the restart."""
        waiting = [(k, i) for k, tasks in self.waiting.items() for i in tasks]
        if waiting:
            self.began(*waiting[number % len(waiting)])

    def began(self, repo, task_id):
        del self.waiting[repo][task_id]
        self.running.setdefault(repo, {})[task_id] = Trigger.MANUAL_BATCH
        self.do(TaskBegan(repo, task_id, self.now))

    def set_aside(self, number):
        tasks = [(k, i) for k, running in self.running.items() for i in running]
        if tasks:
            repo, task_id = tasks[number % len(tasks)]
            self.aside.setdefault(repo, {})[task_id] = self.running[repo].pop(task_id)
            self.do(TaskSetAside(repo, task_id))

    def take_up(self, number):
        tasks = [(k, i) for k, aside in self.aside.items() for i in aside]
        if tasks:
            repo, task_id = tasks[number % len(tasks)]
            trigger = self.aside[repo].pop(task_id)
            if trigger in (Trigger.SCHEDULE, Trigger.MANUAL_BATCH):
                self.waiting.setdefault(repo, {})[task_id] = self.ranks.get(task_id)
            else:
                self.running.setdefault(repo, {})[task_id] = trigger
            self.do(TaskTakenUp(repo, task_id))

    def end(self, number, kind="any"):
        tasks = [(k, i) for k, running in self.running.items() for i in running]
        if not tasks:
            return
        repo, task_id = tasks[number % len(tasks)]
        del self.running[repo][task_id]
        kind = KINDS[number // 7 % len(KINDS)] if kind == "any" else kind
        item = self.store[repo]
        by_target = number // 100 % 2 and item.targets
        self.now += 0.5
        self.do(
            ended(
                item.name,
                task_id,
                kind,
                at=self.now,
                host=item.host,
                status=SKIPPED if kind is None and number % 2 else None,
                counted=number // 200 % 2 == 0,
                refused=number // 400 % 8 == 7,
                retry_after_s=[None, 5.0, 400.0][number // 3 % 3],
                pushes=(pushed(1, kind), pushed(2, kind)) if by_target else (),
                look_s=0.1 if kind is None else None,
            )
        )

    def stray(self, number):
        """An end of a task that is not open, or an excuse."""
        repo = key(*self.name(number))
        self.do(FailureExcused(repo) if number % 2 else ended(f"r{number % 9}", 10**6, at=self.now))

    def load(self, number):
        self.do(LoadSeen(cpu_load(number % 101)))

    def set_strategy(self, number):
        self.strategy = STRATEGIES[number % len(STRATEGIES)]
        self.do(StrategySet(self.strategy))

    def wait(self, number):
        """Woken when it asked for it, or somewhat later."""
        until = self.now + [1.0, MINUTE, 10 * MINUTE, HOUR][number % 4]
        for _ in range(20):
            at = self.machine.next_wake(self.now)
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self.do(Woke())
        self.now = until
        self.do(Woke())

    def cron(self, number):
        self.do(Woke(cron=True))

    def clock(self, number):
        self.now -= number % 100 * MINUTE
        self.do(Woke())

    def crash(self, number):
        self.begin()


STEPS = (
    ["put"] * 3
    + ["end"] * 5
    + ["wait"] * 3
    + ["trigger", "set_aside", "take_up"] * 2
    + ["remove", "hurry", "went_on", "stray", "load", "set_strategy", "cron", "clock", "crash"]
)
histories = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 10**6)), max_size=80)


def driven(history, **fields):
    drive = Drive(**fields)
    for n in range(6):
        drive.put(n * 37)
    for what, number in history:
        getattr(drive, what)(number)
    return drive


@settings(max_examples=100, deadline=None)
@given(histories, st.booleans())
def test_bounds_are_kept_and_a_twin_that_sorts_everything_decides_the_same(history, by_cron):
    driven(history, by_cron=by_cron)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_in_long_histories(seed):
    chance = Random(seed)
    history = [(chance.choice(STEPS), chance.randrange(10**6)) for _ in range(500)]
    driven(history, by_cron=seed % 4 == 3, count=4 if seed % 2 else 9)


@settings(max_examples=40, deadline=None)
@given(histories)
def test_every_project_that_is_due_is_started_in_the_end(history):
    drive = driven(history)
    drive.strategy = Strategy(max_concurrent=2)
    drive.do(StrategySet(drive.strategy))
    while any(drive.aside.values()):
        drive.take_up(0)
    wanted = {
        item.key
        for item in drive.machine.projects()
        if item.config.enabled and item.failures < drive.settings.pause_after
    }
    begun = drive.now
    seen: set[str] = set()
    while drive.now < begun + 30 * HOUR and not wanted <= seen:  # the longest pause of all is a day
        seen |= {k for k, tasks in drive.running.items() if tasks}
        while any(drive.running.values()):
            drive.end(0, kind=None)
            seen |= {k for k, tasks in drive.running.items() if tasks}
            if drive.now > begun + 30 * HOUR:
                break
        at = drive.machine.next_wake(drive.now)
        drive.now = max(drive.now, drive.now + MINUTE if at is None else at)
        drive.do(Woke())
    assert wanted <= seen
