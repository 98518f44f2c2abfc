"""A worker with very many repos: its mind alone, in a process of its own, and its whole engine.

Of repos that are polled and do not change the engine opens no mirror: so there are none but the first.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import Stopwatch
from bench.worlds.many_repos import spec_of
from bench.worlds.product import Product, worker_on
from bench.worlds.product import spec_of as spec_at
from bench.worlds.server import GitServer
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.store.collector import collector_paused
from evermirror.edge.store.local import LocalState
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import AssignRepos, Failed, Synced
from evermirror.model.repo import RepoKey

SCANS = 3  # looks through everything: each takes as long as many polls
IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class Mind:
    """What a worker has in memory, in a process of its own."""

    load_us: float  # of each repo, from its file
    add_us: float
    bytes_each: float
    poll_us: tuple[float, ...]  # taken and ended, in the queue
    scan_us: float  # the smallest looked for among all


def _rss_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) * 1024


def mind(file: str, n: int, rounds: int, polls: int) -> Mind:
    before = _rss_bytes()
    started = time.process_time()
    memories = asyncio.run(_memories(Path(file)))
    load_s = time.process_time() - started
    specs = {(spec := spec_of(i)).key: spec for i in range(n)}
    now = time.time()
    scheduler = Scheduler(ScheduleSettings(min_gap_s=0.0, host_rate=None))
    started = time.process_time()
    with collector_paused():  # as at a worker's start
        scheduler.add([Entry(specs[m.key], m) for m in memories], now)
    add_s = time.process_time() - started
    grown = _rss_bytes() - before
    poll_us = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(polls):
            now += 0.01
            key = scheduler.take(now)
            assert key is not None
            scheduler.polled(key, now)
        poll_us.append((time.process_time() - started) / polls * 1e6)
    last = {m.key: m.last_poll_at for m in memories}
    started = time.process_time()
    for _ in range(SCANS):
        last[min(last, key=last.__getitem__)] = now
    scan_us = (time.process_time() - started) / SCANS * 1e6
    return Mind(load_s / n * 1e6, add_s / n * 1e6, grown / n, tuple(poll_us), scan_us)


async def _memories(file: Path) -> list[RepoMemory]:
    local = await LocalState.open(file)
    try:
        return await local.load()
    finally:
        await local.close()


# A worker's engine


class Claimed(Mirrors):
    """Mirrors that are said to be there: of an unchanged upstream nobody opens one."""

    claimed: tuple[RepoKey, ...] = ()

    async def held(self) -> list[RepoKey]:
        return list(self.claimed)


async def know(server: GitServer, like: Path, n: int, folder: Path) -> tuple[Product, Path]:
    """A product that has ``n`` repos which look like the one that is remembered in ``like``."""
    (first,) = await _memories(like)
    product, file = Product.wire(server, folder / str(n)), folder / f"{n}.db"
    mirrors = Claimed(folder / str(n) / "mirrors", product.git)
    mirrors.claimed = keys = tuple(spec_at(server, f"team/repo-{i}").key for i in range(n))
    local = await LocalState.open(file)
    then = first.last_poll_at
    await local.save([RepoMemory(k, first.activity, then, then, first.digest, first.mark) for k in keys])
    await local.close()
    return replace(product, mirrors=mirrors), file


async def polls_ms(
    server: GitServer, product: Product, n: int, file: Path, polls: int, rounds: int
) -> list[float]:
    """CPU of a poll, once the worker is under way; so often."""
    settings = ScheduleSettings(
        min_gap_s=0.0, host_rate=None, host_connections=IN_FLIGHT, polls_in_flight=IN_FLIGHT
    )
    async with worker_on(product, settings, file) as (worker, port):
        await port.command(AssignRepos(tuple(spec_at(server, f"team/repo-{i}") for i in range(n))))

        async def until(count: int) -> None:
            while worker.status().polls_total < count:
                report = await port.next_report()
                if isinstance(report, Failed | Synced):
                    raise AssertionError(f"{report.key} changed or failed under the benchmark")

        await until(polls // 10)
        taken = []
        for _ in range(rounds):
            before = worker.status().polls_total
            with Stopwatch() as watch:
                await until(before + polls)
            taken.append(watch.cost.per(worker.status().polls_total - before).cpu_s * 1000)
        return taken
