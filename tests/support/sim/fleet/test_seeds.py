"""A slice of the soak in every test run: whole runs of small fleets in rough weather."""

from __future__ import annotations

import pytest

from tests.support.sim.fleet.climates import CLIMATES, play

SEEDS = range(1, 10)  # in each of six climates: 54 runs; `make soak` plays thousands


@pytest.mark.parametrize("climate", CLIMATES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_in_rough_weather(climate: str, seed: int) -> None:
    run = play(climate, seed)
    assert run.story == ""
    assert run.events > 1000
