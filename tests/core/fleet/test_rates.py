"""The fleet's rates in the machine: who is told what, when, and what that comes to together."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.fleet import hostnames, polled, rates
from evermirror.core.fleet.copies import CopyState, Reason
from evermirror.core.fleet.decisions import Assign, PutWorker, Send, SetLimits
from evermirror.core.fleet.handover import FOLLOWER, PRIMARY, UNTOLD
from evermirror.core.fleet.hostnames import HostNames
from evermirror.core.fleet.table import FleetTable
from evermirror.model.messages import ApplySettings
from evermirror.model.worker import Liveness
from tests.support.fleet import QUICK, Fleet

RATED = replace(QUICK, host_rate=1.0, min_gap_s=10.0, grace_s=8.0, heartbeat_s=2.0, max_missed=2)
BUSY = [f"big.example/r{n}" for n in range(40)]  # six would do
QUIET = [f"small.example/r{n}" for n in range(4)]


def rate(worker, host="big.example"):
    """What it may ask of the host; of one that is not named, the usual rate."""
    return (
        None if worker.limits is None else dict(worker.limits.host_rates).get(host, worker.limits.host_rate)
    )


def told(fleet):
    return [a for d in fleet.decisions for a in d.actions if isinstance(a, Send)]


def test_two_workers_share_a_busy_host_and_only_that_is_named():
    fleet = Fleet(RATED)
    ann, bob = fleet.join("ann"), fleet.join("bob")
    fleet.catalog(*BUSY, *QUIET)
    fleet.run(40)
    assert rate(ann) + rate(bob) <= 1.0
    assert rate(ann) + rate(bob) > 0.8
    assert [host for host, _ in ann.limits.host_rates] == ["big.example"]
    assert ann.limits.host_rate == 1.0
    assert fleet.machine.rates_in_use()["big.example"][0] <= 1.0
    assert fleet.machine.workers()[0].limits == ann.limits


def test_a_worker_that_is_alone_is_told_no_share():
    fleet = Fleet(RATED)
    ann = fleet.join("ann")
    fleet.catalog(*QUIET)
    fleet.run(20)
    assert ann.limits is None
    fleet.catalog(*BUSY)
    fleet.run(20)
    assert rate(ann) == 1.0


def test_no_rate_no_share():
    fleet = Fleet(replace(RATED, host_rate=None))
    workers = fleet.join("ann"), fleet.join("bob")
    fleet.catalog(*BUSY)
    fleet.run(20)
    assert all(worker.limits is None for worker in workers)


def test_a_host_that_becomes_busy_is_told_before_its_repos_are_assigned():
    fleet = Fleet(RATED)
    fleet.join("ann")
    fleet.join("bob")
    fleet.catalog(*QUIET)
    fleet.run(20)
    fleet.decisions.clear()
    fleet.catalog(*BUSY)
    fleet.tick()
    first = {}
    for send in told(fleet):
        first.setdefault(send.worker, type(send.command))
    assert set(first.values()) == {SetLimits}
    assert any(isinstance(send.command, Assign) for send in told(fleet))


def test_a_host_that_is_busy_no_more_is_named_no_more():
    fleet = Fleet(RATED)
    ann = fleet.join("ann")
    fleet.join("bob")
    fleet.catalog(*BUSY)
    fleet.run(30)
    assert ann.limits.host_rates
    fleet.catalog(removed=BUSY[2:])
    fleet.run(30)
    assert ann.limits.host_rates == ()


def test_the_rate_over_all_hosts_is_shared_too():
    fleet = Fleet(replace(RATED, host_rate=None, polls_per_second=2.0))
    ann, bob = fleet.join("ann"), fleet.join("bob", weight=3.0)
    fleet.catalog(*BUSY)
    fleet.run(40)
    ours, theirs = ann.limits.polls_per_second, bob.limits.polls_per_second
    assert ours + theirs <= 2.0
    assert theirs > 1.5 * ours


def test_only_so_many_hosts_are_named(monkeypatch):
    monkeypatch.setattr(rates, "HOSTS_MAX", 2)
    fleet = Fleet(RATED)
    ann, _ = fleet.join("ann"), fleet.join("bob")
    fleet.catalog(*(f"h{host}.example/r{n}" for host in range(5) for n in range(10)))
    fleet.run(60)
    assert len(ann.limits.host_rates) == 2
    assert ann.limits.host_rate == pytest.approx(0.95 / 2)


def test_a_lost_workers_share_goes_to_the_others_once_it_is_down():
    fleet = Fleet(RATED)
    ann, bob = fleet.join("ann"), fleet.join("bob")
    fleet.join("cid")
    fleet.catalog(*BUSY)
    fleet.run(40)
    before = rate(ann)
    fleet.cut(bob)
    while fleet.machine.workers()[1].record.liveness is not Liveness.DOWN:
        assert rate(ann) == before
        fleet.run(1)
    fleet.run(30)
    assert rate(ann) > 1.2 * before


def test_after_a_restart_nobody_grows_before_all_are_back_or_down():
    fleet = Fleet(RATED)
    ann, bob = fleet.join("ann"), fleet.join("bob")
    fleet.catalog(*BUSY)
    fleet.run(40)
    before = rate(ann), rate(bob)
    fleet.restart()
    fleet.connect(ann)
    cid = fleet.join("cid")
    fleet.run(5)
    assert rate(ann) <= before[0]
    assert rate(ann) + before[1] + (rate(cid) or 0.0) <= 1.0
    fleet.connect(bob)
    fleet.run(40)
    assert 0.8 < rate(ann) + rate(bob) + rate(cid) <= 1.0


def all_of_it(fleet):
    """What a liar says that it was told."""
    return ApplySettings(host_rate=1.0, host_rates=(("big.example", 1000.0),), told_at=fleet.now.utc_s)


def test_a_claim_counts_up_to_what_this_process_ever_told():
    fleet = Fleet(RATED)
    ann, bob = fleet.join("ann"), fleet.join("bob")
    fleet.catalog(*BUSY)
    fleet.run(40)
    bob.limits = all_of_it(fleet)
    fleet.reboot(bob)
    fleet.connect(bob, tells=False)
    assert fleet.machine.rates_in_use()["big.example"][0] <= 1.0
    before = rate(ann)
    fleet.tick(30)  # nobody obeys, and nobody has to: there is room
    assert rate(ann) == before


@pytest.mark.parametrize("tells", [False, True])
def test_a_liar_that_never_obeys_starves_the_others_for_minutes_only(tells):
    fleet = Fleet(RATED)
    ann, bob, liar = fleet.join("ann"), fleet.join("bob"), fleet.join("liar")
    fleet.catalog(*BUSY)
    fleet.run(40)
    ours = rate(ann)
    fleet.restart()
    liar.limits = all_of_it(fleet)
    fleet.connect(liar, tells=tells)
    ann.limits = bob.limits = None  # new disks
    for worker in (ann, bob):
        fleet.reboot(worker)
        fleet.connect(worker)
    beats_s = rates.HEED_S + 2 * rates.HEED_EVERY_S
    for _ in range(int(beats_s) + 60):
        fleet.tick()
        for worker in (ann, bob):
            fleet.read(worker)
    assert fleet.machine.workers()[2].record.liveness is Liveness.ALIVE
    assert rate(ann) > 0.5 * ours
    assert fleet.machine.rates_in_use()["big.example"][0] <= 1.0


@pytest.mark.parametrize("how", ["untrusted", "new session", "suspect", "nothing brought"])
def test_a_liar_wins_no_time_by_connecting_anew(how):
    """It claims the whole rate, or has repos for it, and never obeys."""
    trusted = how not in ("untrusted", "nothing brought")
    fleet = Fleet(RATED)
    ann, liar = fleet.join("ann"), fleet.join("liar", trusted=trusted)
    fleet.catalog(*BUSY)
    fleet.run(40)
    ours = rate(ann)
    fleet.restart()
    liar.limits = None if how == "nothing brought" else all_of_it(fleet)
    fleet.connect(liar)
    ann.limits = None  # a new disk
    fleet.reboot(ann)
    fleet.connect(ann)

    def pass_time(seconds):
        for _ in range(seconds):
            fleet.tick()
            fleet.read(ann)

    away_s = 8 if how == "suspect" else 0
    for _ in range(60):  # of 23 s: suspect at some of the looks
        pass_time(23 - away_s)
        fleet.cut(liar) if how == "suspect" else fleet.reboot(liar)
        pass_time(away_s)
        fleet.connect(liar)
    assert rate(ann) > 0.5 * ours
    if how != "nothing brought":  # who has no limits may really ask more than its share; it is counted so
        assert fleet.machine.rates_in_use()["big.example"][0] <= 1.0


class Watched(Fleet):
    """Notes when a worker went down: until it has limits that were told later it is excused."""

    def __init__(self, settings_):
        self.fell_at = {}
        super().__init__(settings_)

    def handle(self, event):
        decision = super().handle(event)
        for write in decision.writes:
            if isinstance(write, PutWorker) and write.record.liveness is Liveness.DOWN:
                self.fell_at[write.record.id] = self.now.utc_s
        return decision

    def excuses(self, worker):
        fell_at = self.fell_at.get(worker.id)
        return fell_at is not None and (worker.limits is None or worker.limits.told_at <= fell_at)


def asked(fleet, settings_):
    """Of each host, and of all under "": the most that workers in the fleet's books can ask for together."""
    of: Counter[str] = Counter()
    books = {view.record.id: view.record for view in fleet.machine.workers()}
    for worker in fleet.workers:
        record = books.get(worker.id)
        if record is None or record.liveness is Liveness.DOWN or fleet.excuses(worker):
            continue
        repos = Counter(key.partition("/")[0] for key, primary in worker.roles.items() if primary)
        limits = worker.limits
        usual = settings_.host_rate if limits is None else limits.host_rate
        mine = {host: min(n / settings_.min_gap_s, usual) for host, n in repos.items()}
        mine |= dict(() if limits is None else limits.host_rates)
        whole = settings_.polls_per_second if limits is None else limits.polls_per_second
        mine[""] = min(whole, sum(repos.values()) / settings_.min_gap_s)
        of.update(mine)
    return of


HURRIED = replace(RATED, polls_per_second=2.0, rebalance_gap_s=2.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**64))
def test_in_no_history_may_workers_ask_for_more_than_the_rates(seed):
    """Connections break with commands and acknowledgements on their way, workers and the coordinator start
    anew, repos come and go. Who was down is excused until it is told anew."""
    chance = Random(seed)
    fleet = Watched(HURRIED)
    for name in ("ann", "bob", "cid")[: chance.randint(1, 3)]:
        fleet.join(name)
    fleet.catalog(*BUSY)
    names = ["dan", "eve"]
    for _ in range(80):
        worker = chance.choice(fleet.workers)
        match chance.randrange(9):
            case 0:
                fleet.cut(worker, noticed=chance.random() < 0.8)
            case 1:
                fleet.reboot(worker)
            case 2 if chance.random() < 0.2:
                fleet.restart()
            case 3 if names:
                fleet.join(names.pop())
            case 4:
                fleet.catalog(*chance.sample(BUSY, 5), removed=chance.sample(BUSY, 5))
            case 5:
                fleet.read(worker, chance.randint(1, 3))
            case 6:
                fleet.run(chance.randint(1, 12))
            case _:
                fleet.tick(chance.randint(1, 4))
        if not worker.connected and chance.random() < 0.5:
            fleet.connect(worker)
        for host, used in asked(fleet, HURRIED).items():
            budget = HURRIED.host_rate if host else HURRIED.polls_per_second
            assert used <= budget * (1 + 1e-4), (host, used)


# Hosts and counts


def test_the_host_of_a_row_is_what_stands_before_the_slash(monkeypatch):
    monkeypatch.setattr(hostnames, "PART", 3)
    long = "a-very-long-name-of-a-host-somewhere.in.the.world.example:8443"
    keys = [f"h{n % 3}.example/r{n}" for n in range(10)] + [f"{long}/x", "é.example/y", "h.example:80/z/z"]
    table = FleetTable()
    names = HostNames(table)
    rows = table.put_repos(keys, [False] * len(keys), [1] * len(keys))
    assert [names[n] for n in names.of_row[rows].tolist()] == [key.partition("/")[0] for key in keys]
    table.remove(int(rows[0]))
    table.forget(int(rows[0]))
    again = table.put_repos(["other.example/new"], [False], [1])
    names.note(again)
    assert names[int(names.of_row[again[0]])] == "other.example"


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_repos_are_counted_as_one_by_one(seed):
    chance = Random(seed)
    table = FleetTable()
    keys = [f"h{chance.randrange(3)}.example/r{n}" for n in range(12)]
    rows = table.put_repos(keys, [False] * 12, [1] * 12)
    seen, may = Counter(), Counter()
    for row, key in zip(rows.tolist(), keys, strict=True):
        for worker in chance.sample(range(4), chance.randint(0, 3)):
            state, rank = chance.choice(list(CopyState)), chance.choice([0, 1, 255])
            c = table.add_copy(row, worker, rank, state, Reason.HOME, 0.0)
            role = table.one.c_primary[c] = chance.choice([FOLLOWER, PRIMARY, UNTOLD])
            host = key.partition("/")[0]
            there = state in (CopyState.HELD, CopyState.ASKED, CopyState.DEFERRED)
            polls = there and (role == PRIMARY or (role == UNTOLD and rank == 0))
            seen[host, worker] += polls or (state is CopyState.PLANNED and rank == 0)
            may[host, worker] += state is not CopyState.PLANNED and role != FOLLOWER
    names = HostNames(table)
    slots = np.arange(names.seen(), dtype=np.int32)
    everything, by_slot = polled.per_worker(table, names, slots, len(names), 4)
    for host in range(len(names)):
        assert by_slot[host].tolist() == [seen[names[host], worker] for worker in range(4)]
        assert polled.of_host(table, names, host, 4).tolist() == [may[names[host], w] for w in range(4)]
    assert everything.tolist() == [sum(n for (_, w), n in seen.items() if w == worker) for worker in range(4)]
    for worker in range(4):
        counted = polled.on_worker(table, names, worker)
        assert counted.tolist() == [may[names[host], worker] for host in range(len(names))]
