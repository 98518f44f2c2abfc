"""From push to clonable, end to end: real upstreams, a real process, histories replayed in quick time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from bench.figures.freshness import TRACES
from bench.measure import Bench, Context, Line, Sense
from bench.worlds import paces
from bench.worlds.population import STAND_IN
from bench.worlds.replay import Delays, Replay, World, make_replay
from bench.worlds.server import GitServer
from evermirror.core.schedule.intensity import DAY_S
from evermirror.model.duration import format_duration
from evermirror.sim.polling import Trace, Traces, load_traces, simulate
from evermirror.sim.population import made

UPSTREAMS = 500
SPEED = 60.0  # a minute in a second; what waits for the machine's own work waits as much longer
GAP_S = 300.0  # of the histories: a poll for each upstream in five minutes, on average
LENGTH_S = 2400.0
WARM_S = 300.0  # of it, until the first polls are done
START = datetime(2026, 6, 10, 13, tzinfo=UTC).timestamp()  # a Wednesday on which Europe and America are awake


@dataclass(frozen=True, slots=True)
class Plan:
    """What is replayed: a real day's histories, or for a try a minute of made ones."""

    replay: Replay
    gap_s: float
    warm_s: float

    @classmethod
    def full(cls) -> Plan:
        traces = load_traces(TRACES) if TRACES.is_file() else made(UPSTREAMS)
        return cls(make_replay(traces, UPSTREAMS, START, LENGTH_S, SPEED), GAP_S, WARM_S)

    @classmethod
    def quick(cls) -> Plan:
        repos = tuple(Trace(f"made-{i}", [START + 10.0 + i, START + 30.0 + 2 * i]) for i in range(8))
        return cls(make_replay(Traces(repos, START + 60), 12, START, 60.0, 10.0), 12.0, 0.0)

    def settings(self, policy: str) -> dict[str, str]:
        return {
            "SCHEDULE__POLICY": policy,
            "SCHEDULE__MIN_GAP": "10s",
            "SCHEDULE__POLLS_PER_SECOND": str(len(self.replay.traces.repos) / self.gap_s),
            "LIMITS__HOST_RATE": "1000",  # all are on one host here
            "LIMITS__CONNECT_TIMEOUT": "10m",  # of the quick time, as the rest
            "LIMITS__ANSWER_TIMEOUT": "30m",
            "FLEET__HEARTBEAT": "1m",
            "LOG__LEVEL": "error",
        }


def _run(context: Context) -> list[Line]:
    """One side after the other: at once they would wait for each other, which counts sixtyfold."""
    if not paces.is_there():
        raise RuntimeError("libfaketime is not installed: apt-get install libfaketime")
    plan = Plan.quick() if context.quick else Plan.full()
    interval = f"interval={plan.gap_s:g}s"
    ours: list[Delays] = []
    uniform: list[Delays] = []
    with GitServer(context.folder / "up", stand_in=STAND_IN) as server:
        world = World(context.folder, server, plan.replay)
        for _ in range(context.rounds or 1):
            ours.append(world.run(plan.settings("adaptive"), warm_s=plan.warm_s))
            uniform.append(world.run(plan.settings("fixed"), line=interval, warm_s=plan.warm_s))
    return [*_lines(plan, ours, uniform), _foretold(plan, ours)]


def _foretold(plan: Plan, ours: list[Delays]) -> Line:
    """What the simulation of the same hour says, which knows neither transfers nor the machine's own work."""
    judged_days, warm_days = (plan.replay.length_s - plan.warm_s) / DAY_S, plan.warm_s / DAY_S
    told = simulate(plan.replay.traces, "adaptive", plan.gap_s, days=judged_days, warm_in_days=warm_days)
    return Line(
        "the same mean as simulated",
        "min",
        tuple(d.mean_s / 60 for d in ours),
        (told.mean_s / 60,),
        Sense.TIMES_AS_MUCH,
        against="evermirror simulate polling",
        promise="replay",
    )


def _lines(plan: Plan, ours: list[Delays], uniform: list[Delays]) -> list[Line]:
    alternative = f"each every {format_duration(plan.gap_s)}"
    what = f"push to clonable, {len(plan.replay.traces.repos):,} upstreams"

    def pair(what: str, unit: str, a: list[float], b: list[float], sense: Sense) -> Line:
        return Line(what, unit, tuple(a), tuple(b), sense, against=alternative, promise="replay")

    return [
        pair(
            f"{what}: mean of {len(ours[0].counted):,} pushes",
            "min",
            [d.mean_s / 60 for d in ours],
            [d.mean_s / 60 for d in uniform],
            Sense.TIMES_AS_MUCH,
        ),
        pair(
            "share that can be cloned within 5 min",
            "%",
            [100 * d.share_within(300) for d in ours],
            [100 * d.share_within(300) for d in uniform],
            Sense.AT_LEAST,
        ),
        pair(
            "requests that upstream answered for it",
            "",
            [float(d.polls) for d in ours],
            [float(d.polls) for d in uniform],
            Sense.TIMES_AS_MUCH,
        ),
    ]


BENCH = Bench(
    name="replay",
    measures=f"histories replayed to {UPSTREAMS} real upstreams, {SPEED:g} times as fast, until clonable",
    alternative="the same process, each repo at a fixed interval",
    run=_run,
    order=75,
    takes_s=105,
)
