"""Short ways to say what a project is and what happens to it, and a world that answers the machine."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from evermirror.core.pull.events import ProjectPut, StrategySet, TaskEnded, TaskOpened, Woke
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import Project, PullConfig, Strategy, Target
from evermirror.model.push import Pushed, TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus, Trigger

SHANGHAI = ZoneInfo("Asia/Shanghai")
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()  # 20:00 in Shanghai
MINUTE, HOUR = 60.0, 3600.0
FORGE = Host("forge.example")
SETTINGS = PullSettings()

CRITICAL, HIGH, NORMAL, LOW = Priority.CRITICAL, Priority.HIGH, Priority.NORMAL, Priority.LOW
TIMEOUT, LIMITED = FailureKind.NETWORK_TIMEOUT, FailureKind.RATE_LIMITED
SUCCESS, SKIPPED, FAILED = TaskStatus.SUCCESS, TaskStatus.SKIPPED, TaskStatus.FAILED


def key(name="one", host=FORGE):
    return RepoKey(f"{host}/{name}")


def project(name="one", priority=NORMAL, *, host=FORGE, interval_s=HOUR, enabled=True, **fields):
    config = fields.pop("config", None) or PullConfig(priority, interval_s, enabled)
    fields.setdefault("next_sync_at", NOW)
    return Project(key(name, host), name, host, config, **fields)


def target(number=1, **fields):
    return Target(TargetId(number), f"https://target.example/p{number}.git", **fields)


def failure(kind=TIMEOUT, **fields):
    return Failure(kind, f"it says {kind.value}", **fields)


def pushed(number=1, kind=None, put="d", **fields):
    failed = failure(kind) if kind is not None else None
    return Pushed(TargetId(number), RefsDigest(put) if put else None, failure=failed, **fields)


def ended(name="one", task_id=1, kind=None, *, at=NOW, host=FORGE, status=None, pushes=(), **fields):
    """Without a kind it is a success."""
    retry_after_s = fields.pop("retry_after_s", None)
    failed = failure(kind, retry_after_s=retry_after_s) if kind is not None else None
    status = status or (FAILED if failed else SUCCESS)
    return TaskEnded(key(name, host), TaskId(task_id), status, at - 1, at, failed, pushes=pushes, **fields)


class World:
    """A machine that is awake; answers what it wants opened, unless told not to, and keeps what it saves."""

    def __init__(self, *projects, strategy=None, settings=SETTINGS, now=NOW, zone=SHANGHAI):
        self.machine = PullMachine(settings, zone, strategy or Strategy())
        self.now = now
        self.stored: dict[RepoKey, Project] = {}
        self.started: list[str] = []  # names, in order
        self.open: dict[str, int] = {}  # name → the task that runs
        self.starts, self.alerts, self.logs = [], [], []
        self.ids = 0
        self.put(*projects)
        self.do(Woke())

    def put(self, *projects):
        for item in projects:
            self.stored[item.key] = item
            self.do(ProjectPut(item))

    def do(self, event, *, answer=True):
        decision = self.machine.handle(event, self.now)
        self.stored.update({p.key: p for p in decision.saves})
        self.stored.update({o.project.key: o.project for o in decision.opens})
        self.starts += decision.starts
        self.alerts += decision.alerts
        self.logs += decision.logs
        for start in decision.starts:
            name = self.machine.project(start.key).name
            self.started.append(name)
            self.open[name] = start.task_id
        if answer:
            for opened in decision.opens:
                self.do(TaskOpened(opened.project.key, self.next_id(), Trigger.SCHEDULE))
        return decision

    def next_id(self):
        self.ids += 1
        return TaskId(self.ids)

    def trigger(self, name, trigger=Trigger.MANUAL, host=FORGE, rank=None):
        task_id = self.next_id()
        self.do(TaskOpened(key(name, host), task_id, trigger, rank))
        return task_id

    def end(self, name="one", kind=None, *, after=1.0, host=FORGE, **fields):
        """The running task of a project ends."""
        self.now += after
        task_id = self.open.pop(name)
        return self.do(ended(name, task_id, kind, at=self.now, host=host, **fields))

    def wait(self, seconds):
        """Woken whenever the machine asks to be."""
        until = self.now + seconds
        while (at := self.machine.next_wake(self.now)) is not None and at <= until:
            self.now = max(self.now, at)
            self.do(Woke())
        self.now = until

    def strategy(self, **fields):
        self.do(StrategySet(Strategy(**fields)))

    def state(self, name="one", host=FORGE):
        return self.machine.project(key(name, host))

    def told(self):
        """Alerts since this was last asked: kind and about, with a minus where it is over."""
        alerts = [("-" if a.over else "") + f"{a.kind} {a.about}" for a in self.alerts]
        self.alerts.clear()
        return alerts
