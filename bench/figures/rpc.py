"""What workers cost their coordinator over gRPC with TLS: a stream each, against a call for each heartbeat.

Two hundred with a heartbeat each second send as many as a thousand do by fleet.heartbeat, which is 5 s;
what one of them costs is the same. A thousand are figures/coordinator.py's.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import random
import resource
import statistics
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import grpc
from grpc import aio

from bench.measure import Bench, Context, Line, Sense
from evermirror.edge.rpc.auth import bearer_token
from evermirror.edge.rpc.certificates import server_credentials
from evermirror.edge.rpc.client import GrpcDialer
from evermirror.edge.rpc.convert import down_of_bytes, down_to_bytes, up_of_bytes, up_to_bytes
from evermirror.edge.rpc.limits import RpcLimits, client_options, server_options
from evermirror.edge.rpc.pki import OwnCa, make_ca
from evermirror.edge.rpc.server import GrpcServer
from evermirror.edge.rpc.transport import Identity, Peer, PeerGone
from evermirror.model.access import Role
from evermirror.model.messages import LookAt, WorkerStatus
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Beat, Hello, Obeyed, Ordered, Taken

WORKERS, PERIOD_S, BEATS = 200, 1.0, 2
DIALLED_AT_ONCE = 50
METHOD = "/bench.Fleet/Beat"
LOOK = LookAt((RepoKey("example.org/team/project"),))


@dataclass(frozen=True, slots=True)
class Load:
    """How many workers send how many heartbeats, how far apart."""

    workers: int
    rounds: int
    period_s: float
    commands: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One side's costs, all of the server's process."""

    rss_mb: float
    beat_us: float
    latency_ms: float


def _status() -> WorkerStatus:
    return WorkerStatus(
        1000, 10**6, 3.5, 10**4, 10**9, (), 0, (), 10**12, 2 * 10**12, True, (), 1_700_000_000.0
    )


def _token(worker: int) -> str:
    return f"em_worker_{worker:06d}"


class Fleet:
    """The server's side of the measurement, whichever way beats come in: counts them, and times commands."""

    def __init__(self, workers: int) -> None:
        self._ids = {hashlib.sha256(_token(n).encode()).digest(): n for n in range(workers)}
        self.beats = 0
        self.greeted = asyncio.Semaphore(0)
        self.sent_at: dict[int, float] = {}
        self.latencies_ms: list[float] = []

    async def authenticate(self, token: str) -> Identity | None:
        worker = self._ids.get(hashlib.sha256(token.encode()).digest())
        return None if worker is None else Identity(worker, str(worker), Role.WORKER, trusted=False)

    def heard(self, worker: int, frame: object) -> None:
        match frame:
            case Beat():
                self.beats += 1
            case Hello():
                self.greeted.release()
            case Obeyed():
                self.latencies_ms.append((time.perf_counter() - self.sent_at.pop(worker)) * 1000)


Command = Callable[[int], Awaitable[None]]
Serving = Callable[[OwnCa, Fleet], AbstractAsyncContextManager[tuple[int, Command]]]


@asynccontextmanager
async def _streams(ca: OwnCa, fleet: Fleet):  # type: ignore[no-untyped-def]
    peers: dict[int, Peer] = {}

    async def accept(peer: Peer) -> None:
        worker = peer.identity.token_id
        peers[worker] = peer
        try:
            while True:
                fleet.heard(worker, await peer.receive())
        except PeerGone:
            pass

    async def command(worker: int) -> None:
        await peers[worker].send(Ordered(1, LOOK))

    async with GrpcServer(
        "127.0.0.1:0", tls=ca.tls, authenticate=fleet.authenticate, accept=accept
    ) as server:
        yield server.port, command


@asynccontextmanager
async def _calls(ca: OwnCa, fleet: Fleet):  # type: ignore[no-untyped-def]
    """Commands ride on the answer to the next heartbeat."""
    nothing, order = down_to_bytes(Taken(1, 1)), down_to_bytes(Ordered(1, LOOK))

    async def beat(raw: bytes, context: aio.ServicerContext[bytes, bytes]) -> bytes:
        identity = await fleet.authenticate(bearer_token(context.invocation_metadata() or ()) or "")  # type: ignore[arg-type]
        if identity is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED)
        fleet.heard(identity.token_id, up_of_bytes(raw))
        return order if identity.token_id in fleet.sent_at else nothing

    async def command(_: int) -> None:
        """The worker finds it by itself."""

    server = aio.server(options=[*server_options(RpcLimits()), ("grpc.max_connection_idle_ms", 3_600_000)])
    methods = {"Beat": grpc.unary_unary_rpc_method_handler(beat)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Fleet", methods),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(ca.tls))
    await server.start()
    yield port, command
    await server.stop(0)


async def _stream_worker(worker: int, port: int, ca_pem: bytes) -> Callable[[Load], Awaitable[None]]:
    connection = await GrpcDialer(f"127.0.0.1:{port}", _token(worker), ca_pem=ca_pem).dial()
    await connection.send(Hello(1, "1", str(worker), 1, 1))

    async def obey() -> None:
        try:
            while True:
                await connection.receive()
                await connection.send(Obeyed(1))
        except PeerGone:
            pass

    obeying = asyncio.create_task(obey())

    async def live(load: Load) -> None:
        await asyncio.sleep(worker / load.workers * load.period_s)
        for _ in range(load.rounds):
            await connection.send(Beat(_status()))
            await asyncio.sleep(load.period_s)
        obeying.cancel()

    return live


async def _call_worker(worker: int, port: int, ca_pem: bytes) -> Callable[[Load], Awaitable[None]]:
    credentials = grpc.ssl_channel_credentials(ca_pem)
    channel = aio.secure_channel(f"127.0.0.1:{port}", credentials, options=client_options(RpcLimits(), ""))
    call = channel.unary_unary(METHOD)
    metadata = (("authorization", f"Bearer {_token(worker)}"),)
    await call(up_to_bytes(Hello(1, "1", str(worker), 1, 1)), metadata=metadata)

    async def live(load: Load) -> None:
        await asyncio.sleep(worker / load.workers * load.period_s)
        for _ in range(load.rounds):
            answer = await call(up_to_bytes(Beat(_status())), metadata=metadata)
            if isinstance(down_of_bytes(answer), Ordered):
                await call(up_to_bytes(Obeyed(1)), metadata=metadata)
            await asyncio.sleep(load.period_s)

    return live


def _workers(streams: bool, port: int, ca_pem: bytes, load: Load, pipe: Pipe) -> None:
    """A process with all the workers in it: not in the figures."""
    _more_files()

    async def run() -> None:
        one = _stream_worker if streams else _call_worker
        lives: list[Callable[[Load], Awaitable[None]]] = []
        for begin in range(0, load.workers, DIALLED_AT_ONCE):
            some = range(begin, min(begin + DIALLED_AT_ONCE, load.workers))
            lives += await asyncio.gather(*[one(n, port, ca_pem) for n in some])
        await asyncio.to_thread(pipe.recv)
        await asyncio.gather(*[live(load) for live in lives])

    asyncio.run(run())


def _more_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _rss_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1000


async def _measure(streams: bool, folder: Path, load: Load) -> Figures:
    ca, fleet = make_ca(folder, []), Fleet(load.workers)
    serving: Serving = _streams if streams else _calls
    async with serving(ca, fleet) as (port, command):
        before_mb = _rss_mb()
        ours, theirs = get_context("spawn").Pipe()
        child = get_context("spawn").Process(
            target=_workers, args=(streams, port, ca.ca_pem, load, theirs), daemon=True
        )
        child.start()
        for _ in range(load.workers):
            await fleet.greeted.acquire()
        await asyncio.sleep(0.5)
        rss_mb = _rss_mb() - before_mb
        ours.send("go")
        began_cpu = time.process_time()
        await _commands(fleet, command, load)
        while child.is_alive():
            await asyncio.sleep(0.05)
        cpu_s = time.process_time() - began_cpu
    if child.exitcode or fleet.beats != load.workers * load.rounds:
        raise RuntimeError(f"{fleet.beats} beats of {load.workers} × {load.rounds}, exit {child.exitcode}")
    return Figures(rss_mb, cpu_s / fleet.beats * 1e6, statistics.median(fleet.latencies_ms))


async def _commands(fleet: Fleet, command: Command, load: Load) -> None:
    """Some while the first heartbeats come in, at even times, each to a worker of its own."""
    chosen = random.Random(1).sample(range(load.workers), load.commands)
    for worker in chosen:
        fleet.sent_at[worker] = time.perf_counter()
        await command(worker)
        await asyncio.sleep(load.period_s * (load.rounds - 1) / load.commands)


def _side(streams: bool, folder: Path, load: Load) -> Figures:
    _more_files()
    return asyncio.run(_measure(streams, folder, load))


def _alone(streams: bool, folder: Path, load: Load) -> Figures:
    """Each in a new process: memory that one side left free would not count for the next."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_side, streams, folder, load).result()


def run(context: Context) -> list[Line]:
    period_s = 0.5 if context.quick else PERIOD_S
    load = Load(context.size(WORKERS, 20), BEATS, period_s, context.size(50, 10))
    pairs = [
        (_alone(True, context.folder, load), _alone(False, context.folder, load))
        for _ in range(context.repeats(2))
    ]

    def line(what: str, unit: str, of: Callable[[Figures], float], sense: Sense, goal: float | None) -> Line:
        return Line(what, unit, tuple(of(a) for a, _ in pairs), tuple(of(b) for _, b in pairs), sense, goal)

    return [
        line("a heartbeat, at the server", "µs CPU", lambda f: f.beat_us, Sense.TIMES_LESS, None),
        line(
            f"a command until it is obeyed, a heartbeat each {period_s:g} s",
            "ms wall",
            lambda f: f.latency_ms,
            Sense.TIMES_LESS,
            None,
        ),
        line(f"memory of {load.workers} workers", "MB", lambda f: f.rss_mb, Sense.TIMES_AS_MUCH, None),
    ]


BENCH = Bench(
    "rpc",
    "what workers cost their coordinator: a heartbeat, a command, memory",
    "a unary call for each heartbeat, commands in its answer",
    run,
    takes_s=18,
)
