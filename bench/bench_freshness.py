"""Mean delay from push to poll on push histories: the default policy against ``cbrt-age``."""

from __future__ import annotations

import os
import random
from pathlib import Path

from bench.measure import Bench, Context, Line, Sense
from evermirror.model.duration import format_duration
from evermirror.sim.polling import Trace, Traces, load_traces, simulate

# Real histories to judge by: an .npz as `evermirror simulate polling --traces` takes it.
TRACES = Path(os.environ.get("TRACES", Path(__file__).parent.parent.parent / "shared/data/push_traces.npz"))
MEAN_GAPS_S = (600.0, 3600.0, 21600.0)
DAYS = 180
GOAL = 0.93  # on real histories
DAY_S = 86_400.0


def made_traces(repos: int = 50, years: float = 2.0, seed: int = 1) -> Traces:
    """A made population for where no real one is at hand: mostly quiet repos, pushed to in bursts."""
    chance = random.Random(seed)
    end = years * 365 * DAY_S
    made = []
    for i in range(repos):
        between_s = DAY_S * chance.lognormvariate(1.5, 1.5)
        at, pushes = chance.expovariate(1 / between_s), []
        while at < end:
            burst = at
            for _ in range(1 + int(chance.expovariate(0.3))):
                pushes.append(burst)
                burst += chance.expovariate(1 / 2400.0)
            at = burst + chance.expovariate(1 / between_s)
        made.append(Trace(f"made-{i}", [p for p in pushes if p <= end]))
    return Traces(tuple(made), end)


def _run(context: Context) -> list[Line]:
    real = TRACES.is_file()
    traces = load_traces(TRACES) if real else made_traces()
    days = context.size(DAYS, 5)
    lines = []
    for gap in MEAN_GAPS_S[-1:] if context.quick else MEAN_GAPS_S:
        ours, theirs = (simulate(traces, policy, gap, days=days) for policy in ("adaptive", "cbrt-age"))
        lines.append(
            Line(
                what=f"mean delay at a poll per {format_duration(gap)}"
                + ("" if real else ", made histories"),
                unit="min",
                ours=(ours.mean_s / 60,),
                theirs=(theirs.mean_s / 60,),
                sense=Sense.TIMES_AS_MUCH,
                goal=GOAL if real else None,
            )
        )
    return lines


BENCH = Bench(
    name="freshness",
    measures=f"mean delay from push to poll over {DAYS} days, policy adaptive (max_gap off)",
    alternative="policy cbrt-age with the same budget of polls",
    run=_run,
    order=40,
)
