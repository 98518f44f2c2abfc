"""Repos that are held and not polled by themselves: they cost no budget, and are there when asked for."""

from dataclasses import replace

import pytest

from evermirror.core.schedule.queue import Phase
from evermirror.model.failure import Failure, FailureKind
from tests.core.schedule.test_scheduler import SILENT, T0, entry, run, scheduler


def quiet(*keys):
    return [replace(entry(k), quiet=True) for k in keys]


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age", "fixed"])
def test_a_quiet_repo_is_never_taken_by_itself_whatever_the_policy_and_the_max_gap(policy):
    it = scheduler("a/1", policy=policy, max_gap_s=100.0, polls_per_second=0.1)
    it.add(quiet("a/quiet", "b/quiet"), T0)
    assert {key for _, key in run(it, T0 + 50_000)} == {"a/1"}


def test_a_quiet_repo_is_taken_at_once_when_asked_for_and_is_quiet_again_after():
    it = scheduler(max_gap_s=100.0)
    it.add(quiet("a/1"), T0)
    assert it.next_wake(T0) is None
    it.request("a/1", T0 + 5)
    assert it.explain("a/1", T0 + 5).reason == "was asked for"
    assert it.take(T0 + 5) == "a/1"
    it.polled("a/1", T0 + 6)
    assert it.next_wake(T0 + 6) is None
    told = it.explain("a/1", T0 + 6)
    assert (told.phase, told.next_poll_at) == (Phase.WAITING, None)


def test_a_quiet_repo_that_fails_is_not_tried_again_by_itself():
    it = scheduler()
    it.add(quiet("a/1"), T0)
    it.request("a/1", T0)
    assert it.take(T0) == "a/1"
    verdict = it.failed("a/1", Failure(FailureKind.UNKNOWN, "x"), T0 + 1)
    assert verdict.next_attempt_at is None
    assert it.next_wake(T0 + 1) is None


def test_the_role_changes_both_ways_also_while_it_is_under_way():
    it = scheduler("a/1")
    assert it.take(T0) == "a/1"
    it.add(quiet("a/1"), T0)
    it.polled("a/1", T0)
    assert it.next_wake(T0) is None
    it.add([entry("a/1")], T0 + 10)
    wake = it.next_wake(T0 + 10)
    assert wake is not None
    assert it.take(wake) == "a/1"


def test_quiet_repos_take_nothing_from_the_budgets():
    loud = [f"a/{n}" for n in range(10)]
    it = scheduler(*loud, polls_per_second=1.0, max_gap_s=20.0)
    it.add(quiet(*(f"a/q{n}" for n in range(1000))), T0)
    assert [h.max_gap_s for h in it.hosts(T0)] == [20.0]
    assert it.warnings(T0) == ()
    assert len(run(it, T0 + 100)) == pytest.approx(100, abs=2)


def test_transfers_do_not_wait_for_a_probe_by_a_quiet_repo():
    it = scheduler("a/1", "a/2", "a/3", "a/4")
    it.add(quiet("a/q"), T0)
    it.request("a/q", T0)
    assert it.take(T0) == "a/q"
    it.changed("a/q", T0)
    while (key := it.take(T0 + 1)) is not None:
        it.failed(key, SILENT, T0 + 1)
    assert it.hosts(T0 + 1)[0].storm is SILENT.kind
    assert it.take_sync(T0 + 2) is None, "the others probe first"
    it.remove([f"a/{n}" for n in range(1, 5)], T0 + 2)
    it.add(quiet("a/other"), T0 + 2)
    assert it.take_sync(T0 + 2) == "a/q"
