"""Pushes against a target that is a dict, with others who write there, crashes, and answers that come late.

Nothing that somebody else wrote is ever lost, and once all is calm the target has what the mirror has. One
thing is not promised: a ref that was made so late that it had left the mirror by then, and a push between had
not found it, stays at the target like one of somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.keep.guard import GuardSettings
from evermirror.core.push.plan import LastPut, batches, plan_push
from evermirror.core.push.settle import Told, intents, settle
from evermirror.model.push import RefOutcome
from evermirror.model.refs import RefSnapshot

NAMES = [
    *(f"refs/heads/{name}" for name in ("a", "a/b", "a/b/c", "d", "e", "f")),
    "refs/heads/refs/heads/d",
    "refs/tags/a",
    "refs/tags/v",
]
FREE = GuardSettings(least=10_000)


def clashes(name, other):
    return name != other and (name.startswith(other + "/") or other.startswith(name + "/"))


@dataclass
class DumbTarget:
    """What a git server is to a pusher: leases, no ``a`` beside ``a/b``, and no name that could be two."""

    refs: dict = field(default_factory=dict)
    theirs: dict = field(default_factory=dict)  # what others wrote, and nobody has touched since

    def push(self, change):
        twins = [n for n in self.refs if n.endswith("/" + change.name)]
        assert not twins, "git would refuse the whole command"
        return self.land(change)

    def land(self, change):
        if self.refs.get(change.name) != change.old:
            return Told(False, "stale info", stale=True)
        if change.old is None and any(clashes(change.name, n) for n in self.refs):
            return Told(False, "failed to update ref")
        assert change.name not in self.theirs, f"overwrites {change.name} of somebody else"
        self._set(change.name, change.new)
        return Told(True)

    def other(self, name, value):
        if value is not None and any(clashes(name, n) for n in self.refs):
            return
        self._set(name, value)
        if value is not None:
            self.theirs[name] = value

    def _set(self, name, value):
        self.theirs.pop(name, None)
        if value is None:
            self.refs.pop(name, None)
        else:
            self.refs[name] = value


@dataclass
class Dumb:
    """A mirror, its target, and the file."""

    mirror: dict = field(default_factory=dict)
    target: DumbTarget = field(default_factory=DumbTarget)
    last: LastPut = field(default_factory=LastPut)
    late: list = field(default_factory=list)  # commands that the target has, and has not done yet
    serial: int = 0

    def value(self, letter):
        self.serial += 1
        return f"{letter}{self.serial:039}"

    def step(self, what, name, number):
        match what:
            case "mirror":
                for other in [n for n in self.mirror if clashes(n, name)]:
                    del self.mirror[other]
                self.mirror[name] = self.value("a")
            case "unmirror":
                self.mirror.pop(name, None)
            case "other":
                self.target.other(name, self.value("f"))
            case "other deletes":
                self.target.other(name, None)
            case "other has the same":
                if name in self.mirror and name not in self.target.refs:
                    self.target.other(name, self.mirror[name])
                    if self.last.is_ours(name, self.mirror[name]):  # the very value that we put there before
                        del self.target.theirs[name]
            case "late":
                for change in self.late:
                    self.target.land(change)
                self.late.clear()
            case _:
                self.push(what, name, number)

    def push(self, how="push", name=NAMES[0], number=99, *, adopt=False):
        mirror = dict(self.mirror)
        self.late = [c for c in self.late if c.name in mirror or c.name in self.target.refs]
        plan = plan_push(RefSnapshot(mirror), self.target.refs, self.last, FREE, adopt=adopt, accept=True)
        if adopt:
            self.target.theirs = {
                n: v for n, v in self.target.theirs.items() if n not in {c.name for c in plan.changes}
            }
        same = {n for n, v in self.target.theirs.items() if mirror.get(n) == v}
        self.target.theirs = {
            n: v for n, v in self.target.theirs.items() if n not in same
        }  # ours from now on
        self.last = intents(plan)
        told, begun = {}, set()
        for i, batch in enumerate(batches(plan.changes, 2, 10_000)):
            if i == number // 2 and how == "crash":
                for change in batch:
                    self.target.push(change)
                return None
            if i == number // 2 and how in ("cut", "cut and late"):
                begun |= {c.name for c in batch}
                self.late = list(batch) if how == "cut and late" else []
                break
            if how == "other meanwhile" and "refs/heads/refs" not in name:
                self.target.other(name, self.value("f"))
            begun |= {c.name for c in batch}
            told |= {c.name: self.target.push(c) for c in batch}
            self.late = [c for c in self.late if c.name not in told]  # commands for a ref do not overtake
        blind = how in ("cut", "cut and late") and number % 2
        settled = settle(plan, mirror, told, begun, None if blind else self.target.refs)
        assert settled.wrong == ()
        self.last = settled.put
        return settled


OURS = ("mirror", "mirror", "unmirror", "late", "push", "push", "crash", "cut", "cut and late")
OTHERS = ("other", "other deletes", "other has the same", "other meanwhile")


def stories(whats, names):
    """Steps about two or three names only: so that they meet."""
    pools = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)
    return pools.flatmap(
        lambda pool: st.lists(
            st.tuples(st.sampled_from(whats), st.sampled_from(pool), st.integers(0, 5)), max_size=20
        )
    )


PLAIN = [name for name in NAMES if "refs/heads/refs" not in name]


@settings(max_examples=400, deadline=None)
@given(stories(OURS + OTHERS, NAMES))
def test_nothing_of_others_is_lost_and_what_is_ours_arrives(steps):
    world = Dumb()
    for step in steps:
        world.step(*step)
    world.step("late", NAMES[0], 0)
    world.push()
    settled = world.push()
    there, theirs = world.target.refs, world.target.theirs
    waiting = {r.name for r in settled.refs if r.outcome in (RefOutcome.CONFLICT, RefOutcome.REFUSED)}
    for name in NAMES:
        if name in world.mirror:
            assert there.get(name) == world.mirror[name] or name in waiting, name
        elif name in there:
            assert name in theirs or name in waiting, f"{name} is nobody's, and still there"
    assert world.last.refs.keys() - waiting == world.mirror.keys() - waiting
    for name in waiting:  # only for a reason
        near = [n for n in there if n in theirs and (n == name or clashes(n, name))]
        twin = any(n.endswith("/" + m) for n in (name, *there) for m in (name, *there) if n != m)
        assert near or twin, name


@settings(max_examples=200, deadline=None)
@given(stories(OURS, PLAIN))
def test_where_nobody_interferes_the_target_becomes_the_mirror(steps):
    world = Dumb()
    for step in steps:
        world.step(*step)
    world.step("late", NAMES[0], 0)
    world.push()
    settled = world.push()
    assert world.target.refs == world.mirror
    assert world.last == LastPut(world.mirror)
    assert settled.refs == ()


@settings(max_examples=200, deadline=None)
@given(stories(OURS + OTHERS, PLAIN))
def test_a_persons_word_lets_us_overwrite_what_the_mirror_has_or_had(steps):
    world = Dumb()
    for step in steps:
        world.step(*step)
    before = dict(world.target.theirs)
    ours = world.mirror.keys() | world.last.names
    world.push(adopt=True)
    assert {n: v for n, v in before.items() if n not in ours}.items() <= world.target.refs.items()
    blocked = [n for n in world.mirror if any(clashes(n, m) for m in world.target.theirs)]
    assert all(world.target.refs[n] == o for n, o in world.mirror.items() if n not in blocked)
