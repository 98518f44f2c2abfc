"""A liar of each kind is found out soon, and each check of the world notices what it is there for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.collect import suspect, verdict
from evermirror.core.collect.rows import Here, How
from tests.support.sim.aggregation.checks import Broken
from tests.support.sim.aggregation.climates import CLIMATES, SMALL, Climate, World, play
from tests.support.sim.aggregation.worker import Kind

CALM = Climate(
    SMALL,
    repos=6,
    honest=2,
    trusted=0,
    holders=3,
    back_share=0.0,
    loss_share=0.0,
    away_gap_s=0.0,
    drop_gap_s=0.0,
    cut_gap_s=0.0,
    crash_gap_s=0.0,
    leave_gap_s=0.0,
    rough_s=3_600.0,
    calm_s=1_800.0,
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [k for k in Kind if k is not Kind.HONEST])
def test_a_liar_of_each_kind_is_quarantined_within_the_hour(kind: Kind, seed: int) -> None:
    world = World(replace(CALM, liars=(kind,)), seed)
    liar = next(w for w in world.workers.values() if w.lies)
    liar.trusted = kind is Kind.SWITCHER  # whose refs count, or nobody would look at them
    world.run()
    assert liar.quarantined
    assert not any(w.quarantined for w in world.workers.values() if not w.lies)


def test_a_rule_that_is_too_quick_accuses_the_honest_and_that_is_noticed(monkeypatch) -> None:
    hasty = replace(SMALL, strikes=1, clock_slack_s=0.0)
    monkeypatch.setitem(CLIMATES, "hasty", Climate(hasty, trusted=0, honest=4, push_gap_s=4.0))
    stories = [play("hasty", seed).story for seed in range(4)]
    assert any("is honest" in story for story in stories)


def test_a_liar_that_nobody_accuses_is_noticed(monkeypatch) -> None:
    monkeypatch.setattr(verdict, "weigh", lambda *_: suspect.Weighed())
    assert "not found out" in play("liars", 1).story


def test_serving_what_a_holder_says_unasked_is_noticed(monkeypatch) -> None:
    def gullible(attempt, case, row):
        told = case.holder.digest if case.holder is not None else row.wanted
        here = Here(told, attempt.looked_at, How.HOLDER, case.holder.node)
        return verdict.Verdict(replace(row, here=here, taken=row.wanted))

    monkeypatch.setattr(verdict, "_done", gullible)
    assert "as upstream never had it" in play("liars", 1).story


def test_two_attempts_for_one_repo_are_noticed() -> None:
    world = World(CALM, 1)
    world.aggregator.start()
    world.time.run(world.time.now + 120.0)
    job = next(iter(world.aggregator.machine.queue), None)
    order = job.case.order if job is not None and job.case is not None else None
    while order is None:
        world.time.run(world.time.now + 0.5)
        order = next((j.case.order for j in world.aggregator.machine.queue if j.case is not None), None)
    with pytest.raises(Broken, match="two attempts"):
        world.aggregator.checks._started(order)
