"""What the store remembers of the fleet, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evermirror.core.fleet.copies import UNWANTED, CopyState, Reason
from evermirror.core.fleet.decisions import (
    CopyRow,
    DropCopies,
    PutCopies,
    PutSalt,
    PutWorker,
    ReportTaken,
)
from evermirror.core.fleet.events import Moment, OtherReported, ReportId, WorkerConnected
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.table import LIVE, REMOVED, TRUSTED_ONLY
from evermirror.edge.store import fleet_load
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import Decided, Outcome, RepoVerified, TaskRecorded, WorkerBound
from evermirror.errors import UsageError
from evermirror.model.repo import Host, RepoRecord, RepoSpec
from evermirror.model.task import TaskStatus
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerRecord

A, B, C = "example.org/team/a", "example.org/team/b", "例え.jp/ü"
HELD, PLANNED = CopyState.HELD, CopyState.PLANNED


def repo(key=A, **kwargs):
    spec_names = ("priority", "interval_s", "mode", "private", "credential", "fallbacks")
    spec = {n: kwargs.pop(n) for n in spec_names if n in kwargs}
    return RepoRecord(RepoSpec(key, f"https://{key}", Host(key.split("/")[0]), **spec), **kwargs)


def worker(id_=0, **kwargs):
    facts = WorkerFacts(
        kwargs.pop("name", f"worker{id_}"),
        **{n: kwargs.pop(n) for n in ("trusted", "weight", "capacity") if n in kwargs},
    )
    return WorkerRecord(id_, facts, **kwargs)


def copy(key=A, on=0, rank=0, state=HELD, reason=Reason.HOME, since_s=900.0):
    return CopyRow(key, on, rank, state, reason, since_s)


async def decide(store, *fleet, others=()):
    await store.apply([Decided(fleet, tuple(others))])


async def placed(store):
    """Every copy, as a decision would have written it."""
    tables = (await store.load_fleet()).tables
    table = tables.table
    found = {}
    for c in range(table.copies):
        rank = int(table.c_rank[c])
        row = copy(
            table.key_of(int(table.c_row[c])),
            int(table.c_worker[c]),
            None if rank == UNWANTED else rank,
            CopyState(int(table.c_state[c])),
            Reason(int(table.c_reason[c])),
            float(table.c_since[c]),
        )
        found[row.key, row.worker] = row
    return found


async def reports(store):
    return [(r.worker, r.generation, r.seq) for r in (await store.load_fleet()).reports]


# Workers


async def test_a_worker_comes_back_as_it_was_written(store):
    record = worker(
        7,
        name="eu-1 é",
        trusted=True,
        weight=2.5,
        capacity=1 << 40,
        liveness=Liveness.SUSPECT,
        duty=Duty.DRAINING,
        joined_at=1.25,
        last_alive_at=2.5,
        flap_score=0.1,
        flap_at=3.5,
        history=((1.25, "joined"), (2.0, "suspect")),
    )
    await decide(store, PutWorker(worker(7)), PutWorker(record), PutWorker(worker(0)))
    assert list((await store.load_fleet()).workers) == [worker(0), record]
    later = replace(record, liveness=Liveness.DOWN, history=(*record.history, (9.0, "down")))
    await decide(store, PutWorker(later))
    assert list((await store.load_fleet()).workers) == [worker(0), later]


async def test_a_token_is_bound_to_its_worker_in_the_decision_that_registers_it(store):
    await decide(store, PutWorker(worker(0, joined_at=1.0)), others=[WorkerBound(0, 41)])
    await decide(store, PutWorker(worker(1, joined_at=2.0)), others=[WorkerBound(1, 42)])
    await decide(store, PutWorker(worker(0, joined_at=1.0, liveness=Liveness.DOWN)))
    assert await store.bound_tokens() == {41: 0, 42: 1}
    await store.apply([WorkerBound(1, 41)])
    assert await store.bound_tokens() == {41: 1}


async def test_a_retired_worker_is_known_until_its_id_is_anothers(store):
    await decide(
        store, PutWorker(worker(0, joined_at=1.0)), ReportTaken(0, 5, 1), others=[WorkerBound(0, 41)]
    )
    retired = worker(0, joined_at=1.0, duty=Duty.RETIRED)
    await decide(store, PutWorker(retired))
    assert list((await store.load_fleet()).workers) == [retired]
    assert await store.bound_tokens() == {41: 0}
    assert await reports(store) == []
    new = worker(0, name="other", joined_at=9.0)
    await decide(store, PutWorker(new))
    assert list((await store.load_fleet()).workers) == [new]
    assert await store.bound_tokens() == {}  # who shows the old token is not the new worker


async def test_an_id_that_changes_hands_within_a_batch_has_the_last_ones_token_and_reports(store):
    first, second = worker(0, joined_at=1.0), worker(0, name="other", joined_at=9.0)
    await store.apply(
        [
            Decided((PutWorker(first),), (WorkerBound(0, 41),)),
            Decided((ReportTaken(0, 5, 1),)),
            Decided((PutWorker(replace(first, duty=Duty.RETIRED)),)),
            Decided((PutWorker(second),), (WorkerBound(0, 42),)),
            Decided((ReportTaken(0, 6, 1),)),
        ]
    )
    assert await store.bound_tokens() == {42: 0}
    assert await reports(store) == [(0, 6, 1)]


# Copies


async def test_copies_come_back_as_they_were_written(store):
    await store.upsert_repos([repo(A), repo(B), repo(C)])
    rows = [
        copy(A, 0),
        copy(A, 3, rank=1, state=PLANNED, reason=Reason.REHASHED, since_s=4_000_000_000.0),
        copy(B, 3, rank=None, state=CopyState.LEAVING),
        copy(C, 65_534, state=CopyState.ASKED),
    ]
    workers = [PutWorker(worker(i)) for i in (0, 3, 65_534)]
    await decide(store, *workers, PutCopies(tuple(rows)))
    assert await placed(store) == {(r.key, r.worker): r for r in rows}
    moved = copy(A, 3, rank=0, since_s=5.0)
    await decide(store, DropCopies(((A, 0), (B, 0), ("never.seen/x", 3))), PutCopies((moved,)))
    assert await placed(store) == {(r.key, r.worker): r for r in (moved, *rows[2:])}


async def test_copies_of_strangers_and_on_retired_workers_are_not_told(store):
    await store.upsert_repos([repo(A)])
    await decide(
        store,
        PutWorker(worker(0)),
        PutWorker(worker(1, duty=Duty.RETIRED)),
        PutCopies((copy(A, 0), copy(A, 1), copy(A, 2), copy("never.seen/x", 0))),
    )
    assert set(await placed(store)) == {(A, 0)}


class Made:
    """Rows of a first placement, made as they are read; it notes how many exist at once."""

    def __init__(self, n):
        self.n = n
        self.most = 0

    def __len__(self):
        return self.n

    def __getitem__(self, part):
        rows = [copy(f"example.org/{i}", i % 3, state=PLANNED) for i in range(*part.indices(self.n))]
        self.most = max(self.most, len(rows))
        return rows


async def test_a_large_placement_is_read_in_parts_and_written_as_a_whole(store):
    n = 12_000
    await store.upsert_repos(repo(f"example.org/{i}") for i in range(n))
    made = Made(n)
    workers = [PutWorker(worker(i)) for i in range(3)]
    unstorable = TaskRecorded(A, Outcome(TaskStatus.SUCCESS, 1.0, 2.0, result={"x": object()}))
    with pytest.raises(UsageError):
        await decide(store, *workers, PutCopies(made), others=[unstorable])
    assert await placed(store) == {}
    async with asyncio.timeout(30):
        await decide(store, *workers, PutCopies(made))
    assert made.most <= 5000
    found = await placed(store)
    assert len(found) == n
    assert found["example.org/7", 1] == copy("example.org/7", 1, state=PLANNED)
    gone = DropCopies(tuple((f"example.org/{i}", i % 3) for i in range(n)))
    await decide(store, gone, PutCopies((copy("example.org/7", 2),)))
    assert await placed(store) == {("example.org/7", 2): copy("example.org/7", 2)}


# Reports


async def test_the_last_generations_of_a_worker_are_kept_oldest_first(store):
    await decide(store, *(ReportTaken(1, generation, 1) for generation in (50, 10, 40, 20)))
    await decide(store, ReportTaken(2, -(1 << 63), (1 << 63) - 1))
    assert await reports(store) == [
        (1, 50, 1),
        (1, 10, 1),
        (1, 40, 1),
        (1, 20, 1),
        (2, -(1 << 63), (1 << 63) - 1),
    ]
    await decide(store, ReportTaken(1, 50, 2), ReportTaken(1, 20, 2), ReportTaken(1, 50, 3))
    assert await reports(store) == [
        (1, 10, 1),
        (1, 40, 1),
        (1, 20, 2),
        (1, 50, 3),
        (2, -(1 << 63), (1 << 63) - 1),
    ]
    await decide(store, ReportTaken(1, 30, 1))
    assert (await reports(store))[:4] == [(1, 40, 1), (1, 20, 2), (1, 50, 3), (1, 30, 1)]


# Decisions


async def test_a_decision_is_written_together_with_what_belongs_to_it_or_not_at_all(store):
    await store.upsert_repos([repo(A)])
    good = TaskRecorded(A, Outcome(TaskStatus.SUCCESS, 1.0, 2.0))
    bad = TaskRecorded(A, Outcome(TaskStatus.SUCCESS, 1.0, 2.0, result={"x": object()}))
    fleet = (PutWorker(worker(0)), PutCopies((copy(A, 0),)), PutSalt(A, 3), ReportTaken(0, 1, 1))
    with pytest.raises(UsageError):
        await store.apply([Decided(fleet, (good,)), Decided((), (bad,)), RepoVerified(A, 5.0)])
    assert (await placed(store), await reports(store), await store.list_tasks(A, 10)) == ({}, [], ())
    assert (await store.find_repo(A)).verified_at is None
    await store.apply([Decided(fleet, (good,)), RepoVerified(A, 5.0)])
    assert (len(await placed(store)), await reports(store)) == (1, [(0, 1, 1)])
    assert len(await store.list_tasks(A, 10)) == 1
    assert (await store.find_repo(A)).verified_at == 5.0


KEYS = [A, B, C]
key_, worker_ = st.sampled_from(KEYS), st.integers(0, 2)
copy_rows = st.builds(
    CopyRow,
    key_,
    worker_,
    st.none() | st.integers(0, 3),
    st.sampled_from(CopyState),
    st.sampled_from(Reason),
    st.integers(0, 2**32 - 1).map(float),
)
fleet_writes = st.one_of(
    st.lists(copy_rows, max_size=4).map(lambda rows: PutCopies(tuple(rows))),
    st.lists(st.tuples(key_, worker_), max_size=4).map(lambda copies: DropCopies(tuple(copies))),
    st.builds(PutSalt, key_, st.integers(0, 255)),
    st.builds(ReportTaken, worker_, st.integers(0, 9), st.integers(1, 99)),
)


class Twin:
    """The obvious way: one write after the other."""

    def __init__(self):
        self.copies, self.salts, self.reports = {}, dict.fromkeys(KEYS, 0), {}

    def take(self, write):
        match write:
            case PutCopies(rows):
                self.copies |= {(row.key, row.worker): row for row in rows}
            case DropCopies(copies):
                for which in copies:
                    self.copies.pop(which, None)
            case PutSalt(key, salt):
                self.salts[key] = salt
            case ReportTaken(of, generation, seq):
                known = self.reports.setdefault(of, {})
                known.pop(generation, None)
                known[generation] = seq
                if len(known) > 4:
                    del known[next(iter(known))]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(st.lists(fleet_writes, max_size=4), max_size=4), max_size=4))
async def test_batches_leave_what_one_write_after_the_other_would(url, batches):
    store = await Store.open(url)
    try:
        async with store._db.write() as c:
            for name in ("copies", "reports_taken", "repos", "workers"):
                await c.execute(sa.text(f"DELETE FROM {name}"))  # noqa: S608
        await store.upsert_repos(map(repo, KEYS))
        await decide(store, *(PutWorker(worker(i)) for i in range(3)))
        twin = Twin()
        for batch in batches:
            await store.apply([Decided(tuple(decision)) for decision in batch])
            for decision in batch:
                for write in decision:
                    twin.take(write)
        restored = await store.load_fleet()
        table = restored.tables.table
        assert await placed(store) == twin.copies
        assert {key: int(table.salt[table.row_of(key)]) for key in KEYS} == twin.salts
        kept = [(of, g, seq) for of in sorted(twin.reports) for g, seq in twin.reports[of].items()]
        assert await reports(store) == kept
    finally:
        await store.close()


# A start


async def test_placement_learns_of_each_repo_what_it_must_know(store):
    await store.upsert_repos(
        [
            repo(A, pins=("eu-1", "eu-2")),
            repo(B, private=True),
            repo(C, credential="corp"),
            repo("left.org/x", pins=("eu-1",)),
        ]
    )
    await decide(store, PutSalt(B, 200), PutWorker(worker(0)), PutCopies((copy("left.org/x", 0, rank=None),)))
    await store.remove_repos(["left.org/x"], 5.0)
    tables = (await store.load_fleet()).tables
    table = tables.table
    rows = {key: table.row_of(key) for key in (A, B, C, "left.org/x")}
    assert tables.pins == {rows[A]: ("eu-1", "eu-2")}
    flags = {key: int(table.flags[row]) & (LIVE | TRUSTED_ONLY | REMOVED) for key, row in rows.items()}
    assert flags == {A: LIVE, B: LIVE | TRUSTED_ONLY, C: LIVE | TRUSTED_ONLY, "left.org/x": LIVE | REMOVED}
    assert int(table.salt[rows[B]]) == 200
    assert len(table) == 3
    assert set(await placed(store)) == {("left.org/x", 0)}


async def test_a_machine_goes_on_where_the_last_one_ended(store):
    await store.upsert_repos([repo(A), repo(B, pins=("worker1",))])
    await decide(
        store,
        *(PutWorker(worker(i, trusted=True)) for i in (0, 1)),
        PutCopies((copy(A, 0), copy(B, 1))),
        ReportTaken(0, 5, 17),
    )
    machine = FleetMachine(FleetSettings(), 9, Moment(0.0, 1000.0), await store.load_fleet())
    assert machine.totals().held == 2
    assert machine.repo(A).replicas == machine.settings.replicas
    assert machine.repo(B).copies[0].worker == 1
    assert "worker1" in " ".join(machine.explain(B))
    machine.handle(WorkerConnected(1, 0, worker(0, trusted=True).facts, 1, 5), Moment(1.0, 1001.0))
    assert machine.handle(OtherReported(ReportId(0, 1, 5, 17)), Moment(1.0, 1001.0)).writes == ()
    assert (
        ReportTaken(0, 5, 18)
        in machine.handle(OtherReported(ReportId(0, 1, 5, 18)), Moment(1.0, 1001.0)).writes
    )


async def test_an_empty_store_is_a_fleet_of_nobody(store):
    machine = FleetMachine(FleetSettings(), 9, Moment(0.0, 1000.0), await store.load_fleet())
    assert (machine.totals().repos, machine.totals().workers) == (0, 0)
    assert await store.bound_tokens() == {}


async def test_more_than_one_chunk_is_read(store, monkeypatch):
    monkeypatch.setattr("evermirror.edge.store.fleet_load.CHUNK", 7)
    keys = [f"example.org/{i}" for i in range(40)]
    await store.upsert_repos(repo(key) for key in keys)
    rows = [copy(key, on) for key in keys for on in (0, 1, 2)]
    await decide(store, *(PutWorker(worker(i)) for i in range(3)), PutCopies(tuple(rows)))
    assert await placed(store) == {(r.key, r.worker): r for r in rows}


async def test_a_start_that_is_cancelled_leaves_a_connection_that_works(store, monkeypatch):
    monkeypatch.setattr(fleet_load, "CHUNK", 1)
    await store.upsert_repos(repo(f"example.org/{n}") for n in range(20))
    cut = 0
    for turns in range(0, 80, 2):
        loading = asyncio.create_task(fleet_load.load(store._db))
        for _ in range(turns):
            await asyncio.sleep(0)
        cut += loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loading
        machine = FleetMachine(FleetSettings(), 9, Moment(0.0, 1000.0), await store.load_fleet())
        assert machine.totals().repos == 20
    assert cut > 20


# The epoch


async def test_an_epoch_is_higher_than_all_before_also_after_a_restore(url, clock):
    first = await Store.open(url, clock=clock)
    clock.now = 5000.9
    seen = [await first.next_epoch() for _ in range(3)]
    assert seen == [5000, 5001, 5002]
    clock.now = 10.0  # set back
    assert await first.next_epoch() == 5003
    await first.close()
    second = await Store.open(url, clock=clock)
    assert await second.next_epoch() == 5004
    await second.put_setting("fleet.epoch", 17)  # as in an old backup
    clock.now = 6000.0
    assert await second.next_epoch() == 6000
    await second.close()
