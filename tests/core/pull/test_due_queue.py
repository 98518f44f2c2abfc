"""Who is due and who is next: by example, and against a twin that sorts everything each time."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.pull.queue import NEVER, DueQueue, Waiter
from evermirror.model.repo import Host, RepoKey

ALL_RANKS = (0, 1, 2, 3)


def waiter(name, rank=2, *, since=NEVER, batch=False, host="h"):
    found = Waiter(RepoKey(name), Host(host))
    found.rank, found.since, found.batch = rank, since, batch
    return found


def queue(*waiters, at=0.0, released=100.0):
    due = DueQueue()
    due.release(released)
    for one in waiters:
        due.enter(one, at)
    return due


def taken(due, ranks=ALL_RANKS, room=lambda host: True, **fields):
    names = []
    while (one := due.take(ranks, room, **fields)) is not None:
        names.append(one.key)
    return names


def test_the_order_is_class_then_batches_then_oldest_sync_then_key():
    due = queue(
        waiter("low", 3),
        waiter("new", 1, since=NEVER),
        waiter("young", 1, since=50.0),
        waiter("b-old", 1, since=10.0),
        waiter("a-old", 1, since=10.0),
        waiter("second-batch", 1, since=8, batch=True),
        waiter("first-batch", 1, since=7, batch=True),
        waiter("critical", 0, since=90.0),
    )
    assert taken(due) == ["critical", "first-batch", "second-batch", "new", "a-old", "b-old", "young", "low"]


def test_nobody_is_due_before_its_time():
    due = DueQueue()
    due.enter(waiter("a"), 50.0)
    due.enter(waiter("b"), 40.0)
    assert due.next_at() == 40.0
    due.release(45.0)
    assert taken(due) == ["b"]
    assert due.next_at() == 50.0


def test_a_batch_is_due_at_once():
    due = DueQueue()
    due.enter(waiter("a", batch=True), 50.0)
    assert taken(due) == ["a"]


def test_only_the_classes_asked_for_are_taken():
    due = queue(waiter("a", 0), waiter("b", 2), waiter("c", 3))
    assert taken(due, (0, 1)) == ["a"]
    assert taken(due, (3,)) == ["c"]


def test_batches_alone_where_the_schedule_stands_still():
    due = queue(waiter("a", 0), waiter("b", 1, batch=True), waiter("c", 1))
    assert taken(due, batches_only=True) == ["b"]
    assert taken(due) == ["a", "c"]


def test_whoever_left_is_not_taken():
    a, b = waiter("a"), waiter("b")
    due = queue(a, b)
    due.leave(a)
    assert taken(due) == ["b"]
    due.leave(b)  # not in the queue: nothing happens
    due.enter(a, 0.0)
    assert taken(due) == ["a"]


def test_a_host_without_room_is_passed_over_until_it_has_some():
    due = queue(waiter("a1", host="a"), waiter("b1", host="b"), waiter("a2", 0, host="a"))
    assert taken(due, room=lambda host: host == "b") == ["b1"]
    due.enter(waiter("a0", 1, host="a"), 0.0)
    assert taken(due) == []  # parked: nobody asks about it again
    due.unpark(Host("a"))
    assert taken(due) == ["a2", "a0", "a1"]


def test_whoever_comes_before_the_front_of_its_host_is_seen_among_the_hosts():
    due = queue(waiter("a5", since=5.0, host="a"), waiter("b3", since=3.0, host="b"))
    due.enter(waiter("a1", since=1.0, host="a"), 0.0)
    assert taken(due) == ["a1", "b3", "a5"]


def test_it_counts_who_is_ready():
    a = waiter("a", 0)
    due = queue(a, waiter("b", 2), waiter("c", 2))
    assert due.ready == [1, 0, 2, 0]
    due.leave(a)
    due.take(ALL_RANKS, lambda host: True)
    assert due.ready == [0, 0, 1, 0]


def test_a_clock_that_went_back_makes_nobody_due_early():
    due = DueQueue()
    due.release(1000.0)
    due.rewind(10.0)
    due.enter(waiter("a"), 500.0)
    assert taken(due) == []
    assert due.next_at() == 500.0


@pytest.mark.parametrize("at", [0.0, 1e9])
def test_what_left_does_not_pile_up(at):
    due = DueQueue()
    due.release(100.0)
    crowd = [waiter(f"r{n}", n % 4, host=f"h{n % 7}", since=float(n)) for n in range(50)]
    for n in range(20_000):
        one = crowd[n % 50]
        due.leave(one)
        due.enter(one, at)
    entries = [due._timed, *due._fronts, *(heap for lane in due._lanes.values() for heap in lane.heaps)]
    assert sum(map(len, entries)) < 2_000
    due.release(1e9)
    assert len(taken(due)) == 50


@pytest.mark.parametrize("take", [True, False])
def test_hosts_that_come_and_go_leave_nothing(take):
    due = DueQueue()
    due.release(100.0)
    for n in range(5_000):
        one = waiter(f"r{n}", host=f"h{n}", since=float(-n))
        due.enter(one, 0.0)
        if take:
            assert due.take(ALL_RANKS, lambda host: True) is one
        else:
            due.leave(one)
    assert len(due._lanes) == 0
    assert sum(map(len, due._fronts)) <= 100


# The twin


class Twin:
    """Sorts all of them each time."""

    def __init__(self):
        self.all = {}  # waiter → at
        self.released = float("-inf")

    def take(self, ranks, room, batches_only):
        due = [w for w, at in self.all.items() if w.batch or at <= self.released]
        due = [w for w in due if w.rank in ranks and room(w.host) and (w.batch or not batches_only)]
        due.sort(key=lambda w: (w.rank, not w.batch, w.since, w.key))
        if not due:
            return None
        del self.all[due[0]]
        return due[0]


NAMES = [f"r{n}" for n in range(8)]
WHAT = ["enter", "enter", "enter", "leave", "release", "take", "take", "close", "open"]
steps = st.lists(
    st.tuples(
        st.sampled_from(WHAT),
        st.integers(0, 10**6),
    ),
    max_size=150,
)


@settings(max_examples=200, deadline=None)
@given(steps)
def test_it_takes_what_a_twin_takes_that_sorts_everything(history):
    compared(history)


@pytest.mark.parametrize("seed", range(20))
def test_the_same_in_long_histories(seed):
    chance = Random(seed)
    compared([(chance.choice(WHAT), chance.randrange(10**6)) for _ in range(1_000)])


def compared(history):
    due, twin, closed, now = DueQueue(), Twin(), set(), 0.0
    crowd = [waiter(name, host=f"h{n % 3}") for n, name in enumerate(NAMES)]
    for what, number in history:
        one = crowd[number % 8]
        match what:
            case "enter" if one not in twin.all:
                one.rank, one.since = number // 8 % 4, float(number // 32 % 3)
                one.batch = number // 96 % 4 == 0
                at = now + number // 384 % 40 - 20
                due.enter(one, at)
                twin.all[one] = at
                # Times that were released are past for good.
                if at <= twin.released:
                    twin.all[one] = float("-inf")
            case "leave":
                due.leave(one)
                twin.all.pop(one, None)
            case "release":
                now += number % 30
                due.release(now)
                twin.released = now
            case "close":
                closed.add(Host(f"h{number % 3}"))
            case "open":
                closed.discard(Host(f"h{number % 3}"))
                due.unpark(Host(f"h{number % 3}"))
            case "take":
                ranks = ALL_RANKS[: number % 4 + 1]
                args = (ranks, lambda host: host not in closed)
                batches_only = number % 5 == 0
                assert due.take(*args, batches_only=batches_only) is twin.take(*args, batches_only)
        ready = [w.rank for w, at in twin.all.items() if w.batch or at <= twin.released]
        assert due.ready == [ready.count(rank) for rank in ALL_RANKS]
