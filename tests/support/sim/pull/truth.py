"""What is so in the simulated world, said as plainly as can be: what checks hold the machine against."""

from __future__ import annotations

from evermirror.model.pull import LoadLevel, Project, Strategy
from evermirror.model.repo import Priority
from evermirror.model.task import Trigger
from evermirror.sim.pull.world import PullWorld

LIMITED = frozenset({Trigger.SCHEDULE, Trigger.MANUAL_BATCH})  # others start at once, whatever runs
ADAPTIVE_MAX = 10


class Broken(AssertionError):
    """A promise was broken; the message says which."""


class Truth:
    """``load`` is what the machine was last told, or finds itself; ``away``: the coordinator is down."""

    def __init__(self, world: PullWorld) -> None:
        self._world = world
        self.settings = world.climate.settings
        self.source = world.source
        self.store = world.store
        self.load: LoadLevel | None = None
        self.away = False
        self.booted_at = 0.0

    @property
    def strategy(self) -> Strategy:
        return self._world.strategy

    def hour(self, now: float) -> int:
        return self._world.hour(now)

    def in_peak(self, now: float) -> bool:
        strategy = self.strategy
        return strategy.peak_avoidance and self.hour(now) in hours(strategy.peak_start, strategy.peak_end)

    def at_night(self, now: float) -> bool:
        start, end = self.strategy.night_start, self.strategy.night_end
        return start is not None and end is not None and self.hour(now) in hours(start, end)

    def figure(self, now: float) -> int:
        """So many may run now, at most."""
        strategy = self.strategy
        if not strategy.peak_avoidance:
            figure = strategy.max_concurrent
        elif self.in_peak(now):
            figure = strategy.peak_max_concurrent
        elif self.at_night(now) and strategy.night_max_concurrent is not None:
            figure = strategy.night_max_concurrent
        else:
            figure = strategy.off_peak_max_concurrent
        return min(figure, ADAPTIVE_MAX) if strategy.adaptive else figure

    def overloaded(self) -> bool:
        return self.strategy.adaptive and self.load is LoadLevel.HIGH

    def rank(self, project: Project) -> int:
        """Its class, one lower where it fails again and again."""
        demoted = project.failures >= self.settings.demote_after
        return min(project.config.priority.rank + demoted, Priority.LOW.rank)

    def may_run(self, rank: int, now: float) -> bool:
        """Whether the schedule may start projects of this class."""
        if not self.strategy.enabled:
            return False
        if self.in_peak(now) and rank > Priority.HIGH.rank:
            return False
        return not (self.overloaded() and rank == Priority.LOW.rank)


def hours(start: int, end: int) -> set[int]:
    """Of the day, from start to end, perhaps over midnight."""
    return {hour % 24 for hour in range(start, end if start <= end else end + 24)}
