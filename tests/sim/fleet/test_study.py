"""Studies: what a change moves, how long it takes, and what the brake holds back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.errors import UsageError
from evermirror.sim.fleet import report
from evermirror.sim.fleet.question import Change, Findings, Study, is_trusted
from evermirror.sim.fleet.study import run

THIRD = Study(workers=12, repos=600, change=Change.LOSE, count=4, mean_mb=20.0)


@pytest.fixture(scope="module")
def third() -> Findings:
    return run(THIRD)


def test_the_same_seed_is_the_same_run_and_another_is_not(third):
    assert run(THIRD) == third
    assert run(replace(THIRD, seed=2)) != third


def test_losing_a_third_moves_what_was_lost_and_nothing_else(third):
    assert 0.25 < third.moved / third.copies < 0.42
    assert third.moved == third.ideal == third.cloned == third.unheld_max
    assert third.deleted == 0


def test_nobody_is_unowned_longer_than_detection_grace_and_a_tick(third):
    settings = THIRD.settings
    silent_s = settings.max_missed * settings.heartbeat_s
    assert third.suspected_after_s is not None
    assert silent_s < third.suspected_after_s <= THIRD.detection_s
    assert third.owned_after_s is not None
    assert silent_s + settings.grace_s < third.owned_after_s
    assert third.owned_after_s <= THIRD.detection_s + settings.grace_s + settings.tick_s


def test_what_was_lost_alone_comes_from_upstream_within_the_links_of_those_left(third):
    assert (third.relayed, third.relay_mb) == (0, 0)
    assert third.upstream_mb == pytest.approx(third.moved * THIRD.mean_mb, rel=0.5)
    assert 0 < third.upstream_mean_mb_s <= third.upstream_peak_mb_s <= 8 * THIRD.bandwidth_mb_s * 1.0001
    assert third.held_after_s is not None
    fastest_s = third.upstream_mb / (8 * THIRD.bandwidth_mb_s)
    assert third.held_after_s >= THIRD.settings.grace_s + fastest_s
    assert third.settled_after_s == third.held_after_s


def test_the_load_stays_within_the_bound(third):
    assert third.load_after <= THIRD.settings.load_bound + 0.02  # whole copies: one more than the share


def test_points_tell_the_same_as_the_findings(third):
    at_end = third.points[-1]
    assert third.points[0].at_s < 0 < at_end.at_s == third.studied_s
    assert (at_end.owned, at_end.held, at_end.asked, at_end.waiting, at_end.alive) == (600, 600, 0, 0, 8)
    assert min(p.held for p in third.points) == 600 - third.unheld_max
    moved_mb = sum(
        p.upstream_mb_s * (p.at_s - before.at_s)
        for before, p in zip(third.points, third.points[1:], strict=False)
    )
    assert moved_mb == pytest.approx(third.upstream_mb)
    assert len(third.points) < 500


def test_losing_two_thirds_brakes_and_moves_nothing():
    study = replace(THIRD, count=8)
    found = run(study)
    assert found.brake_after_s is not None
    assert found.brake_after_s <= study.detection_s
    assert found.brake_at_end
    assert (found.moved, found.cloned, found.deleted, found.down_after_s) == (0, 0, 0, None)
    assert (found.owned_after_s, found.held_after_s, found.settled_after_s) == (None, None, None)
    assert any("brake engaged" in line for line in report.warnings(study, found))


def test_a_braked_fleet_that_comes_back_is_as_before():
    found = run(replace(THIRD, count=8, back_after_s=1800.0))
    assert found.brake_after_s is not None
    assert not found.brake_at_end
    assert (found.moved, found.deleted) == (0, 0)
    assert found.held_after_s == found.settled_after_s == pytest.approx(1800, abs=30)


def test_workers_that_are_back_within_the_grace_move_nothing():
    found = run(replace(THIRD, back_after_s=300.0))
    assert (found.moved, found.cloned, found.deleted, found.down_after_s) == (0, 0, 0, None)
    assert found.owned_after_s == pytest.approx(300, abs=30)


def test_with_replicas_what_is_lost_comes_from_those_who_still_hold_it():
    found = run(replace(THIRD, replicas=2, count=2))
    assert found.moved == found.ideal
    assert found.relayed > 0.8 * found.cloned
    assert found.relay_mb > found.upstream_mb
    assert found.unheld_max < found.ideal / 4


def test_new_workers_take_their_share_and_what_they_took_is_deleted_elsewhere():
    found = run(replace(THIRD, change=Change.JOIN, count=3))
    assert found.ideal == 120
    assert 0.6 * found.ideal <= found.moved <= 1.1 * found.ideal
    assert found.deleted == found.cloned == found.relayed == found.moved
    assert (found.unowned_max, found.owned_after_s, found.held_after_s) == (0, 0.0, 0.0)
    assert found.points[-1].alive == 15


def test_drained_workers_hand_over_all_they_have_while_everything_stays_readable():
    found = run(replace(THIRD, change=Change.DRAIN, count=3))
    assert found.moved == found.ideal == found.deleted == found.relayed
    assert (found.unheld_max, found.upstream_mb) == (0, 0)
    assert found.settled_after_s is not None


def test_repos_that_nobody_left_may_take_are_told():
    study = Study(workers=6, repos=60, change=Change.LOSE, count=3, replicas=4, mean_mb=5.0)
    found = run(study)
    assert found.waiting_for_room == 60
    assert any("60 repos lack a copy" in line for line in report.warnings(study, found))


def test_a_study_ends_when_its_time_is_over():
    study = replace(THIRD, longest_s=700.0, bandwidth_mb_s=0.1)
    found = run(study)
    assert found.studied_s == pytest.approx(700)
    assert (found.held_after_s, found.settled_after_s) == (None, None)
    assert any("had not settled" in line for line in report.warnings(study, found))


def test_progress_is_told_from_nothing_to_all():
    heard: list[tuple[str, float]] = []
    run(replace(THIRD, repos=60), lambda what, share: heard.append((what, share)))
    assert {what for what, _ in heard} == {"filling the fleet", "time passes", "copies move"}
    assert all(0 <= share <= 1 for _, share in heard)
    assert heard[-1][1] == 1


BAD = [
    {"workers": 0},
    {"workers": 10**12},
    {"repos": 0},
    {"repos": 10**9},
    {"replicas": 13},
    {"replicas": 0},
    {"repos": 1_000_000, "replicas": 6},
    {"count": 0},
    {"count": 13},
    {"change": Change.DRAIN, "count": 12},
    {"change": Change.JOIN, "back_after_s": 60.0},
    {"back_after_s": 0.0},
    {"back_after_s": 1e6},
    {"bandwidth_mb_s": 0.0},
    {"bandwidth_mb_s": float("nan")},
    {"mean_mb": float("inf")},
    {"slots": 0},
    {"trusted": 1.5},
    {"trusted": float("nan")},
    {"private": -0.1},
    {"trusted": 0.0},
    {"trusted": 0.1, "replicas": 2},
    {"grace_s": 0.0},
    {"longest_s": 0.0},
]


@pytest.mark.parametrize("wrong", BAD, ids=str)
def test_a_question_that_makes_no_sense_is_refused_with_a_hint(wrong):
    with pytest.raises(UsageError) as refused:
        replace(THIRD, **wrong)
    assert refused.value.hint


@given(st.floats(0, 1), st.integers(0, 200), st.integers(1, 200))
def test_trusted_workers_are_spread_evenly(share, first, length):
    trusted = sum(is_trusted(index, share) for index in range(first, first + length))
    assert abs(trusted - share * length) <= 1.001
