"""One table for the terminal: a row for each line, and below a missed one what stands in the way."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from bench.measure import Line, Sense, spread
from bench.telling.results import Ran
from bench.telling.verdicts import State, goals_of, verdict_text

HEAD = ("bench", "what", "unit", "time", "evermirror", "", "alternative", "", "against", "figure", "goal", "")
RIGHT = frozenset({4, 5, 6, 7, 9, 10})
AGAINST_MAX = 32
LIMIT_WIDTH = 100


def figure_text(value: float | None) -> str:
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞"
    for limit, digits in ((100, 0), (10, 1), (1, 2), (0.01, 3)):
        if abs(value) >= limit:
            return f"{value:,.{digits}f}"
    return f"{value:.2g}"


def unit_and_time(unit: str) -> tuple[str, str]:
    """The unit itself, and which time it is: of the CPU, by the clock, or none."""
    words = unit.split()
    time = next((kind for kind in ("CPU", "wall") if kind in words or f"{kind}-s/GB" in words), "")
    if words[-1:] == [time]:
        words.pop()
    return " ".join(words), time


def goal_text(line: Line, *goals: float) -> str:
    sign = "≥" if line.sense in (Sense.TIMES_LESS, Sense.AT_LEAST) else "≤"
    return f"{sign} {', '.join(f'{goal:.4g}' for goal in goals)}" if goals else ""


def ratio_text(line: Line) -> str:
    """What the goal is about: a ratio, or ours alone."""
    if line.theirs and line.sense in (Sense.TIMES_LESS, Sense.TIMES_AS_MUCH):
        return f"{figure_text(line.figure)} {line.sense.value}"
    return figure_text(line.figure)


def spread_text(samples: tuple[float, ...]) -> str:
    return f"±{spread(samples):.0%}" if len(samples) > 1 else ""


def against_text(ran: Ran, line: Line) -> str:
    """Whose figures the alternative's are."""
    return (line.against or ran.alternative) if line.theirs else ""


def row_of(ran: Ran, line: Line) -> tuple[str, ...]:
    return (
        ran.name,
        line.what,
        *unit_and_time(line.unit),
        figure_text(line.ours_median),
        spread_text(line.ours),
        figure_text(line.theirs_median),
        spread_text(line.theirs),
        textwrap.shorten(against_text(ran, line), AGAINST_MAX, placeholder=" …"),
        ratio_text(line),
        goal_text(line, *goals_of(line)),
        verdict_text(line),
    )


def table_text(ran: Sequence[Ran]) -> str:
    lines = [(each, line) for each in ran for line in each.lines]
    rows = [row_of(each, line) for each, line in lines]
    widths = [max(len(row[i]) for row in (HEAD, *rows)) for i in range(len(HEAD))]

    def text(row: tuple[str, ...]) -> str:
        cells = [
            c.rjust(w) if i in RIGHT else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    shown = [text(HEAD), "  ".join("─" * w for w in widths)]
    for row, (_, line) in zip(rows, lines, strict=True):
        shown.append(text(row))
        if line.limit and State.MISSED.value in verdict_text(line):
            shown += textwrap.wrap(
                f"the limit: {line.limit}",
                LIMIT_WIDTH,
                initial_indent=" " * (widths[0] + 4),
                subsequent_indent=" " * (widths[0] + 6),
            )
    return "\n".join(shown)
