"""The tables of a report, and of which days it is: the same rows for every form that it is written in."""

from __future__ import annotations

from dataclasses import dataclass

from evermirror.faces.cli.pull.report_data import Class, Sheet
from evermirror.faces.cli.pull.report_words import Words


@dataclass(frozen=True, slots=True)
class Table:
    """Texts as they come: whoever writes them makes them harmless. ``words``: columns that are no figures,
    beside the first. ``weights``: for each row how long its bar is, from 0 to 1; empty: there are no bars.
    ``totals``: so many of the last rows are sums."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset()
    weights: tuple[float, ...] = ()
    totals: int = 0


def period_note(sheet: Sheet, words: Words, made: float) -> str:
    """Of which days it is, and what is special about them."""
    note = words("period_note", days=sheet.days, zone=sheet.time_zone, made=words.moment(made))
    return f"{note} {words('clocks_note')}" if sheet.clocks_changed else note


def days_table(sheet: Sheet, words: Words) -> Table:
    told = [(day.date, day.tasks) for day in sheet.by_day]
    if told:
        told[-1] = (words("so_far", date=told[-1][0]), told[-1][1])
    told.append((words("total"), sheet.overall.tasks))
    return Table(
        tuple(
            words(n) for n in ("day", "syncs", "changed", "unchanged", "failed", "success_rate", "commits")
        ),
        tuple(
            (
                name,
                words.count(tasks.tasks),
                words.count(tasks.success),
                words.count(tasks.skipped),
                words.count(tasks.failed),
                words.share(tasks.rate),
                words.count(tasks.changes),
            )
            for name, tasks in told
        ),
        totals=1,
    )


def classes_table(sheet: Sheet, words: Words) -> Table:
    columns = (
        "class", "projects", "in_time", "late", "failing", "syncs", "failed", "success_rate", "lag_average",
        "lag_worst", "equal",
    )  # fmt: skip
    rows = tuple(_class_row(one, words) for one in (*sheet.classes, sheet.overall))
    return Table(tuple(words(name) for name in columns), rows, totals=1)


def _class_row(one: Class, words: Words) -> tuple[str, ...]:
    counts = (one.projects, one.synced, one.pending, one.failing, one.tasks.tasks, one.tasks.failed)
    return (
        words(one.name),
        *(words.count(count) for count in counts),
        words.share(one.tasks.rate),
        words.span(one.lag_average_s),
        words.span(one.lag_worst_s),
        words.share(one.equal),
    )


def errors_table(sheet: Sheet, words: Words) -> Table:
    most = max((kind.count for kind in sheet.errors), default=0)
    return Table(
        tuple(words(name) for name in ("type", "count", "hit")),
        tuple((kind.name, words.count(kind.count), words.count(kind.projects)) for kind in sheet.errors),
        weights=tuple(kind.count / most if most else 0.0 for kind in sheet.errors),
    )


def failing_table(sheet: Sheet, words: Words) -> Table:
    most = max((one.errors for one in sheet.failing), default=0)
    return Table(
        tuple(words(name) for name in ("project", "count", "mostly", "in_a_row")),
        tuple(
            (
                one.name,
                words.count(one.errors),
                one.kind,
                f"{one.in_a_row} ({words('paused')})" if one.paused else words.count(one.in_a_row),
            )
            for one in sheet.failing
        ),
        words=frozenset({2}),
        weights=tuple(one.errors / most if most else 0.0 for one in sheet.failing),
    )


def pressure_table(sheet: Sheet, words: Words) -> Table:
    told = sheet.pressure
    above = words.share(told.above_limit)
    if told.above_limit:
        above += f" ({words('above_limit_note')})"
    load = words("unknown")
    if told.load_level in ("high", "normal", "low"):
        load = words(f"level_{told.load_level}") + (f": {told.load_reason}" if told.load_reason else "")
    rows = (
        (
            words("looks"),
            words(
                "looks_value",
                looks=words.count(told.looks),
                average=words.count(told.looks_per_hour),
                peak=words.count(told.looks_per_hour_max),
            ),
        ),
        (
            words("source_time"),
            words(
                "source_time_value",
                time=words.span(told.source_s),
                connections=f"{told.connections:.2g}",
            ),
        ),
        (words("received"), words.size(told.received_bytes)),
        (
            words("limits"),
            words.count(told.limit_min)
            if told.limit_min == told.limit_max
            else words("range", least=words.count(told.limit_min), most=words.count(told.limit_max)),
        ),
        (
            words("at_once"),
            words(
                "at_once_value",
                average=words.count(told.running_average),
                most=words.count(told.running_max),
            ),
        ),
        (words("above_limit"), above),
        (words("at_limit"), words.share(told.at_limit)),
        (words("load_share"), words.share(told.load_high)),
        (words("load_now"), load),
    )
    return Table((words("figure"), words("value")), rows, words=frozenset({1}))
