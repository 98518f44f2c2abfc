"""What came of a run, and its JSON: written after each benchmark, read again for the page and to compare.

Derived figures stand in the file for those who read it with other tools; they are not read back.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import Curve, Found, Line, Sense, Series

RESULTS = Path(__file__).parents[1] / "results"
SCHEMA = 2
READ_BYTES_MAX = 20_000_000


class UnreadableError(ValueError):
    """A file that is no result of ours, or not of this version; its text says what to do."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of one benchmark; ``error`` where it did not run to its end."""

    name: str
    measures: str
    alternative: str
    found: tuple[Found, ...]
    took_s: float
    error: str = ""

    @property
    def lines(self) -> list[Line]:
        return [one for one in self.found if isinstance(one, Line)]

    @property
    def curves(self) -> list[Curve]:
        return [one for one in self.found if isinstance(one, Curve)]


@dataclass(frozen=True, slots=True)
class Record:
    """One run. It is whole where all benchmarks were asked for, in full size, and nobody stopped it."""

    at: datetime
    quick: bool
    whole: bool
    took_s: float
    machine: Mapping[str, object]
    benches: tuple[Ran, ...]

    @property
    def broken(self) -> list[Ran]:
        return [ran for ran in self.benches if ran.error]


def faults_of(found: Found) -> str:
    """What is wrong with what a benchmark handed over: it would make a figure that means nothing."""
    match found:
        case Line(what=what, ours=ours, theirs=theirs):
            if not ours:
                return f"“{what}” has no samples"
            if not all(math.isfinite(x) for x in (*ours, *theirs)):
                return f"“{what}” has samples that are no numbers"
        case Curve(title=title, series=series):
            points = [p for one in series for p in one.points]
            if not points:
                return f"the chart “{title}” has no points"
            if not all(math.isfinite(x) for p in points for x in p):
                return f"the chart “{title}” has points that are no numbers"
            if any(list(one.points) != sorted(one.points) for one in series):
                return f"the chart “{title}” has points that are not in ascending order"
    return ""


def text_of(record: Record) -> str:
    told = {
        "schema": SCHEMA,
        "at": record.at.isoformat(timespec="seconds"),
        "quick": record.quick,
        "whole": record.whole,
        "took_s": record.took_s,
        "machine": dict(record.machine),
        "benches": [_ran_json(ran) for ran in record.benches],
    }
    return json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write(record: Record, file: Path) -> None:
    """In one step, so that who stops us finds the last whole file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(text_of(record), "utf-8")
    os.replace(beside, file)


def read(file: Path) -> Record:
    try:
        if file.stat().st_size > READ_BYTES_MAX:
            raise UnreadableError(f"{file} is too large to be a result of ours")
        told = json.loads(file.read_text("utf-8"))
    except OSError as e:
        raise UnreadableError(f"{file} cannot be read: {e.strerror}; `make bench` writes one") from e
    except (ValueError, RecursionError) as e:
        if isinstance(e, UnreadableError):
            raise
        raise UnreadableError(
            f"{file} is not JSON ({e}): was its writing cut off? `make bench` writes one"
        ) from e
    if not isinstance(told, dict) or "benches" not in told:
        raise UnreadableError(f"{file} is not a result of `make bench`: it has no benches")
    if told.get("schema") != SCHEMA:
        raise UnreadableError(
            f"{file} is of schema {told.get('schema', 1)}, this reads {SCHEMA}:"
            " measure again with `make bench`"
        )
    try:
        return _record(told)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise UnreadableError(f"{file} is damaged: {_fault(e)}; `make bench` writes a new one") from e


def _fault(e: Exception) -> str:
    return f"{e} is missing" if isinstance(e, KeyError) else str(e)


def _short(x: float) -> float:
    """Six digits: more than any of this is worth."""
    return float(f"{x:.6g}")


def _ran_json(ran: Ran) -> dict[str, object]:
    return {
        "name": ran.name,
        "measures": ran.measures,
        "alternative": ran.alternative,
        "took_s": ran.took_s,
        "error": ran.error,
        "lines": [_line_json(line) for line in ran.lines],
        "curves": [_curve_json(curve) for curve in ran.curves],
    }


def _line_json(line: Line) -> dict[str, object]:
    return {
        "what": line.what,
        "unit": line.unit,
        "ours": [_short(x) for x in line.ours],
        "theirs": [_short(x) for x in line.theirs],
        "sense": line.sense.name,
        "goal": None if line.goal is None else float(line.goal),
        "against": line.against,
        "promise": line.promise,
        "limit": line.limit,
        "figure": _short(line.figure) if math.isfinite(line.figure) else None,
        "met": line.met,
    }


def _curve_json(curve: Curve) -> dict[str, object]:
    return {
        "title": curve.title,
        "x": curve.x,
        "y": curve.y,
        "log_x": curve.log_x,
        "log_y": curve.log_y,
        "says": curve.says,
        "promise": curve.promise,
        "series": [
            {"name": one.name, "points": [[_short(x), _short(y)] for x, y in one.points]}
            for one in curve.series
        ],
    }


def _record(told: dict[str, object]) -> Record:
    at = datetime.fromisoformat(_text(told["at"]))
    return Record(
        at=at if at.tzinfo else at.replace(tzinfo=UTC),
        quick=_truth(told["quick"]),
        whole=_truth(told["whole"]),
        took_s=_number(told["took_s"]),
        machine=_map(told["machine"]),
        benches=tuple(_ran(_map(one)) for one in _list(told["benches"])),
    )


def _ran(told: Mapping[str, object]) -> Ran:
    lines = [_line(_map(one)) for one in _list(told["lines"])]
    curves = [_curve(_map(one)) for one in _list(told["curves"])]
    ran = Ran(
        name=_text(told["name"]),
        measures=_text(told["measures"]),
        alternative=_text(told["alternative"]),
        found=(*lines, *curves),
        took_s=_number(told["took_s"]),
        error=_text(told["error"]),
    )
    if fault := next(filter(None, map(faults_of, ran.found)), ""):
        raise ValueError(f"in {ran.name}, {fault}")
    return ran


def _line(told: Mapping[str, object]) -> Line:
    goal = told["goal"]
    return Line(
        what=_text(told["what"]),
        unit=_text(told["unit"]),
        ours=_numbers(told["ours"]),
        theirs=_numbers(told["theirs"]),
        sense=Sense[_text(told["sense"])],
        goal=None if goal is None else _number(goal),
        against=_text(told["against"]),
        promise=_text(told["promise"]),
        limit=_text(told["limit"]),
    )


def _curve(told: Mapping[str, object]) -> Curve:
    return Curve(
        title=_text(told["title"]),
        x=_text(told["x"]),
        y=_text(told["y"]),
        series=tuple(_series(_map(one)) for one in _list(told["series"])),
        log_x=_truth(told["log_x"]),
        log_y=_truth(told["log_y"]),
        says=_text(told["says"]),
        promise=_text(told["promise"]),
    )


def _series(told: Mapping[str, object]) -> Series:
    points = [_numbers(point) for point in _list(told["points"])]
    return Series(_text(told["name"]), tuple((x, y) for x, y in points))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} should be text")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.60} should be true or false")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.60} should be a number")
    return float(value)


def _numbers(value: object) -> tuple[float, ...]:
    return tuple(_number(one) for one in _list(value))


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} should be a list")
    return value


def _map(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.60} should be an object")
    return value
