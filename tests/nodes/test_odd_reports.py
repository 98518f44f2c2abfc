"""Whatever an untrusted worker tells, the coordinator goes on, on both databases, and others are heard."""

from __future__ import annotations

import time
from dataclasses import replace

import httpx2
import pytest

from evermirror.core.fleet.rates import FleetRates
from evermirror.core.fleet.reconcile import Reconciler
from evermirror.edge.rpc import bounds
from evermirror.edge.rpc.transport import Identity
from evermirror.edge.store.tables import tasks
from evermirror.edge.store.writes import RepoFailed
from evermirror.model.access import Role
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.messages import Failed, HeldRepo, Started, Synced, Verified
from evermirror.model.refs import RefChange, RefsDigest
from evermirror.model.repo import RepoKey, RepoStatus
from evermirror.model.wire import Beat, Holding, Taken, Welcomed
from evermirror.nodes.coordinator import fleet as fleet_module
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.hearing import REPORT_TRIES, written
from tests.support.crew import status_of
from tests.support.followers import Worker, house_at

A, B = RepoKey("example.org/team/a"), RepoKey("example.org/team/b")
DIGEST = RefsDigest("ab" * 32)
HUGE = 2**63 - 1
YEAR_9999 = 253_402_300_799.0
GONE = Failure(FailureKind.NOT_FOUND, "not there")


@pytest.fixture(params=["sqlite", "postgresql"])
def sections(request):
    """Of the settings."""
    if request.param == "sqlite":
        return {}
    return {"database": {"url": request.getfixturevalue("postgres_database")}}


def failed(key=A, failures=1, at=0.0):
    at = at or time.time()
    return Failed(key, (), GONE, True, failures, at, at, at + 60)


def synced(key=A, *, at=0.0, task_ids=(), commits=1):
    at = at or time.time()
    moved = (RefChange("refs/heads/main", None, "cd" * 20),)
    return Synced(key, task_ids, DIGEST, None, 1, moved, 1, commits, 0, 77, True, at, at, at, Activity())


async def repo(house, key=A):
    return await house.lead.coordinator.find_repo(key)


async def answers(house):
    """Of what anybody may ask for."""
    async with httpx2.AsyncClient(base_url=house.node.url, timeout=30) as client:
        paths = ("/api/pull/report", "/api/overview", "/api/overview/course", f"/api/repos/{A}", "/metrics")
        return {path: (await client.get(path)).status_code for path in paths}


async def test_a_count_beyond_any_column_stops_nothing_also_not_after_a_restart(tmp_path, sections):
    async with house_at(tmp_path, **sections) as house:
        await house.add(A)
        async with house.worker(1, "odd", trusted=False, grpc=True) as odd:
            await odd.until_assigned(A)
            await odd.report(failed(failures=2**40))
            await odd.report(failed(failures=HUGE))
            await odd.settle()
            assert (await repo(house)).consecutive_failures == bounds.FAILURES_MAX
            await odd.report(synced(commits=HUGE))
            await odd.settle()
            assert (await repo(house)).status is RepoStatus.ACTIVE
        assert set((await answers(house)).values()) == {200}
    async with house_at(tmp_path, **sections) as house, house.worker(2, "honest") as honest:
        await honest.report(failed())
        await honest.settle()
        assert house.lead.recorder.set_aside == 0


async def test_counters_that_jump_do_not_end_the_statistics(tmp_path, sections):
    async with house_at(tmp_path, **sections) as house:
        course = house.lead.coordinator.figures._course
        await course.note()
        async with house.worker(1, "odd", trusted=False, grpc=True) as odd:
            for n in range(6):
                told = n % 2 * HUGE
                await odd.say(Beat(_counting(told)))
            await odd.report(failed(B))  # in order with the beats
            await odd.settle()
            await course.note()
        noted = await house.lead.store.course(0.0, time.time() + 60)
        assert 0 <= noted[-1].work.polls <= 6 * 100_000 * 60
        assert set((await answers(house)).values()) <= {200, 404}


def _counting(told):
    return replace(
        status_of(), polls_total=told, changes_total=told, received_bytes_total=told, disk_total_bytes=told
    )


async def test_times_of_other_ages_are_stored_as_times_that_can_be(tmp_path, sections):
    async with house_at(tmp_path, **sections) as house:
        await house.add(A, B)
        async with house.worker(1, "odd", trusted=False, grpc=True) as odd:
            await odd.until_assigned(A, B)
            await odd.report(synced(at=YEAR_9999))
            await odd.report(failed(B, at=YEAR_9999 - 1000))
            await odd.report(Started(A, (), -62_000_000_000.0))
            await odd.report(synced(B, at=-5.0))
            await odd.report(Verified(((A, YEAR_9999), (B, -1.0))))
            await odd.settle()
            latest = time.time() + bounds.CLOCK_SLACK_S
            for key in (A, B):
                known = await repo(house, key)
                times = (known.verified_at, known.changed_at, known.updated_at, known.last_failure_at)
                assert all(at is None or 0.0 <= at <= latest for at in times), times
            async with house.lead.store._db.read() as c:
                for row in await c.execute(tasks.select()):
                    assert 0.0 <= row.created_at <= row.completed_at <= latest
                    assert row.updated_at <= latest
        identity = Identity(2, "other", Role.WORKER, trusted=False)
        other = Worker(await house.connection(identity, grpc=True))
        await other.say(house.hello("other", Role.WORKER))
        async with house.talking(other):
            await other.next(Welcomed)
            await other.say(Holding((HeldRepo(A, DIGEST, -1.0), HeldRepo(B, DIGEST, 2.0**33)), last=True))
            await other.report(failed(A))
            await other.settle()


async def test_a_write_that_the_database_refuses_is_set_aside_and_its_report_counts(
    tmp_path, sections, monkeypatch
):
    """As a bug would make it: no value from outside is known that does so."""

    def too_large(machine, worker, report):
        writes = written(machine, worker, report)
        if getattr(report, "consecutive_failures", 0) == 7:
            writes += (RepoFailed(A, GONE, RepoStatus.FAILING, 2**70, time.time()),)
        return writes

    monkeypatch.setattr(fleet_module, "written", too_large)
    async with house_at(tmp_path, **sections) as house:
        await house.add(A, B)
        async with house.worker(1, "odd", trusted=False) as odd:
            await odd.until_assigned(A, B)
            await odd.report(failed(A, failures=7))
            await odd.report(synced(B))
            await odd.settle()
            assert (await repo(house, A)).consecutive_failures == 7
            assert (await repo(house, B)).status is RepoStatus.ACTIVE
            assert house.lead.recorder.set_aside == 1
        overview = await house.lead.coordinator.figures._count()
        assert any("refused 1 writes" in warning for warning in overview.warnings)
    async with house_at(tmp_path, **sections) as house, house.worker(1, "odd", trusted=False) as odd:
        assert odd.reports == 2  # both count as taken


def _fails(monkeypatch, times):
    """The machine fails on what a worker holds of A, so often."""
    verified, failures = Reconciler.verified, []

    def fail(self, member, copies, now_s, draft):
        if any(held.key == A for held in copies) and len(failures) < times:
            failures.append(1)
            raise IndexError("a bug")
        return verified(self, member, copies, now_s, draft)

    monkeypatch.setattr(Reconciler, "verified", fail)
    return failures


async def test_a_report_that_fails_once_ends_the_connection_and_is_not_lost(tmp_path, monkeypatch):
    failures = _fails(monkeypatch, 1)
    async with house_at(tmp_path) as house:
        await house.add(A)
        async with house.worker(1, "odd") as odd:
            await odd.until_assigned(A)
            await odd.report(synced())
            assert "could not handle Synced" in await odd.ends()
        async with house.worker(1, "odd") as odd:
            assert odd.reports == 0  # it is to be sent again
            await odd.report(synced())
            await odd.settle()
            assert (await repo(house)).status is RepoStatus.ACTIVE
        assert len(failures) == 1


async def test_a_report_that_fails_again_and_again_holds_up_no_other(tmp_path, monkeypatch):
    failures = _fails(monkeypatch, 1000)
    async with house_at(tmp_path) as house:
        await house.add(A, B)
        for n in range(1, REPORT_TRIES + 1):
            async with house.worker(1, "odd") as odd:
                await odd.until_assigned(A, B) if n == 1 else None
                await odd.report(synced(A))
                if n < REPORT_TRIES:
                    await odd.ends()
                    continue
                await odd.report(synced(B))
                await odd.settle()
                assert max(taken.seq for taken in odd.all(Taken)) == 2
        assert len(failures) == REPORT_TRIES
        assert (await repo(house, A)).status is RepoStatus.PENDING
        assert (await repo(house, B)).status is RepoStatus.ACTIVE
        overview = await house.lead.coordinator.figures._count()
        assert any("1 reports of workers could not be taken in" in warning for warning in overview.warnings)


async def test_what_fails_behind_the_machine_loses_no_report_either(tmp_path, monkeypatch):
    told = []

    def fails_once(machine, worker, report):
        told.append(report)
        if len(told) == 1:
            raise KeyError("a bug")
        return written(machine, worker, report)

    monkeypatch.setattr(fleet_module, "written", fails_once)
    async with house_at(tmp_path) as house:
        await house.add(A)
        async with house.worker(1, "odd") as odd:
            await odd.until_assigned(A)
            await odd.report(synced())
            await odd.ends()
        async with house.worker(1, "odd") as odd:
            assert odd.reports == 0
            await odd.report(synced())
            await odd.settle()
            assert (await repo(house)).status is RepoStatus.ACTIVE


async def test_a_tick_or_an_action_that_fails_ends_nothing(tmp_path, monkeypatch):
    tick, acted, failures = FleetRates.tick, Fleet._send, []

    def fails(self, *told):
        if failures.count("tick") < 2:
            failures.append("tick")
            raise IndexError("a bug")
        tick(self, *told)

    def fails_once(self, session, frame):
        if isinstance(frame, Taken) and "send" not in failures and frame.seq == 1:
            failures.append("send")
            raise IndexError("a bug")
        acted(self, session, frame)

    monkeypatch.setattr(FleetRates, "tick", fails)
    monkeypatch.setattr(Fleet, "_send", fails_once)
    async with house_at(tmp_path) as house:
        await house.add(A)
        async with house.worker(1, "odd") as odd:
            await odd.until_assigned(A)
            await odd.report(failed())
            await odd.report(failed())
            await odd.settle()  # the second acknowledgement stands for both
            await house.until(lambda: sorted(failures) == ["send", "tick", "tick"])
