"""Pull mirroring at the coordinator: what is decided is stored, then done; people, the catalog, restarts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from evermirror.core.catalog.entry import CatalogEntry
from evermirror.core.pull.settings import PullSettings
from evermirror.core.watch.kinds import REPO_KINDS
from evermirror.errors import Conflict, InvalidUrl, NotFound, Unavailable, UsageError
from evermirror.model.access import Role
from evermirror.model.alert import Alert, Level
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import AssignRepos, Excused, Failed, Refused, ReleaseRepos, SyncNow
from evermirror.model.pull import MINUTE, RetryPolicy, Strategy, TargetSpec
from evermirror.model.push import Pushed, PushTo, TargetId
from evermirror.model.repo import Host, Priority, RepoSpec
from evermirror.model.task import TaskStatus, Trigger
from evermirror.nodes.coordinator import assigning
from evermirror.nodes.coordinator.catalog.catalog_records import CatalogRecords
from evermirror.nodes.coordinator.pull import pull_jobs, pull_opening, pull_turn
from evermirror.nodes.coordinator.pull.pull_hearing import PROTOCOL_OF_PUSHES
from evermirror.nodes.coordinator.tasks.task_pulls import ASIDE_S
from evermirror.nodes.pull_service import ErrorFilter, NewProject, ProjectChange
from evermirror.nodes.service import RepoFilter, TaskParams
from tests.nodes.pull_house import HOST, PUT, PullHouse, built, key_of, pushed_to
from tests.nodes.test_coordinator import T0, ScriptedWorker, failed

TARGET = "https://target.example.org/core.git"
SECOND = "https://second.example.org/core.git"
DENIED = Failure(FailureKind.PERMISSION_DENIED, "you may not push here")
CONFLICT = Failure(FailureKind.CONFLICT, "would delete 9 of 10 refs")


@pytest.fixture
async def empty_house(tmp_path):
    """Nobody is there yet."""
    async with built(PullHouse, tmp_path) as house:
        yield house


@pytest.fixture
async def house(empty_house):
    async with empty_house.running():
        yield empty_house


# One project


async def test_a_new_project_is_due_at_once_and_its_worker_leaves_it_to_the_schedule(house):
    view = await house.create("devops/core", TARGET, priority=Priority.HIGH)
    assert (view.configured, view.project.name, view.project.host) == (True, "devops/core", HOST)
    assert (view.project.config.priority, view.project.config.interval_s) == (Priority.HIGH, 30 * MINUTE)
    await house.quiet()
    commands = await house.commands()
    assigned = [c.repos[0].pulled for c in commands if isinstance(c, AssignRepos)]
    assert assigned[-1] is True
    (sync,) = [c for c in commands if isinstance(c, SyncNow)]
    (target,) = (await house.project("devops/core")).targets
    assert target.id > 0
    assert sync.push == (PushTo(target.id, TARGET),)
    assert sync.priority is Priority.HIGH
    assert [a.action for a in await house.store.list_audit(2)] == ["pull.project.created", "repo.added"]


async def test_a_task_and_its_project_are_in_the_store_before_the_worker_hears_of_it(house, monkeypatch):
    seen = []
    ordered = house.orders.ordered

    async def noting(worker, seq, command):
        task = getattr(getattr(command, "command", None), "task_id", None)
        if task is not None:
            project = await house.store.find_project(key_of("a"))
            seen.append(
                ((await house.store.get_task(task)).status, project.task == task, project.next_sync_at)
            )
        return await ordered(worker, seq, command)

    monkeypatch.setattr(house.orders, "ordered", noting)
    await house.create("a", interval_s=600.0)
    await house.quiet()
    assert seen == [(TaskStatus.PENDING, True, T0 + 600)]


async def test_a_sync_that_was_pushed_on_is_remembered_and_the_next_comes_an_interval_later(house):
    await house.create("a", TARGET, interval_s=600.0)
    sync = await house.one_sync()
    await house.began(sync)
    assert (await house.admin.find_project("a")).running
    await house.later(5)
    await house.did(sync)
    project = await house.project("a")
    assert (project.last_sync_at, project.last_status, project.task) == (T0 + 5, TaskStatus.SUCCESS, None)
    assert (project.targets[0].put, project.targets[0].put_at) == (PUT, T0 + 5)
    assert project == await house.store.find_project(key_of("a"))
    task = await house.it.get_task(sync.task_id)
    assert (task.status, task.trigger, task.target_commit) == (TaskStatus.SUCCESS, Trigger.SCHEDULE, "a" * 40)
    await house.later(594)
    assert await house.syncs() == []
    await house.later(1)
    again = await house.one_sync()
    assert again.push == (PushTo(project.targets[0].id, TARGET, put=PUT),)


async def test_failures_are_retried_ever_later_then_disable_the_project_until_a_person_resets_it(house):
    await house.create("a", interval_s=3600.0)
    waits = []
    for n in range(1, 6):
        sync = await house.one_sync()
        await house.take(failed(sync.task_id, key=sync.key, failures=n, at=house.clock.now))
        project = await house.project("a")
        assert project.failures == n
        waits.append(project.next_sync_at - house.clock.now)
        if n < 5:
            await house.later(waits[-1])
    assert waits[:4] == [300, 600, 1200, 3600]
    assert not project.config.enabled
    assert "5 times in a row" in project.paused
    warnings = (await house.it.overview()).warnings
    assert any("a is paused until a person resets it" in w for w in warnings)
    for asking in (
        house.admin.trigger("a", actor="me"),
        house.it.submit_task("a", TaskParams(), trigger=Trigger.API, actor="me", may_add=False),
    ):
        with pytest.raises(Conflict) as told:
            await asking
        assert "evermirror pull errors reset a" in told.value.hint
    await house.later(7200)
    assert await house.syncs() == []
    (listed,) = (await house.admin.failed_projects(3)).items
    assert listed.project.failures == 5
    view = await house.admin.reset_failures("a", actor="me")
    assert (view.project.config.enabled, view.project.failures, view.project.paused) == (True, 0, "")
    await house.did(await house.one_sync())
    assert house.alerts.standing == ()


async def test_a_refused_task_counts_for_nothing_and_comes_again_soon(house):
    await house.create("a", interval_s=600.0)
    sync = await house.one_sync()
    gone = Failure(FailureKind.UNKNOWN, "the repo went to another worker")
    await house.take(Refused(sync.key, (sync.task_id,), gone, T0, T0))
    project = await house.project("a")
    assert (project.failures, project.next_sync_at) == (0, T0 + 60)
    assert await house.status(sync.task_id) is TaskStatus.FAILED


async def test_the_hosts_weather_counts_against_nobody_and_is_taken_back(house):
    await house.create("a")
    await house.create("b")
    first, second = await house.syncs()
    await house.take(failed(first.task_id, key=first.key, at=T0 + 1))
    await house.take(
        Failed(
            second.key, (second.task_id,), Failure(FailureKind.NETWORK_TIMEOUT, "no"), False, 0, T0, T0, None
        ),
        Excused((first.key,)),
    )
    assert [(await house.project(name)).failures for name in "ab"] == [0, 0]
    (told,) = house.alerts.stands(frozenset({"source-weather"}))
    assert told.text.startswith(f"{HOST}, or our own network, fails"), "workers tell not which"


# Pushes


async def test_one_target_that_refuses_is_paused_and_the_others_go_on(house):
    await house.create("a", TARGET, SECOND, interval_s=600.0)
    sync = await house.one_sync()
    one, two = sync.push
    await house.did(sync, pushed=False, pushes=(pushed_to(one), pushed_to(two, DENIED)))
    assert await house.status(sync.task_id) is TaskStatus.SUCCESS
    project = await house.project("a")
    assert [bool(t.paused) for t in project.targets] == [False, True]
    assert project.config.enabled
    await house.later(600)
    assert [to.url for to in (await house.one_sync()).push] == [TARGET]


async def test_a_worker_that_is_too_old_to_push_is_told_of_and_not_believed_to_have_pushed(
    empty_house, monkeypatch
):
    monkeypatch.setattr(ScriptedWorker, "protocol", PROTOCOL_OF_PUSHES - 1)
    async with empty_house.running() as house:
        await house.create("a", TARGET)
        sync = await house.one_sync()
        await house.did(sync, pushed=False)
        task = await house.it.get_task(sync.task_id)
        assert (task.status, task.failure.kind) == (TaskStatus.FAILED, FailureKind.UNKNOWN)
        assert "too old to push" in task.failure.message
        (target,) = (await house.project("a")).targets
        assert (target.failures, target.put) == (1, None)


async def test_a_worker_that_was_asked_again_for_more_targets_while_it_was_at_it_is_not_too_old(house):
    await house.create("a", TARGET, SECOND)
    sync = await house.one_sync()
    first, second = (await house.project("a")).targets
    await house.did(sync, pushed=False, pushes=(pushed_to(sync.push[0]),))
    task = await house.it.get_task(sync.task_id)
    assert (task.status, task.failure) == (TaskStatus.SUCCESS, None)
    told, untold = (await house.project("a")).targets
    assert (told.put, untold.put, untold.failures, untold.paused) == (PUT, None, 0, "")
    assert (told.id, untold.id) == (first.id, second.id)


async def test_pushes_to_targets_of_others_are_not_believed(house):
    await house.create("a", TARGET)
    await house.create("b", SECOND)
    first, second = await house.syncs()
    mine, other = pushed_to(first.push[0]), pushed_to(second.push[0])
    foreign = Pushed(TargetId(99), PUT)
    await house.did(first, pushed=False, pushes=(mine, other, foreign))
    told = (await house.it.get_task(first.task_id)).result["pushes"]
    assert [push["target"] for push in told] == [mine.target]
    assert (await house.project("b")).targets[0].put is None


async def test_what_a_guard_held_back_fails_and_waits_for_a_persons_word(house):
    await house.create("a", TARGET, interval_s=600.0)
    sync = await house.one_sync()
    await house.did(sync, failure=CONFLICT)
    assert await house.status(sync.task_id) is TaskStatus.FAILED
    project = await house.project("a")
    assert project.config.enabled
    assert any("a person is needed" in alert.text for alert in house.alerts.standing)
    house.worker.answer = lambda what, key: None if what == "guard" else {}
    await house.later(1)
    task = await house.it.confirm("a", actor="me")
    confirmed = await house.one_sync()
    assert (confirmed.task_id, confirmed.accept) == (task.id, True)
    assert [to.url for to in confirmed.push] == [TARGET]
    await house.did(confirmed)
    with pytest.raises(Conflict):
        await house.it.confirm("a", actor="me")
    assert house.alerts.standing == ()


async def test_adopting_a_target_lets_the_next_push_overwrite_it_once(house):
    await house.create("a", TARGET, SECOND)
    sync = await house.one_sync()
    await house.did(sync, failure=CONFLICT)
    with pytest.raises(NotFound, match="is no target of a"):
        await house.admin.adopt_target("a", "https://third.example.org/x", actor="me")
    await house.later(1)
    await house.admin.adopt_target("a", TARGET, actor="me")
    sync = await house.one_sync()
    assert [(to.url, to.adopt) for to in sync.push] == [(TARGET, True), (SECOND, False)]
    await house.did(sync)
    assert not any(t.adopt for t in (await house.project("a")).targets)
    assert "pull.target.adopted" in [a.action for a in await house.store.list_audit(5)]


# By hand


async def test_a_trigger_runs_at_once_is_answered_while_pending_and_refused_while_it_runs(house):
    await house.admin.set_strategy({"max_concurrent": 1}, actor="me")
    await house.create("a")
    await house.create("b")
    first = await house.one_sync()  # the limit is 1
    task = (await house.admin.trigger("b", force=True, actor="ann"))[0]
    sync = await house.one_sync()
    assert (sync.task_id, sync.force, task.trigger, task.user) == (task.id, True, Trigger.MANUAL, "ann")
    assert (await house.admin.trigger("b", actor="me"))[0].id == task.id
    assert (await house.admin.trigger("a", actor="me"))[0].id == first.task_id
    await house.began(sync)
    with pytest.raises(Conflict, match=f"b is being synced by task {task.id}"):
        await house.admin.trigger("b", actor="me")
    await house.did(sync)
    assert (await house.admin.trigger("b", actor="me"))[0].id != task.id


async def test_a_batch_stays_within_the_limit_and_names_what_it_left_out(house):
    await house.admin.set_strategy({"max_concurrent": 2}, actor="me")
    for name in "abcd":
        await house.create(name, interval_s=86_400.0)
        await house.did(await house.one_sync())
    await house.change("d", enabled=False)
    await house.later(60)
    running = (await house.admin.trigger("a", actor="me"))[0]
    await house.began(await house.one_sync())
    wanted = [name for n in range(500) for name in (f"no/{n}", "abcd"[n % 4])]
    done = await house.admin.trigger_batch([*wanted, "https://", "../x"], None, actor="me")
    assert (done.skipped_running, done.disabled, len(done.unknown)) == (1, ("d",), 502)
    assert len(done.task_ids) == 2
    assert running.id not in done.task_ids
    sync = await house.one_sync()  # b or c, beside a
    await house.did(sync)
    other = await house.one_sync()
    assert {sync.task_id, other.task_id} == set(done.task_ids)
    hurried = await house.admin.trigger_batch([], Priority.NORMAL, actor="me")
    assert (hurried.skipped_running, hurried.unknown) == (1, ())


async def test_a_batch_in_peak_hours_says_what_it_waits_for_and_runs_when_they_are_over(house):
    await house.admin.set_strategy(
        {"peak_avoidance": True, "peak_start": 22, "peak_end": 23}, actor="me"
    )  # T0 is 22:13
    await house.create("urgent", priority=Priority.HIGH, interval_s=86_400.0)
    await house.did(await house.one_sync())
    await house.create("a", interval_s=86_400.0)
    done = await house.admin.trigger_batch(["a", "urgent"], None, actor="me")
    urgent = await house.one_sync()
    assert urgent.key == key_of("urgent")
    (waiting,) = done.waiting
    assert waiting.wait.text == "waits until 23:00: only critical and high run in peak hours"
    assert waiting.count == 1
    task_id = next(task for task in done.task_ids if task != urgent.task_id)
    assert (await house.admin.task(task_id))[1].wait == waiting.wait
    assert (await house.admin.progress()).waiting == (waiting,)
    again = await house.admin.trigger_batch([], Priority.NORMAL, actor="me")
    assert (again.already_pending, again.waiting) == (1, (waiting,))
    await house.did(urgent)
    await house.later(47 * 60)
    assert (await house.one_sync()).task_id == task_id
    assert (await house.admin.task(task_id))[1].wait is None
    assert (await house.admin.progress()).waiting == ()


async def test_a_project_that_fails_shows_the_class_that_it_counts_as(house):
    await house.create("a", priority=Priority.HIGH, interval_s=600.0)
    for n in range(3):
        view = await house.admin.find_project("a")
        assert (view.project.config.priority, view.effective_priority) == (Priority.HIGH, Priority.HIGH)
        sync = await house.one_sync()
        unknown = Failure(FailureKind.UNKNOWN, "what?")
        await house.take(
            failed(sync.task_id, key=sync.key, failures=n + 1, at=house.clock.now, failure=unknown)
        )
        await house.later(1200)
    (view,) = (await house.admin.list_projects()).items
    assert (view.project.config.priority, view.effective_priority) == (Priority.HIGH, Priority.NORMAL)
    (view,) = (await house.admin.failed_projects(3)).items
    assert view.effective_priority is Priority.NORMAL


async def test_the_strategy_says_how_late_each_class_may_be(house):
    await house.create("a", interval_s=3600.0)
    view = await house.admin.set_strategy(
        {"peak_avoidance": True, "peak_start": 9, "peak_end": 18}, actor="me"
    )
    delays = {p: (d.usual_s / 60, d.worst_s / 60) for p, d in view.expected.items()}
    assert delays == {
        Priority.CRITICAL: (10, 10),
        Priority.HIGH: (30, 30),
        Priority.NORMAL: (60, 60 + 540),  # its own interval
        Priority.LOW: (360, 360 + 540),
    }


async def test_a_trigger_makes_a_batch_task_that_waits_for_room_start_at_once(house):
    await house.admin.set_strategy({"max_concurrent": 1}, actor="me")
    await house.create("a", interval_s=86_400.0)
    await house.did(await house.one_sync())
    await house.create("b", interval_s=86_400.0)
    await house.one_sync()
    done = await house.admin.trigger_batch(["a"], None, actor="me")
    assert await house.syncs() == []
    assert (await house.admin.trigger("a", actor="me"))[0].id == done.task_ids[0]
    assert (await house.one_sync()).task_id == done.task_ids[0]


async def test_a_task_by_the_other_api_joins_what_is_pending_and_pushes_too(house):
    async def submit(**params):
        return await house.it.submit_task(
            "a", TaskParams(**params), trigger=Trigger.API, actor="me", may_add=False
        )

    await house.create("a", TARGET)
    sync = await house.one_sync()
    forced = await submit(force=True)
    assert forced.id != sync.task_id
    second = await house.one_sync()
    assert (second.force, [to.url for to in second.push]) == (True, [TARGET])
    await house.began(sync)
    later = await submit()
    assert later.id not in (sync.task_id, forced.id)
    assert {(await submit()).id for _ in range(20)} == {later.id}
    assert await house.syncs() == [], "it waits its turn, and is joined"
    await house.later(3600.0)
    await house.it._tasks.route()
    assert await house.syncs() == [], "it is not set aside either: it has a worker"
    await house.did(sync, task_ids=(sync.task_id, forced.id))
    await house.it._tasks.route()
    last = await house.one_sync()
    assert (last.task_id, [to.url for to in last.push]) == (later.id, [TARGET])
    await house.did(last)
    assert [await house.status(i) for i in (sync.task_id, forced.id, later.id)] == [TaskStatus.SUCCESS] * 3
    assert (await house.project("a")).task is None


async def test_repos_without_a_configuration_are_no_projects_and_can_be_triggered_and_configured(house):
    await house.add(alias="plain/repo")
    await house.commands()
    view = await house.admin.find_project("plain/repo")
    assert (view.configured, view.project.name, view.project.config.interval_s) == (
        False,
        "plain/repo",
        600.0,
    )
    task = (await house.admin.trigger("plain/repo", actor="me"))[0]
    sync = await house.one_sync()
    assert (sync.task_id, sync.push) == (task.id, ())
    assert (await house.admin.trigger("plain/repo", actor="me"))[0].id == task.id
    assert (await house.admin.progress()).overall.total == 0
    assert (await house.admin.list_projects()).total == 0
    await house.change("plain/repo", interval_s=900.0)
    assert [c.repos[0].pulled for c in await house.commands() if isinstance(c, AssignRepos)] == [True]
    assert (await house.admin.find_project("plain/repo")).configured


async def one_priority(house, name):
    """What the project, the repo and the lists say, which is the same."""
    view = await house.admin.find_project(name)
    record = await house.store.find_repo(view.project.key)
    said = {view.project.config.priority, record.spec.priority}
    for priority in Priority:
        listed = await house.admin.list_projects(priority=priority)
        found = await house.it.list_repos(RepoFilter(priority=priority))
        if view.project.key in {one.project.key for one in listed.items}:
            said.add(priority)
        if view.project.key in {one.key for one in found}:
            said.add(priority)
    (priority,) = said
    return priority


async def test_a_repo_and_its_project_have_one_priority_whoever_sets_it(house):
    url = f"https://{HOST}/a"
    await house.create("a", url=url, priority=Priority.HIGH, interval_s=86_400.0)
    assert await one_priority(house, "a") is Priority.HIGH
    await house.commands()
    view = await house.change("a", priority=Priority.CRITICAL)
    assert "priority" in view.project.overrides
    assert await one_priority(house, "a") is Priority.CRITICAL
    told = [c.repos[0].priority for c in await house.commands() if isinstance(c, AssignRepos)]
    assert told[-1:] == [Priority.CRITICAL], "its worker hears of it"
    await house.it.add_url(url, {"priority": "low"}, actor="me")
    assert await one_priority(house, "a") is Priority.LOW
    await house.admin.set_priority(["a"], Priority.NORMAL, actor="me")
    assert await one_priority(house, "a") is Priority.NORMAL
    back = await house.admin.reset_project("a", actor="me")
    assert "priority" not in back.project.overrides
    assert await one_priority(house, "a") is Priority.HIGH, "as it was made"


async def test_a_priority_set_by_hand_holds_over_the_catalog_and_taken_back_is_what_the_line_says_by_then(
    house,
):
    records = CatalogRecords(house.store, house.it, frozenset())
    key = key_of("a")

    async def line(priority):
        spec = RepoSpec(key, f"https://{key}", Host(HOST), priority)
        entry = CatalogEntry(spec=spec, alias="a", targets=(TargetSpec(TARGET),), file="f", line=1)
        await records.put([entry])

    await line(Priority.HIGH)
    assert await one_priority(house, "a") is Priority.HIGH
    await house.change("a", priority=Priority.CRITICAL)
    await line(Priority.LOW)
    assert await one_priority(house, "a") is Priority.CRITICAL
    await house.admin.reset_project("a", actor="me")
    assert await one_priority(house, "a") is Priority.LOW
    assert "priority" not in (await house.store.find_repo(key)).info
    await line(Priority.NORMAL)
    assert await one_priority(house, "a") is Priority.NORMAL


async def test_the_settings_say_how_a_project_is_retried_that_says_nothing_itself(empty_house):
    house = empty_house
    house.settings = PullSettings(retry=RetryPolicy(2, 60.0, 3.0))
    async with house.running():
        view = await house.create("a", interval_s=86_400.0)
        assert (view.project.config.max_retries, view.project.config.retry_delay_s) == (2, 60.0)
        own = await house.create("b", interval_s=86_400.0, max_retries=7)
        assert (own.project.config.max_retries, own.project.config.retry_delay_s) == (7, 60.0)
        unknown = Failure(FailureKind.UNKNOWN, "what?")
        syncs = {sync.key: sync for sync in await house.syncs()}
        await house.did(syncs[key_of("b")])
        sync = syncs[key_of("a")]
        for n, wait_s in enumerate((60.0, 180.0)):
            now = house.clock.now
            await house.take(failed(sync.task_id, key=sync.key, failures=n + 1, at=now, failure=unknown))
            await house.quiet()
            assert (await house.admin.find_project("a")).project.next_sync_at == now + wait_s
            await house.later(wait_s)
            sync = await house.one_sync()


# Settings


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"peak_start": 25, "peak_end": 3}, "peak_hours_start"),
        ({"peak_end": -1}, "peak_hours_end"),
        ({"max_concurrent": 0}, "max_concurrent_pulls"),
        ({"max_concurrent": -3}, "max_concurrent_pulls"),
        ({"max_concurrent": True}, "max_concurrent_pulls"),
        ({"max_concurrent": 2.5}, "max_concurrent_pulls"),
        ({"peak_max_concurrent": 0}, "peak_max_concurrent"),
        ({"off_peak_max_concurrent": 10**9}, "off_peak_max_concurrent"),
        ({"peak_avoidance": "yes"}, "enable_peak_avoidance"),
        ({"adaptive": 1}, "enable_adaptive"),
        ({"night_start": 0}, "night_hours_start"),
        ({"name": ""}, "strategy_name"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_bad_strategy_is_refused_by_the_name_of_its_field_and_changes_nothing(house, values, field):
    before = await house.admin.strategy()
    with pytest.raises(UsageError, match=field):
        await house.admin.set_strategy({"max_concurrent": 7, **values}, actor="me")
    assert await house.admin.strategy() == before
    assert await house.store.get_strategy() is None
    assert await house.store.list_audit(5) == ()


async def test_a_strategy_is_in_force_at_once_and_survives_a_restart(empty_house):
    house = empty_house
    async with house.running():
        view = await house.admin.set_strategy({"max_concurrent": 1}, actor="me")
        assert (view.limit, view.strategy.max_concurrent, view.time_zone) == (1, 1, "UTC")
        for name in "abc":
            await house.create(name)
        assert len(await house.syncs()) == 1
        assert (await house.admin.strategy()).running == 1
        await house.admin.set_strategy({"max_concurrent": 2, "peak_start": 22, "peak_end": 6}, actor="me")
        assert len(await house.syncs()) == 1
        await house.admin.set_strategy({"enabled": False, "max_concurrent": 5}, actor="me")
        assert await house.syncs() == []
    async with house.running():
        view = await house.admin.strategy()
        assert (view.limit, view.strategy.enabled, view.strategy.peak_end) == (5, False, 6)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"interval_s": 59.0}, "sync_interval"),
        ({"interval_s": 1e12}, "sync_interval"),
        ({"max_retries": -1}, "max_retries"),
        ({"retry_delay_s": 0.0}, "retry_delay"),
        ({"targets": tuple(TargetSpec(f"https://t.example/{n}") for n in range(17))}, "targets: 17"),
        ({"targets": (TargetSpec("https://127.0.0.1/x"),)}, r"targets\.0\.url"),
        ({"targets": (TargetSpec(TARGET), TargetSpec("ext::sh"))}, r"targets\.1\.url"),
        ({"targets": (TargetSpec(TARGET), TargetSpec(TARGET + "/"))}, r"targets\.1\.url"),
        ({"targets": (TargetSpec(f"https://{HOST}/a.git"),)}, "the source itself"),
        ({"targets": (TargetSpec(TARGET, "unknown"),)}, r"targets\.0\.credential"),
        ({"targets": (TargetSpec("https://u:hunter2@t.example/x"),)}, r"targets\.0\.url"),
    ],
)
async def test_a_bad_change_is_refused_by_the_name_of_its_field_and_changes_nothing(house, change, field):
    await house.create("a", TARGET)
    before, log = await house.project("a"), await house.store.list_audit(9)
    with pytest.raises(UsageError, match=field) as told:
        await house.change("a", priority=Priority.LOW, **change)
    assert "hunter2" not in str(told.value)
    assert await house.project("a") == before
    with pytest.raises(UsageError, match=field):
        await house.admin.create_project(
            NewProject("b", f"https://{HOST}/a", None, ProjectChange(**change)), actor="me"
        )
    assert await house.store.list_audit(9) == log


@pytest.mark.parametrize(
    ("name", "url", "credential", "error", "field"),
    [
        ("../x", "https://h.example/x", None, UsageError, "project_key"),
        ("x\0", "https://h.example/x", None, UsageError, "project_key"),
        ("", "https://h.example/x", None, UsageError, "project_key"),
        ("b", "https://localhost/x", None, InvalidUrl, "source_url"),
        ("b", "file:///etc/passwd", None, InvalidUrl, "source_url"),
        ("b", "https://h.example/x", "unknown", UsageError, "source_credential"),
        ("a", "https://h.example/x", None, Conflict, "there is a project a already"),
        ("b", f"https://{HOST}/a.git", None, Conflict, "is already mirrored"),
    ],
)
async def test_a_bad_or_double_project_is_refused_and_makes_nothing(
    house, name, url, credential, error, field
):
    await house.create("a")
    with pytest.raises(error, match=field):
        await house.create(name, url=url, credential=credential)
    assert (await house.admin.list_projects()).total == 1
    assert (await house.it.overview()).total_repos == 1


async def test_a_source_behind_a_password_is_private_and_a_shorter_interval_holds_at_once(house):
    view = await house.create("a", TargetSpec(TARGET, "push"), credential="corp", interval_s=3600.0)
    assert (view.record.spec.private, view.record.spec.credential) == (True, "corp")
    sync = await house.one_sync()
    assert sync.push[0].credential == "push"
    await house.did(sync)
    await house.later(700)
    assert await house.syncs() == []
    await house.change("a", interval_s=600.0)
    assert (await house.one_sync()).key == key_of("a")


async def test_a_batch_of_a_thousand_does_the_good_ones_and_names_the_wrong_ones(house):
    for n in range(5):
        await house.create(f"p/{n}")
    names = [f"p/{n % 5}" for n in range(500)] + [f"q/{n}" for n in range(500)]
    done = await house.admin.set_priority(names, Priority.CRITICAL, actor="me")
    assert (done.updated, len(done.unknown), done.unknown[0]) == (5, 500, "q/0")
    project = await house.project("p/3")
    assert (project.config.priority, project.config.interval_s) == (Priority.CRITICAL, 10 * MINUTE)
    assert project.overrides >= {"priority"}
    assert (await house.admin.list_projects(priority=Priority.CRITICAL)).total == 5


async def test_a_deleted_project_leaves_the_catalog_with_its_tasks(house):
    await house.create("a", TARGET)
    sync = await house.one_sync()
    await house.admin.delete_project("a", actor="me")
    await house.quiet()
    assert any(isinstance(c, ReleaseRepos) for c in await house.commands())
    with pytest.raises(NotFound):
        await house.admin.find_project("a")
    assert await house.store.load_projects() == ()
    gone = Failure(FailureKind.UNKNOWN, "taken away")
    await house.take(Refused(sync.key, (sync.task_id,), gone, T0, T0))
    await house.create("a", SECOND)  # anew, and not with what it was before
    assert [t.url for t in (await house.project("a")).targets] == [SECOND]


async def test_a_repo_that_is_disabled_takes_its_project_along_and_back(house):
    await house.create("a", interval_s=600.0)
    await house.did(await house.one_sync())
    await house.add(f"https://{HOST}/a", enabled=False)
    assert not (await house.project("a")).config.enabled
    await house.later(3600)
    assert await house.syncs() == []
    with pytest.raises(Conflict, match="is disabled"):
        await house.change("a", enabled=True)
    await house.add(f"https://{HOST}/a", enabled=True)
    assert (await house.project("a")).config.enabled
    assert (await house.one_sync()).key == key_of("a")


# Restarts and trouble


async def test_after_a_restart_open_tasks_are_given_out_again_with_their_targets(empty_house):
    house = empty_house
    async with house.running():
        await house.create("a", TARGET, interval_s=600.0)
        sync = await house.one_sync()
        await house.began(sync)
        batch = await house.create("b", interval_s=86_400.0)
        assert batch.configured
        await house.syncs()
    async with house.running():
        syncs = await house.syncs()
        assert {s.task_id for s in syncs} >= {sync.task_id}
        again = next(s for s in syncs if s.task_id == sync.task_id)
        assert again.push == sync.push
        await house.later(5)
        await house.did(again)
        project = await house.project("a")
        assert (project.last_sync_at, project.task) == (T0 + 5, None)
        assert await house.syncs() == []


async def test_an_end_that_a_crash_kept_from_its_project_is_applied_at_the_start_once(empty_house):
    house = empty_house
    async with house.running():
        await house.create("a", TARGET, interval_s=600.0)
        sync = await house.one_sync()
        house.pulling.reported = lambda report: None  # the crash
        house.clock.now += 5
        await house.did(sync, failure=Failure(FailureKind.NETWORK_TIMEOUT, "no answer"))
        stored = await house.store.find_project(key_of("a"))
        assert (stored.task, stored.failures) == (sync.task_id, 0)
    async with house.running():
        project = await house.project("a")
        assert (project.task, project.failures, project.last_status) == (None, 1, TaskStatus.FAILED)
        assert project.targets[0].failures == 1
        assert await house.store.find_project(key_of("a")) == project
    async with house.running():
        assert (await house.project("a")).failures == 1


async def test_what_people_were_told_stands_again_after_a_restart(empty_house):
    house = empty_house
    async with house.running():
        await house.create("a", TARGET, SECOND)
        sync = await house.one_sync()
        one, two = sync.push
        await house.did(sync, pushed=False, pushes=(pushed_to(one, CONFLICT), pushed_to(two, DENIED)))
        told = {(a.kind, a.about) for a in house.alerts.standing}
        assert told >= {("target-conflict", f"a → {TARGET}"), ("target-paused", f"a → {SECOND}")}
    async with house.running():
        assert {(a.kind, a.about) for a in house.alerts.standing} == told
        await house.later(1)
        await house.admin.reset_failures("a", actor="me")
        await house.did(await house.one_sync())
        assert house.alerts.standing == ()


async def test_a_database_that_takes_no_task_is_asked_again_and_nothing_is_sent(house, monkeypatch):
    calls = []
    real = house.store.open_pull_tasks

    async def fails(opens, now):
        calls.append(now)
        raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))

    monkeypatch.setattr(house.store, "open_pull_tasks", fails)
    await house.create("a")
    assert await house.syncs() == []
    assert len(calls) == 1
    monkeypatch.setattr(house.store, "open_pull_tasks", real)
    await house.later(pull_opening.REOPEN_S)
    assert (await house.one_sync()).key == key_of("a")


async def test_a_task_that_was_decided_begins_once_the_database_answers(house, monkeypatch):
    real, trouble = house.store.find_repos, [True, True]

    async def fails(keys, **more):
        if trouble:
            trouble.pop()
            raise FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))
        return await real(keys, **more)

    monkeypatch.setattr(assigning, "BACKOFF_S", (0.01, 0.02))
    monkeypatch.setattr(house.store, "find_repos", fails)
    await house.create("a")
    assert (await house.one_sync()).key == key_of("a")
    assert not trouble


async def test_who_asks_while_the_database_takes_nothing_is_told_and_does_not_hang(house, monkeypatch):
    await house.create("a")
    sync = await house.one_sync()
    stuck = asyncio.Event()
    flush = house.recorder.flush

    async def waits():
        await stuck.wait()
        await flush()

    monkeypatch.setattr(pull_turn, "WAIT_S", 0.1)
    monkeypatch.setattr(house.pulling._recorder, "flush", waits)
    house.pulling.reported(failed(sync.task_id, key=sync.key))
    await asyncio.sleep(0.1)
    for asking in (house.admin.trigger("a", actor="me"), house.change("a", priority=Priority.LOW)):
        with pytest.raises(Unavailable, match="waits for the database"):
            await asking
    monkeypatch.setattr(pull_turn, "WAIT_S", 10.0)  # a slow disk is no trouble of the database
    stuck.set()
    await house.quiet()
    assert (await house.change("a", priority=Priority.LOW)).project.failures == 1


async def test_a_client_that_hangs_up_leaves_no_half_change_behind(house, monkeypatch):
    await house.create("a", interval_s=600.0)
    await house.did(await house.one_sync())
    put, opened = house.store.put_projects, house.store.open_pull_tasks
    stored = asyncio.Event()

    async def slow(real, *args):
        done = await real(*args)
        stored.set()
        await asyncio.sleep(0.05)
        return done

    monkeypatch.setattr(house.store, "put_projects", lambda projects: slow(put, projects))
    monkeypatch.setattr(house.store, "open_pull_tasks", lambda opens, now: slow(opened, opens, now))
    for asking in (house.change("a", priority=Priority.HIGH), house.admin.trigger("a", actor="me")):
        stored.clear()
        caller = asyncio.create_task(asking)
        await stored.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        assert caller.cancelled()
    project = await house.project("a")
    assert (project.config.priority, project.task) == (Priority.HIGH, (await house.one_sync()).task_id)
    assert project == await house.store.find_project(key_of("a"))


async def test_a_worker_that_begins_anew_is_given_the_task_again_with_its_targets(house):
    await house.create("a", TARGET)
    sync = await house.one_sync()
    await house.began(sync)
    await house.worker.leave()
    house.worker = ScriptedWorker()
    await house.worker.join(house.server)
    await house.told()
    await house.it._tasks.route()
    again = await house.one_sync()
    assert (again.task_id, again.push) == (sync.task_id, sync.push)


async def test_a_project_that_becomes_adaptive_again_lets_its_held_task_go(house):
    await house.admin.set_strategy({"max_concurrent": 1}, actor="me")
    await house.add(alias="plain/repo")
    await house.create("a")
    await house.one_sync()
    await house.change("plain/repo", interval_s=900.0)
    (task_id,) = (await house.admin.trigger_batch(["plain/repo"], None, actor="me")).task_ids
    assert await house.syncs() == []
    view = await house.admin.reset_project("plain/repo", actor="me")
    assert not view.configured
    sync = await house.one_sync()
    assert (sync.task_id, sync.push) == (task_id, ())


# Who may hold it


async def test_a_project_whose_target_needs_a_password_is_held_by_trusted_workers_only(empty_house):
    house = empty_house
    async with house.running():
        await house.create("a", TARGET)
        await house.quiet()
        assert not house.needs_trust(key_of("a"))
        await house.change("a", targets=(TargetSpec(TARGET, "push"),))
        await house.quiet()
        assert house.needs_trust(key_of("a"))
    async with house.running():
        assert house.needs_trust(key_of("a"))
        await house.change("a", targets=(TargetSpec(TARGET),))
        await house.quiet()
        assert not house.needs_trust(key_of("a"))


async def test_projects_that_no_worker_may_hold_do_not_hold_up_the_others(house, monkeypatch):
    await house.admin.set_strategy({"max_concurrent": 1}, actor="me")
    homes = house.fleet.machine.repo

    def homeless(key):
        repo = homes(key)
        return replace(repo, primary=None) if repo is not None and key == key_of("a") else repo

    monkeypatch.setattr(house.fleet.machine, "repo", homeless)
    monkeypatch.setattr(house.it._tasks, "behind", lambda worker, assign: [])
    await house.create("a", TARGET)
    await house.create("b")
    for _ in range(3):
        await house.later(ASIDE_S)
        await house.it._tasks.route()
    sync = await house.one_sync()
    assert sync.key == key_of("b")
    monkeypatch.setattr(house.fleet.machine, "repo", homes)
    await house.it._tasks.route()
    assert await house.syncs() == []  # there is no room
    await house.did(sync)
    sync = await house.one_sync()
    assert (sync.key, [to.url for to in sync.push]) == (key_of("a"), [TARGET])
    await house.did(sync)
    assert (await house.project("a")).last_status is TaskStatus.SUCCESS


async def test_a_batch_task_that_ran_is_given_out_again_after_a_restart(empty_house):
    house = empty_house
    async with house.running():
        await house.create("a", TARGET, interval_s=86_400.0)
        await house.did(await house.one_sync())
        await house.admin.trigger_batch(["a"], None, actor="me")
        sync = await house.one_sync()
        await house.began(sync)
    async with house.running():
        again = await house.one_sync()
        assert (again.task_id, [to.url for to in again.push]) == (sync.task_id, [TARGET])
        await house.did(again)
        assert await house.status(sync.task_id) is TaskStatus.SUCCESS
        assert not house.pulling.machine.running()


async def test_of_many_tasks_that_waited_at_a_restart_no_more_start_than_may(empty_house):
    house = empty_house
    async with house.running():
        await house.admin.set_strategy({"max_concurrent": 8}, actor="me")
        for name in "abcdef":
            await house.create(name)
        assert len(await house.syncs()) == 6
        await house.admin.set_strategy({"max_concurrent": 2}, actor="me")
    async with house.running():
        given = await house.syncs()
        assert len(given) == 2
        for _ in range(4):
            await house.did(given.pop(0))
            given += await house.syncs()
            assert len(given) == 2


def nobody_for(house, monkeypatch):
    """No repo has a worker, until that is undone."""
    homes = house.fleet.machine.repo

    def homeless(key):
        repo = homes(key)
        return replace(repo, primary=None) if repo is not None else None

    monkeypatch.setattr(house.fleet.machine, "repo", homeless)
    monkeypatch.setattr(house.it._tasks, "behind", lambda worker, assign: [])
    return lambda: monkeypatch.setattr(house.fleet.machine, "repo", homes)


async def routed(house, times=3):
    for _ in range(times):
        await house.later(ASIDE_S)
        await house.it._tasks.route()


async def test_a_worker_that_began_what_was_set_aside_is_given_it_once_more_and_its_slot_is_free_again(
    house, monkeypatch
):
    await house.create("a", TARGET, interval_s=600.0)
    sync = await house.one_sync()
    home_again = nobody_for(house, monkeypatch)
    for worker in house.it._tasks._book.workers():
        house.it._tasks._book.silent(worker)
    await routed(house)
    assert not house.pulling.machine.running()
    home_again()
    await house.began(sync)
    assert (await house.one_sync()).task_id == sync.task_id
    await house.take(failed(sync.task_id, key=sync.key))
    await house.quiet()
    assert await house.status(sync.task_id) is TaskStatus.FAILED
    assert not house.pulling.machine.running()
    await house.later(3_600)
    assert (await house.one_sync()).task_id != sync.task_id


async def test_a_task_that_waits_for_a_worker_is_given_out_though_its_repo_became_a_project_meanwhile(
    house, monkeypatch
):
    await house.add(alias="plain/repo")
    home_again = nobody_for(house, monkeypatch)
    task = await house.it.submit_task(
        "plain/repo", TaskParams(), trigger=Trigger.API, actor="me", may_add=False
    )
    await house.change("plain/repo", interval_s=900.0)
    await routed(house)
    home_again()
    await routed(house, times=1)
    syncs = await house.syncs()
    assert task.id in {sync.task_id for sync in syncs}
    for sync in syncs:
        await house.did(sync)
    assert await house.status(task.id) is TaskStatus.SUCCESS


async def test_the_word_to_overwrite_a_target_is_not_used_up_by_a_push_that_began_before_it(house):
    await house.create("a", TARGET, interval_s=600.0)
    sync = await house.one_sync()
    await house.began(sync)
    await house.admin.adopt_target("a", None, actor="me")
    await house.did(sync, failure=CONFLICT)
    following = await house.one_sync()
    assert [to.adopt for to in following.push] == [True]
    await house.later(1)
    await house.did(following)
    assert not (await house.project("a")).targets[0].adopt


# Figures and jobs


async def test_tasks_errors_and_statistics_are_told_by_project_and_in_all(house):
    await house.create("a", interval_s=600.0)
    await house.create("b", interval_s=600.0)
    first, second = await house.syncs()
    await house.take(failed(first.task_id, key=first.key, at=T0 + 1))
    await house.did(second)
    await house.later(10)
    page = await house.admin.tasks("a", page=1, size=5)
    assert [(t.id, t.status) for t in page.items] == [(first.task_id, TaskStatus.FAILED)]
    errors = await house.admin.errors(None, ErrorFilter())
    assert [t.id for t in errors.items] == [first.task_id]
    assert errors.records[first.key].alias == "a"
    assert (await house.admin.errors("b", ErrorFilter())).total == 0
    told = await house.admin.error_statistics(1)
    assert (told.total, told.by_kind[FailureKind.NETWORK_TIMEOUT].affected_projects) == (1, 1)
    for hours in (0, -1, float("nan"), 1e9):
        with pytest.raises(UsageError, match="hours"):
            await house.admin.error_statistics(hours)
    progress = await house.admin.progress(T0 - 10, T0 + 20)
    assert (progress.overall.total, progress.overall.failed, progress.overall.synced) == (2, 1, 1)
    assert (progress.period.tasks, progress.period.failed, progress.period.success) == (2, 1, 1)
    task, view = await house.admin.task(first.task_id)
    assert (task.id, view.project.name) == (first.task_id, "a")
    with pytest.raises(NotFound):
        await house.admin.task(first.task_id + 1000)


async def test_old_tasks_are_removed_and_open_and_young_ones_stay(house):
    await house.create("a", interval_s=86_400.0)
    old = await house.one_sync()
    await house.did(old)
    await house.later(2 * 86_400)
    young = await house.one_sync()
    await house.did(young)
    waiting = (await house.admin.trigger("a", actor="me"))[0]
    house.clock.now = T0 + 31 * 86_400
    await house.jobs().clean_up()
    page = await house.admin.tasks("a", size=10)
    assert {t.id for t in page.items} == {young.task_id, waiting.id}


async def test_old_entries_of_the_audit_log_go_with_the_tasks_and_revoked_tokens_later(house):
    await house.store.audit("ann", "token.revoked", "ci")
    await house.store.create_token("ci", Role.READER)
    await house.store.revoke_token("ci")
    for days, entries, tokens in ((9, 1, 1), (11, 0, 1), (91, 0, 0)):
        house.clock.now = T0 + days * 86_400
        await house.jobs(audit_retention_s=10 * 86_400.0).clean_up()
        found = [e for e in await house.store.list_audit(100) if e.action == "token.revoked"]
        assert (len(found), len(await house.store.list_tokens())) == (entries, tokens), days


async def test_jobs_come_by_their_crons_and_survive_a_database_in_trouble(house, monkeypatch):
    await house.create("a", interval_s=600.0)
    await house.did(await house.one_sync())
    fails = [True]
    real = house.store.note_progress

    async def trouble(*noted):
        if fails:
            fails.pop()
            raise FailureError(Failure(FailureKind.UNKNOWN, "away"))
        await real(*noted)

    monkeypatch.setattr(house.store, "note_progress", trouble)
    jobs = house.jobs(statistics="* * * * * ?", monitoring="* * * * * ?", cleanup="0 0 2 * * ?")
    work = asyncio.create_task(jobs.run())
    try:
        async with asyncio.timeout(20):
            while not await house.admin.course(T0, T0 + 1000):
                house.clock.now += 0.5
                await asyncio.sleep(0.05)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    (note, *_) = await house.admin.course(T0, T0 + 1000)
    assert (note.overall.total, note.overall.synced) == (1, 1)
    assert note.classes[Priority.NORMAL] == note.overall
    assert {p: of.total for p, of in note.classes.items() if of.total} == {Priority.NORMAL: 1}
    assert (note.pressure.looks, note.pressure.running) == (1, 0)
    assert fails == []


async def test_a_point_of_the_course_says_of_how_many_all_is_equal(house):
    await house.create("a", "https://t.example.org/a")
    await house.did(await house.one_sync())
    await house.create("b", "https://t.example.org/b")
    refused = Failure(FailureKind.PERMISSION_DENIED, "protected")
    await house.did(await house.one_sync(), failure=refused)
    await house.jobs().note_progress()
    (note,) = await house.admin.course(T0, T0 + 1000)
    assert (note.overall.equal, note.overall.compared, note.overall.equal_share) == (1, 2, 0.5)
    assert note.classes[Priority.NORMAL].equal == 1
    assert note.classes[Priority.LOW].equal_share is None


async def test_what_a_guard_holds_back_is_told_until_it_is_let_go(house):
    await house.create("a", interval_s=600.0)
    sync = await house.one_sync()
    held = Failure(FailureKind.CONFLICT, "all refs are gone")
    await house.take(replace(failed(sync.task_id, key=sync.key, at=T0), failure=held))
    await house.quiet()
    await house.jobs().look_through()
    (told,) = [alert for alert in house.alerts.standing if alert.kind == "repo-held"]
    assert (told.about, told.facts) == (sync.key, {"reason": "all refs are gone"})
    await house.later(86_400)
    await house.did(await house.one_sync())
    await house.jobs().look_through()
    assert [alert for alert in house.alerts.standing if alert.kind == "repo-held"] == []


async def test_of_very_many_that_are_held_no_end_is_told_that_nobody_knows_of(house, monkeypatch):
    held = Failure(FailureKind.CONFLICT, "all refs are gone")
    for name in ("a", "b", "c"):
        await house.create(name, interval_s=600.0)
        sync = await house.one_sync()
        await house.take(replace(failed(sync.task_id, key=sync.key, at=T0), failure=held))
    await house.quiet()

    async def stands() -> list[str]:
        await house.jobs().look_through()
        return sorted(alert.about for alert in house.alerts.stands(REPO_KINDS))

    monkeypatch.setattr(pull_jobs, "HELD_PAGE", 1)
    every = [key_of(name) for name in ("a", "b", "c")]
    assert await stands() == every
    monkeypatch.setattr(pull_jobs, "HELD_MAX", 2)
    assert await stands() == every
    house.alerts.told(Alert("repo-held", key_of("b"), "", over=True))
    house.alerts.told(Alert("repo-held", key_of("c"), "", over=True))
    assert await stands() == every[:2]


async def test_what_follows_from_the_state_of_projects_is_told_again_at_every_look(house):
    await house.create("a", TARGET)
    denied = Failure(FailureKind.CONFLICT, "would delete 9 of 10 refs")
    await house.did(await house.one_sync(), failure=denied)
    kinds = frozenset({"target-conflict", "target-paused"})
    stood = house.alerts.stands(kinds)
    assert stood
    for alert in stood:
        house.alerts.told(replace(alert, over=True))  # as if there had been no room for it
    house.alerts.told(Alert("project-paused", "gone", "", level=Level.ERROR))
    await house.jobs().look_through()
    assert house.alerts.stands(kinds) == stood
    assert house.alerts.stands(frozenset({"project-paused"})) == ()


async def test_a_clock_that_was_ahead_does_not_hold_a_job_back_once_it_is_right(house, monkeypatch):
    monkeypatch.setattr(pull_jobs, "SLEEP_MAX_S", 0.02)
    house.clock.now = T0 + 86_400
    work = asyncio.create_task(house.jobs(statistics="0 * * * * ?").run())
    await asyncio.sleep(0.1)
    house.clock.now = T0
    try:
        async with asyncio.timeout(20):
            while not await house.admin.course(T0, T0 + 3600):
                house.clock.now += 5
                await asyncio.sleep(0.05)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_monitoring_tells_what_stands_once_and_its_end(house):
    for name in "abc":
        await house.create(name, interval_s=86_400.0)
    unknown = Failure(FailureKind.UNKNOWN, "what?")
    for sync in await house.syncs():
        await house.take(failed(sync.task_id, key=sync.key, at=T0, failure=unknown))
    await house.later(1)
    jobs = house.jobs()
    await jobs.look_through()
    await jobs.look_through()
    stands = [(a.kind, a.about, a.level) for a in house.alerts.standing]
    assert stands == [("failure-rate", "all", Level.CRITICAL)]
    (alert,) = house.alerts.standing
    assert "3 of 3 projects are failed" in alert.text
    assert "affected: a, b, c" in alert.text
    assert alert.facts["errors"] == "UNKNOWN 3× (3)"
    assert any("3 of 3 projects are failed" in w for w in (await house.it.overview()).warnings)
    await house.later(300)
    for sync in await house.syncs():
        await house.did(sync)
    await jobs.look_through()
    assert house.alerts.standing == ()


async def test_with_a_schedulers_cron_projects_start_when_it_comes(empty_house):
    house = empty_house
    house.settings = PullSettings(by_cron=True)
    async with house.running():
        await house.create("a", interval_s=600.0)
        await house.later(30)
        assert await house.syncs() == []
        house.pulling.wake()
        await house.did(await house.one_sync())
        await house.later(700)
        assert await house.syncs() == []
        house.pulling.wake()
        assert (await house.one_sync()).key == key_of("a")


def test_the_default_strategy_is_the_seeds():
    assert Strategy().max_concurrent == 5


async def test_a_report_that_comes_late_does_not_end_a_task_twice(house):
    await house.create("a", interval_s=600.0)
    sync = await house.one_sync()
    report = replace(failed(sync.task_id, key=sync.key, at=T0 + 1), consecutive_failures=1)
    await house.take(report)
    await house.take(report)
    assert (await house.project("a")).failures == 1
