"""Peak and night by the clock on the wall: across midnight, in any zone, where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.window import Windows, is_within
from evermirror.model.pull import Strategy
from tests.core.pull.small import HOUR, SHANGHAI

BERLIN, CHATHAM, APIA = (ZoneInfo(n) for n in ("Europe/Berlin", "Pacific/Chatham", "Pacific/Apia"))


def at(text, zone=SHANGHAI, fold=0):
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def windows(start, end, zone=SHANGHAI, night=(None, None)):
    strategy = Strategy(
        peak_avoidance=True, peak_start=start, peak_end=end, night_start=night[0], night_end=night[1]
    )
    return Windows(strategy, zone)


@pytest.mark.parametrize(
    ("start", "end", "inside", "outside"),
    [
        (9, 18, [9, 12, 17], [0, 8, 18, 23]),
        (22, 6, [22, 23, 0, 5], [6, 12, 21]),
        (0, 24, range(24), []),
        (7, 7, [], range(24)),
        (23, 0, [23], [0, 22]),
    ],
)
def test_a_window_goes_from_its_start_to_before_its_end(start, end, inside, outside):
    assert all(is_within(start, end, hour) for hour in inside)
    assert not any(is_within(start, end, hour) for hour in outside)


def test_it_says_when_the_peak_ends_and_when_the_next_begins():
    peak = windows(9, 18)
    now = peak.at(at("2026-11-16T12:34:56"))
    assert now.in_peak
    assert now.until == at("2026-11-16T18:00")
    later = peak.at(at("2026-11-16T18:00"))
    assert not later.in_peak
    assert later.until == at("2026-11-17T09:00")


def test_a_window_crosses_midnight():
    peak = windows(22, 6)
    assert peak.at(at("2026-11-16T23:30")).until == at("2026-11-17T06:00")
    assert peak.at(at("2026-11-17T00:30")).in_peak
    assert not peak.at(at("2026-11-17T06:00")).in_peak


def test_the_night_is_a_window_of_its_own():
    both = windows(9, 18, night=(22, 6))
    evening = both.at(at("2026-11-16T19:00"))
    assert (evening.in_peak, evening.at_night, evening.until) == (False, False, at("2026-11-16T22:00"))
    night = both.at(at("2026-11-16T22:00"))
    assert (night.in_peak, night.at_night, night.until) == (False, True, at("2026-11-17T06:00"))


def test_the_zone_is_what_counts():
    noon_utc = datetime(2026, 7, 1, 6, tzinfo=UTC).timestamp()
    assert windows(9, 18, SHANGHAI).at(noon_utc).in_peak  # 14:00
    assert not windows(9, 18, BERLIN).at(noon_utc).in_peak  # 8:00


def test_a_peak_on_the_day_that_clocks_go_forward_begins_at_its_hour():
    before = windows(9, 18, BERLIN).at(at("2026-03-29T01:30", BERLIN))
    assert before.until == at("2026-03-29T09:00", BERLIN)
    assert before.until - at("2026-03-29T01:30", BERLIN) == 6.5 * HOUR  # an hour was left out


def test_a_window_whose_first_hour_is_left_out_begins_where_the_clock_jumps():
    window = windows(2, 5, BERLIN).at(at("2026-03-29T01:30", BERLIN))
    assert not window.in_peak
    assert window.until == at("2026-03-29T03:00", BERLIN)


def test_an_hour_that_comes_twice_belongs_to_the_window_twice():
    window = windows(2, 3, BERLIN)
    opened = window.at(at("2026-10-25T01:59", BERLIN)).until
    assert opened == at("2026-10-25T02:00", BERLIN, fold=0)
    assert window.at(opened).until - opened == 2 * HOUR


def test_a_zone_that_changes_at_a_quarter_to_the_hour():
    # On Chatham 2:45 becomes 3:45: the window that begins at 3 opens then.
    assert windows(3, 6, CHATHAM).at(at("2026-09-27T02:30", CHATHAM)).until == at("2026-09-27T03:45", CHATHAM)


def test_a_day_that_was_left_out():
    # On Apia Friday, 30 December 2011, did not exist.
    window = windows(9, 18, APIA).at(at("2011-12-29T18:00", APIA))
    assert window.until == at("2011-12-31T09:00", APIA)


def test_without_peak_avoidance_nothing_ever_changes():
    hours = Windows(Strategy(), SHANGHAI).at(at("2026-11-16T12:00"))
    assert (hours.in_peak, hours.at_night, hours.until) == (False, False, float("inf"))


@pytest.mark.parametrize(("start", "end", "always"), [(0, 24, True), (5, 5, False)])
def test_a_window_that_never_opens_or_closes_is_looked_at_again_some_day(start, end, always):
    noon = at("2026-11-16T12:00")
    hours = windows(start, end).at(noon)
    assert hours.in_peak is always
    assert noon + 24 * HOUR < hours.until < noon + 100 * HOUR


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 23),
    st.integers(0, 24),
    st.sampled_from(
        ["Asia/Shanghai", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"]
    ),
    st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)),
)
def test_what_is_said_holds_until_the_time_that_is_said_and_no_longer(start, end, zone_name, when):
    """The dumb twin looks at every minute."""
    zone = ZoneInfo(zone_name)
    window = windows(start, end, zone)
    now = when.replace(tzinfo=UTC).timestamp()
    hours = window.at(now)
    minute = (now // 60) * 60
    changes = (
        m
        for m in (minute + 60 * n for n in range(1, 60 * 26))
        if is_within(start, end, datetime.fromtimestamp(m, zone).hour) != hours.in_peak
    )
    first = next(changes, None)
    if first is None:
        assert hours.until > now + timedelta(hours=25).total_seconds()
    else:
        assert hours.until == first


def test_asking_about_the_past_is_answered_for_the_past():
    window = windows(9, 18)
    assert not window.at(at("2026-11-16T20:00")).in_peak
    assert window.at(at("2026-11-16T12:00")).in_peak
