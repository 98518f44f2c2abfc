"""A host that is down for all, whoever asks it: it counts against no project."""

from __future__ import annotations

import pytest

from evermirror.core.pull.events import Woke
from evermirror.model.pull import Strategy
from evermirror.model.repo import Host
from tests.core.pull.small import CRITICAL, FORGE, HOUR, NOW, SETTINGS, TIMEOUT, World, key, project

LONG = 48 * HOUR


def spread(count, interval_s, host=FORGE):
    """Projects whose turns are evenly spread over the interval."""
    each = interval_s / count
    return [
        project(f"p{n}", host=host, interval_s=interval_s, next_sync_at=NOW + n * each) for n in range(count)
    ]


def outage(world, seconds, *, counted=lambda n: True, well=()):
    """Everything that is tried times out, but for these; ``counted``: what the worker thinks of number n."""
    until, number = world.now + seconds, 0
    while world.now < until:
        if world.open:
            name = next(iter(world.open))
            number += 1
            kind = None if name in well else TIMEOUT
            host = next(p.host for p in world.machine.projects() if p.name == name)
            world.end(name, kind, host=host, counted=kind is None or counted(number))
        else:
            at = world.machine.next_wake(world.now)
            world.now = max(world.now + 1, at if at is not None else world.now + 60)
            world.do(Woke())


@pytest.mark.parametrize("interval_s", [HOUR, 2 * HOUR, 24 * HOUR])
def test_a_long_outage_pauses_no_project_where_each_has_a_worker_of_its_own(interval_s):
    world = World(*spread(12, interval_s))
    outage(world, LONG)
    assert [(p.failures, p.paused) for p in world.machine.projects()] == [(0, "")] * 12
    told = world.told()
    assert told[-1] == f"source-weather {FORGE}"
    raised = [alert for alert in told[:-1] if not alert.startswith("-")]
    assert sorted(f"-{alert}" for alert in raised) == sorted(set(told[:-1]) - set(raised))


def test_probes_at_a_host_that_is_down_count_against_no_project_though_their_worker_knows_of_nothing():
    world = World(*spread(12, 2 * HOUR))
    outage(world, 10 * HOUR, counted=lambda n: n > 5)
    assert [(p.failures, p.paused) for p in world.machine.projects()] == [(0, "")] * 12


def test_what_paused_a_project_before_its_host_was_found_to_be_down_is_taken_back():
    often = project("often", CRITICAL, interval_s=600.0)
    world = World(often, *(project(n, next_sync_at=NOW + 4 * HOUR) for n in ("b", "c")))
    outage(world, 3 * HOUR)
    assert (world.state("often").failures, world.state("often").config.enabled) == (
        SETTINGS.pause_after,
        False,
    )
    outage(world, 2 * HOUR)
    state = world.state("often")
    assert (state.failures, state.paused, state.config.enabled) == (0, "", True)
    assert world.told().count("-project-paused often") == 1


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_projects_that_time_out_are_paused_by_their_own_failures(count):
    elsewhere = project("well", host=Host("other.example"))
    world = World(*spread(count, HOUR), elsewhere)
    outage(world, 12 * HOUR, well={"well"})
    assert [world.state(f"p{n}").failures for n in range(count)] == [SETTINGS.pause_after] * count


def test_three_dead_projects_at_a_host_that_answers_the_others_are_paused_by_their_own_failures():
    names = {f"well{n}" for n in range(40)}
    alive = [project(n, interval_s=HOUR, next_sync_at=NOW + i * 90.0) for i, n in enumerate(sorted(names))]
    dead = [project(f"dead{n}", interval_s=HOUR, next_sync_at=NOW + n * 1200.0 + 45) for n in range(3)]
    world = World(*alive, *dead, strategy=Strategy(max_concurrent=3))
    outage(world, 8 * HOUR, well=names)
    assert all(p.paused for p in world.machine.projects() if p.name.startswith("dead"))
    assert world.machine.project(key("well0")).failures == 0
