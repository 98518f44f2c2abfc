"""Every project is counted once, in the state that the table gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.watch.progress import SyncState, overall, state_of
from evermirror.model.pull import Project, PullConfig
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskStatus
from tests.support.plain_counts import progress_of

NOW = 1_000_000.0
HOUR = 3600.0
FRESH = Project(
    key=RepoKey("git.example/a"),
    name="a",
    host=Host("git.example"),
    config=PullConfig(interval_s=HOUR),
    last_sync_at=NOW - 60.0,
    next_sync_at=NOW + HOUR - 60.0,
    last_status=TaskStatus.SUCCESS,
)
OFF = PullConfig(interval_s=HOUR, enabled=False)


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, SyncState.SYNCED),
        ({"last_status": TaskStatus.SKIPPED}, SyncState.SYNCED),
        ({"next_sync_at": NOW - HOUR}, SyncState.SYNCED),  # due, and waits for a slot
        ({"next_sync_at": NOW - HOUR - 0.1}, SyncState.PENDING),
        ({"task": TaskId(7)}, SyncState.PENDING),
        ({"last_status": None, "last_sync_at": None}, SyncState.PENDING),
        ({"last_status": TaskStatus.FAILED, "failures": 1}, SyncState.FAILED),
        ({"last_status": TaskStatus.FAILED}, SyncState.FAILED),  # its host's weather: no failure of its own
        ({"last_status": TaskStatus.FAILED, "task": TaskId(7)}, SyncState.FAILED),  # until it goes well
        ({"config": OFF, "paused": "failed 5 times", "failures": 5}, SyncState.FAILED),
        ({"config": OFF}, SyncState.DISABLED),
        ({"config": OFF, "last_status": TaskStatus.FAILED, "failures": 2}, SyncState.DISABLED),
    ],
)
def test_the_state_of_a_project(changed: dict[str, object], state: SyncState) -> None:
    project = replace(FRESH, **changed)
    assert state_of(project, NOW) is state
    assert state_of(project, NOW, {project.key}) is SyncState.SYNCING


def numbered(number: int, priority: Priority, **changed: object) -> Project:
    config = PullConfig(priority, HOUR, enabled=changed.pop("enabled", True))
    return replace(FRESH, key=RepoKey(f"git.example/{number}"), name=str(number), config=config, **changed)


def test_the_figures_of_the_seed_s_overview() -> None:
    critical = [numbered(n, Priority.CRITICAL, last_sync_at=NOW - 300.0) for n in range(10)]
    normal = [numbered(n + 10, Priority.NORMAL, last_sync_at=NOW - 1500.0) for n in range(28)]
    failed = numbered(90, Priority.NORMAL, last_status=TaskStatus.FAILED, last_sync_at=None)
    disabled = numbered(91, Priority.NORMAL, enabled=False, last_sync_at=NOW - 90 * HOUR)
    told = progress_of([*critical, *normal, failed, disabled], NOW, syncing={critical[0].key})
    assert (told[Priority.CRITICAL].synced, told[Priority.CRITICAL].syncing) == (9, 1)
    assert told[Priority.CRITICAL].average_delay_s == 300.0
    assert told[Priority.NORMAL].average_delay_s == 1500.0  # the disabled one says nothing
    assert told[Priority.NORMAL].success_rate == pytest.approx(1 - 1 / 30)
    assert told[Priority.LOW].total == 0
    assert told[Priority.LOW].average_delay_s is None
    assert told[Priority.LOW].success_rate == 1.0
    everything = overall(told.values())
    assert (everything.total, everything.synced, everything.failed, everything.disabled) == (40, 37, 1, 1)
    assert everything.success_rate == 0.975
    assert everything.average_delay_s == pytest.approx((10 * 300 + 28 * 1500) / 38)


def test_a_clock_that_was_set_back_gives_no_negative_delay() -> None:
    told = progress_of([replace(FRESH, last_sync_at=NOW + 50.0)], NOW)
    assert told[Priority.NORMAL].average_delay_s == 0.0


projects = st.builds(
    numbered,
    st.integers(0, 10_000),
    st.sampled_from(Priority),
    enabled=st.booleans(),
    paused=st.sampled_from(["", "failed 5 times"]),
    last_status=st.sampled_from([None, TaskStatus.SUCCESS, TaskStatus.SKIPPED, TaskStatus.FAILED]),
    last_sync_at=st.none() | st.floats(NOW - 90 * HOUR, NOW),
    next_sync_at=st.floats(NOW - 3 * HOUR, NOW + HOUR),
    task=st.none() | st.just(TaskId(3)),
)


@given(st.lists(projects, unique_by=lambda p: p.key, max_size=30), st.data())
def test_everybody_is_in_exactly_one_state_and_classes_add_up(some: list[Project], data) -> None:
    syncing = data.draw(st.sets(st.sampled_from([p.key for p in some]))) if some else set()
    told = progress_of(some, NOW, syncing=syncing)
    for each in told.values():
        assert each.total == each.synced + each.syncing + each.pending + each.failed + each.disabled
    everything = overall(told.values())
    assert everything.total == len(some)
    assert everything.syncing == len(syncing)
    delays = [
        NOW - p.last_sync_at
        for p in some
        if p.last_sync_at is not None and state_of(p, NOW, syncing) is not SyncState.DISABLED
    ]
    assert everything.measured == len(delays)
    assert everything.average_delay_s == (pytest.approx(sum(delays) / len(delays)) if delays else None)
