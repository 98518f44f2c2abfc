"""Which time zone peak hours and crons are in."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo

import pytest

from evermirror.nodes import zone
from evermirror.nodes.zone import name_of, zone_of

SUMMER = 1_720_000_000.0  # in July 2024


def hours_ahead(found) -> float:
    return datetime.fromtimestamp(SUMMER, found).utcoffset().total_seconds() / 3600


@pytest.fixture
def tz(monkeypatch):
    def set_to(value: str | None) -> None:
        if value is None:
            monkeypatch.delenv("TZ", raising=False)
        else:
            monkeypatch.setenv("TZ", value)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


def test_the_setting_goes_before_the_process(tz):
    tz("America/New_York")
    assert zone_of("Asia/Shanghai") == ZoneInfo("Asia/Shanghai")
    assert name_of(zone_of("Asia/Shanghai")) == "Asia/Shanghai"


@pytest.mark.parametrize(
    ("value", "hours", "name"),
    [
        ("Asia/Shanghai", 8, "Asia/Shanghai"),
        (":Europe/Berlin", 2, "Europe/Berlin"),
        ("", 0, "UTC"),
        ("CST-8", 8, "CST"),
    ],
)
def test_without_one_it_is_the_processes(tz, value, hours, name):
    tz(value)
    found = zone_of(None)
    assert (hours_ahead(found), name_of(found)) == (hours, name)


def test_without_either_it_is_the_machines(tz, monkeypatch, tmp_path):
    tz(None)
    known = next((p for base in TZPATH if (p := Path(base) / "Asia/Tokyo").exists()), None)
    if known is None:
        pytest.skip("this machine has no files of time zones")
    (tmp_path / "link").symlink_to(known)
    shutil.copy(known, tmp_path / "copy")
    monkeypatch.setattr(zone, "LOCAL_FILE", tmp_path / "link")
    assert (hours_ahead(zone_of(None)), name_of(zone_of(None))) == (9, "Asia/Tokyo")
    monkeypatch.setattr(zone, "LOCAL_FILE", tmp_path / "copy")
    assert (hours_ahead(zone_of(None)), name_of(zone_of(None))) == (9, "JST")
    monkeypatch.setattr(zone, "LOCAL_FILE", tmp_path / "none")
    assert zone_of(None) is UTC
