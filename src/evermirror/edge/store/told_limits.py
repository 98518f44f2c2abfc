"""The limits that a worker was told last, as they are written down."""

from __future__ import annotations

import json
import math

from evermirror.model.messages import ApplySettings
from evermirror.model.repo import Host


def text_of(limits: ApplySettings) -> str:
    return json.dumps(
        {
            "polls_per_second": limits.polls_per_second,
            "host_rate": limits.host_rate,
            "slots": limits.slots,
            "host_rates": limits.host_rates,
            "told_at": limits.told_at,
        }
    )


def limits_of(text: str) -> ApplySettings | None:
    """None for what another version wrote and this one cannot read: it is told anew."""
    try:
        known = json.loads(text)
        slots = known["slots"]
        return ApplySettings(
            polls_per_second=_rate(known["polls_per_second"]),
            host_rate=_rate(known["host_rate"]),
            slots=None if slots is None else int(slots),
            host_rates=tuple((Host(str(host)), _finite(rate)) for host, rate in known["host_rates"]),
            told_at=_finite(known["told_at"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _rate(value: float | None) -> float | None:
    return None if value is None else _finite(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no rate")
    return float(value)
