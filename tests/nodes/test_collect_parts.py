"""The parts of an aggregator's collecting, each by itself: inbox, alerts, file, deletions."""

from __future__ import annotations

import asyncio
import shutil
import time
from unittest.mock import Mock

import pytest

from evermirror.core.collect.decisions import Alert, AlertKind, Evict, PutRow
from evermirror.core.collect.events import DiskTold, Evicted, HoldersTold, Reachability, Ticked
from evermirror.edge.git.command import Git, GitSettings
from evermirror.edge.git.mirror import Mirrors, MirrorSettings
from evermirror.edge.store.collected import Collected
from evermirror.model.relay import NodeId
from evermirror.nodes.aggregator import collect_works, patient_store
from evermirror.nodes.aggregator.collect_alerts import AGED_S, ALERTS_MAX, Alerts
from evermirror.nodes.aggregator.collect_inbox import Inbox
from evermirror.nodes.aggregator.collect_works import CollectWorks
from evermirror.nodes.aggregator.collected_care import CollectedCare
from evermirror.nodes.aggregator.patient_store import PatientStore
from evermirror.nodes.aggregator.readers import Readers
from tests.core.collect.small import row

ROW = row("one")

# The inbox


async def test_of_what_comes_on_its_own_only_the_latest_waits_and_all_else_in_its_order():
    inbox = Inbox()
    told = [HoldersTold(()), HoldersTold(())]
    for number in range(1_000):
        inbox.put(Ticked(number / 1_000))
        inbox.put(DiskTold(number / 1_000, 10))
        inbox.put(Reachability(frozenset({NodeId(f"worker/{number}")})))
        if number < 2:
            inbox.put(told[number])
    await asyncio.wait_for(inbox.come(), 1)
    taken = [inbox.take() for _ in range(len(inbox))]
    latest = [Ticked(0.999), DiskTold(0.999, 10), Reachability(frozenset({NodeId("worker/999")}))]
    assert taken == [*latest, *told]
    inbox.put(Ticked(0.5))
    assert inbox.take() == Ticked(0.5)
    assert len(inbox) == 0


# Alerts


class Hand:
    """A clock that is set by hand."""

    now = 1_000.0

    def __call__(self):
        return self.now


def test_what_nobody_calls_over_ends_after_a_while_and_a_full_disk_does_not():
    clock = Hand()
    alerts = Alerts(clock)
    for kind in AlertKind:
        alerts.take(Alert(kind, "x", kind.value))
    clock.now += AGED_S - 1
    alerts.take(Alert(AlertKind.SPLIT, "x", "again"))
    assert set(alerts.texts()) == {"no-room", "accused", "again"}
    clock.now += 2
    assert set(alerts.texts()) == {"no-room", "again"}
    clock.now += AGED_S
    assert alerts.texts() == ("no-room",)
    alerts.take(Alert(AlertKind.NO_ROOM, "x", "", over=True))
    assert alerts.texts() == ()


def test_so_many_alerts_stand_and_the_oldest_of_those_that_age_leave_first():
    alerts = Alerts(Hand())
    alerts.take(Alert(AlertKind.NO_ROOM, "disk", "full"))
    for number in range(10 * ALERTS_MAX):
        alerts.take(Alert(AlertKind.SPLIT, f"r{number}", f"r{number}"))
    texts = alerts.texts()
    assert len(texts) == ALERTS_MAX
    assert (texts[0], texts[-1]) == ("full", f"r{10 * ALERTS_MAX - 1}")


# The file


@pytest.fixture
async def store(tmp_path):
    found = await Collected.open(tmp_path / "collected.db")
    await found.write([PutRow(ROW)])
    yield found
    await found.close()


async def rename(store, old, new):
    """The file has one connection, and is locked against all others."""
    await store._file.run(lambda connection: connection.execute(f"ALTER TABLE {old} RENAME TO {new}"))


async def test_a_read_that_fails_is_tried_again_until_it_works(store, monkeypatch):
    monkeypatch.setattr(patient_store, "AGAIN_S", 0.01)
    monkeypatch.setattr(patient_store, "READS_MAX", 1_000)
    await rename(store, "repos", "away")
    reading = asyncio.create_task(PatientStore(store).rows_of([ROW.key]))
    await asyncio.sleep(0.1)
    assert not reading.done()
    await rename(store, "away", "repos")
    assert await asyncio.wait_for(reading, 5) == {ROW.key: ROW}


async def test_a_file_that_can_never_be_read_is_given_up(store, monkeypatch):
    monkeypatch.setattr(patient_store, "AGAIN_S", 0.0)
    await rename(store, "repos", "away")
    with pytest.raises(patient_store.FileUnreadable):
        await asyncio.wait_for(PatientStore(store).audited(0.5), 5)


# Deletions


async def test_a_mirror_that_cannot_be_deleted_has_not_left_until_it_can(tmp_path, monkeypatch):
    monkeypatch.setattr(collect_works, "DELETE_AGAIN_S", 0.02)
    mirrors = Mirrors(tmp_path, Git(GitSettings(tmp_path)), MirrorSettings())
    care = CollectedCare(mirrors, Mock(), slots=1, retention_s=None, clock=time.time)
    told = []
    works = CollectWorks(Mock(), mirrors, Readers(time.time), care, clock=time.time, tell=told.append)
    path, trash = mirrors.path(ROW.key), tmp_path / ".trash"
    path.mkdir(parents=True)
    if trash.exists():
        shutil.rmtree(trash)
    async with asyncio.TaskGroup() as group:
        await works.enter(group)
        trash.write_text("in the way")
        works.start(Evict(ROW.key))
        await asyncio.sleep(0.2)
        assert told == []
        trash.unlink()
    assert told == [Evicted(ROW.key)]
    assert not path.exists()
