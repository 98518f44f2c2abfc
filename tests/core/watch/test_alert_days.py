"""Days of alerts with failing channels, silences and crashes: none is lost, told twice or told too fast."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.watch.events import AlertSettings
from tests.core.watch.alert_days import CHANNELS, Days, check


@pytest.mark.parametrize("seed", range(3))
def test_days_with_failing_channels_and_crashes(seed: int) -> None:
    days = Days(seed, lively_s=90.0)
    days.run(1)
    days.settle()
    check(days)
    assert days.counts["crashes"] > 5


@pytest.mark.parametrize("seed", range(3))
def test_an_hour_in_which_everything_happens_at_once(seed: int) -> None:
    settings = AlertSettings(CHANNELS, waiting_max=30)
    days = Days(seed + 100, lively_s=0.5, settings=replace(settings, items_max=5))
    days.run(1 / 24)
    days.settle()
    check(days)


@pytest.mark.parametrize("seed", range(3))
def test_a_process_that_falls_all_the_time(seed: int) -> None:
    days = Days(seed + 200, lively_s=1.0, crash_share=0.5, stops_s=(0.05,))
    days.run(1 / 24)
    days.settle()
    check(days)
    assert days.counts["crashes"] > 20
