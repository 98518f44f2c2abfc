"""Defaults, the catalog's line, people: who is heard, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.pull.layers import (
    SOURCE_SAYS,
    ProjectChange,
    changed,
    enabled,
    followed,
    has_left,
    is_kept_out,
    left,
    taken_back,
    with_priority,
)
from evermirror.core.pull.outcome import excuse
from evermirror.core.pull.settings import PullSettings
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.pull import INTERVALS_S, MINUTE, TargetSpec
from evermirror.model.push import TargetId
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec
from evermirror.model.task import TaskStatus

NOW = 1_000_000.0
ONE, TWO = TargetSpec("https://one.example/x"), TargetSpec("https://two.example/x", "corp")


def record(source="catalog", alias="p/x", *, is_enabled=True, **spec):
    key = RepoKey("h.example/x")
    return RepoRecord(
        RepoSpec(key, f"https://{key}", Host("h.example"), **spec), alias, source, enabled=is_enabled
    )


def lined(*targets, **spec):
    """A project that the catalog made."""
    project = followed(record(**spec), targets or (ONE,), None, NOW)
    assert project is not None
    return project


def test_a_line_with_targets_makes_a_project_that_is_due_at_once():
    project = followed(record(priority=Priority.HIGH, credential="read"), [ONE, TWO], None, NOW)
    assert (project.key, project.name, project.host) == ("h.example/x", "p/x", "h.example")
    assert (project.config.priority, project.config.interval_s) == (Priority.HIGH, INTERVALS_S[Priority.HIGH])
    assert (project.next_sync_at, project.config.enabled, project.overrides) == (NOW, True, frozenset())
    assert [(t.id, t.url, t.credential) for t in project.targets] == [
        (0, ONE.url, None),
        (0, TWO.url, "corp"),
    ]
    assert (project.catalog, project.source_credential) == ((ONE, TWO), "read")
    assert followed(record(), [], None, NOW) is None
    assert followed(record(alias=None), [ONE], None, NOW).name == "h.example/x"
    assert followed(record(interval_s=77.0), [ONE], None, NOW).config.interval_s == 77.0
    assert not followed(record(is_enabled=False), [ONE], None, NOW).config.enabled


def test_a_line_that_loses_its_targets_makes_the_repo_adaptive_unless_a_person_spoke():
    project = lined()
    assert followed(record(), [], project, NOW) is None
    spoken = changed(record(), project, ProjectChange(interval_s=900.0), NOW)
    left = followed(record(), [], spoken, NOW)
    assert (left.targets, left.catalog, left.config.interval_s) == ((), (), 900.0)


def test_what_happened_at_a_target_stays_and_another_credential_is_worth_a_try():
    known = replace(
        lined(ONE, TWO).targets[1],
        id=TargetId(7),
        put=RefsDigest("d"),
        failures=5,
        paused="no",
        not_before=9e9,
    )
    project = replace(lined(ONE, TWO), targets=(known,), next_sync_at=NOW + 500, last_sync_at=NOW)
    same = followed(record(), [TWO], project, NOW + 1)
    assert (same.targets, same.next_sync_at) == ((known,), NOW + 500)
    other = followed(record(), [TargetSpec(TWO.url, "other")], project, NOW + 1)
    (target,) = other.targets
    assert (target.id, target.put, target.credential) == (7, "d", "other")
    assert (target.failures, target.paused, target.not_before) == (0, "", 0.0)
    assert other.next_sync_at == NOW + 1
    more = followed(record(), [ONE, TWO], project, NOW + 1)
    assert ([t.url for t in more.targets], more.next_sync_at) == ([ONE.url, TWO.url], NOW + 1)


def test_an_override_stands_whatever_the_catalog_says_until_it_is_taken_back():
    project = changed(record(), lined(), ProjectChange(priority=Priority.LOW, targets=(TWO,)), NOW)
    assert (project.overrides, project.config.priority) == ({"priority", "targets"}, Priority.LOW)
    assert project.config.interval_s == INTERVALS_S[Priority.LOW]  # nobody said another
    said = record(priority=Priority.LOW, interval_s=120.0)  # the repo has what the person said
    project = followed(said, [ONE, TWO], project, NOW, Priority.CRITICAL)
    assert (project.config.priority, project.config.interval_s) == (Priority.LOW, 120.0)
    assert [t.url for t in project.targets] == [TWO.url]
    back = taken_back(said, project, NOW)
    assert (back.overrides, back.config.priority) == (frozenset(), Priority.CRITICAL)
    assert [t.url for t in back.targets] == [ONE.url, TWO.url]


def test_taking_back_leaves_what_the_api_made_its_targets_and_what_it_did_not_make_nothing():
    made = changed(record("api"), None, ProjectChange(targets=(ONE,), max_retries=9), NOW)
    back = taken_back(record("api"), made, NOW)
    assert (back.overrides, back.config.max_retries) == ({"targets"}, 3)
    assert [t.url for t in back.targets] == [ONE.url]
    configured = changed(record("api"), None, ProjectChange(interval_s=600.0), NOW)
    assert taken_back(record("api"), configured, NOW) is None
    in_catalog = changed(record(), None, ProjectChange(targets=(ONE,)), NOW)
    assert taken_back(record(), in_catalog, NOW) is None


def test_enabling_forgets_failures_and_is_due_at_once():
    failed = replace(
        lined(),
        failures=5,
        paused="5 times in a row",
        next_sync_at=NOW + 900,
        last_status=TaskStatus.FAILED,
        last_failure=Failure(FailureKind.UNKNOWN, "x"),
    )
    failed = replace(failed, config=replace(failed.config, enabled=False))
    for project in (enabled(failed, NOW), changed(record(), failed, ProjectChange(enabled=True), NOW)):
        assert (project.config.enabled, project.failures, project.paused) == (True, 0, "")
        assert (project.next_sync_at, project.last_status) == (NOW, None)
    well = replace(lined(), failures=1, next_sync_at=NOW + 300, last_sync_at=NOW - 1)
    assert changed(record(), well, ProjectChange(enabled=True), NOW) == replace(well, overrides={"enabled"})
    other = changed(record(), failed, ProjectChange(priority=Priority.LOW), NOW)
    assert (other.config.enabled, other.paused) == (False, "5 times in a row")


def test_a_disabled_repo_disables_its_project_and_brings_it_back_unless_a_person_disabled_that_too():
    project = lined()
    off = followed(record(is_enabled=False), [ONE], project, NOW)
    assert (off.config.enabled, off.paused) == (False, "")
    assert followed(record(), [ONE], off, NOW).config.enabled
    by_hand = changed(record(), project, ProjectChange(enabled=False), NOW)
    off = followed(record(is_enabled=False), [ONE], by_hand, NOW)
    assert not followed(record(), [ONE], off, NOW).config.enabled
    assert taken_back(record(), by_hand, NOW).config.enabled


@pytest.mark.parametrize(
    ("interval", "last", "failures", "due"),
    [
        (5 * MINUTE, NOW - 600, 0, NOW - 300),  # shorter: overdue
        (60 * MINUTE, NOW - 600, 0, NOW + 3000),  # longer: counted from the last sync
        (60 * MINUTE, None, 0, NOW),  # never synced
        (5 * MINUTE, NOW - 600, 2, NOW + 1200),  # while it fails, retries are what counts
    ],
)
def test_another_interval_holds_at_once(interval, last, failures, due):
    project = replace(lined(interval_s=1800.0), last_sync_at=last, failures=failures, next_sync_at=NOW + 1200)
    after = changed(record(interval_s=1800.0), project, ProjectChange(interval_s=interval), NOW)
    assert after.next_sync_at == due


changes = st.builds(
    ProjectChange,
    priority=st.none() | st.sampled_from(Priority),
    interval_s=st.none() | st.floats(60, 1e6),
    enabled=st.none() | st.booleans(),
    max_retries=st.none() | st.integers(0, 9),
    retry_delay_s=st.none() | st.floats(1, 1e4),
    targets=st.none() | st.lists(st.sampled_from([ONE, TWO]), unique=True).map(tuple),
)
records = st.builds(
    record,
    priority=st.sampled_from(Priority),
    interval_s=st.none() | st.floats(10, 1e6),
    is_enabled=st.booleans(),
)
said = st.lists(st.sampled_from([ONE, TWO]), unique=True)


@given(st.lists(st.tuples(records, said, changes), min_size=1, max_size=6))
def test_whatever_was_said_before_taking_back_leaves_what_the_line_alone_would_make(story):
    project, spoken = None, None  # the priority that a person said, which is the repo's from then on
    for repo, targets, change in story:
        line = repo.spec.priority
        stored = with_priority(repo, spoken or line)
        project = followed(stored, targets, project, NOW, line if spoken else None)
        if change.said():
            project = changed(stored, project, change, NOW)
            spoken = change.priority or spoken
            stored = with_priority(repo, spoken or line)
            again = followed(stored, targets, project, NOW, line if spoken else None)
            assert again == replace(project, catalog=tuple(targets)), "twice"
            assert project.config.priority is stored.spec.priority
    repo, targets, _ = story[-1]
    if project is not None:
        project = followed(stored, targets, project, NOW, line if spoken else None)
    alone = followed(repo, targets, None, NOW)
    bare = taken_back(stored, project, NOW) if project is not None else None
    assert (bare is None) == (alone is None)
    if alone is not None and bare is not None:
        assert bare.config == alone.config
        assert [(t.url, t.credential) for t in bare.targets] == [(t.url, t.credential) for t in alone.targets]


def test_a_person_who_disables_what_paused_itself_has_the_last_word():
    paused = replace(lined(), paused="it failed 5 times", failures=5)
    paused = replace(paused, config=replace(paused.config, enabled=False))
    off = changed(record(), paused, ProjectChange(enabled=False), NOW)
    assert (off.config.enabled, off.paused) == (False, "")
    assert not excuse(off, PullSettings()).config.enabled
    assert excuse(paused, PullSettings()).config.enabled


def test_a_discovery_takes_over_a_pause_by_a_source_that_is_gone_and_no_other():
    paused = replace(lined(), config=replace(lined().config, enabled=False))
    gone = replace(paused, paused=f"{SOURCE_SAYS}NOT_FOUND, HTTP 404")
    assert is_kept_out(gone)
    after = left(gone, "no longer in devops")
    assert has_left(after)
    assert not is_kept_out(after)
    failed = replace(paused, paused="it failed 5 times in a row")
    for other in (paused, failed, after):  # by a person, by other trouble, by a discovery before
        assert left(other, "no longer in tools") == other
        assert not is_kept_out(other)
    assert not is_kept_out(lined())
