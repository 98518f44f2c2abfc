"""The engine where it is easily wrong: moments between two steps, and parts of it in trouble."""

from __future__ import annotations

import asyncio
import functools
import random
import shutil
import time

import pytest

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.edge.git.folder import DiskUsage
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.report_log import ReportLog
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import RepoFailed, RepoVerified, writes_of
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import AssignRepos, Failed, ReleaseRepos
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec, RepoStatus
from evermirror.model.task import Trigger
from evermirror.nodes import playground
from evermirror.nodes.coordinator import enacting, lead
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.service import TaskParams
from evermirror.nodes.worker import uplink, uplink_reports, worker

TROUBLE = FailureError(Failure(FailureKind.UNKNOWN, "the database is away"))


async def raise_trouble(*_args, **_more):
    raise TROUBLE


def trashed(stage):
    folder = stage.data / "mirrors" / ".trash"
    return list(folder.iterdir()) if folder.exists() else []


# Release


@pytest.mark.parametrize("steps", range(7))
async def test_a_repo_released_at_any_step_of_its_poll_is_mirrored_when_it_is_back(stage, upstream, steps):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        key = RepoKey(up.key("team/x"))
        spec = RepoSpec(key, repo.url, Host(upstream.host))
        engine = up.node.worker
        await asyncio.sleep(0.05)
        await engine.obey(AssignRepos((spec,)))
        for _ in range(steps):
            await asyncio.sleep(0)
        await engine.obey(ReleaseRepos((key,), delete=True))
        assert engine._scheduler.polls_in_flight == 0
        assert (engine._rounds.open, engine._rounds._jobs.tasks) == ({}, {})
        await engine.obey(AssignRepos((spec,)))

        async def mirrored():
            return engine.mirror_path(key) is not None

        await up.until(mirrored)


async def test_many_repos_leave_at_once_while_what_was_learnt_is_saved(stage, upstream, monkeypatch):
    monkeypatch.setattr(worker, "SAVE_S", 0.001)
    seed = upstream.create("team/r0", commits=1)
    names = ["team/r0", *(f"team/r{n}" for n in range(1, 25))]
    for name in names[1:]:
        upstream.copy(seed, name)
    async with stage.up() as up:
        for name in names:
            await up.add(upstream.url(f"{name}.git"))
        for name in names:
            await up.until_status(name, "active")
        await up.node.coordinator.release([RepoKey(up.key(name)) for name in names])

        async def gone():
            return up.node.worker.status().repos == 0 and len(trashed(stage)) == len(names)

        await up.until(gone)


async def test_a_local_file_that_takes_no_writes_does_not_end_the_worker(stage, upstream, monkeypatch):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        monkeypatch.setattr(up.node.worker._shelf._local, "forget", raise_trouble)
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        await up.add(repo.url)
        await up.until_status("team/x", "active")


def test_repos_released_while_they_are_polled_are_no_weather():
    schedule = Scheduler(ScheduleSettings())
    specs = [RepoSpec(RepoKey(f"h.org/o/r{n}"), f"https://h.org/o/r{n}", Host("h.org")) for n in range(5)]
    schedule.add([Entry(s, None) for s in specs], 1000.0)
    taken = [schedule.take(1000.0) for _ in range(4)]
    schedule.remove(taken, 1000.0)
    for key in taken:
        schedule.abandoned(key, 1000.0)
    assert schedule.polls_in_flight == 0
    assert [h.storm for h in schedule.hosts(1000.0)] == [None]
    assert not any(key in schedule for key in taken)


async def test_a_removal_that_a_crash_left_undone_is_done_at_the_next_start(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        await up.node.coordinator._store.remove_repos([RepoKey(up.key("team/x"))], time.time())
    async with stage.up() as up:

        async def in_trash():
            return len(trashed(stage)) == 1

        await up.until(in_trash)
        assert not stage.mirror(up.key("team/x")).exists()


async def test_a_repo_added_again_is_pending_until_it_is_mirrored_again(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        upstream.stall_after_bytes = 0  # nothing is verified before it heals
        await up.add(repo.url)
        record = await up.repo("team/x")
        assert (record.status.value, record.digest, record.verified_at) == ("pending", None, None)
        holders = await up.node.coordinator.holders(record.key)
        assert [h for h in holders if h.digest is not None] == []
        upstream.heal()
        await up.until_status("team/x", "active")


async def test_a_disabled_repo_is_left_alone_and_needs_no_fetch_when_it_is_enabled(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        await up.add(repo.url, enabled=False)

        async def disabled():
            return up.node.worker.plan(RepoKey(up.key("team/x"))).reason == "disabled"

        await up.until(disabled)

        async def at_rest():  # a poll under way came to its end
            return not up.node.worker._rounds.open

        await up.until(at_rest)
        upstream.requests.clear()
        await asyncio.sleep(0.3)
        assert upstream.requests == []
        await up.add(repo.url, enabled=True)
        assert (await up.sync("team/x"))["status"] == "skipped"
        assert not [r for r in upstream.requests if b"command=fetch" in r.body]


# Callers


async def test_a_repo_removed_under_a_queued_task_can_be_synced_when_it_is_back(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        upstream.fail_with(429, {"Retry-After": "600"})

        async def waiting():
            return any(h.state == "waiting" for h in up.node.worker.status().hosts)

        await up.until(waiting)
        first = (await up.client.post("/api/tasks", json={"git_url": repo.url})).json()
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")
        upstream.heal()
        await up.add(repo.url)
        second = await up.sync("team/x")
        assert second["task_id"] != first["task_id"]
        assert second["status"] in ("success", "skipped")


async def test_tasks_for_a_url_that_is_just_being_added_all_succeed(stage, upstream):
    upstream.create("team/x")
    async with stage.up() as up:
        tasks = await asyncio.gather(*(up.sync("team/x") for _ in range(12)))
        assert {t["status"] for t in tasks} <= {"success", "skipped"}


async def test_a_task_asked_for_while_the_catalog_is_loaded_waits_for_it(stage, upstream, monkeypatch):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
    resume, early = Coordinator.resume, []

    async def later(self):
        params = TaskParams()
        early.append(await self.submit_task(repo.url, params, trigger=Trigger.API, actor="me", may_add=False))
        await asyncio.sleep(0.1)
        await resume(self)

    monkeypatch.setattr(Coordinator, "resume", later)
    async with stage.up() as up:
        task = await up.node.coordinator.wait_task(early[0].id, 20)
        assert task.status.value == "skipped"


async def test_after_a_restart_an_answer_still_tells_the_mirrors_figures(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        before = await up.repo("team/x")
    async with stage.up() as up:
        task = await up.sync("team/x")
        after = await up.repo("team/x")
        assert (after.head_commit, after.refs_count) == (before.head_commit, before.refs_count)
        assert after.size_bytes > 0
        assert task["result"]["head_commit"] == repo.tip()


# Configuration


async def test_two_changes_of_one_repo_at_the_same_time_both_hold(stage, upstream):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await asyncio.gather(up.add(repo.url, priority="high"), up.add(repo.url, interval="1h"))
        spec = (await up.repo("team/x")).spec
        assert (spec.priority.value, spec.interval_s) == ("high", 3600.0)


async def test_a_repo_that_gets_its_credential_is_tried_at_once(stage, upstream):
    repo = upstream.create("team/x")
    upstream.require_basic("me", "sesame")
    secret = {"corp.username": "me", "corp.password": "sesame"}
    async with stage.up(credentials=secret) as up:
        await up.add(repo.url)

        async def refused():
            return (await up.repo("team/x")).consecutive_failures > 0

        await up.until(refused)
        await up.add(repo.url, credential="corp")
        await up.until_status("team/x", "active")


async def test_an_alias_that_is_the_key_of_another_url_does_not_stand_in_its_way(stage, upstream):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    async with stage.up() as up:
        await up.add(one.url, alias=up.key("team/two"))
        await up.add(two.url)
        await up.until_status("team/two", "active")
        assert up.refs("team/two") == two.public_refs()


async def test_a_credential_that_left_the_settings_does_not_stop_the_catalog(stage, upstream, tmp_path):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    file = tmp_path / "urls.txt"
    file.write_text(f"{one.url}\n{two.url}\n")
    secret = {"corp.username": "me", "corp.password": "sesame"}
    async with stage.up(catalog={"sources": [str(file)]}, credentials=secret) as up:
        await up.add(one.url, credential="corp", private=True)
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        await up.until_status("team/two", "active")
        spec = (await up.repo("team/one")).spec
        assert (spec.private, spec.credential) == (True, "corp")


async def test_an_alias_of_the_catalog_that_is_taken_is_left_out_and_the_rest_loads(
    stage, upstream, tmp_path
):
    one, two, three = (upstream.create(f"team/{name}") for name in ("one", "two", "three"))
    file = tmp_path / "urls.txt"
    file.write_text(f"{two.url} alias=it\n{three.url} alias=other\n")
    async with stage.up() as up:
        await up.add(one.url, alias="it")
    async with stage.up(catalog={"sources": [str(file)]}) as up:
        assert [(await up.repo(f"team/{n}")).alias for n in ("one", "two", "three")] == ["it", None, "other"]
        assert any("alias it" in w for w in up.node.catalog.warnings)


# What is told


def test_a_change_that_a_guard_held_back_makes_its_repo_held():
    failure = Failure(FailureKind.CONFLICT, "upstream turned empty")
    report = Failed(RepoKey("h.org/o/r"), (), failure, False, 0, 1.0, 2.0, None)
    assert writes_of(report)[0].status is RepoStatus.HELD


async def test_a_time_written_under_a_wrong_clock_does_not_stay_for_ever(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path / 'db'}")
    key = RepoKey("h.org/o/r")
    try:
        await store.upsert_repos([RepoRecord(RepoSpec(key, "https://h.org/o/r", Host("h.org")))])
        year = 365 * 86_400.0
        await store.apply([RepoVerified(key, 1000.0 + year)])
        failure = Failure(FailureKind.UNKNOWN, "?")
        await store.apply(
            [RepoFailed(key, failure, RepoStatus.FAILING, 1, 2000.0), RepoVerified(key, 3000.0)]
        )
        found = await store.find_repo(key)
        assert (found.verified_at, found.status) == (3000.0, RepoStatus.ACTIVE)
    finally:
        await store.close()


# Parts in trouble


async def test_a_catalog_that_could_not_be_taken_is_taken_later_and_the_warning_ends(
    stage, upstream, tmp_path, monkeypatch
):
    one, two = upstream.create("team/one"), upstream.create("team/two")
    file = tmp_path / "urls.txt"
    file.write_text(f"{one.url}\n")
    async with stage.up(catalog={"sources": [str(file)], "interval": "50ms"}) as up:

        async def unread():
            said = up.node.catalog.warnings
            return any("cannot be read" in w or "cannot be taken" in w for w in said)

        async def not_taken():
            return any("cannot be taken" in w for w in up.node.catalog.warnings)

        async def well():
            return not up.node.catalog.warnings

        text = file.read_text()
        file.unlink()
        await up.until(unread)
        file.write_text(text)
        await up.until(well)  # though nothing in it changed
        with monkeypatch.context() as patch:
            patch.setattr(Store, "upsert_repos", raise_trouble)
            file.write_text(f"{one.url}\n{two.url}\n")
            await up.until(not_taken)
        await up.until_status("team/two", "active")
        await up.until(well)


async def test_a_database_in_trouble_at_the_daily_cleaning_does_not_end_the_process(
    stage, upstream, monkeypatch
):
    tried = []

    async def trouble(*args):
        tried.append(args)
        await raise_trouble()

    monkeypatch.setattr(Store, "cleanup_tasks", trouble)
    async with stage.up(scheduled_jobs={"task_cleanup.cron": "* * * * * ?"}) as up:

        async def twice() -> bool:
            return len(tried) > 2

        await up.until(twice)
        assert not up.node.supervisor.failures


async def test_a_wait_ends_in_time_while_the_database_takes_no_writes(stage, upstream, monkeypatch):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        task = (await up.client.post("/api/tasks", json={"git_url": repo.url})).json()
        with monkeypatch.context() as patch:
            patch.setattr(Store, "apply", raise_trouble)
            async with asyncio.timeout(5):
                await up.node.coordinator.wait_task(int(task["task_id"]), 0.2)


async def test_a_stop_ends_though_the_database_takes_no_writes_and_all_queues_are_full(
    stage, upstream, monkeypatch
):
    monkeypatch.setattr(enacting, "DECISIONS_MAX", 1)
    monkeypatch.setattr(uplink_reports, "WINDOW", 1)
    monkeypatch.setattr(uplink_reports, "BUFFER_MAX", 1)
    monkeypatch.setattr(worker, "LAST_WORDS_S", 0.2)
    monkeypatch.setattr(uplink, "LAST_WORDS_S", 0.2)
    monkeypatch.setattr(lead, "SETTLE_S", 0.2)
    monkeypatch.setattr(lead, "Recorder", functools.partial(Recorder, capacity=1, close_s=0.2))
    seed = upstream.create("team/r0", commits=1)
    names = ["team/r0", *(f"team/r{n}" for n in range(1, 6))]
    for name in names[1:]:
        upstream.copy(seed, name)

    async def run_until_all_is_full():
        async with stage.up() as up:
            for name in names:
                await up.add(upstream.url(f"{name}.git"))
            for name in names:
                await up.until_status(name, "active")
            monkeypatch.setattr(Store, "apply", raise_trouble)
            monkeypatch.setattr(ReportLog, "append", raise_trouble)
            upstream.fail_with(500)

            async def full():
                buffer = up.node.uplink._reports._buffer
                return len(buffer) == uplink_reports.BUFFER_MAX and not up.node.lead.recorder.healthy

            await up.until(full)
            await asyncio.sleep(0.5)

    with pytest.raises(FailureError, match="not written"):
        await asyncio.wait_for(run_until_all_is_full(), 60)  # one that hangs does so for good


async def test_folders_of_the_mirrors_own_that_were_removed_come_back(stage, upstream, monkeypatch):
    monkeypatch.setattr(worker, "TIDY_S", 0.02)
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        for name in (".trash", ".incoming"):
            shutil.rmtree(stage.data / "mirrors" / name)
        await asyncio.sleep(0.2)
        assert not up.node.supervisor.failures
        await up.client.delete(f"/api/git_urls/{up.key('team/x')}")

        async def in_trash():
            return len(trashed(stage)) == 1

        await up.until(in_trash)


async def test_a_push_that_failed_does_not_end_the_playgrounds_pushing(tmp_path, monkeypatch):
    monkeypatch.setattr(playground, "PUSH_EVERY_S", (0.0, 0.001))
    tried = asyncio.Queue()

    async def push(self, name):
        await tried.put(name)
        raise TROUBLE

    monkeypatch.setattr(playground.Playground, "push", push)
    pushing = asyncio.create_task(playground.Playground(tmp_path, None, random.Random(1)).keep_pushing())
    async with asyncio.timeout(5):
        for _ in range(3):
            await tried.get()
    pushing.cancel()
    await asyncio.gather(pushing, return_exceptions=True)


# A full disk


@pytest.fixture
def disk(monkeypatch):
    """What the file system says; full at first."""
    told = {"free": 1}
    monkeypatch.setattr(Mirrors, "disk_usage", lambda self: DiskUsage(1000, told["free"]))
    return told


async def test_asking_for_a_clone_on_a_full_disk_does_not_keep_the_guard_closed(stage, upstream, disk):
    repo = upstream.create("team/x")
    async with stage.up(schedule={"min_gap": "1h"}) as up:
        task = await up.sync("team/x")
        assert (task["status"], task["result"]["error_type"]) == ("failure", "DISK_FULL")
        disk["free"] = 900

        async def open_again():
            return up.node.worker.status().accepting_clones

        await up.until(open_again)
        assert (await up.sync("team/x"))["status"] in ("success", "skipped")
        assert up.refs("team/x") == repo.public_refs()


async def test_who_asks_for_a_clone_that_waits_for_room_is_told_so(stage, upstream, disk):
    repo = upstream.create("team/x")
    async with stage.up() as up:
        await up.add(repo.url)

        async def in_line():
            return up.node.worker.status().queued_syncs == 1

        await up.until(in_line)
        task = await up.sync("team/x", wait=5)
        assert (task["status"], task["result"]["error_type"]) == ("failure", "DISK_FULL")
        disk["free"] = 900
        await up.until_status("team/x", "active")
