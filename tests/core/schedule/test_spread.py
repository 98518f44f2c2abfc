"""Those who come together and are alike part: they do not come back together and hold up the others."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from evermirror.core.schedule.placement import first_part
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.model.activity import Activity
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.repo import RepoKey
from tests.core.schedule.test_scheduler import T0, entry, run, scheduler

SILENT = [f"a/silent{n}" for n in range(500)]
BUSY = [f"a/busy{n}" for n in range(5)]
RATE = 0.5  # polls a second: 1,010 s a repo on average
ONE_ROUND_S = (len(SILENT) + len(BUSY)) / RATE
LIMITS = {"polls_per_second": RATE, "min_gap_s": 1.0}
PUSHED = Activity((20.0, 60.0, 300.0), T0, T0)


def memories(last_poll_at=0.0):
    busy = {k: RepoMemory(RepoKey(k), activity=PUSHED, last_poll_at=last_poll_at) for k in BUSY}
    return busy | {k: RepoMemory(RepoKey(k), last_poll_at=last_poll_at) for k in SILENT}


def longest_gap(polls, names, since):
    """How long one of them was not looked at, from ``since`` on."""
    last, longest = {}, 0.0
    for at, key in polls:
        if key in names and at >= since:
            longest = max(longest, at - last.get(key, at))
            last[key] = at
    assert len(last) == len(names)
    return longest


def aimed(it, names, now):
    return max(it.explain(RepoKey(name), now).aimed_gap_s for name in names)


def check_busy_repos_are_seen_at_their_rate(it, now):
    """Over three rounds of the silent ones, of which the first look after they came does not count."""
    settled = now + ONE_ROUND_S
    end = settled + 3 * aimed(it, SILENT, now)
    polls = run(it, end, now=now)
    assert longest_gap(polls, BUSY, settled) < 3 * aimed(it, BUSY, end)
    assert min(Counter(key for _, key in polls)[name] for name in SILENT) >= 3


def test_many_silent_repos_that_come_at_once_do_not_hold_up_the_busy_ones_when_they_come_back():
    it = scheduler(*SILENT, *BUSY, memories=memories(), **LIMITS)
    check_busy_repos_are_seen_at_their_rate(it, T0)


def test_nor_do_silent_repos_that_join_busy_ones_which_are_there_already():
    it = scheduler(*BUSY, memories=memories(), **LIMITS)
    run(it, T0 + 500)
    it.add([entry(name) for name in SILENT], T0 + 501)
    check_busy_repos_are_seen_at_their_rate(it, T0 + 501)


def test_nor_do_they_after_a_restart_or_at_another_worker_if_all_of_them_are_late():
    it = scheduler(*SILENT, *BUSY, memories=memories(T0 - 30 * 86_400.0), **LIMITS)
    check_busy_repos_are_seen_at_their_rate(it, T0)


@pytest.mark.parametrize("count", [20, 55, 144, 377])
def test_those_whose_last_polls_keep_them_apart_stay_so(count):
    """Cut as well, they would gather in a few places: golden steps and even ones add up to a fraction."""
    names, gap_s = SILENT[:count], count * 10.0
    known = {k: RepoMemory(RepoKey(k), last_poll_at=T0 - 10.0 * n) for n, k in enumerate(names)}
    it = scheduler(*names, memories=known, polls_per_second=0.1)
    polls = run(it, T0 + 3 * gap_s)
    last = {}
    for at, key in polls:
        if key in last:
            assert at - last[key] == pytest.approx(gap_s, abs=20.0)
        last[key] = at
    assert len(last) == count


def test_nor_do_they_when_new_settings_place_all_of_them_anew():
    it = scheduler(*SILENT, *BUSY, memories=memories(), policy="cbrt-age", **LIMITS)
    run(it, T0 + ONE_ROUND_S)
    later = T0 + 86_400
    it.reconfigure(ScheduleSettings(host_rate=None, **LIMITS), later)
    check_busy_repos_are_seen_at_their_rate(it, later)


def test_nor_do_those_that_had_no_turns_for_a_while_and_get_them_again():
    it = scheduler(*SILENT, *BUSY, memories=memories(), **LIMITS)
    run(it, T0 + ONE_ROUND_S)
    it.add([replace(entry(name), quiet=True) for name in SILENT], T0 + ONE_ROUND_S)
    later = T0 + 86_400
    it.add([entry(name) for name in SILENT], later)
    check_busy_repos_are_seen_at_their_rate(it, later)


def first_waits(it, names):
    """What is told after the first look, as a part of the usual gap."""
    for _ in names:
        it.polled(it.take(T0), T0)
    told = [it.explain(RepoKey(name), T0) for name in names]
    return [(t.next_poll_at - T0) / t.aimed_gap_s for t in told]


def test_the_second_looks_lie_evenly_between_now_and_the_usual_gap_and_are_told_so():
    names = SILENT[:100]
    it = scheduler(*names, host_rate=100.0)
    waits = sorted(first_waits(it, names))
    assert waits[-1] <= 1.0, "never later than due"
    for n, wait in enumerate(waits):
        assert wait == pytest.approx((n + 1) / len(names), abs=0.03)


def test_only_the_first_stride_is_cut():
    it = scheduler("a/1", "a/2", polls_per_second=0.01)
    polls = [key for _, key in run(it, T0 + 100_000)]
    assert polls[:3] == ["a/1", "a/2", "a/2"], "the second repo takes a part of its first stride"
    assert polls[3:] == ["a/1", "a/2"] * (len(polls[3:]) // 2) + ["a/1"] * (len(polls[3:]) % 2)


def test_a_failure_that_keeps_its_turn_leaves_the_first_stride_to_come():
    it = scheduler("a/1", "a/2", polls_per_second=0.01)
    assert [it.take(T0), it.take(T0 + 100)] == ["a/1", "a/2"]
    it.polled("a/1", T0 + 100)
    it.failed("a/2", Failure(FailureKind.UNKNOWN, "x"), T0 + 100)
    assert it.take(T0 + 200) == "a/2"
    it.polled("a/2", T0 + 200)
    told = [it.explain(RepoKey(name), T0 + 200) for name in ("a/1", "a/2")]
    assert [t.aimed_gap_s for t in told] == pytest.approx([200.0, 200.0])
    assert it.take(T0 + 300) == "a/2", "it has only a part of its stride to wait"


def test_a_repo_that_is_alone_has_its_whole_stride():
    assert first_part(0) == 1.0


def test_parts_are_even_wherever_one_stops_and_never_nothing():
    for count in (2, 10, 1_000, 100_000):
        parts = sorted(first_part(n) for n in range(count))
        assert parts[0] > 0.0
        assert parts[-1] == 1.0
        gaps = [b - a for a, b in pairwise([0.0, *parts])]
        assert max(gaps) < 2.0 / count
