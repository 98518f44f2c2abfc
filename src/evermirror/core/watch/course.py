"""One percentage over a whole sync, from what git says of each of its phases.

     counting  compressing      receiving          resolving  checking │  pushing, all targets alike
    0 ───── 2 ──────── 5 ────────────────────── 70 ───── 90 ───── 100 │ 0 ────────────────────── 100
    └──────────────── all of it, or the first half where something is pushed ──┘└── the other half ──┘

Rules
- It never goes back: git may begin a phase again (another address, a second fetch, another worker).
- It is only known where git tells a total; until then it is None. What was told stays until more is known.
- It is 100 for nobody: a sync is done when it is verified, not when git is.
"""

from __future__ import annotations

from collections.abc import Hashable

from evermirror.model.task import SyncPhase

MOST = 99.0  # of what is still under way

# How far each phase of a fetch reaches, in hundredths of the fetch: most of the time goes by with receiving.
_SPANS: dict[str, tuple[float, float]] = {
    SyncPhase.COUNTING: (0.0, 2.0),
    SyncPhase.COMPRESSING: (2.0, 5.0),
    SyncPhase.RECEIVING: (5.0, 70.0),
    SyncPhase.RESOLVING: (70.0, 90.0),
    SyncPhase.CHECKING: (90.0, 100.0),
}


class Course:
    """How far one sync is. ``fetches``: it does more than push; ``targets``: so many are pushed to."""

    __slots__ = ("_best", "_fetch_share", "_pushed", "_targets")

    def __init__(self, *, fetches: bool = True, targets: int = 0) -> None:
        self._targets = targets
        self._fetch_share = (0.5 if targets else 1.0) if fetches else 0.0
        self._pushed: dict[Hashable, float] = {}
        self._best: float | None = None

    @property
    def percent(self) -> float | None:
        """0 to 99; None while nothing is known."""
        return self._best

    def fetched(self, phase: str, percent: float | None) -> None:
        """Git is so far in this phase of a fetch; phases that nobody knows say nothing."""
        span = _SPANS.get(phase)
        if span is not None and percent is not None:
            begin, end = span
            self._reach(self._fetch_share * (begin + (end - begin) * _share(percent)))

    def pushed(self, target: Hashable, percent: float | None) -> None:
        """So much of what this target lacks was sent."""
        if percent is None:
            return
        self._pushed[target] = max(self._pushed.get(target, 0.0), _share(percent))
        share = sum(self._pushed.values()) / max(self._targets, len(self._pushed))
        self._reach(100.0 * (self._fetch_share + (1.0 - self._fetch_share) * share))

    def _reach(self, percent: float) -> None:
        self._best = later(self._best, min(MOST, percent))


def whole_of(phase: str, percent: float) -> float | None:
    """Of a whole fetch, from one who only tells how far git is in this phase."""
    course = Course()
    course.fetched(phase, percent)
    return course.percent


def later(before: float | None, now: float | None) -> float | None:
    """The further of two percentages, of which either may be unknown."""
    if before is None or now is None:
        return now if before is None else before
    return max(before, now)


def _share(percent: float) -> float:
    return min(100.0, max(0.0, percent)) / 100.0
