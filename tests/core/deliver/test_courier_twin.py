"""The courier against its dumb twin: whatever a receiver answers, the same messages and the same letters."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.deliver.decisions import NotTaken, Post, Taken
from evermirror.model.delivery import EventHook
from tests.core.deliver.courier_twin import Twin
from tests.core.deliver.couriers import ANSWER, AWAY, GONE, REFUSED, World

AWAY_LONG = [NotTaken("HTTP 503", retry_after_s=3600.0)] * 30
ANSWERS = st.lists(
    st.one_of(
        st.sampled_from([Taken(), Taken(), AWAY, REFUSED, REFUSED]).map(lambda one: [one]),
        st.integers(1, 5000).map(lambda s: [NotTaken("HTTP 429", retry_after_s=float(s))]),
        st.just(AWAY_LONG),
        st.just([REFUSED] * 9),
        st.just([AWAY] * 12),
        st.sampled_from([GONE, AWAY]).map(lambda one: [one]),
    ),
    max_size=25,
).map(lambda parts: [one for part in parts for one in part])
STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 30_000)), min_size=1, max_size=25)


@settings(max_examples=200, deadline=None)
@given(batch=st.integers(1, 6), answers=ANSWERS, steps=STEPS)
def test_it_does_as_its_twin(batch, answers, steps):
    told = list(answers)

    def answer(_: Post) -> ANSWER:
        return told.pop(0) if told else Taken()

    world = World(EventHook("ci", batch=batch), answer=answer)
    twin = Twin(batch, list(answers))
    number = 0
    for count, seconds in steps:
        number += count
        world.add(*range(number - count + 1, number + 1))
        twin.rest += world.events[len(world.events) - count :]
        until = world.now + seconds
        while True:
            wait = world.run()
            twin.look(world.now)
            assert world.posted == twin.posted
            assert [(letter.event, letter.attempts) for letter in world.letters] == twin.aside
            if wait.until is None or wait.until > until:
                break
            world.now = max(wait.until, world.now)
        world.now = until
    assert (world.saved.failures, world.saved.failing_since) == (twin.failures, twin.since)
    assert world.saved.stopped == twin.stopped
    assert world.saved.delivered_total == sum(len(post) for post in world.arrived)
