"""What people are told of discoveries and of credentials that end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from evermirror.core.discover.expiry import DAY_S, expiry_alert
from evermirror.core.discover.tell import FAILED, HELD, alerts_of, over
from evermirror.model.alert import Level
from evermirror.model.discovery import RunOutcome
from evermirror.model.failure import Failure, FailureKind
from tests.core.discover.small import a_discovery

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("days", "level"),
    [
        (31.0, None),
        (30.0, Level.WARNING),
        (7.1, Level.WARNING),
        (7.0, Level.ERROR),
        (0.1, Level.ERROR),
        (0.0, Level.CRITICAL),
        (-100.0, Level.CRITICAL),
    ],
)
def test_a_credential_that_ends(days: float, level: Level | None) -> None:
    alert = expiry_alert("gitlab", NOW + days * DAY_S, NOW)
    assert (alert.level if alert is not None else None) is level
    if alert is not None:
        assert "gitlab" in alert.text
        assert ("days" in alert.facts) == (days > 0)


@pytest.mark.parametrize("days", [5, -5])
def test_the_date_is_the_one_that_people_find_at_the_forge_or_in_the_settings(days: int) -> None:
    midnight = NOW - NOW % DAY_S + days * DAY_S
    day = {day: f"{datetime.fromtimestamp(midnight, UTC) + timedelta(days=day):%Y-%m-%d}" for day in (-1, 0)}
    for by_settings, date in ((False, day[0]), (True, day[-1])):
        alert = expiry_alert("gitlab", midnight, NOW, by_settings=by_settings)
        assert alert is not None
        assert f"on {date}:" in alert.text
        assert alert.facts["expires"] == date


def ran(failures: int = 0, **outcome: object):  # type: ignore[no-untyped-def]
    return replace(
        a_discovery(),
        failures=failures,
        last=RunOutcome(0.0, 1.0, **{"complete": True, **outcome}),  # type: ignore[arg-type]
    )


def told(discovery):  # type: ignore[no-untyped-def]
    return {alert.kind: not alert.over for alert in alerts_of(discovery)}


def test_weather_is_told_after_some_runs_and_refusals_at_once() -> None:
    away = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")
    assert told(ran(1, complete=False, failure=away)) == {}
    assert told(ran(3, complete=False, failure=away)) == {FAILED: True}
    refused = Failure(FailureKind.AUTH_FAILED, "401 Unauthorized")
    assert told(ran(1, complete=False, failure=refused)) == {FAILED: True}
    assert told(ran()) == {FAILED: False, HELD: False}
    assert told(a_discovery()) == {FAILED: False}


def test_held_removals_stand_until_a_run_that_holds_none() -> None:
    (alert,) = [a for a in alerts_of(ran(held=30, unchanged=20)) if a.kind == HELD]
    assert alert.facts == {"gone": "30", "total": "50", "id": "1"}
    assert "run 1 --accept" in alert.text
    assert told(ran(held=0))[HELD] is False


def test_one_that_is_removed_leaves_nothing_standing() -> None:
    assert {a.kind for a in over(ran()) if a.over} == {FAILED, HELD}
