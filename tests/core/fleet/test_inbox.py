import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.inbox import GENERATIONS, Inbox, Taken
from evermirror.model.worker import WorkerId

ANNA, BERT = WorkerId(0), WorkerId(1)
GEN = 77


def taken_up_to(seq, inbox=None, generation=GEN):
    inbox = inbox or Inbox()
    for n in range(1, seq + 1):
        inbox.take(ANNA, generation, n)
    return inbox


def test_the_first_report_is_number_one():
    inbox = Inbox()
    assert inbox.check(ANNA, GEN, 1) is Taken.NEW
    assert inbox.check(ANNA, GEN, 2) is Taken.GAP
    assert inbox.last(ANNA, GEN) == 0


def test_a_report_counts_once():
    inbox = taken_up_to(3)
    assert [inbox.check(ANNA, GEN, n) for n in (1, 3, 4, 5)] == [
        Taken.DUPLICATE,
        Taken.DUPLICATE,
        Taken.NEW,
        Taken.GAP,
    ]


def test_checking_alone_takes_nothing():
    inbox = taken_up_to(3)
    inbox.check(ANNA, GEN, 4)
    assert inbox.last(ANNA, GEN) == 3


@pytest.mark.parametrize("seq", [0, 3, 5])
def test_only_the_next_one_can_be_taken(seq):
    inbox = taken_up_to(3)
    with pytest.raises(ValueError, match="worker 0"):
        inbox.take(ANNA, GEN, seq)
    assert inbox.last(ANNA, GEN) == 3


def test_workers_are_counted_apart_even_with_the_same_generation():
    inbox = taken_up_to(3)
    assert inbox.check(BERT, GEN, 1) is Taken.NEW


def test_a_new_generation_begins_at_one_and_the_old_one_may_come_back():
    inbox = taken_up_to(3)
    assert inbox.check(ANNA, 78, 4) is Taken.GAP
    inbox.take(ANNA, 78, 1)
    assert inbox.check(ANNA, GEN, 3) is Taken.DUPLICATE
    assert inbox.check(ANNA, GEN, 4) is Taken.NEW


def test_the_generation_not_taken_from_for_longest_is_forgotten():
    inbox = Inbox()
    for generation in range(GENERATIONS):
        inbox.take(ANNA, generation, 1)
    inbox.take(ANNA, 0, 2)
    inbox.take(ANNA, 100, 1)
    known = [generation for generation in (*range(GENERATIONS), 100) if inbox.last(ANNA, generation)]
    assert known == [0, *range(2, GENERATIONS), 100]


def test_a_restart_goes_on_where_the_store_says():
    inbox = Inbox()
    inbox.restore(ANNA, GEN, 41)
    assert inbox.check(ANNA, GEN, 41) is Taken.DUPLICATE
    assert inbox.check(ANNA, GEN, 42) is Taken.NEW


def test_restoring_never_lowers_what_is_known():
    inbox = taken_up_to(3)
    inbox.restore(ANNA, GEN, 2)
    assert inbox.last(ANNA, GEN) == 3


def test_a_forgotten_workers_id_begins_anew():
    inbox = taken_up_to(3)
    inbox.forget(ANNA)
    inbox.forget(BERT)
    assert inbox.last(ANNA, GEN) == 0


OFFSETS = st.sampled_from([-1, 0, 1, 1, 1, 2])  # to the last one taken: mostly the next
REPORTS = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 6), OFFSETS), max_size=80)


@given(REPORTS)
def test_it_says_what_a_list_of_everything_taken_would(reports):
    inbox, log = Inbox(), []
    for worker, generation, offset in reports:
        recent = list(dict.fromkeys(g for w, g, _ in reversed(log) if w == worker))[:GENERATIONS]
        # Forgotten once means begun anew when it is back: only what was taken since counts.
        past = [s for w, g, s in log if (w, g) == (worker, generation)] if generation in recent else []
        last = past[-1] if past else 0
        seq = last + offset
        verdict = inbox.check(WorkerId(worker), generation, seq)
        assert inbox.last(WorkerId(worker), generation) == last
        if seq <= last:
            assert verdict is Taken.DUPLICATE
        elif seq == last + 1:
            assert verdict is Taken.NEW
            inbox.take(WorkerId(worker), generation, seq)
            log.append((worker, generation, seq))
        else:
            assert verdict is Taken.GAP


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_a_worker_that_sends_again_from_the_last_acknowledged_is_taken_once_in_order(pieces):
    """A line that breaks: each piece begins at or before what comes next, and ends anywhere after it."""
    inbox, taken = Inbox(), []
    for back, length in pieces:
        begin = max(inbox.last(ANNA, GEN) + 2 - back, 1)  # with 0 one is skipped: all of it is refused
        for seq in range(begin, begin + length):
            if inbox.check(ANNA, GEN, seq) is Taken.NEW:
                inbox.take(ANNA, GEN, seq)
                taken.append(seq)
        assert back > 0 or inbox.check(ANNA, GEN, begin) is Taken.GAP
    assert taken == list(range(1, len(taken) + 1))


def test_a_report_that_was_given_back_is_new_again():
    inbox = taken_up_to(2)
    inbox.give_back(ANNA, GEN, 2)
    assert inbox.check(ANNA, GEN, 2) is Taken.NEW
    assert inbox.check(ANNA, GEN, 1) is Taken.DUPLICATE
    with pytest.raises(ValueError, match="not the last"):
        inbox.give_back(ANNA, GEN, 2)
