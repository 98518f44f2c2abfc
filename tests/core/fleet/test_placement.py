"""Placement by example, and its promises at the size of a fleet."""

import numpy as np
import pytest

from evermirror.core.fleet.copies import NOBODY, Reason
from evermirror.core.fleet.hashing import mix
from evermirror.core.fleet.placement import UNCHANGED, Sites, Wishes, place
from evermirror.core.fleet.ring import Ring

NO_LIMIT = 1 << 40


class Fleet:
    """Workers by id, repos by index; ``place`` places and remembers."""

    def __init__(self, workers, repos, *, replicas=1, width=None, points=200, bound=1.1):
        self.member = [True] * workers
        self.takes = [True] * workers
        self.trusted = [False] * workers
        self.weight = [1.0] * workers
        self.flaps = [1.0] * workers
        self.capacity = [NO_LIMIT] * workers
        self.elsewhere = None
        self.positions = mix(np.arange(1, repos + 1, dtype=np.uint64))
        self.trusted_only = np.zeros(repos, bool)
        self.replicas = np.full(repos, replicas, np.uint8)
        self.should = np.full((repos, width or replicas), NOBODY, np.uint16)
        self.held, self.pins, self.barred = [], {}, {}
        self.points, self.bound = points, bound

    @property
    def ring(self):
        ids = [w for w, member in enumerate(self.member) if member]
        return Ring.build(ids, [self.weight[w] * self.flaps[w] for w in ids], self.points)

    def place(self, *joined):
        wishes = Wishes(
            self.positions,
            self.trusted_only,
            self.replicas,
            self.should,
            np.array([i for i, _ in self.held], np.int32),
            np.array([w for _, w in self.held], np.uint16),
            self.pins,
            joined,
            self.barred,
        )
        sites = Sites(
            np.array(self.member),
            np.array(self.takes),
            np.array(self.trusted),
            np.array(self.weight),
            np.array(self.capacity),
            None if self.elsewhere is None else np.array(self.elsewhere),
        )
        result = place(wishes, self.ring, sites, self.bound)
        self.before, self.should = self.should, result.should
        return result

    def join(self, weight=1.0):
        for column, value in (
            (self.member, True),
            (self.takes, True),
            (self.trusted, False),
            (self.weight, weight),
            (self.flaps, 1.0),
            (self.capacity, NO_LIMIT),
        ):
            column.append(value)
        return len(self.member) - 1

    def load(self, ranks=None):
        sits = self.should[:, :ranks]
        return np.bincount(sits[sits != NOBODY], minlength=len(self.member))

    @property
    def new(self):
        """Copies that were not there before."""
        return sum(
            len(set(a) - set(b)) for a, b in zip(self.should.tolist(), self.before.tolist(), strict=True)
        )


def reasons(result):
    return {Reason(r) for r in result.reason.ravel().tolist() if r != UNCHANGED}


# Promises at size


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_busiest_is_within_the_bound_and_so_is_the_busiest_primary(replicas):
    fleet = Fleet(100, 20_000, replicas=replicas)
    result = fleet.place()
    assert len(result.no_room) == 0
    assert fleet.load().max() <= 1.1 * fleet.load().mean()
    assert fleet.load(1).max() <= 1.1 * fleet.load(1).mean()
    assert reasons(result) == {Reason.HOME, Reason.NEXT}
    assert (result.reason == Reason.HOME).mean() > 0.95


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_join_moves_the_newcomers_share_and_nothing_else(replicas):
    fleet = Fleet(100, 20_000, replicas=replicas)
    fleet.place()
    newcomer = fleet.join()
    result = fleet.place(newcomer)
    share = 20_000 * replicas / 101
    assert 0.8 * share < fleet.load()[newcomer] == fleet.new <= share
    assert reasons(result) == {Reason.JOINED}
    assert fleet.load(1)[newcomer] <= 1.1 * 20_000 / 101


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_loss_moves_the_lost_and_spreads_them(replicas):
    fleet = Fleet(100, 20_000, replicas=replicas)
    fleet.place()
    lost = fleet.should == 42
    fleet.member[42] = False
    result = fleet.place()
    assert np.array_equal(fleet.should != fleet.before, lost)
    assert reasons(result) == {Reason.LOST}
    assert len(np.unique(fleet.should[lost])) > 50
    assert fleet.load().max() <= 1.1 * 20_000 * replicas / 99


def test_repos_that_want_many_copies_find_room_among_a_few_unequal_workers():
    fleet = Fleet(5, 120, width=3)
    fleet.weight = [1.0, 2.0, 0.5, 2.0, 0.5]
    fleet.replicas = np.resize(np.array([1, 2, 3], np.uint8), 120)
    result = fleet.place()
    assert reasons(result) == {Reason.HOME, Reason.NEXT}
    assert (fleet.load() <= np.ceil(1.1 * 240 / 6 * np.array(fleet.weight))).all()


def test_repos_for_trusted_workers_find_room_there_whatever_else_is_placed():
    fleet = Fleet(8, 120, width=3)
    fleet.weight = [2.0, 2.0, 0.5, 2.0, 0.5, 1.0, 0.5, 0.5]
    fleet.trusted = [w in (0, 4, 6) for w in range(8)]
    fleet.replicas = np.resize(np.array([1, 2, 3], np.uint8), 120)
    fleet.trusted_only[::8] = True
    result = fleet.place()
    assert reasons(result) == {Reason.HOME, Reason.NEXT}
    assert len(result.no_room) == 0


def test_a_newcomer_takes_what_only_it_may_hold_before_it_claims():
    fleet = Fleet(4, 120)
    fleet.trusted_only[:20] = True
    fleet.place()
    newcomer = fleet.join()
    fleet.trusted[newcomer] = True
    result = fleet.place(newcomer)
    assert (fleet.should[:20, 0] == newcomer).all()
    assert Reason.OVERFULL not in reasons(result)
    assert fleet.load()[newcomer] == 24


def test_many_joins_and_losses_in_a_row_stay_balanced_and_move_little():
    fleet, random = Fleet(50, 20_000), np.random.default_rng(5)
    fleet.place()
    for _ in range(60):
        members = np.flatnonzero(fleet.member)
        if random.random() < 0.5:
            gone = random.choice(members)
            ideal = fleet.load()[gone]
            fleet.member[gone] = False
            fleet.place()
        else:
            ideal = 20_000 / (len(members) + 1)
            fleet.place(fleet.join())
        load = fleet.load()[fleet.member]
        assert load.max() <= 1.1 * load.mean() + 1
        assert fleet.new <= 1.1 * ideal


def test_weights_share_the_load():
    fleet = Fleet(20, 20_000)
    fleet.weight[:10] = [4.0] * 10
    fleet.place()
    assert (fleet.load() / np.array(fleet.weight)).max() <= 1.1 * 20_000 / 50


def test_without_a_change_nothing_moves():
    fleet = Fleet(30, 3_000, replicas=2)
    fleet.place()
    assert reasons(fleet.place()) == set()
    assert np.array_equal(fleet.should, fleet.before)


def test_where_many_join_at_once_each_gets_its_share():
    fleet = Fleet(10, 10_000, replicas=2)
    fleet.place()
    fleet.place(*(fleet.join() for _ in range(10)))
    assert fleet.load().max() <= 1.1 * fleet.load().mean()
    assert fleet.load()[10:].min() > 0.8 * fleet.load().mean()


# Joining


def test_one_that_is_back_keeps_what_it_holds():
    fleet = Fleet(20, 4_000)
    fleet.place()
    had = np.flatnonzero(fleet.should[:, 0] == 7)
    fleet.held = [(i, 7) for i in had.tolist()]
    fleet.member[7] = False
    fleet.place()
    fleet.member[7] = True
    result = fleet.place(7)
    back = np.flatnonzero(fleet.should[:, 0] == 7)
    assert set(back) <= set(had)
    assert len(back) >= 0.9 * len(had)
    assert reasons(result) == {Reason.KEPT}


def test_one_that_flaps_claims_less():
    fleet = Fleet(20, 4_000)
    fleet.place()
    newcomer = fleet.join()
    fleet.flaps[newcomer] = 0.25
    fleet.place(newcomer)
    assert 0 < fleet.load()[newcomer] == fleet.new <= 0.25 * 4_000 / 20.25


def test_one_that_flaps_keeps_what_it_has_and_gets_few_of_the_lost():
    fleet = Fleet(20, 40_000)
    fleet.place()
    fleet.flaps[3] = 0.1
    assert reasons(fleet.place()) == set()
    had = fleet.load()
    fleet.member[:2] = [False, False]
    fleet.place()
    assert (fleet.load() - had)[3] < 0.3 * (fleet.load() - had)[4:].mean()


def test_a_newcomer_takes_from_the_busiest_first():
    fleet = Fleet(2, 600, bound=3.0)
    fleet.should[:, 0] = [0, 0, 0, 0, 0, 1] * 100
    newcomer = fleet.join()
    fleet.capacity[newcomer] = 50
    fleet.place(newcomer)
    assert fleet.load().tolist() == [450, 100, 50]


def test_one_that_takes_nothing_claims_nothing():
    fleet = Fleet(3, 300)
    fleet.place()
    newcomer = fleet.join()
    fleet.takes[newcomer] = False
    fleet.place(newcomer)
    assert fleet.new == 0


# Bounds and room


def test_one_over_its_bound_sheds_what_is_furthest_down_to_the_placing_bound():
    fleet = Fleet(4, 400)
    fleet.should[:, 0] = [0] * 130 + [1, 2, 3] * 90
    result = fleet.place()
    assert fleet.load()[0] == 108  # 1.075 × 100, rounded up
    assert reasons(result) == {Reason.SHED}
    far = fleet.ring.distance(fleet.positions[:130], np.zeros(130, np.uint16))
    left = result.should[:130, 0] != 0
    assert far[left].min() > far[~left].max()


def test_one_a_little_over_the_mean_is_left_alone():
    fleet = Fleet(4, 400)
    fleet.should[:, 0] = [0] * 110 + [1] * 97 + [2] * 97 + [3] * 96
    fleet.place()
    assert fleet.new == 0


def test_a_hard_capacity_is_kept_and_the_others_take_the_rest_evenly():
    fleet = Fleet(11, 1_000)
    fleet.capacity[3] = 5
    result = fleet.place()
    assert fleet.load()[3] == 5
    assert fleet.load().max() <= 110
    assert Reason.OVERFULL not in reasons(result)


def test_when_nobody_has_room_repos_wait_and_get_it_once_there_is():
    fleet = Fleet(2, 10)
    fleet.capacity = [3, 4]
    assert len(fleet.place().no_room) == 3
    fleet.capacity = [3, 40]
    result = fleet.place()
    assert len(result.no_room) == 0
    assert fleet.new == 3


def test_one_copy_more_than_workers_is_told_as_no_room():
    fleet = Fleet(2, 5, replicas=3)
    result = fleet.place()
    assert result.no_room.tolist() == [0, 1, 2, 3, 4]
    assert (fleet.should != NOBODY).sum(axis=1).tolist() == [2] * 5


def test_a_copy_that_is_really_there_stays_even_over_the_capacity():
    fleet = Fleet(1, 10)
    fleet.place()
    fleet.held = [(i, 0) for i in range(6)]
    fleet.capacity = [4]
    fleet.place()
    assert 6 <= (fleet.should == 0).sum() <= 10
    assert all(fleet.should[i, 0] == 0 for i in range(6))


def test_the_bound_gives_way_before_a_repo_waits():
    fleet = Fleet(2, 100)
    fleet.barred = dict.fromkeys(range(100), (0,))
    result = fleet.place()
    assert fleet.load().tolist() == [0, 100]
    assert Reason.OVERFULL in reasons(result)


def test_an_empty_fleet_leaves_all_waiting():
    fleet = Fleet(1, 3)
    fleet.member = [False]
    assert fleet.place().no_room.tolist() == [0, 1, 2]


def test_no_repos_are_no_trouble():
    assert Fleet(3, 0).place().should.shape == (0, 1)


# Trust, pins, bars


def test_repos_for_trusted_workers_are_with_them_only_and_spread_evenly():
    fleet = Fleet(10, 1_000, replicas=2)
    fleet.trusted[:4] = [True] * 4
    fleet.trusted_only[:500] = True
    result = fleet.place()
    assert fleet.should[:500].max() < 4
    assert fleet.load()[:4].max() <= 1.1 * 250 + 1
    assert Reason.OVERFULL not in reasons(result)
    assert len(result.no_room) == 0


def test_a_repo_that_became_private_leaves_those_that_are_not_trusted():
    fleet = Fleet(6, 600)
    fleet.trusted[:3] = [True] * 3
    fleet.place()
    fleet.trusted_only[:50] = True
    moved = fleet.should[:50, 0] >= 3
    fleet.place()
    assert fleet.new == moved.sum() > 0
    assert fleet.should[:50].max() < 3


def test_pinned_workers_have_the_first_ranks():
    fleet = Fleet(8, 200, replicas=2)
    fleet.place()
    fleet.pins = {0: (5, 6), 1: (7,)}
    result = fleet.place()
    assert fleet.should[0].tolist() == [5, 6]
    assert fleet.should[1, 0] == 7
    assert reasons(result) <= {Reason.PINNED}
    assert reasons(fleet.place()) == set()


def test_pins_hold_against_newcomers_and_bounds():
    fleet = Fleet(2, 100)
    fleet.pins = dict.fromkeys(range(100), (0,))
    fleet.place()
    fleet.place(fleet.join())
    assert fleet.load().tolist() == [100, 0, 0]


def test_while_a_pinned_worker_is_away_another_holds_the_repo():
    fleet = Fleet(4, 40)
    fleet.pins = {0: (2,)}
    fleet.member[2] = False
    assert len(fleet.place().no_room) == 0
    fleet.member[2] = True
    fleet.place(2)
    assert fleet.should[0, 0] == 2


def test_a_barred_worker_does_not_get_the_repo_back():
    fleet = Fleet(4, 40)
    fleet.place()
    owner = int(fleet.should[0, 0])
    fleet.should[0, 0] = NOBODY
    fleet.held, fleet.barred = [(0, owner)], {0: (owner,)}
    fleet.place()
    assert fleet.should[0, 0] not in (owner, NOBODY)


# Replicas, holes, parts


def test_a_hole_is_filled_at_its_rank_and_first_by_who_holds_the_repo():
    fleet = Fleet(5, 50, replicas=3)
    fleet.place()
    first, gone, last = fleet.should[0].tolist()
    holder = next(w for w in range(5) if w not in (first, gone, last))
    fleet.held = [(0, holder)]
    fleet.member[gone] = False
    result = fleet.place()
    assert fleet.should[0].tolist() == [first, holder, last]
    assert result.reason[0].tolist() == [UNCHANGED, Reason.KEPT, UNCHANGED]


def test_fewer_replicas_drop_the_last_and_a_lost_first_is_replaced_by_the_next():
    fleet = Fleet(5, 2, replicas=3)
    fleet.should[:] = [[0, 1, 2], [0, 1, 2]]
    fleet.replicas[:] = 2
    fleet.member[0] = False
    result = fleet.place()
    assert fleet.should.tolist() == [[1, 2, NOBODY]] * 2
    assert reasons(result) == set()


def test_more_replicas_than_columns_are_refused():
    fleet = Fleet(2, 5)
    fleet.replicas[:] = 2
    with pytest.raises(ValueError, match="2 replicas do not fit 1 columns"):
        fleet.place()


def test_a_part_of_the_repos_is_placed_by_all_loads_and_relieves_nobody():
    fleet = Fleet(4, 10)
    fleet.elsewhere = [500, 90, 90, 90]
    fleet.should[0, 0] = 0
    fleet.place()
    assert fleet.should[0, 0] == 0
    assert 0 not in fleet.should[1:, 0]
