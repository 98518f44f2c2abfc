"""A slice of pull mirroring's soak in every test run: whole days, and every promise held at every step."""

from __future__ import annotations

import pytest

from tests.support.sim.pull.climates import CLIMATES, play

SHORT = [name for name, climate in CLIMATES.items() if climate.days <= 1.0]
CASES = [(name, 1) for name in CLIMATES] + [(name, 2) for name in SHORT]  # `tools/soak --pull` plays hundreds


@pytest.mark.parametrize(("climate", "seed"), CASES)
def test_every_promise_holds_all_day(climate: str, seed: int) -> None:
    run = play(climate, seed)
    assert run.story == ""
    assert run.tasks > 2_000
    assert run.most_at_once >= 3


def test_the_source_hardly_notices_us_as_seed_003_aims_at() -> None:
    """200 projects in its distribution with its strategy: below 15 % of the CPU, and delays as it expects."""
    run = play("aim", 7)
    assert run.story == ""
    assert run.cpu_share < 0.15
    critical_s, high_s, normal_s, _ = run.latest_s
    assert (critical_s < 120.0, high_s < 300.0, normal_s < 1320.0) == (True, True, True)


def test_the_same_seed_gives_the_same_day() -> None:
    assert play("crashes", 3) == play("crashes", 3)
