"""A playground of small upstreams: real repositories behind a real git server, pushed to now and then.

It is what ``make run`` mirrors when no catalog is given, so that a newcomer sees everything work without
reaching for the network. Nothing of the mirroring knows that its upstreams are ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from evermirror.config import Config
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import GitSettings
from evermirror.edge.git.serve import GitServer
from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import FailureError
from evermirror.model.source import CatalogSource
from evermirror.nodes import lifecycle
from evermirror.nodes.http_server import serving
from evermirror.nodes.supervisor import Supervisor

log = structlog.get_logger(__name__)

PUSH_EVERY_S = (8.0, 25.0)  # uniform between; often enough to be seen moving, rare enough to read along
PORT = 8418  # beside the API's; part of the upstreams' keys, so it stays the same
MIN_GAP_S = 5.0  # nobody is bothered by us looking often here, and a push shows soon
BRANCH = "refs/heads/main"

# name, how many commits it starts with
REPOS = (
    ("gardening/tomatoes", 12),
    ("gardening/greenhouse-controller", 40),
    ("kitchen/sourdough", 5),
    ("maps/footpaths", 120),
    ("music/metronome", 1),
    ("notes/tide-tables", 25),
)

_SUBJECTS = (
    "Water earlier in the morning",
    "Round to whole minutes",
    "Say why, not what",
    "Fix the north wall",
    "Fewer steps",
    "Add a table for winter",
    "Spell it right",
    "Measure twice",
)


@dataclass(frozen=True, slots=True)
class Playground:
    """Bare repositories below ``root``; ``git`` is the same guarded git that mirrors use."""

    root: Path
    git: Git
    chance: random.Random

    def path(self, name: str) -> Path:
        return self.root / f"{name}.git"

    def list_file(self, base_url: str) -> Path:
        """Writes the catalog that lists every upstream here."""
        file = self.root / "catalog.txt"
        lines = [
            "# The playground's upstreams; made anew at each start.",
            *(f"{base_url}/{n}.git" for n, _ in REPOS),
        ]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file

    async def prepare(self) -> None:
        """Makes the repositories that are not there yet."""
        for name, commits in REPOS:
            path = self.path(name)
            if path.exists():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            await self.git.run(["init", "--quiet", "--bare", "--initial-branch=main", str(path)])
            start = time.time() - commits * 7200
            await self._import(path, [start + i * 7200 for i in range(commits)], first=True)

    async def keep_pushing(self) -> None:
        """Pushes a commit to one of the upstreams now and then, until cancelled."""
        while True:
            await asyncio.sleep(self.chance.uniform(*PUSH_EVERY_S))
            name, _ = self.chance.choice(REPOS)
            try:
                await self.push(name)
            except FailureError as error:
                log.warning("playground not pushed", upstream=name, reason=error.failure.message)
            else:
                log.info("playground pushed", upstream=name)

    async def push(self, name: str) -> None:
        """One new commit on the main branch of ``name``."""
        await self._import(self.path(name), [time.time()], first=False)

    async def _import(self, path: Path, times: list[float], *, first: bool) -> None:
        stream: list[bytes] = []
        for number, when in enumerate(times):
            subject = self.chance.choice(_SUBJECTS).encode()
            body = b"%d: %s\n" % (int(when), subject)
            stream.append(
                b"commit %s\ncommitter A Gardener <gardener@example.org> %d +0000\n"
                % (BRANCH.encode(), int(when))
            )
            stream.append(b"data %d\n%s\n" % (len(subject), subject))
            if number == 0 and not first:
                stream.append(b"from %s^0\n" % BRANCH.encode())
            stream.append(b"M 100644 inline log/%d.txt\ndata %d\n%s\n" % (int(when) % 50, len(body), body))
        await self.git.run(["fast-import", "--quiet"], repo=path, stdin=b"".join(stream))


@contextlib.asynccontextmanager
async def playground_running(config: Config) -> AsyncIterator[Callable[[Config], Config]]:
    """Upstreams on a loopback port of their own; yields what changes settings so that they are mirrored."""
    root = config.data.dir / "playground"
    root.mkdir(parents=True, exist_ok=True)
    git = Git(GitSettings(data_dir=root, binary=config.git.binary))
    playground = Playground(root, git, random.Random())  # noqa: S311 - chooses which upstream is pushed to
    await playground.prepare()
    sock = _bind()
    address = f"127.0.0.1:{sock.getsockname()[1]}"
    pushing = Supervisor().running("playground", playground.keep_pushing)
    async with serving(_upstreams(playground), sock), pushing:
        catalog = playground.list_file(f"http://{address}")
        yield lambda settings: _mirroring(settings, catalog, address)


def _bind() -> socket.socket:
    try:
        return lifecycle.bind(f"127.0.0.1:{PORT}")
    except EnvironmentUnfit:
        return lifecycle.bind("127.0.0.1:0")  # taken: any other does, at the price of new keys


def _mirroring(config: Config, catalog: Path, address: str) -> Config:
    upstreams, schedule = config.upstreams, config.schedule
    return config.model_copy(
        update={
            "catalog": config.catalog.model_copy(
                update={"sources": (*config.catalog.sources, CatalogSource(str(catalog)))}
            ),
            "upstreams": upstreams.model_copy(
                update={"schemes": (*upstreams.schemes, "http"), "allow": (*upstreams.allow, address)}
            ),
            "schedule": schedule.model_copy(update={"min_gap": min(schedule.min_gap, MIN_GAP_S)}),
        }
    )


def _upstreams(playground: Playground) -> ASGIApp:
    """A read-only git server for the playground's repositories, over the same code that serves mirrors."""
    server = GitServer(playground.git)
    names = {f"/{name}.git": playground.path(name) for name, _ in REPOS}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        base, _, what = request.url.path.rpartition("/")
        repo = names.get(base.removesuffix("/info"))
        protocol = request.headers.get("git-protocol", "")
        if repo is None or what not in ("refs", "git-upload-pack"):
            answer: Response = Response("no such upstream\n", 404)
        elif what == "refs":
            answer = StreamingResponse(
                server.advertise(repo, protocol), media_type="application/x-git-upload-pack-advertisement"
            )
        else:
            gzipped = request.headers.get("content-encoding", "") == "gzip"
            body = await request.body()  # small: what a fetch of these wants and has
            answer = StreamingResponse(
                server.upload_pack(repo, _once(body), protocol, gzipped=gzipped),
                media_type="application/x-git-upload-pack-result",
            )
        await answer(scope, receive, send)

    return app


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
