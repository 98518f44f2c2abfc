"""A study told to people: the question in a sentence, the findings line by line, and both as a picture."""

from __future__ import annotations

from itertools import pairwise

from evermirror.model.duration import format_duration, format_size
from evermirror.sim.fleet.findings import Findings, Point
from evermirror.sim.fleet.plot import Line, Mark, Panel, Picture
from evermirror.sim.fleet.question import Change, Study

DRAWN = ("suspected", "declared down", "all in place", "brake")  # marks of the picture
ALWAYS, NOT_YET = "at every moment", "not within the time studied"


def title(study: Study) -> str:
    """``333 of 1,000 workers are lost for good``"""
    many = study.count != 1
    are = "are" if many else "is"
    match study.change:
        case Change.JOIN:
            return f"{_count(study.count, 'worker')} {'join' if many else 'joins'} {study.workers:,}"
        case Change.DRAIN:
            return f"{study.count:,} of {study.workers:,} workers {are} drained"
        case _:
            back = study.back_after_s
            how_long = "for good" if back is None else f"for {time(back)}"
            return f"{study.count:,} of {study.workers:,} workers {are} lost {how_long}"


def asked(study: Study) -> str:
    """What was assumed."""
    return (
        f"{_count(study.repos, 'repo')} × {study.replicas}, {size(study.mean_mb)} in the mean; "
        f"{study.bandwidth_mb_s:g} MB/s and {study.slots} clones at once per worker; "
        f"grace {time(study.grace_s)}; {study.trusted_workers:,} trusted; seed {study.seed}"
    )


def warnings(study: Study, found: Findings) -> list[str]:
    """What an operator must not overlook."""
    lines = []
    if found.brake_after_s is not None:
        over = "it is still on" if found.brake_at_end else "it went off when enough were back"
        share = f"{study.settings.brake_share:.0%}"
        lines.append(
            f"The brake engaged after {time(found.brake_after_s)}: more than {share} of the fleet turned "
            f"silent at once. Nobody is declared down and nothing moves meanwhile; {over}."
        )
    if found.brake_at_end:
        lines.append("Only workers that come back, or a person who overrules the brake, can end it.")
    if found.waiting_for_room:
        lines.append(
            f"{_count(found.waiting_for_room, 'repo')} lack a copy at the end: no worker is left that may "
            "take it."
        )
    elif found.settled_after_s is None and not found.brake_at_end:
        lines.append("The fleet had not settled when the time studied was over.")
    return lines


def figures(study: Study, found: Findings) -> list[tuple[str, str]]:
    """The findings, one line each."""
    ratio = f", {found.moved / found.ideal:.2f} × what had to move" if found.ideal and found.moved else ""
    before, peak, at_end = (f"{x:.2f}" for x in (found.load_before, found.load_peak, found.load_after))
    lines = [
        ("moved", f"{found.moved:,} of {found.copies:,} copies ({found.moved / found.copies:.1%}){ratio}"),
        ("cloned", f"{found.cloned:,} copies, {found.relayed:,} of them through the relay"),
        ("bytes", f"{size(found.upstream_mb)} from upstream, {size(found.relay_mb)} through the relay"),
        ("deleted", f"{found.deleted:,} copies that were no longer wanted where they were"),
    ]
    if study.change is Change.LOSE:
        lines += [
            ("suspected", after(found.suspected_after_s)),
            ("declared down", "nobody" if found.down_after_s is None else after(found.down_after_s)),
        ]
    return [
        *lines,
        ("every repo owned", _again(found.owned_after_s, found.unowned_max, "unowned")),
        ("every repo held", _again(found.held_after_s, found.unheld_max, "without a readable copy")),
        ("all in place", after(found.settled_after_s)),
        ("brake", "not engaged" if found.brake_after_s is None else f"engaged {after(found.brake_after_s)}"),
        ("busiest worker", f"{before} × the mean before, {peak} × at most, {at_end} × at the end"),
        ("from upstream", rates(found.upstream_peak_mb_s, found.upstream_mean_mb_s)),
        ("through the relay", rates(found.relay_peak_mb_s, found.relay_mean_mb_s)),
    ]


def picture(study: Study, found: Findings) -> Picture:
    points = found.points
    workers = max(point.alive for point in points)
    return Picture(
        title=title(study),
        asked=asked(study),
        figures=tuple(line for line in figures(study, found) if line[0] not in DRAWN),
        remarks=tuple(warnings(study, found)),
        times_s=tuple(point.at_s for point in points),
        panels=(
            Panel(
                "Repos and workers, % of all",
                (
                    Line("owned", tuple(100 * p.owned / study.repos for p in points)),
                    Line("held", tuple(100 * p.held / study.repos for p in points)),
                    Line("workers alive", tuple(100 * p.alive / workers for p in points)),
                ),
                percent=True,
            ),
            Panel(
                "Copies on the move",
                (
                    Line("asked for", tuple(float(p.asked) for p in points)),
                    Line("waiting for their turn", tuple(float(p.waiting) for p in points)),
                ),
            ),
            Panel(
                "Bandwidth of the whole fleet, MB/s",
                (
                    Line("from upstream", tuple(p.upstream_mb_s for p in points)),
                    Line("through the relay", tuple(p.relay_mb_s for p in points)),
                ),
            ),
        ),
        marks=_marks(study, found),
        shaded=_braked(points),
    )


def _marks(study: Study, found: Findings) -> tuple[Mark, ...]:
    word = {Change.LOSE: "lost", Change.JOIN: "joined", Change.DRAIN: "drained"}[study.change]
    marks = [
        (0.0, f"{study.count:,} {word}"),
        (found.suspected_after_s, "suspected"),
        (found.brake_after_s, "brake on"),
        (found.down_after_s, "declared down"),
        (study.back_after_s, "back"),
        (found.settled_after_s, "all in place"),
    ]
    return tuple(Mark(at_s, text) for at_s, text in marks if at_s is not None)


def _braked(points: tuple[Point, ...]) -> tuple[tuple[float, float], ...]:
    """From when to when the brake was on."""
    spans: list[tuple[float, float]] = []
    for before, point in pairwise(points):
        if before.braked:
            begin = spans.pop()[0] if spans and spans[-1][1] == before.at_s else before.at_s
            spans.append((begin, point.at_s))
    return tuple(spans)


def time(seconds: float) -> str:
    """To the second: ``10m25s``."""
    return format_duration(round(seconds))


def size(mb: float) -> str:
    return format_size(round(mb * 1_000_000))


def after(seconds: float | None) -> str:
    return NOT_YET if seconds is None else f"after {time(seconds)}"


def rates(peak_mb_s: float, mean_mb_s: float) -> str:
    """In the mean of the time in which bytes moved at all."""
    return f"{peak_mb_s:,.4g} MB/s at most, {mean_mb_s:,.4g} MB/s in the mean" if peak_mb_s else "nothing"


def _again(none_after_s: float | None, most: int, lacking: str) -> str:
    return f"{after(none_after_s)}, up to {most:,} {lacking} meanwhile" if most else ALWAYS


def _count(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
