"""A coordinator's seals, a real relay with TLS, real workers' lines and git behind them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from evermirror.edge.git.command import Git
from evermirror.edge.git.credentials import Credentials
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.serve import GitServer, ServerBusy, ServeSettings
from evermirror.edge.relay.ask import Ask
from evermirror.edge.relay.asking import AskingLines
from evermirror.edge.relay.certificate import RelayCertificate, own_certificate
from evermirror.edge.relay.limits import AskingLimits, LineLimits, RelayLimits, ServingLimits
from evermirror.edge.relay.seal import Sealer, Unsealer, new_private_key
from evermirror.edge.relay.server import RelayServer
from evermirror.edge.relay.serving import Busy, NotHere, ServingLines
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, Pass, RelayAddress, Source, Ticket
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Access
from tests.support.gitrepo import clean_git_env

KEY = RepoKey("example.com/a/x")
HOLDER = NodeId("worker/1")
OTHER = NodeId("worker/2")
READER = NodeId("aggregator/9")
WAIT_S = 20.0
QUICK = LineLimits(hello_s=2.0, ping_s=0.1, quiet_s=0.5, silence_s=1.0, request_bytes_max=3_000_000)


@dataclass
class Fleet:
    """What a coordinator and one relay are; everybody else is made from it."""

    folder: Path
    limits: RelayLimits = field(default_factory=RelayLimits)

    def __post_init__(self):
        self.sealer = Sealer(new_private_key())
        self.unsealer = Unsealer(self.sealer.public_key)
        self.certificate: RelayCertificate = own_certificate(self.folder / "relay")
        self.port = 0
        self.relay: RelayServer

    @contextlib.asynccontextmanager
    async def relaying(self) -> AsyncIterator[RelayServer]:
        """A relay; one after another listens on the same port."""
        async with RelayServer(
            ("127.0.0.1", self.port), self.certificate, lambda: self.unsealer, self.limits
        ) as relay:
            self.relay, self.port = relay, relay.port
            yield relay

    def pass_(self, node=READER, role=Role.AGGREGATOR, lives_s=3600.0, *, trusted=False) -> str:
        return self.sealer.seal(Pass(node, role, time.time() + lives_s, trusted))

    def ticket(self, bearer=OTHER, holder=HOLDER, key=KEY, lives_s=3600.0, *, trusted=False) -> str:
        return self.sealer.seal(Ticket(bearer, holder, key, time.time() + lives_s, trusted))

    @property
    def address(self) -> RelayAddress:
        return RelayAddress(f"127.0.0.1:{self.port}", self.certificate.fingerprint)

    def access(self, node=HOLDER, role=Role.WORKER, lives_s=3600.0) -> Access:
        relays = (self.address,)
        return Access(
            node,
            self.pass_(node, role, lives_s),
            time.time() + lives_s,
            self.sealer.public_key,
            relays,
        )

    @contextlib.asynccontextmanager
    async def serving(self, service, *, node=HOLDER, limits=None, access=None) -> AsyncIterator[ServingLines]:
        """A worker with its lines; inside the block it can be reached."""
        limits = limits or ServingLimits(pause_first_s=0.05, pause_last_s=0.2, line=self.limits.line)
        lines = ServingLines(service, limits, chance=random.Random(1))
        lines.set_access(access or self.access(node))
        work = asyncio.create_task(lines.run())
        try:
            await until(lambda: self.relay.reachable(node))
            yield lines
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def asking(self, *relays) -> AsyncIterator[AskingLines]:
        lines = AskingLines(AskingLimits(line=self.limits.line))
        access = self.access(OTHER)
        lines.set_access(replace(access, relays=relays) if relays else access)
        try:
            yield lines
        finally:
            lines.close()

    def ask(self, service="refs", *, key=KEY, holder=HOLDER, pass_=None, ticket="", protocol="version=2"):
        return Ask(key, holder, service, protocol, self.pass_() if pass_ is None else pass_, ticket)

    def ask_of_worker(self, service="refs", **more):
        return self.ask(service, pass_=self.pass_(OTHER, Role.WORKER), ticket=self.ticket(), **more)

    def source(self, **more) -> Source:
        return Source(KEY, HOLDER, **more)


class GitService:
    """What a worker's node does: finds the folder, and lets git answer."""

    def __init__(self, server: GitServer, folders: dict[RepoKey, Path]) -> None:
        self._server = server
        self.folders = folders
        self.requests = []

    async def handle(self, request, body):
        self.requests.append(request)
        folder = self.folders.get(request.key)
        if folder is None:
            raise NotHere("not mirrored here")
        if request.service == "refs":
            pieces = self._server.advertise(folder, request.protocol, client=request.reader)
        else:
            pieces = self._server.upload_pack(folder, body, request.protocol, client=request.reader)
        async with contextlib.aclosing(pieces):
            try:
                async for piece in pieces:
                    yield piece
            except ServerBusy as busy:
                raise Busy(busy.retry_after_s) from None


class Scripted:
    """A worker that answers as the test says; ``script`` takes the request and its body."""

    def __init__(self, script) -> None:
        self._script = script
        self.requests = []
        self.closed = 0

    async def handle(self, request, body):
        self.requests.append(request)
        try:
            async with contextlib.aclosing(self._script(request, body)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self.closed += 1


def git_of(folder: Path) -> Git:
    return Git(GitSettings(folder / "git", schemes=frozenset({"http"})), Credentials())


def git_server(folder: Path, **settings) -> GitServer:
    return GitServer(git_of(folder), ServeSettings(**settings))


async def gather(pieces) -> bytes:
    return b"".join([piece async for piece in pieces])


async def body_of(*pieces):
    for piece in pieces:
        yield piece


async def until(true, wait_s=WAIT_S):
    end = time.monotonic() + wait_s
    while not true():
        assert time.monotonic() < end, "it never became so"
        await asyncio.sleep(0.01)


async def run_git_client(folder: Path, *args, fine=True) -> str:
    process = await asyncio.create_subprocess_exec(
        "git",
        *args,
        env=clean_git_env(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if fine:
        assert process.returncode == 0, err.decode()
        return out.decode()
    assert process.returncode != 0
    return err.decode()
