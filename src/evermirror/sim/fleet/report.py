"""A study told to people: the question in a sentence, the findings line by line, and both as one picture.

The picture is an SVG that needs nothing else, readable on light and on dark ground:

title, what was asked
┌ marks: the change, suspicion, down … ┐
│ panel: shares of repos and workers   │  each with its axis, its legend and its lines
│ panel: copies on the move            │
│ panel: bandwidth                     │
└ one time axis ───────────────────────┘
what came out
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap
from xml.sax.saxutils import escape

from evermirror.model.duration import format_duration, format_size
from evermirror.model.printable import one_line
from evermirror.sim.fleet.question import Change, Findings, Point, Study

WIDTH, MARGIN, LEFT, RIGHT = 960, 24, 78, 24  # all in pixels
HEAD, MARK_ROW, LEGEND, PANEL, GAP, AXIS, ROW = 70, 16, 30, 128, 20, 56, 18
FIGURES = 150  # where their values begin
LETTER_PX = 6.6  # a letter of the small text, in the mean
WRAP = 120  # letters in a line of the bold text, which is wider
TINY = 1e-6  # of anything that is drawn: nothing
MARK_ROWS = 3  # beyond it labels may lie on one another

# Okabe and Ito's colours, told apart also by those who see fewer of them; darker or lighter to stand out from
# the ground. Dashes say the same without any colour.
_STYLE = """
svg { --ground: #ffffff; --ink: #1c2024; --soft: #5d666f; --grid: #e3e6ea; --brake: #d55e0026;
  --c0: #0065a8; --c1: #c04e00; --c2: #5d666f; }
@media (prefers-color-scheme: dark) { svg { --ground: #15181c; --ink: #e8eaed; --soft: #a2abb4;
  --grid: #2c3238; --brake: #e69f0033; --c0: #56b4e9; --c1: #f0a13a; --c2: #a2abb4; } }
text { font: 12px system-ui, "Segoe UI", "Noto Sans", sans-serif; fill: var(--ink); }
.title { font-size: 18px; font-weight: 600; }
.soft { fill: var(--soft); }
.head { font-weight: 600; }
.end { text-anchor: end; }
.mid { text-anchor: middle; }
.ground { fill: var(--ground); }
.grid { stroke: var(--grid); }
.axis { stroke: var(--soft); }
.mark { stroke: var(--soft); stroke-dasharray: 2 3; }
.brake { fill: var(--brake); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.c0 { stroke: var(--c0); }
.c1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3; }
"""

_UNITS = (
    (2 * 86_400.0, 86_400.0, "days"),
    (2 * 3_600.0, 3_600.0, "hours"),
    (0.0, 60.0, "minutes"),
)
_NOT_XML = dict.fromkeys(
    (0xFFFE, 0xFFFF), "\N{REPLACEMENT CHARACTER}"
)  # the rest of those is no printable text
_FLOORS = (99.0, 95.0, 90.0, 80.0, 50.0)  # where a share's axis may begin instead of 0


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


# The picture


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    values: tuple[float, ...]  # one for each time


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over the same times. ``percent``: values are from 0 to 100, and the axis may begin above 0."""

    title: str
    lines: tuple[Line, ...]
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something happened."""

    at_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    asked: str
    figures: tuple[tuple[str, str], ...]  # what came out
    remarks: tuple[str, ...]  # sentences, as long as they like
    times_s: tuple[float, ...]
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...] = ()
    shaded: tuple[tuple[float, float], ...] = ()  # while the brake was on


def draw(picture: Picture) -> str:
    """The whole file."""
    return "\n".join(_Drawing(picture).parts()) + "\n"


class _Drawing:
    """Where everything goes; ``parts`` are the lines of the file."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._begin, self._end = min(picture.times_s), max(picture.times_s)
        self._end = max(self._end, self._begin + 1.0)
        self._rows = _rows([(self._x(m.at_s), m.text) for m in picture.marks])
        self._remarks = [line for remark in picture.remarks for line in wrap(one_line(remark), WRAP)]
        self._top = HEAD + MARK_ROW * (max(self._rows, default=-1) + 1)
        self._bottom = self._top + len(picture.panels) * (LEGEND + PANEL + GAP) - GAP
        self._height = self._bottom + AXIS + ROW * (len(self._remarks) + len(picture.figures) + 1)

    def parts(self) -> Iterator[str]:
        picture, height = self._picture, self._height
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" role="img" aria-label="{_safe(picture.title)}">'
        )
        yield f"<title>{_safe(picture.title)}</title><style>{_STYLE}</style>"
        yield f'<rect class="ground" width="{WIDTH}" height="{height}"/>'
        yield _text(MARGIN, 32, picture.title, "title")
        yield _text(MARGIN, 54, picture.asked, "soft")
        yield from self._labels()
        for number, panel in enumerate(picture.panels):
            top = self._top + number * (LEGEND + PANEL + GAP)
            yield from self._legend(panel, top + LEGEND - 10)
            yield from self._panel(panel, top + LEGEND)
        yield from self._time_axis()
        yield from self._foot()
        yield "</svg>"

    def _x(self, at_s: float) -> float:
        return LEFT + (at_s - self._begin) / (self._end - self._begin) * (WIDTH - LEFT - RIGHT)

    def _labels(self) -> Iterator[str]:
        for mark, row in zip(self._picture.marks, self._rows, strict=True):
            x, y = self._x(mark.at_s), HEAD + MARK_ROW * (row + 1)
            right = _fits(x, mark.text)
            yield f'<path class="mark" d="M{x:.1f} {y - 10:.1f}V{self._top + 4:.1f}"/>'
            yield _text(x + 4 if right else x - 4, y, mark.text, "" if right else "end")

    def _legend(self, panel: Panel, y: float) -> Iterator[str]:
        yield _text(LEFT, y, panel.title, "head")
        x: float = WIDTH - RIGHT
        for number, line in reversed(list(enumerate(panel.lines))):
            x -= len(line.name) * LETTER_PX
            yield _text(x, y, line.name, "soft")
            x -= 34
            yield f'<path class="line c{number}" d="M{x:.1f} {y - 4:.1f}h28"/>'
            x -= 18

    def _panel(self, panel: Panel, top: float) -> Iterator[str]:
        foot = top + PANEL
        yield from self._behind(top)
        values = [value for line in panel.lines for value in line.values]
        if max(values, default=0.0) > TINY:
            low = _floor(values) if panel.percent else 0.0
            ticks = nice_ticks(low, 100.0 if panel.percent else max(values), 5)
            scale = PANEL / (ticks[-1] - low)
            for tick in ticks:
                y = foot - (tick - low) * scale
                yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
                yield _text(LEFT - 8, y + 4, f"{tick:,.10g}{' %' if panel.percent else ''}", "end soft")
            for number, line in enumerate(panel.lines):
                pairs = zip(self._picture.times_s, line.values, strict=True)
                path = _path([(self._x(t), foot - (v - low) * scale) for t, v in pairs])
                yield f'<path class="line c{number}" d="{path}"/>'
        else:
            yield _text((LEFT + WIDTH - RIGHT) / 2, (top + foot) / 2, "nothing at all", "mid soft")
        yield f'<path class="axis" d="M{LEFT} {foot:.1f}H{WIDTH - RIGHT}"/>'

    def _behind(self, top: float) -> Iterator[str]:
        for begin_s, end_s in self._picture.shaded:
            x, end = self._x(begin_s), self._x(end_s)
            yield f'<rect class="brake" x="{x:.1f}" y="{top}" width="{end - x:.1f}" height="{PANEL}"/>'
        for mark in self._picture.marks:
            yield f'<path class="mark" d="M{self._x(mark.at_s):.1f} {top}v{PANEL}"/>'

    def _time_axis(self) -> Iterator[str]:
        unit_s, unit = next((u, name) for least, u, name in _UNITS if self._end - self._begin >= least)
        for tick in nice_ticks(self._begin / unit_s, self._end / unit_s, 10):
            x = self._x(tick * unit_s)
            if LEFT - 1 <= x <= WIDTH - RIGHT + 1:
                yield f'<path class="axis" d="M{x:.1f} {self._bottom}v5"/>'
                yield _text(x, self._bottom + 18, f"{tick:,.10g}", "mid soft")
        yield _text(WIDTH - RIGHT, self._bottom + 34, f"{unit} after the change", "end soft")

    def _foot(self) -> Iterator[str]:
        y = self._bottom + AXIS + ROW / 2
        for line in self._remarks:
            yield _text(MARGIN, y, line, "head")
            y += ROW
        for name, value in self._picture.figures:
            yield _text(MARGIN, y, name, "soft")
            yield _text(FIGURES, y, value)
            y += ROW


def _fits(x: float, text: str) -> bool:
    """To the right of its line."""
    return x + 4 + len(text) * LETTER_PX <= WIDTH - 4


def _rows(labels: Sequence[tuple[float, str]]) -> list[int]:
    """Of each label, so that none lies on another: the first row that has room."""
    taken: list[list[tuple[float, float]]] = [[] for _ in range(MARK_ROWS)]
    rows = []
    for x, text in labels:
        long = len(text) * LETTER_PX + 10
        begin, end = (x, x + long) if _fits(x, text) else (x - long, x)
        free = (r for r in range(MARK_ROWS) if all(end < b or begin > e for b, e in taken[r]))
        row = next(free, MARK_ROWS - 1)
        taken[row].append((begin, end))
        rows.append(row)
    return rows


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """From the last round value at or below ``low`` to the first at or above ``high``."""
    if not high > low:
        high = low + 1.0
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _floor(values: Sequence[float]) -> float:
    return next((floor for floor in _FLOORS if min(values) >= floor), 0.0)


def _path(at: Sequence[tuple[float, float]]) -> str:
    """Through all of them; inside a level stretch only its ends."""
    words = [(f"{x:.1f}", f"{y:.1f}") for x, y in at]
    kept = [
        word
        for i, word in enumerate(words)
        if i in (0, len(words) - 1) or not words[i - 1][1] == word[1] == words[i + 1][1]
    ]
    return "M" + "L".join(" ".join(word) for word in kept)


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Nothing in it is markup, and all of it is allowed in XML."""
    return escape(one_line(text).translate(_NOT_XML), {'"': "&quot;"})
