"""Policies side by side on the same histories: ours, those of others, and the oracle, by name."""

from __future__ import annotations

from evermirror.core.schedule.intensity import DAY_S
from evermirror.core.schedule.policies import POLICIES
from evermirror.errors import UsageError
from evermirror.sim.oracle import foresee
from evermirror.sim.peer_run import PeerRun
from evermirror.sim.peers import PEERS, World
from evermirror.sim.polling import Progress, Traces, check, judge, simulate, unheard
from evermirror.sim.polling_result import PollingResult, Tally

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
    if name == ORACLE:
        check(traces, mean_gap_s, days, warm_in_days)
        return foresee([trace.pushes for trace in traces.repos], mean_gap_s, traces.end, days)
    tally = tally_of(traces, name, mean_gap_s, days=days, warm_in_days=warm_in_days, tell=tell)
    return tally.result(name, mean_gap_s, days, len(traces.repos))


def tally_of(
    traces: Traces,
    rule: str,
    mean_gap_s: float,
    *,
    days: float,
    warm_in_days: float,
    tell: Progress = unheard,
) -> Tally:
    """Every delay under a rule of others."""
    check(traces, mean_gap_s, days, warm_in_days)
    pushes = [trace.pushes for trace in traces.repos]
    start = traces.end - (days + warm_in_days) * DAY_S
    run = PeerRun(pushes, PEERS[rule](World(pushes, start, traces.end)), mean_gap_s, start)
    judge(run, traces.end, mean_gap_s, days, warm_in_days, tell)
    return run.tally
