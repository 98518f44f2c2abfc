"""Repos whose hooks have proved reliable: polled less, within the max gap; as before when that is over."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from evermirror.core.schedule.policies import HOOKED_RARER
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from tests.core.schedule.test_scheduler import T0, entry, run, scheduler

LESS = "its hooks have proved reliable: polled less"


def hooked(*keys, **about):
    return [replace(e, spec=replace(e.spec, hooked=True, **about)) for e in map(entry, keys)]


def shares(it, until):
    counts = Counter(key for _, key in run(it, until))
    told = sum(n for key, n in counts.items() if "/h" in key)
    return told, sum(counts.values()) - told


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age"])
def test_it_gets_an_eighth_of_what_others_alike_get_and_they_get_the_rest(policy):
    it = scheduler(*(f"a/{n}" for n in range(10)), policy=policy, polls_per_second=0.5, min_gap_s=0.0)
    it.add(hooked(*(f"a/h{n}" for n in range(10))), T0)
    told, others = shares(it, T0 + 20_000)
    assert others / told == pytest.approx(HOOKED_RARER, rel=0.1)
    assert told + others == pytest.approx(10_000, rel=0.01), "the budget is used all the same"


def test_it_is_polled_less_also_where_no_budget_is_scarce():
    it = scheduler("a/1", min_gap_s=60.0, host_rate=None)
    it.add(hooked("a/h"), T0)
    told, others = shares(it, T0 + 48_000)
    assert others == pytest.approx(800, abs=3)
    assert told == pytest.approx(100, abs=3)


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age"])
def test_the_max_gap_holds_for_it_as_for_all(policy):
    it = scheduler(*(f"a/{n}" for n in range(5)), policy=policy, max_gap_s=300.0, polls_per_second=0.2)
    it.add(hooked("a/h"), T0)
    at = [t for t, key in run(it, T0 + 50_000) if key == "a/h"]
    gaps = [b - a for a, b in pairwise(at)]
    assert max(gaps) <= 300.0 + 6.0, "a poll's turn at this budget"
    assert it.explain("a/h", T0 + 50_000).aimed_gap_s <= 300.0


def test_the_min_gap_is_not_undercut_where_the_max_gap_is_shorter():
    it = scheduler(min_gap_s=60.0, max_gap_s=30.0)
    it.add(hooked("a/h"), T0)
    at = [t for t, _ in run(it, T0 + 1000)]
    assert {b - a for a, b in pairwise(at)} == {60.0}


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age", "fixed"])
def test_a_persons_interval_stays_as_it_is(policy):
    it = scheduler(policy=policy, min_gap_s=10.0)
    it.add(hooked("a/h", interval_s=100.0), T0)
    at = [t for t, _ in run(it, T0 + 2000)]
    assert {b - a for a, b in pairwise(at)} == {100.0}
    assert LESS not in it.explain("a/h", T0 + 2000).reason


def test_under_fixed_its_class_decides():
    it = scheduler(policy="fixed")
    it.add(hooked("a/h"), T0)
    at = [t for t, _ in run(it, T0 + 30_000)]
    assert {b - a for a, b in pairwise(at)} == {7200.0}


def test_a_quiet_one_stays_quiet():
    it = scheduler()
    it.add([replace(e, quiet=True) for e in hooked("a/h")], T0)
    assert it.next_wake(T0) is None


def test_a_request_for_it_is_served_at_once():
    it = scheduler(min_gap_s=60.0)
    it.add(hooked("a/h"), T0)
    assert it.take(T0) == "a/h"
    it.polled("a/h", T0)
    assert it.take(T0 + 100) is None
    it.request("a/h", T0 + 100)
    assert it.take(T0 + 100) == "a/h"


def test_taken_back_it_moves_forward_at_once():
    it = scheduler("a/1", "a/2", min_gap_s=60.0, host_rate=1.0)
    it.add(hooked("a/h"), T0)
    run(it, T0 + 1000)
    polled_at = it.explain("a/h", T0 + 1000).last_poll_at
    before = it.explain("a/h", T0 + 1000).next_poll_at
    assert before >= polled_at + 8 * 60.0
    it.add([entry("a/h")], T0 + 1000)
    after = it.explain("a/h", T0 + 1000)
    assert after.next_poll_at <= max(T0 + 1000, polled_at + 60.0) + 3.0
    assert LESS not in after.reason
    assert "a/h" in {key for t, key in run(it, T0 + 1070)}


def test_it_is_told_why():
    it = scheduler("a/1", min_gap_s=60.0)
    it.add(hooked("a/h"), T0)
    run(it, T0 + 1000)
    told = it.explain("a/h", T0 + 1000)
    assert told.reason.endswith(f"; {LESS}")
    assert told.aimed_gap_s == 480.0
    slow = scheduler(*(f"a/{n}" for n in range(50)), min_gap_s=1.0, polls_per_second=0.1)
    slow.add(hooked("a/h"), T0)
    run(slow, T0 + 5000)
    assert slow.explain("a/h", T0 + 5000).reason == f"its turn under adaptive; {LESS}"
    assert LESS not in slow.explain("a/1", T0 + 5000).reason


def test_after_a_failure_it_is_tried_again_as_soon_as_any_other():
    it = scheduler(min_gap_s=60.0)
    it.add(hooked("a/h"), T0)
    assert it.take(T0) == "a/h"
    it.polled("a/h", T0)
    it.request("a/h", T0 + 10)
    assert it.take(T0 + 10) == "a/h"
    verdict = it.failed("a/h", Failure(FailureKind.NETWORK_TIMEOUT, "x"), T0 + 10)
    assert verdict.next_attempt_at == T0 + 70
    assert it.take(T0 + 70) == "a/h"


def test_a_person_who_forgives_it_does_not_wait_longer_for_its_hooks():
    it = scheduler(min_gap_s=60.0)
    it.add(hooked("a/h"), T0)
    assert it.take(T0) == "a/h"
    it.polled("a/h", T0)
    it.forgive("a/h", T0 + 30)
    assert it.take(T0 + 59) is None
    assert it.take(T0 + 60) == "a/h"


def test_after_a_restart_it_stands_where_its_longer_gap_puts_it():
    it = scheduler(min_gap_s=60.0)
    rested = [replace(e, memory=RepoMemory(e.spec.key, last_poll_at=T0 - 100, verified_at=T0 - 100))
              for e in hooked("a/h")]  # fmt: skip
    it.add(rested, T0)
    assert it.take(T0) is None
    assert it.next_wake(T0) == T0 - 100 + 480
