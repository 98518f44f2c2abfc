"""How serious an alert is: heard in the log, seen in the overview."""

from __future__ import annotations

from structlog.testing import capture_logs

from evermirror.core.pull.events import PullAlert
from evermirror.core.watch.monitoring import Alert
from evermirror.model.pull import Level
from evermirror.nodes.coordinator.pull_alerts import PullAlerts
from evermirror.nodes.coordinator.pull_jobs import _told


def alert(text, level=Level.WARNING, **more):
    return PullAlert("project-failing", "a", text, level=level, **more)


def test_an_alert_is_logged_at_its_level_and_again_when_it_becomes_more_serious():
    alerts = PullAlerts()
    with capture_logs() as logs:
        alerts.told(alert("a failed"))
        alerts.told(alert("a failed again"))
        alerts.told(alert("a is paused", Level.ERROR))
        alerts.told(alert("a is paused, still", Level.ERROR))
        alerts.told(PullAlert("failure-rate", "all", "6 % failed", level=Level.CRITICAL))
        alerts.told(alert("", over=True))
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("a failed", "warning"),
        ("a is paused", "error"),
        ("6 % failed", "critical"),
        ("", "info"),
    ]


def test_the_most_serious_are_shown_first_and_by_their_level():
    alerts = PullAlerts()
    alerts.told(alert("a failed"))
    alerts.told(PullAlert("target-paused", "t", "t is paused", level=Level.ERROR))
    alerts.told(PullAlert("failure-rate", "all", "6 % failed", level=Level.CRITICAL))
    assert alerts.warnings() == ("critical: 6 % failed", "error: t is paused", "a failed")


def test_what_monitoring_finds_keeps_its_level():
    stands = (Alert("failure-rate", "all", Level.CRITICAL, "6 % failed"),)
    assert [one.level for one in _told((), stands)] == [Level.CRITICAL]
