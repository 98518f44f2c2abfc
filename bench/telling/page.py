"""The page docs/benchmarks.md: the machine, the promises, charts, and every line of every benchmark.

Written whole from one record, so that it can be made again from the JSON beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Line
from bench.telling.charts import Bar, bars_svg, bars_text, curve_svg, curve_text
from bench.telling.facts import BUSY_LOAD, machine_text
from bench.telling.results import Ran, Record, read, write
from bench.telling.table import (
    against_text,
    figure_text,
    goal_text,
    ratio_text,
    spread_text,
    unit_and_time,
)
from bench.telling.verdicts import State, Verdict, goals_of, summary, verdict_text, verdicts

DOCS = Path(__file__).parents[2] / "docs"
PAGE, DATA, IMAGES = "benchmarks.md", "benchmarks.json", "images"
BARS_MIN = 2  # alternatives that make a chart worth looking at
NAME_MAX = 60
READING = (
    "Each figure is measured beside its alternative, in turn, in the same run; the median counts, and ± is"
    " half the distance from the smallest to the largest sample. CPU is user and system time of all processes"
    " of that side; servers that both sides ask are in nobody's figures. Every sample is in"
    f" [{DATA}]({DATA}). Measure it yourself with `make bench`; `make bench-check` then compares with this"
    " page. Where the time goes, and what the limits are: [performance.md](performance.md)."
)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn figure and what is said about it."""

    bench: str
    title: str
    svg: str
    alt: str
    says: str = ""

    @property
    def file(self) -> str:
        name = re.sub(r"[^a-z0-9]+", "-", f"{self.bench} {self.title}".lower()).strip("-")
        return f"bench-{name[:NAME_MAX].strip('-')}.svg"


def write_page(record: Record, folder: Path) -> Path:
    """The page, its charts and its JSON below ``folder``; charts of earlier pages go.

    It is made from what was written, so that it is the same when it is made again from that.
    """
    write(record, folder / DATA)
    record = read(folder / DATA)
    images = folder / IMAGES
    images.mkdir(exist_ok=True)
    drawn = _with_own_names(charts(record))
    for old in images.glob("bench-*.svg"):
        if old.name not in drawn:
            old.unlink()
    for name, chart in drawn.items():
        _put(images / name, chart.svg)
    _put(folder / PAGE, page_text(record, drawn))
    return folder / PAGE


def _put(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(text, "utf-8")
    os.replace(beside, file)


def _with_own_names(found: Sequence[Chart]) -> dict[str, Chart]:
    named: dict[str, Chart] = {}
    for chart in found:
        name, number = chart.file, 2
        while name in named:
            name, number = f"{chart.file.removesuffix('.svg')}-{number}.svg", number + 1
        named[name] = chart
    return named


def charts(record: Record) -> list[Chart]:
    found = []
    for ran in record.benches:
        found += [
            Chart(ran.name, curve.title, curve_svg(curve), curve_text(curve), curve.says)
            for curve in ran.curves
        ]
        for lines in _side_by_side(ran):
            bars, (first, *_) = _bars(lines), lines
            title, unit = f"{first.what[:1].upper()}{first.what[1:]} ({first.unit})", first.unit
            found.append(Chart(ran.name, title, bars_svg(title, unit, bars), bars_text(unit, bars)))
    return found


def _side_by_side(ran: Ran) -> list[list[Line]]:
    """Lines about one thing that are measured against several alternatives."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in ran.lines:
        if line.theirs and line.against:
            groups.setdefault((line.what, line.unit), []).append(line)
    return [lines for lines in groups.values() if len({x.against for x in lines}) >= BARS_MIN]


def _bars(lines: Sequence[Line]) -> list[Bar]:
    ours = lines[0].ours_median
    theirs = [(line.theirs_median or 0.0, line.against, f"ours {ratio_text(line)}") for line in lines]
    return [
        Bar("evermirror", ours, ours=True),
        *(Bar(name, value, note) for value, name, note in sorted(theirs)),
    ]


def page_text(record: Record, drawn: dict[str, Chart]) -> str:
    found = verdicts(record)
    parts = [
        "# Benchmarks",
        "<!-- Written by `make bench`; edit bench/telling/page.py instead. -->",
        _head(record),
        *_cautions(record),
        f"**{summary(found)}** {READING}",
        "## What was promised",
        _promises_table(found),
        *_limits(found),
        "## Charts",
        *(part for name, chart in drawn.items() for part in _chart_parts(name, chart)),
        "## Each benchmark",
        *(part for ran in record.benches for part in _bench_parts(ran)),
    ]
    return "\n\n".join(parts) + "\n"


def _head(record: Record) -> str:
    facts = record.machine
    versions = ", ".join(
        f"{name} {facts[key]}"
        for name, key in (("", "system"), ("kernel", "kernel"), ("Python", "python"), ("git", "git"))
        if facts.get(key)
    ).strip()
    return (
        f"Measured on {record.at:%Y-%m-%d} at {record.at:%H:%M} UTC, evermirror {facts.get('evermirror')},"
        f" commit {facts.get('commit') or 'unknown'}, in {record.took_s / 60:.0f} min on"
        f" {machine_text(facts)}"
        f" ({versions}, {facts.get('openssl')}); load before: {facts.get('load_before')}."
    )


def _cautions(record: Record) -> Iterator[str]:
    load = record.machine.get("load_before")
    if record.quick:
        yield "> Sizes were tiny (`--quick`): these figures say nothing about speed."
    if not record.whole:
        yield "> Not all benchmarks were run, or not in full."
    if isinstance(load, int | float) and load > BUSY_LOAD:
        yield f"> The machine was busy before (load {load:.1f}): trust these figures less."
    for ran in record.broken:
        yield f"> {ran.name} did not run to its end: {_cell(ran.error)}"


def _cell(text: str) -> str:
    """Text inside of a table: on one line, and without what Markdown would take for its own."""
    escaped = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return " ".join(re.sub(r"([*_`\[\]])", r"\\\1", escaped).split())


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _table(head: Sequence[str], aligned: str, rows: Sequence[Sequence[str]]) -> str:
    rule = ["--:" if a == "r" else "---" for a in aligned]
    return "\n".join([_row(head), _row(rule), *map(_row, rows)])


def _ours(line: Line) -> str:
    return _amount(line.ours_median, line.ours, line.unit)


def _theirs(ran: Ran, line: Line) -> str:
    if line.theirs_median is None:
        return ""
    return f"{_amount(line.theirs_median, line.theirs, line.unit)}, {_cell(against_text(ran, line))}"


def _amount(median: float, samples: tuple[float, ...], unit: str) -> str:
    return " ".join(filter(None, (figure_text(median), _cell(unit), spread_text(samples))))


def _promises_table(found: Sequence[Verdict]) -> str:
    head = ("promise", "by", "measured by", "goal", "figure", "evermirror", "alternative", "")
    return _table(head, "lllrrlll", [row for v in found for row in _promise_rows(v)])


def _promise_rows(verdict: Verdict) -> Iterator[list[str]]:
    promise, ran = verdict.promise, verdict.ran
    measured_by = promise.bench if ran is None else f"[{promise.bench}](#{promise.bench})"
    told = [_cell(promise.says), promise.source, measured_by]
    if not verdict.lines or ran is None:
        shown = "the chart below" if verdict.curves else ""
        yield [*told, "", shown, "", "", verdict.state.value]
        return
    for line in verdict.lines:
        yield [
            *told,
            goal_text(line, *(() if (goal := verdict.goal(line)) is None else (goal,))),
            ratio_text(line),
            f"{_cell(line.what)}: {_ours(line)}",
            _theirs(ran, line),
            _state_text(verdict.state_of(line)),
        ]
        told = ["″", "", ""]


def _state_text(state: State) -> str:
    return f"**{state.value}**" if state is State.MISSED else state.value


def _limits(found: Sequence[Verdict]) -> Iterator[str]:
    missed = [v for v in found if v.state is State.MISSED]
    if missed:
        yield "Missed, and what stands in the way:"
        yield "\n".join(f"- {_cell(v.promise.says)}: {_cell(v.limit or 'not known yet')}." for v in missed)


def _chart_parts(name: str, chart: Chart) -> Iterator[str]:
    alt = chart.alt.replace("[", "(").replace("]", ")").replace("\n", " ")
    yield f"![{_cell(chart.title)}. {_cell(alt)}]({IMAGES}/{name})"
    if chart.says:
        yield f"{_cell(chart.says)} (`make bench BENCH={chart.bench}`)"


def _bench_parts(ran: Ran) -> Iterator[str]:
    yield f"### {ran.name}"
    yield (
        f"{_sentence(_cell(ran.measures))} Against: {_cell(ran.alternative)}. Took {ran.took_s:.0f} s;"
        f" again: `make bench BENCH={ran.name}`."
    )
    if ran.error:
        yield f"It did not run to its end: {_cell(ran.error)}"
    if ran.lines:
        head = ("what", "unit", "time", "evermirror", "±", "alternative", "±", "which", "figure", "goal", "")
        yield _table(head, "lllrrrrlrrl", [_line_row(ran, line) for line in ran.lines])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _line_row(ran: Ran, line: Line) -> list[str]:
    unit, time = unit_and_time(line.unit)
    return [
        _cell(line.what),
        _cell(unit),
        time,
        figure_text(line.ours_median),
        spread_text(line.ours),
        figure_text(line.theirs_median) if line.theirs else "",
        spread_text(line.theirs),
        _cell(line.against) if line.theirs else "",
        ratio_text(line),
        goal_text(line, *goals_of(line)),
        verdict_text(line).replace(State.MISSED.value, f"**{State.MISSED.value}**"),
    ]
