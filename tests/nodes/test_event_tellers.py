"""Who tells others what happens in a fleet: a change once, workers as they come and go, drains."""

from __future__ import annotations

import asyncio

import pytest

from evermirror.model.activity import Activity
from evermirror.model.event import EventId
from evermirror.model.messages import Synced
from tests.support.followers import house_at

A = "example.org/team/a"
OLD, NEW, NEWEST = "ab" * 32, "cd" * 32, "ef" * 32


@pytest.fixture
async def two_copies(tmp_path):
    async with house_at(tmp_path / "data", fleet={"replicas": 2}) as house:
        yield house


async def told(house, *types):
    events = (await house.lead.store.events_after(EventId(0), 1000)).events
    return [e for e in events if e.type in types]


async def test_a_change_that_two_holders_report_is_told_once_by_the_primary(two_copies):
    house = two_copies
    async with house.worker(1, "attic") as one, house.worker(2, "cellar") as two:
        await house.add(A)
        await one.until_assigned(A)
        await two.until_assigned(A)
        machine = house.lead.fleet.machine
        name = machine.record(machine.repo(A).primary).facts.name
        primary, follower = (one, two) if name == "attic" else (two, one)
        for holder in (primary, follower):  # the second one late, and so with what is long known
            await holder.synced(A, OLD, first=True)
            await holder.synced(A, NEW)
            await holder.settle()
        events = await told(house, "refs.changed")
        assert [(e.data["digest"], e.worker) for e in events] == [(OLD, name), (NEW, name)]


async def test_a_change_that_a_follower_reports_first_is_told(two_copies):
    """It cloned what upstream had by then; the primary says which refs moved, or the follower if it knows."""
    house = two_copies
    async with house.worker(1, "attic") as one, house.worker(2, "cellar") as two:
        await house.add(A)
        await one.until_assigned(A)
        await two.until_assigned(A)
        machine = house.lead.fleet.machine
        name = machine.record(machine.repo(A).primary).facts.name
        primary, follower = (one, two) if name == "attic" else (two, one)
        await primary.synced(A, OLD, first=True)
        await primary.settle()
        await follower.synced(A, NEW, first=True)
        await follower.settle()
        await primary.synced(A, NEW)
        await primary.settle()
        await follower.synced(A, NEWEST)
        await follower.settle()
        await primary.synced(A, NEWEST)
        await primary.settle()
        other = "cellar" if name == "attic" else "attic"
        events = await told(house, "refs.changed")
        assert [(e.data["digest"], e.worker) for e in events] == [(OLD, name), (NEW, name), (NEWEST, other)]
        assert [e.data["first"] for e in events] == [True, False, False]


async def test_times_that_no_clock_shows_stop_nobody_else(two_copies):
    house = two_copies
    async with house.worker(1, "attic") as one, house.worker(2, "cellar") as two:
        await house.add(A)
        await one.until_assigned(A)
        await two.until_assigned(A)
        wild = Synced(A, (), OLD, None, 1, (), 1, 0, 0, 0, False, -1.7e308, 1.0, 1.7e308, Activity())
        await one.report(wild)
        await one.settle()
        await two.synced(A, NEW)
        await two.settle()
        assert (await house.lead.store.find_repo(A)).digest == NEW


async def test_workers_are_told_as_they_come_and_as_they_are_ordered(two_copies):
    house = two_copies
    async with house.worker(1, "attic"):
        await house.lead.admin.drain("attic", actor="test")
        await house.lead.admin.resume("attic", actor="test")
        async with asyncio.timeout(10):
            while len(await told(house, "worker.joined", "worker.changed")) < 3:
                await asyncio.sleep(0.02)
    events = await told(house, "worker.joined", "worker.changed")
    assert [(e.type, e.worker, e.data.get("duty")) for e in events] == [
        ("worker.joined", "attic", None),
        ("worker.changed", "attic", "draining"),
        ("worker.changed", "attic", "active"),
    ]
