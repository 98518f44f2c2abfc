import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.decisions import Other
from evermirror.core.fleet.outbox import Outbox, OutboxFull


def filled(count, limit=100):
    outbox = Outbox(limit)
    for n in range(1, count + 1):
        assert outbox.put(Other(n)) == n
    return outbox


def test_numbers_begin_at_one_and_have_no_hole():
    outbox = filled(3)
    outbox.acked(2)
    assert outbox.put(Other("next")) == 4
    assert outbox.last == 4


def test_an_acknowledgement_is_for_all_before_it():
    outbox = filled(5)
    outbox.acked(3)
    assert len(outbox) == 2
    assert outbox.resend(0) == [(4, Other(4)), (5, Other(5))]


def test_what_was_seen_is_not_sent_again():
    outbox = filled(5)
    assert outbox.resend(4) == [(5, Other(5))]
    assert len(outbox) == 1


def test_a_late_or_repeated_acknowledgement_changes_nothing():
    outbox = filled(5)
    for seq in (4, 4, 2, 0, -1):
        outbox.acked(seq)
    assert outbox.resend(1) == [(5, Other(5))]


def test_a_number_never_given_acknowledges_nothing():
    outbox = filled(2)
    outbox.acked(3)
    assert len(outbox) == 2
    assert outbox.resend(99) == [(1, Other(1)), (2, Other(2))]


def test_over_the_limit_it_raises_and_takes_nothing():
    outbox = filled(2, limit=2)
    assert outbox.room == 0
    with pytest.raises(OutboxFull, match="2 commands"):
        outbox.put(Other("too many"))
    assert len(outbox) == 2
    outbox.acked(1)
    assert outbox.room == 1
    assert outbox.put(Other("fits")) == 3


def test_a_fresh_session_begins_at_one_with_nothing_to_do():
    outbox = filled(5)
    outbox.acked(2)
    outbox.reset()
    assert len(outbox) == 0
    assert outbox.resend(0) == []
    assert outbox.put(Other("first")) == 1


PUT, RESET = "put", "reset"
STEPS = st.lists(
    st.sampled_from([PUT, PUT, RESET]) | st.tuples(st.booleans(), st.integers(-1, 25)), max_size=60
)


@given(st.integers(1, 8), STEPS)
def test_it_keeps_what_a_list_of_everything_sent_would(limit, steps):
    outbox, sent, acked = Outbox(limit), [], 0
    for step in steps:
        if step == PUT:
            if outbox.room:
                sent.append(Other(len(sent)))
                assert outbox.put(sent[-1]) == len(sent)
        elif step == RESET:
            outbox.reset()
            sent, acked = [], 0
        else:
            again, seq = step
            if acked < seq <= len(sent):
                acked = seq
            if again:
                assert outbox.resend(seq) == [(n + 1, sent[n]) for n in range(acked, len(sent))]
            else:
                outbox.acked(seq)
        assert (outbox.last, len(outbox), outbox.room) == (
            len(sent),
            len(sent) - acked,
            limit - len(sent) + acked,
        )


@given(st.lists(st.sampled_from(["send", "lose", "cut"]), max_size=40))
def test_a_worker_takes_in_every_command_once_whatever_the_line_loses(line):
    """``lose``: the command is put, but does not arrive; ``cut``: the line broke, and the session resumes."""
    outbox, taken, broken = Outbox(100), [], False
    for n, what in enumerate(line):
        if what == "cut":
            taken += outbox.resend(len(taken))
            broken = False
            continue
        seq = outbox.put(Other(n))
        broken = broken or what == "lose"  # a line keeps the order: after a loss nothing more arrives
        if not broken:
            taken.append((seq, Other(n)))
            outbox.acked(seq)
    taken += outbox.resend(len(taken))
    assert taken == [
        (n + 1, Other(m)) for n, m in enumerate(m for m, what in enumerate(line) if what != "cut")
    ]
