"""Very many workers in one process: real streams, tokens and frames, and no mirror behind them.

Each says hello, tells what it holds, sends heartbeats, and does what it is told as if that took no time; when
which command came is noted. The process is another one than the coordinator's: it is in nobody's figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import httpx2

from bench.worlds.coordinator_process import ADMIN, CoordinatorProcess, held_by, worker_token
from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.transport import Connection, PeerGone
from evermirror.model.activity import Activity
from evermirror.model.messages import (
    AssignRepos,
    Command,
    HeldRepo,
    Released,
    ReleaseRepos,
    Report,
    Synced,
    SyncNow,
    WorkerStatus,
)
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import RepoKey
from evermirror.model.wire import PROTOCOL, Beat, Compare, Hello, Numbered, Obeyed, Ordered, Welcomed
from evermirror.nodes.worker.uplink_held import holding

DIALLED_AT_ONCE = 50
QUIET_S = 1.5  # without a command: all that followed from joining is over
JOIN_S = 240.0  # the longest that joining may take
ANSWER_S = 30.0  # the longest that a command may take
DIGEST = RefsDigest("a5" * 32)
GENERATION = 1  # of the reports' numbers


@dataclass(frozen=True, slots=True)
class Joined:
    """How it was when everybody was there and nothing more followed."""

    took_s: float
    commands: int
    repos: int  # that were assigned in them


@dataclass(frozen=True, slots=True)
class Place:
    """Where the coordinator is, for a process that knows nothing else."""

    database: Path
    grpc_port: int
    http_port: int
    ca_pem: bytes


@dataclass(slots=True)
class _Notes:
    """What came, over all workers; times are UTC seconds, as those of files are."""

    commands: int = 0
    repos: int = 0
    last_at: float = 0.0
    assigned: dict[RepoKey, float] = field(default_factory=dict)
    wanted: frozenset[RepoKey] = frozenset()  # whose assignments are noted
    asked: dict[RepoKey, asyncio.Future[float]] = field(default_factory=dict)

    def take(self, ordered: Ordered) -> None:
        self.last_at = time.time()
        self.commands += 1
        match ordered.command:
            case AssignRepos(repos=repos):
                self.repos += len(repos)
                for spec in repos if self.wanted else ():
                    if spec.key in self.wanted:
                        self.assigned.setdefault(spec.key, self.last_at)
            case SyncNow(key=key):
                waiting = self.asked.pop(key, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(time.perf_counter())


class _Worker:
    def __init__(self, number: int, keys: list[str], notes: _Notes) -> None:
        self._number = number
        self._held = {RepoKey(key): HeldRepo(RepoKey(key), DIGEST, time.time()) for key in keys}
        self._notes = notes
        self._reports = 0

    async def join(self, place: Place) -> list[asyncio.Task[None]]:
        """Dialled, welcomed, and all told that it holds; what goes on from there is in the tasks."""
        token = worker_token(self._number)
        connection = await GrpcDialer(f"127.0.0.1:{place.grpc_port}", token, ca_pem=place.ca_pem).dial()
        await connection.send(Hello(PROTOCOL, "1", f"worker-{self._number}", boot=1, generation=GENERATION))
        welcomed = await connection.receive()
        if not isinstance(welcomed, Welcomed) or welcomed.worker != self._number:
            raise RuntimeError(f"worker {self._number} was told {welcomed}")
        for frame in holding(list(self._held.values())):
            await connection.send(frame)
        listening = asyncio.create_task(self._listen(connection))
        return [listening, asyncio.create_task(self._beat(connection, welcomed.heartbeat_s))]

    async def _listen(self, connection: Connection) -> None:
        while True:
            match frame := await connection.receive():
                case Ordered():
                    self._notes.take(frame)
                    await connection.send(Obeyed(frame.seq))
                    if reports := self._done(frame.command):
                        await connection.send(Numbered(GENERATION, self._reports + 1, reports))
                        self._reports += len(reports)
                case Compare():
                    await connection.send(Obeyed(frame.seq))

    def _done(self, command: Command) -> tuple[Report, ...]:
        """What there is to be told of a command that was carried out."""
        now = time.time()
        match command:
            case AssignRepos(repos=repos):
                new = [spec.key for spec in repos if spec.key not in self._held]
                self._held |= {key: HeldRepo(key, DIGEST, now) for key in new}
                return tuple(_cloned(key, now) for key in new)
            case ReleaseRepos(keys=keys, delete=True):
                for key in keys:
                    self._held.pop(key, None)
                return (Released(keys),)
            case _:
                return ()

    async def _beat(self, connection: Connection, gap_s: float) -> None:
        await asyncio.sleep(self._number * 0.618 % 1 * gap_s)  # evenly over the gap
        while True:
            await connection.send(Beat(self._status()))
            await asyncio.sleep(gap_s)

    def _status(self) -> WorkerStatus:
        repos = len(self._held)
        return WorkerStatus(
            repos, 10**6, 3.5, 10**4, 10**9, (), 0, (), 10**12, 2 * 10**12, True, (), time.time()
        )


def _cloned(key: RepoKey, now: float) -> Synced:
    return Synced(key, (), DIGEST, None, 1, (), 0, 0, 0, 0, True, now, now, now, Activity())


class _Crowd:
    """The process's side: does what the pipe says, one thing after another."""

    def __init__(self, place: Place, workers: int) -> None:
        self._place = place
        self._workers = workers
        self._notes = _Notes()
        self._living: list[asyncio.Task[None]] = []

    async def run(self, pipe: Pipe) -> None:
        pipe.send(await self._join())
        try:
            while (asked := await asyncio.to_thread(pipe.recv)) is not None:
                what, argument = asked
                broken = [task for task in self._living if task.done()]
                if broken:
                    raise RuntimeError(f"{len(broken)} connections ended: {broken[0].exception()!r}")
                pipe.send(await getattr(self, what)(argument))
        finally:
            for task in self._living:
                task.cancel()
            await asyncio.gather(*self._living, return_exceptions=True)

    async def _join(self) -> Joined:
        held = held_by(self._place.database)
        everybody = [_Worker(n, held.get(n, []), self._notes) for n in range(self._workers)]
        began = self._notes.last_at = time.time()
        for first in range(0, self._workers, DIALLED_AT_ONCE):
            some = everybody[first : first + DIALLED_AT_ONCE]
            for tasks in await asyncio.gather(*[worker.join(self._place) for worker in some]):
                self._living += tasks
        async with asyncio.timeout(JOIN_S):
            while time.time() < self._notes.last_at + QUIET_S:
                await asyncio.sleep(0.1)
        return Joined(self._notes.last_at - began, self._notes.commands, self._notes.repos)

    async def watch(self, keys: frozenset[RepoKey]) -> None:
        self._notes.wanted, self._notes.assigned = keys, {}

    async def assigned(self, _: None) -> dict[RepoKey, float]:
        """When each of the watched repos was assigned to somebody; waits until all are."""
        async with asyncio.timeout(ANSWER_S):
            while len(self._notes.assigned) < len(self._notes.wanted):
                await asyncio.sleep(0.02)
        return self._notes.assigned

    async def ask(self, keys: list[RepoKey]) -> list[float]:
        """Milliseconds from asking for a sync over HTTP until its worker has the command, one by one."""
        base = f"http://127.0.0.1:{self._place.http_port}"
        took_ms = []
        async with httpx2.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {ADMIN}"}) as client:
            for key in keys:
                arrived = self._notes.asked[key] = asyncio.get_running_loop().create_future()
                began = time.perf_counter()
                answer = await client.post("/api/tasks", json={"git_url": key})
                answer.raise_for_status()
                took_ms.append((await asyncio.wait_for(arrived, ANSWER_S) - began) * 1000)
                await asyncio.sleep(0.02)
        return took_ms


def _main(place: Place, workers: int, pipe: Pipe) -> None:
    more_files()
    with contextlib.suppress(PeerGone):
        asyncio.run(_Crowd(place, workers).run(pipe))


def more_files() -> None:
    """A connection each: this process, and those that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Crowd:
    """The measuring process's handle."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def _ask(self, what: str, argument: object = None) -> Any:
        self._pipe.send((what, argument))
        return self._pipe.recv()

    def watch(self, keys: frozenset[RepoKey]) -> None:
        self._ask("watch", keys)

    def assigned(self) -> dict[RepoKey, float]:
        found: dict[RepoKey, float] = self._ask("assigned")
        return found

    def latencies_ms(self, keys: list[RepoKey]) -> list[float]:
        found: list[float] = self._ask("ask", keys)
        return found


@contextlib.contextmanager
def crowd(coordinator: CoordinatorProcess, workers: int) -> Iterator[tuple[Crowd, Joined]]:
    """So many workers are connected, and quiet, as long as the block lasts."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    place = Place(coordinator.database, coordinator.grpc_port, coordinator.http_port, coordinator.ca_pem)
    child = spawn.Process(target=_main, args=(place, workers, theirs), daemon=True)
    child.start()
    theirs.close()  # so that its end is seen here
    try:
        yield Crowd(ours), ours.recv()
    finally:
        with contextlib.suppress(OSError):
            ours.send(None)
        child.join(30)
        if child.is_alive():
            child.kill()
            child.join()
