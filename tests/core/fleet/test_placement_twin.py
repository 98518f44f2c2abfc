"""The placement against its dumb twin, and its promises, through random lives of small fleets."""

from dataclasses import replace

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from evermirror.core.fleet.copies import NOBODY
from evermirror.core.fleet.hashing import mix
from evermirror.core.fleet.placement import UNCHANGED, Sites, Wishes, place
from evermirror.core.fleet.ring import Ring
from evermirror.core.fleet.seating import Seating
from tests.core.fleet.placement_twin import Twin

NO_LIMIT = 1 << 40


@st.composite
def fleets(draw):
    """A fleet and its repos, already placed in some way, not always a sensible one."""
    seed = draw(st.integers(0, 2**32))
    r = np.random.default_rng(seed)
    n, workers = draw(st.integers(1, 40)), draw(st.integers(1, 7))
    width = draw(st.integers(1, 3))
    mixed = draw(st.booleans())
    replicas = r.integers(1, width + 1, n) if mixed else np.full(n, draw(st.integers(1, width)))
    member = r.random(workers) < draw(st.sampled_from([1.0, 0.8]))
    sites = Sites(
        member,
        r.random(workers) < draw(st.sampled_from([1.0, 0.7])),
        r.random(workers) < draw(st.sampled_from([1.0, 0.5, 0.0])),
        r.choice(draw(st.sampled_from([[1.0], [0.5, 1.0, 4.0]])), workers),
        r.choice(draw(st.sampled_from([[NO_LIMIT], [3, 10, NO_LIMIT]])), workers).astype(np.int64),
        r.integers(0, 9, workers) if draw(st.sampled_from([False, False, True])) else None,
    )
    should = np.full((n, width), NOBODY, np.uint16)
    full = draw(st.sampled_from([0.0, 0.7, 1.0, 1.0]))
    lopsided = r.random(workers) ** draw(st.sampled_from([0, 3]))
    for i in range(n):
        some = [w for w in r.permutation(workers)[:width] if r.random() < full * lopsided[w] ** 0.3]
        ranks = r.permutation(width)[: len(some)] if full < 1.0 else range(len(some))
        for k, w in zip(ranks, some, strict=False):
            should[i, k] = w
    held = [(i, w) for i in range(n) for w in range(workers) if r.random() < draw_share(r)]
    rare = draw(st.sampled_from([0.0, 0.15]))
    named = {i: tuple(r.permutation(workers)[:2].tolist()) for i in range(n) if r.random() < rare}
    barred = {i: (int(r.integers(workers)),) for i in range(n) if r.random() < rare}
    joined = tuple(np.flatnonzero(r.random(workers) < draw(st.sampled_from([0.0, 0.3, 1.0]))).tolist())
    wishes = Wishes(
        mix(r.integers(0, 2**63, n).astype(np.uint64)),
        r.random(n) < draw(st.sampled_from([0.0, 0.4])),
        replicas.astype(np.uint8),
        should,
        np.array([i for i, _ in held], np.int32),
        np.array([w for _, w in held], np.uint16),
        named,
        joined,
        barred,
    )
    on_ring = np.flatnonzero(member)
    flaps = r.choice(draw(st.sampled_from([[1.0], [0.3, 1.0]])), workers)
    ring = Ring.build(on_ring, (sites.weight * flaps)[on_ring], draw(st.sampled_from([1, 4, 20])))
    return wishes, ring, sites, draw(st.sampled_from([1.0, 1.1, 1.5]))


def draw_share(r):
    return r.choice([0.02, 0.3])


def twin_of(wishes, ring, sites, bound):
    def bounds_of(twin):
        seating = Seating(wishes, ring, sites)
        seating.should = np.array(twin.rows, np.uint16).reshape(wishes.should.shape)
        seating.load[: len(sites.member)] = [twin.load(w) for w in range(len(sites.member))]
        made = seating.bounds(bound)
        return made.level.tolist(), made.placing.tolist(), made.most.tolist()

    return Twin(wishes, ring, sites, bounds_of)


@settings(max_examples=300, deadline=None)
@given(fleets())
def test_it_places_as_its_twin_does(fleet):
    wishes, ring, sites, bound = fleet
    real = place(wishes, ring, sites, bound)
    twin = twin_of(wishes, ring, sites, bound)
    should, reason = twin.place()
    assert real.should.tolist() == should
    assert real.reason.tolist() == reason
    assert real.no_room.tolist() == [i for i in range(len(should)) if twin.holes(i)]
    for code in set(real.reason.ravel().tolist()):
        event(f"reason {code}")


@settings(max_examples=200, deadline=None)
@given(fleets())
def test_copies_are_allowed_distinct_and_as_many_as_somebody_can_hold(fleet):
    wishes, ring, sites, bound = fleet
    result = place(wishes, ring, sites, bound)
    load = np.bincount(result.should[result.should != NOBODY], minlength=len(sites.member))
    load += 0 if sites.elsewhere is None else sites.elsewhere
    for i, row in enumerate(result.should.tolist()):
        sits = [w for w in row if w != NOBODY]
        assert len(set(sits)) == len(sits) <= wishes.replicas[i]
        assert all(row[k] == NOBODY for k in range(wishes.replicas[i], len(row)))
        assert all(sites.member[w] and (sites.trusted[w] or not wishes.trusted_only[i]) for w in sits)
        new = [w for w, r in zip(row, result.reason[i].tolist(), strict=True) if r != UNCHANGED]
        assert not set(new) & set(wishes.should[i].tolist())
        assert not set(new) & set(wishes.barred.get(i, ()))
        if i in result.no_room:
            free = sites.member & sites.takes & (load < sites.capacity)
            free[[*sits, *wishes.barred.get(i, ())]] = False
            assert not (free & (sites.trusted | (not wishes.trusted_only[i]))).any()


@settings(max_examples=150, deadline=None)
@given(fleets())
def test_placed_again_without_a_change_nothing_moves(fleet):
    wishes, ring, sites, bound = fleet
    wishes = replace(wishes, joined=(), barred={})
    before = place(wishes, ring, sites, bound)
    for _ in range(8):  # one that sheds may make room that another needs; it settles
        after = place(replace(wishes, should=before.should), ring, sites, bound)
        if np.array_equal(after.should, before.should):
            break
        before = after
    else:
        raise AssertionError("it never settles")


@settings(max_examples=100, deadline=None)
@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_of_the_repos_does_not_matter(fleet, random):
    wishes, ring, sites, bound = fleet
    order = list(range(len(wishes.positions)))
    random.shuffle(order)
    back = {old: new for new, old in enumerate(order)}
    other = Wishes(
        wishes.positions[order],
        wishes.trusted_only[order],
        wishes.replicas[order],
        wishes.should[order],
        np.array([back[i] for i in wishes.held_row.tolist()], np.int32),
        wishes.held_worker,
        {back[i]: pins for i, pins in wishes.pins.items()},
        wishes.joined,
        {back[i]: barred for i, barred in wishes.barred.items()},
    )
    expected = place(wishes, ring, sites, bound).should[order]
    assert np.array_equal(place(other, ring, sites, bound).should, expected)
