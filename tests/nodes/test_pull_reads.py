"""What people are told of tasks and figures, and what it may cost."""

from __future__ import annotations

import pytest

from evermirror.core.watch.progress import SyncState, state_of
from evermirror.model.failure import Failure, FailureKind
from evermirror.nodes.service import PollPlan
from tests.nodes.pull_house import PullHouse, built
from tests.nodes.test_coordinator import failed

TARGET = "https://target.example.org/core.git"


@pytest.fixture
async def house(tmp_path):
    async with built(PullHouse, tmp_path) as house, house.running():
        yield house


async def test_a_worker_is_asked_for_its_plan_only_where_it_is_shown(house, monkeypatch):
    asked = []

    async def plan(key):
        asked.append(key)
        return PollPlan(house.clock.now + 77.0, "it moves", 333.0, None)

    await house.add(alias="plain/repo")
    monkeypatch.setattr(house.it, "plan", plan)
    task, _ = await house.admin.trigger("plain/repo", actor="me")
    told, view = await house.admin.task(task.id)
    assert (told.id, view.configured) == (task.id, False)
    await house.admin.find_project("plain/repo", planned=False)
    assert asked == []
    shown = (await house.admin.find_project("plain/repo")).project
    assert (shown.config.interval_s, shown.next_sync_at) == (333.0, house.clock.now + 77.0)
    assert len(asked) == 1


async def test_a_task_that_was_there_is_not_told_as_new(house):
    await house.add(alias="plain/repo")
    await house.create("a", TARGET)  # due at once
    first, new = await house.admin.trigger("plain/repo", actor="me")
    assert new
    assert await house.admin.trigger("plain/repo", actor="me") == (first, False)
    sync = next(command for command in await house.syncs() if command.push)
    joined, new = await house.admin.trigger("a", actor="me")
    assert (joined.id, new) == (sync.task_id, False)
    await house.create("b")
    await house.did(next(command for command in await house.syncs() if command.key.endswith("/b")))
    done = await house.admin.trigger_batch(["plain/repo", "a", "b"], None, actor="me")
    assert (len(done.task_ids), done.already_pending) == (3, 2)


async def test_a_task_is_found_also_when_its_repo_has_left(house):
    await house.create("a")
    sync = await house.one_sync()
    await house.did(sync)
    await house.admin.delete_project("a", actor="me")
    task, view = await house.admin.task(sync.task_id)
    assert (task.id, view) == (sync.task_id, None)


async def test_projects_are_counted_as_a_walk_through_them_would(house):
    def walked():
        known = list(house.pulling.projects())
        failing = sum(project.failures > 0 for project in known)
        now = house.clock.now
        return len(known), sum(state_of(p, now) is SyncState.FAILED for p in known), failing

    def counted():
        told = house.pulling.totals()
        return told.projects, told.projects_failed, told.projects_failing

    for name in ("a", "b", "c"):
        await house.create(name)
    for sync in await house.syncs():
        if sync.key.endswith("/c"):
            await house.did(sync)
        else:
            gone = Failure(FailureKind.UNKNOWN, "no")
            await house.take(failed(sync.task_id, key=sync.key, at=house.clock.now, failure=gone))
    await house.quiet()
    assert counted() == walked() == (3, 2, 2)
    await house.admin.reset_failures("a", actor="me")
    await house.quiet()
    assert counted() == walked() == (3, 1, 1)
    await house.change("b", enabled=False)
    assert counted() == walked()
    await house.admin.delete_project("b", actor="me")
    assert counted() == walked() == (2, 0, 0)
