"""What becomes of the schedule when repos or settings change while it runs, and across a restart."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from evermirror.core.schedule.queue import Phase
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.repo import Priority, RepoKey
from tests.core.schedule.test_scheduler import SILENT, T0, entry, run, scheduler, take_by_name

TEN = [f"a/{n}" for n in range(10)]


def times_of(polls, key):
    return [at for at, k in polls if k == key]


# A known repo gets a new configuration


def test_a_repo_made_critical_gets_four_times_the_polls_from_then_on_and_back():
    it = scheduler(*TEN, polls_per_second=1.0)
    before = Counter(k for _, k in run(it, T0 + 1000))
    it.add([entry("a/3", priority=Priority.CRITICAL)], T0 + 1001)
    during = Counter(k for _, k in run(it, T0 + 5000, now=T0 + 1001))
    it.add([entry("a/3")], T0 + 5001)
    after = Counter(k for _, k in run(it, T0 + 6000, now=T0 + 5001))
    assert before["a/3"] == pytest.approx(before["a/4"], abs=1)
    assert during["a/3"] / during["a/4"] == pytest.approx(4, rel=0.03)
    assert after["a/3"] == pytest.approx(after["a/4"], abs=2)
    assert len(it) == 10


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age", "fixed"])
def test_an_interval_that_is_set_counts_from_the_last_poll_and_unset_lets_the_policy_decide(policy):
    it = scheduler(*TEN, polls_per_second=1.0, policy=policy)
    polls = run(it, T0 + 100)
    last = times_of(polls, "a/3")[-1]
    it.add([entry("a/3", interval_s=300.0)], T0 + 100)
    assert it.explain(RepoKey("a/3"), T0 + 100).next_poll_at == pytest.approx(last + 300)
    polls = run(it, T0 + 2000, now=T0 + 100)
    found = times_of(polls, "a/3")
    assert found[0] == pytest.approx(last + 300, abs=2)
    assert all(b - a == pytest.approx(300, abs=3) for a, b in pairwise(found))
    it.add([entry("a/3")], T0 + 2000)
    polls = run(it, T0 + 2000 + 50_000, now=T0 + 2000)
    count = Counter(k for _, k in polls)
    assert count["a/3"] == pytest.approx(count["a/4"], rel=0.02, abs=2)
    assert min(count.values()) > 0


def test_an_interval_set_on_a_repo_that_is_late_makes_it_due_at_once():
    it = scheduler("a/1", "a/2", polls_per_second=0.001)
    first = it.take(T0)
    it.polled(first, T0)
    it.add([entry(first, interval_s=60.0)], T0 + 2000)
    assert it.take(T0 + 2000) == first


def test_an_interval_does_not_undo_a_retry_that_waits():
    it = scheduler("a/1", "a/2", polls_per_second=1.0)
    take_by_name(it, "a/1")
    it.failed("a/1", Failure(FailureKind.NOT_FOUND, "404"), T0)
    it.add([entry("a/1", interval_s=60.0)], T0 + 1)
    assert times_of(run(it, T0 + 80_000, now=T0 + 1), "a/1") == []
    assert times_of(run(it, T0 + 87_000, now=T0 + 80_001), "a/1")


@pytest.mark.parametrize("interval_s", [None, 300.0])
@pytest.mark.parametrize("phase", [Phase.POLLING, Phase.CHANGED, Phase.SYNCING])
def test_a_change_while_it_is_under_way_holds_from_its_end_on(phase, interval_s):
    it = scheduler(*TEN, polls_per_second=1.0, host_connections=20)
    it.add([entry("a/3", interval_s=None if interval_s else 300.0)], T0)
    take_by_name(it, "a/3")
    if phase is not Phase.POLLING:
        it.changed("a/3", T0)
    if phase is Phase.SYNCING:
        assert it.take_sync(T0) == "a/3"
    it.add([entry("a/3", priority=Priority.HIGH, interval_s=interval_s)], T0 + 1)
    assert it.explain(RepoKey("a/3"), T0 + 1).phase is phase
    if phase is not Phase.CHANGED:  # which could be synced at any time
        assert "a/3" not in {k for _, k in run(it, T0 + 99, now=T0 + 1)}
    if phase is Phase.POLLING:
        it.polled("a/3", T0 + 100)
    else:
        if phase is Phase.CHANGED:
            assert it.take_sync(T0 + 100) == "a/3"
        it.synced("a/3", T0 + 100)
    polls = run(it, T0 + 1300, now=T0 + 101)
    count = Counter(k for _, k in polls)
    if interval_s:
        assert times_of(polls, "a/3")[:2] == pytest.approx([T0 + 400, T0 + 700], abs=3)
    else:
        assert count["a/3"] / count["a/4"] == pytest.approx(2, rel=0.1)


def test_a_request_outlives_a_change_of_its_repo():
    it = scheduler(*TEN, min_gap_s=3600.0, polls_per_second=0.001)
    it.polled(it.take(T0), T0)
    it.request("a/7", T0 + 1)
    it.add([entry("a/7", priority=Priority.LOW, interval_s=600.0)], T0 + 1)
    assert it.take(T0 + 1) == "a/7"
    it.polled("a/7", T0 + 2)
    assert it.take(T0 + 2) is None


def test_a_configuration_that_is_sent_all_the_time_gains_a_turn_a_round_at_most():
    it = scheduler(*TEN, polls_per_second=1.0)
    run(it, T0 + 500)
    chosen = []
    now = T0 + 501
    for _ in range(100):
        it.add([entry("a/3")], now)
        key = it.take(now)
        chosen.append(key)
        it.polled(key, now)
        now += 1.0
    count = Counter(chosen)
    assert 8 <= count.pop("a/3") <= 20
    assert min(count.values()) >= 8


def test_failures_and_activity_outlive_a_change():
    it = scheduler("a/1", "b/1")
    take_by_name(it, "a/1")
    it.learned(RepoKey("a/1"), [T0 - 5], T0)
    it.failed("a/1", SILENT, T0)
    before = it.memory(RepoKey("a/1"))
    it.add([entry("a/1", priority=Priority.HIGH)], T0 + 1)
    assert it.memory(RepoKey("a/1")) == before


# New settings while polls are in flight

CHANGES = [
    {"policy": "fixed"}, {"policy": "cbrt-age"}, {"min_gap_s": 1.0}, {"max_gap_s": 500.0},
    {"host_rate": 5.0}, {"polls_in_flight": 1}, {"host_connections": 1}, {"slots": 1},
]  # fmt: skip
BASE = {"host_rate": None, "min_gap_s": 0.0, "polls_per_second": 1.0, "host_connections": 30}


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_polls_and_syncs_in_flight_end_as_usual_and_lose_no_turn(change):
    it = scheduler(*TEN, **BASE)
    run(it, T0 + 5000)  # the queue's own time is far from where it started
    for key in ("a/1", "a/2", "a/3"):
        take_by_name(it, key, T0 + 5001)
    it.changed("a/2", T0 + 5001)
    it.changed("a/3", T0 + 5001)
    assert it.take_sync(T0 + 5001) == "a/2"
    it.reconfigure(ScheduleSettings(**BASE | change), T0 + 5002)
    assert it.polls_in_flight == 1
    it.polled("a/1", T0 + 5003)
    it.synced("a/2", T0 + 5003)
    assert it.take_sync(T0 + 5003) == "a/3"
    it.synced("a/3", T0 + 5004)
    hours = 10 if change.get("policy") == "fixed" else 0.1
    count = Counter(k for _, k in run(it, T0 + 5005 + hours * 3600, now=T0 + 5005))
    usual = count["a/7"]
    assert usual >= 4
    assert {k: count[k] for k in TEN} == {k: pytest.approx(usual, rel=0.2, abs=3) for k in TEN}


def test_fewer_polls_in_flight_than_there_are_wait_until_enough_have_ended():
    it = scheduler(*TEN, host_connections=30)
    taken = [it.take(T0) for _ in range(6)]
    it.reconfigure(
        ScheduleSettings(host_rate=None, min_gap_s=0.0, polls_in_flight=2, host_connections=30), T0
    )
    for left, key in enumerate(reversed(taken)):
        assert it.take(T0 + 1) is None
        it.polled(key, T0 + 1)
        if 5 - left < 2:
            break
    assert it.polls_in_flight == 1
    assert it.take(T0 + 2) is not None


def test_a_failure_after_a_change_of_policy_is_judged_and_retried_as_usual():
    it = scheduler("a/1", "b/1", polls_per_second=1.0)
    take_by_name(it, "a/1")
    it.reconfigure(ScheduleSettings(policy="cbrt-age", host_rate=None, polls_per_second=1.0), T0 + 1)
    verdict = it.failed("a/1", SILENT, T0 + 2)
    assert (verdict.counted, verdict.next_attempt_at) == (True, pytest.approx(T0 + 62))


def test_a_repo_removed_in_flight_is_forgotten_after_new_settings_too():
    it = scheduler("a/1", "a/2", polls_per_second=1.0)
    take_by_name(it, "a/1")
    it.remove(["a/1"], T0)
    it.reconfigure(ScheduleSettings(policy="fixed", host_rate=None), T0)
    it.polled("a/1", T0 + 1)
    assert "a/1" not in it
    assert {k for _, k in run(it, T0 + 20_000, now=T0 + 2)} == {"a/2"}
    assert it.hosts(T0 + 20_000)[0].repos == 1


# A restart


def memories_of(it, names):
    return {k: it.memory(RepoKey(k)) for k in names}


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age", "fixed"])
def test_after_a_restart_each_repo_is_polled_about_when_it_would_have_been(policy):
    names = [f"a/{n}" for n in range(60)]
    settings = {"polls_per_second": 0.2, "min_gap_s": 30.0, "policy": policy}
    memories = {
        k: RepoMemory(RepoKey(k), activity=Activity((n % 7, n % 7, n % 7), T0, T0 - 1000.0 * n))
        for n, k in enumerate(names)
    }
    before = scheduler(*names, memories=memories, **settings)
    run(before, T0 + 20_000)
    again = Scheduler(ScheduleSettings(host_rate=None, **settings))
    again.add([entry(k, m) for k, m in memories_of(before, names).items()], T0 + 20_001)
    gaps = {k: before.explain(RepoKey(k), T0 + 20_001).aimed_gap_s for k in names}
    last = {k: m.last_poll_at for k, m in memories_of(before, names).items()}
    first = {}
    for at, key in run(again, T0 + 24_000, now=T0 + 20_001):
        first.setdefault(key, at)
    early = {k for k, at in first.items() if at - last[k] < 0.4 * gaps[k]}
    assert len(early) <= 3, early


def test_a_restart_with_everything_just_polled_polls_nothing_within_the_min_gap():
    names = [f"a/{n}" for n in range(200)]
    just = {k: RepoMemory(RepoKey(k), last_poll_at=T0 - 5, verified_at=T0 - 5) for k in names}
    it = scheduler(*names, memories=just, min_gap_s=60.0)
    assert it.take(T0) is None
    assert it.next_wake(T0) == T0 + 55


def test_a_restart_keeps_retries_waiting_and_intervals_running():
    gone = RepoMemory(
        RepoKey("a/gone"), last_poll_at=T0 - 100, failures=1, failure_kind=FailureKind.NOT_FOUND,
        not_before=T0 + 5000,
    )  # fmt: skip
    timed = RepoMemory(RepoKey("a/timed"), last_poll_at=T0 - 100, verified_at=T0 - 100)
    it = scheduler("a/x", polls_per_second=1.0)
    it.add([entry("a/gone", gone), entry("a/timed", timed, interval_s=600.0)], T0)
    polls = run(it, T0 + 6000)
    assert times_of(polls, "a/timed")[0] == pytest.approx(T0 + 500, abs=2)
    assert times_of(polls, "a/gone")[0] == pytest.approx(T0 + 5000, abs=5)


def test_the_class_of_a_request_orders_those_who_wait_for_a_slot_and_is_forgotten_after():
    it = scheduler("a/low", "a/high", "a/own", slots=1)
    for name, rank in (("a/low", Priority.LOW.rank), ("a/own", None), ("a/high", Priority.HIGH.rank)):
        it.request(RepoKey(name), T0, rank=rank)
    polled = [it.take(T0) for _ in range(3)]
    for key in polled:
        it.changed(key, T0)
    order = []
    while (key := it.take_sync(T0)) is not None:
        order.append(key)
        it.synced(key, T0)
    assert order == ["a/high", "a/own", "a/low"]
    for name in ("a/low", "a/own", "a/high"):
        it.request(RepoKey(name), T0 + 1)
    for key in [it.take(T0 + 1) for _ in range(3)]:
        it.changed(key, T0 + 1)
    assert it.take_sync(T0 + 1) == "a/low"
