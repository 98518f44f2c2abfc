"""Pushes by workers that come and go, against a target that is a dict and whose answers lag behind.

Whatever happens, nothing is overwritten that only the target has; and where one worker stays, stale answers
do not make what is ours foreign.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from evermirror.core.keep.guard import GuardSettings
from evermirror.core.push.plan import LastPut, known_put, plan_push, to_be_judged
from evermirror.core.push.settle import Told, intents, settle
from evermirror.model.push import RefOutcome, put_digest
from evermirror.model.refs import RefSnapshot

NAMES = [f"refs/heads/{letter}" for letter in "abc"]
ALWAYS = "refs/tags/always"  # so that the mirror is never empty, which the guard would hold
FREE = GuardSettings(least=10_000)


@dataclass
class Fleet:
    """A mirror and its objects, as the worker has them who holds it now; the target; the coordinator."""

    mirror: dict = field(default_factory=lambda: {ALWAYS: "0" * 40})
    has: dict = field(default_factory=lambda: {"0" * 40: ALWAYS})  # by object: the branch that it was of
    target: dict = field(default_factory=dict)
    file: LastPut | None = None
    digest: str | None = None
    serial: int = 0

    def step(self, what, name):
        match what:
            case "mirror":
                self.mirror[name] = self.value()
                self.has[self.mirror[name]] = name
            case "unmirror":
                self.mirror.pop(name, None)
            case "somebody else":
                self.target[name] = self.value()
            case "takeover":
                self.file = None
                self.has = {oid: name for name, oid in self.mirror.items()}
            case _:
                self.push(what)

    def value(self):
        self.serial += 1
        return f"{self.serial:040}"

    def push(self, how="push", **words):
        there, mirror = dict(self.target), RefSnapshot(dict(self.mirror))
        last, first = known_put(self.file, self.digest, mirror.refs, there)
        pairs = to_be_judged(mirror.refs, there, last) if first else {}
        more = {"in_history": {n for n, (old, _) in pairs.items() if self.has.get(old) == n}, **words}
        plan = plan_push(mirror, there, last, FREE, **more)
        only_there = {name for name, oid in plan.at_stake.items() if oid not in self.has}
        plan = plan_push(mirror, there, last, FREE, only_there=only_there, **more)
        self.file = intents(plan)
        for change in plan.changes:
            assert self.target.get(change.name) == change.old
            assert words or change.old is None or change.old in self.has, "the only copy"
            self.target[change.name] = change.new
            if change.new is None:
                del self.target[change.name]
        if how == "crash":
            return None
        told = {c.name: Told(True) for c in plan.changes}
        settled = settle(plan, mirror.refs, told, told.keys(), there if how == "stale look" else self.target)
        self.file, self.digest = settled.put, put_digest(settled.put.refs)
        return settled


def stories(*whats):
    return st.lists(st.tuples(st.sampled_from(whats), st.sampled_from(NAMES)), max_size=25)


ALONE = ("mirror", "mirror", "unmirror", "push", "push", "crash", "stale look")


@settings(max_examples=300, deadline=None)
@given(stories(*ALONE, "takeover", "somebody else"))
def test_what_only_the_target_has_waits_for_a_person(steps):
    fleet = Fleet()
    for step in steps:
        fleet.step(*step)
    fleet.push()
    settled = fleet.push()
    waiting = {ref.name for ref in settled.refs if ref.outcome is RefOutcome.CONFLICT}
    assert {n: fleet.target.get(n) for n in fleet.mirror.keys() - waiting} == {
        n: o for n, o in fleet.mirror.items() if n not in waiting
    }
    fleet.push(adopt=True)
    assert fleet.mirror.items() <= fleet.target.items()


@example([(what, "refs/heads/a") for what in ("push", "mirror", "crash", "crash", "unmirror")])
@settings(max_examples=300, deadline=None)
@given(stories(*ALONE))
def test_stale_looks_make_nothing_foreign(steps):
    fleet = Fleet()
    for step in steps:
        fleet.step(*step)
    fleet.push()
    settled = fleet.push()
    assert fleet.target == fleet.mirror
    assert settled.refs == ()
    assert fleet.file == LastPut(fleet.mirror)
