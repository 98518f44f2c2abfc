"""What failed in this run of the tests, and in no other, written down for tools/second-look.

pytest's own list of what failed last also has what failed long ago and was renamed since, and no longer has
what took a whole process down and passed when another one ran it again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FILE = Path("build/failed-tests.json")
CRASHED = "???"  # in place of a phase: the process that ran the test is gone


class Failures:
    """Of all processes, as the one that leads them hears of it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed: dict[str, None] = {}
        self._passed = 0
        self._is_fault = False  # not a test that failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None
            self._is_fault |= report.when == CRASHED
        elif report.passed and report.when == "call":
            self._passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_fault |= report.failed

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        was_cut = bool(session.shouldfail or session.shouldstop)
        told = {"failed": list(self._failed), "passed": self._passed, "fault": self._is_fault or was_cut}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(told))


def watch(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        file = config.rootpath / FILE
        file.unlink(missing_ok=True)
        config.pluginmanager.register(Failures(file))
