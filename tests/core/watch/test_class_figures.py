"""Lag and equality by class follow every change, and agree with a count of everything anew."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.layers import LEFT
from evermirror.core.watch.class_figures import ByClass, ClassFigures
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.push import Pushed, TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey
from tests.nodes.test_coordinator import synced

NOW = 1_765_670_100.0
KEY = RepoKey("git.example.org/x")
ONE, TWO = TargetId(1), TargetId(2)
BROKEN = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")


def digest(text: str) -> RefsDigest:
    return RefsDigest(text.ljust(64, "0"))


def served(target: TargetId, **more: object) -> Target:
    return Target(target, f"https://t/{target}", put=digest("a"), **more)  # type: ignore[arg-type]


def project(*targets: Target, key: RepoKey = KEY, **more: object) -> Project:
    config = PullConfig(priority=more.pop("priority", Priority.HIGH), enabled=more.pop("enabled", True))  # type: ignore[arg-type]
    return Project(key, key, Host("h"), config, targets, **{"last_sync_at": NOW - 60, **more})  # type: ignore[arg-type]


def report(refs: str, *pushes: Pushed, moved: bool = True, first: bool = False):
    return replace(synced(7, moved=moved), key=KEY, digest=digest(refs), pushes=pushes, first=first)


def of(*projects: Project) -> ClassFigures:
    figures = ByClass()
    for one in projects:
        figures.saw(one)
    return figures.figures(NOW)[Priority.HIGH]


@pytest.mark.parametrize(
    ("one", "with_targets", "equal"),
    [
        (project(), 0, 0),
        (project(served(ONE)), 1, 1),
        (project(served(ONE), served(TWO)), 1, 1),
        (project(Target(ONE, "https://t/1")), 1, 0),  # nothing put yet
        (project(served(ONE), served(TWO, failures=1)), 1, 0),
        (project(served(ONE), served(TWO, paused="AUTH_FAILED")), 1, 0),
        (project(served(ONE), enabled=False), 0, 0),  # a person did
        (project(served(ONE), enabled=False, paused=f"{LEFT}no longer in team at gitlab"), 0, 0),
        (project(served(ONE), enabled=False, paused="it failed 5 times", failures=5), 1, 1),
        (project(served(ONE, paused="x"), enabled=False, paused="all its targets are paused"), 1, 0),
    ],
)
def test_what_counts_as_verified_equal(one, with_targets, equal):
    found = of(one)
    assert (found.with_targets, found.equal) == (with_targets, equal)


def test_a_mirror_that_moved_on_without_its_targets_is_not_equal_until_all_are_served():
    figures = ByClass()
    figures.saw(project(served(ONE), served(TWO)))

    def equal() -> int:
        return figures.figures(NOW)[Priority.HIGH].equal

    both = (Pushed(ONE, digest("b")), Pushed(TWO, digest("b")))
    figures.synced(report("b", *both))
    assert equal() == 1
    figures.synced(report("c"))  # such as for a webhook that came while nothing may be pushed
    assert equal() == 0
    figures.synced(report("c", both[0], moved=False))
    assert equal() == 0
    figures.synced(report("c", both[0], Pushed(TWO, None, failure=BROKEN), moved=False))
    assert equal() == 0
    figures.synced(report("c", *both, moved=False))
    assert equal() == 1


def test_another_workers_first_copy_of_the_same_refs_changes_nothing():
    figures = ByClass()
    figures.saw(project(served(ONE)))
    figures.synced(report("b", Pushed(ONE, digest("b"))))
    figures.synced(report("b", first=True))
    assert figures.figures(NOW)[Priority.HIGH].equal == 1
    figures.synced(report("c", first=True))
    assert figures.figures(NOW)[Priority.HIGH].equal == 0


def test_after_a_restart_the_targets_state_is_believed_until_the_mirror_moves():
    figures = ByClass()
    figures.saw(project(served(ONE)))
    figures.synced(report("b", moved=False))
    assert figures.figures(NOW)[Priority.HIGH].equal == 1
    restarted = ByClass()
    restarted.saw(project(served(ONE)))
    restarted.synced(report("b"))
    assert restarted.figures(NOW)[Priority.HIGH].equal == 0


def test_a_target_whose_failures_were_forgiven_is_equal_once_it_was_served():
    figures = ByClass()
    figures.saw(project(served(ONE, failures=3, paused="AUTH_FAILED")))
    figures.saw(project(served(ONE)))
    assert figures.figures(NOW)[Priority.HIGH].equal == 0
    figures.synced(report("b", Pushed(ONE, digest("b"))))
    assert figures.figures(NOW)[Priority.HIGH].equal == 1


def test_a_report_is_heard_before_what_it_means_for_the_project():
    figures = ByClass()
    figures.saw(project(served(ONE, failures=1)))
    figures.synced(report("b", Pushed(ONE, digest("b"))))
    figures.saw(project(served(ONE, failures=1)))  # such as for a task that was opened meanwhile
    assert figures.figures(NOW)[Priority.HIGH].equal == 0
    figures.saw(project(served(ONE)))
    assert figures.figures(NOW)[Priority.HIGH].equal == 1


def test_what_is_no_project_is_not_counted():
    figures = ByClass()
    figures.synced(report("b"))
    figures.forget(KEY)
    assert figures.figures(NOW) == {priority: ClassFigures() for priority in Priority}
    assert ClassFigures().equal_share == 1.0


def test_one_never_synced_counts_from_when_it_was_made_also_for_the_average():
    other = project(key=RepoKey("y"), last_sync_at=None, created_at=NOW - 3600)
    found = of(project(), other)
    assert (found.projects, found.lag_average_s, found.lag_worst_s) == (2, 1830.0, 3600.0)
    assert (of(other).lag_average_s, of(other).lag_worst_s) == (3600.0, 3600.0)
    assert of(replace(other, config=PullConfig(enabled=False))).lag_average_s is None


def test_a_clock_that_was_set_back_gives_no_negative_lag():
    found = of(project(last_sync_at=NOW + 5))
    assert (found.lag_average_s, found.lag_worst_s) == (0.0, 0.0)


keys = st.sampled_from([RepoKey(f"h/{n}") for n in range(6)])
times = st.integers(0, 50).map(lambda n: NOW - n * 7.5)
projects = st.builds(
    lambda key, priority, enabled, at, made, failures, paused, put: project(
        Target(ONE, "https://t/1", put=digest("a") if put else None),
        key=key, priority=priority, enabled=enabled, last_sync_at=at, created_at=made, failures=failures,
        paused="" if enabled else paused,
    ),
    keys, st.sampled_from(Priority), st.booleans(), st.none() | times, times, st.integers(0, 2),
    st.sampled_from(["", "why", f"{LEFT}gone"]), st.booleans(),
)  # fmt: skip


def twin(known: dict[RepoKey, Project], behind: set[RepoKey]) -> dict[Priority, ClassFigures]:
    found = {}
    for priority in Priority:
        ours = [p for p in known.values() if p.config.priority is priority]
        enabled = [p for p in ours if p.config.enabled]
        asked = [p for p in ours if p.config.enabled or p.paused == "why"]
        lags = [NOW - (p.created_at if p.last_sync_at is None else p.last_sync_at) for p in enabled]
        equal = sum(p.key not in behind for p in asked)
        found[priority] = ClassFigures(
            len(enabled), len(asked), equal, sum(lags) / len(lags) if lags else None, max(lags, default=None)
        )
    return found


@settings(max_examples=200, deadline=None)
@given(st.lists(projects | keys, max_size=60))
def test_the_figures_are_those_of_a_count_anew(steps):
    figures, known, behind = ByClass(), dict[RepoKey, Project](), set[RepoKey]()
    for step in steps:
        if isinstance(step, Project):
            figures.saw(step)
            known[step.key] = step
            if step.targets[0].put is None and (step.config.enabled or step.paused == "why"):
                behind.add(step.key)  # for good: nobody is served here
        else:
            figures.forget(step)
            known.pop(step, None)
            behind.discard(step)
        told = figures.figures(NOW)
        for priority, expected in twin(known, behind).items():
            found = told[priority]
            lags = {"lag_average_s": None, "lag_worst_s": None}
            assert replace(found, **lags) == replace(expected, **lags)
            assert found.lag_average_s == pytest.approx(expected.lag_average_s)
            assert found.lag_worst_s == pytest.approx(expected.lag_worst_s, abs=1.0)


def test_a_hundred_thousand_projects_cost_a_look_nothing():
    figures = ByClass()
    many = [project(served(ONE), key=RepoKey(f"h/{n}"), last_sync_at=NOW - n) for n in range(100_000)]
    for one in many:
        figures.saw(one)
    for one in many:
        figures.saw(replace(one, last_sync_at=one.last_sync_at + 0.25))
    began = time.process_time()
    found = figures.figures(NOW)[Priority.HIGH]
    assert time.process_time() - began < 0.02
    assert (found.projects, found.equal, found.lag_worst_s) == (100_000, 100_000, 99_999.0)
