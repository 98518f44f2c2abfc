"""Orders about many repos, decided: what may be ordered, what it means for one, how it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.bulk.admission import (
    KEYS_MAX,
    LOOKS_MAX,
    WAITING_MAX,
    check_count,
    check_line,
    check_wish,
)
from evermirror.core.bulk.course import (
    CHUNK,
    KEYS_KEPT,
    MORE_NOW,
    Outcome,
    ended,
    handled,
    next_named,
    refused,
    taken,
)
from evermirror.core.bulk.verdict import Plain, Refused, is_failing, verdict
from evermirror.errors import Conflict, UsageError
from evermirror.model.bulk import BulkAction, BulkFilter, BulkId, BulkOrder, BulkStatus, BulkWish
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.push import TargetId
from evermirror.model.repo import Host, Priority, RepoKey, RepoRecord, RepoSpec, RepoStatus

ALL = BulkFilter()
KEY = RepoKey("h.example/a")
RECORD = RepoRecord(RepoSpec(KEY, "https://h.example/a", Host("h.example")), status=RepoStatus.ACTIVE)
PAUSED = replace(RECORD, enabled=False, status=RepoStatus.INACTIVE)
FAILING = replace(RECORD, status=RepoStatus.FAILING, consecutive_failures=3)
PROJECT = Project(KEY, "a", Host("h.example"), PullConfig(), next_sync_at=1.0, created_at=1.0, updated_at=1.0)
DISABLED = replace(PROJECT, config=replace(PROJECT.config, enabled=False), paused="9 failures")
A, N = Plain.ACT, Plain.NOTHING


def order(wish: BulkWish, matched: int = 0) -> BulkOrder:
    return BulkOrder(BulkId(7), wish, "me", matched, 10.0, 10.0)


# What may be ordered


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (BulkWish(BulkAction.SYNC), "neither is given"),
        (BulkWish(BulkAction.SYNC, keys=("a",), filter=ALL), "both are given"),
        (BulkWish(BulkAction.SYNC, keys=tuple(map(str, range(KEYS_MAX + 1)))), "more than 1000"),
        (BulkWish(BulkAction.PRIORITY, filter=ALL), "which one is not said"),
        (BulkWish(BulkAction.PAUSE, filter=ALL, priority=Priority.LOW), "only the action priority"),
    ],
)
def test_a_wish_that_cannot_be_meant_is_refused(wish, words):
    with pytest.raises(UsageError, match=words):
        check_wish(wish)


def test_a_wish_is_about_keys_or_a_filter():
    check_wish(BulkWish(BulkAction.SYNC, keys=tuple(map(str, range(KEYS_MAX)))))
    check_wish(BulkWish(BulkAction.PRIORITY, filter=ALL, priority=Priority.LOW))


def test_another_count_than_expected_is_a_conflict_that_names_both():
    wish = BulkWish(BulkAction.PAUSE, filter=ALL)
    with pytest.raises(Conflict, match="12 repos were expected, and 13 match now: nothing was done"):
        check_count(wish, 13, 12)
    check_count(wish, 12, 12)
    check_count(wish, 1_000_000, None)  # paused, however many


@pytest.mark.parametrize("action", [BulkAction.SYNC, BulkAction.RETRY])
def test_looks_are_bounded_and_the_refusal_says_what_to_do(action):
    check_count(BulkWish(action, filter=ALL), LOOKS_MAX, LOOKS_MAX)
    with pytest.raises(UsageError, match=r"10001 repos match.*at most 10000.*Narrow the filter"):
        check_count(BulkWish(action, filter=ALL), LOOKS_MAX + 1, None)


def test_so_many_orders_wait_and_no_more():
    check_line(WAITING_MAX - 1)
    with pytest.raises(Conflict, match="20 orders wait"):
        check_line(WAITING_MAX)


# What it means for one repo


@pytest.mark.parametrize(
    ("action", "plain", "paused", "failing"),
    [
        (BulkAction.SYNC, A, "resume it first", A),
        (BulkAction.RETRY, N, N, A),
        (BulkAction.RESET, N, "resume it first", A),
        (BulkAction.PAUSE, A, N, A),
        (BulkAction.RESUME, N, A, N),
    ],
)
def test_what_an_action_means_for_a_repo(action, plain, paused, failing):
    wish = BulkWish(action, filter=ALL)
    for record, expected in ((RECORD, plain), (PAUSED, paused), (FAILING, failing)):
        told = verdict(wish, record, None)
        if isinstance(expected, str):
            assert isinstance(told, Refused)
            assert expected in told.why
        else:
            assert told is expected


def test_a_project_that_paused_itself_is_reset_and_not_looked_at_before():
    for action in (BulkAction.SYNC, BulkAction.RETRY):
        told = verdict(BulkWish(action, filter=ALL), RECORD, DISABLED)
        assert told == Refused("is a pull project that is disabled by itself (9 failures): reset it first")
    assert verdict(BulkWish(BulkAction.RESET, filter=ALL), RECORD, DISABLED) is A
    assert verdict(BulkWish(BulkAction.RESET, filter=ALL), RECORD, PROJECT) is N


@pytest.mark.parametrize("record", [RECORD, FAILING])
def test_a_project_that_a_person_disabled_stays_so(record):
    by_hand = replace(DISABLED, paused="", failures=2)
    assert verdict(BulkWish(BulkAction.RESET, filter=ALL), record, by_hand) is N
    for action in (BulkAction.SYNC, BulkAction.RETRY):
        told = verdict(BulkWish(action, filter=ALL), record, by_hand)
        assert told == Refused("is a pull project that a person disabled: enable it first")


def test_who_fails():
    assert not is_failing(RECORD, PROJECT)
    for status in (RepoStatus.GONE, RepoStatus.AUTH):
        assert is_failing(replace(RECORD, status=status), None)
    assert is_failing(RECORD, replace(PROJECT, failures=1))
    target = Target(TargetId(1), "https://t.example/a", failures=2)
    assert is_failing(RECORD, replace(PROJECT, targets=(target,)))
    assert not is_failing(replace(FAILING, enabled=False), None)


def test_a_priority_is_set_where_the_repo_has_another():
    wish = BulkWish(BulkAction.PRIORITY, filter=ALL, priority=Priority.HIGH)
    high = replace(RECORD, spec=replace(RECORD.spec, priority=Priority.HIGH))
    assert verdict(wish, RECORD, None) is A
    assert verdict(wish, high, None) is N


# How it goes on


def test_a_chunk_is_taken_handled_and_counted():
    one = order(BulkWish(BulkAction.PAUSE, filter=ALL), 3)
    one = taken(one, [RepoKey("a"), RepoKey("b")], 11.0)
    assert (one.working, one.cursor, one.updated_at) == (("a", "b"), None, 11.0)
    one = handled(one, Outcome(done=1, unchanged=1) + refused(RepoKey("b"), "is gone"))
    assert (one.done, one.unchanged, one.failed, one.first_error) == (1, 1, 1, "b is gone")
    assert (one.working, one.cursor, one.status) == ((), "b", BulkStatus.RUNNING)
    one = handled(taken(one, [RepoKey("c")], 12.0), refused(RepoKey("c"), "too"))
    assert (one.failed, one.first_error) == (2, "b is gone")
    assert taken(one, [], 13.0).status is BulkStatus.DONE


def test_no_more_are_taken_than_were_confirmed():
    keys = [RepoKey("a"), RepoKey("b"), RepoKey("c")]
    one = taken(order(BulkWish(BulkAction.PAUSE, filter=ALL), 2), keys, 11.0)
    assert one.working == ("a", "b")
    one = handled(one, Outcome(done=1) + refused(RepoKey("b"), "is gone"))
    assert taken(one, [], 12.0).status is BulkStatus.DONE
    more = taken(one, keys[2:], 12.0)
    assert (more.status, more.working) == (BulkStatus.FAILED, ())
    assert more.first_error == f"{MORE_NOW}; b is gone"


def test_one_that_has_ended_stays_as_it_is_and_forgets_most_names():
    wish = BulkWish(BulkAction.PAUSE, keys=tuple(f"k{n:03}" for n in range(100)))
    stopped = ended(taken(order(wish, 100), [RepoKey("k000")], 11.0), BulkStatus.STOPPED, 12.0)
    assert (stopped.status, stopped.working, len(stopped.wish.keys)) == (BulkStatus.STOPPED, (), KEYS_KEPT)
    assert ended(stopped, BulkStatus.FAILED, 13.0, "no") is stopped
    assert ended(order(wish), BulkStatus.FAILED, 13.0, "x" * 9_000).first_error == "x" * 500


KEYS = st.lists(st.text("abc/", min_size=1, max_size=6), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    keys=KEYS,
    bad=st.sets(st.integers(0, 11)),
    crashes=st.sets(st.integers(0, 30)),
    chunk=st.integers(1, 4),
)
def test_cut_short_anywhere_an_order_counts_as_the_plain_loop_does(keys, bad, crashes, chunk):
    """The twin acts on one after another. A crash loses what is not on the disk: it comes before the chunk
    is acted on, after, or after it was handled and before that was written."""
    names = sorted(set(keys))
    refused_ones = {names[n] for n in bad if n < len(names)}
    twin_failed = [name for name in names if name in refused_ones]

    acted: set[str] = set()
    steps = 0

    def crash() -> bool:
        nonlocal steps
        steps += 1
        return steps in crashes

    disk = order(BulkWish(BulkAction.PAUSE, keys=tuple(keys)), len(names))
    while not disk.has_ended:
        one = disk
        if crash():
            continue
        if one.working:
            outcome = Outcome()
            for key in one.working:
                if key in refused_ones:
                    outcome += refused(key, "no")
                else:
                    outcome += Outcome(done=1, unchanged=int(key in acted))
                    acted.add(key)
            if crash():
                continue
            one = handled(one, outcome)
        if crash():
            continue
        disk = taken(one, next_named(one.wish, one.cursor)[:chunk], 20.0)
    assert disk.status is BulkStatus.DONE
    assert acted == set(names) - refused_ones
    assert (disk.done, disk.failed) == (len(acted), len(twin_failed))
    assert disk.first_error == (f"{twin_failed[0]} no" if twin_failed else "")


def test_names_come_in_the_order_of_keys_each_once():
    wish = BulkWish(BulkAction.SYNC, keys=("b", "a", "b", *(f"c{n:04}" for n in range(CHUNK))))
    first = next_named(wish, None)
    assert (first[:3], len(first)) == (("a", "b", "c0000"), CHUNK)
    assert next_named(wish, first[-1]) == (f"c{CHUNK - 2:04}", f"c{CHUNK - 1:04}")
    assert next_named(wish, RepoKey("d")) == ()
