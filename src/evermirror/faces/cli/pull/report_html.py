"""A report as one HTML file: no script, no other host, light and dark, for a screen, a phone or a printer."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from evermirror.faces.cli.output import NOTHING
from evermirror.faces.cli.pull.common import PRIORITIES
from evermirror.faces.cli.pull.report_data import Sheet
from evermirror.faces.cli.pull.report_svg import days_chart, lag_chart, limits_chart, looks_chart
from evermirror.faces.cli.pull.report_tables import (
    Table,
    classes_table,
    days_table,
    errors_table,
    failing_table,
    period_note,
    pressure_table,
)
from evermirror.faces.cli.pull.report_words import Words

POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # in the file itself, wherever it is opened
_BAR_WIDTH = 120

_STYLE = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #1c2430; --soft: #5d6878;
  --line: #e1e5eb; --changed: #3a6fd0; --same: #c3cedd; --failed: #cf4a41; --area: #3a6fd0;
  --limit: #1c2430; --high: #f3c9c4; }
@media (prefers-color-scheme: dark) { :root { --paper: #12161c; --card: #1a2029; --ink: #e6eaf0;
  --soft: #98a3b3; --line: #2c3542; --changed: #6b9bf0; --same: #46536a; --failed: #e8756c; --area: #6b9bf0;
  --limit: #e6eaf0; --high: #5d2c2a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "Noto Sans CJK SC", "PingFang SC",
    "Microsoft YaHei", sans-serif; }
main { max-width: 940px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 0 0 12px; }
h3 { font-size: 13px; font-weight: 600; color: var(--soft); margin: 20px 0 4px; }
.when { font-size: 17px; margin: 0; }
.note { color: var(--soft); font-size: 13px; margin: 6px 0 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px;
  margin-top: 20px; }
.cards { display: grid; grid-template-columns: repeat(3, 1fr); gap: 12px; margin-top: 22px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.card span, .card small { display: block; color: var(--soft); font-size: 13px; }
.card b { display: block; font-size: 26px; line-height: 1.3; font-weight: 650; letter-spacing: -0.01em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 12.5px; vertical-align: bottom; }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
td:last-child, th:last-child { padding-right: 0; }
.number { text-align: right; white-space: nowrap; }
.total td { font-weight: 650; }
td.name { white-space: nowrap; }
.names td.name { white-space: normal; overflow-wrap: anywhere; min-width: 150px; }
.number + .word { padding-left: 12px; }
td.mark { width: 120px; }
svg { display: block; width: 100%; height: auto; }
.chart { overflow-x: auto; margin-bottom: 10px; }
.small { display: grid; grid-template-columns: repeat(2, 1fr); gap: 6px 20px; margin-top: 14px; }
.small h3 { margin: 8px 0 2px; }
text { font: 11px system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif; fill: var(--soft); }
.tick { text-anchor: end; } .day { text-anchor: middle; }
.grid { stroke: var(--line); stroke-width: 1; }
.changed { fill: var(--changed); } .same { fill: var(--same); } .failed { fill: var(--failed); }
.so-far { opacity: 0.65; }
.area { fill: var(--area); fill-opacity: 0.28; stroke: var(--area); stroke-width: 1.2; }
.limit { fill: none; stroke: var(--limit); stroke-width: 1.6; }
.high-load { fill: var(--high); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 2px 0 14px; padding: 0; list-style: none;
  color: var(--soft); font-size: 13px; }
.legend svg { display: inline-block; width: 12px; height: 12px; margin-right: 6px; vertical-align: -1px; }
@media (max-width: 640px) { main { padding: 20px 12px 40px; } section { padding: 14px; }
  .cards { grid-template-columns: repeat(2, 1fr); gap: 8px; } .card { padding: 10px 12px; }
  .card b { font-size: 21px; } .small { grid-template-columns: 1fr; } .chart svg { min-width: 560px; }
  .small svg { min-width: 0; } h1 { font-size: 22px; } td.mark { display: none; } th.mark { display: none; } }
@media print { :root { --paper: #fff; --card: #fff; --ink: #111; --soft: #444; --line: #ccc;
  --changed: #3a6fd0; --same: #c3cedd; --failed: #cf4a41; --area: #3a6fd0; --limit: #111; --high: #f3c9c4; }
  body { font-size: 12px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { max-width: none; padding: 0; } section { border: 0; padding: 0; }
  .card, .chart, .small div, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .wide, .chart { overflow: visible; } }
"""


def html_report(sheet: Sheet, words: Words, made: float) -> str:
    """The whole file. Every text of the answer is escaped."""
    body = "\n".join(
        [
            *_head(sheet, words, made),
            _section(words("by_day"), *_days(sheet, words)),
            _section(words("by_class"), *_classes(sheet, words)),
            _section(words("errors"), *_errors(sheet, words)),
            _section(words("pressure"), *_pressure(sheet, words)),
        ]
    )
    language = {"zh": "zh-CN"}.get(words.language, words.language)
    return (
        f'<!DOCTYPE html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(_title(sheet, words))}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _title(sheet: Sheet, words: Words) -> str:
    return f"{words('title')}: {_period(sheet, words)}"


def _period(sheet: Sheet, words: Words) -> str:
    dates = [day.date for day in sheet.by_day] or ["", ""]
    return words("period", begin=dates[0], end=dates[-1])


def _head(sheet: Sheet, words: Words, made: float) -> Iterator[str]:
    note = period_note(sheet, words, made)
    yield f"<h1>{escape(words('title'))}</h1>"
    yield f'<p class="when">{escape(_period(sheet, words))}</p><p class="note">{escape(note)}</p>'
    yield f'<div class="cards">{"".join(_cards(sheet, words))}</div>'


def _cards(sheet: Sheet, words: Words) -> Iterator[str]:
    every, told = sheet.overall, sheet.pressure
    tasks = every.tasks
    cards = (
        (
            "success_rate",
            words.share(tasks.rate),
            words("failed_of", failed=words.count(tasks.failed), tasks=words.count(tasks.tasks)),
        ),
        ("lag", words.span(every.lag_average_s), words("worst", worst=words.span(every.lag_worst_s))),
        ("equal", words.share(every.equal), words("every_target")),
        (
            "projects_in_time",
            words.count(every.synced),
            words(
                "of_projects",
                projects=words.count(every.projects),
                late=words.count(every.pending),
                failing=words.count(every.failing),
            ),
        ),
        (
            "syncs",
            words.count(tasks.tasks),
            words("moved", success=words.count(tasks.success), commits=words.count(tasks.changes)),
        ),
        (
            "looks_per_hour",
            words.count(told.looks_per_hour) if told.notes else NOTHING,
            words("peak", peak=words.count(told.looks_per_hour_max) if told.notes else NOTHING),
        ),
    )
    for name, value, below in cards:
        yield (
            f'<div class="card"><span>{escape(words(name))}</span><b>{escape(value)}</b>'
            f"<small>{escape(below)}</small></div>"
        )


def _section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{''.join(parts)}\n</section>"


def _days(sheet: Sheet, words: Words) -> Iterator[str]:
    yield _chart(days_chart(sheet, words))
    yield _legend(("changed", words("changed")), ("same", words("unchanged")), ("failed", words("failed")))
    yield _table(days_table(sheet, words))


def _classes(sheet: Sheet, words: Words) -> Iterator[str]:
    yield _table(classes_table(sheet, words))
    yield f'<p class="note">{escape(words("lag_note"))}</p>'
    charts = (
        f"<div><h3>{escape(words('lag_chart', name=words(name)))}</h3>{lag_chart(sheet, words, name)}</div>"
        for name in PRIORITIES
        if any(point.lag_s.get(name) is not None for point in sheet.course)
    )
    yield f'<div class="small">{"".join(charts)}</div>'


def _errors(sheet: Sheet, words: Words) -> Iterator[str]:
    if not sheet.errors:
        yield f'<p class="note">{escape(words("no_errors"))}</p>'
        return
    yield _table(errors_table(sheet, words))
    if sheet.failing:
        yield f"<h3>{escape(words('top_failing'))}</h3>"
        yield _table(failing_table(sheet, words))


def _pressure(sheet: Sheet, words: Words) -> Iterator[str]:
    if not sheet.pressure.notes:
        yield f'<p class="note">{escape(words("no_notes"))}</p>'
        return
    yield f"<h3>{escape(words('limit_chart'))}</h3>{_chart(limits_chart(sheet, words))}"
    legend = [("area", words("running")), ("limit-line", words("limit"))]
    if sheet.pressure.load_high:
        legend.append(("high-load", words("load_high")))
    yield _legend(*legend)
    yield f"<h3>{escape(words('looks_chart'))}</h3>{_chart(looks_chart(sheet, words))}"
    yield _table(pressure_table(sheet, words))


def _chart(svg: str) -> str:
    return f'<div class="chart">{svg}</div>'


def _legend(*entries: tuple[str, str]) -> str:
    def mark(kind: str) -> str:
        if kind == "limit-line":
            return '<path class="limit" d="M0 6 H12"/>'
        return f'<rect class="{kind}" width="12" height="12"/>'

    items = (
        f'<li><svg viewBox="0 0 12 12" aria-hidden="true">{mark(kind)}</svg>{escape(text)}</li>'
        for kind, text in entries
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _table(table: Table) -> str:
    def kind(column: int) -> str:
        return "name" if column == 0 else "word" if column in table.words else "number"

    barred = bool(table.weights)
    heads = [f'<th class="{kind(n)}">{escape(text)}</th>' for n, text in enumerate(table.columns)]
    if barred:
        heads.insert(1, '<th class="mark"></th>')
    rows = []
    for number, row in enumerate(table.rows):
        cells = [f'<td class="{kind(n)}">{escape(text)}</td>' for n, text in enumerate(row)]
        if barred:
            cells.insert(1, f'<td class="mark">{_bar(table.weights[number])}</td>')
        total = ' class="total"' if number >= len(table.rows) - table.totals else ""
        rows.append(f"<tr{total}>{''.join(cells)}</tr>")
    names = ' class="names"' if table.words else ""
    return (
        f'<div class="wide"><table{names}><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _bar(weight: float) -> str:
    return (
        f'<svg viewBox="0 0 {_BAR_WIDTH} 10" aria-hidden="true">'
        f'<rect class="failed" width="{max(2.0, weight * _BAR_WIDTH):.1f}" height="10" rx="2"/></svg>'
    )
