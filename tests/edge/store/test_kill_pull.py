"""A process that is killed while it opens, ends and saves pull tasks leaves tasks and projects that agree."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from evermirror.edge.store.outcomes import Outcome
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import TaskEnded
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.repo import Host, RepoRecord, RepoSpec
from evermirror.model.task import TaskStatus

PROJECTS = 40
KILLS = 6

# Round n opens a task of every project, with next_sync_at n, and ends them all; every third time with a
# change, else as looks that are folded. Their projects then say that they were synced at n.
CHILD = textwrap.dedent(
    """
    import asyncio, sys
    from dataclasses import replace
    from evermirror.core.pull.events import OpenTask
    from evermirror.edge.store.outcomes import Outcome
    from evermirror.edge.store.store import Store
    from evermirror.edge.store.writes import ProjectSaved, TaskEnded
    from evermirror.model.task import TaskStatus

    async def main(url):
        store = await Store.open(url)
        over = {task.id for task in await store.ended_pull_tasks()}
        projects = [replace(p, task=None) if p.task in over else p for p in await store.load_projects()]
        n = int(projects[0].next_sync_at)
        while True:
            n += 1
            due = [replace(p, next_sync_at=float(n)) for p in projects]
            opened = await store.open_pull_tasks([OpenTask(p, n) for p in due], float(n))
            assert len(opened) == len(due)
            status = TaskStatus.SUCCESS if n % 3 == 0 else TaskStatus.SKIPPED
            await store.apply([TaskEnded(t.id, Outcome(status, float(n), float(n))) for t in opened])
            projects = [replace(p, last_sync_at=float(n)) for p in due]
            await store.apply([ProjectSaved(p) for p in projects])
            print(n, flush=True)

    asyncio.run(main(sys.argv[1]))
    """
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("postgres_database")


async def check_whole(store):
    """The last round of which something is there."""
    await store.put_setting("waited", True)  # until a server has noticed that its client is gone
    projects = await store.load_projects()
    (n,) = {p.next_sync_at for p in projects}
    (named,) = {p.task is not None for p in projects}
    assert len({p.last_sync_at for p in projects}) == 1
    unfinished = {t.id: t.repo for t in await store.unfinished_tasks()}
    over = {t.id: t.repo for t in await store.ended_pull_tasks()}
    if named:
        assert {p.task: p.key for p in projects} == unfinished | over
        assert not unfinished or not over  # a batch of ends is one transaction
    else:
        assert not unfinished
        assert not over
    for project in projects[:: PROJECTS // 4]:
        tasks, _ = await store.task_page(project.key, 1, 1000)
        assert sum(1 + t.folded for t in tasks) == n  # every look is there, and once
        assert [t.retry_count for t in tasks] == sorted({t.retry_count for t in tasks}, reverse=True)
    return int(n)


async def test_a_killed_coordinator_leaves_tasks_and_projects_that_agree(url):
    store = await Store.open(url)
    keys = [f"example.org/{i}" for i in range(PROJECTS)]
    await store.upsert_repos(RepoRecord(RepoSpec(k, f"https://{k}", Host("example.org"))) for k in keys)
    await store.put_projects(
        [Project(k, k, Host("example.org"), PullConfig(), (Target(0, "https://t.example"),)) for k in keys]
    )
    await store.close()
    chance = random.Random(11)
    last = 0
    for _ in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, url], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert child.stdout is not None
        acknowledged = int(child.stdout.readline())
        time.sleep(chance.uniform(0.0, 0.15))
        child.send_signal(signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        store = await Store.open(url)
        last = await check_whole(store)
        assert last >= acknowledged
        open_ones = await store.unfinished_tasks()
        await store.close()
        if open_ones:  # what a coordinator does with them is its own matter: here they are done
            await finish(url, open_ones)
    assert last >= KILLS


async def finish(url, tasks):
    store = await Store.open(url)
    await store.apply([TaskEnded(t.id, Outcome(TaskStatus.SUCCESS, 1.0, 1.0)) for t in tasks])
    await store.close()
