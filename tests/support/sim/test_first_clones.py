"""Live repositories are never behind dead ones, whatever the mix, order, hosts or kind of death."""

from random import Random

import pytest

from evermirror.core.fleet.handover import Handover
from evermirror.core.schedule.settings import ScheduleSettings
from tests.support.sim.first_clones import Death, FirstMirroring, mixed_list, upstream

LONG_S = 6 * 3600.0


def alone_s(upstreams):
    return FirstMirroring([each for each in upstreams if each.death is None]).run(LONG_S)


def test_a_list_that_is_dead_to_a_third_in_six_ways_takes_hardly_longer_than_its_live_part():
    upstreams = mixed_list(2_000, 0.3, hosts=50, chance=Random(19))
    both = FirstMirroring(upstreams)
    assert both.run(LONG_S) <= 1.3 * alone_s(upstreams)


@pytest.mark.parametrize("order", ["dead first", "shuffled"])
@pytest.mark.parametrize("death", [death for death in Death if not death.in_transfer])
def test_what_is_dead_in_one_way_holds_up_nothing_for_long(death, order):
    """A host that hangs costs what its first polls are given, once."""
    dead = [upstream(f"dead{n % 3}.example", n, death) for n in range(1_000)]
    upstreams = [*dead, *(upstream(f"live{n % 3}.example", n) for n in range(50))]
    if order == "shuffled":
        Random(7).shuffle(upstreams)
    assert FirstMirroring(upstreams).run(LONG_S) <= alone_s(upstreams) + 25.0


@pytest.mark.parametrize(("hosts", "rate"), [(30, 5.0), (10, 5.0), (1, 50.0)])
def test_hosts_that_tell_their_refs_and_never_give_a_pack_hold_up_live_ones_for_a_while_only(hosts, rate):
    """They are known after their first transfers: from then on they have a quarter of the git slots."""
    live = [upstream(f"live{n % 8}.example", n) for n in range(600)]
    dead = [upstream(f"stalling{n % hosts}.example", n, Death.STALLING) for n in range(1_000)]
    upstreams = [*live[:300], *dead, *live[300:]]
    assert FirstMirroring(upstreams, schedule=ScheduleSettings(host_rate=rate)).run(LONG_S) <= 1_500.0


def test_hundreds_of_hosts_that_hang_hold_up_live_ones_by_what_their_polls_are_given():
    upstreams = [upstream(f"hanging{n}.example", n, Death.HANGING) for n in range(400)]
    upstreams += [upstream(f"live{n % 8}.example", n) for n in range(10)]
    Random(7).shuffle(upstreams)
    assert FirstMirroring(upstreams).run(LONG_S) <= alone_s(upstreams) + 40.0


def test_without_deferring_dead_ones_the_live_ones_are_never_mirrored(monkeypatch):
    """The fault that this guards against, planted."""
    monkeypatch.setattr(Handover, "told_deferred", lambda self, row, c, draft: None)
    upstreams = [upstream("dead.example", n, Death.GONE) for n in range(10)]
    upstreams += [upstream("live.example", n) for n in range(5)]
    assert FirstMirroring(upstreams).run(3600.0) == float("inf")
