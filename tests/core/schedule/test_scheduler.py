"""What the scheduler promises, one promise a test."""

import random
import tracemalloc
from collections import Counter
from itertools import pairwise

import pytest

from evermirror.core.schedule.queue import Phase
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.repo import Host, Priority, RepoKey, RepoSpec

T0 = 1_700_000_000.0
SILENT = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")


def entry(key, memory=None, priority=Priority.NORMAL, interval_s=None):
    spec = RepoSpec(RepoKey(key), f"https://{key}", Host(key.split("/")[0]), priority, interval_s)
    return Entry(spec, memory)


def scheduler(*keys, memories=None, **settings):
    made = Scheduler(ScheduleSettings(**{"host_rate": None, "min_gap_s": 0.0} | settings))
    made.add([entry(k, (memories or {}).get(k)) for k in keys], T0)
    return made


def run(it, until, now=T0, poll_s=0.0, outcome=None):
    """Drive it as an engine would; returns the polls as (time, key)."""
    polls, flying = [], []
    while True:
        while (key := it.take(now)) is not None:
            polls.append((now, key))
            flying.append((now + poll_s, key))
            if not poll_s:
                break
        if flying and flying[0][0] <= now:
            _, key = flying.pop(0)
            outcome(it, key, now) if outcome else it.polled(key, now)
            continue
        times = [t for t in (it.next_wake(now), flying[0][0] if flying else None) if t is not None]
        assert all(t >= now for t in times)
        if not times or min(times) > until:
            return polls
        assert min(times) > now or flying, "it must not spin"
        now = min(times)


def take_by_name(it, key, now=T0):
    it.request(key, now)
    assert it.take(now) == key


def gaps(polls):
    last, found = {}, {}
    for at, key in polls:
        found.setdefault(key, []).append(at - last.get(key, T0))
        last[key] = at
    return found


def test_polls_per_second_is_kept_and_used_up():
    polls = run(scheduler("a/1", "b/1", "c/1", polls_per_second=0.1), T0 + 1000)
    assert len(polls) == pytest.approx(100, abs=1)


def test_a_host_is_not_asked_faster_than_its_rate_and_others_go_on():
    polls = run(scheduler("a/1", "a/2", "b/1", host_rate=0.5, min_gap_s=1.0), T0 + 100)
    per_host = Counter(key[0] for _, key in polls)
    assert per_host["a"] == pytest.approx(50, abs=1)
    assert per_host["b"] == pytest.approx(50, abs=1)


def test_min_gap_holds_for_every_repo():
    polls = run(scheduler("a/1", "a/2", min_gap_s=60.0), T0 + 601)
    assert all(gap >= 60 for found in gaps(polls).values() for gap in found[1:])
    assert len(polls) == 22


def test_a_critical_repo_gets_four_times_the_polls_of_a_normal_one():
    it = scheduler(polls_per_second=1.0)
    it.add([entry("a/c", priority=Priority.CRITICAL), entry("a/n"), entry("b/n")], T0)
    count = Counter(key for _, key in run(it, T0 + 6000))
    assert count["a/c"] / count["a/n"] == pytest.approx(4, rel=0.02)
    assert count["a/n"] == pytest.approx(count["b/n"], abs=2)


def test_a_repo_held_by_its_min_gap_does_not_hog_the_budget_afterwards():
    busy = RepoMemory(RepoKey("a/busy"), activity=Activity((500.0, 500.0, 500.0), T0, T0))
    it = scheduler("a/busy", *(f"a/{n}" for n in range(5)), memories={"a/busy": busy}, polls_per_second=1.0)
    it.reconfigure(ScheduleSettings(host_rate=None, min_gap_s=30.0, polls_per_second=1.0), T0)
    polls = run(it, T0 + 600)
    assert all(gap >= 30 for found in gaps(polls).values() for gap in found[1:])
    assert min(Counter(key for _, key in polls).values()) >= 10


@pytest.mark.parametrize("policy", ["adaptive", "cbrt-age", "fixed"])
def test_max_gap_is_kept_under_every_policy_where_the_budget_allows(policy):
    quiet = {
        f"a/{n}": RepoMemory(RepoKey(f"a/{n}"), activity=Activity((0.0, 0.0, 0.01), T0, T0))
        for n in range(20)
    }
    busy = {
        f"b/{n}": RepoMemory(RepoKey(f"b/{n}"), activity=Activity((90.0, 90.0, 90.0), T0, T0))
        for n in range(5)
    }
    memories = quiet | busy
    it = scheduler(*memories, memories=memories, policy=policy, polls_per_second=1.0, max_gap_s=120.0)
    found = gaps(run(it, T0 + 3000))
    assert len(found) == 25
    assert max(max(g) for g in found.values()) <= 120 + 25  # all may fall due at the same moment
    assert it.warnings(T0) == ()


def test_where_the_budget_cannot_keep_max_gap_it_says_so_and_still_starves_nobody():
    it = scheduler(*(f"a/{n}" for n in range(100)), polls_per_second=0.1, max_gap_s=60.0)
    warning = it.warnings(T0)[0]
    assert (warning.code, warning.host) == ("max-gap", "a")
    polls = run(it, T0 + 8000)
    assert len(polls) == pytest.approx(800, abs=2)
    assert max(max(g) for g in gaps(polls).values()) <= 2000 + 1000


def test_an_interval_holds_under_every_policy():
    it = scheduler("a/1", "a/2", polls_per_second=1.0)
    it.add([entry("a/3", interval_s=300.0)], T0)
    assert [round(t - T0) for t, key in run(it, T0 + 1000) if key == "a/3"] == pytest.approx(
        [0, 300, 600, 900], abs=3
    )


def test_intervals_that_ask_for_more_than_there_is_are_told():
    it = scheduler(polls_per_second=0.01)
    it.add([entry(f"a/{n}", interval_s=60.0) for n in range(3)], T0)
    assert [w.code for w in it.warnings(T0)] == ["intervals"]


def test_a_request_goes_first_and_waits_neither_for_min_gap_nor_for_rates():
    it = scheduler("a/1", "a/2", min_gap_s=3600.0, host_rate=0.001, polls_per_second=0.001)
    first = it.take(T0)
    it.polled(first, T0)
    assert it.take(T0) is None
    assert it.request(first, T0)
    assert it.next_wake(T0) == T0
    assert it.take(T0) == first


def test_a_request_for_a_repo_under_way_is_looked_at_again_after():
    it = scheduler("a/1", min_gap_s=60.0)
    assert it.take(T0) == "a/1"
    it.request("a/1", T0)
    assert it.take(T0) is None
    it.polled("a/1", T0 + 1)
    assert it.take(T0 + 1) == "a/1"
    it.polled("a/1", T0 + 2)
    assert it.take(T0 + 2) is None


def test_a_request_for_an_unknown_repo_is_refused():
    assert not scheduler("a/1").request(RepoKey("a/9"), T0)


def test_a_rate_limited_host_waits_with_all_its_repos_and_holds_up_nobody_else():
    it = scheduler("a/1", "a/2", "b/1", polls_per_second=1.0)
    take_by_name(it, "a/1")
    verdict = it.failed("a/1", Failure(FailureKind.RATE_LIMITED, "429", retry_after_s=100.0), T0 + 10)
    assert (verdict.counted, verdict.failures) == (False, 0)
    assert verdict.next_attempt_at == T0 + 110
    it.request("a/2", T0 + 10)
    polls = run(it, T0 + 109, now=T0 + 11)
    assert {key for _, key in polls} == {"b/1"}
    assert len(polls) == pytest.approx(98, abs=2)
    assert it.take(T0 + 110) == "a/2"


def test_a_host_that_was_blocked_does_not_claim_the_whole_budget_afterwards():
    it = scheduler("a/1", "b/1", polls_per_second=1.0)
    first = it.take(T0)
    it.failed(first, Failure(FailureKind.RATE_LIMITED, "429", retry_after_s=1000.0), T0)
    run(it, T0 + 1000, now=T0 + 1)
    after = Counter(key for _, key in run(it, T0 + 1100, now=T0 + 1001))
    assert after["a/1"] == pytest.approx(after["b/1"], abs=2)


def test_a_failed_poll_is_retried_after_a_minute_then_two():
    it = scheduler("a/1", "b/1", polls_per_second=1.0)
    outcomes = []

    def outcome(s, key, now):
        if key == "a/1":
            outcomes.append((now - T0, s.failed(key, SILENT, now)))
        else:
            s.polled(key, now)

    run(it, T0 + 1000, outcome=outcome)
    times = [at for at, _ in outcomes]
    assert [round(b - a, -1) for a, b in pairwise(times)] == [60, 120, 240, 480]
    assert [v.failures for _, v in outcomes] == [1, 2, 3, 4, 5]


def test_a_repo_that_is_gone_is_asked_for_once_a_day_and_a_success_clears_it():
    it = scheduler("a/1", "a/2", polls_per_second=1.0)
    take_by_name(it, "a/1")
    gone = Failure(FailureKind.NOT_FOUND, "404")
    assert it.failed("a/1", gone, T0 + 5).next_attempt_at == T0 + 5 + 86400
    assert it.memory(RepoKey("a/1")).failure_kind is FailureKind.NOT_FOUND
    assert it.explain(RepoKey("a/1"), T0 + 5).reason == "retry after failure 1, NOT_FOUND"
    assert all(key == "a/2" for _, key in run(it, T0 + 2000, now=T0 + 6))
    assert it.forgive(RepoKey("a/1"), T0 + 2001)
    assert it.memory(RepoKey("a/1")).failures == 0
    assert "a/1" in [key for _, key in run(it, T0 + 2010, now=T0 + 2001)]


def test_in_a_storm_a_host_is_probed_one_poll_at_a_time_and_nothing_counts():
    keys = [f"a/{n}" for n in range(10)]
    it = scheduler(*keys, min_gap_s=10.0)
    down_until = T0 + 1000

    def outcome(s, key, now):
        if now < down_until:
            s.failed(key, SILENT, now)
        else:
            s.polled(key, now)

    polls = run(it, T0 + 999, poll_s=0.5, outcome=outcome)
    probes = [at - T0 for at, _ in polls if at > T0 + 2]
    assert [round(b - a) for a, b in pairwise(probes)] == [60, 120, 240, 480][: len(probes) - 1]
    assert len({key for at, key in polls if at > T0 + 2}) > 1  # not always the same repo
    assert all(it.memory(RepoKey(k)).failures == 0 for k in keys)
    assert [w.code for w in it.warnings(T0 + 999)] == ["host-down"]
    after = run(it, T0 + 1600, now=T0 + 999, poll_s=0.5, outcome=outcome)
    assert {key for _, key in after} == set(keys)
    assert it.hosts(T0 + 1600)[0].storm is None


def test_first_failures_of_a_storm_are_named_when_they_are_taken_back():
    it = scheduler("a/1", "a/2", "a/3")
    keys = [it.take(T0) for _ in range(3)]
    assert it.failed(keys[0], SILENT, T0).counted
    assert it.failed(keys[1], SILENT, T0).counted
    verdict = it.failed(keys[2], SILENT, T0)
    assert not verdict.counted
    assert set(verdict.uncounted) == set(keys[:2])
    assert it.memory(keys[0]).failures == 0


def test_a_poll_that_saw_a_change_shows_that_the_host_is_well():
    it = scheduler("a/1", "a/2", "a/3", "a/4")
    keys = [it.take(T0) for _ in range(4)]
    it.failed(keys[0], SILENT, T0)
    it.failed(keys[1], SILENT, T0)
    it.changed(keys[2], T0)
    assert it.failed(keys[3], SILENT, T0).counted


def test_a_restart_polls_nobody_again_before_its_time():
    names = [f"a/{n}" for n in range(50)]
    settings = {"polls_per_second": 0.1, "min_gap_s": 60.0}
    before = scheduler(*names, **settings)
    run(before, T0 + 3000)
    memories = {k: before.memory(RepoKey(k)) for k in names}
    again = Scheduler(ScheduleSettings(host_rate=None, **settings))
    again.add([entry(k, memories[k]) for k in names], T0 + 3001)
    assert all(again.memory(RepoKey(k)) == memories[k] for k in names)
    followed = [run(s, T0 + 3400, now=T0 + 3001) for s in (before, again)]
    assert [len(polls) for polls in followed] == [40, 40]
    recent = {k for k, m in memories.items() if m.last_poll_at > T0 + 2600}
    assert not recent & {key for at, key in followed[1] if at < T0 + 3050}


def test_memory_written_under_a_clock_ahead_of_ours_holds_nobody_back():
    ahead = RepoMemory(
        RepoKey("a/1"),
        activity=Activity((1.0, 1.0, 1.0), T0 + 1e8, T0 + 1e8),
        last_poll_at=T0 + 1e8,
        verified_at=T0 + 1e8,
        not_before=T0 + 1e8,
    )
    it = scheduler("a/1", memories={"a/1": ahead}, min_gap_s=60.0)
    wake = it.next_wake(T0)
    assert wake is not None
    assert wake <= T0 + 86400


def test_a_newcomer_is_polled_soon_and_gains_nothing_on_the_others():
    it = scheduler("a/1", "a/2", polls_per_second=1.0)
    run(it, T0 + 1000)
    it.add([entry("a/new")], T0 + 1000)
    count = Counter(key for _, key in run(it, T0 + 1090, now=T0 + 1001))
    assert max(count.values()) - min(count.values()) <= 2


def test_a_busier_repo_than_thought_moves_forward_at_once():
    it = scheduler(*(f"a/{n}" for n in range(10)), polls_per_second=1.0)
    run(it, T0 + 100)
    before = it.explain(RepoKey("a/3"), T0 + 100)
    it.learned(RepoKey("a/3"), [T0 + 90.0], T0 + 100)
    after = it.explain(RepoKey("a/3"), T0 + 100)
    assert after.aimed_gap_s < before.aimed_gap_s / 3
    assert after.pushes_per_day > before.pushes_per_day


def test_removal_while_under_way_is_safe_and_coming_back_is_not_twice():
    it = scheduler("a/1", "a/2")
    taken = {it.take(T0), it.take(T0)}
    assert taken == {"a/1", "a/2"}
    it.remove(["a/1", "a/2"], T0)
    it.add([entry("a/1")], T0)
    assert it.take(T0) is None
    it.polled("a/2", T0 + 1)
    assert "a/2" not in it
    it.polled("a/1", T0 + 1)
    assert it.take(T0 + 1) == "a/1"
    with pytest.raises(ValueError, match="a/2"):
        it.polled("a/2", T0 + 2)


def test_a_poll_ends_once():
    it = scheduler("a/1")
    it.take(T0)
    it.polled("a/1", T0)
    with pytest.raises(ValueError, match="waiting"):
        it.polled("a/1", T0)


def test_a_changed_repo_is_synced_before_it_is_polled_again():
    it = scheduler("a/1")
    it.take(T0)
    it.changed("a/1", T0, first=True)
    assert it.take(T0) is None
    assert it.next_wake(T0) == T0  # a sync can be taken
    assert it.take_sync(T0) == "a/1"
    assert it.next_wake(T0) is None
    assert it.explain(RepoKey("a/1"), T0).phase is Phase.SYNCING
    it.synced("a/1", T0 + 50, [T0 - 1000.0, T0 + 10.0])
    assert it.memory(RepoKey("a/1")).activity.last_push_at == T0 + 10.0
    assert it.take(T0 + 50) == "a/1"


def test_a_poll_that_works_does_not_forget_syncs_that_fail():
    it = scheduler("a/1", "b/1")
    now = T0
    for n in (1, 2):
        it.request("a/1", now)
        assert it.take(now) == "a/1"
        it.changed("a/1", now)
        assert it.take_sync(now) == "a/1"
        assert it.failed("a/1", Failure(FailureKind.UNKNOWN, "?"), now).failures == n


def test_transfers_leave_two_connections_for_polls_and_the_sum_is_never_exceeded():
    it = scheduler(*(f"a/{n}" for n in range(20)), host_connections=5, slots=10)
    chance = random.Random(5)
    polling, syncing, now = [], [], T0
    most = 0
    for _ in range(2000):
        now += 1.0
        while (key := it.take_sync(now)) is not None:
            syncing.append(key)
        if (key := it.take(now)) is not None:
            polling.append(key)
        assert len(polling) + len(syncing) <= 5
        assert len(syncing) <= 3
        most = max(most, len(syncing))
        if polling and chance.random() < 0.7:
            it.changed(polling.pop(0), now) if chance.random() < 0.6 else it.polled(polling.pop(0), now)
        if syncing and chance.random() < 0.3:
            it.synced(syncing.pop(0), now)
    assert most == 3


def test_clones_wait_while_the_disk_is_full_and_polls_go_on():
    it = scheduler("a/1", "a/2", host_connections=1)
    it.allow_clones(False)
    key = it.take(T0)
    it.changed(key, T0, first=True)
    assert it.take_sync(T0) is None
    assert it.next_wake(T0) == T0
    assert it.take(T0) not in (None, key)
    it.allow_clones(True)
    assert it.take_sync(T0) is None  # its host's only connection polls
    assert it.syncs_waiting == 1


def test_no_transfer_starts_at_a_host_that_asked_us_to_wait():
    it = scheduler("a/1", "a/2")
    one, two = it.take(T0), it.take(T0)
    it.changed(one, T0)
    it.failed(two, Failure(FailureKind.RATE_LIMITED, "429", retry_after_s=50.0), T0)
    assert it.take_sync(T0) is None
    assert it.next_wake(T0) == T0 + 50
    assert it.take_sync(T0 + 50) == one


@pytest.mark.parametrize(
    "change", [{"policy": "fixed"}, {"max_gap_s": 100.0}, {"min_gap_s": 5.0}, {"host_rate": 2.0}]
)
def test_new_settings_hold_at_once_and_lose_nobody(change):
    it = scheduler(*(f"a/{n}" for n in range(10)), polls_per_second=1.0, host_connections=20)
    run(it, T0 + 100)
    flying = "a/3"
    take_by_name(it, flying, T0 + 101)
    it.request("a/5", T0 + 101)
    it.reconfigure(
        ScheduleSettings(**{"host_rate": None, "min_gap_s": 0.0, "polls_per_second": 1.0} | change), T0 + 101
    )
    assert it.take(T0 + 101) == "a/5"
    it.polled("a/5", T0 + 102)
    it.polled(flying, T0 + 102)
    assert {key for _, key in run(it, T0 + 10_000, now=T0 + 102)} == {f"a/{n}" for n in range(10)}


def test_a_time_that_is_a_little_earlier_counts_as_the_latest_seen():
    it = scheduler("a/1", min_gap_s=60.0)
    it.polled(it.take(T0 + 1000), T0 + 1000)
    assert it.take(T0 + 990) is None
    assert it.next_wake(T0 + 990) == T0 + 1060


def test_who_failed_for_lack_of_room_is_due_when_there_is_some():
    it = scheduler("a/1", "b/1", "c/1", min_gap_s=1.0)
    full, odd = Failure(FailureKind.DISK_FULL, "no room"), Failure(FailureKind.UNKNOWN, "odd")
    for _ in range(3):
        key = it.take(T0)
        it.failed(key, odd if key == "c/1" else full, T0)
    assert it.take(T0 + 50) is None
    it.room_again(T0 + 50)
    assert {it.take(T0 + 50), it.take(T0 + 50)} == {"a/1", "b/1"}
    assert it.take(T0 + 50) is None, "what failed for another reason waits on"
    it.polled("a/1", T0 + 51)
    it.remove(["b/1"], T0 + 51)
    it.room_again(T0 + 52)
    assert it.take(T0 + 51.5) is None


HOUR = 3600.0


def test_a_clock_set_back_keeps_nobody_waiting_and_makes_nobody_due():
    """As if it had always been right: what is left to wait is the same a moment before and after."""
    keys = [f"a/{n}" for n in range(3)]
    it = scheduler(*keys, min_gap_s=60.0, host_rate=1.0, host_connections=20)
    for n in range(3):
        it.polled(it.take(T0 + HOUR + n), T0 + HOUR + n)
    assert it.next_wake(T0 + HOUR + 10) == T0 + HOUR + 60
    assert it.take(T0 + 10) is None, "set right: nobody is due for it"
    assert it.next_wake(T0 + 10) == T0 + 60
    assert {key for _, key in run(it, T0 + 70, now=T0 + 10)} == set(keys)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_gap_s": 30.0, "polls_per_second": 1.0},
        {"polls_per_second": 0.5},
        {"host_rate": 0.2},
        {"min_gap_s": 20.0},
    ],
)
def test_polls_go_on_at_the_same_pace_where_a_clock_was_ahead(settings):
    keys = [f"a/{n}" for n in range(5)]
    right, was_ahead = (scheduler(*keys, host_connections=20, **settings) for _ in range(2))
    run(right, T0 + 200)
    run(was_ahead, T0 + 100)
    run(was_ahead, T0 + HOUR + 200, now=T0 + HOUR + 100)
    polls = [len(run(it, T0 + 500, now=T0 + 200)) for it in (right, was_ahead)]
    assert polls[0] > 10
    assert polls[1] == pytest.approx(polls[0], abs=3)


def test_waits_that_began_while_the_clock_was_ahead_are_not_longer_for_it():
    it = scheduler("a/1", "b/1", "c/1")
    ahead = T0 + HOUR
    limited = Failure(FailureKind.RATE_LIMITED, "slow down", retry_after_s=90.0)
    until = {}
    for _ in range(3):
        key = it.take(ahead)
        if key == "a/1":
            it.failed(key, limited, ahead)
        elif key == "b/1":
            until[key] = it.failed(key, Failure(FailureKind.UNKNOWN, "odd"), ahead).next_attempt_at
        else:
            it.polled(key, ahead)
    assert until["b/1"] > ahead
    assert it.explain("a/1", T0).next_poll_at == pytest.approx(T0 + 90, abs=1)
    assert it.explain("b/1", T0).next_poll_at == pytest.approx(until["b/1"] - HOUR, abs=1)
    assert it.memory("b/1").not_before == pytest.approx(until["b/1"] - HOUR, abs=1)
    assert it.memory("c/1").verified_at == T0, "it was seen when it was seen"


def test_what_was_seen_before_the_clock_jumped_was_seen_then():
    it = scheduler("a/1", min_gap_s=7200.0)
    it.polled(it.take(T0), T0)
    assert it.take(T0 + HOUR) is None
    assert it.take(T0 + 50) is None
    memory = it.memory("a/1")
    assert (memory.last_poll_at, memory.verified_at) == (T0, T0)


def traced_bytes(work):
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[0], kept
    finally:
        tracemalloc.stop()


def test_a_repo_costs_about_a_kilobyte_and_dead_entries_do_not_pile_up():
    entries = [entry(f"h{n % 50}/{n}") for n in range(10_000)]

    def filled():
        it = Scheduler(ScheduleSettings(host_rate=None, min_gap_s=60.0, max_gap_s=86400.0))
        it.add(entries, T0)
        for now in (T0, T0 + 100, T0 + 200):
            while (key := it.take(now)) is not None:
                it.learned(key, [now - 5], now)
                it.polled(key, now)
        return it

    used, it = traced_bytes(filled)
    assert used / len(entries) < 1100

    def asked_for_often():
        for _ in range(20_000):
            it.request("h1/1", T0 + 200)
            it.polled(it.take(T0 + 200), T0 + 200)

    assert traced_bytes(asked_for_often)[0] < used / 20
