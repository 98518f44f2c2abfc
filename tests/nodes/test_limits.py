"""What bounds a worker: its own settings, its share of the fleet's rates, and what a restart remembers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.edge.store.local import LocalState
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.nodes.worker.limits import Limits

HOST = Host("forge.example")
OWN = ScheduleSettings(host_rate=5.0, min_gap_s=0.0)
START = 1e9
SECONDS = 20
SHARE = ApplySettings(host_rate=5.0, host_rates=((HOST, 0.5),), told_at=START)


class Bounded:
    """A worker's limits over a real schedule of many repos of one host."""

    def __init__(self, local: LocalState, *, own: ScheduleSettings = OWN, remembers: bool = True) -> None:
        self.now = START
        self.scheduler = Scheduler(own)
        keys = [RepoKey(f"{HOST}/r{n}") for n in range(300)]
        self.limits = Limits(own, self.scheduler, local, lambda: self.now, remembers=remembers)
        self.scheduler.add([Entry(RepoSpec(key, f"https://{key}", HOST)) for key in keys], self.now)

    def polls(self) -> int:
        """How many the schedule starts in the next seconds."""
        started = 0
        for _ in range(SECONDS):
            self.now += 1.0
            while (key := self.scheduler.take(self.now)) is not None:
                started += 1
                self.scheduler.polled(key, self.now)
        return started


@contextlib.asynccontextmanager
async def started(path: Path, **how) -> AsyncIterator[Bounded]:
    local = await LocalState.open(path)
    try:
        yield Bounded(local, **how)
    finally:
        await local.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker.db"


async def test_a_worker_that_was_never_told_has_its_own_settings(path):
    async with started(path) as worker:
        assert worker.limits.told is None
        assert 4 * SECONDS <= worker.polls() <= 5 * (SECONDS + 1)


async def test_its_share_holds_from_the_moment_it_is_told(path):
    async with started(path) as worker:
        worker.limits.tell(SHARE)
        assert SECONDS / 2 - 1 <= worker.polls() <= SECONDS / 2 + 1


@pytest.mark.parametrize(
    "told",
    [
        ApplySettings(host_rate=100.0, host_rates=((HOST, 50.0),), polls_per_second=100.0, slots=1000),
        ApplySettings(),
    ],
)
async def test_its_own_settings_are_the_most_that_it_does(path, told):
    own = ScheduleSettings(host_rate=2.0, polls_per_second=1.0, slots=3, min_gap_s=0.0)
    async with started(path, own=own) as worker:
        worker.limits.tell(told)
        assert SECONDS - 1 <= worker.polls() <= SECONDS + 1
        worker.limits.configure(ScheduleSettings(host_rate=0.25, min_gap_s=0.0))
        assert worker.polls() <= SECONDS / 4 + 1, "settings that are reloaded bound it too"


async def test_reloaded_settings_do_not_lift_what_it_was_told(path):
    async with started(path) as worker:
        worker.limits.tell(SHARE)
        worker.polls()
        worker.limits.configure(ScheduleSettings(host_rate=50.0, min_gap_s=0.0))
        assert worker.polls() <= SECONDS / 2 + 1


async def test_a_restart_while_the_coordinator_is_away_keeps_the_share(path):
    async with started(path) as worker:
        worker.limits.tell(ApplySettings(host_rate=4.0))
        await worker.limits.save()
        worker.limits.tell(SHARE)
        await worker.limits.save()
    async with started(path) as worker:
        assert worker.limits.told == SHARE
        assert worker.polls() <= SECONDS / 2 + 1
        worker.limits.tell(ApplySettings(host_rate=5.0, host_rates=((HOST, 1.0),)))
        worker.polls()
        assert worker.polls() >= SECONDS - 1, "what is told next counts"


async def test_an_all_in_one_begins_with_its_own_settings(path):
    async with started(path, remembers=False) as worker:
        worker.limits.tell(SHARE)
        await worker.limits.save()
    async with started(path, remembers=False) as worker:
        assert worker.limits.told is None
        assert worker.polls() >= 4 * SECONDS


class SlowDisk:
    """Writes when it is let, or fails."""

    limits = None

    def __init__(self) -> None:
        self.written: list[ApplySettings] = []
        self.may_write = asyncio.Event()
        self.broken = False

    async def note_limits(self, limits: ApplySettings) -> None:
        await self.may_write.wait()
        if self.broken:
            raise FailureError(Failure(FailureKind.DISK_FULL, "no room"))
        self.written.append(limits)


async def test_whoever_saves_knows_on_return_that_it_is_written():
    disk = SlowDisk()
    worker = Bounded(disk)  # type: ignore[arg-type]
    worker.limits.tell(SHARE)
    saves = [asyncio.create_task(worker.limits.save()) for _ in range(2)]
    await asyncio.sleep(0.05)
    assert not any(save.done() for save in saves)
    disk.may_write.set()
    await asyncio.gather(*saves)
    assert disk.written == [SHARE], "once"


async def test_what_could_not_be_written_is_in_force_and_written_the_next_time():
    disk = SlowDisk()
    disk.may_write.set()
    disk.broken = True
    worker = Bounded(disk)  # type: ignore[arg-type]
    worker.limits.tell(SHARE)
    await worker.limits.save()
    assert worker.polls() <= SECONDS / 2 + 1
    disk.broken = False
    await worker.limits.save()
    assert disk.written == [SHARE]
