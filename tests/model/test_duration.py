"""Durations, sizes and rates: what is read, what is refused, and that both ways agree."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.errors import InvalidValue, UsageError
from evermirror.model.duration import (
    DURATION_MAX_S,
    SIZE_MAX_BYTES,
    TOOK_MAX_S,
    format_duration,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
    took_s,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("30d", 2_592_000.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5h", 5400.0),
        ("90m", 5400.0),
        ("0", 0.0),
        ("0.0", 0.0),
        ("0s", 0.0),
        ("1ms", 0.001),
    ],
)
def test_a_duration_is_read_as_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "5.0", "-5s", "+5s", "5 s", " 5s", "5s ", "5S", "5x", "s", "m", "30m1h", "1h1h", "1e3s", "nan",
     "inf", ".5s",
     "5.s", "٥s", "５s", "0x5s", "5s\n", "1_000s", "none", "1w", "100000d", "9" * 63 + "s", "9" * 5000 + "s"],
)  # fmt: skip
def test_anything_else_is_refused_and_the_accepted_form_is_told(text):
    with pytest.raises(InvalidValue) as refused:
        parse_duration(text)
    assert refused.value.hint
    assert len(str(refused.value)) < 200


def test_a_bare_number_is_refused_because_its_unit_is_unknown():
    with pytest.raises(InvalidValue, match=r"'30' is not a duration\. Write a duration such as 500ms"):
        parse_duration("30")


def test_refusals_are_usage_errors_and_value_errors():
    with pytest.raises(UsageError):
        parse_size("x")
    with pytest.raises(ValueError, match="is not a size"):
        parse_size("x")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (90, "1m30s"),
        (5400, "1h30m"),
        (86400, "1d"),
        (1.25, "1s250ms"),
        (-5, "-5s"),
    ],
)
def test_a_duration_is_written_shortly(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_what_is_no_duration_is_not_written_as_one(seconds):
    with pytest.raises(ValueError, match="is not a duration"):
        format_duration(seconds)


@given(st.integers(min_value=0, max_value=int(DURATION_MAX_S) * 1000))
def test_a_duration_written_is_read_back_to_the_millisecond(ms):
    assert round(parse_duration(format_duration(ms / 1000)) * 1000) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1234", 1234),
        ("10B", 10),
        ("10GB", 10 * 10**9),
        ("10gb", 10 * 10**9),
        ("512MiB", 512 * 2**20),
        ("1.5kB", 1500),
        ("0.1GB", 10**8),
        ("1 TB", 10**12),
        ("2PiB", 2 * 2**50),
        ("10G", 10 * 10**9),
        ("1KiB", 1024),
    ],
)
def test_a_size_is_read_as_bytes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "-1", "GB", "1XB", "1 0", "1e9", "nan", "١GB", "10000PB", "1EB", "9" * 64, "1GB\n", "1iB"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InvalidValue):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (999, "999B"), (1000, "1kB"), (1500, "1.5kB"), (999_600, "1MB"), (123_456_789, "123MB"),
     (-2000, "-2kB"),
     (10**9, "1GB"), (99_960_000_000, "100GB"), (10**19, "10000PB")],
)  # fmt: skip
def test_a_size_is_written_for_people(size, text):
    assert format_size(size) == text


@given(st.integers(min_value=0, max_value=SIZE_MAX_BYTES))
def test_a_size_written_is_read_back_within_five_percent(size):
    text = format_size(size)
    if not text.endswith("PB"):
        assert parse_size(text) == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("5/s", 5.0), ("300/m", 5.0), ("3600/h", 1.0), ("0.5", 0.5), ("7", 7.0), ("5.0", 5.0)],
)
def test_a_rate_is_read_as_events_a_second(text, per_second):
    assert parse_rate(text) == per_second


@pytest.mark.parametrize(
    "text", ["", "0", "0/s", "-1/s", "5/d", "5/", "/s", "5 /s", "nan", "inf", "5/S", "9" * 65]
)
def test_what_is_no_rate_is_refused(text):
    with pytest.raises(InvalidValue):
        parse_rate(text)


@given(st.text(max_size=80))
def test_no_text_breaks_the_parsers(text):
    for parse in (parse_duration, parse_size, parse_rate):
        with contextlib.suppress(InvalidValue):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("started", "ended", "took"),
    [
        (1.0, 3.5, 2.5),
        (3.0, 1.0, 0.0),
        (-1.7e308, 1.7e308, 0.0),
        (0.0, 1.7e308, TOOK_MAX_S),
        (math.nan, 1.0, 0.0),
    ],
)
def test_a_time_that_another_tells_is_never_more_than_a_number(started, ended, took):
    assert took_s(started, ended) == took
