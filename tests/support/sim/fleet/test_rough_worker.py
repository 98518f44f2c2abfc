"""A worker in rough weather: it lies, runs out of disk, loses its files, and sees that upstreams moved."""

from __future__ import annotations

import pytest

from evermirror.core.fleet.events import CopiesVerified, ReposHandedBack
from evermirror.sim.fleet.messages import Beat, Hello, Told
from evermirror.sim.fleet.worker import digest
from tests.support.sim.fleet.lab import A, B, Boss, C, WorkerLab, told
from tests.support.sim.fleet.worker import Lie
from tests.support.sim.fleet.world import Plan, World


class BossWorld(World):
    def __init__(self, **plan) -> None:
        super().__init__(Plan(**plan))
        self.catalog.commit(put=self.catalog.new(50))

    def make_coordinator(self):
        return Boss()


@pytest.fixture
def lab():
    lab = WorkerLab(BossWorld())
    lab.welcome()
    lab.boss.take(Told)
    return lab


def test_a_lost_local_file_begins_a_new_generation(lab):
    lab.assign(A)
    generation = lab.worker.log.generation
    lab.world.crash(0)
    lab.world.lose_file(0)
    lab.world.start(0)
    lab.wait(60)
    hello = lab.boss.take(Hello)[-1]
    assert hello.generation != generation
    assert (hello.epoch, hello.seen) == (0, 0)


def test_a_full_disk_hands_back_what_waits_and_says_so():
    lab = WorkerLab(BossWorld(room=2))
    lab.welcome()
    lab.assign(A, B, C)
    reports = lab.reports()
    assert len(told(reports, CopiesVerified)) == 2
    assert len(told(reports, ReposHandedBack)) == 1
    assert not lab.boss.take(Beat)[-1].accepting


def test_upstream_that_moved_is_synced_and_reported_also_after_a_time_down(lab):
    lab.assign(A, B)
    lab.reports()
    lab.world.push(A)
    lab.wait(120)
    assert lab.worker.disk == {A: 2, B: 1}
    assert [items[0].digest for _, _, items in lab.reports()] == [digest(A, 2)]
    lab.world.crash(0)
    lab.world.push(B)
    lab.wait(120)
    assert lab.worker.disk[B] == 1
    lab.world.start(0)
    lab.wait(120)
    assert lab.worker.disk[B] == 2


def test_liars_claim_garble_and_invent():
    lab = WorkerLab(BossWorld(), trusted=False)
    lab.welcome()
    lab.world.lie(0, Lie.CLAIMS)
    lab.assign(A)
    assert told(lab.reports(), CopiesVerified) == [A]
    assert lab.worker.disk == {}
    lab.world.lie(0, Lie.GARBLES)
    lab.assign(B)
    assert lab.reports()[0][2][0].digest != digest(B, 1)
    assert B in lab.worker.disk
    lab.world.lie(0, Lie.INVENTS)
    assert len(lab.worker.claimed) >= 10


def test_a_trusted_worker_does_not_lie(lab):
    lab.world.lie(0, Lie.CLAIMS)
    assert lab.worker.lies is None
