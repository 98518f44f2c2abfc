"""One rate, split: shrink first, then grow, and the sum never above the rate, whatever is lost on the way."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.fleet.shares import FULL, LEAST_OF, MOST, Budget

RATE = 10.0
NOBODY = np.zeros(2, bool)
BOTH = np.ones(2, bool)


def counts(*own):
    return np.array(own, np.int64)


def only(worker, width=2):
    return np.arange(width) == worker


def settled(budget, own):
    """Everybody is told and obeys until nobody is told any more."""
    everybody = np.ones(len(own), bool)
    for _ in range(50):
        changed = budget.split(own, everybody, everybody, ~everybody)
        for worker in np.flatnonzero(changed):
            budget.obeyed(worker)
        if not changed.any():
            return
    raise AssertionError("shares never come to rest")


def test_a_single_worker_has_it_all():
    budget = Budget(RATE, 1)
    settled(budget, counts(5))
    assert budget.given[0] == RATE


def test_shares_follow_the_repos_with_a_part_for_everybody():
    budget = Budget(RATE, 3)
    settled(budget, counts(300, 100, 0))
    assert budget.given.sum() <= RATE
    assert budget.given.sum() == pytest.approx(RATE * FULL)
    assert budget.given[0] / budget.given[1] == pytest.approx(3.0, rel=0.15)
    assert budget.given[2] > RATE * 0.02


def test_nobody_grows_before_the_one_that_shrinks_has_said_so():
    budget = Budget(RATE, 2)
    settled(budget, counts(100, 10))
    before = budget.given.copy()
    own = counts(10, 100)
    changed = budget.split(own, BOTH, BOTH, NOBODY)
    assert budget.given[0] < before[0]
    assert changed[0]
    for _ in range(3):
        budget.split(own, BOTH, BOTH, NOBODY)
    grown_early = budget.given[1]
    assert grown_early <= before[1] + RATE * (MOST - FULL) + 1e-9
    budget.obeyed(0)
    budget.split(own, BOTH, BOTH, NOBODY)
    assert budget.given[1] > grown_early + 1.0
    assert budget.bound.sum() <= RATE * MOST + 1e-9


def test_a_small_change_is_not_worth_a_message():
    budget = Budget(RATE, 2)
    settled(budget, counts(100, 100))
    assert not budget.split(counts(105, 95), BOTH, BOTH, NOBODY).any()
    assert budget.split(counts(150, 50), BOTH, BOTH, NOBODY).any()


def test_a_suspect_worker_keeps_its_share_and_a_lost_one_leaves_it():
    budget = Budget(RATE, 2)
    settled(budget, counts(100, 100))
    before = budget.given.copy()
    for _ in range(5):
        budget.split(counts(1, 199), BOTH, only(1), NOBODY)
    assert budget.bound[0] == before[0]
    assert budget.bound.sum() <= RATE
    budget.split(counts(1, 199), only(1), only(1), NOBODY)
    assert budget.given[1] == RATE


def test_who_is_back_from_being_down_has_no_more_than_the_others_leave():
    budget = Budget(RATE, 3)
    settled(budget, counts(100, 100, 100))
    lost, rest = only(2, 3), np.array([True, True, False])
    own = counts(150, 150, 0)
    for _ in range(5):
        for worker in np.flatnonzero(budget.split(own, rest, rest, lost)):
            budget.obeyed(worker)
    assert budget.bound[rest].sum() == pytest.approx(RATE * FULL)
    everybody = np.ones(3, bool)
    assert budget.split(counts(100, 100, 100), everybody, lost, lost)[2]
    assert budget.given[2] + budget.bound[rest].sum() <= RATE


def test_nobody_is_told_nothing_at_all():
    budget = Budget(RATE, 2)
    budget.has(0, RATE, told=True)
    assert budget.split(counts(100, 0), BOTH, only(1), NOBODY)[1]
    assert budget.given[1] == pytest.approx(RATE * (1 - MOST) / LEAST_OF)


def test_what_is_with_workers_from_before_a_restart_is_given_to_nobody():
    budget = Budget(RATE, 2, reserve=RATE)
    budget.has(0, 4.0, told=True)
    budget.reserve -= 4.0
    budget.split(counts(100, 0), BOTH, only(0), NOBODY)
    assert budget.given[0] == 4.0
    budget.reserve = 0.0
    budget.split(counts(100, 0), BOTH, only(0), NOBODY)
    assert budget.given[0] > 9.0


class History:
    """Workers use what they took in last; messages and acknowledgements are late, and may be lost with a
    connection: then what was not taken in never is, and the worker says what it has.

    One that was down is excused until it takes in something that was sent since it is back."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.width = width = chance.randint(1, 5)
        self.budget = Budget(RATE, width)
        self.using = np.zeros(width)
        self.on_the_way: list[list] = [[] for _ in range(width)]  # shares, oldest first, and in which life
        self.answers = [0] * width  # acknowledgements on their way back
        self.unanswered = [0] * width  # shares sent of which no acknowledgement was heard
        self.down, self.back, self.excused = (np.zeros(width, bool) for _ in range(3))
        self.life = [0] * width
        self.own = np.ones(width, np.int64)

    def repos_move(self, worker):
        self.own = np.array(self.chance.choices([0, 10, 1000], k=self.width), np.int64)

    def split(self, worker):
        tellable = ~self.down
        if self.chance.random() < 0.3:
            tellable = tellable & np.array([self.chance.random() < 0.5 for _ in range(self.width)])
        for told in np.flatnonzero(self.budget.split(self.own, ~self.down, tellable, self.back)):
            self.on_the_way[told].append((self.budget.given[told], self.life[told]))
            self.unanswered[told] += 1
            self.back[told] = False

    def takes_in(self, worker):
        while self.on_the_way[worker]:
            self.using[worker], life = self.on_the_way[worker].pop(0)
            self.answers[worker] += 1
            self.excused[worker] &= life != self.life[worker]
            if self.chance.random() < 0.3:
                break

    def is_heard(self, worker):
        if self.answers[worker]:
            self.unanswered[worker] -= self.answers[worker]
            self.answers[worker] = 0
            if not self.unanswered[worker]:
                self.budget.obeyed(worker)

    def time_passes(self, worker):
        for _ in range(self.chance.randint(1, 3)):
            self.split(worker)
            for other in range(self.width):
                self.takes_in(other)
                self.is_heard(other)

    def begins_anew(self, worker):
        if not self.down[worker]:
            self.on_the_way[worker].clear()
            self.answers[worker] = self.unanswered[worker] = 0
            self.back[worker] |= self.excused[worker]
            self.budget.has(worker, self.using[worker], told=self.using[worker] > 0)

    def falls_or_returns(self, worker):
        self.down[worker] = not self.down[worker]
        self.back[worker] = self.excused[worker] = True
        self.life[worker] += 1

    def check(self):
        least = RATE * (1 - MOST) / LEAST_OF
        assert self.using[~self.down & ~self.excused].sum() <= RATE + least * self.width + 1e-9
        assert (self.budget.given[self.budget.told] > 0).all()


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**64))
def test_in_no_history_do_all_together_use_more_than_the_rate(seed):
    history = History(Random(seed))
    steps = (
        history.repos_move,
        history.split,
        history.split,
        history.takes_in,
        history.is_heard,
        history.time_passes,
        history.begins_anew,
        history.falls_or_returns,
    )
    for _ in range(60):
        history.chance.choice(steps)(history.chance.randrange(history.width))
        history.check()
