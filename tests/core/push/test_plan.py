"""What may be pushed, rule by rule."""

from __future__ import annotations

import itertools

import pytest

from evermirror.core.keep.guard import GuardReason, GuardSettings
from evermirror.core.push.plan import (
    LastPut,
    RefPush,
    batches,
    halves,
    known_put,
    plan_push,
    to_be_judged,
)
from evermirror.model.push import RefOutcome, put_digest
from evermirror.model.refs import Oid, RefSnapshot

A, B, C, D = (Oid(letter * 40) for letter in "abcd")
X = "refs/heads/x"
GUARD = GuardSettings()


def plan(mirror, target, put=None, *, pending=None, head=None, **more):
    return plan_push(RefSnapshot(mirror, head), target, LastPut(put or {}, pending or {}), GUARD, **more)


def moves(made):
    return [(c.name, c.old, c.new) for c in made.changes]


@pytest.mark.parametrize(
    ("want", "have", "put", "pending", "change"),
    [
        (A, None, None, (), (None, A)),  # new
        (A, None, B, (), (None, A)),  # deleted there by somebody: nothing of theirs is lost
        (A, A, None, (), None),  # there already
        (B, A, A, (), (A, B)),  # moved on
        (B, C, A, (C,), (C, B)),  # of a push whose end nobody saw
        (B, A, A, (C,), (A, B)),  # that push did not arrive
        (None, A, A, (), (A, None)),  # deleted
        (None, C, A, (C,), (C, None)),
        (None, None, A, (), None),  # deleted there too
        (None, C, None, (), None),  # never ours
    ],
)
def test_what_is_ours_follows_the_mirror(want, have, put, pending, change):
    made = plan(
        {X: want} if want else {},
        {X: have} if have else {},
        {X: put} if put else {},
        pending={X: pending} if pending else {},
        accept=True,
    )
    assert moves(made) == ([(X, *change)] if change else [])
    assert made.waiting == ()


@pytest.mark.parametrize(("want", "put"), [(A, None), (A, B), (None, B)])
def test_what_somebody_else_put_there_waits_for_a_person(want, put):
    mirror, last = ({X: want} if want else {}), ({X: put} if put else {})
    made = plan(mirror, {X: D}, last)
    assert made.changes == ()
    assert [(r.name, r.old, r.new, r.outcome) for r in made.waiting] == [(X, D, want, RefOutcome.CONFLICT)]
    assert made.put.refs == last
    assert moves(plan(mirror, {X: D}, last, adopt=True, accept=True)) == [(X, D, want)]


def test_refs_of_others_are_left_alone_whatever_a_person_says():
    target = {X: A, "refs/heads/theirs": D, "refs/tags/theirs": D}
    made = plan({X: B}, target, {X: A}, adopt=True, accept=True)
    assert moves(made) == [(X, A, B)]
    assert made.put.refs == {X: A}
    assert made.waiting == ()


def test_only_branches_and_tags_are_looked_at():
    odd = ("refs/merge-requests/1/head", "refs/pull/1/head", "refs/keep-around/1", "refs/evermirror/kept/1")
    mirror = {X: A, "refs/tags/v1": B, **dict.fromkeys(odd, C)}
    made = plan(mirror, dict.fromkeys(odd, D), {})
    assert {c.name for c in made.changes} == {X, "refs/tags/v1"}
    assert made.waiting == ()


def test_an_old_value_of_our_own_history_is_ours_at_a_first_push_only():
    assert to_be_judged({X: B, "refs/heads/y": B}, {X: A, "refs/heads/y": B}, LastPut()) == {X: (A, B)}
    assert to_be_judged({X: B}, {X: A}, LastPut({X: A})) == {}
    made = plan({X: B}, {X: A}, in_history={X})
    assert moves(made) == [(X, A, B)]
    assert made.put.refs == {X: A}, "so that it is known as ours should the push break off"


@pytest.mark.parametrize("want", [B, None])
def test_the_only_copy_of_something_waits_for_a_person_whoever_put_it_there(want):
    mirror = {X: want, "refs/heads/y": B} if want else {"refs/heads/y": B}
    target = dict.fromkeys((X, "refs/heads/y"), A)
    assert plan(mirror, target, target).at_stake == target
    made = plan(mirror, target, target, only_there={X})
    assert moves(made) == [("refs/heads/y", A, B)]
    assert [(r.name, r.outcome, r.new) for r in made.waiting] == [(X, RefOutcome.CONFLICT, want)]
    assert "nowhere else" in made.waiting[0].reason
    assert made.put.refs == target, "its digest is still what the coordinator knows"
    for word in ({"adopt": True}, {"accept": True}):
        assert (X, A, want) in moves(plan(mirror, target, target, only_there={X}, **word))


def test_what_is_there_only_and_wanted_too_is_no_loss():
    assert plan({X: A}, {X: A}, {X: A}, only_there={X}).waiting == ()


def test_room_is_made_first_and_the_default_branch_comes_before_the_others_and_before_deletions():
    put = {"refs/heads/a": A, "refs/heads/d/e": A, "refs/heads/old": A, "refs/heads/b": A}
    mirror = {"refs/heads/a/b": B, "refs/heads/d": B, "refs/heads/b": B, "refs/heads/trunk": B}
    made = plan(mirror, put, put, head="refs/heads/trunk")
    assert [c.name for c in made.clearing] == ["refs/heads/a", "refs/heads/d/e"]
    assert [c.name for c in made.updates] == [
        "refs/heads/trunk",
        "refs/heads/a/b",
        "refs/heads/b",
        "refs/heads/d",
    ]
    assert [c.name for c in made.deletions] == ["refs/heads/old"]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("refs/heads/a", "refs/heads/a/b"), ("refs/heads/a/b", "refs/heads/a")]
)
@pytest.mark.parametrize("adopt", [False, True])
def test_a_ref_of_others_in_the_way_is_not_removed(ours, theirs, adopt):
    made = plan({ours: A, X: A}, {theirs: D}, adopt=adopt)
    assert [c.name for c in made.changes] == [X]
    assert [(r.name, r.outcome, r.reason) for r in made.waiting] == [
        (ours, RefOutcome.CONFLICT, f"{theirs} is in the way")
    ]


def test_names_that_git_cannot_tell_apart():
    outer = "refs/heads/refs/heads/x"
    made = plan({X: A, outer: A}, {})
    assert [c.name for c in made.changes] == [X]
    assert [(r.name, r.outcome) for r in made.waiting] == [(outer, RefOutcome.REFUSED)]
    made = plan({X: B}, {X: A, outer: D}, {X: A})
    assert made.changes == ()
    assert [(r.name, r.outcome) for r in made.waiting] == [(X, RefOutcome.CONFLICT)]
    made = plan({outer: A}, {})
    assert [c.name for c in made.changes] == [outer]


def many(count, oid=A):
    return {f"refs/heads/{i:03}": oid for i in range(count)}


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        (0, 0, None),
        (0, 10, None),
        (1, 0, GuardReason.EMPTIED),
        (6, 1, None),
        (7, 1, GuardReason.SHRUNKEN),
        (100, 80, None),
        (100, 79, GuardReason.SHRUNKEN),
    ],
)
def test_a_mirror_that_lost_much_is_not_followed_until_a_person_says_so(before, after, held):
    made = plan(many(after, B), many(before), many(before))
    assert made.held is held
    if held is not None:
        assert made.changes == ()
        assert made.put.refs == many(before), "what was put is still known"
        assert f"{before - after} of {before} " in made.held_words
    accepted = plan(many(after, B), many(before), many(before), accept=True)
    assert accepted.held is None
    assert len(accepted.deletions) == max(0, before - after)


def test_an_empty_mirror_at_a_target_of_others_is_no_wipe():
    made = plan({}, many(10, D))
    assert (made.held, made.changes, made.waiting) == (None, (), ())


def test_what_was_put_by_another_worker_is_known_by_its_digest():
    there = {X: B, "refs/tags/v1": C}
    mine = LastPut({X: A})
    assert known_put(None, None, {}, there) == (LastPut(), True)
    assert known_put(mine, None, {}, there) == (mine, False)
    assert known_put(mine, put_digest({X: A}), {}, there) == (mine, False), "our own file is the last word"
    assert known_put(None, put_digest(there), {}, there) == (LastPut(there), False)
    assert known_put(mine, put_digest(there), {}, there) == (LastPut(there), False), "our file is old"
    with_theirs = {**there, "refs/heads/theirs": D}
    assert known_put(None, put_digest(there), there, with_theirs) == (LastPut(there), False)
    assert known_put(mine, put_digest({X: D}), there, there) == (mine, True)
    hidden = {**there, "refs/merge-requests/1/head": D}
    assert known_put(None, put_digest(there), {}, hidden) == (LastPut(there), False)


def test_commands_are_bounded_by_refs_and_by_bytes_and_lose_nothing():
    changes = [RefPush(f"refs/heads/{'é' * (i % 90)}{i}", A, B) for i in range(1000)]
    made = list(batches(changes, 100, 6_000))
    assert [c for batch in made for c in batch] == changes
    assert max(map(len, made)) <= 100
    assert all(sum(c.size for c in batch) <= 6_000 for batch in made)
    for batch, after in itertools.pairwise(made):
        assert len(batch) == 100 or sum(c.size for c in batch) + after[0].size > 6_000
    huge = RefPush("refs/heads/" + "x" * 10_000, None, A)
    assert list(batches([huge, huge], 100, 6_000)) == [(huge,), (huge,)]
    first, second = halves(changes[:5])
    assert (*first, *second) == tuple(changes[:5])
    assert first
