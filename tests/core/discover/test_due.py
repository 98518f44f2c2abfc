"""When a discovery runs again, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.discover.due import WAIT_MAX_S, is_due, is_listed, is_stale, next_run
from evermirror.model.discovery import RunOutcome, RunState
from evermirror.model.failure import Failure, FailureKind
from tests.core.discover.small import a_discovery

K = FailureKind


@pytest.mark.parametrize(
    ("every", "kind", "failures", "after", "waits"),
    [
        (3600.0, None, 0, None, 3600.0),
        (None, None, 0, None, None),
        (3600.0, K.NETWORK_TIMEOUT, 1, None, 60.0),
        (3600.0, K.NETWORK_TIMEOUT, 3, None, 240.0),
        (3600.0, K.UNKNOWN, 50, None, 3600.0),
        (600.0, K.UNKNOWN, 50, None, 600.0),
        (3600.0, K.RATE_LIMITED, 1, 900.0, 900.0),
        (3600.0, K.RATE_LIMITED, 1, None, 60.0),
        (3600.0, K.AUTH_FAILED, 1, None, 3600.0),
        (3600.0, K.PERMISSION_DENIED, 1, None, 3600.0),
        (3600.0, K.NOT_FOUND, 1, None, 3600.0),
        (None, K.AUTH_FAILED, 1, None, None),
        (None, K.NETWORK_TIMEOUT, 5, None, 960.0),
        (None, K.NETWORK_TIMEOUT, 6, None, None),
    ],
)
def test_next_run(
    every: float | None, kind: K | None, failures: int, after: float | None, waits: float | None
) -> None:
    failure = Failure(kind, "x", retry_after_s=after) if kind is not None else None
    outcome = RunOutcome(0.0, 1.0, failure is None, failure=failure)
    found = next_run(a_discovery(every_s=every), outcome, failures, 1000.0)
    assert found == (None if waits is None else 1000.0 + waits)


def test_a_run_that_began_long_ago_begins_anew() -> None:
    run = RunState(1, 1000.0, "cursor", 3, 300)
    assert not is_stale(run, 1000.0 + 86_400)
    assert is_stale(run, 1001.0 + 86_400)
    assert not is_stale(run, 0.0)


def test_listed_is_when_the_last_page_told_of_no_other() -> None:
    assert not is_listed(RunState(1, 0.0))
    assert not is_listed(RunState(1, 0.0, "next", 1))
    assert is_listed(RunState(1, 0.0, None, 1))


@pytest.mark.parametrize(
    ("next_at", "every", "due"),
    [
        (None, None, True),
        (1000.0, None, True),
        (1001.0, None, False),
        (1000.0 + WAIT_MAX_S, None, False),
        (1001.0 + WAIT_MAX_S, None, True),  # a clock was ahead when this was put down
        (1001.0 + WAIT_MAX_S, 2 * WAIT_MAX_S, False),
    ],
)
def test_is_due(next_at: float | None, every: float | None, due: bool) -> None:
    assert is_due(replace(a_discovery(every_s=every), next_at=next_at), 1000.0) is due
