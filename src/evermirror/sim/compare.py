"""Policies side by side on the same histories: ours, those of others, and the oracle, by name."""

from __future__ import annotations

from evermirror.core.schedule.intensity import DAY_S
from evermirror.core.schedule.policies import POLICIES
from evermirror.errors import UsageError
from evermirror.sim.oracle import foresee
from evermirror.sim.peer_run import PeerRun
from evermirror.sim.peers import PEERS, World
from evermirror.sim.polling import Progress, Traces, check, judge, simulate, unheard
from evermirror.sim.polling_result import PollingResult

ORACLE = "oracle"
NAMES = (*POLICIES, *PEERS, ORACLE)
# `fixed` has intervals and no budget: `classes` is what it comes to within one.
ALL = tuple(name for name in NAMES if name != "fixed")


def named(asked: str) -> tuple[str, ...]:
    """The names in ``adaptive,gitlab`` or ``all``; all with others is still all."""
    names = tuple(name.strip() for name in asked.split(","))
    for name in names:
        if name not in (*NAMES, "all"):
            raise UsageError(f"no scheduling policy {name!r}", hint=f"One of: {', '.join(NAMES)}; or all")
    if "all" in names:
        return (*ALL, *(name for name in names if name not in (*ALL, "all")))
    return names


def result_of(
    traces: Traces,
    name: str,
    mean_gap_s: float,
    *,
    days: float = 180.0,
    warm_in_days: float = 14.0,
    tell: Progress = unheard,
) -> PollingResult:
    """As ``simulate``, whoever's rule it is."""
    if name in POLICIES:
        return simulate(traces, name, mean_gap_s, days=days, warm_in_days=warm_in_days, tell=tell)
    check(traces, mean_gap_s, days, warm_in_days)
    pushes = [trace.pushes for trace in traces.repos]
    if name == ORACLE:
        return foresee(pushes, mean_gap_s, traces.end, days)
    start = traces.end - (days + warm_in_days) * DAY_S
    rule = PEERS[name](World(pushes, start, traces.end))
    run = PeerRun(pushes, rule, mean_gap_s, start)
    judge(run, traces.end, mean_gap_s, days, warm_in_days, tell)
    return run.tally.result(name, mean_gap_s, days, len(pushes))
