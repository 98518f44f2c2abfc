"""A slice of the aggregator's soak in every test run: whole runs in rough weather, then calm."""

from __future__ import annotations

import pytest

from tests.support.sim.aggregation.climates import CLIMATES, play

SEEDS = (1, 2)  # in each climate; `tools/soak --collect` plays hundreds


@pytest.mark.parametrize("climate", CLIMATES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_in_rough_weather(climate: str, seed: int) -> None:
    run = play(climate, seed)
    assert run.story == ""
    assert run.events > 5_000
    assert run.served > 20


def test_the_same_seed_gives_the_same_run() -> None:
    assert play("liars", 3) == play("liars", 3)
