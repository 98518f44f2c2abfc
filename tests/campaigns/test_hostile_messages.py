"""Hostile workers and an aggregator send whatever the wire can carry to a running coordinator.

On both databases it neither exits nor answers 500, and an honest worker among them loses no report. A slice
runs here; ``HOSTILE_MESSAGES=1000000`` sends as many as that on each database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import httpx2
import pytest
from grpc import aio

from evermirror.edge.rpc.generated import fleet_pb2 as pb
from evermirror.edge.rpc.join import split_join_token
from evermirror.edge.rpc.limits import METHOD
from evermirror.edge.rpc.pki import open_ca
from evermirror.model.wire import PROTOCOL
from tests.support.fleet_processes import FleetProcesses
from tests.support.message_fuzz import AGGREGATOR_FRAMES, WORKER_FRAMES, MessageFuzzer
from tests.support.upstream import UpstreamServer

MESSAGES = int(os.environ.get("HOSTILE_MESSAGES", "20000"))
SECONDS_MAX = 300 + MESSAGES / 100  # far below what a busy machine sends
FRAMES_PER_SESSION = 400  # then it connects anew
HONEST_GAP_S = 0.05  # between two reports of the honest worker
READ_GAP_S = 0.02
WAIT_S = 90.0
PATHS = (
    "/healthz", "/api/overview", "/api/overview/course", "/api/fleet", "/api/git_urls", "/api/alerts",
    "/api/catalog", "/api/pull/report?days=7", "/api/pull/progress/overview", "/metrics", "/api/hooks",
    "/api/pull/errors",
)  # fmt: skip

pytestmark = pytest.mark.timeout(SECONDS_MAX + 300)


@dataclass(slots=True)
class Tally:
    """What was sent, and how the HTTP API answered meanwhile."""

    left: int
    sessions: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


@pytest.fixture(params=["sqlite", "postgresql"])
def fleet(request, tmp_path: Path) -> Iterator[FleetProcesses]:
    settings = {"EVERMIRROR_FLEET__HEARTBEAT": "1s", "EVERMIRROR_FLEET__MIN_WORKERS": "1"}
    if request.param == "postgresql":
        settings["EVERMIRROR_DATABASE__URL"] = request.getfixturevalue("postgres_database")
    with (
        UpstreamServer(tmp_path / "upstream") as server,
        contextlib.closing(FleetProcesses(tmp_path / "fleet", server, settings)) as fleet,
    ):
        fleet.catalog.write_text(
            "".join(f"http://{server.host}/public/r{n}\n" for n in range(20))
            + "".join(f"http://{server.host}/private/r{n} private=true\n" for n in range(20))
        )
        fleet.prepare()
        fleet.lead()
        yield fleet


def test_nothing_that_nodes_send_ends_or_breaks_a_coordinator(fleet: FleetProcesses) -> None:
    tokens = {
        "honest": fleet.token("honest"),
        "stranger-1": fleet.token("stranger-1", trusted=False),
        "stranger-2": fleet.token("stranger-2", trusted=False),
        "aggregator": fleet.token("aggregator", "aggregator"),
    }
    tally = asyncio.run(attack(fleet, tokens))
    assert fleet.coordinator.running, fleet.coordinator.log()[-5000:]
    print(f"{MESSAGES} messages in {tally.sessions} sessions, answers: {dict(tally.statuses)}")
    assert not tally.failed, tally.failed[:5]
    assert not tally.statuses[500]
    assert tally.statuses[200] > len(PATHS)
    log = fleet.coordinator.log()
    assert "Traceback" not in log, log[log.index("Traceback") - 1500 :][:6000]
    assert fleet.coordinator.stop() == 0


async def attack(fleet: FleetProcesses, tokens: dict[str, str]) -> Tally:
    """All at once; ends when the messages are sent and the honest worker's reports are in the database."""
    tally = Tally(left=MESSAGES)
    of_repos = [f"/api/repos/{key}{rest}" for key in keys_of(fleet) for rest in ("", "/-/refs", "/-/holders")]
    honest = HonestWorker(fleet, tokens["honest"])
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        steady = group.create_task(honest.run())
        await honest.has_repos.wait()
        reads = [group.create_task(read_api(fleet, tally, paths)) for paths in (PATHS, of_repos, of_repos)]
        async with asyncio.TaskGroup() as attackers:
            for seed, name in enumerate(("stranger-1", "stranger-2", "aggregator")):
                attackers.create_task(send_hostile(fleet, tokens[name], name, seed, tally))
        honest.enough = True
        await steady
        for read in reads:
            read.cancel()
    private = {key: digest for key, digest in honest.reported.items() if "/private/" in key}
    assert private  # strangers hold the others
    for key, digest in private.items():
        fleet.until(lambda key=key, digest=digest: fleet.get(f"/api/repos/{key}")["digest"] == digest.hex())
    return tally


async def send_hostile(fleet: FleetProcesses, token: str, name: str, seed: int, tally: Tally) -> None:
    """Frames until none are left, in sessions of their own."""
    aggregator = name == "aggregator"
    frames = AGGREGATOR_FRAMES if aggregator else WORKER_FRAMES
    fuzzer = MessageFuzzer(
        seed, frames, keys_of(fleet), ("aggregator/1", "worker/900-1", "worker/2-1794800000123", "x")
    )
    while tally.left > 0:
        tally.sessions += 1
        fuzzer.generation += seed + 1 + (tally.sessions % 7 == 0)  # a new file of reports now and then
        fuzzer.next_report = 1
        async with connected(fleet, token) as call:
            with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(fuzzer.hello(PROTOCOL, 2 if aggregator else 1))
                reading = asyncio.create_task(answer_hostile(call, fuzzer))
                try:
                    if not aggregator:
                        await call.write(fuzzer.holding())
                    for _ in range(FRAMES_PER_SESSION):
                        await call.write(fuzzer.frame())
                        tally.left -= 1
                        if reading.done():
                            break
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)


async def answer_hostile(call: RawStream, fuzzer: MessageFuzzer) -> None:
    """Answers to what the coordinator asks are hostile too. Ends with the connection."""
    async for down in call.frames():
        match down.WhichOneof("frame"):
            case "question":
                await call.write(fuzzer.answer(down.question.number))
            case "ordered":
                await call.write(pb.Up(obeyed=pb.Obeyed(seq=down.ordered.seq)).SerializeToString())
            case "changes":
                await call.write(fuzzer.followed(down.changes.upto))
            case "taken":
                fuzzer.next_report = max(fuzzer.next_report, down.taken.seq + 1)


class HonestWorker:
    """Reports a sync of each of its repos in turn until it is ``enough``; then every report must be taken."""

    def __init__(self, fleet: FleetProcesses, token: str) -> None:
        self._fleet = fleet
        self._token = token
        self._keys: list[str] = []
        self._sent = self._taken = 0
        self.has_repos = asyncio.Event()
        self.enough = False
        self.reported: dict[str, bytes] = {}

    async def run(self) -> None:
        async with connected(self._fleet, self._token) as call:
            hello = pb.Hello(protocol=PROTOCOL, version="1", boot=1, generation=7, weight=1.0, role=1)  # type: ignore[arg-type]
            await call.write(pb.Up(hello=hello).SerializeToString())
            await call.write(pb.Up(holding=pb.Holding(last=True)).SerializeToString())
            reading = asyncio.create_task(self._read(call))
            try:
                while not self.enough or not self.reported:
                    await self._beat(call)
                    await self._report(call)
                    await asyncio.sleep(HONEST_GAP_S)
                end = time.monotonic() + WAIT_S
                while self._taken < self._sent:
                    assert time.monotonic() < end, f"{self._taken} of {self._sent} reports were taken"
                    assert not reading.done(), "the honest worker lost its connection"
                    await asyncio.sleep(HONEST_GAP_S)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, call: RawStream) -> None:
        async for down in call.frames():
            match down.WhichOneof("frame"):
                case "ordered":
                    repos = down.ordered.command.assign_repos.repos
                    self._keys += [r.key for r in repos if r.key not in self._keys]
                    await call.write(pb.Up(obeyed=pb.Obeyed(seq=down.ordered.seq)).SerializeToString())
                case "compare":
                    await call.write(pb.Up(obeyed=pb.Obeyed(seq=down.compare.seq)).SerializeToString())
                case "taken":
                    self._taken = down.taken.seq

    async def _beat(self, call: RawStream) -> None:
        status = pb.WorkerStatus(
            repos=len(self._keys),
            disk_free_bytes=10**12,
            disk_total_bytes=2 * 10**12,
            accepting_clones=True,
            at=time.time(),
        )
        await call.write(pb.Up(beat=pb.Beat(status=status)).SerializeToString())

    async def _report(self, call: RawStream) -> None:
        if not self._keys:
            return
        if any("/private/" in key for key in self.reported):
            self.has_repos.set()
        key = self._keys[self._sent % len(self._keys)]
        self._sent += 1
        digest = self._sent.to_bytes(32, "big")
        now = time.time()
        synced = pb.Synced(
            key=key, digest=digest, refs_count=1, size_bytes=1000, first=key not in self.reported,
            started_at=now, verified_at=now, ended_at=now,
            activity=pb.Activity(counts=[1, 1, 1], as_of=now, last_push_at=now),
        )  # fmt: skip
        self.reported[key] = digest
        numbered = pb.Numbered(generation=7, first=self._sent, reports=[pb.Report(synced=synced)])
        await call.write(pb.Up(numbered=numbered).SerializeToString())


class RawStream:
    """A stream to the coordinator without any of our own client's manners."""

    def __init__(self, call: aio.StreamStreamCall[bytes, bytes]) -> None:
        self._call = call
        self._turn = asyncio.Lock()  # gRPC takes one message at a time

    async def write(self, raw: bytes) -> None:
        async with self._turn:
            await self._call.write(raw)

    async def frames(self) -> AsyncIterator[pb.Down]:
        """Until the connection ends."""
        with contextlib.suppress(aio.AioRpcError):
            while isinstance(raw := await self._call.read(), bytes):
                yield pb.Down.FromString(raw)


@contextlib.asynccontextmanager
async def connected(fleet: FleetProcesses, token: str) -> AsyncIterator[RawStream]:
    secret, _ = split_join_token(token)
    ca = open_ca(fleet.coordinator.data / "pki")
    channel = aio.secure_channel(fleet.address, grpc.ssl_channel_credentials(root_certificates=ca))
    try:
        method: aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(METHOD)
        yield RawStream(method(metadata=(("authorization", f"Bearer {secret}"),)))
    finally:
        await channel.close()


async def read_api(fleet: FleetProcesses, tally: Tally, paths: Sequence[str]) -> None:
    """What people look at, again and again; some of it is asked of the hostile workers."""
    url = f"http://127.0.0.1:{fleet.coordinator.port}"
    headers = dict(fleet.coordinator.client.headers)
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        for path in itertools.cycle(paths):
            answer = await client.get(path)
            tally.statuses[answer.status_code] += 1
            if answer.status_code == 500:
                tally.failed.append(f"{path}: {answer.text[:300]}")
            await asyncio.sleep(READ_GAP_S)


def keys_of(fleet: FleetProcesses) -> list[str]:
    return [line.split("//")[1].split()[0] for line in fleet.catalog.read_text().splitlines()]
