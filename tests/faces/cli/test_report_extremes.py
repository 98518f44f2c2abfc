"""A report from figures beyond all measure, and of days in which clocks were changed."""

from __future__ import annotations

import pytest

from evermirror.faces.cli.pull.report_data import read_report
from evermirror.faces.cli.pull.report_html import html_report
from evermirror.faces.cli.pull.report_markdown import markdown_report
from evermirror.faces.cli.pull.report_words import LANGUAGES, Words
from tests.faces.cli.report_answer import report
from tests.faces.cli.test_report import MADE, Page, check_harmless


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, float("inf"), float("nan"), 10**30])
@pytest.mark.parametrize(
    "part", ["overall", "pressure", "course", "by_day", "errors", "failing", "from", "days"]
)
def test_a_number_beyond_all_measure_is_none(part, value):
    def spoil(told):
        match told:
            case dict():
                return {name: spoil(inner) for name, inner in told.items()}
            case list():
                return [spoil(inner) for inner in told]
            case str() if part not in ("from", "days"):
                return told
        return value

    answer = report("a")
    for language in LANGUAGES:
        sheet = read_report({**answer, part: spoil(answer[part])})
        check_harmless(Page(html_report(sheet, Words(language), MADE)))
        assert "e+" not in markdown_report(sheet, Words(language), MADE)


@pytest.mark.parametrize(
    ("zone", "begin", "changed"),
    [
        ("America/New_York", "2026-10-30T04:00:00Z", True),
        ("America/New_York", "2026-11-02T05:00:00Z", False),
        ("Asia/Shanghai", "2026-10-30T04:00:00Z", False),
        ("../../etc/passwd", "2026-10-30T04:00:00Z", False),
        ("nowhere", "never", False),
    ],
)
def test_days_that_are_not_those_of_the_calendar_are_told_as_such(zone, begin, changed):
    sheet = read_report({**report("a"), "time_zone": zone, "from": begin, "to": "2026-11-05T12:00:00Z"})
    for form in (html_report, markdown_report):
        assert ("counted back from this midnight" in form(sheet, Words("en"), MADE)) is changed
        assert ("从今天零点向前推算" in form(sheet, Words("zh"), MADE)) is changed
