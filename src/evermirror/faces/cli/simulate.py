"""`evermirror simulate`: policies and changes tried on a model of the world before they are trusted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli import simulate_fleet, simulate_pull
from evermirror.faces.cli.help import Command, Group
from evermirror.faces.cli.options import AsJson
from evermirror.faces.cli.output import print_json, print_table, span

app = typer.Typer(
    cls=Group, no_args_is_help=True, help="Try a policy, or a change of the fleet, before trusting it."
)
app.command("fleet", cls=Command)(simulate_fleet.fleet)
app.command("pull", cls=Command)(simulate_pull.pull)


@app.command(cls=Command)
def polling(
    traces: Annotated[
        Path, typer.Option(metavar="FILE.npz", help="Push times of repositories.", show_default=False)
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", show_default=False, help="adaptive, cbrt-age or fixed; several are compared."
        ),
    ] = None,
    mean_gap: Annotated[
        str, typer.Option(metavar="DURATION", help="Budget: average gap between polls of one.")
    ] = "1h",
    days: Annotated[int, typer.Option(min=1, metavar="N", help="Length judged, after the warm-in.")] = 180,
    as_json: AsJson = False,
) -> None:
    """Mean delay from push to poll, under a budget of polls, by the very code that runs."""
    from evermirror.model.duration import parse_duration
    from evermirror.sim.polling import load_traces, simulate

    gap_s = parse_duration(mean_gap)
    if gap_s <= 0:
        raise UsageError(f"--mean-gap {mean_gap!r} is not above 0")
    histories = load_traces(traces)
    names = policy or ["adaptive"]
    results = [simulate(histories, name, gap_s, days=days) for name in names]
    if as_json:
        print_json([asdict(r) for r in results] if len(results) > 1 else asdict(results[0]))
        return
    base = results[0].mean_s
    print_table(
        ["policy", "mean delay", "ratio", "p50", "p95", "≤ 5 min", "largest gap", "pushes", "polls"],
        [
            [
                name,
                span(r.mean_s),
                f"{r.mean_s / base:.3f}" if base else "",
                span(r.p50_s),
                span(r.p95_s),
                f"{r.share_within_5min:.1%}",
                span(r.largest_gap_s),
                r.pushes,
                r.polls,
            ]
            for name, r in zip(names, results, strict=True)
        ],
        right=["mean delay", "ratio", "p50", "p95", "≤ 5 min", "largest gap", "pushes", "polls"],
    )
