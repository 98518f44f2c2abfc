"""Brings objects from upstream into a repository's staging: at once, or, where that broke, in steps.

git cannot resume a pack: a clone that breaks at 90 % has brought nothing. In steps, each step's pack stays:

    default branch at depth 1 ─▶ 10 ─▶ 100 ─▶ … ─▶ whole ─▶ the other tips, in batches
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import structlog

from evermirror.edge.git import folder
from evermirror.edge.git.answers import dumb
from evermirror.edge.git.classify import CAUSE, INCOMPLETE_PACK, OBJECT_TOO_LARGE, UPSTREAM_MOVED
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import DURABLE_OBJECTS_ONLY, ONE_THREAD, Remote
from evermirror.edge.git.fsck import Complaints, fetch_config
from evermirror.edge.git.progress import GitProgress, ProgressReader
from evermirror.edge.git.refs import STAGING, staging_refspecs, with_real_head
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.refs import Oid, RefSnapshot
from evermirror.model.task import SyncPhase

log = structlog.get_logger(__name__)

DEPTHS = (1, 10, 100, 1_000, 10_000, 100_000)  # then all of it
TIPS_PER_STEP = 500  # most tips share nearly all of their history with the default branch
STEP_FILE = (
    "evermirror-steps"  # in an incoming folder: it is fetched in steps; holds the last depth that arrived
)

SEED_S_MAX = 3 * 3600.0  # a holder that sends a little now and then does not hold a sync up for ever
LARGE_WAIT_S = 600.0  # for one's turn with a large pack; then the sync's slot is free for others
LARGE_S_MAX = 6 * 3600.0  # of one turn: 10 GB at 0.5 MB/s; an upstream that trickles keeps out no others
ROUNDS_MAX = 3  # looks at an upstream that moves while we fetch; the next poll comes soon anyway

_OTHERS_TURN = Failure(
    FailureKind.UNKNOWN,
    f"other large packs are being taken in: this one waited {LARGE_WAIT_S:g} s for its turn",
    hint="nothing to do: it is tried again",
)

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


@dataclass(frozen=True, slots=True)
class Seed:
    """A holder of the same repo, nearer than upstream, and what it has. It is asked for objects only: which
    refs there are is upstream's word."""

    remote: Remote
    refs: Mapping[str, Oid]

    def near(self, wants: frozenset[Oid], seen: RefSnapshot) -> frozenset[Oid]:
        """What to ask it for: what is wanted, and where it lacks some of that, what it has instead: upstream
        is then asked for the difference."""
        has = wants.intersection(self.refs.values())
        if has == wants:
            return has
        return has | {oid for name, oid in self.refs.items() if name in seen.refs}


@dataclass(slots=True)
class Transfer:
    """One sync's work with upstream: where it goes, and what it has cost so far."""

    git: Git
    repo: Path
    remote: Remote
    lock_fd: int
    on_progress: OnProgress | None = None
    allowed: tuple[str, ...] = ()  # defects of objects that are taken in: fsck.py
    bytes_max: int | None = None  # of the whole repository
    bytes_before: int = 0  # already here
    received_bytes: int = 0
    discarded_bytes: int = 0  # came too, and count for no bound: nothing of it is here
    phases_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time spent, by name."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - started

    def tell(self, phase: SyncPhase, percent: float | None = None, more_bytes: int = 0) -> None:
        """Progress, to whoever follows it."""
        if self.on_progress is not None:
            self.on_progress(GitProgress(phase, percent, self.received_bytes + more_bytes))

    async def fetch(self, wants: Iterable[Oid], *options: str) -> None:
        """Bring these tips, and all that they need, into staging. git checks that nothing is missing.

        git also checks each object, but in the smart protocol only, and it falls back to the dumb one
        where upstream answers so: what came without passing through index-pack is thrown away. So is what
        came of a history that upstream cut short: git takes that in, sets no ref, and calls it a success. And
        so is what git only warned of, where its content is harmful.

        What needs large objects in memory, or a table of very many, comes again, one such pack at a time: so
        a few hostile packs at once cannot take the machine's memory."""
        wants, settings = frozenset(wants), self.git.settings
        received_before = self.received_bytes
        try:
            await self._take_in(wants, options, settings.taking_in)
        except FailureError as error:
            final = settings.taking_in == settings.taking_in_large
            if final or error.failure.context.get(CAUSE) != OBJECT_TOO_LARGE:
                raise
            await folder.to_its_end(folder.clean_leftovers, self.repo)
            self.discarded_bytes += self.received_bytes - received_before
            self.received_bytes = received_before
            async with self._turn_with_large_pack():
                await self._take_in(wants, options, settings.taking_in_large, LARGE_S_MAX)

    @asynccontextmanager
    async def _turn_with_large_pack(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(LARGE_WAIT_S):
                await self.git.large_pack.acquire()
        except TimeoutError:
            raise FailureError(_OTHERS_TURN) from None
        try:
            yield
        finally:
            self.git.large_pack.release()

    async def _take_in(
        self,
        wants: frozenset[Oid],
        options: tuple[str, ...],
        env: Mapping[str, str],
        timeout_s: float | None = None,
    ) -> None:
        before, staged_before = folder.object_files(self.repo), _staged(self.repo)
        reader, complaints = ProgressReader(), Complaints(self.repo)
        failure: Failure | None = None
        taken = False
        try:
            await self._fetch(wants, options, reader, complaints, env, timeout_s)
            failure = cut_short() if await self._lacking(wants) else await complaints.judge(self.git)
            taken = reader.indexed and failure is None
        finally:
            # Also where git failed: it checks some objects only after it has stored their pack.
            unchecked = set() if taken else folder.object_files(self.repo) - before
            folder.remove_files(unchecked)  # first: staged refs to nothing are noticed, unchecked objects not
            complaints.over()
        if unchecked or failure is not None:
            new = (_staged(self.repo) - staged_before) & wants
            staged = "".join(f"delete {STAGING}{oid}\n" for oid in sorted(new))
            await self.git.run(["update-ref", "--stdin"], repo=self.repo, stdin=staged.encode("ascii"))
            raise FailureError(failure or dumb())

    async def _lacking(self, wants: frozenset[Oid]) -> frozenset[str]:
        """What of it is not staged. Mostly a look into one folder tells."""
        lacking = wants - _staged(self.repo)
        if lacking:
            listing = await self.git.run(
                ["for-each-ref", "--format=%(objectname)", STAGING.rstrip("/")], repo=self.repo
            )
            lacking -= frozenset(listing.stdout.decode("ascii").split())
        return lacking

    async def _fetch(
        self,
        wants: frozenset[Oid],
        options: tuple[str, ...],
        reader: ProgressReader,
        complaints: Complaints,
        env: Mapping[str, str],
        timeout_s: float | None,
    ) -> None:
        received_before = self.received_bytes

        def listen(data: bytes) -> None:
            complaints.feed(data)
            steps = reader.feed(data)
            self.received_bytes = received_before + reader.received_bytes
            if self.bytes_max is not None and self.bytes_before + self.received_bytes > self.bytes_max:
                raise FailureError(too_large(self.bytes_max))
            if steps:
                self.tell(steps[-1].phase, steps[-1].percent)

        with self.phase("fetch"):
            await self.git.run(
                [*FETCH, *options, "--end-of-options", self.remote.url],
                repo=self.repo,
                remote=self.remote,
                stdin=staging_refspecs(wants),
                # Staging refs may be lost: they are fetched again.
                config=(DURABLE_OBJECTS_ONLY, ONE_THREAD, *await fetch_config(self.git, self.allowed)),
                on_stderr=listen,
                timeout_s=timeout_s,
                no_progress_s=self.git.settings.no_progress_s,
                keep_fds=(self.lock_fd,),
                env=env,
            )

    async def stage(self, tips: Iterable[Oid]) -> None:
        """What came and could not be published: it need not come again."""
        if lines := "".join(f"create {STAGING}{oid} {oid}\n" for oid in tips):
            with suppress(FailureError):
                await self.git.run(
                    ["update-ref", "--stdin"],
                    repo=self.repo,
                    stdin=lines.encode("ascii"),
                    keep_fds=(self.lock_fd,),
                )

    async def fetch_seed(
        self, seed: Seed | None, wants: frozenset[Oid], seen: RefSnapshot, here: RefSnapshot
    ) -> frozenset[Oid]:
        """The tips that the holder gave; none where it could not: upstream has them too."""
        near = seed.near(wants, seen).difference(here.refs.values()) if seed is not None else frozenset()
        if seed is None or not near:
            return frozenset()
        upstream, self.remote = self.remote, seed.remote
        received_before = self.received_bytes
        try:
            async with asyncio.timeout(SEED_S_MAX):
                await self.fetch(near)
            return near
        except TimeoutError:
            reason = f"not done within {SEED_S_MAX:g} s"
        except FailureError as error:
            if error.failure.kind is FailureKind.DISK_FULL:
                raise
            reason = error.failure.message
        finally:
            self.remote = upstream
        log.warning("not copied from its holder", repo=self.repo.name, reason=reason)
        self.received_bytes = received_before  # nothing of it is here: it counts for no bound
        return frozenset()

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


def _staged(repo: Path) -> frozenset[str]:
    """Refs in staging that are files of their own, as each is until it is packed."""
    try:
        return frozenset(os.listdir(repo / STAGING))
    except FileNotFoundError:
        return frozenset()


def cut_short() -> Failure:
    """As a pack that lacks something: git's own word for both is that less came than the refs need."""
    message = "upstream sends less than its refs need: it is a shallow clone itself"
    return Failure(FailureKind.UNKNOWN, message, context={CAUSE: INCOMPLETE_PACK})


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
