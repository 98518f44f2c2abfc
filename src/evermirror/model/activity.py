"""What is remembered of a repo's pushes: three exponentially fading counts (see core/schedule/intensity.py).

The same four floats are kept by the worker, ride on its reports, and start the next holder of a repo.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Activity:
    """Fading push counts as of ``as_of`` (UTC seconds); ``last_push_at`` is 0 where none is known."""

    counts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    as_of: float = 0.0
    last_push_at: float = 0.0


NO_ACTIVITY = Activity()
