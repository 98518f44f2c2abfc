"""The whole in figures: how fresh repos are, what fails, what workers did, and how that was over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evermirror.model.repo import Priority, RepoKey


@dataclass(frozen=True, slots=True)
class ClassFreshness:
    """Live repos of one priority; *fresh* are those verified within their bound."""

    live: int = 0
    fresh: int = 0
    worst_lag_s: float | None = None  # of those ever verified


@dataclass(frozen=True, slots=True)
class FailureCount:
    """Repos whose last attempt failed for one reason, and some of them."""

    kind: str
    repos: int
    sample: tuple[RepoKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What workers did: looks at upstreams, changes found there, bytes received."""

    polls: int = 0
    changes: int = 0
    received_bytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.polls + other.polls,
            self.changes + other.changes,
            self.received_bytes + other.received_bytes,
        )

    def __sub__(self, other: Work) -> Work:
        return Work(
            self.polls - other.polls,
            self.changes - other.changes,
            self.received_bytes - other.received_bytes,
        )


@dataclass(frozen=True, slots=True)
class CoursePoint:
    """How the whole was at a time. ``work``: since the point before; None: nobody was there to count it."""

    at: float
    classes: Mapping[Priority, ClassFreshness]
    failing: int
    work: Work | None
    fresh_share: float | None
    worst_lag_s: float | None

    @classmethod
    def of(
        cls, at: float, classes: Mapping[Priority, ClassFreshness], failing: int, work: Work | None
    ) -> CoursePoint:
        """With what follows from the classes."""
        live = sum(one.live for one in classes.values())
        fresh = sum(one.fresh for one in classes.values())
        return cls(at, classes, failing, work, fresh / live if live else None, worst_lag_of(classes.values()))


def worst_lag_of(classes: Iterable[ClassFreshness]) -> float | None:
    return max((one.worst_lag_s for one in classes if one.worst_lag_s is not None), default=None)
