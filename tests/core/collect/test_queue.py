import tracemalloc
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.collect.queue import TURNS, Lane, Queue, Spot, place_of
from evermirror.model.changes import HolderReport
from evermirror.model.repo import Priority
from tests.core.collect.small import ANNA, BERT, NOW, case, here, holder, row


def ready(queue, name, place=NOW, *, waited=None, **fields):
    job = queue.admit(row(name, place=place, **fields), force=waited is not None)
    if job is not None:
        job.waited_since = waited
        queue.ready(job)
    return job


def start(queue, job, node=ANNA):
    queue.start(job, case(job.row, [], holder(node)))
    queue.turn_taken()


def taken(queue, count):
    names = []
    for _ in range(count):
        job = queue.next_ready()
        if job is None:
            break
        names.append(job.key.rsplit("/", 1)[1])
        start(queue, job)
    return names


def test_within_a_lane_the_smallest_place_is_next():
    queue = Queue(100)
    for name, place in (("late", 30.0), ("early", 10.0), ("middle", 20.0)):
        ready(queue, name, place)
    assert taken(queue, 9) == ["early", "middle", "late"]


def test_a_class_waits_a_bounded_time_longer_than_the_one_above_it():
    old_and_low = place_of(0.0, Priority.LOW, 600.0)
    assert place_of(1_000.0, Priority.CRITICAL, 600.0) < old_and_low
    assert place_of(2_000.0, Priority.CRITICAL, 600.0) > old_and_low


def test_no_lane_starves_however_long_the_others_are():
    queue = Queue(1_000)
    for number in range(100):
        ready(queue, f"client{number}", waited=NOW + number)
        ready(queue, f"update{number}", NOW + number, here=here())
        ready(queue, f"first{number}", NOW + number)
    names = taken(queue, 80)
    assert [sum(n.startswith(kind) for n in names) for kind in ("client", "update", "first")] == [50, 20, 10]
    assert set(TURNS) == {Lane.CLIENT, Lane.UPDATE, Lane.FIRST}


def test_an_empty_lane_leaves_its_turn_to_the_others():
    queue = Queue(100)
    for number in range(20):
        ready(queue, f"first{number}", NOW + number)
    assert len(taken(queue, 20)) == 20


def test_seats_are_bounded_for_each_of_the_two_kinds_and_clients_always_find_one():
    queue = Queue(8)
    assert [ready(queue, f"first{n}") is not None for n in range(6)] == [True] * 4 + [False] * 2
    assert ready(queue, "update", here=here()) is not None
    assert ready(queue, "wanted", waited=NOW) is not None
    assert (queue.seats(True), queue.seats(False), len(queue)) == (-1, 3, 6)


def test_a_fetched_repo_changes_seats():
    queue = Queue(8)
    job = ready(queue, "one")
    queue.update(job, replace(job.row, here=here()))
    assert (queue.seats(True), queue.seats(False)) == (4, 3)


def test_sleepers_are_due_in_time_and_only_once():
    queue = Queue(8)
    job = ready(queue, "one")
    queue.sleep(job, NOW + 10)
    assert list(queue.due(NOW + 9)) == []
    assert list(queue.due(NOW + 10)) == [job]
    assert list(queue.due(NOW + 99)) == []
    assert queue.next_ready() is None


def test_who_waits_for_a_node_is_woken_once_in_order():
    queue = Queue(8)
    late, early = ready(queue, "late", 20.0), ready(queue, "early", 10.0)
    for job in (late, early):
        queue.sleep(job, NOW + 1_000, (ANNA, BERT))
    assert queue.wake_parked(ANNA, 1) == [early]
    queue.ready(early)
    assert queue.wake_parked(BERT, 5) == [late]
    queue.ready(late)
    assert queue.wake_parked(ANNA, 5) == []
    assert queue.parked_nodes() == []


def test_load_is_counted_by_holder_and_given_back():
    queue = Queue(8)
    one, two = ready(queue, "one"), ready(queue, "two")
    start(queue, one)
    start(queue, two)
    assert (queue.load, queue.fetches, queue.looks) == ({ANNA: 2}, 2, 0)
    queue.ended(one)
    queue.ended(two)
    assert (queue.load, queue.fetches, queue.count(Spot.UNDER_WAY)) == ({}, 0, 0)


def test_a_clock_that_goes_back_lets_nobody_sleep_longer():
    queue = Queue(8)
    job = ready(queue, "one")
    queue.sleep(job, NOW + 10)
    queue.clock_went_back(3_600)
    assert list(queue.due(NOW - 3_590)) == [job]


def test_a_repo_that_left_and_came_back_is_not_confused_with_itself():
    queue = Queue(8)
    old = ready(queue, "one")
    queue.sleep(old, NOW + 10)
    queue.drop(old)
    new = ready(queue, "one")
    queue.sleep(new, NOW + 50)
    assert list(queue.due(NOW + 20)) == []
    assert list(queue.due(NOW + 50)) == [new]


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["ready", "unasked", "asking", "sleep", "start", "drop", "take"]), st.integers(0, 9)
    ),
    max_size=200,
)


@given(MOVES)
def test_every_job_is_in_one_spot_and_found_there(moves):
    queue, clock = Queue(100), 0.0
    for move, number in moves:
        clock += 1.0
        job = queue.admit(row(f"r{number}", place=float(number)))
        if job.case is not None:
            queue.ended(job)
        if move == "take":
            queue.next_ready()  # out of its heap: whoever takes it moves it on
            queue.ready(job)
        elif move == "drop":
            queue.drop(job)
        elif move == "start":
            start(queue, job)
        elif move in ("sleep", "asking"):
            getattr(queue, move)(job, clock)
        else:
            getattr(queue, move)(job)
    assert sum(queue.count(spot) for spot in Spot) == len(queue) == len(list(queue))
    assert queue.fetches == sum(job.case is not None for job in queue)
    lying = {j.key for j in queue if j.spot in (Spot.ASLEEP, Spot.ASKING)}
    assert lying >= {j.key for j in queue.due(clock + 1)}


def test_a_full_queue_is_small_and_stays_so_however_much_it_moves():
    queue = Queue(20_000)
    reports = (HolderReport(ANNA, "anna", False, "x", True, None, NOW),)
    tracemalloc.start()
    try:
        for number in range(25_000):
            job = ready(queue, f"group/some-repository-{number}")
            if job is not None:
                job.holders = reports
        for _ in range(3):
            for job in list(queue):
                queue.sleep(job, NOW, (ANNA, BERT))
                queue.ready(job)
        size = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(queue) == 10_000
    assert size < 60_000_000
