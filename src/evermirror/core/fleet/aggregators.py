"""An aggregator's place in the registry of nodes: it comes, is away, is down, comes back, or is retired.

              left             away for ``away_s``            its token is revoked
    ALIVE ───────────▶ SUSPECT ────────────────────▶ DOWN ─────────────────────────▶ retired
      ▲                   │                            │
      └────────came───────┴────────────came────────────┘

Nothing moves when an aggregator is away, but nobody can clone from it: it is down as soon as a worker would
be suspect, not after the grace.
"""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.fleet.flaps import remember
from evermirror.model.worker import AggregatorRecord, Liveness


def came(before: AggregatorRecord | None, told: AggregatorRecord, now_s: float) -> AggregatorRecord:
    """``told`` is what it says of itself now."""
    if before is None:
        return replace(
            told, joined_at=now_s, last_alive_at=now_s, history=remember((), now_s, "joined"), retired=False
        )
    history = before.history
    if before.retired or before.liveness is not Liveness.ALIVE:
        history = remember(history, now_s, "up")
    return replace(
        told,
        liveness=Liveness.ALIVE,
        joined_at=before.joined_at,
        last_alive_at=now_s,
        history=history,
        retired=False,
    )


def left(record: AggregatorRecord, now_s: float) -> AggregatorRecord:
    """Its connection ended."""
    history = remember(record.history, now_s, Liveness.SUSPECT.value)
    return replace(record, liveness=Liveness.SUSPECT, last_alive_at=now_s, history=history)


def went_down(record: AggregatorRecord, now_s: float) -> AggregatorRecord:
    """It stayed away."""
    history = remember(record.history, now_s, Liveness.DOWN.value)
    return replace(record, liveness=Liveness.DOWN, history=history)


def retired(record: AggregatorRecord, now_s: float) -> AggregatorRecord:
    """Its token was revoked: it is not expected back."""
    return replace(record, retired=True, history=remember(record.history, now_s, "retired"))


def seen(record: AggregatorRecord, now_s: float) -> AggregatorRecord:
    """It is still there."""
    return replace(record, last_alive_at=now_s)
