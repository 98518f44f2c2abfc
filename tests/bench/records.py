"""Results for tests: small, but with all that a result can have."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from bench.measure import Curve, Found, Line, Sense, Series
from bench.telling.results import Ran, Record

AT = datetime(2026, 11, 16, 19, 0, tzinfo=UTC)
MACHINE: dict[str, object] = {
    "cpu": "A CPU",
    "cores": 2,
    "memory_bytes": 8_000_000_000,
    "load_before": 0.1,
    "system": "A system 13",
    "kernel": "6.12",
    "python": "3.11.2",
    "openssl": "OpenSSL 3",
    "git": "2.47",
    "evermirror": "0.1",
    "commit": "abc1234",
}
POLL = Line(
    "unchanged poll",
    "ms CPU",
    (0.11, 0.10, 0.12),
    (35.0, 36.0, 35.5),
    goal=100,
    against="git ls-remote",
    promise="poll poll-next",
)
DULWICH = Line(
    "unchanged poll",
    "ms CPU",
    (0.11, 0.10, 0.12),
    (1.7, 1.8, 1.75),
    against="dulwich",
    promise="poll-clients",
)
MEMORY = Line(
    "RSS",
    "MB",
    (290.0, 295.0),
    sense=Sense.AT_MOST,
    goal=250,
    promise="coordinator-memory coordinator-crowd-memory",
    limit="imports | alone take <120> MB",
)
CURVE = Curve(
    "A poll's cost as the catalog grows",
    "repos",
    "µs CPU",
    (
        Series("poll", ((100, 110.0), (1e4, 108.0), (1e6, 120.0))),
        Series("queue", ((100, 1.0), (1e4, 2.0), (1e6, 4.0))),
    ),
    log_x=True,
    log_y=True,
    says="Flat, but for the heap's logarithm.",
    promise="growth-poll growth-queue",
)


def ran(name: str, *found: Found, error: str = "") -> Ran:
    return Ran(name, f"what {name} measures", f"the alternative of {name}", found, 12.5, error)


RECORD = Record(
    AT,
    quick=False,
    whole=True,
    took_s=900.0,
    machine=MACHINE,
    benches=(
        ran("poll", POLL, DULWICH),
        ran("coordinator", MEMORY),
        ran("growth", CURVE),
        ran("hooks", error="RuntimeError: no port | was free"),
    ),
)


def record_of(*benches: Ran, **changed: object) -> Record:
    return replace(RECORD, benches=benches, **changed)  # type: ignore[arg-type]
