"""What is known after a push, by what was said and by what is there."""

from __future__ import annotations

import pytest

from evermirror.core.keep.guard import GuardSettings
from evermirror.core.push.plan import LastPut, plan_push
from evermirror.core.push.settle import PENDING_MAX, Told, intents, settle
from evermirror.model.push import RefOutcome
from evermirror.model.refs import Oid, RefSnapshot

A, B, C = (Oid(letter * 40) for letter in "abc")
X = "refs/heads/x"
YES, NO, STALE = Told(True), Told(False, "protected branch"), Told(False, "stale info", stale=True)
UPDATE = plan_push(RefSnapshot({X: B}), {X: A}, LastPut({X: A}), GuardSettings())
DELETION = plan_push(RefSnapshot({}), {X: A}, LastPut({X: A}), GuardSettings(), accept=True)


def after(made, wanted, told, there, begun=frozenset({X})):
    return settle(made, wanted, {X: told} if told else {}, begun, there)


@pytest.mark.parametrize(
    ("told", "there", "outcome", "put", "pending", "wrong"),
    [
        (YES, {X: B}, RefOutcome.PUT, B, (), 0),
        (None, {X: B}, RefOutcome.PUT, B, (), 0),  # the connection broke after it was done
        (STALE, {X: B}, RefOutcome.PUT, B, (), 0),  # an earlier git of ours was quicker
        (YES, {X: A}, None, A, (B,), 1),  # it lies, or a replica that lags behind was asked
        (NO, {X: A}, RefOutcome.REFUSED, A, (), 0),
        (None, {X: A}, None, A, (B,), 0),
        (YES, {X: C}, RefOutcome.CONFLICT, B, (), 0),
        (STALE, {X: C}, RefOutcome.CONFLICT, A, (), 0),
        (NO, {X: C}, RefOutcome.CONFLICT, A, (), 0),
        (NO, {}, RefOutcome.CONFLICT, A, (), 0),
        (YES, None, RefOutcome.PUT, B, (), 0),
        (NO, None, RefOutcome.REFUSED, A, (), 0),
        (STALE, None, RefOutcome.CONFLICT, A, (), 0),
        (None, None, None, A, (B,), 0),
    ],
)
def test_an_update(told, there, outcome, put, pending, wrong):
    settled = after(UPDATE, {X: B}, told, there)
    assert [r.outcome for r in settled.refs] == ([outcome] if outcome else [])
    assert settled.put.refs == {X: put}
    assert settled.put.pending == ({X: pending} if pending else {})
    assert len(settled.wrong) == wrong


@pytest.mark.parametrize(
    ("told", "there", "outcome", "put"),
    [
        (YES, {}, RefOutcome.DELETED, None),
        (NO, {X: A}, RefOutcome.REFUSED, A),
        (None, {X: A}, None, A),
        (STALE, {X: C}, RefOutcome.CONFLICT, A),
    ],
)
def test_a_deletion(told, there, outcome, put):
    settled = after(DELETION, {}, told, there)
    assert [r.outcome for r in settled.refs] == ([outcome] if outcome else [])
    assert settled.put.refs == ({X: put} if put else {})
    assert settled.put.pending == {}
    assert settled.wrong == ()


def test_the_reason_of_a_refusal_is_told():
    assert after(UPDATE, {X: B}, NO, {X: A}).refs[0].reason == "protected branch"


def test_what_no_command_was_started_for_is_neither_done_nor_pending():
    settled = after(UPDATE, {X: B}, None, {X: A}, begun=frozenset())
    assert (settled.refs, settled.put) == ((), LastPut({X: A}))


def test_what_was_there_before_the_push_must_be_there_after_it():
    same = plan_push(RefSnapshot({X: A}), {X: A}, LastPut({X: A}), GuardSettings())
    settled = settle(same, {X: A}, {}, frozenset(), {X: C})
    assert [(r.name, r.old, r.outcome) for r in settled.refs] == [(X, C, RefOutcome.CONFLICT)]
    assert settle(same, {X: A}, {}, frozenset(), {X: A}).refs == ()


def test_a_stale_look_after_a_push_does_not_make_our_own_value_foreign():
    for there in ({X: A}, {X: B}):
        last = after(UPDATE, {X: B}, YES, {X: A}).put
        moved_on = plan_push(RefSnapshot({X: C}), there, last, GuardSettings())
        assert [(c.old, c.new) for c in moved_on.changes] == [(there[X], C)]
        assert moved_on.waiting == ()


def test_intents_are_all_that_may_be_there_and_are_bounded():
    assert intents(UPDATE) == LastPut({X: A}, {X: (B,)})
    assert intents(DELETION) == LastPut({X: A})
    last = LastPut({X: A})
    for digit in "123456789":
        made = plan_push(RefSnapshot({X: Oid(digit * 40)}), {X: A}, last, GuardSettings())
        last = intents(made)
        assert last.refs == {X: A}
    assert last.pending == {X: tuple(digit * 40 for digit in "123456789"[-PENDING_MAX:])}
