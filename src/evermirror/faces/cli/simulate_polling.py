"""`evermirror simulate polling`: how late pushes are seen under each policy, ours and those of others."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.options import AsJson
from evermirror.faces.cli.output import print_json, print_table, say, span
from evermirror.faces.cli.progress import Tell, progress

if TYPE_CHECKING:
    from evermirror.sim.polling import Traces
    from evermirror.sim.polling_result import PollingResult

_POLICY = (
    "adaptive, cbrt-age, fixed; a rule of others: uniform, classes, gitlab, sourcegraph, software-heritage,"
    " three-counts; what could be reached: clairvoyant, oracle. Several, with commas, are compared;"
    " all: all but fixed."
)
_HOOKS = "Of the repos that have hooks: reliable, then silent."
Histories = Annotated[
    Path | None, typer.Option(metavar="FILE.npz", help="Push times of repositories.", show_default=False)
]
Made = Annotated[
    int | None,
    typer.Option(metavar="N", help="Make histories of up to 100,000 repos instead.", show_default=False),
]
Seed = Annotated[
    int | None, typer.Option(metavar="S", help="Of --made: the same seed is the same; 1.", show_default=False)
]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE.npz", help="Keep what --made made, in a new file.", show_default=False),
]
Policies = Annotated[list[str] | None, typer.Option(metavar="NAME", show_default=False, help=_POLICY)]
MeanGap = Annotated[str, typer.Option(metavar="DURATION", help="Budget: average gap between polls of one.")]
Days = Annotated[int, typer.Option(min=1, max=36_500, metavar="N", help="Length judged, after the warm-in.")]
Hooks = Annotated[float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help=_HOOKS)]


def polling(
    traces: Histories = None,
    made: Made = None,
    seed: Seed = None,
    out: Out = None,
    policy: Policies = None,
    mean_gap: MeanGap = "1h",
    days: Days = 180,
    hooks: Hooks = 0.0,
    as_json: AsJson = False,
) -> None:
    """Mean delay from push to poll, under a budget of polls, by the very code that runs."""
    from evermirror.model.duration import parse_duration
    from evermirror.sim.compare import named

    gap_s = parse_duration(mean_gap)
    if gap_s <= 0:
        raise UsageError(f"--mean-gap {mean_gap!r} is not above 0")
    names = list(dict.fromkeys(name for asked in policy or ["adaptive"] for name in named(asked)))
    _check_hooks(hooks, names)
    with progress() as tell:
        tell("histories", 0.0)
        histories = _histories(traces, made, seed, out)
        results = _results(histories, names, gap_s, days, hooks, tell)
    if as_json:
        print_json([asdict(r) for r in results] if len(results) > 1 else asdict(results[0]))
    else:
        _tell(results, hooks=hooks > 0)


def _histories(traces: Path | None, made: int | None, seed: int | None, out: Path | None) -> Traces:
    from evermirror.sim.polling import load_traces
    from evermirror.sim.population import check_new, save
    from evermirror.sim.population import made as make

    if traces is not None and made is not None:
        raise UsageError("--traces and --made are both given", hint="Histories are read, or made: give one")
    if made is None and (seed is not None or out is not None):
        raise UsageError("--seed and --out are for --made", hint="Add --made N, or leave them out")
    if made is not None:
        if out is not None:
            check_new(out)
        histories = make(made, 1 if seed is None else seed)
        if out is not None:
            save(histories, out)
        return histories
    if traces is None:
        raise UsageError(
            "no histories to simulate", hint="Give --traces FILE.npz, or --made N for made-up ones"
        )
    return load_traces(traces)


def _check_hooks(hooks: float, names: list[str]) -> None:
    from evermirror.core.schedule.policies import POLICIES

    for name in names:
        if hooks and name not in POLICIES:
            raise UsageError(f"--hooks is not for {name}", hint=f"Only for {', '.join(POLICIES)}")


def _results(
    histories: Traces, names: list[str], gap_s: float, days: int, hooks: float, tell: Tell
) -> list[PollingResult]:
    from evermirror.sim.compare import result_of
    from evermirror.sim.polling import simulate_hooked

    runs = [
        (name, silent) for name in names for silent in ((None, False, True) if hooks else (None,))
    ]  # None: without hooks

    def told(done: int, name: str, share: float) -> None:
        tell(name, (done + share) / len(runs))

    results = []
    for done, (name, silent) in enumerate(runs):
        heard = partial(told, done, name)
        if silent is None:
            results.append(result_of(histories, name, gap_s, days=days, tell=heard))
        else:
            results.append(
                simulate_hooked(histories, name, gap_s, hooks, silent=silent, days=days, tell=heard)
            )
    return results


def _tell(results: list[PollingResult], *, hooks: bool) -> None:
    base = results[0].mean_s
    figures = ["mean delay", "ratio", "p50", "p95", "≤ 5 min", "largest gap", "quiet half", "by repo"]
    figures += ["pushes", "polls", *(["of hooked"] if hooks else [])]
    print_table(
        ["policy", *figures],
        [
            [
                f"{r.policy}, hooks {r.hooks}" if r.hooks else r.policy,
                span(r.mean_s),
                f"{r.mean_s / base:.3f}" if base else "",
                span(r.p50_s),
                span(r.p95_s),
                f"{r.share_within_5min:.1%}",
                span(r.largest_gap_s),
                span(r.quiet_mean_s),
                span(r.quiet_repo_mean_s),
                r.pushes,
                r.polls,
                *([r.hooked_polls if r.hooks else ""] if hooks else []),
            ]
            for r in results
        ],
        right=figures,
    )
    for r in results:
        if r.least_mean_s is not None:
            say(f"no schedule with this budget has a mean delay below {span(r.least_mean_s)}")
