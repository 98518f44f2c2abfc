"""Charts as SVG, written here: for light and dark pages, for eyes that see no colours, and for none.

Each has a ground of its own, which follows the reader's theme; series differ by marker and dashes too, and a
title and a description tell in words what is drawn. The same figures give the same bytes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from bench.measure import Curve
from bench.telling.scale import Scale, scale_of, tick_text

WIDTH = 760
SIZE = 13.0  # of letters
LETTER = 0.56  # of a size: how wide one is, about
NAME_MAX = 44  # letters beside a bar
WIDE_SPAN = 20.0  # bars further apart than this need a logarithmic axis to be seen at all
SERIES = (  # light ground, dark ground, dashes
    ("#0550ae", "#79c0ff", ""),
    ("#bc4c00", "#ffa657", "7 4"),
    ("#116329", "#56d364", "2 3"),
    ("#8250df", "#d2a8ff", "9 3 2 3"),
    ("#a40e26", "#ff7b72", "4 2"),
    ("#57606a", "#b1bac4", "1 2"),
    ("#6e5600", "#e3b341", "12 4"),
    ("#0b6a72", "#39c5cf", "5 5"),
    ("#99286e", "#ff9bce", "3 6"),
    ("#3d4f00", "#a3c94a", "14 3 2 3"),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; ours stands out."""

    name: str
    value: float
    note: str = ""
    ours: bool = False


def _style() -> str:
    light = "".join(
        f".s{n}{{stroke:{a};fill:none}}.m{n}{{fill:{a};stroke:none}}" for n, (a, _, _) in enumerate(SERIES)
    )
    dark = "".join(f".s{n}{{stroke:{b}}}.m{n}{{fill:{b}}}" for n, (_, b, _) in enumerate(SERIES))
    return (
        "<style>text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}"
        ".over{paint-order:stroke;stroke:#fff;stroke-width:5px}.t{font-size:15px;font-weight:600}.soft{fill:#59636e}.num{font-variant-numeric:tabular-nums}"
        ".ground{fill:#fff;stroke:#d1d9e0}.grid{stroke:#d1d9e0;stroke-width:1}.axis{stroke:#818b98}"
        f".line{{stroke-width:2;stroke-linejoin:round}}{light}"
        "@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.soft{fill:#9198a1}"
        ".over{stroke:#0d1117}"
        f".ground{{fill:#0d1117;stroke:#3d444d}}.grid{{stroke:#2a313c}}.axis{{stroke:#656c76}}{dark}}}</style>"
    )


def _svg(height: float, title: str, says: str, body: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
            f' viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(says)}</desc>',
            _style(),
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="6"/>',
            *body,
            "</svg>",
            "",
        ]
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start", more: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    where = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{name}{where}{more}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _wide(text: str) -> float:
    return len(text) * SIZE * LETTER


def _heading(title: str) -> tuple[list[str], float]:
    """The title, on as many lines as it needs, and where it ends."""
    lines = textwrap.wrap(title, 84) or [""]
    return [_text(20, 28 + 20 * n, line, "t") for n, line in enumerate(lines)], 28 + 20.0 * (len(lines) - 1)


def _marker(number: int, x: float, y: float) -> str:
    """Its shape tells the series too."""
    name = f'class="m{number}"'
    points: tuple[tuple[float, float], ...]
    match number % 4:
        case 0:
            return f'<circle {name} cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        case 1:
            return f'<rect {name} x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
        case 2:
            points = ((0, -5), (4.5, 3.5), (-4.5, 3.5))
        case _:
            points = ((0, -5), (5, 0), (0, 5), (-5, 0))
    return f'<polygon {name} points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in points)}"/>'


def _dashes(number: int) -> str:
    dashes = SERIES[number][2]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _legend(names: Sequence[str], top: float) -> tuple[list[str], float]:
    body: list[str] = []
    x, y = 20.0, top
    for number, name in enumerate(names):
        width = 44 + _wide(name)
        if x > 20 and x + width > WIDTH - 20:
            x, y = 20.0, y + 20
        shown = number % len(SERIES)
        body.append(
            f'<path class="line s{shown}" d="M{x:.1f},{y - 4:.1f}h24"{_dashes(shown)}/>'
            + _marker(shown, x + 12, y - 4)
        )
        body.append(_text(x + 30, y, name))
        x += width
    return body, y


@dataclass(frozen=True, slots=True)
class _Plot:
    """The area between the axes."""

    left: float
    top: float
    right: float
    bottom: float
    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> tuple[float, float]:
        return (
            self.left + self.x.place(x) * (self.right - self.left),
            self.bottom - self.y.place(y) * (self.bottom - self.top),
        )


def _axes(plot: _Plot, x_name: str, y_name: str) -> list[str]:
    body = []
    for tick in plot.y.ticks:
        _, y = plot.at(plot.x.low, tick)
        body.append(_line(plot.left, y, plot.right, y, "grid"))
        body.append(_text(plot.left - 8, y + 4.5, tick_text(tick), "soft num", "end"))
    for tick in plot.x.ticks:
        x, _ = plot.at(tick, plot.y.low)
        body.append(_line(x, plot.bottom, x, plot.bottom + 5, "axis"))
        body.append(_text(x, plot.bottom + 20, tick_text(tick), "soft num", "middle"))
    body.append(_line(plot.left, plot.bottom, plot.right, plot.bottom, "axis"))
    body.append(
        _text((plot.left + plot.right) / 2, plot.bottom + 42, _axis_name(x_name, plot.x), "soft", "middle")
    )
    middle = (plot.top + plot.bottom) / 2
    turned = f' transform="rotate(-90 22 {middle:.1f})"'
    body.append(_text(22, middle, _axis_name(y_name, plot.y), "soft", "middle", turned))
    return body


def _axis_name(name: str, scale: Scale) -> str:
    return f"{name} (logarithmic)" if scale.log else name


def curve_svg(curve: Curve) -> str:
    body, end = _heading(curve.title)
    names = [one.name for one in curve.series]
    if len(names) > 1 or names[0]:
        legend, end = _legend(names, end + 26)
        body += legend
    points = [point for one in curve.series for point in one.points]
    plot = _Plot(
        left=84,
        top=end + 20,
        right=WIDTH - 32,
        bottom=end + 300,
        x=scale_of([x for x, _ in points], curve.log_x) if curve.log_x else _tight([x for x, _ in points]),
        y=scale_of([y for _, y in points], curve.log_y),
    )
    body += _axes(plot, curve.x, curve.y)
    for number, one in enumerate(curve.series):
        shown = number % len(SERIES)
        places = [plot.at(x, y) for x, y in one.points]
        way = "L".join(f"{x:.1f},{y:.1f}" for x, y in places)
        body.append(f'<path class="line s{shown}" d="M{way}"{_dashes(shown)}/>')
        body += [_marker(shown, x, y) for x, y in places]
    return _svg(plot.bottom + 60, curve.title, curve_text(curve), body)


def _tight(values: Sequence[float]) -> Scale:
    """A linear axis for what is along it: from the first value where zero is far away."""
    low = min(values)
    whole = scale_of(values)
    if low <= 0 or low < max(values) / 2:
        return whole
    moved = scale_of([v - low for v in values])
    return Scale(moved.low + low, moved.high + low, tuple(t + low for t in moved.ticks), log=False)


def curve_text(curve: Curve) -> str:
    """The chart in words: where each of its series begins and ends."""
    told = [
        f"{one.name or curve.y}: {tick_text(one.points[0][1])} at {tick_text(one.points[0][0])}"
        + (f" to {tick_text(one.points[-1][1])} at {tick_text(one.points[-1][0])}" if one.points[1:] else "")
        for one in curve.series
        if one.points
    ]
    text = f"{curve.y} over {curve.x}. {'; '.join(told)}."
    return f"{text} {curve.says}" if curve.says else text


def bars_svg(title: str, unit: str, bars: Sequence[Bar]) -> str:
    """Lying bars, ours first; logarithmic where the shortest would not be seen otherwise."""
    body, end = _heading(title)
    bars = [replace(bar, name=textwrap.shorten(bar.name, NAME_MAX, placeholder=" …")) for bar in bars]
    values = [bar.value for bar in bars]
    log = min(values) > 0 and max(values) / min(values) > WIDE_SPAN
    scale = scale_of([min(values) / 2, *values] if log else values, log)
    notes = max((_wide(_bar_note(bar)) for bar in bars), default=0.0)
    left = 36 + max(_wide(bar.name) for bar in bars)
    right = WIDTH - 36 - notes
    top = end + 18
    bottom = top + 30 * len(bars)

    def at(value: float) -> float:
        return left + scale.place(value) * (right - left)

    zero = at(scale.low if scale.log else 0.0)
    for tick in scale.ticks:
        body.append(_line(at(tick), top, at(tick), bottom, "grid"))
        body.append(_text(at(tick), bottom + 18, tick_text(tick), "soft num", "middle"))
    for number, bar in enumerate(bars):
        y = top + 30 * number
        start, stop = sorted((zero, at(bar.value)))
        name = "m0" if bar.ours else "m5"
        where = f'x="{start:.1f}" y="{y + 5:.1f}" width="{max(stop - start, 1):.1f}" height="20"'
        body.append(f'<rect class="{name}" {where}/>')
        body.append(_text(left - 10, y + 19.5, bar.name, anchor="end"))
        body.append(_text(stop + 8, y + 19.5, _bar_note(bar), "soft num over"))
    body.append(_line(zero, top, zero, bottom, "axis"))
    body.append(_text((left + right) / 2, bottom + 40, _axis_name(unit, scale), "soft", "middle"))
    return _svg(bottom + 56, title, bars_text(unit, bars), body)


def _bar_note(bar: Bar) -> str:
    value = tick_text(float(f"{bar.value:.3g}"))
    return f"{value} · {bar.note}" if bar.note else value


def bars_text(unit: str, bars: Sequence[Bar]) -> str:
    return f"{unit}. " + "; ".join(
        f"{bar.name}: {tick_text(float(f'{bar.value:.3g}'))}{f' ({bar.note})' if bar.note else ''}"
        for bar in bars
    )
