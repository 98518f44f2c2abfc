"""The collector, event by event."""

from dataclasses import replace

import pytest

from evermirror.core.collect.decisions import (
    Accuse,
    Alert,
    AskHolders,
    Belief,
    Discard,
    DistrustWord,
    DoubtReports,
    DropRow,
    Evict,
    Fetch,
    LoadPending,
    Look,
    Outcome,
    PickAudit,
    PutRow,
    Serve,
    TellClients,
    Withdraw,
)
from evermirror.core.collect.events import (
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
    Unused,
    Wanted,
)
from evermirror.core.collect.limited import LIMITED_S
from evermirror.core.collect.machine import SAMPLES_MAX, Collector
from evermirror.core.collect.rows import Charge, Doubt, How, Suspicion
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.model.changes import RepoHolders
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, Mode
from tests.core.collect.small import ANNA, BERT, NOW, A, B, C, change, ended, here, holder, row, spec
from tests.support.sim.aggregation.shelf import Shelf


class Stage:
    """A collector with its store, and what it decided last."""

    def __init__(self, *, rows=(), nodes=(ANNA, BERT), **settings):
        self.settings = CollectSettings(**settings)
        self.shelf = Shelf()
        self.now = NOW
        for each in rows:
            self.shelf.rows[each.key] = each
        self.restart(nodes)

    def restart(self, nodes=(ANNA, BERT)):
        self.machine = Collector(self.settings)
        self.do(Reachability(frozenset(nodes)))

    def do(self, event):
        decision = self.machine.handle(event, self.now)
        self.shelf.write(decision.writes)
        self.writes, self.actions = decision.writes, decision.actions
        return decision.actions

    def change(self, name="one", refs=A, seq=1, holders=None, **fields):
        told = change(name, refs, seq, (holder(refs=refs),) if holders is None else holders, **fields)
        return self.do(Changed(told, self.shelf.rows.get(told.key)))

    def end(self, end=End.DONE, of=None, **fields):
        order = of or self.order
        if end is End.DONE:
            fields.setdefault("published", fields.get("upstream", A))
        name = order.key.rsplit("/", 1)[1]
        return self.do(AttemptEnded(ended(end, order.number, name, self.now, **fields)))

    def tick(self, seconds=1.0):
        self.now += seconds
        return self.do(Ticked(0.5))

    def want(self, name="one"):
        key = row(name).key
        return self.do(Wanted(key, self.shelf.rows.get(key)))

    def told(self, *holders, name="one"):
        return self.do(HoldersTold((RepoHolders(row(name).key, holders),)))

    def load(self):
        """Answers what the last tick asked of the store."""
        asked = [a for a in self.actions if isinstance(a, LoadPending)]
        found = []
        for wish in asked:
            rows, last = self.shelf.pending(wish.first, wish.after, wish.limit)
            found += self.do(PendingLoaded(wish.first, rows, last))
        self.actions = tuple(found)
        return self.actions

    def all(self, kind):
        return [a for a in self.actions if isinstance(a, kind)]

    @property
    def order(self):
        (found,) = [a for a in self.actions if isinstance(a, Fetch | Look)]
        return found

    @property
    def row(self):
        return self.shelf.rows[row("one").key]


def test_a_change_is_fetched_published_and_served():
    stage = Stage()
    stage.change()
    order = stage.order
    assert (order.holder.node, order.belief, order.expected, order.first) == (ANNA, Belief.UPSTREAM, A, True)
    stage.end(upstream=A)
    (serve,) = stage.all(Serve)
    assert (serve.here.digest, serve.here.how) == (A, How.UPSTREAM)
    assert stage.row.here == serve.here
    assert stage.row.place is None
    assert len(stage.machine.queue) == 0


def test_a_change_that_is_here_already_starts_nothing():
    stage = Stage(rows=[row(here=here(A), taken=A)])
    assert stage.change(seq=2) == ()
    assert stage.row.seq == 2


def test_an_older_change_is_ignored():
    stage = Stage(rows=[replace(row(wanted=B, here=here(B)), seq=7)])
    assert stage.change(seq=6) == ()
    assert (stage.writes, stage.row.wanted) == ((), B)


def test_a_repo_that_nobody_has_yet_waits_for_its_first_report():
    stage = Stage()
    assert stage.change(refs=None) == ()
    assert stage.row.place is None


def test_a_newer_change_during_the_fetch_is_fetched_once_more_and_never_at_the_same_time():
    stage = Stage()
    stage.change()
    order = stage.order
    assert stage.change(refs=B, seq=2) == ()
    assert stage.change(refs=C, seq=3) == ()
    stage.end(of=order, upstream=A)
    assert stage.all(Serve)[0].here.digest == A
    stage.end(of=stage.order, upstream=C)
    assert not stage.all(Fetch)
    assert stage.row.here.digest == C


def test_fetches_are_bounded_in_total_and_per_holder_and_go_on_as_slots_are_freed():
    stage = Stage(fetches=3, per_holder=2)
    started = []
    for number in range(4):
        started += stage.change(f"anna{number}", seq=number + 1)
    assert len(started) == 2
    for number in range(4):
        started += stage.change(f"bert{number}", seq=number + 5, holders=(holder(BERT),))
    assert [o.holder.node for o in started] == [ANNA, ANNA, BERT]
    done = 0
    while started:
        stage.end(of=started.pop(0), upstream=A)
        started += stage.all(Fetch)
        assert len(started) <= 3
        done += 1
    assert done == 8


def test_missing_objects_tell_a_doubt_and_the_next_holder_is_tried_with_fresh_reports():
    stage = Stage()
    both = (holder(ANNA, A), holder(BERT, A))
    stage.change(holders=both)
    stage.end(End.MISSING, upstream=B, served=A)
    assert stage.all(DoubtReports)
    assert stage.all(AskHolders)[0].keys == (row().key,)
    stage.told(*both)
    assert stage.order.holder.node == BERT
    stage.end(upstream=B)
    assert stage.row.here.digest == B
    assert {s.node for s in stage.row.doubt.suspicions} == {ANNA, BERT}


def test_a_stale_liar_is_accused_at_the_third_look():
    stage, looks = Stage(audits_per_minute=0), 0
    stage.change(holders=(holder(ANNA, A, NOW),))
    stage.end(upstream=B)  # the objects of B came, by whatever way
    while not stage.all(Accuse) and looks < 10:
        looks += 1
        stage.tick(stage.settings.doubt_wait_s)
        stage.told(holder(ANNA, A, stage.now - 1))
        stage.end(End.LOOKED, upstream=B)
    assert looks == 2
    assert stage.all(Accuse)[0].node == ANNA
    assert stage.all(Alert)
    assert DistrustWord(ANNA, stage.now) in stage.writes


def test_an_upstream_that_is_away_is_stood_in_for_by_enough_operators_only():
    stage = Stage()
    stage.change(holders=(holder(ANNA), holder(BERT)))
    stage.end(End.UPSTREAM_AWAY)
    assert (stage.order.belief, stage.order.expected) == (Belief.QUORUM, A)
    stage.end(served=A, published=A)
    assert stage.row.here.how is How.QUORUM
    stage.change("two")
    stage.end(End.UPSTREAM_AWAY)
    assert not stage.all(Fetch)


def test_a_host_that_limits_us_is_asked_for_none_of_its_repos_and_others_go_on():
    stage = Stage(fetches=1)
    for number, name in enumerate(("one", "two", "three"), 1):
        stage.change(name, seq=number)
    (first,) = [job.case.order for job in stage.machine.queue if job.case is not None]
    stage.end(End.UPSTREAM_AWAY, of=first, retry_after_s=120.0)
    assert not stage.all(Fetch), "the same host would be asked for the next"
    other = replace(
        change("other", seq=9, holders=(holder(),)), spec=replace(spec("other"), host=Host("b.example"))
    )
    stage.do(Changed(other, None))
    assert stage.order.key == other.key
    stage.end(upstream=A)
    for _ in range(11):
        stage.tick(10)
        for ask in stage.all(AskHolders):
            for key in ask.keys:
                stage.told(holder(), name=key.rsplit("/", 1)[1])
                assert not stage.all(Fetch)
    stage.tick(11)
    asked = [key for ask in stage.all(AskHolders) for key in ask.keys]
    assert asked
    stage.told(holder(), name=asked[0].rsplit("/", 1)[1])
    assert stage.order.key == asked[0]


def test_a_host_that_limits_us_is_not_looked_at_for_other_repos():
    audited = [row(name, here=here(A), taken=A) for name in ("one", "two")]
    stage = Stage(rows=audited, looks=1)
    for each in audited:
        stage.do(AuditPicked(each))
        stage.told(holder(refs=A), name=each.key.rsplit("/", 1)[1])
    (look,) = [job.case.order for job in stage.machine.queue if job.case is not None]
    limited = Failure(FailureKind.RATE_LIMITED, "too many requests")
    stage.end(End.UPSTREAM_AWAY, of=look, failure=limited)
    assert not stage.all(Look)
    stage.tick(LIMITED_S - 1)
    assert not stage.all(Look)


def test_a_repo_that_is_gone_upstream_says_nothing_about_its_host():
    stage = Stage(fetches=1)
    stage.change("one")
    order = stage.order
    stage.change("two", seq=2)
    stage.end(End.UPSTREAM_AWAY, of=order, failure=Failure(FailureKind.NOT_FOUND, "gone"))
    assert stage.order.key == row("two").key


def test_failures_pause_longer_and_longer():
    stage, pauses = Stage(), []
    stage.change()
    for _ in range(4):
        stage.end(End.FAILED)
        since = stage.now
        while not stage.all(Fetch):
            stage.tick()
            if stage.all(AskHolders):
                stage.told(holder())
        pauses.append(stage.now - since)
    assert pauses == [5, 10, 20, 40]


def test_a_holder_that_is_back_is_used_at_once():
    stage = Stage(nodes=())
    assert stage.change() == ()
    stage.tick()
    assert not stage.all(Fetch)
    stage.do(Reachability(frozenset({ANNA})))
    stage.told(holder())
    assert stage.order.holder.node == ANNA


def test_where_the_coordinator_does_not_answer_the_holders_last_told_will_do():
    stage = Stage(fetches=1)
    stage.change("busy")
    busy = stage.order
    stage.change("one", seq=2)
    stage.tick(60)
    stage.end(of=busy, upstream=A)
    assert stage.all(AskHolders)
    stage.tick(stage.settings.ask_again_s)
    assert stage.order.key == row("one").key


def test_a_removed_repo_is_withdrawn_and_discarded():
    stage = Stage(rows=[row(here=here(A), taken=A)])
    stage.change(seq=2, removed=True)
    assert stage.actions == (Withdraw(row().key, "left the catalog"), Discard(row().key))
    assert stage.writes == (DropRow(row().key),)


def test_a_repo_removed_during_its_fetch_is_discarded_when_that_ends_and_never_served():
    stage = Stage()
    stage.change()
    order = stage.order
    assert stage.change(seq=2, removed=True) == ()
    assert stage.end(of=order, upstream=A) == (Discard(row().key),)
    assert stage.shelf.rows == {}
    assert len(stage.machine.queue) == 0


def test_a_repo_that_came_back_during_its_fetch_is_kept():
    stage = Stage()
    stage.change()
    order = stage.order
    stage.change(seq=2, removed=True)
    stage.change(seq=3)
    stage.end(of=order, upstream=A)
    assert stage.all(Serve)
    assert not stage.all(Discard)


# Clients


def test_pull_through_fetches_what_a_client_waits_for_once_and_tells_all():
    stage = Stage(mode=CollectMode.PULL_THROUGH)
    assert stage.change() == ()
    stage.want()
    stage.told(holder())
    order = stage.order
    assert stage.want() == ()
    stage.end(of=order, upstream=A)
    assert stage.all(TellClients) == [TellClients(row().key, Outcome.HERE)]
    stage.change(refs=B, seq=2)
    assert stage.order.first is False


def test_pull_through_gives_up_what_nobody_waits_for_any_more():
    stage = Stage(mode=CollectMode.PULL_THROUGH)
    stage.change()
    stage.want()
    stage.told(holder())
    order = stage.order
    stage.tick(31)
    assert [t.outcome for t in stage.all(TellClients)] == [Outcome.LATER]
    stage.end(End.HOLDER_AWAY, of=order)
    assert stage.row.place is None
    assert len(stage.machine.queue) == 0


@pytest.mark.parametrize(
    ("rows", "outcome"),
    [
        ([], Outcome.UNKNOWN),
        ([row(here=here(A))], Outcome.HERE),
        ([row(wanted=None)], Outcome.LATER),
        ([row(enabled=False)], Outcome.LATER),
    ],
)
def test_clients_who_need_not_wait_are_answered_at_once(rows, outcome):
    stage = Stage(rows=rows)
    assert [t.outcome for t in stage.want()] == [outcome]
    assert stage.machine.waiting == 0


def test_a_client_of_what_no_holder_can_give_soon_is_told_so():
    stage = Stage(rows=[row()], nodes=(), retry_first_s=40.0)
    stage.want()
    stage.told(holder())
    (answer,) = stage.all(TellClients)
    assert answer.outcome is Outcome.LATER
    assert answer.retry_after_s == 40.0


def test_so_many_clients_may_wait_and_no_more():
    stage = Stage(rows=[row("one"), row("two")], waits_max=1)
    stage.want("one")
    assert [t.outcome for t in stage.want("two")] == [Outcome.LATER]


def test_repos_that_clients_gave_up_on_do_not_fill_the_memory():
    names = [f"r{n}" for n in range(40)]
    stage = Stage(rows=[row(n, place=NOW) for n in names], nodes=(), queue_max=4, retry_first_s=60.0)
    for name in names:
        stage.want(name)
        stage.told(holder(), name=name)
        stage.tick()
        stage.load()
    assert stage.machine.waiting == 0
    assert len(stage.machine.queue) <= 2


def test_questions_that_were_answered_too_early_do_not_use_up_the_right_to_ask():
    stage = Stage(fetches=1, looks=1, retry_first_s=60.0, nodes=())
    for number in range(100):
        stage.change(f"r{number}", seq=number + 1)
    asked = set()
    for _ in range(200):
        stage.tick(5)
        for keys in [a.keys for a in stage.all(AskHolders)]:
            asked.update(keys)
            for key in keys:
                stage.told(holder(), name=key.rsplit("/", 1)[1])
                stage.told(holder(), name=key.rsplit("/", 1)[1])
    assert len(asked) == 100


# The disk


def test_above_the_mark_nothing_new_is_cloned_and_updates_go_on():
    stage = Stage(rows=[row("here", here=here(A), taken=A)])
    stage.do(DiskTold(0.9, 1_000))
    assert [a.over for a in stage.all(Alert)] == [False]
    assert stage.change("one", seq=2) == ()
    assert stage.want("one") == (
        TellClients(
            row("one").key, Outcome.NO_ROOM, 300.0, "the disk is 90 % full, above fleet.disk_high = 0.85"
        ),
    )
    stage.change("here", B, seq=3)
    assert stage.order.key == row("here").key
    stage.do(DiskTold(0.5, 1_000))
    assert [a.over for a in stage.all(Alert)] == [True]
    stage.tick(20)
    assert stage.order.key == row("one").key


def pulling_at(used_share, *, size, disk=1_000_000):
    """Pull-through, above the mark, nothing to evict; a client wants a repo of that size."""
    stage = Stage(mode=CollectMode.PULL_THROUGH)
    stage.do(DiskTold(used_share, disk))
    stage.change("one", seq=1, size_bytes=size)
    stage.want("one")
    return stage


def test_pulled_through_above_the_mark_what_a_client_waits_for_is_fetched_while_it_fits():
    stage = pulling_at(0.9, size=20_000)
    stage.told(holder())
    assert stage.order.key == row("one").key


def test_pulled_through_above_the_mark_what_would_fill_the_disk_is_refused_with_the_figure():
    stage = pulling_at(0.9, size=30_000)  # twice that, and the reserve of 5 %
    (answer,) = stage.actions
    assert answer.outcome is Outcome.NO_ROOM
    assert answer.text == "the disk is 90 % full, above fleet.disk_high = 0.85"


def test_pulled_through_nothing_comes_above_the_mark_after_a_write_failed():
    stage = pulling_at(0.9, size=20_000)
    stage.told(holder())
    stage.end(End.NO_ROOM)
    stage.change("two", seq=2, size_bytes=1)
    assert [a.outcome for a in stage.want("two")] == [Outcome.NO_ROOM]


def test_who_failed_for_lack_of_room_is_tried_as_soon_as_somebody_made_some():
    stage = Stage()
    stage.do(DiskTold(0.8, 1_000))
    stage.change("one")
    stage.end(End.NO_ROOM)
    stage.tick(60)
    stage.do(DiskTold(0.8, 1_000))
    assert not stage.actions, "it waits"
    stage.tick(1)
    stage.do(DiskTold(0.5, 1_000))
    assert len(stage.all(AskHolders)) == 1, "those told a minute ago may be others by now"
    stage.told(holder())
    assert stage.order.key == row("one").key


def test_a_failed_write_closes_the_guard_and_is_told_to_clients():
    stage = Stage(rows=[row()])
    stage.want()
    stage.told(holder())
    stage.end(End.NO_ROOM)
    assert [t.outcome for t in stage.all(TellClients)] == [Outcome.NO_ROOM]
    assert not stage.machine.accepting


def test_pull_through_evicts_and_does_not_fetch_what_is_still_being_deleted():
    old = row(here=here(A, size=500), taken=A)
    stage = Stage(rows=[old], mode=CollectMode.PULL_THROUGH)
    stage.do(DiskTold(0.9, 1_000, (Unused(old),)))
    assert [type(a) for a in stage.actions] == [Alert, Withdraw, Evict]
    assert stage.row.here is None
    stage.do(DiskTold(0.9, 1_000, (Unused(old),)))
    assert stage.actions == ()
    stage.do(DiskTold(0.1, 1_000))
    stage.want()
    stage.told(holder())
    assert not stage.all(Fetch)
    stage.do(Evicted(old.key))
    stage.tick(16)
    assert stage.order.first


def test_what_is_being_fetched_is_not_evicted():
    old = row(here=here(A, size=500), taken=A)
    stage = Stage(rows=[old], mode=CollectMode.PULL_THROUGH)
    stage.change(refs=B, seq=2)
    stage.do(DiskTold(0.9, 1_000, (Unused(old),)))
    assert not stage.all(Evict)


# Audits and doubts


def test_an_audit_asks_upstream_about_one_repo_and_fetches_what_moved():
    audited = row(here=here(A), taken=A)
    stage = Stage(rows=[audited])
    stage.tick()
    stage.tick(10)
    assert stage.all(PickAudit) == [PickAudit(0.5)]
    stage.do(AuditPicked(audited))
    stage.told(holder(refs=A, at=NOW))
    assert isinstance(stage.order, Look)
    stage.end(End.LOOKED, upstream=B)
    assert (stage.order.belief, stage.order.first) == (Belief.UPSTREAM, False)
    assert [s.charge for s in stage.row.doubt.suspicions] == [Charge.STALE]


def test_an_audit_without_finding_leaves_nothing_behind():
    audited = row(here=here(A), taken=A)
    stage = Stage(rows=[audited])
    stage.do(AuditPicked(audited))
    stage.told(holder(refs=A))
    stage.end(End.LOOKED, upstream=A)
    assert (stage.row.doubt, stage.row.here.verified_at) == (None, NOW)
    assert len(stage.machine.queue) == 0


def test_an_append_only_repo_is_audited_by_a_fetch():
    audited = row(spec=spec(mode=Mode.APPEND_ONLY), here=here(C), taken=A)
    stage = Stage(rows=[audited])
    stage.do(AuditPicked(audited))
    stage.told(holder(refs=A))
    assert isinstance(stage.order, Fetch)


def test_what_is_here_by_the_word_of_an_accused_node_is_withdrawn_until_somebody_else_vouches():
    by_word = row("two", here=here(A, how=How.HOLDER), taken=A)
    stage = Stage(rows=[by_word])
    stage.change(holders=(holder(trusted=True),))
    stage.end(End.CORRUPT)
    assert stage.all(Accuse)
    stored = stage.shelf.rows[by_word.key]
    assert (stored.served, stored.place) == (False, NOW)
    stage.tick()
    stage.load()
    stage.told(holder(ANNA), holder(BERT), name="two")
    assert stage.order.holder.node == BERT
    stage.end(upstream=A)
    assert stage.shelf.rows[by_word.key].served


# The mirror here


@pytest.mark.parametrize("damaged", [True, False])
def test_a_mirror_that_is_damaged_or_gone_is_withdrawn_and_fetched_anew(damaged):
    known = row(here=here(A), taken=A)
    stage = Stage(rows=[known])
    stage.do(Lost(known.key, damaged, known))
    assert [w.key for w in stage.all(Withdraw)] == [known.key]
    assert (stage.row.served, stage.row.place is not None) == (False, True)
    assert (stage.row.here is None) is not damaged, "a damaged one is on the disk, and may be evicted"
    stage.told(holder())
    assert stage.order.first is not damaged
    stage.end(upstream=A)
    assert stage.all(Serve)
    assert (stage.row.served, stage.row.place) == (True, None)


def test_a_look_at_upstream_does_not_mend_a_damaged_mirror():
    known = row(here=here(A), taken=A)
    stage = Stage(rows=[known])
    stage.do(AuditPicked(known))
    stage.told(holder(refs=A))
    look = stage.order
    stage.do(Lost(known.key, damaged=True, row=known))
    stage.end(End.LOOKED, of=look, upstream=A)
    assert not stage.row.served
    assert isinstance(stage.order, Fetch)


def test_a_loss_during_the_fetch_that_makes_up_for_it_starts_no_other():
    known = row(here=here(A), taken=A)
    stage = Stage(rows=[known])
    stage.change(refs=B, seq=2)
    order = stage.order
    stage.do(Lost(known.key, damaged=True, row=known))
    assert not stage.all(Fetch)
    stage.end(of=order, upstream=B)
    assert (stage.row.served, stage.row.here.digest) == (True, B)
    assert not stage.all(Fetch)


def test_pulled_through_what_is_gone_comes_back_for_the_next_client():
    known = row(here=here(A), taken=A)
    stage = Stage(rows=[known], mode=CollectMode.PULL_THROUGH)
    stage.do(Lost(known.key, damaged=False, row=known))
    assert stage.row.place is None
    stage.want()
    stage.told(holder())
    assert stage.order.first


def test_what_was_not_here_is_not_lost():
    stage = Stage(rows=[row(wanted=None)])
    assert stage.do(Lost(row().key, damaged=True, row=stage.row)) == ()
    assert stage.do(Lost(row().key, damaged=False)) == ()


# Crashes


def test_after_a_crash_the_pending_rows_are_found_and_the_same_follows():
    pending = row("one", place=NOW - 50)
    doubted = row(
        "two", here=here(A), taken=A, doubt=Doubt(NOW - 5, 2, (Suspicion(ANNA, Charge.STALE, B, NOW),))
    )
    resting = row("three", place=NOW, retry_at=NOW + 5_000)
    stage = Stage(rows=[pending, doubted, resting, row("four", here=here(A), taken=A)])
    stage.tick()
    assert {(a.first, a.after) for a in stage.all(LoadPending)} == {(True, None), (False, None)}
    stage.load()
    asked = {key for a in stage.all(AskHolders) for key in a.keys}
    assert asked == {pending.key, doubted.key}
    orders = stage.told(holder()) + stage.told(holder(), name="two")
    assert [type(o) for o in orders] == [Fetch, Look]


def test_an_attempt_of_an_earlier_life_is_ignored():
    stage = Stage()
    stage.change()
    order = stage.order
    stage.restart()
    assert stage.end(of=order, upstream=A) == ()
    assert stage.writes == ()


def test_writes_hold_each_row_once_as_it_is_in_the_end():
    stage = Stage()
    stage.change()
    stage.end(End.MISSING, upstream=B, served=A)
    assert [type(w) for w in stage.writes] == [PutRow]
    assert stage.writes[0].row == stage.row


def test_what_finds_no_seat_waits_in_the_store_and_comes_later():
    stage = Stage(queue_max=4, fetches=1)
    for number in range(10):
        stage.change(f"r{number}", seq=number + 1)
        assert len(stage.machine.queue) <= 2
    assert sum(r.place is not None for r in stage.shelf.rows.values()) == 10
    orders, done = [o for o in stage.machine.queue if o.case is not None], 0
    order = orders[0].case.order
    for _ in range(5_000):
        if order is not None:
            stage.end(of=order, upstream=A)
            done += 1
        else:
            stage.tick()
        found = stage.all(Fetch)
        found += [a for a in stage.load() if isinstance(a, Fetch)]
        for ask in stage.all(AskHolders):
            for key in ask.keys:
                found += [a for a in stage.told(holder(), name=key.rsplit("/", 1)[1]) if isinstance(a, Fetch)]
        order = found[0] if found else None
        if done == 10:
            break
    assert done == 10


def test_a_holder_whose_fetches_never_end_does_not_keep_the_repos_of_others_out():
    slow = [row(f"slow{n}", place=NOW - 1_000 + n) for n in range(200)]
    stage = Stage(rows=[*slow, row("quick", place=NOW)], queue_max=40)
    begun = []
    for _ in range(300):
        stage.tick()
        stage.load()
        asked = [key for ask in stage.all(AskHolders) for key in ask.keys]
        while asked:
            name = asked.pop().rsplit("/", 1)[1]
            stage.told(holder(BERT if name == "quick" else ANNA), name=name)
            begun += stage.all(Fetch)
            asked += [key for ask in stage.all(AskHolders) for key in ask.keys]
    assert [o.holder.node for o in begun].count(ANNA) == stage.settings.per_holder
    assert row("quick").key in {o.key for o in begun}
    assert len(stage.machine.queue) <= 20
    assert sum(r.place is not None for r in stage.shelf.rows.values()) == 201, "all are still to be fetched"


def test_in_pull_through_mode_every_second_audit_fetches_what_is_not_here():
    stage = Stage(mode=CollectMode.PULL_THROUGH, rows=[row(wanted=A)], audits_per_minute=60.0)
    picks = []
    for _ in range(8):
        stage.now += 61
        stage.do(Ticked(0.0))
        picks += [action.first for action in stage.all(PickAudit)]
    assert picks[:4] == [True, False, True, False]
    stage.do(AuditPicked(stage.shelf.audited(0.0, first=True)))
    stage.told(holder(refs=A))
    order = stage.order
    assert isinstance(order, Fetch), "nobody asked for it: it is fetched to see whether it is there"
    stage.end(End.DONE, of=order, published=A)
    assert stage.all(Serve)


def test_a_holder_that_reports_a_repo_and_gives_nothing_is_found_out_without_any_client():
    stage = Stage(mode=CollectMode.PULL_THROUGH, rows=[row(wanted=A)])
    stage.do(AuditPicked(stage.shelf.audited(0.0, first=True)))
    accused = []
    for _ in range(200):
        for ask in stage.all(AskHolders):
            stage.told(holder(refs=A), name=ask.keys[0].rsplit("/", 1)[1])
        for order in stage.all(Fetch):
            stage.end(End.HOLDER_REFUSED, of=order)
            accused += stage.all(Accuse)
        for look in stage.all(Look):
            stage.end(End.LOOKED, of=look, upstream=A)
        if accused:
            break
        stage.tick(30)
    assert [a.node for a in accused] == [ANNA]


def test_samples_that_nobody_can_give_make_way_for_others():
    stage = Stage(mode=CollectMode.PULL_THROUGH, nodes=())
    for n in range(3 * SAMPLES_MAX):
        stage.do(AuditPicked(row(f"r{n}", wanted=A)))
    assert len(list(stage.machine.queue)) == SAMPLES_MAX
