"""Axes and charts: all that is drawn lies inside, is told in words too, and is the same each time."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import Curve, Series
from bench.telling.charts import SERIES, WIDTH, Bar, bars_svg, curve_svg
from bench.telling.scale import TICKS_MAX, scale_of, tick_text
from tests.bench.records import CURVE

SVG = "{http://www.w3.org/2000/svg}"
positive = st.floats(1e-9, 1e12)
numbers = st.floats(-1e12, 1e12).filter(lambda x: x == 0 or abs(x) > 1e-9)


@given(st.lists(numbers, min_size=1), st.booleans())
def test_every_value_lies_on_its_axis_between_few_ascending_ticks(values, log):
    scale = scale_of(values, log)
    assert all(-1e-9 <= scale.place(v) <= 1 + 1e-9 for v in values)
    assert list(scale.ticks) == sorted(set(scale.ticks))
    assert 2 <= len(scale.ticks) <= TICKS_MAX + 3
    assert all(-1e-9 <= scale.place(t) <= 1 + 1e-9 for t in scale.ticks)
    assert scale.log == (log and min(values) > 0)


@given(st.lists(positive, min_size=2))
def test_a_larger_value_lies_further(values):
    for log in (False, True):
        scale = scale_of(values, log)
        places = [scale.place(v) for v in sorted(values)]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ([100, 1_000_000], True, "100 1k 10k 100k 1M"),
        ([3, 40], True, "2 5 10 20 50"),
        ([0.02, 900], True, "0.1 1 10 100 1k"),
        ([1e-6, 1e9], True, "1e-06 0.001 1 1k 1M 1G"),
        ([0, 245], False, "0 50 100 150 200 250"),
        ([7], False, "0 2 4 6 8"),
        ([-3, 4], False, "-4 -2 0 2 4"),
        ([0], False, "0 0.2 0.4 0.6 0.8 1"),
        ([5, 5], True, "5 10"),
    ],
)
def test_ticks_are_round(values, log, ticks):
    assert " ".join(map(tick_text, scale_of(values, log).ticks)) == ticks


def drawn(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)  # noqa: S314 (ours)
    height = float(root.attrib["height"])
    for element in root.iter():
        for name in ("x", "x1", "x2", "cx"):
            assert 0 <= float(element.attrib.get(name, 0)) <= WIDTH, element.attrib
        for name in ("y", "y1", "y2", "cy"):
            assert 0 <= float(element.attrib.get(name, 0)) <= height, element.attrib
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [t.text or "" for t in root.iter(f"{SVG}text")]


def test_a_curve_has_its_axes_its_legend_and_words_for_who_does_not_see_it():
    root = drawn(curve_svg(CURVE))
    shown = texts(root)
    assert CURVE.title in shown
    assert "repos (logarithmic)" in shown
    assert "µs CPU (logarithmic)" in shown
    assert {"poll", "queue", "100", "1M"} <= set(shown)
    assert root.find(f"{SVG}title").text == CURVE.title
    said = root.find(f"{SVG}desc").text
    assert "poll: 110 at 100 to 120 at 1M" in said
    assert CURVE.says in said
    assert root.attrib["aria-labelledby"] == "title desc"


def test_a_curve_is_the_same_each_time_and_asks_nobody():
    assert curve_svg(CURVE) == curve_svg(CURVE)
    outside = re.findall(r"(?:href|src|url)\s*[=(]|https?://", curve_svg(CURVE))
    assert outside == ["http://"]  # the namespace
    assert "prefers-color-scheme:dark" in curve_svg(CURVE)


def test_each_series_differs_by_colour_and_by_dashes_and_many_are_bounded():
    assert len({light for light, _, _ in SERIES}) == len({dashes for _, _, dashes in SERIES}) == len(SERIES)
    many = tuple(Series(f"a rule with a long name, number {n}", ((0.0, n), (1.0, n))) for n in range(12))
    assert len(texts(drawn(curve_svg(Curve("many", "x", "y", many))))) > 12


@pytest.mark.parametrize("kind", ["light", "dark"])
def test_what_is_drawn_can_be_told_from_its_ground(kind):
    """Contrast as WCAG counts it: 4.5 for text, 3 for graphics."""
    ground = {"light": "#ffffff", "dark": "#0d1117"}[kind]
    for colours in SERIES:
        assert contrast(colours[kind == "dark"], ground) >= 4.5


def contrast(a: str, b: str) -> float:
    lights = sorted(map(luminance, (a, b)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_bars_say_their_values_and_hostile_names_stay_text():
    bars = [Bar("evermirror", 0.1, ours=True), Bar("<script>&", 35.0, "350 ×less")]
    root = drawn(bars_svg("a < b", "ms CPU", bars))
    assert {"evermirror", "<script>&", "0.1", "35 · 350 ×less", "ms CPU (logarithmic)"} <= set(texts(root))
    ours, theirs = (r for r in root.iter(f"{SVG}rect") if r.attrib["class"] != "ground")
    assert ours.attrib["class"] != theirs.attrib["class"]
    assert float(ours.attrib["width"]) < float(theirs.attrib["width"])


@given(st.lists(numbers, min_size=1, max_size=8))
def test_bars_of_any_values_lie_inside(values):
    assert drawn(bars_svg("t", "MB", [Bar(f"n{i}", v) for i, v in enumerate(values)])) is not None


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_curves_of_any_points_lie_inside(points, log_x, log_y):
    curve = Curve("t", "x", "y", (Series("s", tuple(sorted(points))),), log_x, log_y)
    svg = curve_svg(curve)
    assert math.isfinite(float(drawn(svg).attrib["height"]))
    assert not re.search(r"nan|inf", svg.partition("</style>")[2])
