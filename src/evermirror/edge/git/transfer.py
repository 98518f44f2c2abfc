"""Brings objects from upstream into a repository's staging: at once, or, where that broke, in steps.

git cannot resume a pack: a clone that breaks at 90 % has brought nothing. In steps, each step's pack stays:

    default branch at depth 1 ─▶ 10 ─▶ 100 ─▶ … ─▶ whole ─▶ the other tips, in batches
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from evermirror.edge.git import folder
from evermirror.edge.git.answers import dumb
from evermirror.edge.git.classify import CAUSE, UPSTREAM_MOVED
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import DURABLE_OBJECTS_ONLY, Remote
from evermirror.edge.git.progress import GitProgress, ProgressReader
from evermirror.edge.git.refs import STAGING, staging_refspecs, with_real_head
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import Oid, RefSnapshot

DEPTHS = (1, 10, 100, 1_000, 10_000, 100_000)  # then all of it
TIPS_PER_STEP = 500  # most tips share nearly all of their history with the default branch
STEP_FILE = (
    "evermirror-steps"  # in an incoming folder: it is fetched in steps; holds the last depth that arrived
)

ROUNDS_MAX = 3  # looks at an upstream that moves while we fetch; the next poll comes soon anyway

OnProgress = Callable[[GitProgress], None]
Reprobe = Callable[[], Awaitable[RefSnapshot]]

FETCH = (
    "fetch",
    "--progress",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-show-forced-updates",
    "--no-recurse-submodules",
    "--no-prune",
    "--stdin",
)


@dataclass(slots=True)
class Transfer:
    """One sync's work with upstream: where it goes, and what it has cost so far."""

    git: Git
    repo: Path
    remote: Remote
    lock_fd: int
    on_progress: OnProgress | None = None
    bytes_max: int | None = None  # of the whole repository
    bytes_before: int = 0  # already here
    received_bytes: int = 0
    phases_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time spent, by name."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - started

    async def fetch(self, wants: Iterable[Oid], *options: str) -> None:
        """Bring these tips, and all that they need, into staging. git checks that nothing is missing.

        git also checks each object, but in the smart protocol only, and it falls back to the dumb one
        where upstream answers so: what came without passing through index-pack is thrown away."""
        wants = frozenset(wants)
        before = folder.object_files(self.repo)
        reader = ProgressReader()
        try:
            await self._fetch(wants, options, reader)
        finally:
            unchecked = set() if reader.indexed else folder.object_files(self.repo) - before
            folder.remove_files(unchecked)  # first: staged refs to nothing are noticed, unchecked objects not
        if unchecked:
            staged = "".join(f"delete {STAGING}{oid}\n" for oid in sorted(wants))
            await self.git.run(["update-ref", "--stdin"], repo=self.repo, stdin=staged.encode("ascii"))
            raise FailureError(dumb())

    async def _fetch(self, wants: frozenset[Oid], options: tuple[str, ...], reader: ProgressReader) -> None:
        received_before = self.received_bytes

        def listen(data: bytes) -> None:
            steps = reader.feed(data)
            self.received_bytes = received_before + reader.received_bytes
            if self.bytes_max is not None and self.bytes_before + self.received_bytes > self.bytes_max:
                raise FailureError(too_large(self.bytes_max))
            if steps and self.on_progress is not None:
                last = steps[-1]
                self.on_progress(GitProgress(last.phase, last.percent, self.received_bytes))

        with self.phase("fetch"):
            await self.git.run(
                [*FETCH, *options, "--end-of-options", self.remote.url],
                repo=self.repo,
                remote=self.remote,
                stdin=staging_refspecs(wants),
                config=(DURABLE_OBJECTS_ONLY,),  # staging refs may be lost: they are fetched again
                on_stderr=listen,
                no_progress_s=self.git.settings.no_progress_s,
                keep_fds=(self.lock_fd,),
            )

    async def fetch_in_steps(self, seen: RefSnapshot, staged: frozenset[Oid]) -> None:
        """Bring all tips of ``seen``, going on from what earlier attempts left in the repository."""
        first = seen.head_oid or min(seen.refs.values())
        if first not in staged or self._shallow:
            await self._deepen(first)
        rest = iter(sorted(set(seen.refs.values()) - staged - {first}))
        while batch := list(islice(rest, TIPS_PER_STEP)):
            await self.fetch(batch)

    async def _deepen(self, tip: Oid) -> None:
        arrived = read_step(self.repo) or 0
        for depth in DEPTHS:
            if depth > arrived:
                await self.fetch([tip], f"--depth={depth}")
                write_step(self.repo, depth)
                if not self._shallow:
                    return
        await self.fetch([tip], *(["--unshallow"] if self._shallow else []))

    @property
    def _shallow(self) -> bool:
        return (self.repo / "shallow").exists()


def read_step(repo: Path) -> int | None:
    """The depth that arrived; None where ``repo`` is not fetched in steps."""
    try:
        return int((repo / STEP_FILE).read_text() or "0")
    except (FileNotFoundError, ValueError):
        return None


def write_step(repo: Path, depth: int) -> None:
    (repo / STEP_FILE).write_text(str(depth))


def too_large(bytes_max: int) -> Failure:
    return Failure(
        FailureKind.UNKNOWN,
        f"larger than upstreams.max_repo_size ({bytes_max} bytes)",
        hint="raise upstreams.max_repo_size, or remove the repo",
    )


async def follow(
    work: Callable[[RefSnapshot], Awaitable[None]], seen: RefSnapshot, reprobe: Reprobe
) -> RefSnapshot:
    """Do ``work`` for ``seen``; where upstream has moved on, look again. Returns what it was done for."""
    for attempt in range(1, ROUNDS_MAX + 1):
        seen = with_real_head(seen)
        try:
            await work(seen)
            break
        except FailureError as error:
            if error.failure.context.get(CAUSE) != UPSTREAM_MOVED or attempt == ROUNDS_MAX:
                raise
            seen = await reprobe()
    return seen
