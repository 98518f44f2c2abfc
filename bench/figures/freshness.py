"""Mean delay from push to poll: the default policy against ``cbrt-age``, and against rules of others.

Chance plays a part: who is polled just before a push. So each figure is a mean over several runs, whose
warm-ins differ by parts of a day in golden steps, which are even wherever one stops. Every rule has the same
budget of polls (sim/peers.py). A line's two samples are the means over every other run, so that what is
compared, their median, is the mean over all; how far they lie apart tells its error.

The quiet half has few pushes, and some repos have one: whether that comes early or late between two looks is
chance that more runs do not wholly remove, as the hours of looks depend little on when a run began (ADR 21).
So the quiet repos are told once more by half the gap that each push fell into: what it waits on average over
all moments of that gap.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from bench.measure import Bench, Context, Curve, Found, Line, Sense, Series
from bench.worlds.quick_polls import quick_tally
from evermirror.core.schedule.intensity import HOUR_S
from evermirror.core.schedule.placement import first_part
from evermirror.core.schedule.policies import POLICIES
from evermirror.model.duration import format_duration
from evermirror.sim.compare import ALL, ORACLE, result_of, tally_of
from evermirror.sim.polling import Traces, load_traces
from evermirror.sim.polling_result import PollingResult, quiet_half
from evermirror.sim.population import made

# Real histories to judge by: an .npz as `evermirror simulate polling --traces` takes it.
TRACES = Path(os.environ.get("TRACES", Path(__file__).parents[3] / "shared/data/push_traces.npz"))
OURS, SEEDS, BEFORE = "adaptive", "cbrt-age", "three-counts"
OTHERS = tuple(name for name in ALL if name not in (OURS, SEEDS))
GOAL, QUIET_GOAL, SPEC_MIN = 0.93, 1.1, 13.9
STAND_IN = 200  # made repos where the real histories are not at hand


class Budget(NamedTuple):
    """How long and how often a mean gap is played: rarer polls are cheaper to simulate, and less even."""

    gap_s: float
    days: int
    runs: int


WARM_INS = tuple(15 - first_part(n) for n in range(16))  # days: 14, and then parts of a day more
# Their means over all pushes are good to 1 % of chance in one run; it is the quiet half that takes many.
SEEDS_RUNS, OTHERS_RUNS = 4, 2
BUDGETS = (Budget(600.0, 180, 6), Budget(HOUR_S, 180, 8), Budget(6 * HOUR_S, 180, 16))
QUICK = (Budget(HOUR_S, 5, 2), Budget(6 * HOUR_S, 5, 2))
MADE = Budget(6 * HOUR_S, 30, 1)
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
    by_product: bool = False  # one of our policies by the product's own scheduler, not by its quick twin


class Outcome(NamedTuple):
    """What a simulation came to."""

    result: PollingResult
    quiet_gaps_s: float = 0.0  # over the quiet half's repos, of half the gaps their pushes fell into


def _play(run: Run) -> Outcome:
    traces = _histories(run.made)
    if run.name == ORACLE or run.by_product:
        return Outcome(result_of(traces, run.name, run.gap_s, days=run.days, warm_in_days=run.warm_in_days))
    play = quick_tally if run.name in POLICIES else tally_of
    tally = play(traces, run.name, run.gap_s, days=run.days, warm_in_days=run.warm_in_days)
    even = quiet_half([gap / 2 for gap in tally.gaps], tally.whose)
    return Outcome(tally.result(run.name, run.gap_s, run.days, len(traces.repos)), even.repo_mean_s)


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
            self._outcomes = dict(zip(longest_first, results, strict=True))

    def outcome(self, run: Run) -> Outcome:
        return self._outcomes[run]

    def of(self, name: str, budget: Budget, made: int = 0) -> list[Outcome]:
        return [self._outcomes[run] for run in _runs(name, budget, made)]

    def means(self, name: str, budget: Budget, made: int = 0) -> tuple[float, ...]:
        return _samples([outcome.result.mean_s for outcome in self.of(name, budget, made)])


def _samples(seconds: Sequence[float]) -> tuple[float, ...]:
    """Minutes: the means over every other run, or the only one."""
    halves = (seconds[::2], seconds[1::2])
    return tuple(sum(half) / len(half) / 60 for half in halves if half)


def _runs(name: str, budget: Budget, made: int = 0) -> list[Run]:
    """Even in number, or one: so both samples are over equally many."""
    most = {OURS: budget.runs, BEFORE: budget.runs, SEEDS: SEEDS_RUNS, ORACLE: 1}.get(name, OTHERS_RUNS)
    warm_ins = WARM_INS[: min(most, budget.runs)]
    return [Run(name, budget.gap_s, budget.days, warm_in, made) for warm_in in warm_ins]


def _run(context: Context) -> list[Found]:
    budgets = QUICK if context.quick else BUDGETS
    count = context.size(4000, 200)
    days = context.size(MADE.days, 5)
    population = MADE._replace(days=days)
    runs = [run for budget in budgets for name in ALL for run in _runs(name, budget)]
    runs += [run for name in ALL for run in _runs(name, population, count)]
    check = _runs(OURS, budgets[-1])[0]
    slowly = check._replace(by_product=True)
    played = Played([*runs, slowly])
    if played.outcome(check).result != played.outcome(slowly).result:
        raise RuntimeError("the quick simulation polls otherwise than the product's scheduler")
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
    hindsight, oracle = (mean(played.means(name, budget)) / mean(seeds) for name in ("clairvoyant", ORACLE))
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
    """The quiet half, against the policy as it was: over its pushes, and over its repos;
    the latter also with less of chance."""
    gap = format_duration(budget.gap_s)

    def three(name: str) -> list[tuple[float, ...]]:
        outcomes = played.of(name, budget)
        return [
            _samples([o.result.quiet_mean_s for o in outcomes]),
            _samples([o.result.quiet_repo_mean_s for o in outcomes]),
            _samples([o.quiet_gaps_s for o in outcomes]),
        ]

    words = (
        "mean delay of the quiet half",
        "mean over the quiet half's repos",
        "the same by half the gaps pushes fell into",
    )
    return [
        Line(
            f"{what} at a poll per {gap}{where}",
            "min",
            ours,
            before,
            Sense.TIMES_AS_MUCH,
            None if where else QUIET_GOAL,
            against=f"{BEFORE} (as it was)",
            promise="freshness-quiet",
        )
        for what, ours, before in zip(words, three(OURS), three(BEFORE), strict=True)
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
    least = (oracle.result.least_mean_s or 0.0) / 60
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
    measures="mean delay from push to poll, adaptive, max_gap off; 180 days (made repos 30)",
    alternative="policy cbrt-age and rules of others with the same budget of polls",
    run=_run,
    order=40,
    takes_s=46,
)
