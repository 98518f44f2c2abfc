"""Reports from what was counted: days, spread runs, steps, shares."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.watch.report import STEPS_MAX, report_of, span_of
from evermirror.model.figures import ClassProgress
from evermirror.model.pull import Load, LoadLevel
from evermirror.model.repo import Priority, RepoKey
from evermirror.model.report import (
    DAY_S,
    DAYS_MAX,
    EndedRuns,
    EndedTasks,
    ReportFacts,
    StepLag,
    StepPressure,
)
from evermirror.model.task import TaskId, TaskRecord, TaskStatus, Trigger
from tests.support.plain_counts import period_of

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
NORMAL, HIGH = Priority.NORMAL, Priority.HIGH
SUCCESS, FAILED, SKIPPED = TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.SKIPPED
NONE = {priority: ClassProgress(0, 0, 0, 0, 0, 0, None) for priority in Priority}


def made(facts, days=3, now=NOON, zone=UTC, progress=None, load=None):
    return report_of(facts, span_of(now, days, zone), progress or NONE, load, zone, str(zone))


# The time


def test_a_report_is_of_whole_days_and_of_today_so_far():
    span = span_of(NOON, 7, UTC)
    assert span.begin == datetime(2026, 11, 9, tzinfo=UTC).timestamp()
    assert (span.end, span.days) == (NOON, 8)
    assert made(ReportFacts(), days=7).dates[::7] == ("2026-11-09", "2026-11-16")


def test_days_begin_at_midnight_in_the_zone_of_the_settings():
    shanghai = ZoneInfo("Asia/Shanghai")
    span = span_of(datetime(2026, 11, 15, 17, tzinfo=UTC).timestamp(), 1, shanghai)  # 1 in the morning, there
    assert span.begin == datetime(2026, 11, 15, tzinfo=shanghai).timestamp()
    assert made(ReportFacts(), 1, span.end, shanghai).dates == ("2026-11-15", "2026-11-16")


@pytest.mark.parametrize("days", [0, -1, DAYS_MAX + 1])
def test_days_are_bounded(days):
    with pytest.raises(ValueError, match="1 to 366"):
        span_of(NOON, days, UTC)


@given(
    st.floats(1e6, 4e9),
    st.integers(1, DAYS_MAX),
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia"]),
)
def test_every_report_has_a_point_for_each_step_and_a_date_for_each_day(now, days, zone):
    zone = ZoneInfo(zone)
    report = made(ReportFacts(), days, now, zone)
    assert len(report.by_day) == len(report.dates) == days + 1
    assert len(set(report.dates)) == days + 1
    assert report.dates[-1] == datetime.fromtimestamp(now, zone).date().isoformat()
    assert 0 < len(report.course) <= STEPS_MAX + 1
    assert report.course[0].begin == report.span.begin
    assert report.course[-1].end == report.span.end
    assert all(a.end == b.begin for a, b in zip(report.course, report.course[1:], strict=False))
    assert all(point.end > point.begin for point in report.course)


def test_today_may_have_25_hours():
    berlin = ZoneInfo("Europe/Berlin")
    late = datetime(2026, 10, 25, 23, 30, tzinfo=berlin).timestamp()  # clocks went back at night
    day = int((late - span_of(late, 1, berlin).begin) // DAY_S)
    assert day == 2  # 24.5 hours after midnight
    report = made(ReportFacts(tasks=(EndedTasks(day, NORMAL, SUCCESS, 4, 9),)), 1, late, berlin)
    assert [period.success for period in report.by_day] == [0, 4]
    assert report.overall.period.changes == 9


# Tasks


def test_tasks_are_told_by_day_by_class_and_in_all():
    facts = ReportFacts(
        tasks=(
            EndedTasks(0, NORMAL, SUCCESS, 5, 12),
            EndedTasks(0, HIGH, FAILED, 2, 0),
            EndedTasks(3, HIGH, SUCCESS, 1, 3),
        )
    )
    report = made(facts)
    assert [(p.tasks, p.failed, p.changes) for p in report.by_day] == [
        (7, 2, 12),
        (0, 0, 0),
        (0, 0, 0),
        (1, 0, 3),
    ]
    assert report.by_priority[HIGH].period.tasks == 3
    assert report.by_priority[Priority.LOW].period.tasks == 0
    assert (report.overall.period.tasks, report.overall.period.success) == (8, 6)
    assert report.by_day[0].end == report.by_day[1].begin
    assert report.by_day[-1].end == NOON


def run(first_s, last_s, looks, span):
    """As the store adds one up."""
    rate = looks / (last_s - first_s) if last_s > first_s else 0.0
    return EndedRuns(
        first_day=-1 if first_s < 0 else int(first_s // DAY_S),
        last_day=int(last_s // DAY_S),
        priority=NORMAL,
        status=SKIPPED,
        looks=looks,
        looks_a_second=rate,
        looks_by_beginning=rate * first_s,
    )


def test_a_run_is_spread_over_the_days_it_reached():
    span = span_of(NOON, 3, UTC)
    facts = ReportFacts(runs=(run(0.75 * DAY_S, 2.5 * DAY_S, 175, span),))
    assert [p.skipped for p in made(facts).by_day] == [25, 100, 50, 0]


def test_of_a_run_that_began_earlier_only_its_share_counts():
    span = span_of(NOON, 3, UTC)
    facts = ReportFacts(runs=(run(-2 * DAY_S, 1 * DAY_S, 300, span),))
    assert [p.skipped for p in made(facts).by_day] == [100, 0, 0, 0]


ENDS = st.floats(-5 * DAY_S, 3.5 * DAY_S - 1)


@given(st.lists(st.tuples(ENDS, ENDS, st.integers(2, 5000)), max_size=8))
def test_runs_are_spread_as_the_plain_version_counts_them(runs):
    span = span_of(NOON, 3, UTC)
    runs = [(min(a, b), max(a, b), looks) for a, b, looks in runs if max(a, b) >= 0 and abs(a - b) > 1]
    report = made(ReportFacts(runs=tuple(run(*one, span) for one in runs)))
    tasks = [
        TaskRecord(
            TaskId(n), RepoKey("a/b"), SKIPPED, Trigger.SCHEDULE,
            created_at=span.begin + a, completed_at=span.begin + b, folded=looks - 1,
        )
        for n, (a, b, looks) in enumerate(runs)
    ]  # fmt: skip
    for day in report.by_day:
        assert abs(day.skipped - period_of(tasks, day.begin, day.end).skipped) <= 1


# The course


def pressure(step, **more):
    told = {
        "notes": 12, "limit": 5.0, "running": 2.0, "queued": 0.0, "limit_min": 5, "limit_max": 5,
        "running_max": 4, "above_limit": 0, "at_limit": 3, "load_known": 12, "load_high": 0, "load_low": 6,
        "looks": 60, "source_s": 36.0, "received_bytes": 1000,
    }  # fmt: skip
    return StepPressure(step, **{**told, **more})


def test_pressure_is_summed_and_shares_are_of_the_notes():
    steps = (
        pressure(0),
        pressure(1, running=4.0, running_max=9, limit_min=2, above_limit=6, load_high=12, looks=600),
    )
    load = Load(LoadLevel.HIGH, "cpu 91 %")
    found = made(ReportFacts(pressure=steps), load=load).pressure
    assert (found.looks, found.source_s, found.received_bytes) == (660, 72.0, 2000)
    assert (found.looks_per_hour, found.looks_per_hour_max) == (330.0, 600.0)
    assert found.source_average == pytest.approx(0.01)
    assert (found.limit_min, found.limit_max, found.running_max, found.running_average) == (2, 5, 9, 3.0)
    assert (found.above_limit_share, found.at_limit_share) == (0.25, 0.25)
    assert (found.load_known_share, found.load_high_share, found.load) == (1.0, 0.5, load)


def test_without_notes_nothing_is_claimed():
    report = made(ReportFacts())
    assert report.pressure.limit_min is None
    assert report.pressure.above_limit_share is None
    assert report.pressure.load_high_share is None
    assert report.overall.lag_average_s is None
    assert all(point.pressure is None and point.looks_per_hour is None for point in report.course)


def test_a_step_that_has_just_begun_makes_no_peak():
    now = NOON + 5.0
    report = made(ReportFacts(pressure=(pressure(3 * 24 + 12, looks=100),)), now=now)
    assert report.course[-1].looks_per_hour == 400.0


def test_lag_is_by_class_and_weighed_by_projects():
    lags = (
        StepLag(0, HIGH, 60.0, 100.0, 9, 10, measured=10),
        StepLag(0, NORMAL, 600.0, 5000.0, 80, 90, measured=90),
        StepLag(2, HIGH, 120.0, 300.0, 10, 10, measured=10),
        StepLag(3, HIGH, None, None, 0, 0, measured=0),
    )
    report = made(ReportFacts(lag=lags))
    assert report.by_priority[HIGH].lag_average_s == 90.0
    assert report.by_priority[HIGH].lag_worst_s == 300.0
    assert report.by_priority[HIGH].equal_share == 0.95
    assert report.overall.lag_average_s == pytest.approx((600 + 54_000 + 1200) / 110)
    assert report.course[0].lag_average_s == {HIGH: 60.0, NORMAL: 600.0}
    assert report.course[0].equal_share == 0.89
    assert report.course[1].equal_share is None
