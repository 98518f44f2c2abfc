"""The figures of pull mirroring: names to the letter, values that follow what happens."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from evermirror.core.pull.events import ProjectPut, ProjectRemoved, PullDecision, Woke
from evermirror.core.pull.layers import LEFT
from evermirror.core.pull.views import PullView
from evermirror.faces.api.pull_metrics import PullCollector
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import Load, LoadLevel, Project, PullConfig, Target
from evermirror.model.push import Pushed, TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from evermirror.nodes.coordinator.pull.pull_figures import PullFigures
from tests.nodes.test_coordinator import KEY, T0, failed, refused, synced

NAMES = """
    pull_tasks_scheduled_total pull_tasks_scheduled_per_minute pull_tasks_queued pull_tasks_running
    pull_tasks_success_total pull_tasks_failed_total pull_tasks_skipped_total pull_projects_with_changes
    pull_commits_synced_total pull_sync_success_rate pull_errors_by_type pull_consecutive_failures
    pull_retry_count pull_concurrent_connections pull_bandwidth_bytes pull_task_duration_seconds_bucket
    pull_task_duration_seconds_sum pull_task_duration_seconds_count
"""
OURS = """
    pull_concurrent_limit pull_source_load pull_projects_enabled pull_projects_with_targets
    pull_projects_verified_equal pull_verified_equal_ratio pull_lag_seconds pull_lag_worst_seconds
    pull_projects_demoted pull_projects_paused pull_target_bytes
"""


class Bench:
    def __init__(self) -> None:
        self.now = T0
        self.figures = PullFigures(lambda: self.now, demote_after=3)
        self.projects = 0
        self.load = None
        self.registry = CollectorRegistry()
        self.registry.register(PullCollector(lambda: self.figures.totals(self.view())))

    def view(self) -> PullView:
        queued = {Priority.LOW: 3, Priority.HIGH: 1}
        return PullView(8, (), False, False, 2, queued, self.load, (), self.projects)

    def put(self, *projects: Project) -> None:
        self.projects += len(projects)
        for one in projects:
            self.figures.took(ProjectPut(one), PullDecision())

    def values(self) -> dict[str, float]:
        lines = [line for line in generate_latest(self.registry).decode().splitlines() if line[0] != "#"]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def opened(self, retry_count: int = 0) -> None:
        self.figures.opened(
            TaskRecord(TaskId(1), KEY, TaskStatus.PENDING, Trigger.SCHEDULE, retry_count=retry_count)
        )


def project(name: str, **more: object) -> Project:
    return Project(RepoKey(name), name, Host("h"), PullConfig(), **more)  # type: ignore[arg-type]


def test_every_name_is_exported_to_the_letter_also_before_anything_happened():
    names = {name.partition("{")[0] for name in Bench().values()}
    assert names == {*NAMES.split(), *OURS.split()}


def test_the_figures_follow_tasks_from_being_made_to_their_end():
    bench = Bench()
    bench.opened()
    bench.now += 30
    bench.opened(retry_count=2)
    bench.figures.reported(synced(1, 2))  # one sync that answers two; 2 s, 1 commit, 1,000 bytes
    bench.figures.reported(synced(3, moved=False))
    bench.figures.reported(failed(4, failure=Failure(FailureKind.NETWORK_TIMEOUT, "no")))
    bench.figures.reported(refused(5))
    bench.figures.reported(synced())  # nobody asked: a first copy, and no task
    told = bench.values()
    assert (told["pull_tasks_scheduled_total"], told["pull_tasks_scheduled_per_minute"]) == (2, 2)
    assert (told["pull_tasks_queued"], told["pull_tasks_running"]) == (4, 2)
    assert (told["pull_tasks_success_total"], told["pull_tasks_skipped_total"]) == (2, 1)
    assert (told["pull_tasks_failed_total"], told["pull_retry_count"]) == (2, 1)
    assert told['pull_errors_by_type{type="NETWORK_TIMEOUT"}'] == 1
    assert told['pull_errors_by_type{type="DISK_FULL"}'] == 0
    assert (told["pull_commits_synced_total"], told["pull_bandwidth_bytes"]) == (2, 3000)
    assert told['pull_task_duration_seconds_bucket{le="1"}'] == 2  # the failure and the refusal
    assert told['pull_task_duration_seconds_bucket{le="3"}'] == 5
    assert told["pull_task_duration_seconds_count"] == 5
    assert told["pull_projects_with_changes"] == 0  # the latest of it changed nothing
    bench.now += 31
    assert bench.values()["pull_tasks_scheduled_per_minute"] == 1


def test_projects_are_counted_as_they_are():
    bench = Bench()
    bench.figures.reported(synced(1))
    bench.put(
        project("a", last_status=TaskStatus.SUCCESS, next_sync_at=T0),
        project("b", last_status=TaskStatus.FAILED, failures=1, next_sync_at=T0),
        project("c", paused="5 times in a row", failures=5),
        project("d"),
    )
    told = bench.values()
    assert (told["pull_sync_success_rate"], told["pull_consecutive_failures"]) == (0.5, 2)
    assert told["pull_projects_with_changes"] == 1
    bench.figures.forget(KEY)
    assert bench.values()["pull_projects_with_changes"] == 0


def test_a_projects_change_is_counted_when_it_is_decided_and_not_when_somebody_looks():
    bench = Bench()
    bench.put(project("a"), project("b"))
    worse = [project(n, last_status=TaskStatus.FAILED, failures=3) for n in ("a", "b")]
    bench.figures.took(Woke(), PullDecision(saves=tuple(worse)))
    told = bench.values()
    assert (told["pull_sync_success_rate"], told["pull_consecutive_failures"]) == (0.0, 2)
    bench.figures.took(Woke(), PullDecision(saves=(project("a", last_status=TaskStatus.SUCCESS),)))
    told = bench.values()
    assert (told["pull_sync_success_rate"], told["pull_consecutive_failures"]) == (0.5, 1)
    bench.figures.took(ProjectRemoved(RepoKey("b")), PullDecision())
    bench.projects -= 1
    told = bench.values()
    assert (told["pull_sync_success_rate"], told["pull_consecutive_failures"]) == (1.0, 0)


def test_those_that_failed_often_and_those_given_up_are_not_those_that_failed_once():
    bench = Bench()
    left = PullConfig(enabled=False)
    bench.put(
        project("once", failures=1),
        project("twice", failures=2),
        project("thrice", failures=3),
        project("refused", paused="AUTH_FAILED", failures=1),
        project("given up", paused="5 times in a row", failures=5),
        replace(project("left", paused=f"{LEFT}no longer in team"), config=left),
    )

    def counted() -> tuple[float, ...]:
        told = bench.values()
        return tuple(
            told[f"pull_{n}"] for n in ("consecutive_failures", "projects_demoted", "projects_paused")
        )

    assert counted() == (5, 2, 2)
    bench.put(project("thrice"), project("refused"))
    assert counted() == (3, 1, 1)
    bench.figures.forget(RepoKey("given up"))
    assert counted() == (2, 0, 0)


def test_a_class_in_which_nothing_was_ever_synced_lags_since_it_was_made():
    bench = Bench()
    bench.put(project("a", created_at=T0 - 840), project("b", created_at=T0 - 40))
    told = bench.values()
    assert told['pull_lag_seconds{priority="normal"}'] == 440
    assert told['pull_lag_worst_seconds{priority="normal"}'] == 840


def test_what_is_sent_to_targets_is_counted_apart_from_what_came_from_sources():
    bench = Bench()
    pushes = tuple(Pushed(TargetId(n), None, sent_bytes=500) for n in (1, 2))
    bench.figures.reported(replace(synced(1), pushes=pushes))
    told = bench.values()
    assert (told["pull_bandwidth_bytes"], told["pull_target_bytes"]) == (1000, 2 * 500)


def test_limit_and_load_are_shown():
    bench = Bench()
    told = bench.values()
    assert told["pull_concurrent_limit"] == 8
    assert [told[f'pull_source_load{{level="{level}"}}'] for level in ("high", "normal", "low")] == [0, 0, 0]
    bench.load = Load(LoadLevel.HIGH, "cpu 93 %")
    told = bench.values()
    assert [told[f'pull_source_load{{level="{level}"}}'] for level in ("high", "normal", "low")] == [1, 0, 0]


def test_lag_and_equality_are_told_by_class_and_no_project_is_a_label():
    bench = Bench()
    served = (Target(TargetId(1), "https://t/a", put=RefsDigest("d" * 64)),)
    bench.put(
        project("a", last_sync_at=T0 - 60, targets=served),
        project("b", last_sync_at=T0 - 120, targets=(Target(TargetId(2), "https://t/b"),)),
        replace(project("c", last_sync_at=T0 - 30), config=PullConfig(priority=Priority.CRITICAL)),
    )
    told = bench.values()
    assert told['pull_projects_enabled{priority="normal"}'] == 2
    assert told['pull_projects_with_targets{priority="normal"}'] == 2
    assert told['pull_projects_verified_equal{priority="normal"}'] == 1
    assert told['pull_verified_equal_ratio{priority="normal"}'] == 0.5
    assert told['pull_verified_equal_ratio{priority="critical"}'] == 1.0
    assert told['pull_lag_seconds{priority="normal"}'] == 90
    assert told['pull_lag_worst_seconds{priority="normal"}'] == 120
    assert told['pull_lag_worst_seconds{priority="critical"}'] == 30
    assert told['pull_lag_seconds{priority="low"}'] == 0
    bench.figures.took(ProjectRemoved(RepoKey("b")), PullDecision())
    told = bench.values()
    assert told['pull_verified_equal_ratio{priority="normal"}'] == 1.0
    assert told['pull_lag_worst_seconds{priority="normal"}'] == 60
