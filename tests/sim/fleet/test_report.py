"""The picture of a study: well-formed whatever its texts, complete, and readable on both grounds."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.sim.fleet import report
from evermirror.sim.fleet.question import Change, Study
from evermirror.sim.fleet.report import WIDTH, Line, Mark, Panel, Picture, draw, nice_ticks
from evermirror.sim.fleet.study import run

NS = "{http://www.w3.org/2000/svg}"
WILD = '<script>alert("1")</script> & \x1b[31m ]]> \ufffe \u202e'


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 (our own)


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in parsed(svg).iter(f"{NS}text")]


def picture(text: str = "plain", values: tuple[float, ...] = (0.0, 5.0, 2.0)) -> Picture:
    times = tuple(60.0 * i for i in range(len(values)))
    panels = (Panel(text, (Line(text, values),)), Panel("share", (Line("x", values),), percent=True))
    return Picture(text, text, ((text, text),), (text,), times, panels, (Mark(0.0, text),), ((0.0, 60.0),))


def test_texts_are_escaped_and_what_a_terminal_obeys_is_gone():
    svg = draw(picture(WILD))
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert any(line.startswith('<script>alert("1")</script> & ') for line in texts(svg))


@given(st.text(), st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
def test_every_picture_is_well_formed_and_without_numbers_that_are_none(text, values):
    svg = draw(picture(text, tuple(values)))
    parsed(svg)
    assert not re.search(
        r"\b(nan|inf)\b", re.sub(r"<text.*?</text>|<title>.*?</title>|aria-label=\"[^\"]*\"", "", svg)
    )


def test_it_stands_alone_and_serves_light_and_dark():
    svg = draw(picture())
    assert "prefers-color-scheme: dark" in svg
    assert not re.search(r"href|url\(|@import|<image|<script", svg)
    assert re.findall(r"https?://[^\"\s]+", svg) == ["http://www.w3.org/2000/svg"]


def test_a_panel_in_which_nothing_happened_says_so():
    assert texts(draw(picture(values=(0.0, 0.0)))).count("nothing at all") == 2


def test_lines_stay_inside_the_picture():
    svg = draw(picture(values=(3.0, 7.0, 0.0, 7.0)))
    height = float(parsed(svg).attrib["height"])
    paths = [node.attrib["d"] for node in parsed(svg).iter(f"{NS}path")]
    for path in paths:
        for x, y in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", path):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= height


def test_marks_that_come_at_once_lie_in_rows_of_their_own():
    marks = tuple(Mark(at, f"something at {at}") for at in (0.0, 1.0, 2.0, 3600.0))
    shown = Picture("t", "a", (), (), (0.0, 3600.0), (), marks)
    at = {node.text: float(node.attrib["y"]) for node in parsed(draw(shown)).iter(f"{NS}text")}
    rows = [at[mark.text] for mark in marks]
    assert len(set(rows[:3])) == 3
    assert rows[3] == rows[0]


@given(st.floats(0, 1e6), st.floats(0.001, 1e9), st.integers(2, 12))
def test_ticks_are_round_few_and_reach_over_both_ends(low, width, about):
    ticks = nice_ticks(low, low + width, about)
    slack = 1e-6 * (low + width) + 1e-9
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + width - slack
    assert 2 <= len(ticks) <= about + 3
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(
    ("change", "mark"), [(Change.LOSE, "7 lost"), (Change.JOIN, "7 joined"), (Change.DRAIN, "7 drained")]
)
def test_the_picture_of_a_study_has_title_legend_marks_and_figures(change, mark):
    study = Study(workers=10, repos=100, change=change, count=7, mean_mb=5.0)
    found = run(study)
    shown = texts(draw(report.picture(study, found)))
    legend = {"owned", "held", "workers alive", "asked for", "from upstream", "through the relay"}
    assert {report.title(study), report.asked(study), mark, "minutes after the change", *legend} <= set(shown)
    assert {value for name, value in report.figures(study, found) if name == "moved"} <= set(shown)
    assert ("brake on" in shown) == (change is Change.LOSE)
    assert (' class="brake"' in draw(report.picture(study, found))) == (change is Change.LOSE)
