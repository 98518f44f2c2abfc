"""A decision being made: gathered, in few messages, told once."""

from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.crew import Crew
from evermirror.core.fleet.decisions import Assign, Assignment, CopyRow, DropCopies, Nudge, PutCopies, Release
from evermirror.core.fleet.draft import COMMAND_ITEMS, OUTBOX_SPARE, Draft
from evermirror.core.fleet.table import FleetTable
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts
from tests.support.fleet import Fleet

KEYS = [RepoKey(f"forge.example/{i}") for i in range(4)]


def begun(outbox_max=64):
    table, crew = FleetTable(), Crew(outbox_max)
    table.put_repos(KEYS, [False] * 4, [1] * 4)
    member = crew.enlist(WorkerFacts("a"), 0.0)
    member.session, member.connected, member.reconciled = 1, True, True
    return table, member, Draft(table, crew)


def test_several_steps_of_a_copy_are_one_write_of_how_it_ends():
    table, member, draft = begun()
    c = table.add_copy(0, member.id, 0, CopyState.PLANNED, Reason.HOME, 5.0)
    draft.copy_changed(0, member.id)
    table.c_state[c] = CopyState.ASKED
    draft.copy_changed(0, member.id)
    row = CopyRow(KEYS[0], member.id, 0, CopyState.ASKED, Reason.HOME, 5.0)
    assert draft.close().writes == (PutCopies((row,)),)


def test_a_copy_that_came_and_went_is_dropped():
    table, member, draft = begun()
    table.drop_copy(table.add_copy(1, member.id, 0, CopyState.PLANNED, Reason.HOME, 5.0))
    draft.copy_changed(1, member.id)
    assert draft.close().writes == (DropCopies(((KEYS[1], member.id),)),)


def test_commands_of_a_kind_go_together_assignments_first_and_deletions_last():
    _, member, draft = begun()
    draft.delete(member.id, KEYS[0], 7)
    draft.stop(member.id, KEYS[1])
    draft.nudge(member.id, KEYS[2])
    draft.nudge(member.id, KEYS[2])
    draft.assign(member.id, Assignment(KEYS[3], primary=False))
    draft.assign(member.id, Assignment(KEYS[3], primary=True))
    sent = draft.close().actions
    assert [action.seq for action in sent] == [1, 2, 3, 4]
    assert [action.command for action in sent] == [
        Assign((Assignment(KEYS[3], primary=True),)),
        Nudge((KEYS[2],)),
        Release((KEYS[1],), delete=False),
        Release((KEYS[0],), delete=True, digests=(7,)),
    ]


def test_an_assignment_in_parts_says_of_each_whether_more_comes():
    _, member, draft = begun()
    for i in range(2 * COMMAND_ITEMS):
        draft.assign(member.id, Assignment(RepoKey(f"forge.example/{i}"), primary=True))
    assert [action.command.more for action in draft.close().actions] == [True, False]


def test_very_many_are_sent_in_parts():
    _, member, draft = begun()
    for i in range(COMMAND_ITEMS + 1):
        draft.nudge(member.id, RepoKey(f"forge.example/{i}"))
    assert [len(action.command.keys) for action in draft.close().actions] == [COMMAND_ITEMS, 1]


def test_what_is_gathered_counts_as_in_the_outbox_so_that_it_never_overflows():
    _, member, draft = begun(outbox_max=OUTBOX_SPARE + 6)
    i = 0
    while draft.takes_for(member) and i < 10 * COMMAND_ITEMS:
        key = RepoKey(f"forge.example/{i}")
        if i % 3:
            (draft.nudge, draft.stop)[i % 3 - 1](member.id, key)
        else:
            draft.delete(member.id, key, 7)
        i += 1
    assert 0 < i < 10 * COMMAND_ITEMS
    draft.close()
    assert member.outbox.room >= OUTBOX_SPARE


def test_nobody_is_sent_anything_before_what_it_holds_is_known():
    _, member, draft = begun()
    member.reconciled = False
    assert not draft.takes_for(member)


def test_the_rows_of_a_first_placement_are_made_as_they_are_read():
    fleet = Fleet()
    fleet.join("a")
    fleet.catalog(*KEYS)
    fleet.tick()
    rows = next(
        w.rows for d in fleet.decisions for w in d.writes if isinstance(w, PutCopies) and len(w.rows) == 4
    )
    assert [row.key for row in rows] == [row.key for row in rows[:]] == [rows[i].key for i in range(4)]
    assert {row.key for row in rows} == set(KEYS)
    assert {(row.worker, row.rank, row.state) for row in rows} == {(0, 0, CopyState.PLANNED)}
