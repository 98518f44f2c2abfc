"""`evermirror simulate fleet`: what losing, adding or draining workers would mean, before it happens."""

from __future__ import annotations

import re
import time
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evermirror.errors import UsageError
from evermirror.faces.cli.options import AsJson
from evermirror.faces.cli.output import print_json, print_table, say, span
from evermirror.faces.cli.progress import progress

if TYPE_CHECKING:
    from evermirror.sim.fleet.question import Change, Findings, Study

PART_FORM = "a share such as 1/3, 30% or 0.3, or a whole number of workers"
_PART = re.compile(
    r"([0-9]{1,9})/([0-9]{1,9})|([0-9]{1,3}(?:\.[0-9]{1,9})?)%|([0-9]{0,9}\.[0-9]{1,9})|([0-9]{1,9})"
)


# The fleet
Workers = Annotated[int, typer.Option(metavar="N", help="In the fleet at first.", show_default=False)]
Repos = Annotated[int, typer.Option(metavar="M", help="In the catalog.", show_default=False)]
Replicas = Annotated[int, typer.Option(metavar="R", help="Copies of each.")]
Trusted = Annotated[float, typer.Option(metavar="0…1", help="Share of the workers.")]
Private = Annotated[float, typer.Option(metavar="0…1", help="Share of the repos; trusted workers only.")]

# What happens to it
_LOSE = "Lose these at once: 1/3, 30%, 0.3, or so many."
Lose = Annotated[str | None, typer.Option(metavar="SHARE", show_default=False, help=_LOSE)]
_BACK_AFTER = "They come back; else lost for good."
BackAfter = Annotated[str | None, typer.Option(metavar="DURATION", show_default=False, help=_BACK_AFTER)]
Join = Annotated[int | None, typer.Option(metavar="K", show_default=False, help="So many new ones come.")]
_DRAIN = "Drain these, as --lose has it."
Drain = Annotated[str | None, typer.Option(metavar="SHARE", show_default=False, help=_DRAIN)]

# What it has to work with
Grace = Annotated[str, typer.Option(metavar="DURATION", help="From suspicion until a worker's repos move.")]
Bandwidth = Annotated[float, typer.Option(metavar="MB/S", help="Of each worker's link.")]
MeanSize = Annotated[float, typer.Option(metavar="MB", help="Of a mirror.")]
Slots = Annotated[int, typer.Option(metavar="N", help="Clones at once on a worker.")]

# How it is studied and shown
Seed = Annotated[int, typer.Option(metavar="S", help="The same seed is the same run.")]
_HOURS = "Longest time studied after the change; 24."
Hours = Annotated[float | None, typer.Option(metavar="H", show_default=False, help=_HOURS)]
_DAYS = "The same in days; both add up."
Days = Annotated[float | None, typer.Option(metavar="D", show_default=False, help=_DAYS)]
Svg = Annotated[Path | None, typer.Option(metavar="FILE", show_default=False, help="Draw it into this file.")]


def fleet(
    workers: Workers,
    repos: Repos,
    replicas: Replicas = 1,
    lose: Lose = None,
    back_after: BackAfter = None,
    join: Join = None,
    drain: Drain = None,
    seed: Seed = 1,
    grace: Grace = "10m",
    bandwidth: Bandwidth = 10.0,
    mean_size: MeanSize = 50.0,
    slots: Slots = 10,
    trusted: Trusted = 1.0,
    private: Private = 0.1,
    hours: Hours = None,
    days: Days = None,
    svg: Svg = None,
    as_json: AsJson = False,
) -> None:
    """What moves, how long, and how many bytes, when workers are lost, join or are drained.

    The fleet's own code decides; workers, network and bytes are simulated. It ends when nothing moves."""
    from evermirror.model.duration import parse_duration
    from evermirror.sim.fleet.question import Study

    change, count = _change(workers, lose, join, drain)
    study = Study(
        workers=workers,
        repos=repos,
        change=change,
        count=count,
        replicas=replicas,
        back_after_s=None if back_after is None else parse_duration(back_after),
        seed=seed,
        grace_s=parse_duration(grace),
        bandwidth_mb_s=bandwidth,
        mean_mb=mean_size,
        slots=slots,
        trusted=trusted,
        private=private,
        longest_s=_longest_s(hours, days),
    )
    if svg is not None:
        _try_to_write(svg)
    _study(study, svg, as_json=as_json)


def _study(study: Study, svg: Path | None, *, as_json: bool) -> None:
    from evermirror.sim.fleet import report
    from evermirror.sim.fleet.study import run

    began = time.monotonic()
    with progress() as tell:
        found = run(study, tell)
    took_s = time.monotonic() - began
    if svg is not None:
        svg.write_text(report.draw(report.picture(study, found)), "utf-8")
    if as_json:
        print_json(_as_json(study, found, took_s))
        return
    say(report.title(study))
    say(report.asked(study))
    for line in report.warnings(study, found):
        say(line)
    print_table(["figure", "value"], report.figures(study, found))
    say(
        f"{span(found.studied_s)} were simulated in {span(took_s)}; the fleet handled {found.events:,} events"
    )
    if svg is not None:
        say(f"drawn into {svg}")


def _as_json(study: Study, found: Findings, took_s: float) -> dict[str, object]:
    asked = {**asdict(study), "change": study.change.value}
    return {"study": asked, "findings": asdict(found), "took_s": round(took_s, 3)}


# What was asked


def _change(workers: int, lose: str | None, join: int | None, drain: str | None) -> tuple[Change, int]:
    """What is done, and to how many; exactly one of the three."""
    from evermirror.sim.fleet.question import Change

    given = [
        name for name, value in (("--lose", lose), ("--join", join), ("--drain", drain)) if value is not None
    ]
    if len(given) != 1:
        raise UsageError(
            f"{' and '.join(given)} cannot be studied at once" if given else "nothing happens to the fleet",
            hint="Say one of --lose 1/3, --join 10 and --drain 5",
        )
    if join is not None:
        return Change.JOIN, join
    if drain is not None:
        return Change.DRAIN, part_of(workers, drain, "--drain")
    return Change.LOSE, part_of(workers, lose or "", "--lose")


def part_of(workers: int, text: str, option: str) -> int:
    """So many of the workers; a share that is not 0 is at least one of them."""
    found = _PART.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} {text!r} is neither a share nor a number", hint=f"Write {PART_FORM}")
    over, under, percent, decimal, count = found.groups()
    if count is not None:
        return int(count)
    if under is not None and not int(under):
        raise UsageError(f"{option} {text!r} divides by 0", hint=f"Write {PART_FORM}")
    share = (
        Fraction(int(over), int(under)) if over else Fraction(percent) / 100 if percent else Fraction(decimal)
    )
    if not 0 < share <= 1:
        told = "is no worker at all" if not share else "is more than the whole fleet"
        raise UsageError(f"{option} {text!r} {told}", hint=f"Write {PART_FORM}")
    return max(1, round(share * workers))


def _longest_s(hours: float | None, days: float | None) -> float:
    if hours is None and days is None:
        return 86_400.0
    return 3_600.0 * ((hours or 0.0) + 24 * (days or 0.0))


def _try_to_write(file: Path) -> None:
    """Now, and not after minutes of work; a file that was not there is not left behind."""
    there = file.exists()
    try:
        with file.open("ab"):
            pass
        if not there:
            file.unlink()
    except OSError as error:
        raise UsageError(
            f"--svg {file}: {error.strerror or error}", hint="Name a file in a folder that you may write to"
        ) from error
