"""Charts of a report as SVG, to stand in a page, which has the colours by class names; no script, no link."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from evermirror.faces.cli.pull.report_data import Point, Sheet
from evermirror.faces.cli.pull.report_words import Words

DAY_S = 86_400.0
LABELS_MAX = 8  # days that are named below a chart
LEAST = 1e-6  # less is as good as nothing
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SPANS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 432_000,
)  # fmt: skip

Values = Sequence[float | None]
Text = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a chart's lines are drawn, and what its height stands for."""

    width: float
    height: float
    top: float  # the value at its upper edge
    left: float = 52.0
    right: float = 10.0
    above: float = 12.0
    below: float = 24.0

    def x(self, share: float) -> float:
        return self.left + share * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, value / self.top))
        return self.height - self.below - share * (self.height - self.above - self.below)

    @property
    def ground(self) -> float:
        return self.height - self.below


def nice_top(most: float, ticks: int = 4, *, whole: bool = False) -> tuple[float, tuple[float, ...]]:
    """A round figure that nothing is above, and the round ones up to it; ``whole``: of what is counted."""
    if most < LEAST:
        return 1.0, (0.0, 1.0)
    rough, unit = most / ticks, 1.0
    while unit * 10 <= rough:
        unit *= 10
    while unit > rough:
        unit /= 10
    step = next(s * unit for s in _STEPS if s * unit >= rough * 0.999)
    step = max(step, 1.0) if whole else step
    count = max(1, -int(-most * 0.9999 // step))
    return step * count, tuple(step * n for n in range(count + 1))


def nice_span(most_s: float, ticks: int = 4) -> tuple[float, tuple[float, ...]]:
    """The same of seconds: whole minutes, hours, days."""
    step = next((s for s in _SPANS_S if s * ticks >= most_s), None)
    if step is None or most_s < LEAST:
        return nice_top(most_s, ticks)
    count = max(1, -int(-most_s // step))
    return float(step * count), tuple(float(step * n) for n in range(count + 1))


def days_chart(sheet: Sheet, words: Words) -> str:
    """Syncs of each day: failed ones at the bottom, where they are seen; then changed, then unchanged."""
    top, ticks = nice_top(max((day.tasks.tasks for day in sheet.by_day), default=0), whole=True)
    frame = Frame(720, 230, top)
    count = max(1, len(sheet.by_day))
    parts = list(_grid(frame, ticks, words.count))
    for number, day in enumerate(sheet.by_day):
        width = (frame.x(1) - frame.x(0)) / count
        left = frame.x(number / count) + width * 0.14
        tasks = day.tasks
        told = ", ".join(
            f"{words(name)} {words.count(value)}"
            for name, value in (
                ("changed", tasks.success),
                ("unchanged", tasks.skipped),
                ("failed", tasks.failed),
            )
        )
        latest = " so-far" if number == count - 1 else ""
        parts.append(f'<g class="bar{latest}"><title>{escape(day.date)}: {escape(told)}</title>')
        ground = frame.ground
        for kind, value in (("failed", tasks.failed), ("changed", tasks.success), ("same", tasks.skipped)):
            tall = frame.ground - frame.y(value)
            tall = max(tall, 2.0) if value else 0.0
            if tall:
                ground -= tall
                parts.append(
                    f'<rect class="{kind}" x="{left:.1f}" y="{ground:.1f}" width="{width * 0.72:.1f}" '
                    f'height="{tall:.1f}"/>'
                )
        parts.append("</g>")
    dates = [day.date for day in sheet.by_day]
    parts += _labels(frame, [((n + 0.5) / count, date[5:]) for n, date in enumerate(dates)])
    return _svg(frame, words("by_day"), parts)


def lag_chart(sheet: Sheet, words: Words, name: str) -> str:
    """One class, on a scale of its own: what is late for one is early for another."""
    values = [point.lag_s.get(name) for point in sheet.course]
    title = words("lag_chart", name=words(name))
    scale = nice_span(_most(values))
    frame = Frame(350, 140, scale[0], left=58)
    return _area(sheet, values, frame, scale[1], title, words.span)


def looks_chart(sheet: Sheet, words: Words) -> str:
    values = [point.looks_per_hour for point in sheet.course]
    top, ticks = nice_top(_most(values), 3)
    return _area(sheet, values, Frame(720, 170, top), ticks, words("looks_chart"), words.count)


def limits_chart(sheet: Sheet, words: Words) -> str:
    """What ran, below the limit, and when the load was high."""
    course = sheet.course
    most = max((v for p in course for v in (p.limit, p.running) if v is not None), default=0.0)
    top, ticks = nice_top(most, whole=True)
    frame = Frame(720, 200, top)
    parts = list(_bands(frame, course))
    parts += _grid(frame, ticks, words.count)
    parts += [
        f'<path class="area" d="{path}"/>' for path in _areas(frame, [point.running for point in course])
    ]
    parts += [
        f'<path class="limit" d="{path}"/>' for path in _steps(frame, [point.limit for point in course])
    ]
    parts += _labels(frame, _days_of(sheet))
    return _svg(frame, words("limit_chart"), parts)


# Parts of charts


def _most(values: Values) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _area(sheet: Sheet, values: Values, frame: Frame, ticks: Iterable[float], title: str, text: Text) -> str:
    parts = list(_grid(frame, ticks, text))
    parts += [f'<path class="area" d="{path}"/>' for path in _areas(frame, values)]
    parts += _labels(frame, _days_of(sheet, 4 if frame.width < 500 else LABELS_MAX))
    return _svg(frame, title, parts)


def _svg(frame: Frame, title: str, parts: Iterable[str]) -> str:
    size = f"0 0 {frame.width:.0f} {frame.height:.0f}"
    name = escape(title)
    return f'<svg viewBox="{size}" role="img" aria-label="{name}"><title>{name}</title>{"".join(parts)}</svg>'


def _grid(frame: Frame, ticks: Iterable[float], text: Text) -> Iterator[str]:
    for tick in ticks:
        y = frame.y(tick)
        yield f'<line class="grid" x1="{frame.left:.1f}" x2="{frame.x(1):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{frame.left - 6:.1f}" y="{y + 4:.1f}">{escape(text(tick))}</text>'


def _labels(frame: Frame, labels: Sequence[tuple[float, str]]) -> Iterator[str]:
    every = -(-len(labels) // LABELS_MAX) or 1
    for share, text in labels[::every]:
        x = frame.x(share)
        yield f'<text class="day" x="{x:.1f}" y="{frame.height - 7:.1f}">{escape(text)}</text>'


def _days_of(sheet: Sheet, most: int = LABELS_MAX) -> list[tuple[float, str]]:
    """Where the middle of each day is on the course, as far as it goes, and its date."""
    length_s = max(1.0, len(sheet.course) * sheet.step_s)
    middles = []
    for number, day in enumerate(sheet.by_day):
        begin_s, end_s = number * DAY_S, min((number + 1) * DAY_S, length_s)
        if end_s - begin_s > DAY_S / 4:
            middles.append(((begin_s + end_s) / 2 / length_s, day.date[5:]))
    return middles[:: -(-len(middles) // most) or 1]


def _stretches(values: Values) -> Iterator[list[tuple[int, float]]]:
    """Values without a gap, each with its number."""
    stretch: list[tuple[int, float]] = []
    for number, value in enumerate(values):
        if value is not None:
            stretch.append((number, value))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _areas(frame: Frame, values: Values) -> Iterator[str]:
    """The values over the middle of their steps, down to the ground; one alone is as broad as its step."""
    count = max(1, len(values))
    for stretch in _stretches(values):
        places = [(frame.x((n + 0.5) / count), frame.y(value)) for n, value in stretch]
        first, last = stretch[0][0], stretch[-1][0] + 1
        begin, end = frame.x(first / count), frame.x(last / count)
        line = " ".join(f"L{x:.1f} {y:.1f}" for x, y in places)
        yield (
            f"M{begin:.1f} {frame.ground:.1f} L{begin:.1f} {places[0][1]:.1f} {line} "
            f"L{end:.1f} {places[-1][1]:.1f} L{end:.1f} {frame.ground:.1f} Z"
        )


def _steps(frame: Frame, values: Values) -> Iterator[str]:
    count = max(1, len(values))
    for stretch in _stretches(values):
        parts = [
            f"H{frame.x(n / count):.1f} V{frame.y(value):.1f} H{frame.x((n + 1) / count):.1f}"
            for n, value in stretch
        ]
        begin = stretch[0]
        yield f"M{frame.x(begin[0] / count):.1f} {frame.y(begin[1]):.1f} " + " ".join(parts)


def _bands(frame: Frame, course: Sequence[Point]) -> Iterator[str]:
    """Steps in which the load was high, the stronger the longer it was."""
    count = max(1, len(course))
    width = (frame.x(1) - frame.x(0)) / count
    tall = frame.ground - frame.above
    for number, point in enumerate(course):
        if point.load_high:
            yield (
                f'<rect class="high-load" opacity="{0.25 + 0.75 * min(1.0, point.load_high):.2f}" '
                f'x="{frame.x(number / count):.1f}" y="{frame.above:.1f}" width="{width + 0.2:.1f}" '
                f'height="{tall:.1f}"/>'
            )
