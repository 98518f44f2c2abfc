"""A list of repos that arrives in chunks is placed in the queue as one."""

from __future__ import annotations

import random
from unittest.mock import AsyncMock, Mock

from evermirror.core.schedule.disk import DiskGuard
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import AssignRepos
from evermirror.model.repo import RepoKey
from evermirror.nodes.worker.worker import Worker, WorkerParts
from tests.core.schedule.test_scheduler import T0, entry, run

NAMES = [f"a/{n:04}" for n in range(1000)]


def worker_at_rest(scheduler: Scheduler) -> Worker:
    """Obeys, and does nothing else: what reaches outside is not there."""
    parts = WorkerParts(
        port=AsyncMock(), scheduler=scheduler, prober=Mock(), mirrors=Mock(), maintenance=Mock(),
        local=Mock(), disk=DiskGuard(1.0), clock=lambda: T0, chance=random.Random(1), care=Mock(),
    )  # fmt: skip
    return Worker(parts, ScheduleSettings())


async def test_after_a_restart_in_chunks_who_was_polled_lately_is_not_polled_first():
    memories = {  # polled in turn, one a second, but not in the order of their names
        k: RepoMemory(RepoKey(k), last_poll_at=T0 - 1 - (n * 7919) % 1000, verified_at=T0 - 1.0)
        for n, k in enumerate(NAMES)
    }
    scheduler = Scheduler(ScheduleSettings(host_rate=None, min_gap_s=60.0, polls_per_second=1.0))
    worker = worker_at_rest(scheduler)
    worker._shelf.here = set(map(RepoKey, NAMES))
    worker._shelf._memories = dict(memories)
    for start in range(0, 1000, 100):
        specs = tuple(entry(k).spec for k in NAMES[start : start + 100])
        assert len(scheduler) == 0
        await worker.obey(AssignRepos(specs, more=start < 900))
    first = [key for _, key in run(scheduler, T0 + 99)]
    ages = sorted((T0 - memories[k].last_poll_at for k in first), reverse=True)
    assert 98 <= len(first) <= 102
    assert ages[len(ages) // 2] > 800, "half of the first polls went to repos that were polled lately"


async def test_a_repo_that_left_between_two_chunks_is_not_polled():
    scheduler = Scheduler(ScheduleSettings())
    worker = worker_at_rest(scheduler)
    one, two = entry("a/one").spec, entry("a/two").spec
    await worker.obey(AssignRepos((one,), more=True))
    worker._shelf.drop([one.key])
    await worker.obey(AssignRepos((two,)))
    assert (one.key in scheduler, two.key in scheduler) == (False, True)
