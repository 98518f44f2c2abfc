"""Simulated days: receivers that fail, refuse and slow down, and crashes between any two steps."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from evermirror.core.deliver.decisions import NotTaken, Post, Taken
from evermirror.model.delivery import EventHook
from tests.core.deliver.couriers import ANSWER, AWAY, REFUSED, Crashed, World

DAYS = 4
POISON = 97  # every so many-th event


class Days:
    """A world, a moody receiver and a process that may end at any step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.down = False
        self.crash_chance = self.random.choice([0.0, 0.002, 0.02])
        self.crashes = 0
        self.world = World(
            EventHook("ci", batch=self.random.choice([1, 7, 50])), answer=self.answer, step=self.step
        )
        self.world.page = self.random.choice([3, 500])
        self.in_doubt: Post | None = None  # taken, and perhaps not noted
        self.saves = 0

    def step(self) -> None:
        if self.random.random() < self.crash_chance:
            self.crashes += 1
            raise Crashed

    def answer(self, post: Post) -> ANSWER:
        world = self.world
        if self.in_doubt is not None and world.saves == self.saves:
            again = [one.delivery for one in (self.in_doubt, post)]
            assert again[0] == again[1], "another message than the one in doubt"
        self.in_doubt, self.saves = post, world.saves
        if self.down:
            return self.random.choice([AWAY, NotTaken("HTTP 429", retry_after_s=30.0)])
        if any(one.event % POISON == 0 for one in post.items):
            return REFUSED
        return AWAY if self.random.random() < 0.02 else Taken()

    def live(self, until: float) -> None:
        while True:
            try:
                self.world.pass_time(until)
                return
            except Crashed:
                self.world.start()


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_the_order_is_kept_through_days_of_failures_and_crashes(seed):
    days = Days(seed)
    world, number = days.world, 0
    for _ in range(DAYS * 24 * 2):
        days.down = days.random.random() < (0.9 if days.down else 0.05)
        count = days.random.choice([0, 0, 1, 5, 40])
        world.add(*range(number + 1, number + count + 1))
        number += count
        days.live(world.now + 1800)
    days.down = False
    days.live(world.now + 12 * 3600)

    arrived = [one for post in world.arrived for one in post]
    first = list(dict.fromkeys(arrived))
    assert first == sorted(first), "out of order"
    assert set(first) | set(world.aside) == set(range(1, number + 1)), "lost"
    assert not set(first) & {one for one in world.aside if one % POISON == 0}
    assert len(world.aside) == len(set(world.aside)) == world.saved.laid_aside_total
    assert (len(arrived) > len(first)) <= (days.crashes > 0), "twice without a crash"
    by_number: dict[str, list[int]] = {}
    for post, events in zip(world.posts, world.posted, strict=True):
        assert by_number.setdefault(post.delivery, events) == events
    assert world.saved.after == number
    assert world.saved.until is None


def test_letters_that_are_wanted_again_after_days_all_arrive_once_the_receiver_takes_them():
    days = Days(5)
    days.crash_chance = 0.01
    days.world.add(*range(1, 1000))
    days.live(days.world.now + 86_400)
    aside = set(days.world.aside)
    assert aside == set(range(POISON, 1000, POISON))
    days.world.answer = lambda _: Taken()
    days.world.letters = [replace(letter, again=True) for letter in days.world.letters]
    days.live(days.world.now + 3600)
    assert not days.world.letters
    assert aside <= {one for post in days.world.arrived for one in post}
