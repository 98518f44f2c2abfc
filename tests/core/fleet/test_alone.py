"""Rows settled over the columns: the same follows as from a look at each."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet import alone
from evermirror.core.fleet.copies import UNWANTED, CopyState, Reason
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.decisions import Assign, Assignment
from evermirror.core.fleet.draft import OUTBOX_SPARE, Draft
from evermirror.core.fleet.handover import FOLLOWER, PRIMARY, UNTOLD, Handover
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.table import FleetTable
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId, WorkerRecord

WORKERS = 3
HELD = CopyState.HELD
mostly = st.sampled_from([True, True, True, False])
seldom = mostly.map(lambda yes: not yes)
copies = st.tuples(
    st.sampled_from([0, 0, 1, UNWANTED]),
    st.sampled_from([HELD, HELD, HELD, *CopyState]),
    st.sampled_from([FOLLOWER, PRIMARY, UNTOLD]),
    st.sampled_from([5, 6]),
)
repos = st.tuples(
    seldom,  # for trusted workers only
    seldom,  # left the catalog
    st.dictionaries(st.integers(0, WORKERS - 1), copies, min_size=1, max_size=2) | st.just({}),
)
workers = st.tuples(
    st.sampled_from([Liveness.ALIVE, Liveness.ALIVE, Liveness.SUSPECT]),
    st.sampled_from([Duty.ACTIVE, Duty.ACTIVE, Duty.DRAINING, Duty.QUARANTINED]),
    mostly,  # connected
    mostly,  # told what it holds
    mostly,  # trusted
)


class Never:
    def nudge_due(self, row: int) -> bool:
        return False


class World:
    def __init__(self, known, fleet, outbox_max=1000):
        self.table, self.crew = FleetTable(), Crew(outbox_max)
        for n, (liveness, duty, connected, reconciled, trusted) in enumerate(fleet):
            facts = WorkerFacts(f"w{n}", trusted=trusted)
            member = self.crew.restore(WorkerRecord(WorkerId(n), facts, liveness=liveness, duty=duty))
            member.connected, member.reconciled = connected, reconciled
        self.rows = self.table.put_repos(
            [f"h.example/{n}" for n in range(len(known))], [repo[0] for repo in known], [1] * len(known)
        ).tolist()
        for row, (_, left, held) in zip(self.rows, known, strict=True):
            for worker, (rank, state, role, digest) in held.items():
                c = self.table.add_copy(row, worker, rank, state, Reason.HOME, 1.0)
                self.table.one.c_primary[c], self.table.one.c_digest[c] = role, digest
            if left:
                self.table.remove(row)
        self.handover = Handover(self.table, self.crew, Pace(1, 1, 1))

    def settled(self):
        draft = Draft(self.table, self.crew)
        left = alone.settle_alone(self.table, self.crew, dict.fromkeys(self.rows), draft)
        for row in left:
            self.handover.settle(row, draft, Never())
        return draft.close()

    def seen(self):
        """Commands name their repos in whatever order."""
        decision = self.settled()
        items = [
            (send.worker, type(send.command), getattr(send.command, "delete", None), item)
            for send in decision.actions
            for item in getattr(send.command, "items", None) or send.command.keys
        ]
        writes = [row for write in decision.writes for row in getattr(write, "rows", None) or write.copies]
        states = {name: getattr(self.table, name).tolist() for name in ("c_primary", "c_state", "first")}
        waiting = [member.deferred for member in self.crew]
        return sorted(items, key=repr), sorted(writes, key=repr), states, waiting


@given(st.lists(repos, min_size=10, max_size=20), st.tuples(workers, workers, workers))
def test_the_same_follows_as_one_by_one(known, fleet):
    with patch.object(alone, "MANY", 0):
        together = World(known, fleet).seen()
    with patch.object(alone, "MANY", 1000):
        assert together == World(known, fleet).seen()


THERE = (Liveness.ALIVE, Duty.ACTIVE, True, True, True)
ITS_OWN = (False, False, {0: (0, HELD, UNTOLD, 5)})


def test_all_that_a_worker_holds_alone_is_told_without_a_look_at_each(monkeypatch):
    world = World([ITS_OWN] * 100, [THERE])
    monkeypatch.setattr(Handover, "settle", lambda *_: pytest.fail("a look at one"))
    (send,) = world.settled().actions
    keys = [RepoKey(f"h.example/{n}") for n in range(100)]
    assert send.command == Assign(tuple(Assignment(key, primary=True) for key in keys))
    assert not world.settled().actions


def test_what_the_outbox_has_no_room_for_waits():
    world = World([ITS_OWN] * 100, [THERE], outbox_max=OUTBOX_SPARE + 4)
    (send,) = world.settled().actions
    waiting = world.crew[WorkerId(0)].deferred
    assert len(send.command.items) + len(waiting) == 100
    assert waiting == {row for row in world.rows if world.table.c_primary[row] == UNTOLD} != set()
