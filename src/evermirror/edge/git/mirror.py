"""Keeps one folder of bare mirrors equal to their upstreams, one writer per mirror, nothing half visible.

    no mirror ── clone in .incoming ─▶ verify ─▶ fsync ─▶ rename ──▶ mirror
    mirror ───── compare refs ─▶ fetch what is missing ─▶ transactions ─▶ HEAD ──▶ mirror
       │
       └─ damaged: git says so, fsck confirms it ─▶ clone in .incoming ─▶ exchange ─▶ old one to .trash

Success means that the refs here equal what upstream advertised; anything else is a ``FailureError``.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from evermirror.edge.git import folder
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import HARMLESS_DEFECTS
from evermirror.edge.git.folder import DiskUsage, Locks, folder_id
from evermirror.edge.git.incoming import Incoming, is_empty_of_other_format, named_key
from evermirror.edge.git.refs import (
    LocalRefs,
    apply_plan,
    first_parent_times,
    new_commits,
    plan_refs,
    read_local,
)
from evermirror.edge.git.transfer import OnProgress, Reprobe, Transfer, follow
from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.layout import key_of, mirror_path
from evermirror.model.refs import RefChange, RefSnapshot, changes_between
from evermirror.model.repo import RepoKey, RepoSpec

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """What the operator decides about mirrors. Durations are seconds, sizes bytes."""

    max_repo_size: int | None = None
    steps_after_bytes: int = 64_000_000  # a broken first transfer of at least this much goes on in steps
    incoming_age_s: float = 7 * 86_400.0  # what arrived of a broken clone is kept this long
    trash_age_s: float = 7 * 86_400.0  # time to change one's mind
    lock_wait_s: float = 60.0
    commits_max: int = 10_000  # of which times are read after one sync: enough for any statistics


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """A sync that succeeded: the refs here equal ``after``, which upstream advertised.

    ``after`` is newer than the snapshot that was passed in where upstream moved meanwhile. ``push_times`` are
    commit times as upstream wrote them: hostile input, newest first."""

    first: bool
    before: RefSnapshot
    after: RefSnapshot
    changes: tuple[RefChange, ...]
    commits: int
    push_times: tuple[float, ...]
    received_bytes: int
    size_bytes: int
    phases_s: tuple[tuple[str, float], ...]


class Mirrors:
    """All mirrors below ``root``."""

    def __init__(
        self,
        root: Path,
        git: Git,
        settings: MirrorSettings | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._git = git
        self._settings = settings if settings is not None else MirrorSettings()
        self._clock = clock
        self._locks = Locks(root / ".locks", self._settings.lock_wait_s)
        self._trash = root / ".trash"
        self._incoming = Incoming(root, git, steps_after_bytes=self._settings.steps_after_bytes)
        try:
            for path in (root, self._trash, self._incoming.folder):
                path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentUnfit(
                f"cannot write to {root}: {error.strerror}", hint="set data.dir to a folder that is yours"
            ) from error

    def path(self, key: RepoKey) -> Path:
        """Where the mirror of ``key`` is, or would be."""
        return self._root / mirror_path(key)

    # Sync

    async def sync(
        self,
        spec: RepoSpec,
        addresses: Iterable[str],
        seen: RefSnapshot,
        reprobe: Reprobe,
        on_progress: OnProgress | None = None,
        *,
        force: bool = False,
    ) -> SyncOutcome:
        """Make the mirror equal to ``seen``, or to what ``reprobe`` sees where upstream moved on."""
        remote = self._git.remote(spec, addresses)
        path = self.path(spec.key)
        async with self._locks.hold(folder_id(spec.key)) as lock_fd:
            transfer = Transfer(
                self._git, path, remote, lock_fd, on_progress, bytes_max=self._settings.max_repo_size
            )
            try:
                if not await asyncio.to_thread(path.is_dir):
                    return await self._clone(spec, transfer, seen, reprobe)
                if await asyncio.to_thread(is_empty_of_other_format, path, seen):
                    return await self._replace(spec, transfer, seen, reprobe)
                try:
                    return await self._update(transfer, seen, reprobe, force)
                except FailureError as error:
                    await asyncio.to_thread(folder.clean_leftovers, path)
                    if not error.failure.corrupt:
                        raise
                    await self._confirm_damage(path, error.failure)
                return await self._replace(spec, transfer, seen, reprobe)
            except OSError as error:
                raise FailureError(folder.failure_of(error)) from error

    async def _update(
        self, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe, force: bool
    ) -> SyncOutcome:
        repo = transfer.repo
        with transfer.phase("read"):
            await asyncio.to_thread(folder.clean_leftovers, repo)
            local = await self._read_or_damaged(repo)
            if transfer.bytes_max is not None:
                transfer.bytes_before = await asyncio.to_thread(folder.size_of, repo)

        async def fetch_for(seen: RefSnapshot) -> None:
            if wants := plan_refs(local, seen, force=force).wants:
                await transfer.fetch(wants)

        seen = await follow(fetch_for, seen, reprobe)
        plan = plan_refs(local, seen, force=force)
        known = set(local.public.refs.values())
        tips = {c.new for c in plan.updates if c.new is not None}
        counting = asyncio.create_task(  # meanwhile: it needs the objects only
            new_commits(self._git, repo, tips, known, limit=self._settings.commits_max)
        )
        try:
            with transfer.phase("update"):
                await apply_plan(self._git, repo, plan, lock_fd=transfer.lock_fd)
            with transfer.phase("count"):
                times = await counting
                size = await asyncio.to_thread(folder.size_of, repo)
        finally:
            counting.cancel()
            await asyncio.wait({counting})
        return _outcome(transfer, local.public, seen, times, len(times), size, first=False)

    async def _clone(
        self, spec: RepoSpec, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        fresh, seen = await self._incoming.clone(spec, transfer, seen, reprobe)
        with transfer.phase("publish"):
            await asyncio.to_thread(folder.publish, fresh, self.path(spec.key), self._root)
        return await self._first_outcome(spec.key, transfer, seen)

    async def _first_outcome(self, key: RepoKey, transfer: Transfer, seen: RefSnapshot) -> SyncOutcome:
        path, limit = self.path(key), self._settings.commits_max
        with transfer.phase("count"):
            times: tuple[float, ...] = ()
            if seen.head_oid is not None:
                times = await first_parent_times(self._git, path, seen.head_oid, limit=limit)
            everything = await new_commits(self._git, path, set(seen.refs.values()), (), limit=limit)
            size = await asyncio.to_thread(folder.size_of, path)
        return _outcome(transfer, RefSnapshot({}), seen, times, len(everything), size, first=True)

    # Damage

    async def _read_or_damaged(self, repo: Path) -> LocalRefs:
        try:
            return await read_local(self._git, repo)
        except (FileNotFoundError, NotADirectoryError) as error:
            message = f"the mirror here seems damaged: {error.strerror}: {error.filename}"
            raise FailureError(Failure(FailureKind.UNKNOWN, message, corrupt=True)) from error

    async def _confirm_damage(self, repo: Path, evidence: Failure) -> None:
        """Raise ``evidence`` as an ordinary failure where fsck finds nothing: it was upstream's doing."""
        if not await asyncio.to_thread((repo / "HEAD").is_file):
            return
        harmless = tuple((f"fsck.{name}", "ignore") for name in HARMLESS_DEFECTS)
        for depth in (
            "--connectivity-only",
            "--full",
        ):  # the quick look finds what is missing, the long one what is bad
            found = await self._git.run(
                ["fsck", depth, "--no-dangling", "--progress"],
                repo=repo,
                config=harmless,
                no_progress_s=self._git.settings.no_progress_s,
                check=False,
            )
            if found.returncode != 0:
                return
        raise FailureError(replace(evidence, corrupt=False))

    async def _replace(
        self, spec: RepoSpec, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        """A fresh clone beside; then it and the damaged one change places. The latter is kept as trash."""
        path = self.path(spec.key)
        try:
            before = (await read_local(self._git, path)).public
        except (FailureError, OSError):
            before = RefSnapshot({})
        fresh, seen = await self._incoming.clone(spec, transfer, seen, reprobe)
        with transfer.phase("publish"):
            await asyncio.to_thread(folder.exchange, fresh, path)
            await asyncio.to_thread(self._to_trash, fresh, spec.key)
        outcome = await self._first_outcome(spec.key, transfer, seen)
        return replace(outcome, first=False, before=before, changes=changes_between(before, seen))

    # What is here

    async def read_refs(self, key: RepoKey) -> RefSnapshot:
        """The public refs of a mirror."""
        try:
            return (await self._read_or_damaged(self.path(key))).public
        except OSError as error:
            raise FailureError(folder.failure_of(error)) from error

    async def has_commit(self, key: RepoKey, oid: str) -> bool:
        """Is this commit in the mirror?"""
        if _OID.fullmatch(oid) is None or not self.path(key).is_dir():
            return False
        found = await self._git.run(["cat-file", "-e", f"{oid}^{{commit}}"], repo=self.path(key), check=False)
        return found.returncode == 0

    async def held(self) -> list[RepoKey]:
        """The keys of all mirrors on disk."""
        return await asyncio.to_thread(self._held)

    async def size(self, key: RepoKey) -> int:
        """Bytes on disk; 0 where there is no mirror."""
        return await asyncio.to_thread(folder.size_of, self.path(key))

    def disk_usage(self) -> DiskUsage:
        """Of the file system that the mirrors are on."""
        return folder.disk_usage(self._root)

    # Removal

    async def discard(self, key: RepoKey) -> bool:
        """Move a mirror to the trash, where it stays for a while. False where there is none."""
        async with self._locks.hold(folder_id(key)):
            if not self.path(key).is_dir():
                return False
            try:
                await asyncio.to_thread(self._to_trash, self.path(key), key)
            except OSError as error:
                raise FailureError(folder.failure_of(error)) from error
            return True

    async def tidy(self) -> None:
        """At start and now and then: remove old trash, and incoming folders that nobody goes on with."""
        now = self._clock()
        try:
            for own in (self._trash, self._incoming.folder):
                own.mkdir(exist_ok=True)  # somebody may have removed it to make room
            for path in await asyncio.to_thread(lambda: list(self._trash.iterdir())):
                stamp = path.name.partition("-")[0]
                if not stamp.isdigit() or now - int(stamp) > self._settings.trash_age_s:
                    await asyncio.to_thread(folder.remove_tree, path)
            for name in await asyncio.to_thread(self._incoming.names):
                async with self._locks.hold(name):
                    await asyncio.to_thread(self._incoming.tidy, name, now - self._settings.incoming_age_s)
        except OSError as error:
            raise FailureError(folder.failure_of(error)) from error

    def _held(self) -> list[RepoKey]:
        keys = []
        for path in folder.find_mirrors(self._root):
            # A path too long to be read back was hashed: then the folder itself says whose it is.
            key = key_of(path.as_posix()) or named_key(self._root / path)
            if key is not None and Path(mirror_path(key)) == path:
                keys.append(key)
        return keys

    def _to_trash(self, path: Path, key: RepoKey) -> None:
        readable = re.sub(r"[^A-Za-z0-9.-]+", "_", key)[-80:]
        stem = f"{int(self._clock())}-{folder_id(key)[:8]}-{readable}"
        self._trash.mkdir(exist_ok=True)
        names = (self._trash / (stem + (f"-{n}" if n else "")) for n in range(1000))
        path.rename(next(name for name in names if not name.exists()))


def _outcome(
    transfer: Transfer,
    before: RefSnapshot,
    after: RefSnapshot,
    times: tuple[float, ...],
    commits: int,
    size: int,
    *,
    first: bool,
) -> SyncOutcome:
    return SyncOutcome(
        first=first,
        before=before,
        after=after,
        changes=changes_between(before, after),
        commits=commits,
        push_times=times,
        received_bytes=transfer.received_bytes,
        size_bytes=size,
        phases_s=tuple(transfer.phases_s.items()),
    )
