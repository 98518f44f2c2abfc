"""Ways are cut and heal, coordinators die, and messages are lost."""

from __future__ import annotations

import pytest

from evermirror.sim.fleet.network import DOWN
from tests.support.sim.fleet.lab import LinkLab


def test_a_cut_that_heals_before_anyone_notices_only_delays():
    lab = LinkLab(rough=True, notice_s=(30.0, 40.0))
    lab.network.cut(0)
    lab.up("a", "b")
    lab.time.run(20)
    assert lab.coordinator.got == []
    lab.network.heal(0)
    lab.up("c")
    lab.time.run(100)
    assert lab.coordinator.got == [(1, "a"), (1, "b"), (1, "c")]
    assert lab.worker.ended == lab.coordinator.ended == []


def test_a_long_cut_ends_the_link_on_both_sides_and_nothing_connects_meanwhile():
    lab = LinkLab(rough=True, notice_s=(5.0, 10.0))
    lab.network.cut(0)
    lab.up("lost")
    lab.time.run(11)
    assert lab.worker.ended == lab.coordinator.ended == [1]
    assert lab.network.connect(0, lab.worker) is None
    assert not lab.network.reachable(0)
    lab.network.heal(0)
    assert lab.network.connect(0, lab.worker) is not None
    lab.time.run(100)
    assert lab.coordinator.got == []


def test_a_way_can_be_cut_in_one_direction():
    lab = LinkLab(rough=True, notice_s=(50.0, 60.0))
    lab.network.cut(0, down=False)
    lab.up("lost")
    lab.network.send(lab.link, DOWN, "command")
    lab.time.run(10)
    assert lab.coordinator.got == []
    assert lab.worker.got == [(1, "command")]


@pytest.mark.parametrize("told", [True, False])
def test_a_dead_coordinator_loses_every_link(told):
    lab = LinkLab(rough=True, notice_s=(5.0, 10.0))
    lab.up("on its way")
    lab.network.coordinator_died(told=told)
    lab.listens = False
    assert lab.network.connect(1, lab.worker) is None
    lab.time.run(0.5)
    assert lab.worker.ended == ([1] if told else [])
    lab.time.run(20)
    assert lab.worker.ended == [1]
    assert lab.coordinator.got == []
    assert lab.network.links == {}


def test_a_message_lost_is_the_end_of_its_link():
    lab = LinkLab(rough=True, breaks_per_message=1.0, late_share=0.0)
    lab.up("lost")
    lab.time.run(100)
    assert lab.coordinator.got == []
    assert lab.worker.ended == lab.coordinator.ended == [1]
