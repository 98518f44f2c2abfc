"""Mean delay from push to poll: the default policy against ``cbrt-age``, and against rules of others.

Chance plays a part: who is polled just before a push. So each figure is taken several times, with warm-ins
that differ by parts of a day; all sides get the same ones. Every rule has the same budget of polls
(sim/peer_run.py).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.measure import Bench, Context, Curve, Found, Line, Sense, Series
from evermirror.core.schedule.intensity import HOUR_S
from evermirror.model.duration import format_duration
from evermirror.sim.compare import ALL, ORACLE, result_of
from evermirror.sim.polling import Traces, load_traces
from evermirror.sim.polling_result import PollingResult
from evermirror.sim.population import made

# Real histories to judge by: an .npz as `evermirror simulate polling --traces` takes it.
TRACES = Path(os.environ.get("TRACES", Path(__file__).parents[3] / "shared/data/push_traces.npz"))
OURS, SEEDS, BEFORE = "adaptive", "cbrt-age", "three-counts"
OTHERS = tuple(name for name in ALL if name not in (OURS, SEEDS))
GOAL, QUIET_GOAL, SPEC_MIN = 0.93, 1.1, 13.9
STAND_IN = 200  # made repos where the real histories are not at hand


class Budget(NamedTuple):
    """How long and how often a mean gap is played: rarer polls are cheaper to simulate."""

    gap_s: float
    days: int
    warm_ins: tuple[float, ...]  # days


PHASES = (14.0, 14.23, 14.45, 14.61, 14.87)
BUDGETS = (Budget(600.0, 60, PHASES[:2]), Budget(HOUR_S, 180, PHASES), Budget(6 * HOUR_S, 180, PHASES))
QUICK = (Budget(HOUR_S, 5, PHASES[:2]), Budget(6 * HOUR_S, 5, PHASES[:2]))
MADE = Budget(6 * HOUR_S, 30, PHASES[:1])
# The specification's figures for 20,000 made repos of its own, at the same budget.
MADE_SAYS = (
    "Minutes that the specification names for made repos of its own: uniform 180, GitLab 186,"
    " Software Heritage 126, Sourcegraph 83, cbrt-age 30.4, adaptive 23.9; its clairvoyant (18.2) knows"
    " rates, ours knows how many pushes come."
)


class Run(NamedTuple):
    """One simulation; ``made`` repos, or 0: the histories at hand."""

    name: str
    gap_s: float
    days: int
    warm_in_days: float
    made: int = 0


def _play(run: Run) -> PollingResult:
    return result_of(_histories(run.made), run.name, run.gap_s, days=run.days, warm_in_days=run.warm_in_days)


@cache
def _histories(count: int) -> Traces:
    if count:
        return made(count)
    return load_traces(TRACES) if TRACES.is_file() else made(STAND_IN)


class Played:
    """All simulations, on both cores: nothing is timed here."""

    def __init__(self, runs: Iterable[Run]) -> None:
        longest_first = sorted(
            set(runs), key=lambda r: -r.days / r.gap_s - r.made * (r.name in (OURS, SEEDS))
        )
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            results = pool.map(_play, longest_first)
            self._results = dict(zip(longest_first, results, strict=True))

    def of(self, name: str, budget: Budget, made: int = 0) -> list[PollingResult]:
        return [self._results[run] for run in _runs(name, budget, made)]

    def means(self, name: str, budget: Budget, made: int = 0) -> tuple[float, ...]:
        return tuple(result.mean_s / 60 for result in self.of(name, budget, made))


def _runs(name: str, budget: Budget, made: int = 0) -> list[Run]:
    warm_ins = budget.warm_ins[:1] if name == ORACLE else budget.warm_ins
    return [Run(name, budget.gap_s, budget.days, warm_in, made) for warm_in in warm_ins]


def _run(context: Context) -> list[Found]:
    budgets = QUICK if context.quick else BUDGETS
    count = context.size(4000, 200)
    days = context.size(MADE.days, 5)
    population = MADE._replace(days=days)
    runs = [run for budget in budgets for name in ALL for run in _runs(name, budget)]
    runs += [run for name in ALL for run in _runs(name, population, count)]
    played = Played(runs)
    found: list[Found] = []
    for budget in budgets:
        found += _lines(played, budget)
    found += _crowd(played, population, count)
    found.append(_over_budgets(played, budgets))
    return found


def _lines(played: Played, budget: Budget) -> list[Line]:
    """The default policy against each other at one budget, on the histories at hand."""
    real = TRACES.is_file()
    where = "" if real else ", made histories"
    gap = format_duration(budget.gap_s)
    ours, seeds = played.means(OURS, budget), played.means(SEEDS, budget)
    hindsight, oracle = (played.means(name, budget)[0] / seeds[0] for name in ("clairvoyant", ORACLE))
    lines = [
        Line(
            f"mean delay at a poll per {gap}{where}",
            "min",
            ours,
            seeds,
            Sense.TIMES_AS_MUCH,
            GOAL if real else None,
            against=SEEDS,
            promise="freshness freshness-next",
            limit=f"the best constant rates in hindsight reach {hindsight:.2f}, an oracle {oracle:.2f}",
        )
    ]
    lines += _quiet(played, budget, where)
    if budget.gap_s == HOUR_S:
        lines.append(
            Line(
                f"mean delay at a poll per {gap}, by itself{where}",
                "min",
                ours,
                sense=Sense.AT_MOST,
                goal=SPEC_MIN if real else None,
                promise="freshness-spec",
            )
        )
        lines += [
            Line(
                f"mean delay at a poll per {gap}{where}",
                "min",
                ours,
                played.means(name, budget),
                Sense.TIMES_AS_MUCH,
                against=name,
                promise="freshness-rules",
            )
            for name in OTHERS
        ]
    return lines


def _quiet(played: Played, budget: Budget, where: str) -> list[Line]:
    """The quiet half, against the policy as it was: over its pushes, and over its repos."""
    gap = format_duration(budget.gap_s)

    def both(name: str) -> tuple[Sequence[float], Sequence[float]]:
        results = played.of(name, budget)
        return [r.quiet_mean_s / 60 for r in results], [r.quiet_repo_mean_s / 60 for r in results]

    words = ("mean delay of the quiet half", "mean over the quiet half's repos")
    return [
        Line(
            f"{what} at a poll per {gap}{where}",
            "min",
            tuple(ours),
            tuple(before),
            Sense.TIMES_AS_MUCH,
            None if where else QUIET_GOAL,
            against=f"{BEFORE} (as it was)",
            promise="freshness-quiet",
        )
        for what, ours, before in zip(words, both(OURS), both(BEFORE), strict=True)
    ]


def _crowd(played: Played, budget: Budget, count: int) -> list[Found]:
    """Mostly silent repos."""
    what = f"mean delay at a poll per {format_duration(budget.gap_s)}, {count:,} made repos"
    ours = played.means(OURS, budget, count)
    lines: list[Found] = [
        Line(
            what,
            "min",
            ours,
            played.means(name, budget, count),
            Sense.TIMES_AS_MUCH,
            against=name,
            promise="freshness-rules",
        )
        for name in (SEEDS, *OTHERS)
    ]
    return lines


def _over_budgets(played: Played, budgets: Sequence[Budget]) -> Curve:
    def point(name: str, budget: Budget) -> tuple[float, float]:
        means = played.means(name, budget)
        return budget.gap_s / 60, sum(means) / len(means)

    (oracle,) = played.of(ORACLE, budgets[-1])
    least = 0.0 if oracle.least_mean_s is None else oracle.least_mean_s / 60
    return Curve(
        title="Mean delay by rule and budget",
        x="mean gap between two polls of a repo (min)",
        y="mean delay (min)",
        series=tuple(Series(name, tuple(point(name, budget) for budget in budgets)) for name in ALL),
        log_x=True,
        log_y=True,
        says="The oracle knows every push; at the last budget no schedule at all comes below "
        f"{least:.2g} min. {MADE_SAYS}",
        promise="freshness-rules",
    )


BENCH = Bench(
    name="freshness",
    measures="mean delay from push to poll, adaptive, max_gap off; 180 days (at 10 min 60, made repos 30)",
    alternative="policy cbrt-age and rules of others with the same budget of polls",
    run=_run,
    order=40,
    takes_s=60,
)
