"""The pull machine by example: who is started when, in which order, and what an end leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.pull.events import (
    FailureExcused,
    LoadSeen,
    ProjectPut,
    ProjectRemoved,
    TaskBegan,
    TaskOpened,
    Woke,
)
from evermirror.core.pull.load import cpu_load
from evermirror.core.pull.machine import PullMachine
from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import FailureKind
from evermirror.model.pull import Strategy
from evermirror.model.repo import Host
from evermirror.model.task import TaskId, Trigger
from tests.core.pull.small import (
    CRITICAL,
    FAILED,
    FORGE,
    HIGH,
    HOUR,
    LIMITED,
    LOW,
    MINUTE,
    NORMAL,
    NOW,
    SETTINGS,
    SHANGHAI,
    SKIPPED,
    TIMEOUT,
    World,
    ended,
    key,
    project,
    pushed,
    target,
)

ONE = Strategy(max_concurrent=1)
PEAK = Strategy(peak_avoidance=True, peak_start=9, peak_end=18)
OTHER = Host("other.example")
NINE = NOW + 13 * HOUR  # 9:00 in Shanghai


# Who is started


def test_what_is_due_is_opened_with_its_next_time_and_started_once_it_is_stored():
    world = World(now=NOW)
    world.put(project("one", interval_s=HOUR, failures=2))
    assert world.started == ["one"]
    assert world.stored[key("one")].next_sync_at == NOW + HOUR
    assert world.state().task == 1


def test_opening_says_how_many_failures_there_were_before():
    machine = PullMachine(SETTINGS, SHANGHAI)
    machine.handle(ProjectPut(project(failures=2)), NOW)
    (opened,) = machine.handle(Woke(), NOW).opens
    assert opened.retry_count == 2
    assert opened.trigger is Trigger.SCHEDULE


def test_a_project_is_started_at_its_time_and_not_up_to_a_minute_later():
    world = World(project("one", CRITICAL, next_sync_at=NOW + 1234.5))
    assert world.machine.next_wake(NOW) == NOW + 1234.5
    world.wait(1234)
    assert world.started == []
    world.wait(1)
    assert world.started == ["one"]
    assert world.state().next_sync_at == NOW + 1234.5 + HOUR


def test_the_order_is_class_then_oldest_sync():
    world = World(
        project("low", LOW),
        project("younger", HIGH, last_sync_at=NOW - 10),
        project("older", HIGH, last_sync_at=NOW - 20),
        project("never", HIGH),
        project("critical", CRITICAL, last_sync_at=NOW - 1),
        strategy=ONE,
    )
    for name in ("critical", "never", "older", "younger", "low"):
        assert list(world.open) == [name]
        world.end(name)


def test_a_project_that_failed_three_times_comes_after_its_class():
    world = World(
        project("failing", HIGH, failures=3, last_sync_at=NOW - 99),
        project("fine", HIGH, last_sync_at=NOW - 1),
        project("normal", NORMAL, last_sync_at=NOW - 1000),
        strategy=ONE,
    )
    for name in ("fine", "normal", "failing"):
        world.end(name)


@pytest.mark.parametrize("blocked", [{"enabled": False}, {"failures": 5}, {"next_sync_at": NOW + 1}])
def test_who_is_not_due_is_not_started(blocked):
    assert World(project(**blocked)).started == []


def test_no_more_run_than_the_limit():
    world = World(*(project(f"r{n}") for n in range(9)))
    assert len(world.open) == 5
    assert world.machine.view(NOW).running == 5
    assert world.machine.view(NOW).queued[NORMAL] == 4
    world.end("r0")
    assert len(world.open) == 5


def test_a_lower_limit_ends_nothing_and_starts_nothing_until_there_is_room():
    world = World(*(project(f"r{n}") for n in range(9)))
    world.strategy(max_concurrent=2)
    for name in ("r0", "r1", "r2"):
        world.end(name)
    assert len(world.open) == 2
    world.end("r3")
    assert len(world.open) == 2
    assert len(world.started) == 6


def test_a_task_asked_for_and_not_yet_stored_has_its_room():
    world = World(strategy=ONE)
    world.stored.clear()
    first = world.do(ProjectPut(project("a")), answer=False)
    second = world.do(ProjectPut(project("b")), answer=False)
    assert [o.project.name for o in first.opens] == ["a"]
    assert second.opens == ()


def test_an_open_that_was_impossible_gives_its_room_back():
    world = World(strategy=ONE)
    world.do(ProjectPut(project("a")), answer=False)
    world.put(project("b"))
    assert world.started == []
    world.do(ProjectPut(project("a", next_sync_at=NOW + HOUR)))
    assert world.started == ["b"]


def test_a_strategy_that_is_off_starts_nothing_by_schedule_but_by_hand():
    world = World(project("a"), project("b"), project("c"), strategy=Strategy(enabled=False))
    assert world.started == []
    world.trigger("a")
    world.trigger("b", Trigger.MANUAL_BATCH)
    assert world.started == ["a", "b"]
    world.wait(HOUR)
    assert world.started == ["a", "b"]
    world.strategy()
    assert world.started == ["a", "b", "c"]


# Peak and load


def test_in_the_peak_only_critical_and_high_run_and_the_others_when_it_is_over():
    world = World(
        *(
            project(f"{p.value}-{n}", p, interval_s=100 * HOUR)
            for p in (CRITICAL, HIGH, NORMAL, LOW)
            for n in range(3)
        ),
        strategy=PEAK,
        now=NINE,
    )
    assert sorted(world.open) == ["critical-0", "critical-1", "critical-2"]
    for name in list(world.open):
        world.end(name)
    assert sorted(world.open) == ["high-0", "high-1", "high-2"]
    for name in list(world.open):
        world.end(name)
    assert world.open == {}
    view = world.machine.view(world.now)
    assert (view.limit, view.classes, view.in_peak) == (3, (CRITICAL, HIGH), True)
    world.wait(9 * HOUR)
    assert sorted(world.open) == [f"{c}-{n}" for c in ("low", "normal") for n in range(3)]
    assert world.logs == ["up to 8 at once, all classes: outside peak hours (before: up to 3)"]


def test_high_load_suspends_low_lowers_the_limit_and_stretches_intervals():
    world = World(project("low", LOW, next_sync_at=NOW + 1), strategy=Strategy(adaptive=True))
    world.do(LoadSeen(cpu_load(91)))
    assert world.logs == [
        "up to 4 at once, critical, high, normal: at any hour, load high (cpu 91 %) (before: up to 5)"
    ]
    world.wait(MINUTE)
    assert world.started == []
    world.put(project("normal"))
    assert world.state("normal").next_sync_at == world.now + 2 * HOUR
    world.do(LoadSeen(cpu_load(50)))
    assert world.started == ["normal", "low"]
    assert world.machine.view(world.now).limit in (3, 4)


def test_without_adaptive_load_is_shown_and_changes_nothing():
    world = World(strategy=Strategy(adaptive=False))
    world.do(LoadSeen(cpu_load(99)))
    world.put(project("low", LOW))
    assert world.started == ["low"]
    assert world.machine.view(NOW).load == cpu_load(99)
    assert world.logs == []


def test_the_load_is_known_from_our_own_syncs_where_nobody_tells():
    world = World(strategy=Strategy(adaptive=True, max_concurrent=10))

    def poll(name, look_s):
        world.put(project(name, interval_s=100 * HOUR))
        world.end(name, status=SKIPPED, look_s=look_s, after=20.0)

    for n in range(60):
        poll(f"fast{n}", 0.1)
    view = world.machine.view(world.now)
    assert (view.limit, view.load.level.value) == (10, "low")
    for n in range(18):
        poll(f"slow{n}", 1.0)
    view = world.machine.view(world.now)
    assert view.load.level.value == "high"
    assert view.limit == 5  # halved: our own doing


def test_one_project_that_always_fails_does_not_keep_its_host_shut():
    world = World(project("bad"), project("good", last_sync_at=NOW - 1), strategy=ONE)
    world.end("bad", TIMEOUT, counted=False)
    for _ in range(10):
        world.wait(11 * MINUTE)
        (name,) = world.open
        world.end(name, TIMEOUT if name == "bad" else None, counted=False)
    assert "good" in world.started
    assert world.machine.view(world.now).closed_hosts == () or world.started[-1] == "bad"


# By hand


@pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.API, Trigger.WEBHOOK])
def test_by_hand_it_runs_at_once_beyond_the_limit_and_counts_as_running(trigger):
    world = World(project("a"), project("b", next_sync_at=NOW + HOUR), project("c"), strategy=ONE)
    assert world.started == ["a"]
    world.trigger("b", trigger)
    assert world.started == ["a", "b"]
    assert world.machine.is_running(key("b"))
    world.end("a")
    assert world.started == ["a", "b"]  # b has the room
    world.end("b")
    assert world.started == ["a", "b", "c"]


def test_a_sync_by_hand_moves_the_next_one():
    world = World(project("a", next_sync_at=NOW + 5))
    world.trigger("a")
    assert world.stored[key("a")].next_sync_at == NOW + HOUR
    assert world.stored[key("a")].task == 1
    world.wait(MINUTE)
    assert world.started == ["a"]


def test_batches_wait_for_room_before_the_schedules_of_their_class():
    world = World(
        project("running", CRITICAL),
        *(project(name, NORMAL, last_sync_at=NOW - 1000) for name in ("n1", "n2", "n3")),
        project("high", HIGH),
        project("low", LOW),
        strategy=ONE,
    )
    for name in ("low", "n3", "n2"):
        world.trigger(name, Trigger.MANUAL_BATCH)
    assert world.state("n3").task == 3
    for name in ("running", "high", "n3", "n2", "n1", "low"):
        world.end(name)
    assert world.started == ["running", "high", "n3", "n2", "n1", "low"]


def test_the_class_of_the_request_counts_for_a_batch():
    world = World(project("running", CRITICAL), project("a", NORMAL), project("b", LOW), strategy=ONE)
    world.trigger("b", Trigger.MANUAL_BATCH, rank=1)
    world.end("running")
    assert world.started == ["running", "b"]


def test_a_batch_of_a_closed_class_waits_until_it_opens():
    world = World(project("a", NORMAL), strategy=PEAK, now=NINE)
    world.trigger("a", Trigger.MANUAL_BATCH)
    assert world.started == []
    world.wait(9 * HOUR)
    assert world.started == ["a"]


def test_somebody_in_a_hurry_starts_a_batch_that_waits():
    world = World(project("running"), project("a", next_sync_at=NOW + HOUR), strategy=ONE)
    task_id = world.trigger("a", Trigger.MANUAL_BATCH)
    world.do(TaskOpened(key("a"), task_id, Trigger.MANUAL))
    assert world.started == ["running", "a"]
    world.do(TaskOpened(key("a"), task_id, Trigger.MANUAL))
    assert world.started == ["running", "a"]


def test_whoever_asks_while_one_runs_is_passed_on_and_the_project_is_busy_until_the_last_ends():
    world = World(project("a", interval_s=10.0), project("b", LOW), strategy=ONE)
    world.trigger("a", Trigger.API)
    assert world.started == ["a", "a"]
    assert world.machine.view(world.now).running == 1
    world.now += 60
    world.do(ended("a", 1, at=world.now))
    assert world.machine.is_running(key("a"))
    assert world.state("a").task == 2
    world.do(ended("a", 2, at=world.now))
    assert world.started == ["a", "a", "a"]  # its interval was over, and its class goes first
    assert world.state("a").task == 3


def test_a_batch_for_a_project_that_runs_comes_after_it():
    world = World(project("a"))
    world.trigger("a", Trigger.MANUAL_BATCH)
    assert world.started == ["a"]
    world.end("a")
    assert world.started == ["a", "a"]
    assert world.starts[-1].task_id == 2


def test_tasks_that_one_sync_answered_count_once():
    world = World(project("a"))
    world.trigger("a", Trigger.API)
    world.now += 5
    for task_id in (1, 2):
        world.do(ended("a", task_id, TIMEOUT, at=world.now))
    assert world.state("a").failures == 1
    assert not world.machine.is_running(key("a"))


def test_an_end_of_a_task_that_nobody_told_of_counts_unless_it_is_older():
    world = World(project("a", next_sync_at=NOW + HOUR))
    world.do(ended("a", 99, at=NOW + 5))
    assert world.state("a").last_sync_at == NOW + 5
    world.do(ended("a", 98, TIMEOUT, at=NOW + 4))
    assert world.state("a").failures == 0


def test_an_end_of_another_task_leaves_the_open_one_open():
    world = World(project("a"))
    world.do(ended("a", 99, at=NOW + 5))
    assert world.machine.is_running(key("a"))
    assert world.state("a").task == 1


def test_ends_of_unknown_projects_change_nothing():
    world = World()
    assert world.do(ended("nobody", 1)) == world.do(Woke())
    assert world.do(TaskOpened(key("nobody"), TaskId(1), Trigger.MANUAL)) == world.do(Woke())
    assert world.do(FailureExcused(key("nobody"))) == world.do(Woke())
    assert world.do(ProjectRemoved(key("nobody"))) == world.do(Woke())


# Ends


def test_a_failing_project_is_retried_demoted_and_paused_as_told():
    world = World(project("a", HIGH, interval_s=30 * MINUTE))
    gaps, told = [], []
    for _ in range(5):
        world.end("a", TIMEOUT)
        begun = world.now
        told.append(world.told())
        world.wait(HOUR)
        if world.open:
            gaps.append((world.stored[key("a")].next_sync_at - 30 * MINUTE - begun) / MINUTE)
    assert gaps == [5, 10, 20, 30]
    assert told == [[], [], ["project-failing a"], [], ["project-paused a"]]
    assert not world.stored[key("a")].config.enabled
    world.wait(24 * HOUR)
    assert len(world.started) == 5
    fixed = replace(world.state("a"), failures=0, paused="", next_sync_at=world.now)
    world.put(replace(fixed, config=replace(fixed.config, enabled=True)))
    assert len(world.started) == 6
    assert world.told() == ["-project-failing a", "-project-paused a"]


def test_a_refused_task_says_nothing_and_its_project_is_due_again_soon():
    world = World(project("a", interval_s=10 * MINUTE), project("b", interval_s=10 * HOUR))
    for name in ("a", "b"):
        world.end(name, FailureKind.UNKNOWN, after=0, refused=True)
    assert world.state("a").failures == 0
    assert world.state("a").next_sync_at == NOW + MINUTE
    assert world.state("b").next_sync_at == NOW + HOUR  # not every minute for ever
    assert world.state("a").last_status is None


def test_a_refusal_that_came_late_is_no_reason_to_hurry():
    world = World(project("a", interval_s=10 * MINUTE))
    world.end("a", FailureKind.UNKNOWN, after=HOUR, refused=True)
    assert world.state("a").next_sync_at == world.now + MINUTE
    assert world.started == ["a"]


def test_an_excused_failure_is_taken_back():
    world = World(project("a", targets=(target(),)))
    world.end("a", FailureKind.NOT_FOUND)
    assert world.told() == ["project-paused a"]
    world.do(FailureExcused(key("a")))
    assert world.told() == ["-project-paused a"]
    assert world.stored[key("a")].config.enabled
    world.wait(HOUR)
    assert world.started == ["a", "a"]


def test_targets_to_be_served_go_with_the_start():
    targets = (
        target(1, put="d", credential="robot", adopt=True),
        target(2, paused="x"),
        target(3, not_before=NOW + 10),
    )
    world = World(project("a", targets=targets))
    (push,) = world.starts[0].push
    assert (push.target, push.url, push.credential, push.put, push.adopt) == (
        1,
        targets[0].url,
        "robot",
        "d",
        True,
    )
    world.end("a", pushes=(pushed(1, put="e"),))
    world.trigger("a")
    assert [(p.target, p.put, p.adopt) for p in world.starts[-1].push] == [(1, "e", False), (3, None, False)]
    assert [p.target for p in world.machine.push_of(key("a"), world.now)] == [1, 3]
    assert [p.target for p in world.machine.push_of(key("a"), world.now, Trigger.WEBHOOK)] == [1]


# Weather


def crowd(count, host=FORGE, **fields):
    return [project(f"{host}-{n}", host=host, **fields) for n in range(count)]


def test_a_host_that_fails_for_all_is_left_alone_probed_and_used_again_step_by_step():
    world = World(*crowd(40), strategy=Strategy(max_concurrent=8, adaptive=False))
    assert len(world.open) == 8
    for name in list(world.open):
        world.end(name, TIMEOUT, after=0, counted=False)
    assert world.open == {}
    assert world.told() == [f"source-weather {FORGE}"]
    assert world.machine.view(world.now).closed_hosts == (FORGE,)
    world.wait(59)
    assert world.open == {}
    world.wait(1)
    assert len(world.open) == 1  # the probe
    world.end(*world.open, TIMEOUT, counted=False)
    world.wait(119)
    assert world.open == {}
    world.wait(1)
    world.end(*world.open)
    assert world.told() == [f"-source-weather {FORGE}"]
    sizes = []
    for _ in range(4):
        sizes.append(len(world.open))
        world.end(next(iter(world.open)))
    assert sizes == [2, 4, 8, 8]
    assert all(p.failures == 0 for p in world.machine.projects())


def test_other_hosts_go_on_and_nobody_looks_through_the_closed_one():
    world = World(*crowd(3), *crowd(3, OTHER, next_sync_at=NOW + 10), strategy=ONE)
    world.end(*world.open, TIMEOUT, after=0, counted=False)
    world.wait(10)
    for n in range(3):
        world.end(f"{OTHER}-{n}", host=OTHER)
    assert world.open == {}


def test_bad_weather_is_over_for_people_where_nobody_lives_any_more():
    world = World(project("a"))
    world.end("a", TIMEOUT, counted=False)
    assert world.told() == [f"source-weather {FORGE}"]
    world.do(ProjectRemoved(key("a")))
    assert world.told() == [f"-source-weather {FORGE}"]


def test_a_rate_limit_is_heeded_and_counts_against_nobody():
    world = World(*crowd(3), strategy=ONE)
    world.end(*world.open, LIMITED, after=0, retry_after_s=600.0)
    world.wait(599)
    assert world.open == {}
    world.wait(1)
    assert len(world.open) == 1
    assert world.told() == []
    assert all(p.failures == 0 for p in world.machine.projects())


def test_by_hand_a_closed_host_is_asked_all_the_same():
    world = World(*crowd(2), strategy=ONE)
    world.end(*world.open, TIMEOUT, after=0, counted=False)
    world.trigger(f"{FORGE}-1")
    assert list(world.open) == [f"{FORGE}-1"]
    world.end(f"{FORGE}-1")
    assert world.machine.view(world.now).closed_hosts == ()


@pytest.mark.parametrize("kind", [FailureKind.CONFLICT, FailureKind.DISK_FULL])
def test_a_guard_and_a_full_disk_are_no_weather(kind):
    world = World(*crowd(2), strategy=ONE)
    world.end(*world.open, kind, after=0, counted=False)
    assert len(world.open) == 1


def test_targets_that_fail_say_nothing_about_the_source():
    world = World(*crowd(2, targets=(target(),)), strategy=ONE)
    world.end(*world.open, TIMEOUT, after=0, counted=False, pushes=(pushed(kind=TIMEOUT),))
    assert len(world.open) == 1


# What people change


def test_a_changed_project_keeps_its_open_task():
    world = World(project("a"))
    world.put(project("a", CRITICAL, task=None))
    assert world.machine.is_running(key("a"))
    assert world.state("a").task == 1
    assert world.started == ["a"]
    world.end("a")
    assert world.state("a").last_sync_at == world.now
    assert world.state("a").config.priority is CRITICAL


def test_a_removed_project_drops_its_task_and_frees_its_room():
    world = World(project("a", failures=3), project("b", LOW), strategy=ONE)
    world.do(ProjectRemoved(key("a")))
    assert world.started == ["a", "b"]
    assert world.told() == ["-project-failing a"]
    world.do(ended("a", 1))
    assert world.state("a") is None
    assert world.machine.view(NOW).running == 1


def test_a_shorter_interval_is_followed_at_once():
    world = World(project("a", interval_s=10 * HOUR, next_sync_at=NOW + 9 * HOUR))
    world.put(project("a", interval_s=HOUR, next_sync_at=NOW + 9 * HOUR))
    assert world.stored[key("a")].next_sync_at == NOW + HOUR


def test_another_class_moves_a_project_that_waits():
    world = World(project("running", CRITICAL), project("a", LOW), project("b", HIGH), strategy=ONE)
    world.put(project("a", CRITICAL))
    world.end("running")
    assert world.started == ["running", "a"]


def test_a_project_that_moved_to_another_host_runs_there():
    world = World(*crowd(2), strategy=ONE)
    world.end(*world.open, TIMEOUT, after=0, counted=False)
    moved = replace(world.state(f"{FORGE}-1"), host=OTHER)
    world.put(moved)
    assert world.started == [f"{FORGE}-0", f"{FORGE}-1"]


# Restart, clock, cron


def test_nothing_is_opened_before_everything_was_told():
    machine = PullMachine(SETTINGS, SHANGHAI)
    assert machine.next_wake(NOW) == NOW
    assert machine.handle(ProjectPut(project("late", LOW)), NOW).opens == ()
    assert machine.handle(ProjectPut(project("soon", CRITICAL)), NOW).opens == ()
    assert [o.project.name for o in machine.handle(Woke(), NOW).opens] == ["soon", "late"]


def test_the_end_of_a_task_while_there_was_no_machine_is_applied():
    machine = PullMachine(SETTINGS, SHANGHAI, ONE)
    machine.handle(ProjectPut(project("a", task=TaskId(7), next_sync_at=NOW + HOUR)), NOW)
    (saved,) = machine.handle(ended("a", 7, TIMEOUT, at=NOW - 5), NOW).saves
    assert (saved.failures, saved.task, saved.last_status) == (1, None, FAILED)


def test_a_task_that_is_not_told_again_has_gone():
    machine = PullMachine(SETTINGS, SHANGHAI)
    machine.handle(ProjectPut(project("a", task=TaskId(7), next_sync_at=NOW + 5)), NOW)
    (saved,) = machine.handle(Woke(), NOW).saves
    assert saved.task is None
    assert len(machine.handle(Woke(), NOW + 5).opens) == 1


def test_a_batch_that_a_worker_went_on_with_has_its_room_and_is_started_as_nobody_did():
    world = World(project("running", CRITICAL), project("a"), strategy=ONE)
    task_id = world.trigger("a", Trigger.MANUAL_BATCH)
    world.do(TaskBegan(key("a"), task_id, NOW))
    assert world.machine.view(NOW).running == 2
    world.end("running")
    assert world.started == ["running", "a"]
    world.do(ended("a", task_id, at=world.now))
    assert world.machine.view(NOW).running == 0


def test_a_time_that_was_written_by_a_wrong_clock_does_not_hold_a_project_back():
    world = World(project("a", next_sync_at=NOW + 1e9))
    assert world.stored[key("a")].next_sync_at == NOW + SETTINGS.slow_s


def test_a_clock_that_goes_back_is_followed():
    ahead = NOW + 1000 * HOUR
    world = World(project("a"), project("b", next_sync_at=ahead + HOUR), now=ahead)
    world.end("a")
    world.now = NOW
    world.do(Woke())
    assert world.state("a").next_sync_at <= NOW + SETTINGS.slow_s
    world.wait(25 * HOUR)
    assert set(world.started) == {"a", "b"}
    assert len(world.started) >= 3


def test_with_a_cron_projects_become_due_at_its_times_and_run_as_there_is_room():
    world = World(
        project("a"),
        project("b"),
        project("c", next_sync_at=NOW + 30),
        settings=PullSettings(by_cron=True),
        strategy=ONE,
    )
    assert world.started == []
    assert world.machine.next_wake(NOW) is None
    world.do(Woke(cron=True))
    assert world.started == ["a"]
    world.now += 40
    world.end("a")
    world.end("b")
    assert world.started == ["a", "b"]
    world.do(Woke())
    assert world.started == ["a", "b"]
    world.do(Woke(cron=True))
    assert world.started == ["a", "b", "c"]


def test_there_is_nothing_to_wake_for_while_there_is_no_room():
    world = World(project("a"), project("b", next_sync_at=NOW + 5), strategy=ONE)
    assert world.machine.next_wake(NOW) is None
    world.end("a", after=1)
    assert world.machine.next_wake(world.now) == NOW + 5
