"""Projects whose changes are cut short, that leave and come back, and that are asked for many at a time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from evermirror.core.catalog.listfile import parse_list
from evermirror.errors import Conflict, NotFound, Unavailable
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec
from evermirror.model.url import UrlRules
from evermirror.nodes.coordinator.catalog.catalog_records import CatalogRecords
from evermirror.nodes.coordinator.pull import pull_triggers, pull_turn
from evermirror.nodes.service import AddStatus
from tests.nodes.pull_house import HOST, PUT, PullHouse, built, key_of

TARGET = "https://target.example.org/core.git"
SECOND = "https://second.example.org/core.git"
DENIED = Failure(FailureKind.PERMISSION_DENIED, "you may not push here")
HICCUP = FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))


@pytest.fixture
async def empty_house(tmp_path):
    """Nobody is there yet."""
    async with built(PullHouse, tmp_path) as house:
        yield house


@pytest.fixture
async def house(empty_house):
    async with empty_house.running():
        yield empty_house


def lines(*texts):
    return list(parse_list("\n".join(texts).encode(), "repos.txt", UrlRules()).entries)


@contextlib.contextmanager
def away(store, name):
    """The database takes nothing of this kind."""

    async def fails(*args, **more):
        raise HICCUP

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, name, fails)
        yield


def placed(house, name):
    repo = house.fleet.machine.repo(key_of(name))
    return repo is not None and not repo.removed


# Cut short


async def test_repos_of_the_catalog_that_a_hiccup_kept_from_the_fleet_are_told_at_the_next_look(house):
    records = CatalogRecords(house.store, house.it, frozenset())
    entries = lines(f"https://{HOST}/a target={TARGET}", f"https://{HOST}/plain")
    with away(house.store, "put_projects"), pytest.raises(FailureError):
        await records.put(entries)
    assert not placed(house, "a")
    await records.put(entries)
    assert placed(house, "a")
    assert placed(house, "plain")
    assert (await house.one_sync()).key == key_of("a")
    assert house.it.unassigned == set()


async def test_a_change_of_a_repo_that_a_hiccup_kept_from_its_project_is_told_when_asked_again(house):
    await house.create("a", TARGET)
    await house.one_sync()
    with away(house.store, "put_projects"), pytest.raises(FailureError):
        await house.add(f"https://{HOST}/a", priority="low")
    assert (await house.project("a")).config.priority is Priority.NORMAL
    status, _ = await house.add(f"https://{HOST}/a", priority="low")
    assert status is AddStatus.EXISTS
    assert (await house.project("a")).config.priority is Priority.LOW


async def test_a_project_that_was_changed_unseen_is_synced_as_it_is_then(house):
    await house.create("a", TARGET, interval_s=600.0)
    await house.did(await house.one_sync())
    known = house.pulling.project(key_of("a"))
    await house.store.put_projects([known])  # as a commit whose answer was lost
    await house.later(700)
    assert (await house.one_sync()).key == key_of("a")
    assert house.pulling.project(key_of("a")).updated_at > known.updated_at


async def test_a_project_that_was_changed_unseen_is_triggered_with_its_targets(house):
    await house.create("a", TARGET)
    await house.did(await house.one_sync())
    await house.store.put_projects([house.pulling.project(key_of("a"))])
    task, _ = await house.admin.trigger("a", actor="me")
    sync = await house.one_sync()
    assert (sync.task_id, [to.url for to in sync.push]) == (task.id, [TARGET])


async def test_a_project_that_is_gone_from_the_store_is_forgotten(house):
    await house.create("a", TARGET, interval_s=600.0)
    await house.did(await house.one_sync())
    await house.store.remove_projects([key_of("a")])
    await house.later(700)
    assert await house.syncs() == []
    assert not house.pulling.is_project(key_of("a"))


async def test_who_does_not_get_a_turn_leaves_no_half_project_behind(house, monkeypatch):
    monkeypatch.setattr(pull_turn, "WAIT_S", 0.05)
    async with house.pulling.changing.patient:
        with pytest.raises(Unavailable):
            await house.create("a", TARGET)
    with pytest.raises(NotFound):
        await house.admin.find_project("a")
    await house.create("a", TARGET)
    assert [to.url for to in (await house.one_sync()).push] == [TARGET]


async def test_a_project_whose_making_a_crash_cut_short_is_made_by_asking_again(empty_house):
    async with empty_house.running() as house:
        down = away(house.store, "put_projects"), away(house.store, "remove_repos")
        with down[0], down[1], pytest.raises(FailureError):
            await house.create("a", TARGET)
        assert (await house.it.find_repo("a")).key == key_of("a")
    async with empty_house.running() as house:
        with pytest.raises(Conflict, match="there is a project a already"):
            await house.create("a", TARGET, url="https://elsewhere.example.org/a")
        await house.create("a", TARGET)
        assert [to.url for to in (await house.one_sync()).push] == [TARGET]
        with pytest.raises(Conflict, match="there is a project a already"):
            await house.create("a", TARGET)


# Away and back


async def prepared(house):
    """What a person set, and what was put."""
    await house.did(await house.one_sync())
    await house.change(key_of("a"), max_retries=7, interval_s=1200.0)
    project = await house.project(key_of("a"))
    assert project.targets[0].put == PUT
    return project


def same(back, before):
    assert (back.config, back.overrides) == (before.config, before.overrides)
    assert [(t.id, t.url, t.put) for t in back.targets] == [(t.id, t.url, t.put) for t in before.targets]


@pytest.mark.parametrize("restart", [False, True])
async def test_a_project_that_is_undeleted_is_as_it_was(empty_house, restart):
    async with empty_house.running() as house:
        await house.create("a", TARGET)
        before = await prepared(house)
        await house.admin.delete_project("a", actor="me")
        assert not house.pulling.is_project(key_of("a"))
        if not restart:
            await house.it.undelete(key_of("a"), actor="me")
            same(await house.project(key_of("a")), before)
            await house.later(1300)
            assert house.pulling.machine.running() == {key_of("a")}
            assert [to.put for to in house.pulling.machine.push_of(key_of("a"), house.clock.now)] == [PUT]
    if restart:
        async with empty_house.running() as house:
            await house.it.undelete(key_of("a"), actor="me")
            same(await house.project(key_of("a")), before)


async def test_undeleting_that_a_hiccup_cut_short_is_done_by_asking_again(house):
    await house.create("a", TARGET)
    before = await prepared(house)
    await house.admin.delete_project("a", actor="me")
    with away(house.store, "put_projects"), pytest.raises(FailureError):
        await house.it.undelete(key_of("a"), actor="me")
    await house.it.undelete(key_of("a"), actor="me")
    same(await house.project(key_of("a")), before)
    with pytest.raises(Conflict, match="is in the catalog"):
        await house.it.undelete(key_of("a"), actor="me")


@pytest.mark.parametrize("restart", [False, True])
async def test_a_line_that_comes_back_brings_its_project_back(empty_house, restart):
    line = f"https://{HOST}/a target={TARGET}"
    async with empty_house.running() as house:
        records = CatalogRecords(house.store, house.it, frozenset())
        await records.put(lines(line))
        before = await prepared(house)
        assert await records.drop([key_of("a")]) == 1
        assert not house.pulling.is_project(key_of("a"))
        if not restart:
            await records.put(lines(line))
            same(await house.project(key_of("a")), before)
    if restart:
        async with empty_house.running() as house:
            await CatalogRecords(house.store, house.it, frozenset()).put(lines(line))
            same(await house.project(key_of("a")), before)
            await house.later(1300)
            assert house.pulling.machine.running() == {key_of("a")}


async def test_a_line_that_comes_back_without_targets_and_that_nobody_spoke_of_makes_no_project(house):
    records = CatalogRecords(house.store, house.it, frozenset())
    await records.put(lines(f"https://{HOST}/a target={TARGET}"))
    await records.drop([key_of("a")])
    await records.put(lines(f"https://{HOST}/a"))
    assert not house.pulling.is_project(key_of("a"))
    assert not (await house.store.find_repo(key_of("a"))).spec.pulled


@pytest.mark.parametrize("anew", ["project", "repo"])
async def test_what_a_person_deleted_and_adds_anew_is_not_what_it_was(house, anew):
    await house.create("a", TARGET)
    await prepared(house)
    await house.admin.delete_project("a", actor="me")
    if anew == "repo":
        await house.add(f"https://{HOST}/a")
        assert not house.pulling.is_project(key_of("a"))
        assert not (await house.store.find_repo(key_of("a"))).spec.pulled
    else:
        await house.create("a", TARGET, SECOND)
        project = await house.project(key_of("a"))
        assert (project.config.max_retries, project.overrides) == (3, {"targets"})
        assert [(t.url, t.put) for t in project.targets] == [(TARGET, None), (SECOND, None)]
        assert house.pulling.machine.running() == {key_of("a")}


# A person's word


async def test_adopting_the_targets_that_paused_a_project_enables_it(house):
    await house.create("a", TARGET, SECOND)
    await house.did(await house.one_sync(), failure=DENIED)
    assert not (await house.project("a")).config.enabled
    await house.admin.adopt_target("a", TARGET, actor="me")
    project = await house.project("a")
    assert (project.config.enabled, project.paused, project.failures) == (True, "", 0)
    assert [(t.adopt, bool(t.paused)) for t in project.targets] == [(True, False), (False, True)]
    (push,) = (await house.one_sync()).push
    assert (push.url, push.adopt) == (TARGET, True)


async def test_adopting_a_target_of_a_project_that_is_disabled_for_another_reason_is_refused(house):
    await house.create("a", TARGET)
    await house.did(await house.one_sync())
    await house.change("a", enabled=False)
    with pytest.raises(Conflict, match="a is disabled"):
        await house.admin.adopt_target("a", None, actor="me")
    assert not (await house.project("a")).targets[0].adopt


async def busy(house, *names):
    """Room for one, which another project has; these were synced, and wait for their turn in a batch."""
    await house.admin.set_strategy({"max_concurrent": 1}, actor="me")
    for name in names:
        await house.create(name, TARGET, interval_s=86_400.0)
        await house.did(await house.one_sync())
    await house.create("other")
    await house.one_sync()
    return (await house.admin.trigger_batch(names, None, actor="me")).task_ids


async def test_what_waits_is_forced_when_somebody_asks_for_that(house):
    (waiting,) = await busy(house, "a")
    task, new = await house.admin.trigger("a", force=True, actor="me")
    assert (task.id, new, task.params["force"]) == (waiting, False, True)
    sync = await house.one_sync()
    assert (sync.task_id, sync.force) == (waiting, True)
    assert (await house.it.get_task(waiting)).params["force"]


async def test_a_batch_forces_what_waits_and_makes_no_second_task(house):
    waiting = await busy(house, "a", "b")
    done = await house.admin.trigger_batch(["a", "b"], None, force=True, actor="me")
    assert (done.task_ids, done.already_pending) == (waiting, 2)
    assert house.it.tasks._book.command(waiting[1]).force


async def test_what_a_worker_already_has_is_forced_by_a_second_task(house):
    await house.create("a", TARGET)
    first = await house.one_sync()
    task, new = await house.admin.trigger("a", force=True, actor="me")
    sync = await house.one_sync()
    assert (new, sync.task_id, sync.force) == (True, task.id, True)
    assert task.id != first.task_id
    again, new = await house.admin.trigger("a", force=True, actor="me")
    assert (again.id, new) == (task.id, False)


# Many


@pytest.mark.parametrize("pulled", [False, True])
async def test_a_large_batch_asks_the_store_a_few_times_and_lets_others_have_their_turn(
    house, monkeypatch, pulled
):
    names = [f"{HOST}/r{n}" for n in range(1200)]
    records = [RepoRecord(RepoSpec(RepoKey(n), f"https://{n}", Host(HOST)), source="api") for n in names]
    await house.store.upsert_repos(records)
    await house.it.assign(records)
    if pulled:
        await house.admin.set_strategy({"enabled": False}, actor="me")
        await house.admin.set_priority(names, Priority.LOW, actor="me")
    await house.quiet()
    monkeypatch.setattr(pull_triggers, "PART", 300)
    asked = 0
    for kind in ("read", "write"):
        real = getattr(house.store._db, kind)

        def counted(real=real):
            nonlocal asked
            asked += 1
            return real()

        monkeypatch.setattr(house.store._db, kind, counted)
    batch = asyncio.create_task(house.admin.trigger_batch(names, None, actor="me"))
    while not house.pulling.changing.patient.locked():
        await asyncio.sleep(0)
    async with house.pulling.changing:
        assert not batch.done()
        assert not pulled or len(await house.store.unfinished_tasks()) == 300
    done = await batch
    assert len(done.task_ids) == 1200
    again = await house.admin.trigger_batch([] if pulled else names, Priority.LOW, actor="me")
    assert (len(again.task_ids), again.already_pending) == (1200, 1200)
    assert asked < 150


# Starting again


async def test_a_worker_may_report_at_every_moment_of_a_start(empty_house, monkeypatch):
    """What it says of pushes counts for targets that are known: they are, whatever the start waits for."""
    known = {}

    def looked_at_during(name):
        real = getattr(empty_house.store, name)

        async def slow(*args, **more):
            await asyncio.sleep(0)
            known[name] = empty_house.pulling.is_project(key_of("a"))
            return await real(*args, **more)

        monkeypatch.setattr(empty_house.store, name, slow)

    async with empty_house.running():
        await empty_house.create("a", TARGET)
    for name in ("get_strategy", "ended_pull_tasks"):
        looked_at_during(name)
    async with empty_house.running():
        assert known == {"get_strategy": True, "ended_pull_tasks": True}
        assert empty_house.pulling.is_project(key_of("a"))
