"""Links are streams: in order, late, and dead without a word."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evermirror.sim.clock import VirtualTime
from evermirror.sim.fleet.network import UP
from tests.support.sim.fleet.lab import LinkLab


@given(seed=st.integers(0, 1000), gaps=st.lists(st.floats(0, 0.2), max_size=30))
def test_a_stream_keeps_its_order_however_long_each_message_takes(seed, gaps):
    lab = LinkLab(seed, delay_s=0.01, jitter_s=1.0)
    for number, gap in enumerate(gaps):
        lab.up(number)
        lab.time.run(lab.time.now + gap)
    lab.time.run(lab.time.now + 10)
    assert [message for _, message in lab.coordinator.got] == list(range(len(gaps)))


def test_a_message_takes_its_delay():
    lab = LinkLab(delay_s=0.5, jitter_s=0.0)
    lab.up("a")
    lab.time.run(0.4)
    assert lab.coordinator.got == []
    lab.time.run(0.5)
    assert lab.coordinator.got == [(1, "a")]


def test_a_closed_link_tells_the_other_side_after_all_that_was_sent():
    lab = LinkLab()
    lab.up("a", "b")
    lab.network.close(lab.link, UP)
    lab.time.run(1)
    assert lab.coordinator.got == [(1, "a"), (1, "b")]
    assert lab.coordinator.ended == [1]
    assert lab.worker.ended == []  # it knows
    assert lab.network.links == {}


def test_who_dies_without_a_word_is_missed_later():
    lab = LinkLab(notice_s=(10.0, 20.0))
    lab.network.close(lab.link, UP, told=False)
    lab.time.run(9)
    assert lab.coordinator.ended == []
    lab.time.run(20)
    assert lab.coordinator.ended == [1]


def test_a_broken_link_is_half_open_and_swallows_what_is_sent():
    lab = LinkLab(seed=3, notice_s=(5.0, 40.0), late_share=0.0)
    lab.network.break_link(lab.link)
    lab.up("lost")
    seen = []
    while not (lab.worker.ended and lab.coordinator.ended):
        lab.time.run(lab.time.now + 0.5)
        seen.append((bool(lab.worker.ended), bool(lab.coordinator.ended)))
    assert (True, False) in seen or (False, True) in seen
    assert lab.coordinator.got == []


def test_the_last_messages_of_a_broken_link_come_late_and_in_order_while_a_new_link_is_there():
    lab = LinkLab(late_share=1.0, late_s=(30.0, 30.0), notice_s=(60.0, 60.0))
    lab.up("a", "b")
    lab.network.break_link(lab.link)
    new = lab.network.connect(0, lab.worker)
    lab.network.send(new, UP, "hello")
    lab.time.run(40)
    assert lab.coordinator.got == [(2, "hello"), (1, "a"), (1, "b")]


@given(times=st.lists(st.integers(0, 5), max_size=30))
def test_virtual_time_does_things_in_order_of_time_and_ties_in_order_of_asking(times):
    time, done = VirtualTime(), []
    for number, at in enumerate(times):
        time.at(at, lambda *what: done.append(what), at, number)
    time.run(5)
    assert done == sorted((at, number) for number, at in enumerate(times))
    assert time.now == 5


def test_what_is_due_in_the_past_happens_now():
    time, done = VirtualTime(), []
    time.run(10)
    time.at(3, lambda: done.append(time.now))
    time.run(10)
    assert done == [10]
