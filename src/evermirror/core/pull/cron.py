"""When a Quartz cron expression comes next: six fields, or seven with a year.

    seconds  minutes  hours  day-of-month  month  day-of-week  [year]
    0        */5      *      *             *      ?

Days of the week are 1 (SUN) to 7 (SAT). One of the two day fields says nothing: ``?``, or ``*`` as other
programs write it. ``cronsim`` finds the times; the words are read here, because it counts days from 0 and
knows neither ``?`` nor years.

Where clocks change:

- An expression for every hour goes by real time: every five minutes stays every five minutes, all night.
- Any other goes by the clock on the wall. A time that the clock jumps over comes at the jump's end, once; a
  time that the clock shows twice comes the first time only.

cronsim would do the second by itself only where there are no seconds, so it is asked for times without a
zone, and they are placed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from cronsim import CronSim, CronSimError

from evermirror.errors import InvalidValue

EXPRESSION_MAX_CHARS = 500  # no real one is longer
CRON_FORM = 'a Quartz cron expression such as "0 */10 * * * ?" (seconds first)'

_MINUTE = timedelta(minutes=1)
_NOTHING = frozenset({"?", "*"})
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_WEEKS = 5  # a weekday comes at most so often in a month


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()  # for low, low + 1, …
    more: str = ""  # what else it takes, in words

    @property
    def form(self) -> str:
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{names}, *, lists, ranges, steps such as */5{self.more}"


_SECONDS = _Field("seconds", 0, 59)
_MINUTES = _Field("minutes", 0, 59)
_HOURS = _Field("hours", 0, 23)
_DAY_OF_MONTH = _Field("day-of-month", 1, 31, more=", ?, L, LW")
_MONTH = _Field("month", 1, 12, _MONTHS)
_DAY_OF_WEEK = _Field("day-of-week", 1, 7, _DAYS, more=", ?, L, 6L (the last Friday), 6#3 (the third)")
_YEAR = _Field("year", 1970, 2099)


@dataclass(frozen=True, slots=True)
class _Cron:
    """``fields`` as cronsim reads them. ``years``: empty for all."""

    fields: str
    every_hour: bool
    years: tuple[int, ...]


def check_cron(expression: str) -> str:
    """The expression as it is; raises InvalidValue with what is wrong, where, and what is accepted."""
    _read(expression)
    return expression


def next_time(expression: str, after_utc_s: float, zone: tzinfo) -> float | None:
    """The first time after ``after_utc_s``, in UTC seconds; None: there is none any more."""
    cron = _read(expression)
    if not cron.years:
        return _next(cron, after_utc_s, zone)
    this_year = datetime.fromtimestamp(after_utc_s, zone).year
    for year in cron.years:
        if year >= this_year:
            begin_s = datetime(year, 1, 1, tzinfo=zone).timestamp() - 1
            found_s = _next(cron, max(after_utc_s, begin_s), zone)
            if found_s is not None and datetime.fromtimestamp(found_s, zone).year == year:
                return found_s
    return None


def _next(cron: _Cron, after_utc_s: float, zone: tzinfo) -> float | None:
    start = datetime.fromtimestamp(after_utc_s, zone)
    if cron.every_hour:
        found = next(CronSim(cron.fields, start), None)
        return None if found is None else found.timestamp()
    for wall in CronSim(cron.fields, start.replace(tzinfo=None, fold=0)):
        placed_s = _place(wall, zone)
        if placed_s > after_utc_s:  # else this hour is shown for the second time, and it has been
            return placed_s
    return None


def _place(wall: datetime, zone: tzinfo) -> float:
    """When the clock first shows this; where it jumps over it, when the jump ends."""
    shown = wall.replace(tzinfo=zone, fold=0)
    while shown.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall:
        wall = wall.replace(second=0) + _MINUTE
        shown = wall.replace(tzinfo=zone, fold=0)
    return shown.timestamp()


# Reading


@lru_cache(maxsize=64)
def _read(expression: str) -> _Cron:
    if len(expression) > EXPRESSION_MAX_CHARS:
        raise InvalidValue(
            f"a cron expression of {len(expression)} characters is too long", hint=f"Write {CRON_FORM}"
        )
    words = expression.upper().split()
    if len(words) not in (6, 7):
        raise InvalidValue(
            f"{expression!r} has {len(words)} fields instead of 6 or 7 (seconds, minutes, hours, "
            "day-of-month, month, day-of-week, and perhaps a year)",
            hint=f"Write {CRON_FORM}",
        )
    seconds, minutes, hours, day, month, weekday, *year = words
    cron = _Cron(
        fields=" ".join(
            (
                _listed(_SECONDS, seconds, expression),
                _listed(_MINUTES, minutes, expression),
                _listed(_HOURS, hours, expression),
                *_days(day, month, weekday, expression),
            )
        ),
        every_hour=len(_values(_HOURS, hours, expression)) == _HOURS.high + 1,
        years=tuple(sorted(_values(_YEAR, year[0], expression))) if year and year[0] != "*" else (),
    )
    _must_come(cron, expression)
    return cron


def _must_come(cron: _Cron, expression: str) -> None:
    """There are months without a 31st, and years without a 29 February."""
    never = InvalidValue(f"{expression!r} never comes: there is no such day", hint=f"Write {CRON_FORM}")
    years = cron.years or (2000,)
    try:
        starts = (CronSim(cron.fields, datetime(year, 1, 1) - timedelta(seconds=1)) for year in years)
        found = ((next(start, None), year) for start, year in zip(starts, years, strict=True))
        if not any(time is not None and (not cron.years or time.year == year) for time, year in found):
            raise never
    except CronSimError:
        raise never from None


def _days(day: str, month: str, weekday: str, expression: str) -> tuple[str, str, str]:
    months = _listed(_MONTH, month, expression)
    if day == weekday == "?":
        raise InvalidValue(
            f"{expression!r}: day-of-month and day-of-week cannot both be '?'",
            hint="Write '*' for one of them",
        )
    if weekday in _NOTHING:
        return _days_of_month(day, expression), months, "*"
    if day in _NOTHING:
        return "*", months, _days_of_week(weekday, expression)
    raise InvalidValue(
        f"{expression!r}: day-of-month {day!r} and day-of-week {weekday!r} cannot both be given",
        hint="Write '?' for the one that does not matter",
    )


def _days_of_month(word: str, expression: str) -> str:
    if word == "?":
        return "*"
    parts = word.split(",")
    terms = [p if p in ("L", "LW") else _listed(_DAY_OF_MONTH, p, expression) for p in parts]
    return "*" if "*" in terms else ",".join(terms)


def _days_of_week(word: str, expression: str) -> str:
    """cronsim's days are one lower."""
    terms = []
    for part in word.split(","):
        name, hash_sign, week = part.partition("#")
        if hash_sign:
            if week not in map(str, range(1, _WEEKS + 1)):
                raise _bad(_DAY_OF_WEEK, part, expression)
            terms.append(f"{_value(_DAY_OF_WEEK, name, part, expression) - 1}#{week}")
        elif part == "L":
            terms.append(str(_DAY_OF_WEEK.high - 1))
        elif part.endswith("L"):
            terms.append(f"{_value(_DAY_OF_WEEK, part[:-1], part, expression) - 1}L")
        else:
            terms += [str(value - 1) for value in sorted(_part(_DAY_OF_WEEK, part, expression))]
    return ",".join(terms)


def _listed(field: _Field, word: str, expression: str) -> str:
    values = _values(field, word, expression)
    if len(values) == field.high - field.low + 1:
        return "*"
    return ",".join(map(str, sorted(values)))


def _values(field: _Field, word: str, expression: str) -> frozenset[int]:
    return frozenset(value for part in word.split(",") for value in _part(field, part, expression))


def _part(field: _Field, part: str, expression: str) -> list[int]:
    """One member of a list: ``*``, ``5``, ``5-10``, ``*/5``, ``5/10`` (from 5 on), ``5-20/3``. A range may go
    over the end: ``22-2``, ``FRI-MON``."""
    base, slash, step_word = part.partition("/")
    first, dash, last = base.partition("-")
    whole = range(field.low, field.high + 1)
    if base == "*":
        values = list(whole)
    elif dash:
        begin, end = _value(field, first, part, expression), _value(field, last, part, expression)
        over = [] if begin <= end or field is _YEAR else list(range(field.low, end + 1))
        values = list(range(begin, (field.high if over else end) + 1)) + over
    else:
        begin = _value(field, base, part, expression)
        values = list(range(begin, (field.high if slash else begin) + 1))
    step = _number(step_word) if slash else 1
    if step is None or not 1 <= step <= len(whole) or not values:
        raise _bad(field, part, expression)
    return values[::step]


def _value(field: _Field, word: str, part: str, expression: str) -> int:
    if word in field.names:
        return field.names.index(word) + field.low
    value = _number(word)
    if value is None or not field.low <= value <= field.high:
        raise _bad(field, part, expression)
    return value


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 4 else None


def _bad(field: _Field, part: str, expression: str) -> InvalidValue:
    return InvalidValue(
        f"{expression!r}: {part!r} cannot be used for {field.name} ({field.form})", hint=f"Write {CRON_FORM}"
    )
