"""What upkeep a mirror needs, and that doing it is the end of it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evermirror.core.maintain.facts import DAY_S, HOUR_S, Job, Past, RepoUpkeep, UpkeepSettings
from evermirror.core.maintain.plan import (
    BITMAP_FROM_BYTES,
    LOOSE_OBJECTS_MAX,
    LOOSE_REFS_MAX,
    RETRY_MAX_S,
    RETRY_S,
    chance_of,
    next_due,
    plan,
)

NOW = 1_800_000_000.0
SETTINGS = UpkeepSettings()
# One pack, indexed, checked an hour ago: nothing to do.
TIDY = RepoUpkeep(
    first_seen_at=NOW - 100 * DAY_S,
    pack_count=1,
    pack_bytes=10 * BITMAP_FROM_BYTES,
    has_bitmap=True,
    has_commit_graph=True,
    packs_id="tidy",
    past={job: Past(NOW - HOUR_S, NOW - HOUR_S, 0, "tidy") for job in Job},
)


@pytest.mark.parametrize(
    ("facts", "job"),
    [
        (TIDY, None),
        (replace(TIDY, loose_refs=LOOSE_REFS_MAX), None),
        (replace(TIDY, loose_refs=LOOSE_REFS_MAX + 1), Job.PACK_REFS),
        (replace(TIDY, pack_count=20, packs_id="more"), None),
        (replace(TIDY, pack_count=21, packs_id="more"), Job.GEOMETRIC),
        (replace(TIDY, pack_count=21, packs_id="more", loose_refs=5000), Job.PACK_REFS),
        (replace(TIDY, loose_objects=LOOSE_OBJECTS_MAX + 1), Job.GEOMETRIC),
        (replace(TIDY, has_bitmap=False, packs_id="more"), Job.GEOMETRIC),
        (replace(TIDY, has_bitmap=False, pack_bytes=BITMAP_FROM_BYTES - 1, packs_id="more"), None),
        (replace(TIDY, has_commit_graph=False, packs_id="more"), Job.COMMIT_GRAPH),
        (replace(TIDY, has_commit_graph=False, pack_count=0, packs_id="more"), None),
        (RepoUpkeep(first_seen_at=NOW), None),  # an empty mirror, just made
        (RepoUpkeep(first_seen_at=NOW, pack_count=1, packs_id="x"), Job.COMMIT_GRAPH),
        (RepoUpkeep(first_seen_at=NOW - 31 * DAY_S), Job.FSCK),
    ],
)
def test_examples_of_what_is_needed(facts, job):
    assert plan(facts, SETTINGS, NOW, 0.5) is job


def done_before(job, days, **changes):
    past = Past(NOW - days * DAY_S, NOW - days * DAY_S, 0, "tidy")
    return replace(TIDY, past={**TIDY.past, job: past}, **changes)


def test_a_full_repack_comes_every_30_days_but_only_to_what_changed():
    assert plan(done_before(Job.FULL, 31, packs_id="more"), SETTINGS, NOW, 0.5) is Job.FULL
    assert plan(done_before(Job.FULL, 29, packs_id="more"), SETTINGS, NOW, 0.5) is None
    assert plan(done_before(Job.FULL, 31), SETTINGS, NOW, 0.5) is None


def test_a_check_comes_every_30_days_changed_or_not():
    assert plan(done_before(Job.FSCK, 31), SETTINGS, NOW, 0.5) is Job.FSCK
    assert plan(done_before(Job.FSCK, 29, packs_id="more"), SETTINGS, NOW, 0.5) is None


def test_a_mirror_that_borrows_objects_is_checked_but_never_repacked():
    facts = RepoUpkeep(pack_count=500, pack_bytes=10**9, loose_objects=10**5, has_alternates=True)
    facts = replace(facts, has_commit_graph=True)
    due = next_due(facts, SETTINGS, NOW, 0.5)
    assert due.job is Job.FSCK
    facts = replace(facts, past={Job.FSCK: Past(NOW, NOW)})
    assert plan(facts, SETTINGS, NOW, 0.5) is None


def test_a_job_that_changes_nothing_is_not_due_again_before_something_changed():
    # No commits, only a tag of a large blob: git makes neither bitmap nor graph.
    odd = replace(TIDY, has_bitmap=False, has_commit_graph=False)
    assert plan(odd, SETTINGS, NOW + DAY_S, 0.5) is None
    assert plan(replace(odd, packs_id="more"), SETTINGS, NOW + DAY_S, 0.5) is Job.GEOMETRIC


def test_a_job_that_failed_is_tried_again_ever_more_rarely():
    def due_after(failures):
        past = {**TIDY.past, Job.GEOMETRIC: Past(NOW, None, failures)}
        facts = replace(TIDY, pack_count=50, packs_id="more", past=past)
        due = next_due(facts, replace(SETTINGS, fsck_every_s=1e9, full_every_s=1e9), NOW, 0.5)
        assert due.job is Job.GEOMETRIC
        return due.at - NOW

    assert due_after(1) == RETRY_S
    assert due_after(2) == 2 * RETRY_S
    assert due_after(1000) == RETRY_MAX_S


def test_one_that_failed_does_not_hold_up_the_others():
    past = {**TIDY.past, Job.GEOMETRIC: Past(NOW, None, 3)}
    facts = replace(TIDY, pack_count=50, packs_id="more", past=past)
    assert plan(facts, SETTINGS, NOW + 31 * DAY_S, 0.5) is not None
    assert plan(replace(facts, loose_refs=5000), SETTINGS, NOW, 0.5) is Job.PACK_REFS


def test_times_ahead_of_the_clock_hold_nothing_back_for_longer_than_a_cycle():
    far = NOW + 1000 * DAY_S
    facts = replace(TIDY, past={**TIDY.past, Job.FSCK: Past(far, far, 0, "tidy")})
    assert next_due(facts, SETTINGS, NOW, 0.5).at == NOW + SETTINGS.fsck_every_s


def test_first_checks_of_a_fleet_cloned_at_once_are_spread_over_the_cycle():
    fresh = RepoUpkeep(first_seen_at=NOW)
    days = [0] * 30
    for n in range(6000):
        at = next_due(fresh, SETTINGS, NOW, chance_of(f"host/repo{n}", "worker")).at
        days[int((at - NOW) / DAY_S)] += 1
    assert sum(days) == 6000
    assert min(days) > 140
    assert max(days) < 260


def test_replicas_of_a_repo_are_checked_on_different_days_and_a_mirror_always_on_the_same():
    assert chance_of("a", "w1") != chance_of("a", "w2")
    assert chance_of("a", "w1") == chance_of("a", "w1")
    assert all(0 <= chance_of(str(n)) < 1 for n in range(100))


pasts = st.builds(
    lambda tried, ago, failures, packs: Past(
        NOW - tried, None if ago is None else NOW - tried - ago, failures, packs
    ),
    st.floats(-1e6, 1e8),
    st.none() | st.floats(0, 1e8),
    st.integers(0, 50),
    st.sampled_from(["a", "b"]),
)
upkeeps = st.builds(
    RepoUpkeep,
    first_seen_at=st.floats(NOW - 1e8, NOW + 1e6),
    pack_count=st.integers(0, 100),
    pack_bytes=st.integers(0, 10**9),
    loose_objects=st.integers(0, 5000),
    loose_refs=st.integers(0, 5000),
    has_bitmap=st.booleans(),
    has_commit_graph=st.booleans(),
    has_alternates=st.booleans(),
    packs_id=st.sampled_from(["a", "b"]),
    past=st.dictionaries(st.sampled_from(Job), pasts),
)


def after(facts, job, now, *, works=True, effective=True):
    """The mirror once git did its work, or did not. One that is not effective found nothing to change."""
    if works and effective:
        if job is Job.PACK_REFS:
            facts = replace(facts, loose_refs=0)
        elif job in (Job.GEOMETRIC, Job.FULL):
            few = min(facts.pack_count, 3)
            facts = replace(facts, pack_count=few, loose_objects=0, has_bitmap=True, packs_id=f"{job} {now}")
        elif job is Job.COMMIT_GRAPH:
            facts = replace(facts, has_commit_graph=True)
    last = facts.past.get(job, Past(now))
    this = Past(now, now, 0, facts.packs_id)
    if not works:
        this = replace(last, tried_at=now, failures=last.failures + 1)
    return replace(facts, past={**facts.past, job: this})


@given(upkeeps, st.floats(0, 1, exclude_max=True), st.data())
def test_after_a_job_its_need_is_gone_and_all_needs_end(facts, chance, data):
    jobs = []
    while (job := plan(facts, SETTINGS, NOW, chance)) is not None:
        jobs.append(job)
        assert len(jobs) <= 2 * len(Job), jobs
        facts = after(facts, job, NOW, works=data.draw(st.booleans()), effective=data.draw(st.booleans()))
        assert plan(facts, SETTINGS, NOW, chance) is not job
    assert next_due(facts, SETTINGS, NOW, chance).at > NOW


@given(upkeeps, st.floats(0, 1, exclude_max=True), st.lists(st.floats(0, 10 * DAY_S), max_size=60), st.data())
def test_never_two_full_repacks_or_checks_within_the_gap(facts, chance, waits, data):
    now, done = NOW, {Job.FULL: [], Job.FSCK: []}
    for wait in waits:
        now += wait
        facts = replace(facts, pack_count=facts.pack_count + 1, packs_id=f"fetched {now}")
        job = plan(facts, SETTINGS, now, chance)
        if job is not None:
            works = data.draw(st.booleans())
            facts = after(facts, job, now, works=works)
            if works and job in done:
                done[job].append(now)
    for times in done.values():
        assert all(b - a >= 30 * DAY_S for a, b in itertools.pairwise(times))


@given(upkeeps, st.floats(0, 1, exclude_max=True))
@example(RepoUpkeep(first_seen_at=NOW + 2), 0.5)
def test_what_is_promised_for_later_is_planned_then_and_not_before(facts, chance):
    due = next_due(facts, SETTINGS, NOW, chance)
    assert due.changed_at <= due.at
    if due.at <= NOW:
        assert plan(facts, SETTINGS, NOW, chance) is due.job
    elif due.at < math.inf:
        written = [facts.first_seen_at, *(past.tried_at for past in facts.past.values())]
        ahead_s = max(0.0, max(written) - NOW)  # a time ahead of the clock counts as now, which goes on
        assert plan(facts, SETTINGS, math.nextafter(due.at, 0) - 1, chance) is None
        assert plan(facts, SETTINGS, due.at + ahead_s + 1, chance) is not None


@pytest.mark.parametrize("wrong", [{"packs_max": 0}, {"fsck_every_s": 0.0}, {"time_limit_s": -1.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        UpkeepSettings(**wrong)


def test_a_fresh_clone_needs_no_full_repack_until_fetches_came():
    fresh = replace(TIDY, past={Job.FSCK: TIDY.past[Job.FSCK]})
    assert plan(fresh, SETTINGS, NOW, 0.5) is None
    assert plan(replace(fresh, pack_count=2), SETTINGS, NOW, 0.5) is Job.FULL
    marked = replace(fresh, past={**fresh.past, Job.FULL: Past(fresh.first_seen_at, packs_id="tidy")})
    assert plan(marked, SETTINGS, NOW, 0.5) is None
    assert plan(replace(marked, packs_id="merged by a geometric repack"), SETTINGS, NOW, 0.5) is Job.FULL
