"""Quartz crons: what they mean, where clocks change, and what is said of a wrong one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.cron import EXPRESSION_MAX_CHARS, check_cron, next_time
from evermirror.errors import InvalidValue

BERLIN = ZoneInfo("Europe/Berlin")  # 2026: 29 March 2:00 → 3:00, 25 October 3:00 → 2:00
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # half an hour: 2026-04-05 2:00 → 1:30, 2026-10-04 2:00 → 2:30
SANTIAGO = ZoneInfo("America/Santiago")  # at midnight: 2026-09-06 0:00 → 1:00, 2026-04-05 0:00 → 23:00
SHANGHAI = ZoneInfo("Asia/Shanghai")


def at(text: str, zone=UTC) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def times(expression: str, start: str, zone, count: int) -> list[str]:
    """The next ones, as the clock on the wall shows them, with the distance to UTC."""
    now, shown = at(start, zone), []
    for _ in range(count):
        found = next_time(expression, now, zone)
        assert found is not None
        assert found > now
        now = found
        shown.append(f"{datetime.fromtimestamp(now, zone):%m-%d %H:%M:%S %z}"[:-2])
    return shown


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 * * * * ?", "2026-01-01T10:00:00", "2026-01-01T10:01:00"),  # the four of seed 003
        ("0 */5 * * * ?", "2026-01-01T10:03:17", "2026-01-01T10:05:00"),
        ("0 */10 * * * ?", "2026-01-01T10:50:00", "2026-01-01T11:00:00"),
        ("0 0 2 * * ?", "2026-01-01T02:00:00", "2026-01-02T02:00:00"),
        ("* * * * * ?", "2026-01-01T10:00:00.5", "2026-01-01T10:00:01"),
        ("*/20 * * * * *", "2026-01-01T10:00:41", "2026-01-01T10:01:00"),
        ("30 5/20 * * * ?", "2026-01-01T10:45:31", "2026-01-01T11:05:30"),
        ("0 0 9-17/4 ? * MON-FRI", "2026-01-02T17:00:00", "2026-01-05T09:00:00"),
        ("0 0 0 ? * 1", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),  # 1 is Sunday
        ("0 0 0 ? * 7", "2026-01-01T00:00:00", "2026-01-03T00:00:00"),
        ("0 0 0 ? * L", "2026-01-01T00:00:00", "2026-01-03T00:00:00"),  # of the week: Saturday
        ("0 0 0 * * fri", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("0 0 0 ? * 6L", "2026-01-01T00:00:00", "2026-01-30T00:00:00"),
        ("0 0 0 ? * FRIL", "2026-01-01T00:00:00", "2026-01-30T00:00:00"),
        ("0 0 0 ? * 6#3", "2026-01-01T00:00:00", "2026-01-16T00:00:00"),
        ("0 0 0 ? * MON#1,MON#3", "2026-01-05T00:00:00", "2026-01-19T00:00:00"),
        ("0 0 0 ? * SAT-MON", "2026-01-05T00:00:00", "2026-01-10T00:00:00"),
        ("0 0 0 L * ?", "2026-02-01T00:00:00", "2026-02-28T00:00:00"),
        ("0 0 0 LW * ?", "2026-02-01T00:00:00", "2026-02-27T00:00:00"),
        ("0 0 0 1,L * ?", "2026-01-02T00:00:00", "2026-01-31T00:00:00"),
        ("0 0 22-2/2 * * ?", "2026-01-01T22:00:00", "2026-01-02T00:00:00"),
        ("0 0 0 1 NOV-FEB ?", "2026-02-02T00:00:00", "2026-11-01T00:00:00"),
        ("0 0 0 29 2 ?", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 0 1 1 ? 2030", "2026-01-01T00:00:00", "2030-01-01T00:00:00"),
        ("0 0 0 1 1 ? 2026,2028-2030/2", "2026-01-01T00:00:00", "2028-01-01T00:00:00"),
        ("0 0 0 29 2 ? 2026-2099", "2032-03-01T00:00:00", "2036-02-29T00:00:00"),
        ("59 59 23 31 12 ? *", "2026-01-01T00:00:00", "2026-12-31T23:59:59"),
    ],
)
def test_the_next_time(expression: str, after: str, expected: str) -> None:
    found = next_time(expression, at(after), UTC)
    assert found is not None
    assert datetime.fromtimestamp(found, UTC) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


def test_it_is_the_zone_s_clock_that_counts() -> None:
    assert next_time("0 0 2 * * ?", at("2026-01-01T00:00:00"), SHANGHAI) == at("2026-01-01T18:00:00")


def test_a_year_that_is_over_never_comes_again() -> None:
    assert next_time("0 0 0 * * ? 2025", at("2026-01-01T00:00:00"), UTC) is None
    assert next_time("0 0 0 29 2 ? 2027,2028", at("2028-03-01T00:00:00"), UTC) is None


# Where clocks change


def test_a_time_that_is_shown_twice_comes_once() -> None:
    assert times("0 30 2 * * ?", "2026-10-24T12:00:00", BERLIN, 2) == [
        "10-25 02:30:00 +02",
        "10-26 02:30:00 +01",
    ]
    assert times("0 */30 1-2 * * ?", "2026-10-25T00:00:00", BERLIN, 5) == [
        "10-25 01:00:00 +02",
        "10-25 01:30:00 +02",
        "10-25 02:00:00 +02",
        "10-25 02:30:00 +02",
        "10-26 01:00:00 +01",
    ]


def test_who_starts_while_it_is_shown_again_waits_for_tomorrow() -> None:
    second = at("2026-10-25T00:30:00") + 1800.0  # 2:00 for the second time
    assert datetime.fromtimestamp(second, BERLIN).fold == 1
    assert next_time("0 30 2 * * ?", second, BERLIN) == at("2026-10-26T02:30:00", BERLIN)


def test_a_time_that_the_clock_jumps_over_comes_at_the_end_of_the_jump_once() -> None:
    assert times("0 30 2 * * ?", "2026-03-28T12:00:00", BERLIN, 2) == [
        "03-29 03:00:00 +02",
        "03-30 02:30:00 +02",
    ]
    assert times("15 */10 2 * * ?", "2026-03-29T00:00:00", BERLIN, 2)[0] == "03-29 03:00:00 +02"
    assert times("0 0 2,3 * * ?", "2026-03-29T00:00:00", BERLIN, 2) == [
        "03-29 03:00:00 +02",
        "03-30 02:00:00 +02",
    ]


def test_every_two_hours_is_neither_lost_nor_doubled() -> None:
    assert times("0 0 */2 * * ?", "2026-03-29T00:00:00", BERLIN, 2) == [
        "03-29 03:00:00 +02",
        "03-29 04:00:00 +02",
    ]
    assert times("0 0 */2 * * ?", "2026-10-25T00:00:00", BERLIN, 2) == [
        "10-25 02:00:00 +02",
        "10-25 04:00:00 +01",
    ]


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE, SANTIAGO])
@pytest.mark.parametrize("day", ["2026-03-28", "2026-04-04", "2026-09-05", "2026-10-03", "2026-10-24"])
def test_every_five_minutes_goes_on_all_night(zone, day: str) -> None:
    now = begin = at(f"{day}T20:00:00", zone)
    for _ in range(144):
        now = next_time("0 */5 * * * ?", now, zone)
    assert now == begin + 144 * 300.0


def test_half_an_hour_and_midnight_are_no_exception() -> None:
    assert times("0 15 2 * * ?", "2026-10-03T12:00:00", LORD_HOWE, 2) == [
        "10-04 02:30:00 +11",
        "10-05 02:15:00 +11",
    ]
    assert times("0 45 1 * * ?", "2026-04-04T12:00:00", LORD_HOWE, 2) == [
        "04-05 01:45:00 +11",
        "04-06 01:45:00 +10",
    ]
    assert times("0 0 0 * * ?", "2026-09-05T12:00:00", SANTIAGO, 2) == [
        "09-06 01:00:00 -03",
        "09-07 00:00:00 -03",
    ]
    assert times("0 30 23 * * ?", "2026-04-04T12:00:00", SANTIAGO, 2) == [
        "04-04 23:30:00 -03",
        "04-05 23:30:00 -04",
    ]


hours_of = st.sets(st.integers(0, 23), min_size=1, max_size=5)
minutes_of = st.sets(st.sampled_from([0, 5, 15, 30, 45, 59]), min_size=1, max_size=3)
nights = st.sampled_from(
    [
        (BERLIN, "2026-03-28T18:00:00"),
        (BERLIN, "2026-10-24T18:00:00"),
        (LORD_HOWE, "2026-04-04T18:00:00"),
        (LORD_HOWE, "2026-10-03T18:00:00"),
        (SANTIAGO, "2026-04-04T12:00:00"),
        (SANTIAGO, "2026-09-05T12:00:00"),
        (SHANGHAI, "2026-04-04T12:00:00"),
    ]
)


@settings(max_examples=150, deadline=None)
@given(hours_of, minutes_of, nights, st.integers(0, 24 * 60))
def test_it_is_what_one_sees_who_watches_the_clock(hours, minutes, night, late_min) -> None:
    """Minute by minute: a time that was not shown before, or that was jumped over in this minute."""
    zone, start = night
    begin = at(start, zone)
    expected, seen = [], set()
    for number in range(-1440, 3 * 1440):
        now = begin + 60.0 * number
        passed = [datetime.fromtimestamp(now, zone).replace(tzinfo=None)]
        while seen and passed[-1] - timedelta(minutes=1) not in seen:
            passed.append(passed[-1] - timedelta(minutes=1))
        fresh = [p for p in passed if p not in seen]
        seen.update(passed)
        if any(p.hour in hours and p.minute in minutes for p in fresh):
            expected.append(now)
    expression = f"0 {','.join(map(str, minutes))} {','.join(map(str, hours))} * * ?"
    now = begin + 60.0 * late_min
    for wanted in [t for t in expected if t > now]:
        found = next_time(expression, now, zone)
        assert found == wanted
        now = found


# Wrong ones


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "has 0 fields instead of 6 or 7 (seconds, minutes"),
        ("*/5 * * * *", "has 5 fields"),
        ("0 0 0 1 1 ? 2030 x", "has 8 fields"),
        ("60 * * * * ?", "'60' cannot be used for seconds (0-59, *, lists, ranges, steps such as */5)"),
        ("0 x * * * ?", "'x' cannot be used for minutes"),
        ("0 * 24 * * ?", "'24' cannot be used for hours"),
        ("0 0 0 0 * ?", "'0' cannot be used for day-of-month"),
        (
            "0 0 0 15W * ?",
            "'15W' cannot be used for day-of-month (1-31, *, lists, ranges, steps such as */5, ?, L, LW)",
        ),
        ("0 0 0 ? 13 *", "'13' cannot be used for month (1-12 or JAN-DEC"),
        ("0 0 0 ? * 0", "'0' cannot be used for day-of-week (1-7 or SUN-SAT"),
        ("0 0 0 ? * 8", "'8' cannot be used for day-of-week"),
        ("0 0 0 ? * 6#6", "'6#6' cannot be used for day-of-week"),
        ("0 0 0 ? * XL", "'XL' cannot be used for day-of-week"),
        ("0 0 0 1 1 ? 1969", "'1969' cannot be used for year"),
        ("0 0 0 1 1 ? 2030-2028", "'2030-2028' cannot be used for year"),
        ("0 */0 * * * ?", "'*/0' cannot be used for minutes"),
        ("0 */61 * * * ?", "'*/61' cannot be used for minutes"),
        ("0 1- * * * ?", "'1-' cannot be used for minutes"),
        ("0 ,5 * * * ?", "'' cannot be used for minutes"),
        ("0 -5 * * * ?", "'-5' cannot be used for minutes"),
        ("0 ٣ * * * ?", "cannot be used for minutes"),
        ("0 ? * * * ?", "'?' cannot be used for minutes"),
        ("0 0 0 ? * ?", "day-of-month and day-of-week cannot both be '?'"),
        ("0 0 0 13 * FRI", "day-of-month '13' and day-of-week 'FRI' cannot both be given"),
        ("0 0 0 31 2,4 ?", "never comes"),
        ("0 0 0 29 2 ? 2026,2027", "never comes"),
        ("0 " * EXPRESSION_MAX_CHARS, "is too long"),
    ],
)
def test_a_wrong_one_is_told_with_the_field_and_what_is_accepted(expression: str, said: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_cron(expression)
    assert said.lower() in caught.value.message.lower()
    assert caught.value.hint


@given(st.text(alphabet="0123456789*/-,?LW# MONJAN", max_size=40))
def test_any_text_is_either_understood_or_refused(text: str) -> None:
    try:
        check_cron(text)
    except InvalidValue:
        return
    assert next_time(text, at("2000-01-01T00:00:00"), UTC) is not None or len(text.split()) == 7
