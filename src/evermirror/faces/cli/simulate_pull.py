"""`evermirror simulate pull`: what a strategy for pull mirroring would mean, before it is set."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.options import AsJson
from evermirror.faces.cli.output import print_json, print_table, say, span

if TYPE_CHECKING:
    from evermirror.model.pull import Strategy
    from evermirror.sim.pull.study import Found, Study

HOURS_FORM = "hours of the day such as 9-18 or 22-6, or none"

# The projects, by class
Critical = Annotated[int, typer.Option(metavar="N", help="Projects, pulled every 10 minutes.")]
High = Annotated[int, typer.Option(metavar="N", help="Projects, every 30 minutes.")]
Normal = Annotated[int, typer.Option(metavar="N", help="Projects, every 2 hours.")]
Low = Annotated[int, typer.Option(metavar="N", help="Projects, every 6 hours.")]

# The strategy
_PEAK = "Hours with fewer pulls, of critical and high only; none: no such hours."
PeakHours = Annotated[str, typer.Option(metavar="START-END", help=_PEAK)]
PeakConcurrent = Annotated[int, typer.Option(metavar="N", help="Pulls at once in peak hours.")]
OffPeakConcurrent = Annotated[int, typer.Option(metavar="N", help="Pulls at once outside of them.")]
MaxConcurrent = Annotated[int, typer.Option(metavar="N", help="Pulls at once where there are none.")]
Adaptive = Annotated[bool, typer.Option(help="Fewer while the source is overloaded.")]

# The days
TimeZone = Annotated[str, typer.Option(metavar="NAME", help="Of the peak hours.")]
Days = Annotated[float, typer.Option(metavar="D", help="Length that is played.")]
_OUTAGE = "The source is away for so long, from noon of the first day."
Outage = Annotated[str | None, typer.Option(metavar="DURATION", show_default=False, help=_OUTAGE)]
Seed = Annotated[int, typer.Option(metavar="S", help="The same seed is the same run.")]


def pull(
    critical: Critical = 10,
    high: High = 30,
    normal: Normal = 100,
    low: Low = 60,
    peak_hours: PeakHours = "9-18",
    peak_concurrent: PeakConcurrent = 3,
    off_peak_concurrent: OffPeakConcurrent = 8,
    max_concurrent: MaxConcurrent = 5,
    adaptive: Adaptive = True,
    time_zone: TimeZone = "Asia/Shanghai",
    days: Days = 1.0,
    outage: Outage = None,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """How late projects are pulled, and how busy the source is for it, under a strategy.

    The code that decides is the one that runs; source, targets and pushes are simulated."""
    from evermirror.model.duration import parse_duration
    from evermirror.model.repo import Priority
    from evermirror.sim.pull.study import Study, run

    counts = dict(zip(Priority, (critical, high, normal, low), strict=True))
    study = Study(
        strategy=_strategy(peak_hours, peak_concurrent, off_peak_concurrent, max_concurrent, adaptive),
        projects=counts,
        zone=time_zone,
        days=days,
        outage_s=0.0 if outage is None else parse_duration(outage),
        seed=seed,
    )
    began = time.monotonic()
    found = run(study)
    took_s = time.monotonic() - began
    if as_json:
        print_json(_as_json(study, found, took_s))
    else:
        _tell(study, found, took_s)


def _strategy(
    peak_hours: str, peak_concurrent: int, off_peak_concurrent: int, max_concurrent: int, adaptive: bool
) -> Strategy:
    from evermirror.model.pull import Strategy

    window = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", peak_hours)
    start, end = (int(window[1]), int(window[2])) if window else (0, 0)
    if peak_hours != "none" and (not window or start > 23 or end > 24):
        raise UsageError(f"--peak-hours {peak_hours!r} is no part of the day", hint=f"Write {HOURS_FORM}")
    return Strategy(
        max_concurrent=max_concurrent,
        peak_avoidance=peak_hours != "none",
        peak_start=start,
        peak_end=end % 24,
        peak_max_concurrent=peak_concurrent,
        off_peak_max_concurrent=off_peak_concurrent,
        adaptive=adaptive,
    )


def _tell(study: Study, found: Found, took_s: float) -> None:
    columns = [
        "class",
        "projects",
        "pulls",
        "skipped",
        "failed",
        "mean wait",
        "longest",
        "pushes",
        "mean delay",
    ]
    print_table(
        [*columns, "p95"],
        [
            [
                priority.value,
                c.projects,
                c.pulls,
                c.skipped,
                c.failed,
                span(c.mean_wait_s),
                span(c.longest_wait_s),
                c.pushes,
                span(c.mean_delay_s),
                span(c.p95_delay_s),
            ]
            for priority, c in found.classes.items()
        ],
        right=[*columns[1:], "p95"],
    )
    say("wait: from when a project is due until it is started; delay: from a push until it is at the targets")
    say(
        f"at most {found.most_at_once} pulls at once, {found.most_a_minute} in a minute, and "
        f"{found.cpu_share:.1%} of the source's 16 processors over a minute; "
        f"the limit changed {found.limit_changes} times"
    )
    say(f"{span(found.studied_s)} were simulated in {span(took_s)}")


def _as_json(study: Study, found: Found, took_s: float) -> dict[str, object]:
    asked = {**asdict(study), "projects": {p.value: count for p, count in study.projects.items()}}
    told = {**asdict(found), "classes": {p.value: asdict(c) for p, c in found.classes.items()}}
    return {"study": asked, "findings": told, "took_s": round(took_s, 3)}
