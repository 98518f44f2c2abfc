"""The recorder writes everything it accepted, in order and in batches, whatever the database does."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from evermirror.core.fleet.decisions import DropCopies, ReportTaken
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import Decided, Outcome, ProjectSaved, RepoVerified, TaskRecorded
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.pull import Project, PullConfig, Target
from evermirror.model.task import TaskStatus

TROUBLE = FailureError(Failure(FailureKind.NETWORK_TIMEOUT, "the database does not answer"))


class Sink:
    """A store whose weather the test decides."""

    def __init__(self):
        self.batches = []
        self.troubles = []
        self.open = asyncio.Event()
        self.open.set()

    async def apply(self, batch):
        await self.open.wait()
        if self.troubles:
            raise self.troubles.pop(0)
        self.batches.append(list(batch))

    @property
    def written(self):
        return [w for batch in self.batches for w in batch]


def writes(count, start=0):
    return [RepoVerified(f"k{i}", float(i)) for i in range(start, start + count)]


async def test_leaving_writes_everything_in_order_and_in_batches():
    sink = Sink()
    async with Recorder(sink, flush_s=60, batch=10) as recorder:
        for write in writes(95):
            await recorder.put(write)
    assert sink.written == writes(95)
    assert len(sink.batches) <= 12
    assert all(len(b) <= 10 for b in sink.batches)
    with pytest.raises(RuntimeError):
        await recorder.put(*writes(1))


async def test_a_result_is_written_without_being_asked():
    sink = Sink()
    async with Recorder(sink, flush_s=0.01) as recorder:
        await recorder.put(*writes(3))
        async with asyncio.timeout(5):
            while recorder.waiting:
                await asyncio.sleep(0.005)
        assert sink.batches == [writes(3)]


async def test_flush_returns_when_what_was_put_is_written():
    sink = Sink()
    async with Recorder(sink, flush_s=60) as recorder:
        await recorder.put(*writes(3))
        await asyncio.wait_for(recorder.flush(), 5)
        assert sink.written == writes(3)
        await asyncio.wait_for(recorder.flush(), 5)
        await recorder.put(*writes(2, 3))
        await asyncio.wait_for(recorder.flush(), 5)
        assert sink.written == writes(5)


async def test_a_full_queue_makes_put_wait():
    sink = Sink()
    sink.open.clear()
    async with Recorder(sink, flush_s=0.001, batch=5, capacity=10) as recorder:
        await recorder.put(*writes(10))
        blocked = asyncio.create_task(recorder.put(*writes(1, 10)))
        done, _ = await asyncio.wait([blocked], timeout=0.05)
        assert not done
        sink.open.set()
        await asyncio.wait_for(blocked, 5)
    assert sink.written == writes(11)


async def test_a_decision_is_never_split_and_counts_by_the_rows_it_touches():
    sink = Sink()
    decided = [
        Decided((ReportTaken(1, 1, i), DropCopies((("a", 1), ("b", 1)))), tuple(writes(1, i)))
        for i in range(5)
    ]
    async with Recorder(sink, flush_s=60, batch=8) as recorder:
        await recorder.put(*decided)
        assert recorder.waiting == 20
    assert sink.batches == [decided[:2], decided[2:4], decided[4:]]


async def test_a_project_counts_with_its_targets():
    sink = Sink()
    targets = tuple(Target(n, "https://t.example") for n in range(3))
    saves = [ProjectSaved(Project(f"k{n}", "", "h", PullConfig(), targets)) for n in range(4)]
    async with Recorder(sink, flush_s=60, batch=8) as recorder:
        await recorder.put(*saves[:3], Decided((), (saves[3],)))
        assert recorder.waiting == 16
    assert sink.batches == [saves[:2], [saves[2], Decided((), (saves[3],))]]


async def test_trouble_is_visible_and_the_same_batch_is_tried_again():
    sink = Sink()
    sink.troubles = [TROUBLE] * 3
    seen = []
    async with Recorder(sink, flush_s=0.001, backoff_s=(0.01, 0.02)) as recorder:
        assert recorder.healthy
        await recorder.put(*writes(3))
        async with asyncio.timeout(5):
            while recorder.waiting:
                seen.append(recorder.healthy)
                await asyncio.sleep(0.002)
        assert False in seen
        assert recorder.healthy
        assert recorder.trouble is None
    assert sink.batches == [writes(3)]


async def test_closing_on_a_database_that_stays_away_says_what_was_lost():
    sink = Sink()
    sink.troubles = [TROUBLE] * 1000
    recorder = await Recorder(sink, flush_s=0.001, backoff_s=(0.01, 0.02), close_s=0.2).__aenter__()
    await recorder.put(*writes(3))
    with pytest.raises(FailureError, match="3 results were not written: the database does not answer"):
        await recorder.close()


def broken(recorder):
    """A bug of the recorder's own."""

    def fail():
        raise ValueError("a bug")

    recorder._next_batch = fail
    return recorder


async def test_a_bug_is_met_by_everybody_who_still_writes():
    recorder = broken(await Recorder(Sink(), flush_s=0.001).__aenter__())
    await recorder.put(*writes(3))
    with pytest.raises(ValueError, match="a bug"):
        await recorder.flush()
    assert not recorder.healthy
    with pytest.raises(ValueError, match="a bug"):
        await recorder.put(*writes(1))
    with pytest.raises(ValueError, match="a bug"):
        await recorder.close()


async def test_a_bug_wakes_those_who_wait_for_room():
    recorder = broken(await Recorder(Sink(), flush_s=60, capacity=2).__aenter__())
    await recorder.put(*writes(2))
    blocked = asyncio.create_task(recorder.put(*writes(1)))
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="a bug"):
        await recorder.flush()
    with pytest.raises(ValueError, match="a bug"):
        await asyncio.wait_for(blocked, 5)
    with pytest.raises(ValueError, match="a bug"):
        await recorder.close()


class PickySink(Sink):
    """Refuses every transaction with one of these writes in it, as a database does."""

    def __init__(self, *refused, error=None):
        super().__init__()
        self.refused = refused
        self.error = error or OverflowError("too large")

    async def apply(self, batch):
        parts = [w for e in batch for w in ((*e.fleet, *e.others) if isinstance(e, Decided) else (e,))]
        if any(write in self.refused for write in parts):
            raise self.error
        await super().apply(batch)


async def test_a_write_that_is_refused_is_set_aside_and_all_others_are_written_in_order():
    every = writes(100)
    sink = PickySink(every[17], every[18], every[99])
    async with Recorder(sink, flush_s=60) as recorder:
        await recorder.put(*every)
        await asyncio.wait_for(recorder.flush(), 5)
        assert recorder.healthy
        assert recorder.set_aside == 3
        assert "refused 3 writes" in recorder.warnings()[0]
        await recorder.put(*writes(2, 100))
    assert sink.written == every[:17] + every[19:99] + writes(2, 100)
    assert len(sink.batches) < 40


async def test_what_is_refused_of_a_decision_takes_nothing_else_of_it_along():
    """The number of the report is written: it counts as taken."""
    taken, bad, good = ReportTaken(1, 7, 3), *writes(2)
    sink = PickySink(bad)
    async with Recorder(sink, flush_s=60) as recorder:
        await recorder.put(Decided((taken, DropCopies(())), (bad, good)))
    assert sink.written == [Decided((taken, DropCopies(()))), good]
    assert recorder.set_aside == 1
    sink = PickySink(taken)
    async with Recorder(sink, flush_s=60) as recorder:
        await recorder.put(Decided((taken, DropCopies(())), (good,)))
    assert sink.written == [Decided((DropCopies(()),)), good]


async def test_trouble_while_a_batch_is_taken_apart_loses_nothing():
    every = writes(8)
    sink = PickySink(every[3])
    sink.troubles = [TROUBLE] * 3
    async with Recorder(sink, flush_s=60, backoff_s=(0.001, 0.001)) as recorder:
        await recorder.put(*every)
        await asyncio.wait_for(recorder.flush(), 5)
        assert recorder.healthy
    assert sink.written == every[:3] + every[4:]


async def test_tables_that_are_gone_are_trouble_and_set_nothing_aside(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")
    async with Recorder(store, flush_s=0.001, backoff_s=(0.01, 0.01), close_s=0.05) as recorder:
        async with store._db.write() as c:
            await c.execute(sa.text("ALTER TABLE repos RENAME TO elsewhere"))
        await recorder.put(*writes(3))
        async with asyncio.timeout(5):
            while recorder.healthy:
                await asyncio.sleep(0.005)
        assert "no such table" in recorder.trouble.message
        async with store._db.write() as c:
            await c.execute(sa.text("ALTER TABLE elsewhere RENAME TO repos"))
        async with asyncio.timeout(5):
            while recorder.waiting:
                await asyncio.sleep(0.005)
        assert recorder.set_aside == 0
    await store.close()


async def test_many_producers_lose_nothing_on_a_real_store(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path}/s.db")

    async def produce(recorder, name):
        for i in range(100):
            await recorder.put(TaskRecorded(name, Outcome(TaskStatus.SUCCESS, 1.0, float(i))))

    async with Recorder(store, flush_s=0.01, batch=50, capacity=60) as recorder, asyncio.TaskGroup() as group:
        for n in range(5):
            group.create_task(produce(recorder, f"repo{n}"))
    for n in range(5):
        ended = [t.completed_at for t in await store.list_tasks(f"repo{n}", 1000)]
        assert ended == [float(i) for i in reversed(range(100))]
    await store.close()
