"""What the store remembers of projects and their targets, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sqlalchemy as sa

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import CopyRow, PutCopies, PutWorker
from evermirror.core.fleet.table import NONE, TRUSTED_ONLY
from evermirror.core.pull.events import OpenTask
from evermirror.core.watch.progress import overall
from evermirror.edge.store import pull
from evermirror.edge.store.outcomes import Outcome
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.repos import UpsertCounts
from evermirror.edge.store.writes import Decided, ProjectSaved, TaskEnded
from evermirror.errors import UsageError
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import PullConfig, Strategy, TargetSpec
from evermirror.model.repo import Priority
from evermirror.model.task import TaskId, TaskStatus, Trigger
from evermirror.model.worker import WorkerFacts, WorkerId, WorkerRecord
from tests.support.pull_store import HEAD, A, B, C, project, repo, target, with_project

DIGEST = "ab" * 32
HOSTILE = "é日本\U0001f680 %_\\'\";--\r\n\x00\x1b[31m\udcff\ud800"
TIMEOUT = Failure(FailureKind.NETWORK_TIMEOUT, "no answer", "try later")
DENIED = Failure(FailureKind.PERMISSION_DENIED, "you may not")
SUCCESS, FAILED = TaskStatus.SUCCESS, TaskStatus.FAILED


async def everything(store, table):
    async with store._db.read() as c:
        return (await c.execute(sa.text(f"SELECT * FROM {table}"))).all()  # noqa: S608


# Projects


async def test_a_project_comes_back_as_it_was_given(store):
    failure = Failure(
        FailureKind.CONFLICT, HOSTILE, HOSTILE, 1.5, HOSTILE, HOSTILE, HOSTILE, True, {"k": HOSTILE}
    )
    told = project(
        name="team/core",
        priority=Priority.CRITICAL,
        interval_s=600.5,
        enabled=False,
        max_retries=7,
        retry_delay_s=61.0,
        targets=(
            target(credential="corp", put=DIGEST, put_at=5.0, commit=HEAD, failures=3, not_before=9.5),
            target(
                "https://t.example/é", paused="why", adopt=True, last_failure=failure, last_failure_at=4.0
            ),
        ),
        overrides=frozenset({"priority", "enabled"}),
        catalog=(TargetSpec("https://c.example/1"), TargetSpec("https://c.example/2", "cred")),
        last_sync_at=1.0,
        next_sync_at=2.0,
        failures=5,
        paused="five failures in a row",
        last_status=FAILED,
        last_failure=failure,
        last_failure_at=3.0,
        source_credential="own",
    )
    await store.upsert_repos([repo(alias="team/core", credential="own")])
    (put,) = await store.put_projects([told])
    ids = [t.id for t in put.targets]
    assert len(set(ids)) == 2
    assert 0 not in ids
    assert put == replace(
        told,
        targets=tuple(replace(t, id=i) for t, i in zip(told.targets, ids, strict=True)),
        created_at=1000.0,
        updated_at=1000.0,
    )
    assert await store.find_project(A) == put
    assert await store.load_projects() == (put,)
    assert await store.find_projects([A, B, A, HOSTILE]) == {A: put}


async def test_a_project_is_named_by_its_alias_or_else_its_key(store):
    await store.upsert_repos([repo(A, alias="team/a"), repo(B)])
    await store.put_projects([project(A, name="wrong"), project(B, name="wrong")])
    assert [(p.key, p.name) for p in await store.load_projects()] == [(A, "team/a"), (B, B)]
    await store.upsert_repos([repo(A, alias="team/new")])
    assert (await store.find_project(A)).name == "team/new"


async def test_text_for_people_that_cannot_be_stored_is_escaped_and_names_are_refused(store):
    put = await with_project(store, paused=HOSTILE, targets=(target(paused=HOSTILE),))
    for paused in (put.paused, put.targets[0].paused):
        assert paused.startswith("é日本\U0001f680 %_\\'\";--")
        assert "\\x00" in paused
    for bad in (target("https://t\0"), target("x" * 2049), target(credential="\ud800")):
        with pytest.raises(UsageError):
            await store.put_projects([project(targets=(bad,))])
    assert (await store.find_project(A)) == put  # nothing of it was written


async def test_putting_again_replaces_everything_but_the_time_it_was_made(store, clock):
    put = await with_project(store, targets=(target("https://t.example/1"), target("https://t.example/2")))
    clock.now = 2000.0
    first, second = put.targets
    changed = replace(
        put,
        config=PullConfig(Priority.LOW, 99.0, True, 1, 2.0),
        targets=(replace(second, failures=2), target("https://t.example/3"), first),
        overrides=frozenset({"targets"}),
        failures=1,
    )
    (again,) = await store.put_projects([changed])
    assert (again.created_at, again.updated_at) == (1000.0, 2000.0)
    third = again.targets[1]
    assert third.id > max(first.id, second.id)
    assert again == replace(
        changed,
        targets=(replace(second, failures=2), replace(changed.targets[1], id=third.id), first),
        updated_at=2000.0,
    )
    (fewer,) = await store.put_projects([replace(again, targets=(third,))])
    assert fewer.targets == (third,)
    assert len(await everything(store, "pull_targets")) == 1


async def test_ids_of_targets_are_never_given_again(store):
    put = await with_project(store, targets=(target("https://t.example/1"), target("https://t.example/2")))
    highest = max(t.id for t in put.targets)
    (none,) = await store.put_projects([replace(put, targets=())])
    (new,) = await store.put_projects([replace(none, targets=(target(),))])
    assert new.targets[0].id > highest
    await store.remove_projects([A])
    (anew,) = await store.put_projects([replace(new, targets=(target(),))])
    assert anew.targets[0].id > new.targets[0].id


async def test_a_target_of_another_project_is_not_taken_over(store):
    await store.upsert_repos([repo(A), repo(B)])
    (of_a,) = await store.put_projects([project(A, targets=(target("https://t.example/a"),))])
    (of_b,) = await store.put_projects([project(B, targets=of_a.targets)])
    assert of_b.targets[0].id != of_a.targets[0].id
    assert await store.find_project(A) == of_a


async def test_what_people_change_is_newer_than_all_before_whatever_the_clock_says(store, clock):
    put = await with_project(store)
    versions = [put.updated_at]
    for now in (1000.0, 10.0, 1000.0):
        clock.now = now
        (put,) = await store.put_projects([put])
        versions.append(put.updated_at)
    assert versions == sorted(set(versions))


async def test_a_repo_that_is_not_in_the_catalog_is_left_out(store):
    await store.upsert_repos([repo(A), repo(B)])
    await store.remove_repos([B], at=5.0)
    put = await store.put_projects([project(B), project("example.org/x"), project(HOSTILE), project(A)])
    assert [p.key for p in put] == [A]
    assert await store.put_projects([]) == ()
    assert len(await everything(store, "pull_projects")) == 1


async def test_of_two_projects_for_one_key_the_last_counts(store):
    await store.upsert_repos([repo(A)])
    (put,) = await store.put_projects([project(A), project(A, priority=Priority.HIGH)])
    assert put.config.priority is Priority.HIGH


async def test_many_projects_are_put_found_and_loaded_in_parts(store, monkeypatch):
    monkeypatch.setattr(pull, "AT_ONCE", 7)
    monkeypatch.setattr(pull, "CHUNK", 5)
    keys = [f"example.org/{n:03}" for n in range(40)]
    await store.upsert_repos([repo(k) for k in keys])
    put = await store.put_projects(
        [
            project(k, targets=tuple(target(f"https://t.example/{k}/{i}") for i in range(2)))
            for k in keys[::-1]
        ]
    )
    assert [p.key for p in put] == keys[::-1]
    assert all(
        [t.url for t in p.targets] == [f"https://t.example/{p.key}/{i}" for i in range(2)] for p in put
    )
    assert await store.load_projects() == put[::-1]
    assert await store.find_projects(keys) == {p.key: p for p in put}
    await store.remove_projects(keys[:39])
    assert await store.load_projects() == put[:1]
    assert len(await everything(store, "pull_targets")) == 2


async def test_a_removed_repo_keeps_its_project_for_the_day_it_comes_back(store):
    await store.upsert_repos([repo(A), repo(B)])
    put, other = await store.put_projects([project(A, targets=(target(),), failures=4), project(B)])
    await store.remove_repos([A], at=1500.0)
    assert await store.load_projects() == (other,)
    assert await store.left_projects() == {A}
    assert await store.find_project(A) is None
    assert await store.page_projects() == ((other,), 1)
    assert await store.failed_projects(4) == ((), 0)
    assert overall((await store.pull_progress(1.0, [A])).values()).total == 1
    assert await store.open_pull_tasks([OpenTask(put, 0)], 5.0) == ()
    await store.restore_repo(A, 1600.0)
    assert await store.left_projects() == frozenset()
    assert await store.find_project(A) == put
    await store.remove_repos([A], at=1700.0)
    assert await store.upsert_repos([repo(A)]) == UpsertCounts(added=1)
    assert await store.load_projects() == (put, other)


async def test_every_spec_says_whether_the_repo_is_pulled(store):
    await store.upsert_repos([repo(A), repo(B)])

    async def told():
        specs = [s.spec for s in await store.specs_of([A, B])]
        changed = [c.spec for c in await store.changes_since(0, 9)]
        found = [(await store.find_repo(key)).spec for key in (A, B)]
        assert specs == changed == found
        return [s.pulled for s in specs]

    assert await told() == [False, False]
    await store.put_projects([project(B)])
    assert await told() == [False, True]
    assert (await store.upsert_repos([repo(B, priority=Priority.LOW)])).updated == 1
    assert await told() == [False, True]  # what the catalog says of a repo changes nothing about it
    await store.remove_projects([B, "example.org/unknown", HOSTILE])
    assert await told() == [False, False]
    assert await store.find_project(B) is None


async def test_a_project_with_a_credential_for_a_target_is_for_trusted_workers_only(store):
    await store.upsert_repos([repo(A), repo(B), repo(C)])
    await store.put_projects(
        [
            project(A, targets=(target(), target(credential="corp")), last_sync_at=5.0),
            project(B, targets=(target(),), last_sync_at=5.0),
        ]
    )

    async def trusted_only():
        table = (await store.load_fleet()).tables.table
        return [k for k in (A, B, C) if int(table.flags[table.row_of(k)]) & TRUSTED_ONLY]

    assert await trusted_only() == [A]
    await store.remove_projects([A])
    assert await trusted_only() == []


async def test_the_fleet_does_not_learn_at_a_start_of_projects_that_wait_for_their_first_task(store):
    waits, synced, held, plain = (f"example.org/{name}" for name in ("waits", "synced", "held", "plain"))
    await store.upsert_repos([repo(key) for key in (waits, synced, held, plain)])
    await store.put_projects([project(waits), project(synced, last_sync_at=5.0), project(held)])
    worker = WorkerRecord(WorkerId(0), WorkerFacts("w"))
    copy = CopyRow(held, worker.id, 0, CopyState.PLANNED, Reason.HOME, 5.0)
    await store.apply([Decided((PutWorker(worker), PutCopies((copy,))), ())])

    async def learned():
        table = (await store.load_fleet()).tables.table
        return {key for key in (waits, synced, held, plain) if table.row_of(key) != NONE}

    assert await learned() == {synced, held, plain}
    await store.remove_projects([waits])
    assert await learned() == {waits, synced, held, plain}


async def test_projects_are_listed_by_name_with_their_total(store):
    aliases = {A: "zoo/a", B: None, C: "Core/ü"}
    await store.upsert_repos([*(repo(k, alias=a) for k, a in aliases.items()), repo("example.org/none")])
    await store.put_projects(
        [
            project(A, priority=Priority.HIGH),
            project(B, targets=(target(),)),
            project(C, priority=Priority.HIGH),
        ]
    )

    async def names(**which):
        found, total = await store.page_projects(**which)
        return [p.name for p in found], total

    assert await names() == (["Core/ü", B, "zoo/a"], 3)
    assert await names(page=2, size=2) == (["zoo/a"], 3)
    assert await names(page=9, size=2) == ([], 3)
    assert await names(priority=Priority.HIGH) == (["Core/ü", "zoo/a"], 2)
    assert await names(search="TEAM") == ([B, "zoo/a"], 2)
    assert await names(search="core") == (["Core/ü"], 1)
    assert await names(search="team", priority=Priority.HIGH, size=1) == (["zoo/a"], 1)
    for text in ("%", "_", "\\", HOSTILE, "x" * 3000, "\0"):
        assert await names(search=text) == ([], 0)
    for page, size in ((0, 10), (-5, 10), (10**30, 10**30), (1, 0), (1, -1)):
        await names(page=page, size=size)
    (found,), _ = await store.page_projects(search=B)
    assert found == await store.find_project(B)


async def test_failed_projects_are_told_worst_first(store):
    keys = [f"example.org/{n}" for n in range(5)]
    await store.upsert_repos([repo(k) for k in keys])
    await store.put_projects([project(k, failures=f) for k, f in zip(keys, (0, 3, 5, 3, 1), strict=True)])

    async def found(at_least, **which):
        projects, total = await store.failed_projects(at_least, **which)
        return [p.key[-1] for p in projects], total

    assert await found(3) == (["2", "1", "3"], 3)
    assert await found(1, page=2, size=3) == (["4"], 4)
    assert await found(6) == ([], 0)
    assert (await found(0))[1] == 5
    assert (await found(-(10**30)))[1] == 5
    assert await found(10**30) == ([], 0)


async def test_the_public_sees_no_private_project(store):
    await store.upsert_repos([repo(A), repo(B, private=True)])
    a, b = await store.put_projects([project(A, failures=1), project(B, failures=2)])
    assert await store.page_projects() == ((a, b), 2)
    assert await store.page_projects(public=True) == ((a,), 1)
    assert await store.failed_projects(1) == ((b, a), 2)
    assert await store.failed_projects(1, public=True) == ((a,), 1)


# Saves


async def test_a_save_writes_the_state_and_leaves_what_people_set(store):
    put = await with_project(
        store, priority=Priority.HIGH, targets=(target("https://t.example/1"), target("https://t.example/2"))
    )
    first, second = put.targets
    state = replace(
        put,
        last_sync_at=5.0,
        next_sync_at=6.0,
        failures=2,
        paused="why",
        last_status=FAILED,
        last_failure=TIMEOUT,
        last_failure_at=7.0,
        targets=(
            replace(first, put=DIGEST, put_at=8.0, commit=HEAD, adopt=True),
            replace(second, failures=1, not_before=9.0, paused="x", last_failure=DENIED, last_failure_at=1.0),
        ),
    )
    state = replace(state, config=replace(state.config, enabled=False))
    said = replace(
        state,
        config=replace(state.config, priority=Priority.LOW, interval_s=1.0, max_retries=99),
        overrides=frozenset({"priority"}),
        targets=(replace(state.targets[0], url="https://other.example", credential="x"), state.targets[1]),
    )
    await store.apply([ProjectSaved(said)])
    assert await store.find_project(A) == state


async def test_of_several_saves_in_a_batch_the_last_counts(store):
    put = await with_project(store, targets=(target(),))
    saves = [replace(put, failures=n, targets=(replace(put.targets[0], failures=n),)) for n in range(5)]
    await store.apply([ProjectSaved(p) for p in saves])
    assert await store.find_project(A) == saves[-1]


async def test_a_save_that_waited_while_a_person_changed_the_project_is_dropped(store):
    put = await with_project(store, targets=(target(),))
    waiting = replace(
        put,
        config=replace(put.config, enabled=False),
        failures=5,
        paused="failed",
        targets=(replace(put.targets[0], failures=9),),
    )
    (changed,) = await store.put_projects([replace(put, failures=0)])
    await store.apply([ProjectSaved(waiting)])
    assert await store.find_project(A) == changed
    later = replace(changed, failures=1)
    await store.apply([ProjectSaved(later)])
    assert await store.find_project(A) == later


async def test_a_save_makes_no_project_and_no_target(store):
    put = await with_project(store, targets=(target(),))
    await store.remove_projects([A])
    await store.apply([ProjectSaved(put), ProjectSaved(project(HOSTILE)), ProjectSaved(project("x/unknown"))])
    assert await store.load_projects() == ()
    assert await everything(store, "pull_targets") == []
    (put,) = await store.put_projects([put])
    await store.apply([ProjectSaved(replace(put, targets=(*put.targets, target("https://t.example/new"))))])
    assert await store.find_project(A) == put


async def test_saves_go_through_the_recorder(store):
    put = await with_project(store)
    async with Recorder(store, flush_s=0.01) as recorder:
        for n in range(50):
            await recorder.put(ProjectSaved(replace(put, failures=n)))
        await recorder.flush()
        assert (await store.find_project(A)).failures == 49


# Opening tasks


async def test_a_task_is_opened_together_with_its_project(store):
    await store.upsert_repos([repo(A), repo(B)])
    a, b = await store.put_projects([project(A, targets=(target(),)), project(B)])
    due = replace(a, next_sync_at=4600.0, targets=(replace(a.targets[0], failures=1),))
    opened = await store.open_pull_tasks(
        [
            OpenTask(b, 0, Trigger.MANUAL, "ann", {"force": True}),
            OpenTask(due, 2),
            OpenTask(project("example.org/x"), 0),
            OpenTask(project(HOSTILE), 0),
        ],
        1010.0,
    )
    assert [t.repo for t in opened] == [B, A]
    by_ann, scheduled = opened
    assert (by_ann.trigger, by_ann.user, by_ann.params) == (Trigger.MANUAL, "ann", {"force": True})
    assert (scheduled.trigger, scheduled.status, scheduled.retry_count) == (
        Trigger.SCHEDULE,
        TaskStatus.PENDING,
        2,
    )
    assert (scheduled.scheduled_at, scheduled.created_at, scheduled.params) == (1010.0, 1010.0, None)
    assert await store.unfinished_tasks() == tuple(sorted(opened, key=lambda t: t.id))
    assert await store.find_project(A) == replace(due, task=scheduled.id)
    assert (await store.find_project(B)).task == by_ann.id


async def test_a_project_that_a_person_changed_meanwhile_is_not_opened(store):
    put = await with_project(store)
    (changed,) = await store.put_projects([replace(put, config=replace(put.config, enabled=False))])
    assert await store.open_pull_tasks([OpenTask(put, 0)], 5.0) == ()
    assert await store.unfinished_tasks() == ()
    assert await store.find_project(A) == changed


async def test_many_tasks_are_opened_in_one_go(store):
    keys = [f"example.org/{n:04}" for n in range(1200)]
    await store.upsert_repos([repo(k) for k in keys])
    projects = await store.put_projects([project(k) for k in keys])
    opened = await store.open_pull_tasks([OpenTask(p, n) for n, p in enumerate(projects)], 5.0)
    assert [t.repo for t in opened] == keys
    assert [t.retry_count for t in opened] == list(range(1200))
    assert {p.key: p.task for p in await store.load_projects()} == {t.repo: t.id for t in opened}


async def test_many_tasks_are_made_and_found_at_once(store):
    keys = [f"example.org/{n:04}" for n in range(1200)]
    await store.upsert_repos([repo(k) for k in keys])
    made = await store.create_tasks(keys[::-1], Trigger.MANUAL_BATCH, user="ann", params={"force": False})
    assert [task.repo for task in made] == keys[::-1]
    assert {(t.trigger, t.user, t.status) for t in made} == {
        (Trigger.MANUAL_BATCH, "ann", TaskStatus.PENDING)
    }
    ended = TaskEnded(made[0].id, Outcome(SUCCESS, 5.0, 6.0))
    await store.apply([ended])
    found = await store.open_tasks_of([*keys, keys[0], HOSTILE, "example.org/nobody"])
    assert found == tuple(sorted(made[1:], key=lambda task: task.id))
    assert await store.create_tasks([], Trigger.API) == await store.open_tasks_of([]) == ()


async def test_what_a_pending_task_asks_for_is_changed_and_of_others_it_stays(store, clock):
    await store.upsert_repos([repo(A), repo(B)])
    pending, over = await store.create_tasks([A, B], Trigger.API, params={"force": False})
    await store.apply([TaskEnded(over.id, Outcome(SUCCESS, 5.0, 6.0))])
    clock.now = 1100.0
    wanted = {pending.id: {"force": True}, over.id: {"force": True}, TaskId(99): {"force": True}}
    changed = replace(pending, params={"force": True}, updated_at=1100.0)
    assert await store.change_params(wanted) == (changed,)
    assert await store.get_task(pending.id) == changed
    assert (await store.get_task(over.id)).params == {"force": False}
    assert await store.change_params({}) == ()


async def test_an_end_that_the_project_did_not_hear_of_is_told_after_a_crash(store):
    await store.upsert_repos([repo(A), repo(B), repo(C)])
    projects = await store.put_projects([project(A), project(B), project(C)])
    a, b, c = await store.open_pull_tasks([OpenTask(p, 0) for p in projects], 5.0)
    assert await store.ended_pull_tasks() == ()
    await store.apply([TaskEnded(a.id, Outcome(FAILED, 6.0, 7.0, failure=TIMEOUT))])
    await store.apply([TaskEnded(c.id, Outcome(SUCCESS, 6.0, 7.0))])
    await store.apply([ProjectSaved(replace(projects[2], task=None))])
    (ended,) = await store.ended_pull_tasks()
    assert (ended.id, ended.status, ended.failure) == (a.id, FAILED, TIMEOUT)
    assert [p.task for p in await store.load_projects()] == [a.id, b.id, None]
    await store.cleanup_tasks(older_than=5000.0)
    assert [p.task for p in await store.load_projects()] == [None, b.id, None]


async def test_a_task_keeps_the_count_that_it_was_opened_with(store):
    put = await with_project(store)
    first, second = [(await store.open_pull_tasks([OpenTask(put, n)], 5.0))[0] for n in (3, 0)]
    await store.apply([TaskEnded(first.id, Outcome(SUCCESS, 6.0, 7.0))])
    await store.apply([TaskEnded(second.id, Outcome(FAILED, 6.0, 7.0, failure=TIMEOUT, retry_count=2))])
    assert [t.retry_count for t in (await store.task_page(A, 1, 9))[0]] == [2, 3]


# The strategy


async def test_the_strategy_is_kept_with_its_times(store, clock):
    assert await store.get_strategy() is None
    first = await store.put_strategy(
        Strategy(max_concurrent=9, night_start=22, adaptive=True, created_at=5.0)
    )
    assert (first.created_at, first.updated_at, first.max_concurrent) == (1000.0, 1000.0, 9)
    assert await store.get_strategy() == first
    clock.now = 2000.0
    second = await store.put_strategy(replace(first, enabled=False))
    assert (second.created_at, second.updated_at, second.enabled) == (1000.0, 2000.0, False)
    assert await store.get_strategy() == second


# The views


async def test_what_is_configured_and_done_can_be_read_by_other_programs(store):
    put = await with_project(
        store,
        priority=Priority.HIGH,
        interval_s=900.0,
        failures=2,
        targets=(target(), target(url="https://b/b")),
    )
    await store.upsert_repos([repo(B)])
    (task,) = await store.open_pull_tasks([OpenTask(put, 0, Trigger.MANUAL, "me")], 50.0)
    failed = Outcome(TaskStatus.FAILED, 51.0, 52.0, failure=Failure(FailureKind.CONFLICT, "held"))
    await store.apply([TaskEnded(task.id, failed)])
    await store.create_task(B, Trigger.API)  # of a repo that is no project
    await store.put_strategy(Strategy(max_concurrent=7))
    async with store._db.read() as c:
        config = (await c.execute(sa.text("SELECT * FROM pull_sync_config"))).mappings().one()
        told = (await c.execute(sa.text("SELECT * FROM pull_sync_task"))).mappings().one()
        schedule = (await c.execute(sa.text("SELECT * FROM pull_sync_schedule"))).mappings().one()
    assert (config["priority"], config["sync_interval"], config["retry_delay"]) == ("high", 15, 5)
    assert (config["enabled"], config["max_retries"], config["consecutive_failures"]) == (True, 3, 2)
    assert config["targets"].split() == [t.url for t in put.targets]
    assert {"sync_project_id", "last_sync_at", "next_sync_at", "created_at", "updated_at"} < set(config)
    assert (told["task_id"], told["sync_project_id"]) == (task.id, config["sync_project_id"])
    assert (told["task_status"], told["trigger_type"], told["trigger_user"]) == ("failed", "manual", "me")
    assert (told["scheduled_at"], told["started_at"], told["completed_at"]) == (50.0, 51.0, 52.0)
    assert json.loads(told["error_message"])
    names = {"source_commit_sha", "target_commit_sha", "has_changes", "changes_count", "retry_count"}
    assert names | {"created_at", "updated_at"} < set(told)
    assert (schedule["strategy_name"], schedule["max_concurrent_pulls"]) == ("default", 7)
    assert (schedule["enable_peak_avoidance"], schedule["enable_adaptive"]) == (False, True)
