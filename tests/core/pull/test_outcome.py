"""What the end of a task means: the tables for sources and targets, line by line."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from evermirror.core.pull.layers import disabled, left
from evermirror.core.pull.outcome import Moment, alerts_between, conclude, excuse, standing_alerts
from evermirror.core.pull.retry import (
    SOURCE_RULES,
    TARGET_RULES,
    effective_rank,
    is_weather,
    longest_wait_s,
    retry_delay_s,
)
from evermirror.core.pull.settings import PullSettings
from evermirror.core.pull.silence import Silence
from evermirror.model.failure import CREDENTIAL, OURS, REFUSED_REFS, Failure, FailureKind
from evermirror.model.pull import PullConfig
from tests.core.pull.small import (
    CRITICAL,
    FAILED,
    HIGH,
    HOUR,
    LOW,
    MINUTE,
    NOW,
    SETTINGS,
    SKIPPED,
    SUCCESS,
    ended,
    project,
    pushed,
    target,
)

K = FailureKind
MOMENT = Moment(NOW, HOUR)
CONFIG = PullConfig(max_retries=3, retry_delay_s=5 * MINUTE)


def after(before, kind=None, *, moment=MOMENT, silence=None, settings=SETTINGS, **fields):
    end = ended(kind=kind, **fields)
    return conclude(before, end, moment, silence or Silence(), settings)


def in_minutes(found):
    return (found.next_sync_at - NOW) / MINUTE


# Delays and classes


@pytest.mark.parametrize(("failures", "minutes"), [(1, 5), (2, 10), (3, 20), (4, 60), (5, 60)])
def test_retries_are_5_10_and_20_minutes_apart_and_then_at_the_interval(failures, minutes):
    assert retry_delay_s(CONFIG, failures, HOUR, 2.0) == minutes * MINUTE


def test_many_retries_are_a_week_apart_at_most():
    many = PullConfig(max_retries=100, retry_delay_s=5 * MINUTE)
    assert retry_delay_s(many, 99, HOUR, 2.0) == 7 * 24 * HOUR
    assert retry_delay_s(many, 99, HOUR, 100.0) == 7 * 24 * HOUR


def test_without_retries_the_interval_counts():
    assert retry_delay_s(PullConfig(max_retries=0), 1, HOUR, 2.0) == HOUR


def test_the_delay_grows_by_the_factor_that_is_set():
    assert [retry_delay_s(CONFIG, n, HOUR, 3.0) / MINUTE for n in (1, 2, 3)] == [5, 15, 45]
    assert [retry_delay_s(CONFIG, n, HOUR, 1.0) / MINUTE for n in (1, 2, 3)] == [5, 5, 5]


@pytest.mark.parametrize(
    ("priority", "failures", "rank"), [(CRITICAL, 2, 0), (CRITICAL, 3, 1), (HIGH, 4, 2), (LOW, 3, 3)]
)
def test_after_three_failures_a_project_counts_as_one_class_lower(priority, failures, rank):
    assert effective_rank(project(priority=priority, failures=failures), SETTINGS.demote_after) == rank


def test_no_wait_is_longer_than_interval_retries_and_slow_looks():
    quick = PullSettings(slow_s=1.0)
    assert longest_wait_s(CONFIG, quick) == 2 * CONFIG.interval_s
    assert longest_wait_s(replace(CONFIG, retry_delay_s=10 * HOUR), quick) == 40 * HOUR
    assert longest_wait_s(CONFIG, PullSettings(slow_s=24 * HOUR)) == 24 * HOUR


@pytest.mark.parametrize("kind", FailureKind)
def test_every_kind_has_its_line_in_both_tables(kind):
    assert kind in SOURCE_RULES
    assert kind in TARGET_RULES


@pytest.mark.parametrize(
    ("kind", "counted", "weather"),
    [
        (K.NETWORK_TIMEOUT, True, False),
        (K.NETWORK_TIMEOUT, False, True),
        (K.NOT_FOUND, False, True),
        (K.RATE_LIMITED, True, True),
        (K.RATE_LIMITED, False, True),
        (K.CONFLICT, False, False),
        (K.DISK_FULL, False, False),
    ],
)
def test_what_is_the_hosts_weather(kind, counted, weather):
    assert is_weather(kind, counted=counted) is weather


# The source


@pytest.mark.parametrize("status", [SUCCESS, SKIPPED])
def test_a_success_and_a_skip_reset_the_failures(status):
    found = after(project(failures=4, next_sync_at=NOW + HOUR), status=status)
    assert (found.failures, found.last_status, found.last_sync_at) == (0, status, NOW)
    assert found.next_sync_at == NOW + HOUR


@pytest.mark.parametrize(
    ("kind", "failures", "minutes", "enabled"),
    [
        (K.NETWORK_TIMEOUT, 1, 5, True),
        (K.UNKNOWN, 1, 5, True),
        (K.DISK_FULL, 0, 5, True),
        (K.CONFLICT, 0, 60, True),
        (K.PERMISSION_DENIED, 0, 60, True),
        (K.NOT_FOUND, 1, 1440, True),
        (K.AUTH_FAILED, 1, 1440, True),
    ],
)
def test_the_table_for_the_source_of_a_public_mirror(kind, failures, minutes, enabled):
    found = after(project(), kind)
    assert (found.failures, in_minutes(found), found.config.enabled) == (failures, minutes, enabled)
    assert found.last_status is FAILED
    assert found.last_failure.kind is kind
    assert found.last_failure_at == NOW
    assert found.last_sync_at is None


@pytest.mark.parametrize("kind", [K.AUTH_FAILED, K.NOT_FOUND])
@pytest.mark.parametrize("has", [{"targets": (target(),)}, {"source_credential": "robot"}])
def test_a_source_that_is_gone_pauses_a_project_with_targets_or_a_credential_at_once(kind, has):
    found = after(project(**has), kind)
    assert not found.config.enabled
    assert found.paused == f"its source says {kind.value}, it says {kind.value}"
    assert found.failures == 1


def test_a_public_mirror_whose_source_is_gone_is_looked_at_for_ever():
    found = project()
    for _ in range(20):
        found = after(found, K.NOT_FOUND)
    assert found.config.enabled
    assert found.failures == SETTINGS.pause_after - 1


def test_five_failures_in_a_row_pause_a_project():
    found, minutes = project(), []
    for _ in range(5):
        found = after(found, K.NETWORK_TIMEOUT)
        minutes.append(in_minutes(found))
    assert minutes[:4] == [5, 10, 20, 60]
    assert found.failures == 5
    assert not found.config.enabled
    assert found.paused.startswith("it failed 5 times in a row: NETWORK_TIMEOUT")


def test_what_a_person_disabled_is_not_said_to_be_paused():
    assert after(project(enabled=False, failures=4), K.UNKNOWN).paused == ""


@pytest.mark.parametrize("kind", [K.NETWORK_TIMEOUT, K.NOT_FOUND, K.RATE_LIMITED])
def test_weather_counts_against_no_project_and_waits_for_the_host(kind):
    before = project(failures=2, targets=(target(),))
    found = after(before, kind, counted=False, moment=Moment(NOW, HOUR, NOW + 90))
    assert (found.failures, found.next_sync_at, found.config.enabled) == (2, NOW + 90 + MINUTE, True)


def test_a_failure_that_turned_out_to_be_weather_is_taken_back_with_what_it_led_to():
    counted = after(project(failures=4), K.NETWORK_TIMEOUT)
    gone = after(project(targets=(target(),)), K.NOT_FOUND)
    for found, failures in ((excuse(counted, SETTINGS), 4), (excuse(gone, SETTINGS), 0)):
        assert found.failures == failures
        assert found.config.enabled
        assert found.paused == ""
    assert excuse(project(), SETTINGS).failures == 0


def test_an_excuse_does_not_enable_what_its_targets_or_a_person_disabled():
    by_targets = after(project(targets=(target(),)), K.AUTH_FAILED, pushes=[pushed(kind=K.AUTH_FAILED)])
    assert not excuse(by_targets, SETTINGS).config.enabled
    assert not excuse(project(enabled=False, failures=1), SETTINGS).config.enabled


# Targets


def only(found):
    (one,) = found.targets
    return one


@pytest.mark.parametrize(
    ("kind", "failures", "minutes", "paused", "project_failures"),
    [
        (K.NETWORK_TIMEOUT, 1, 5, False, 1),
        (K.UNKNOWN, 1, 5, False, 1),
        (K.AUTH_FAILED, 1, None, True, 1),
        (K.NOT_FOUND, 1, None, True, 1),
        (K.PERMISSION_DENIED, 1, None, True, 1),
        (K.RATE_LIMITED, 1, 5, False, 0),
        (K.CONFLICT, 1, None, False, 0),
        (K.DISK_FULL, 1, None, False, 0),
    ],
)
def test_the_table_for_the_only_target(kind, failures, minutes, paused, project_failures):
    found = after(project(targets=(target(),)), kind, pushes=[pushed(kind=kind)])
    assert (only(found).failures, bool(only(found).paused), found.failures) == (
        failures,
        paused,
        project_failures,
    )
    if minutes is not None:
        assert only(found).not_before == NOW + minutes * MINUTE
    assert only(found).last_failure.kind is kind
    assert found.config.enabled is not paused


def test_a_target_that_pauses_others_go_on():
    two = project(targets=(target(1), target(2)))
    found = after(two, None, pushes=[pushed(1, K.PERMISSION_DENIED), pushed(2)])
    assert [bool(t.paused) for t in found.targets] == [True, False]
    assert found.config.enabled
    assert found.failures == 0


def test_with_all_targets_paused_for_good_the_project_is_paused_too():
    two = project(targets=(target(1, paused="AUTH_FAILED"), target(2)))
    found = after(two, K.NOT_FOUND, pushes=[pushed(2, K.NOT_FOUND)])
    assert not found.config.enabled
    assert found.paused.startswith("all its targets are paused: NOT_FOUND")


def test_what_is_put_and_a_persons_word_are_noted_on_success():
    before = target(failures=3, paused="x", adopt=True, not_before=NOW)
    push = pushed(put="new", ended_at=NOW - 2, put_total=1)
    found = only(after(project(targets=(before,)), None, pushes=[push]))
    assert (found.put, found.put_at, found.failures, found.paused) == ("new", NOW - 2, 0, "")
    assert not found.adopt
    assert not found.not_before


def test_a_target_that_has_it_all_was_put_when_it_was_put():
    before = project(targets=(target(put_at=NOW - HOUR, failures=1),))
    found = only(after(before, None, status=SKIPPED, pushes=[pushed(ended_at=NOW)]))
    assert (found.put_at, found.failures) == (NOW - HOUR, 0)


def test_a_failing_target_that_was_not_tried_does_not_make_its_project_due_at_once():
    before = project(targets=(target(failures=2, not_before=NOW - 5),), next_sync_at=NOW + HOUR)
    assert after(before, None, status=SKIPPED).next_sync_at == NOW + HOUR


def test_what_is_not_known_to_be_there_stays_as_it_was_known():
    before = project(targets=(target(put="old"),))
    assert (
        only(after(before, K.NETWORK_TIMEOUT, pushes=[pushed(kind=K.NETWORK_TIMEOUT, put=None)])).put == "old"
    )


@pytest.mark.parametrize(
    ("kind", "kept"), [(K.NETWORK_TIMEOUT, True), (K.CONFLICT, False), (K.AUTH_FAILED, False)]
)
def test_a_persons_word_is_used_up_by_a_push_that_reached_the_target(kind, kept):
    found = after(project(targets=(target(adopt=True),)), kind, pushes=[pushed(kind=kind)])
    assert only(found).adopt is kept


def test_a_conflict_never_pauses_anything():
    found = project(targets=(target(),))
    for _ in range(20):
        found = after(found, K.CONFLICT, pushes=[pushed(kind=K.CONFLICT)])
    assert found.config.enabled
    assert not only(found).paused


def test_a_target_is_paused_after_five_failures_and_the_other_one_carries_on():
    found = project(targets=(target(1), target(2)))
    for _ in range(5):
        found = after(found, None, pushes=[pushed(1, K.UNKNOWN), pushed(2)])
    assert found.targets[0].paused.startswith("it failed 5 times in a row")
    assert found.failures == 0
    assert found.config.enabled


def test_a_project_is_retried_early_where_a_target_is_to_be():
    two = project(targets=(target(1), target(2)), next_sync_at=NOW + HOUR)
    assert in_minutes(after(two, None, pushes=[pushed(1, K.UNKNOWN), pushed(2)])) == 5
    assert in_minutes(after(two, None, pushes=[pushed(1, K.CONFLICT), pushed(2)])) == 60


def test_a_sync_that_tried_no_target_does_not_make_a_project_well_whose_targets_all_fail():
    failing = project(
        failures=3, targets=(target(failures=3, not_before=NOW + HOUR),), next_sync_at=NOW + HOUR
    )
    assert after(failing).failures == 3
    assert after(failing, None, pushes=[pushed()]).failures == 0


def test_a_target_host_that_is_down_pauses_nobody():
    silence = Silence()
    states = {name: project(name, targets=(target(),)) for name in "abcdef"}
    for _ in range(10):
        for name, state in states.items():
            states[name] = after(
                state, K.NETWORK_TIMEOUT, pushes=[pushed(kind=K.NETWORK_TIMEOUT)], silence=silence
            )
        after(states["a"], None, status=SKIPPED, pushes=[pushed()], silence=silence)  # its host was not asked
    assert [s.failures for s in states.values()] == [1, 1, 0, 0, 0, 0]
    assert all(s.config.enabled and not only(s).paused for s in states.values())


def test_a_retry_after_of_a_target_is_heeded():
    found = after(
        project(targets=(target(),)),
        K.RATE_LIMITED,
        pushes=[replace(pushed(), failure=replace(ended(kind=K.RATE_LIMITED).failure, retry_after_s=77.0))],
    )
    assert only(found).not_before == NOW + 77


def test_pushes_to_targets_that_are_gone_are_passed_over():
    assert after(project(targets=(target(1),)), None, pushes=[pushed(9)]).targets == (target(1),)


# Alerts


def told(before, later, settings=SETTINGS):
    return [("-" if a.over else "") + a.kind for a in alerts_between(before, later, settings)]


def test_people_are_told_of_the_third_failure_of_the_pause_and_of_their_ends():
    states = [project()]
    for _ in range(5):
        states.append(after(states[-1], K.UNKNOWN))
    alerts = [told(a, b) for a, b in pairwise(states)]
    assert alerts == [[], [], ["project-failing"], [], ["project-paused"]]
    assert told(states[-1], project()) == ["-project-failing", "-project-paused"]


def test_a_project_that_nobody_waits_for_any_more_does_not_fail():
    failing = replace(project(), failures=4)
    for nobodys in (disabled(failing), left(failing, "no longer in G at S")):
        assert told(failing, nobodys) == ["-project-failing"]
        assert "is disabled" in next(iter(alerts_between(failing, nobodys, SETTINGS))).text
        assert list(standing_alerts([nobodys], SETTINGS)) == []
        assert told(nobodys, failing) == ["project-failing"]


def test_what_stands_is_what_was_told_when_it_became_so():
    well = project(targets=(target(),))
    locked = replace(
        target(), failures=1, last_failure=Failure(K.AUTH_FAILED, "none", context={OURS: CREDENTIAL})
    )
    for later in (
        well,
        replace(well, failures=4),
        after(well, K.PERMISSION_DENIED, pushes=[pushed(kind=K.PERMISSION_DENIED)]),
        after(well, K.CONFLICT, pushes=[pushed(kind=K.CONFLICT)]),
        after(well, K.UNKNOWN, pushes=[pushed(kind=K.UNKNOWN)]),
        replace(well, targets=(locked,)),
    ):
        assert list(standing_alerts([later], SETTINGS)) == list(alerts_between(well, later, SETTINGS))


def test_people_are_told_of_targets_once_each_and_when_it_is_over():
    well = project(targets=(target(),))
    paused = after(well, K.PERMISSION_DENIED, pushes=[pushed(kind=K.PERMISSION_DENIED)])
    assert told(well, paused) == ["project-paused", "target-paused"]
    assert told(paused, well) == ["-project-paused", "-target-paused"]
    conflict = after(well, K.CONFLICT, pushes=[pushed(kind=K.CONFLICT)])
    assert told(well, conflict) == ["target-conflict"]
    assert told(conflict, after(conflict, K.CONFLICT, pushes=[pushed(kind=K.CONFLICT)])) == []
    assert told(conflict, after(conflict, None, pushes=[pushed()])) == ["-target-conflict"]
    assert told(paused, replace(paused, targets=())) == ["-target-paused"]
    assert told(conflict, replace(conflict, targets=())) == ["-target-conflict"]


def test_refs_that_a_target_refuses_wait_and_the_target_goes_on():
    well = project(targets=(target(),))
    failure = Failure(K.PERMISSION_DENIED, "1 ref is refused", context={REFUSED_REFS: "1"})
    push = replace(pushed(), failure=failure)
    for _ in range(SETTINGS.pause_after + 1):
        refused = after(well, K.PERMISSION_DENIED, pushes=[push])
        assert (refused.paused, refused.config.enabled, refused.failures) == ("", True, 0)
        assert (refused.targets[0].paused, refused.targets[0].failures) == ("", 1)
    assert told(well, refused) == ["target-refused"]
    assert told(refused, after(refused, K.PERMISSION_DENIED, pushes=[push])) == []
    assert told(refused, after(refused, None, pushes=[pushed()])) == ["-target-refused"]
    conflict = after(refused, K.CONFLICT, pushes=[pushed(kind=K.CONFLICT)])
    assert sorted(told(refused, conflict)) == ["-target-refused", "target-conflict"]
    assert list(standing_alerts([refused], SETTINGS)) == list(alerts_between(well, refused, SETTINGS))


def test_what_an_alert_is_about():
    well = project("team/app", targets=(target(),))
    paused = after(well, K.AUTH_FAILED, pushes=[pushed(kind=K.AUTH_FAILED)])
    about = {a.kind: (a.about, a.text) for a in alerts_between(well, paused, SETTINGS)}
    assert about["target-paused"] == (
        "team/app → https://target.example/p1.git",
        "https://target.example/p1.git is paused: AUTH_FAILED, it says AUTH_FAILED",
    )
    assert about["project-paused"][0] == "team/app"


@pytest.mark.parametrize(
    "bad", [{"pause_after": 0}, {"demote_after": 0}, {"stretch": 0.5}, {"slow_s": 0.0}, {"step_s": 0.0}]
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        PullSettings(**bad)


def test_alerts_of_one_that_is_renamed_end_under_the_old_name_and_stand_under_the_new():
    before = project("old", failures=5, paused="why", targets=(target(paused="no"),))
    later = replace(before, name="new")
    alerts = [(a.kind, a.about, a.over) for a in alerts_between(before, later, SETTINGS)]
    url = target().url
    kinds = [("project-failing", ""), ("project-paused", ""), ("target-paused", f" → {url}")]
    assert alerts == [(kind, f"old{of}", True) for kind, of in kinds] + [
        (kind, f"new{of}", False) for kind, of in kinds
    ]
    well = replace(before, failures=0, paused="", targets=(target(),))
    assert list(alerts_between(well, replace(well, name="new"), SETTINGS)) == []
