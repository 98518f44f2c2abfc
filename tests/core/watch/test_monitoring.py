"""Alerts: which stand, told once, and their end."""

from __future__ import annotations

import pytest

from evermirror.core.watch.monitoring import Alert, AlertChanges, Facts, Level, Rules, changes, standing
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.figures import ClassProgress, KindCount
from evermirror.model.pull import Project, PullConfig
from evermirror.model.repo import Host, RepoKey

RULES = Rules()
TIMEOUT = Failure(FailureKind.NETWORK_TIMEOUT, "Connection\ntimed out" + "!" * 500)


def failing(name: str, failures: int, paused: str = "") -> Project:
    return Project(
        RepoKey(f"git.example/{name}"),
        name,
        Host("git.example"),
        PullConfig(enabled=not paused),
        failures=failures,
        paused=paused,
        last_failure=TIMEOUT,
    )


def facts(
    projects: tuple[Project, ...] = (),
    errors: dict[FailureKind, KindCount] | None = None,
    failed: int = 0,
    total: int = 200,
) -> Facts:
    return Facts(projects, errors or {}, ClassProgress(total, total - failed, 0, 0, failed, 0, None))


def kinds(told: tuple[Alert, ...]) -> list[tuple[str, str, Level]]:
    return [(a.kind, a.about, a.level) for a in told]


def test_all_is_well() -> None:
    assert standing(facts((failing("a", 2),), {FailureKind.UNKNOWN: KindCount(9, 9)}, failed=10), RULES) == ()
    assert standing(facts(total=0), RULES) == ()


def test_a_project_that_failed_three_times_in_a_row() -> None:
    (alert,) = standing(facts((failing("devops/core", 3),)), RULES)
    assert (alert.kind, alert.about, alert.level) == ("project-failing", "devops/core", Level.WARNING)
    assert alert.text.startswith("devops/core failed 3 times in a row: NETWORK_TIMEOUT, Connection timed out")
    assert len(alert.text) < 300
    (worse,) = standing(facts((failing("devops/core", 5, "failed 5 times"),)), RULES)
    assert worse.level is Level.ERROR
    assert "paused" in worse.text


def test_ten_errors_of_a_kind_in_an_hour() -> None:
    (alert,) = standing(facts(errors={FailureKind.NETWORK_TIMEOUT: KindCount(10, 8)}), RULES)
    assert (alert.kind, alert.about, alert.level) == ("error-kind", "NETWORK_TIMEOUT", Level.ERROR)
    assert alert.text == "NETWORK_TIMEOUT occurred 10 times in the last 60 minutes, in 8 projects"
    (one,) = standing(facts(errors={FailureKind.CONFLICT: KindCount(12, 1)}), RULES)
    assert one.text.endswith("in 1 project")


@pytest.mark.parametrize(("failed", "stands"), [(10, False), (11, True)])
def test_more_than_five_percent_failed(failed: int, stands: bool) -> None:
    told = standing(facts(failed=failed), RULES)
    assert kinds(told) == ([("failure-rate", "all", Level.CRITICAL)] if stands else [])
    if stands:
        assert told[0].text == "11 of 200 projects are failed: 5.5%"


def test_the_most_serious_comes_first() -> None:
    told = standing(
        facts(
            (failing("b", 3), failing("a", 4), failing("z", 5, "why")),
            {FailureKind.UNKNOWN: KindCount(20, 2)},
            failed=50,
        ),
        RULES,
    )
    assert [a.about for a in told] == ["all", "UNKNOWN", "z", "a", "b"]


def test_other_bounds_hold_where_they_are_set() -> None:
    rules = Rules(failures_in_a_row=1, errors_of_a_kind=2, failure_rate=0.5)
    told = standing(facts((failing("a", 1),), {FailureKind.UNKNOWN: KindCount(2, 1)}, failed=100), rules)
    assert [a.kind for a in told] == ["error-kind", "project-failing"]


def test_an_alert_is_told_once_while_it_stands_and_its_end_once() -> None:
    three = standing(facts((failing("a", 3),)), RULES)
    four = standing(facts((failing("a", 4),)), RULES)
    assert changes((), three) == AlertChanges(raised=three)
    assert changes(three, four) == AlertChanges()  # its text changed, and it is the same alert
    assert changes(four, ()) == AlertChanges(over=four)
    assert changes((), ()) == AlertChanges()


def test_one_that_became_more_serious_is_told_again_and_less_serious_is_not() -> None:
    warned = standing(facts((failing("a", 4),)), RULES)
    paused = standing(facts((failing("a", 5, "failed 5 times"),)), RULES)
    assert changes(warned, paused) == AlertChanges(raised=paused)
    assert changes(paused, warned) == AlertChanges()


def test_others_come_and_go_meanwhile() -> None:
    before = standing(facts((failing("a", 3), failing("b", 3))), RULES)
    after = standing(facts((failing("b", 3), failing("c", 3))), RULES)
    told = changes(before, after)
    assert [a.about for a in told.raised] == ["c"]
    assert [a.about for a in told.over] == ["a"]
