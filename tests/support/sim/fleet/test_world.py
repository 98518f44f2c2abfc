"""The simulated fleet with the real machine in it: small worlds, each with its own trouble."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from evermirror.core.fleet.decisions import PutCopies
from evermirror.core.fleet.events import DrainAsked, RetireAsked
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.table import CopyState
from evermirror.model.worker import WorkerFacts
from tests.support.sim.fleet.coordinator import CrashPoint
from tests.support.sim.fleet.faults import rough
from tests.support.sim.fleet.network import Habits
from tests.support.sim.fleet.story import Checks, Teller
from tests.support.sim.fleet.world import Plan, World

MINUTE, HOUR = 60.0, 3600.0
QUICK = FleetSettings(warm_up_s=60.0, grace_s=120.0)
SMALL = Plan(workers=5, repos=50, duration_s=HOUR, calm_s=0.0, trusted=1.0, settings=QUICK)


class Lines(Teller):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, now: float, text: str) -> None:
        self.lines.append(f"{now:.3f} {text}")


class Watch(Checks):
    """Counts what the hooks tell, and looks at the truth at each deletion."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.done = 0
        self.placed: list[tuple[str, int]] = []
        self.acked: list[tuple[int, int, int]] = []
        self.lost: set[str] = set()
        self.deleted = 0
        self.restarts = 0
        self.swept = 0
        self.ended = False

    def on_decision(self, decision, now) -> None:
        for write in decision.writes:
            if isinstance(write, PutCopies):
                self.placed += [(row.key, row.worker) for row in write.rows if row.rank is not None]

    def on_delete(self, worker, key, now) -> None:
        self.deleted += 1
        me = self.world.worker(worker)
        assert me is not None
        assert key in me.disk
        others = self.world.holders(key) - {me.index}
        if key in self.world.store.repos and key not in self.lost:
            assert others or key in self.world.witness.disk

    def on_disk_lost(self, worker, keys: Collection, now) -> None:
        self.lost.update(keys)

    def on_report_acked(self, worker, generation, seq, now) -> None:
        self.acked.append((worker, generation, seq))
        assert self.world.store.reports.get((worker, generation), 0) >= seq

    def on_restart(self, now) -> None:
        self.restarts += 1

    def on_step(self, now) -> None:
        self.done += 1

    def sweep(self, now) -> None:
        self.swept += 1

    def at_end(self) -> None:
        self.ended = True


def world(plan: Plan = SMALL, **changes) -> World:
    made = World(replace(plan, **changes), checkers=Watch, story=Lines())
    made.begin()
    return made


def settled(plan: Plan = SMALL, **changes) -> World:
    made = world(plan, **changes)
    made.advance(10 * MINUTE)
    assert_all_held(made)
    return made


def assert_all_held(world: World) -> None:
    """Every repo of the catalog is, in truth, where the machine wants it and says that it is."""
    machine = world.coordinator.machine
    assert machine is not None
    for key, repo in world.catalog.repos.items():
        view = machine.repo(key)
        assert view is not None
        wanted = [copy for copy in view.copies if copy.rank is not None]
        assert len(wanted) == view.replicas, machine.explain(key)
        for copy in wanted:
            worker = world.worker(copy.worker)
            assert copy.state is CopyState.HELD
            assert worker is not None
            assert worker.up
            assert worker.disk[key] == world.catalog.version(key)
            assert worker.facts.trusted or not repo.trusted_only
        leads = [worker.index for worker in world.workers if worker.up and key in worker.primaries]
        assert [world.workers[index].id for index in leads] == [view.primary]


def assert_store_is_what_the_machine_knows(world: World) -> None:
    machine = world.coordinator.machine
    known = {}
    for key in (*world.store.repos, *world.store.removed):
        for copy in machine.repo(key).copies:
            known[key, copy.worker] = (copy.rank, copy.state)
    assert {where: (row.rank, row.state) for where, row in world.store.copies.items()} == known


def test_a_quiet_fleet_holds_everything_and_then_nothing_moves():
    outcome = World(SMALL, checkers=Watch).run()
    assert outcome.clones == SMALL.repos
    assert outcome.deleted == 0
    assert outcome.owned_at is not None
    assert outcome.owned_at <= 2 * MINUTE
    assert outcome.held_at is not None
    assert outcome.samples[-1].held == SMALL.repos
    assert outcome.checks > 0


def test_the_hooks_are_called():
    made = World(SMALL, checkers=Watch, story=Lines())
    made.run()
    watch = made.checks
    assert {key for key, _ in watch.placed} == set(made.catalog.repos)
    assert watch.acked
    assert watch.restarts == 1
    assert watch.swept == HOUR / SMALL.sweep_s
    assert watch.ended
    assert any("coordinator started" in line for line in made.story.lines)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_plan_is_the_same_run(seed):
    plan = replace(SMALL, seed=seed, witness=0.5, trusted=0.6, faults=rough(3.0), calm_s=10 * MINUTE)
    first, second = (World(plan, story=Lines()) for _ in range(2))
    assert first.run() == second.run()
    assert first.story.lines == second.story.lines
    assert World(replace(plan, seed=seed + 7)).run().trace != first.outcome().trace


def test_looking_on_changes_nothing():
    plan = replace(SMALL, witness=0.5, faults=rough(3.0), calm_s=10 * MINUTE)
    watched, unwatched = World(plan, checkers=Watch, story=Lines()).run(), World(plan).run()
    assert replace(watched, checks=0) == unwatched


@pytest.mark.parametrize("seed", range(4))
def test_after_everything_went_wrong_the_calm_finds_every_repo_held(seed):
    plan = Plan(
        seed=seed,
        workers=8,
        repos=100,
        trusted=0.7,
        witness=0.5,
        duration_s=3 * HOUR,
        calm_s=80 * MINUTE,
        replicas=(1, 2),
        settings=QUICK,
        faults=replace(rough(2.0), worker_full=0.0),
        habits=Habits(breaks_per_message=0.001),
    )
    made = World(plan, checkers=Watch)
    outcome = made.run()
    assert outcome.epochs > 1
    assert outcome.deleted > 0
    assert_all_held(made)
    assert_store_is_what_the_machine_knows(made)


@pytest.mark.parametrize("point", [None, *CrashPoint])
def test_a_coordinator_that_crashes_at_any_point_comes_back_and_moves_nothing(point):
    made = settled()
    before = dict(made.store.copies)
    clones = made.clones
    made.crash_coordinator(point)
    made.push(next(iter(made.catalog.repos)))  # something to decide about
    made.advance(20 * MINUTE)
    assert made.coordinator.epoch == 2
    assert made.checks.restarts == 2
    assert_all_held(made)
    assert made.store.copies.keys() == before.keys()
    assert (made.clones, made.deleted) == (clones, 0)


@pytest.mark.parametrize("point", list(CrashPoint))
def test_a_crash_in_the_middle_of_the_first_placement_loses_nothing(point):
    made = world()
    made.advance(QUICK.warm_up_s - 2)
    for _ in range(10):
        made.crash_coordinator(point)
        made.advance(10)
    made.advance(20 * MINUTE)
    assert made.coordinator.epoch > 2
    assert_all_held(made)
    assert_store_is_what_the_machine_knows(made)


def test_a_stall_of_an_hour_moves_nothing():
    made = settled(duration_s=4 * HOUR)
    clones = made.clones
    made.stall(HOUR)
    made.advance(HOUR - 1)
    assert made.coordinator.stalled
    assert not any(worker.connected for worker in made.workers)  # they gave up waiting
    made.advance(20 * MINUTE)
    assert_all_held(made)
    assert (made.clones, made.deleted) == (clones, 0)


def test_a_worker_back_within_its_grace_finds_its_repos_and_one_back_later_keeps_what_it_can():
    made = settled()
    clones, held = made.clones, len(made.workers[2].disk)
    made.crash(2)
    made.advance(QUICK.grace_s / 2)
    made.start(2)
    made.advance(10 * MINUTE)
    assert (made.clones, made.deleted) == (clones, 0)
    made.crash(2)
    made.advance(10 * MINUTE)
    assert made.clones == clones + held
    made.start(2)
    made.advance(10 * MINUTE)
    assert_all_held(made)
    assert made.deleted >= held  # of each repo one of its two copies
    assert sum(len(worker.disk) for worker in made.workers) == SMALL.repos


def test_half_open_links_and_long_cuts_heal():
    made = settled()
    made.cut([0, 1], down=False)
    made.advance(5 * MINUTE)
    made.heal([0, 1])
    made.advance(20 * MINUTE)
    assert_all_held(made)


def test_a_join_takes_its_share_and_a_drain_empties():
    made = settled(repos=300)
    index = made.join(facts=WorkerFacts("late", trusted=True))[0]
    made.advance(10 * MINUTE)
    share = 300 / 6
    assert 0.7 * share <= len(made.workers[index].disk) <= 1.1 * share
    assert made.clones - 300 <= 1.1 * share
    assert_all_held(made)
    made.ask(DrainAsked(made.workers[0].id))
    made.advance(15 * MINUTE)
    assert made.workers[0].disk == {}
    assert_all_held(made)


def test_a_disk_lost_is_cloned_again_and_a_dead_worker_replaced():
    made = settled()
    made.crash(1)
    made.wipe(1)
    made.start(1)
    made.advance(10 * MINUTE)
    assert_all_held(made)
    made.kill(3)
    made.ask(RetireAsked(made.workers[3].id))
    made.advance(10 * MINUTE)
    assert_all_held(made)
    assert made.workers[3].disk == {}


def test_a_lost_local_file_costs_nothing():
    made = settled()
    clones = made.clones
    made.crash(4)
    made.lose_file(4)
    made.start(4)
    made.advance(5 * MINUTE)
    made.push(next(iter(made.workers[4].disk)))
    made.advance(5 * MINUTE)
    assert_all_held(made)
    assert made.clones == clones


def test_full_disks_hand_back_and_repos_wait_in_sight_until_there_is_room():
    made = world(SMALL, room=8)  # 40 of 50
    made.advance(20 * MINUTE)
    totals = made.coordinator.machine.totals()
    assert totals.no_room == SMALL.repos - 40
    assert ("no-room", "fleet") in made.coordinator.alerts
    handled = made.coordinator.events
    made.advance(5 * MINUTE)
    beats = 5 * MINUTE / QUICK.heartbeat_s * SMALL.workers
    assert made.coordinator.events - handled < 5 * MINUTE + 1.5 * beats  # nothing spins
    for worker in made.workers:
        worker.room = None
    made.advance(30 * MINUTE)
    assert_all_held(made)
    assert made.coordinator.alerts == {}


def test_what_leaves_the_catalog_is_deleted_and_may_come_back_until_it_is_forgotten():
    made = settled(trash_s=HOUR)
    keys = made.catalog.some(10)
    made.crash(0)
    away = [key for key in keys if key in made.workers[0].disk]
    made.commit(removed=keys)
    made.advance(90)
    assert {key for key in keys if made.holders(key)} == set(away)
    made.bring_back(10)
    made.start(0)
    made.advance(10 * MINUTE)
    assert_all_held(made)
    made.commit(removed=keys)
    made.advance(HOUR + MINUTE)
    assert not made.catalog.removed
    assert all(made.coordinator.machine.repo(key) is None for key in keys)


def test_pushes_reach_every_holder_and_the_witness():
    made = settled(witness=1.0, settings=replace(QUICK, replicas=2))
    key = made.catalog.any()
    made.push(key)
    made.advance(5 * MINUTE)
    assert_all_held(made)
    assert made.witness.disk[key] == 2


def test_partitions_of_most_of_the_fleet_move_nothing_and_delete_nothing():
    made = settled()
    clones = made.clones
    made.cut(range(4))
    made.advance(20 * MINUTE)
    assert ("brake", "fleet") in made.coordinator.alerts
    made.heal(range(4))
    made.advance(10 * MINUTE)
    assert_all_held(made)
    assert (made.clones, made.deleted) == (clones, 0)
