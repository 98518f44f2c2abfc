"""How a target is, ref by ref, by our own files and the last push: against the obvious version."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.push.plan import LastPut, Refusal
from evermirror.core.push.standing import looked, standing_of, with_push
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.push import Pushed, PushedRef, RefOutcome, RefState, TargetId
from evermirror.model.refs import Oid

ONE, TWO, THREE = (Oid(c * 40) for c in "123")
T = TargetId(1)
NAMES = [f"refs/heads/{n}" for n in "abcdef"]
refs = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([ONE, TWO]))


def standing(mirror, last, most=200):
    return standing_of(T, "https://t.example/x", mirror, last, most)


@given(refs, refs, st.integers(1, 8))
def test_equal_ones_are_counted_and_the_others_come_first(mirror, put, most):
    told = standing(mirror, LastPut(put), most)
    assert told.equal == sum(put.get(n) == oid for n, oid in mirror.items())
    others = sorted(n for n in NAMES if mirror.get(n) != put.get(n))
    assert [r.name for r in told.refs if r.state is not RefState.EQUAL] == others[:most]
    assert told.complete == (len(others) <= most)
    assert len(told.refs) == min(most, len(mirror.keys() | put.keys()))
    for ref in told.refs:
        assert (ref.ours, ref.theirs) == (mirror.get(ref.name), put.get(ref.name))


def test_what_each_difference_is_called():
    a, b, c, d, e, f = NAMES
    mirror = {a: ONE, b: TWO, c: ONE, d: ONE, e: TWO}
    refusal = {d: Refusal(ONE, "protected"), e: Refusal(ONE, "was another value")}
    last = LastPut({a: ONE, b: ONE, f: ONE}, {b: (TWO,)}, refusal)
    told = {r.name: (r.state.value, r.reason) for r in standing(mirror, last).refs}
    assert told == {
        a: ("equal", ""),
        b: ("behind", "nobody saw the end of its last push"),
        c: ("missing", ""),
        d: ("refused", "protected"),
        e: ("missing", ""),
        f: ("extra", ""),
    }


def push(*waiting, failure=None):
    found = tuple(PushedRef(n, THREE, ONE, outcome, "words") for n, outcome in waiting)
    return Pushed(T, None, refs=found, waiting_total=len(found), failure=failure)


def test_what_the_last_push_found_goes_over_our_own_files():
    a, b, c, *_ = NAMES
    known = standing({a: ONE, b: ONE, c: ONE}, LastPut({a: ONE, c: ONE}))
    found = push((a, RefOutcome.CONFLICT), (b, RefOutcome.REFUSED))
    told, equal = with_push(known, found)
    assert equal == 1, "what we put at a is not there any more"
    assert [(r.name, r.state, r.theirs, r.reason) for r in told] == [
        (a, RefState.FOREIGN, THREE, "words"),
        (b, RefState.REFUSED, THREE, "words"),
        (c, RefState.EQUAL, ONE, ""),
    ]
    assert with_push(known, None) == (tuple(sorted(known.refs, key=lambda r: r.name != b)), 2)
    alone, unknown = with_push(None, found)
    assert (unknown, [r.ours for r in alone]) == (None, [ONE, ONE])
    assert with_push(None, None) == ((), None)
    assert len(with_push(known, found, most=2)[0]) == 2


def test_a_push_that_did_not_get_there_says_nothing():
    down = Failure(FailureKind.NETWORK_TIMEOUT, "no answer")
    assert looked(push())
    assert looked(push((NAMES[0], RefOutcome.CONFLICT), failure=Failure(FailureKind.CONFLICT, "x")))
    assert not looked(push(failure=down))


@given(refs, refs, st.lists(st.sampled_from(NAMES), unique=True))
def test_all_that_should_be_there_is_equal_or_named(mirror, put, waiting):
    known = standing(mirror, LastPut(put))
    told, equal = with_push(known, push(*((n, RefOutcome.CONFLICT) for n in waiting)))
    assert equal == len([n for n in mirror if put.get(n) == mirror[n] and n not in waiting])
    assert {r.name for r in told if r.state is not RefState.EQUAL} >= set(waiting)
