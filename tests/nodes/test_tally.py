"""A worker's own figures."""

from __future__ import annotations

import pytest

from evermirror.nodes.worker.tally import Tally

STATUS_S = 2.0  # between two statuses


def test_the_rate_of_polls_is_that_of_the_last_minute_and_does_not_flicker():
    tally, told = Tally(), []
    for n in range(120):  # four minutes, one look every 20 seconds
        tally.polls += n % 10 == 0
        told.append(tally.polls_per_second(1000.0 + n * STATUS_S))
    assert told[60:] == pytest.approx([1 / 20] * 60, rel=0.35)


def test_the_rate_of_polls_ends_with_them():
    tally = Tally()
    tally.polls_per_second(1000.0)
    tally.polls = 120
    assert tally.polls_per_second(1010.0) == pytest.approx(12.0)
    rates = [tally.polls_per_second(1010.0 + n * STATUS_S) for n in range(1, 40)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0.0
