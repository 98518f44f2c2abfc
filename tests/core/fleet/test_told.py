"""What a worker tells that it holds, taken in over the columns: the same follows as from one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evermirror.core.fleet.columns import CAPACITY_MIN
from evermirror.core.fleet.copies import UNWANTED, CopyState, Reason
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import HeldCopy
from evermirror.core.fleet.handover import UNTOLD, Handover
from evermirror.core.fleet.pace import Pace
from evermirror.core.fleet.reconcile import Reconciler
from evermirror.core.fleet.table import FleetTable
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId, WorkerRecord

NOW_S = 2000.0
HELD = CopyState.HELD
KNOWN = 12  # repos; the catalog knows no others

copies = st.tuples(st.sampled_from([0, 1, UNWANTED]), st.sampled_from(list(CopyState)))
placed = st.lists(st.dictionaries(st.integers(0, 2), copies), min_size=KNOWN, max_size=KNOWN)
told = st.builds(
    HeldCopy,
    st.integers(0, KNOWN + 2).map(lambda n: RepoKey(f"h.example/{n}")),
    st.integers(0, 2**64 - 1),
    st.floats(0, 2**32 - 1),
)


class World:
    def __init__(self, placed):
        self.table, crew = FleetTable(), Crew(1000)
        for n in range(3):
            crew.restore(WorkerRecord(WorkerId(n), WorkerFacts(f"w{n}")))
        self.member = crew[WorkerId(1)]
        keys = [f"h.example/{n}" for n in range(len(placed))]
        self.rows = self.table.put_repos(keys, [False] * len(keys), [1] * len(keys)).tolist()
        for row, of_repo in zip(self.rows, placed, strict=True):
            for worker, (rank, state) in of_repo.items():
                self.table.add_copy(row, worker, rank, state, Reason.HOME, 1.0)
        self.draft = Draft(self.table, crew)
        self.reconciler = Reconciler(self.table, Handover(self.table, crew, Pace(1, 1, 1)))

    def seen(self):
        names = ("c_state", "c_rank", "c_reason", "c_primary", "c_digest", "c_verified", "c_since")
        copies = {
            (row, worker): [int(getattr(self.table, name)[c]) for name in names]
            for row in self.rows
            for worker in range(3)
            if (c := self.table.find_copy(row, worker)) >= 0
        }
        return copies, self.member.strays, self.member.told, self.draft.close()


def one_by_one(world, held_copies):
    table, member, one = world.table, world.member, world.table.one
    for held in held_copies:
        row = table.row_of(held.key)
        if row < 0:
            member.strays += 1
            continue
        member.told.add(row)
        c = table.find_copy(row, member.id)
        if c < 0:
            c = table.add_copy(row, member.id, UNWANTED, HELD, Reason.FOUND, NOW_S)
            one.c_primary[c] = UNTOLD
            world.draft.copy_changed(row, member.id)
        elif one.c_state[c] != HELD:
            one.c_state[c] = HELD
            world.draft.copy_changed(row, member.id)
        one.c_digest[c], one.c_verified[c] = held.digest, int(held.verified_s)


@given(placed, st.lists(told, max_size=30))
def test_a_chunk_is_taken_in_as_one_by_one(placed, held_copies):
    """Also strays, keys that come twice with other digests, and copies in every state."""
    together, apart = World(placed), World(placed)
    together.reconciler.told(together.member, held_copies, NOW_S, together.draft)
    one_by_one(apart, held_copies)
    assert together.seen() == apart.seen()


def test_more_are_found_than_there_was_room_for():
    many = CAPACITY_MIN + 100
    world = World([{}] * many)
    held_copies = [HeldCopy(RepoKey(f"h.example/{n}"), n + 1, 7.0) for n in range(many)]
    world.reconciler.told(world.member, held_copies, NOW_S, world.draft)
    copies, strays, told, _ = world.seen()
    assert (len(copies), strays, len(told)) == (many, 0, many)
    assert [copies[row, 1][4] for row in world.rows] == list(range(1, many + 1))
