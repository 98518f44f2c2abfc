"""A disk that does not give back the keys it took: the node is made anew, and knows all again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest
from structlog.testing import capture_logs

from evermirror.core.fleet.decisions import Action
from evermirror.core.fleet.events import CatalogChanged, CatalogRepo, Moment
from evermirror.core.fleet.letters import LettersLost
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.edge.store import key_file
from evermirror.edge.store.key_file import KeyFile
from evermirror.edge.store.recorder import Recorder
from evermirror.edge.store.store import Store
from evermirror.edge.store.writes import WorkerBound
from evermirror.errors import ExitCode
from evermirror.model.repo import Host, RepoKey, RepoRecord, RepoSpec
from evermirror.model.worker import WorkerId
from evermirror.nodes import lifecycle, running
from evermirror.nodes.all_in_one import UpOptions, up
from evermirror.nodes.coordinator.enacting import Enactor
from tests.support.stage import Stage

KEYS = [RepoKey(f"h.org/o/r{n}") for n in range(40)]
BOUND = WorkerBound(WorkerId(0), 7)


@pytest.fixture(autouse=True)
def _written_at_once(monkeypatch):
    monkeypatch.setattr(key_file, "TAIL_BYTES", 1)


class NotingRecorder(Recorder):
    """Notes what it is given, and keeps nothing."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.given: list[object] = []

    async def put(self, *entries) -> None:
        self.given += entries


class Mind:
    """A machine over a real database and a real file, and what acts on it."""

    def __init__(self, recorder: NotingRecorder, machine: FleetMachine, letters: KeyFile) -> None:
        self.recorder, self.machine, self.letters = recorder, machine, letters
        self.done: list[Action] = []
        self.enactor = Enactor(
            machine,
            recorder,
            act=self.done.append,
            reported=lambda worker, report: None,
            behind=lambda worker, command: (),
            now=lambda: Moment(time.monotonic(), 1e9),
        )


@pytest.fixture
async def mind(tmp_path):
    store = await Store.open(f"sqlite:///{tmp_path / 'db'}")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        recorder = await stack.enter_async_context(NotingRecorder(store))
        await store.upsert_repos([RepoRecord(RepoSpec(key, f"https://{key}", Host("h.org"))) for key in KEYS])
        letters = KeyFile(tmp_path)
        restored = await store.load_fleet(letters)
        settings = FleetSettings(warm_up_s=0.0, tick_s=0.01)
        machine = FleetMachine(settings, 1, Moment(time.monotonic(), 1e9), restored)
        yield Mind(recorder, machine, letters)


def ends_within(enactor: Enactor):
    return asyncio.wait_for(enactor.run(), 10)


async def test_nothing_is_decided_persisted_or_done_once_an_event_was_half_taken_in(mind):
    mind.enactor.handle(CatalogChanged(put=(CatalogRepo(RepoKey("h.org/o/new")),)), BOUND)
    os.truncate(mind.letters._file, 0)
    with pytest.raises(LettersLost):
        mind.enactor.handle(CatalogChanged(removed=tuple(KEYS)))
    with pytest.raises(LettersLost):
        mind.enactor.handle(CatalogChanged(put=(CatalogRepo(RepoKey("h.org/o/unread")),)))
    with capture_logs() as logs, pytest.raises(ExceptionGroup) as ended:
        await ends_within(mind.enactor)
    assert ended.group_contains(LettersLost, match="the file of keys")
    assert [line["event"] for line in logs if line["log_level"] == "error"] == [
        "keys are lost: start again, they are read from the database"
    ]
    assert mind.done == mind.recorder.given == []


async def test_while_all_is_well_it_is_persisted(mind):
    mind.enactor.handle(CatalogChanged(put=(CatalogRepo(RepoKey("h.org/o/new")),)), BOUND)
    run = asyncio.create_task(mind.enactor.run())
    await mind.enactor.settled()
    run.cancel()
    assert [entry.others for entry in mind.recorder.given] == [(BOUND,)]


async def test_who_only_looks_ends_it_as_well(mind):
    run = asyncio.create_task(ends_within(mind.enactor))
    await asyncio.sleep(0.03)
    assert not run.done()
    os.pwrite(mind.letters._file, bytes(9), 0)
    with pytest.raises(LettersLost):
        mind.machine.primary_of(KEYS[0])
    with pytest.raises(ExceptionGroup):
        await run


async def test_a_node_is_made_anew_in_its_process_and_knows_all(tmp_path, upstream, monkeypatch):
    monkeypatch.setattr(running, "ANEW_S", 0.01)
    stage = Stage(tmp_path, upstream)
    url = upstream.url("some.git")
    signals = lifecycle.Signals()
    lives: list[bool] = []

    async def one_life() -> bool:
        async with up(stage.config(), UpOptions()) as node:
            if lives:
                record = await node.coordinator.find_repo(url)
                lives.append(node.lead.fleet.machine.repo(record.key) is not None)
                signals.stop.set()
            else:
                await node.coordinator.add_url(url, {}, actor="me")
                os.truncate(node.lead.fleet.machine._table._keys._letters._file, 0)
                with pytest.raises(LettersLost):
                    await node.coordinator.add_url(url, {"priority": "high"}, actor="me")
                lives.append(True)
            return await running.until_stopped(signals, node.supervisor.lost, lambda: None)

    async with asyncio.timeout(60):
        assert await running.live(signals, one_life) == ExitCode.OK
    assert lives == [True, True]
