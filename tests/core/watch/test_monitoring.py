"""Alerts: which stand, told once, and their end."""

from __future__ import annotations

import time

import pytest

from evermirror.core.pull.layers import disabled, left
from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import AlertSettings, Channel, RestoredAlerts, Sent, Stand
from evermirror.core.watch.kinds import MONITORING_KINDS
from evermirror.core.watch.monitoring import NEW_MAX, Facts, Rules, standing
from evermirror.model.alert import Alert, Level, Turn
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
    (paused,) = standing(facts((failing("devops/core", 5, "failed 5 times"),)), RULES)
    assert paused.level is Level.WARNING, "project-paused is the one that tells it"


def test_a_project_that_nobody_waits_for_is_not_told_of() -> None:
    project = failing("a", 5)
    for nobodys in (left(project, "no longer in G at S"), disabled(project)):
        assert standing(facts((nobodys,)), RULES) == ()
        assert told_of((project,), (nobodys,)) == [[(Turn.RAISED, "a")], [(Turn.OVER, "a")]]


def test_of_very_many_those_that_stood_are_told_and_as_many_others_as_there_may_be_room_for() -> None:
    many = tuple(failing(f"p{n:06d}", 3) for n in range(100_000))
    stood = {("project-failing", "p099999")}
    began = time.process_time()
    told = [alert.about for alert in standing(facts(many), RULES, stood)]
    assert time.process_time() - began < 1.0
    assert told == [*(f"p{n:06d}" for n in range(NEW_MAX)), "p099999"]


@pytest.mark.parametrize(("count", "stands"), [(9, True), (8, True), (7, False)])
def test_a_kind_of_error_around_its_bound_is_told_once(count: int, stands: bool) -> None:
    few = facts(errors={FailureKind.UNKNOWN: KindCount(count, 1)})
    assert standing(few, RULES) == ()
    assert bool(standing(few, RULES, {("error-kind", "UNKNOWN")})) is stands
    assert standing(few, RULES, {("error-kind", "NETWORK_TIMEOUT"), ("failure-rate", "UNKNOWN")}) == ()


@pytest.mark.parametrize(("failed", "stands"), [(10, True), (9, True), (8, False), (0, False)])
def test_a_rate_around_its_bound_is_told_once(failed: int, stands: bool) -> None:
    assert standing(facts(failed=failed), RULES) == ()
    assert bool(standing(facts(failed=failed), RULES, {("failure-rate", "all")})) is stands


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
        assert told[0].text.startswith("11 of 200 projects are failed: 5.5%")


@pytest.mark.parametrize(("failed", "stands"), [(1, False), (2, False), (3, True)])
def test_one_of_a_few_projects_is_no_critical_alert(failed: int, stands: bool) -> None:
    assert bool(standing(facts(failed=failed, total=7), RULES)) is stands


@pytest.mark.parametrize(("failed", "stands"), [(2, True), (1, False)])
def test_a_rate_that_stood_is_over_when_almost_all_are_well(failed: int, stands: bool) -> None:
    assert bool(standing(facts(failed=failed, total=7), RULES, {("failure-rate", "all")})) is stands


def test_alerts_about_many_carry_the_error_statistics_and_the_affected_projects() -> None:
    errors = {FailureKind.NETWORK_TIMEOUT: KindCount(15, 12), FailureKind.AUTH_FAILED: KindCount(3, 3)}
    affected = {FailureKind.NETWORK_TIMEOUT: [f"team/p{n}" for n in range(10)]}
    progress = ClassProgress(200, 188, 0, 0, 12, 0, None)
    told = standing(Facts((), errors, progress, ["team/p0", "x" * 300], affected), RULES)
    rate, kind = told
    assert rate.facts["errors"] == kind.facts["errors"] == "NETWORK_TIMEOUT 15× (12), AUTH_FAILED 3× (3)"
    assert rate.facts["affected"] == f"team/p0, {'x' * 100}…, … (12)"
    assert kind.facts["affected"] == ", ".join(affected[FailureKind.NETWORK_TIMEOUT]) + ", … (12)"
    for alert in told:
        assert alert.facts["affected"] in alert.text
    assert rate.facts["errors"] in rate.text


def test_the_most_serious_comes_first() -> None:
    told = standing(
        facts(
            (failing("b", 3), failing("a", 4), failing("z", 5, "why")),
            {FailureKind.UNKNOWN: KindCount(20, 2)},
            failed=50,
        ),
        RULES,
    )
    assert [a.about for a in told] == ["all", "UNKNOWN", "a", "b", "z"]


def test_other_bounds_hold_where_they_are_set() -> None:
    rules = Rules(failures_in_a_row=1, errors_of_a_kind=2, failure_rate=0.5)
    told = standing(facts((failing("a", 1),), {FailureKind.UNKNOWN: KindCount(2, 1)}, failed=100), rules)
    assert [a.kind for a in told] == ["error-kind", "project-failing"]


def told_of(*looks: tuple[Project, ...]) -> list[list[tuple[Turn, str]]]:
    """What a channel gets after each look at what fails."""
    book = AlertBook(AlertSettings(channels=(Channel("ops", "mail"),)), RestoredAlerts(), 0.0)
    told = []
    for now, projects in enumerate(looks):
        sends = book.handle(Stand(MONITORING_KINDS, standing(facts(projects), RULES)), float(now)).sends
        told.append([(item.turn, item.about) for send in sends for item in send.message.items])
        for send in sends:
            book.handle(Sent(send.channel, send.ids), float(now))
    return told


def test_an_alert_is_told_once_while_it_stands_and_its_end_once() -> None:
    three, four = (failing("a", 3),), (failing("a", 4),)  # its text changes, and it is the same alert
    told = told_of((), three, four, four, (), ())
    assert told == [[], [(Turn.RAISED, "a")], [], [], [(Turn.OVER, "a")], []]


def test_one_that_is_paused_for_its_failures_is_not_told_again() -> None:
    warned, paused = (failing("a", 4),), (failing("a", 5, "failed 5 times"),)
    assert told_of(warned, paused, warned, paused) == [[(Turn.RAISED, "a")], [], [], []]


def test_others_come_and_go_meanwhile() -> None:
    told = told_of((failing("a", 3), failing("b", 3)), (failing("b", 3), failing("c", 3)))
    assert sorted(told[1], key=lambda one: one[1]) == [(Turn.OVER, "a"), (Turn.RAISED, "c")]
