"""A repo is witnessed for as long as any aggregator has it: against a twin of plain dicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet import witnesses
from evermirror.core.fleet.events import HeldCopy, WitnessHeld, WitnessLost
from evermirror.core.fleet.witnesses import Witnesses

A, B = "aggregator/1", "aggregator/2"
KEYS = [f"h/{n}" for n in range(6)]


class Seen:
    """What the fleet's tables would have."""

    def __init__(self):
        self.witness = {}

    def take(self, events):
        for event in events:
            match event:
                case WitnessHeld(copies=copies):
                    self.witness.update({c.key: c.digest for c in copies})
                case WitnessLost(keys=None):
                    self.witness.clear()
                case WitnessLost(keys=keys):
                    for key in keys:
                        self.witness.pop(key, None)


def held(*keys, digest=7):
    return [HeldCopy(key, digest, 1.0) for key in keys]


nodes = st.sampled_from([A, B, "aggregator/3"])
keys = st.lists(st.sampled_from(KEYS), max_size=8)
steps = st.one_of(
    st.tuples(
        st.just("has"), nodes, st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 3)), max_size=8)
    ),
    st.tuples(st.just("lacks"), nodes, keys),
    st.tuples(st.just("forget"), nodes, st.just([])),
)


@given(st.lists(steps, max_size=25))
def test_what_is_witnessed_is_what_somebody_has(history):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(witnesses, "PART", 3)
        ours, seen, twin = Witnesses(), Seen(), {}
        for what, node, about in history:
            match what:
                case "has":
                    seen.take(ours.has(node, [HeldCopy(key, digest, 0.0) for key, digest in about]))
                    twin.setdefault(node, {}).update({key: digest for key, digest in about if digest})
                case "lacks":
                    seen.take(ours.lacks(node, about))
                    for key in about:
                        twin.get(node, {}).pop(key, None)
                case "forget":
                    seen.take(ours.forget(node))
                    twin.pop(node, None)
            for key in KEYS:
                told = {of[key] for of in twin.values() if key in of}
                assert (key in seen.witness) == bool(told)
                assert not told or seen.witness[key] in told
            assert {node: ours.count(node) for node in twin} == {n: len(of) for n, of in twin.items()}


def test_of_two_that_have_it_the_other_one_is_left():
    ours, seen = Witnesses(), Seen()
    seen.take(ours.has(A, held("h/a", "h/b", digest=1)))
    seen.take(ours.has(B, held("h/a", digest=2)))
    seen.take(ours.lacks(B, ["h/a", "h/unknown"]))
    assert seen.witness == {"h/a": 1, "h/b": 1}
    seen.take(ours.has(B, held("h/a", digest=2)))
    seen.take(ours.forget(A))
    assert seen.witness == {"h/a": 2}
    seen.take(ours.forget(B))
    assert seen.witness == {}


def test_an_unknown_digest_witnesses_nothing():
    ours = Witnesses()
    assert list(ours.has(A, held("h/a", digest=0))) == []
    assert ours.count(A) == 0


def test_what_one_may_tell_is_bounded(monkeypatch):
    monkeypatch.setattr(witnesses, "KEYS_MAX", 4)
    ours, seen = Witnesses(), Seen()
    seen.take(ours.has(A, held(*KEYS)))
    seen.take(ours.has(A, held("h/x")))
    assert ours.count(A) == 4
    assert list(seen.witness) == KEYS[:4]
    seen.take(ours.lacks(A, KEYS[:1]))
    seen.take(ours.has(A, held("h/x")))
    assert "h/x" in seen.witness


def test_many_are_told_in_parts():
    ours = Witnesses()
    events = list(ours.has(A, held(*(f"h/{n}" for n in range(12_000)))))
    assert [len(e.copies) for e in events] == [5000, 5000, 2000]
    list(ours.has(B, held("h/1")))
    assert max(len(e.keys or ()) if isinstance(e, WitnessLost) else 0 for e in ours.forget(A)) <= 5000
