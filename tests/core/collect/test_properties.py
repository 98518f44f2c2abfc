"""What holds in every history: honest holders are never accused, bounds are kept, nobody is forgotten."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.collect.decisions import AskHolders, Fetch, LoadPending, Look, Serve, TellClients
from evermirror.core.collect.events import (
    Attempt,
    AttemptEnded,
    AuditPicked,
    Changed,
    DiskTold,
    End,
    Evicted,
    HoldersTold,
    Lost,
    PendingLoaded,
    Reachability,
    Ticked,
    Wanted,
)
from evermirror.core.collect.machine import Collector
from evermirror.core.collect.rows import Row
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.core.collect.verdict import judge
from evermirror.model.changes import RepoHolders
from tests.core.collect.small import ANNA, BERT, CARL, NOW, case, change, digest, ended, here, holder, row
from tests.support.sim.aggregation.shelf import Shelf

SETTINGS = CollectSettings()

# An honest holder: pushes, its looks (with when they are heard of), and ours, all at any times

times = st.floats(0, 7_200, allow_nan=False)
pushes = st.lists(times, max_size=12)
looks = st.lists(st.tuples(times, st.floats(0, 1_800)), max_size=25)
ours = st.lists(st.tuples(times, st.floats(0, 60)), max_size=25)


def refs_at(moments, when, back):
    """Upstream's refs at that time; push number ``back`` takes the one before back."""
    count = sum(at <= when for at in moments)
    return digest(f"push {count - 2 if count == back and count >= 2 else count}")


def latest_report(moments, looks_, when, back, clock_s):
    heard = [at for at, delay_s in looks_ if at + delay_s <= when]
    if not heard:
        return None
    return holder(ANNA, refs_at(moments, max(heard), back), NOW + max(heard) + clock_s)


@settings(max_examples=400, deadline=None)
@given(pushes, looks, ours, st.integers(0, 12), st.floats(-300, 300))
def test_an_honest_holder_is_never_accused(pushed, looked, asked, back, clock_s):
    moments, repo = sorted(pushed), row(here=here(digest("push 0")))
    for began, took_s in sorted(asked):
        report = latest_report(moments, looked, began, back, clock_s)
        if report is None:
            continue
        upstream = refs_at(moments, began + took_s / 2, back)
        attempt = ended(End.LOOKED, looked_at=NOW + began, upstream=upstream)
        verdict = judge(attempt, case(repo, [report]), repo, NOW + began + took_s, SETTINGS)
        assert verdict.accusations == ()
        repo = verdict.row


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(310, 5_000), min_size=4, max_size=12), st.floats(-300, 300))
def test_who_goes_on_telling_old_refs_as_new_is_accused_within_four_looks(gaps, clock_s):
    repo, when, accused_at = row(here=here(digest("new")), wanted=digest("old")), 0.0, None
    for number, gap in enumerate(gaps, 1):
        report = holder(ANNA, digest("old"), NOW + when + gap - 1 + max(clock_s, 0.0))
        when += gap
        attempt = ended(End.LOOKED, looked_at=NOW + when, upstream=digest("new"))
        verdict = judge(attempt, case(repo, [report]), repo, NOW + when, SETTINGS)
        repo = verdict.row
        if verdict.accusations:
            accused_at = number
            break
    assert accused_at is not None
    assert accused_at <= 4


# The machine, with anything happening in any order

NAMES = [f"r{n}" for n in range(6)]
NODES = [ANNA, BERT, CARL]
REFS = [digest(f"refs {n}") for n in range(4)]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "change",
                "remove",
                "want",
                "end",
                "end",
                "end",
                "told",
                "told",
                "tick",
                "jump",
                "disk",
                "nodes",
                "lost",
                "crash",
            ]
        ),
        st.integers(0, 10**6),
    ),
    max_size=120,
)


class Drive:
    """Answers the machine's questions late, in any order, or never; checks each decision."""

    def __init__(self, mode):
        self.settings = CollectSettings(mode=mode, fetches=2, per_holder=1, looks=1, queue_max=6, waits_max=2)
        self.shelf = Shelf()
        self.now, self.seq = NOW, 0
        self.begin()

    def begin(self):
        self.machine = Collector(self.settings)
        self.orders: dict[int, Fetch | Look] = {}
        self.asked: list[AskHolders | LoadPending] = []
        self.waiting: set[str] = set()
        self.published: set[str] = set()
        self.do(Reachability(frozenset(NODES)))

    def do(self, event):
        decision = self.machine.handle(event, self.now)
        self.shelf.write(decision.writes)
        for action in decision.actions:
            if isinstance(action, Fetch | Look):
                assert action.key not in {o.key for o in self.orders.values()}
                self.orders[action.number] = action
            elif isinstance(action, AskHolders | LoadPending):
                self.asked.append(action)
            elif isinstance(action, TellClients):
                self.waiting.discard(action.key)
            elif isinstance(action, Serve):
                assert action.here.digest in self.published or self.shelf.rows[action.key].here == action.here
        fetches = [o for o in self.orders.values() if isinstance(o, Fetch)]
        assert len(fetches) <= 2
        assert len({f.holder.node for f in fetches}) == len(fetches)
        assert len(self.orders) - len(fetches) <= 1
        assert len(self.machine.queue) <= 6 + 2 + 3  # seats, clients, and what has changed seats under way
        assert self.machine.queue.fetches == len(fetches)

    def holders(self, chance):
        return tuple(
            holder(n, REFS[(chance >> i) % 4], self.now - chance % 900, trusted=bool(chance >> i & 8))
            for i, n in enumerate(NODES)
        )

    def change(self, chance, **fields):
        self.seq += 1
        told = change(NAMES[chance % 6], REFS[chance % 4], self.seq, self.holders(chance), **fields)
        self.do(Changed(told, self.shelf.rows.get(told.key)))

    def want(self, chance):
        key = row(NAMES[chance % 6]).key
        self.waiting.add(key)
        self.do(Wanted(key, self.shelf.rows.get(key)))

    def end(self, chance, end=None):
        if not self.orders:
            return
        order = self.orders.pop(sorted(self.orders)[chance % len(self.orders)])
        look = isinstance(order, Look)
        end = (
            end
            or ([End.LOOKED, End.UPSTREAM_AWAY] if look else [e for e in End if e is not End.LOOKED])[
                chance % 2 if look else chance % 10
            ]
        )
        refs = REFS[chance // 16 % 4]
        self.published.add(refs)
        got = refs if end is End.DONE else None
        self.do(AttemptEnded(Attempt(order.number, order.key, end, self.now, refs, None, got, 1)))

    def told(self, chance):
        if not self.asked:
            return
        asked = self.asked.pop(chance % len(self.asked))
        if isinstance(asked, AskHolders):
            self.do(HoldersTold(tuple(RepoHolders(key, self.holders(chance)) for key in asked.keys)))
        else:
            self.do(PendingLoaded(asked.first, *self.shelf.pending(asked.first, asked.after, asked.limit)))

    def step(self, what, chance):
        match what:
            case "change":
                self.change(chance)
            case "remove":
                self.change(chance, removed=True)
            case "want":
                self.want(chance)
            case "end":
                self.end(chance)
            case "told":
                self.told(chance)
            case "tick" | "jump":
                self.now += 1.0 if what == "tick" else chance % 1_000 - 200
                self.do(Ticked(chance % 100 / 100))
                self.do(AuditPicked(self.shelf.audited(chance % 100 / 100)))
            case "disk":
                self.do(DiskTold(chance % 100 / 100, 10, self.shelf.least_used(3)))
                self.do(Evicted(row(NAMES[chance % 6]).key))
            case "nodes":
                self.do(Reachability(frozenset(n for i, n in enumerate(NODES) if chance >> i & 1)))
            case "lost":
                key = row(NAMES[chance % 6]).key
                self.do(Lost(key, bool(chance & 8), self.shelf.rows.get(key)))
            case "crash":
                self.begin()


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(CollectMode), steps)
def test_whatever_happens_bounds_are_kept_and_everybody_is_served_in_the_end(mode, happenings):
    drive = Drive(mode)
    for what, chance in happenings:
        drive.step(what, chance)
    drive.now += 7_200  # pauses and bars are over
    drive.do(Reachability(frozenset(NODES)))
    for name in NAMES:
        drive.do(Evicted(row(name).key))
    for number in range(800):
        drive.now += 5.0
        drive.do(DiskTold(0.1, 10))
        drive.do(Ticked(0.0))
        while drive.asked:
            drive.told(0)
        while drive.orders:
            drive.end(0, End.LOOKED if isinstance(next(iter(drive.orders.values())), Look) else End.DONE)
        if number > 10 and not unfinished(drive):
            break
    assert unfinished(drive) == []
    assert drive.waiting == set()


def unfinished(drive) -> list[Row]:
    """Rows that wait for a fetch, though everybody can be reached."""
    return [r for r in drive.shelf.rows.values() if r.place is not None and r.enabled and not r.held_back]
