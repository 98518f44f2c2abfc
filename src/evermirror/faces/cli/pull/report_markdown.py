"""A report as Markdown: tables, and bars of block characters; names in it can be no links, images or tags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from evermirror.faces.cli.pull.common import PRIORITIES
from evermirror.faces.cli.pull.report_data import Sheet
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

BAR_CHARS = 20
LINE_CHARS = 56  # of a course drawn in one line
_BLOCKS = " ▁▂▃▄▅▆▇█"
_ACTIVE = re.compile(r"[\\`*_{}\[\]<>#|~&@$^]|:(?=//)")


def markdown_report(sheet: Sheet, words: Words, made: float) -> str:
    dates = [day.date for day in sheet.by_day] or ["", ""]
    parts = [
        f"# {plain(words('title'))}",
        f"**{plain(words('period', begin=dates[0], end=dates[-1]))}**",
        plain(period_note(sheet, words, made)),
        f"## {plain(words('by_day'))}",
        _days_bars(sheet, words),
        _table(days_table(sheet, words)),
        f"## {plain(words('by_class'))}",
        _table(classes_table(sheet, words)),
        plain(words("lag_note")),
        *_lags(sheet, words),
        f"## {plain(words('errors'))}",
        *_errors(sheet, words),
        f"## {plain(words('pressure'))}",
        *_pressure(sheet, words),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: str) -> str:
    """Text that means nothing but itself; an address is no link."""
    return _ACTIVE.sub(r"\\\g<0>", text).replace("www.", r"www\.")


def _table(table: Table) -> str:
    barred = bool(table.weights)
    columns = [plain(text) for text in table.columns] + ([""] if barred else [])
    marks = [
        ":---" if n == 0 or n in table.words or n >= len(table.columns) else "---:"
        for n in range(len(columns))
    ]
    lines = [columns, marks]
    for number, row in enumerate(table.rows):
        strong = number >= len(table.rows) - table.totals
        cells = [f"**{plain(text)}**" if strong and text else plain(text) for text in row]
        lines.append(cells + ([bar(table.weights[number])] if barred else []))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bar(weight: float) -> str:
    """``████``; something is never nothing."""
    return "█" * max(1, round(min(1.0, weight) * BAR_CHARS)) if weight > 0 else ""


def course_line(values: Sequence[float | None]) -> str:
    """``▁▂▅█▃``: the greatest of each stretch, and a space where nothing is known."""
    if not values:
        return ""
    size = -(-len(values) // LINE_CHARS)
    chunks = [[v for v in values[i : i + size] if v is not None] for i in range(0, len(values), size)]
    most = max((max(chunk) for chunk in chunks if chunk), default=0.0)
    return "".join(
        _BLOCKS[max(1, round(8 * max(chunk) / most))] if chunk and most > 0 else "▁" if chunk else " "
        for chunk in chunks
    )


def _days_bars(sheet: Sheet, words: Words) -> str:
    """In a block of code, where columns stay below one another."""
    most = max((day.tasks.tasks for day in sheet.by_day), default=0)
    lines = []
    for day in sheet.by_day:
        tasks = day.tasks
        share = tasks.tasks / most if most else 0.0
        failed = f"  {words('failed')} {words.count(tasks.failed)}" if tasks.failed else ""
        lines.append(f"{_code(day.date)}  {bar(share):<{BAR_CHARS}}  {words.count(tasks.tasks)}{failed}")
    return "\n".join(["```text", *lines, "```"]) if lines else ""


def _code(text: str) -> str:
    """Nothing in it ends the block."""
    return text.replace("`", "'")


def _lags(sheet: Sheet, words: Words) -> Iterator[str]:
    told = {name: [point.lag_s.get(name) for point in sheet.course] for name in PRIORITIES}
    lines = [
        f"{name:<9} {course_line(values)}  {words('peak', peak=words.span(_most(values)))}"
        for name, values in told.items()
        if _most(values) is not None
    ]
    if lines:
        yield "\n".join(["```text", *lines, "```"])


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _errors(sheet: Sheet, words: Words) -> Iterator[str]:
    if not sheet.errors:
        yield plain(words("no_errors"))
        return
    yield _table(errors_table(sheet, words))
    if sheet.failing:
        yield f"### {plain(words('top_failing'))}"
        yield _table(failing_table(sheet, words))


def _pressure(sheet: Sheet, words: Words) -> Iterator[str]:
    from rich.cells import cell_len, set_cell_size  # a Chinese letter is two columns wide

    if not sheet.pressure.notes:
        yield plain(words("no_notes"))
        return
    rows = (
        ("looks_chart", [point.looks_per_hour for point in sheet.course]),
        ("running", [point.running for point in sheet.course]),
        ("limit", [point.limit for point in sheet.course]),
    )
    wide = max(cell_len(words(name)) for name, _ in rows)
    lines = []
    for name, values in rows:
        peak = words("peak", peak=words.count(_most(values)))
        lines.append(f"{set_cell_size(words(name), wide)}  {course_line(values)}  {peak}")
    yield "\n".join(["```text", *lines, "```"])
    yield _table(pressure_table(sheet, words))
