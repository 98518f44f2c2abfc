"""Projects and looks at them, for tests of the store."""

from __future__ import annotations

from evermirror.core.pull.events import OpenTask
from evermirror.edge.store.outcomes import Outcome
from evermirror.edge.store.writes import TaskEnded, TaskStarted
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.repo import Host, RepoRecord, RepoSpec
from evermirror.model.task import TaskStatus, Trigger

A, B, C = "example.org/team/a", "example.org/team/b", "例え.jp/ü"
HEAD = "c" * 40


def repo(key=A, **kwargs):
    spec = {n: kwargs.pop(n) for n in ("priority", "credential", "private") if n in kwargs}
    return RepoRecord(RepoSpec(key, f"https://{key}", Host(key.split("/")[0]), **spec), **kwargs)


def project(key=A, **kwargs):
    config_names = ("priority", "interval_s", "enabled", "max_retries", "retry_delay_s")
    config = PullConfig(**{n: kwargs.pop(n) for n in config_names if n in kwargs})
    return Project(key, kwargs.pop("name", key), Host(key.split("/")[0]), config, **kwargs)


def target(url="https://t.example/a", id_=0, **kwargs):
    return Target(id_, url, **kwargs)


async def with_project(store, key=A, **kwargs):
    await store.upsert_repos([repo(key)])
    (put,) = await store.put_projects([project(key, **kwargs)])
    return put


async def looked(store, at, *, key=A, trigger=Trigger.SCHEDULE, outcome=None):
    """One look from its opening to its end; the id of its task."""
    found = (await store.find_projects([key]))[key]
    (task,) = await store.open_pull_tasks([OpenTask(found, 0, trigger)], at)
    await store.apply([TaskStarted(task.id, at + 0.1)])
    assert (await store.get_task(task.id)).status is TaskStatus.RUNNING
    await store.apply([TaskEnded(task.id, outcome or Outcome(TaskStatus.SKIPPED, at + 0.1, at + 0.5, HEAD))])
    return task.id
