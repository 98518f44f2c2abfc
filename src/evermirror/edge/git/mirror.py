"""Keeps one folder of bare mirrors equal to their upstreams, one writer per mirror, nothing half visible.

    no mirror ── clone in .incoming ─▶ verify ─▶ fsync ─▶ rename ──▶ mirror
    mirror ───── compare refs ─▶ guards ─▶ fetch what is missing ─▶ guards ─▶ transactions ─▶ HEAD ──▶ mirror
       │
       └─ damaged: git says so, fsck confirms it ─▶ clone in .incoming ─▶ carry over what was kept ─▶ exchange
                                                                                       └─▶ old one to .trash

Success means that the refs here equal what upstream advertised (append-only mirrors have what upstream
had, too); anything else is a ``FailureError``. A guard's is ``HeldBack``: nothing public has changed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from evermirror.core.keep.guard import GuardSettings, judge
from evermirror.core.keep.names import archive_name
from evermirror.edge.git import damage, folder, fsck, keep
from evermirror.edge.git.ancestry import find_rewritten, is_public, is_unrelated, questions
from evermirror.edge.git.command import Git
from evermirror.edge.git.environment import Asker, Remote
from evermirror.edge.git.folder import DiskUsage, Locks, folder_id
from evermirror.edge.git.incoming import Incoming, named_key
from evermirror.edge.git.keep import HeldBack as HeldBack
from evermirror.edge.git.outcome import SyncOutcome as SyncOutcome
from evermirror.edge.git.outcome import first_outcome, outcome_of
from evermirror.edge.git.refs import (
    LocalRefs,
    NewCommits,
    RefPlan,
    apply_plan,
    new_commits,
    plan_refs,
    read_local,
    with_kept,
    with_real_head,
)
from evermirror.edge.git.short_fetch import ShortWay
from evermirror.edge.git.transfer import OnProgress, Reprobe, Seed, Transfer, follow
from evermirror.edge.git.trash import Trash, Trashed
from evermirror.errors import EnvironmentUnfit
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.kept import GuardMemory, KeptTip
from evermirror.model.layout import key_of, mirror_path
from evermirror.model.refs import RefSnapshot, changes_between
from evermirror.model.repo import Mode, RepoKey, RepoSpec

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
    guard: GuardSettings = field(default_factory=GuardSettings)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a sync was asked to do, besides where from."""

    spec: RepoSpec
    force: bool
    guard: GuardMemory | None
    accept: bool
    seed: Seed | None = None

    @property
    def append_only(self) -> bool:
        return self.spec.mode is Mode.APPEND_ONLY


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
        self._trash = Trash(root)
        self._short = ShortWay()
        self._refusals = fsck.Refusals(root / ".refused")
        self._incoming = Incoming(root, git, steps_after_bytes=self._settings.steps_after_bytes)
        try:
            self._made = self._make_folders()
        except OSError as error:
            raise EnvironmentUnfit(
                f"cannot write to {root}: {error.strerror}", hint="set data.dir to a folder that is yours"
            ) from error

    def _make_folders(self) -> tuple[int, int]:
        """By which the root is known again."""
        for path in (self._root, self._trash.folder, self._incoming.folder):
            path.mkdir(parents=True, exist_ok=True)
        made = self._root.stat()
        return made.st_dev, made.st_ino

    async def mend_root(self) -> bool:
        """Make the folder of all mirrors again where somebody removed it. True: it is another one than
        before, and what was in it may be gone. Raises FailureError, also while its disk is not mounted."""
        # Who takes a lock makes the root again, maybe with its old number, but not what is in it.
        before = self._made if await asyncio.to_thread(self._incoming.folder.is_dir) else None
        try:
            await asyncio.to_thread(self._check_mounted)
            self._made = await asyncio.to_thread(self._make_folders)
        except OSError as error:
            raise FailureError(folder.failure_of(error)) from error
        return self._made != before

    def _check_mounted(self) -> None:
        """Without their disk, all mirrors would be cloned again, to the disk below its mount point."""
        if not self._incoming.folder.is_dir():
            folder.check_disk(self._root, self._made[0])

    def path(self, key: RepoKey) -> Path:
        """Where the mirror of ``key`` is, or would be."""
        return self._root / mirror_path(key)

    def locked(self, key: RepoKey) -> AbstractAsyncContextManager[int]:
        """Nobody else writes to the mirror meanwhile; gives the lock's descriptor, for git to inherit."""
        return self._locks.hold(folder_id(key))

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
        guard: GuardMemory | None = None,
        accept: bool = False,
        remote: Remote | None = None,
        ask: Asker | None = None,
        seed: Seed | None = None,
    ) -> SyncOutcome:
        """Make the mirror equal to ``seen``, or to what ``reprobe`` sees where upstream moved on.

        ``guard`` is what the last ``HeldBack`` carried; ``accept``: a person confirmed the change. Objects
        come from ``remote`` where one is given, and from ``seed`` first. A mirror that fsck found broken is
        replaced."""
        wish = _Wish(spec, force, guard, accept, seed)
        remote = remote or self._git.remote(spec, addresses, ask)
        async with self._locks.hold(folder_id(spec.key)) as lock_fd:
            transfer = Transfer(
                self._git,
                self.path(spec.key),
                remote,
                lock_fd,
                on_progress,
                spec.fsck_allow,
                self._settings.max_repo_size,
            )
            if remote.own:  # a holder's pack: another holder's may be taken
                return await self._sync(wish, transfer, seen, reprobe)
            return await self._unless_refused(wish, transfer, seen, reprobe)

    async def _unless_refused(
        self, wish: _Wish, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        """What was refused does not come again before something that matters has changed."""
        name, policy = folder_id(wish.spec.key), await fsck.policy_of(self._git, wish.spec.fsck_allow)
        now = self._clock()
        forced_at = now if wish.force else None
        if self._refusals.has(name):
            known = await asyncio.to_thread(self._refusals.recall, name, seen, policy, now, forced_at)
            if known is not None:
                raise FailureError(known)

        async def look_again() -> RefSnapshot:
            nonlocal seen
            seen = await reprobe()
            return seen

        try:
            outcome = await self._sync(wish, transfer, seen, look_again)
        except FailureError as error:
            if fsck.is_refusal(error.failure):
                await asyncio.to_thread(
                    self._refusals.remember, name, seen, policy, error.failure, self._clock(), forced_at
                )
            raise
        self._refusals.forget(name)
        return outcome

    async def _sync(
        self, wish: _Wish, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        path = transfer.repo
        try:
            if not await asyncio.to_thread(path.is_dir):
                await asyncio.to_thread(self._check_mounted)
                return await self._clone(wish, transfer, seen, reprobe)
            if await asyncio.to_thread(damage.must_be_replaced, path, seen):
                return await self._replace(wish, transfer, seen, reprobe)
            try:
                return await self._update(wish, transfer, seen, reprobe)
            except FailureError as error:
                await folder.to_its_end(folder.clean_leftovers, path)
                if not error.failure.corrupt:
                    raise
                await damage.confirm_damage(self._git, path, error.failure)
            return await self._replace(wish, transfer, seen, reprobe)
        except FailureError as error:
            if not fsck.is_refusal(error.failure):
                raise
            raise FailureError(fsck.explained(error.failure, wish.spec.key)) from error
        except OSError as error:
            raise FailureError(folder.failure_of(error)) from error

    async def _update(
        self, wish: _Wish, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        repo = transfer.repo
        with transfer.phase("read"):
            await folder.to_its_end(folder.clean_leftovers, repo)
            local = await damage.read_or_damaged(self._git, repo)
            if transfer.bytes_max is not None:
                transfer.bytes_before = await asyncio.to_thread(folder.size_of, repo)
        self._guard(wish, local.public, with_real_head(seen))
        wants = plan_refs(local, seen, force=wish.force).wants
        near = await transfer.fetch_seed(wish.seed, wants, seen, local.public)
        local = replace(local, staged=local.staged | near)
        told: NewCommits | None = None

        async def fetch_for(seen: RefSnapshot) -> None:
            nonlocal told
            told = await self._short.fetch(transfer, plan_refs(local, seen, force=wish.force), local)

        seen = await follow(fetch_for, seen, reprobe)
        plan = plan_refs(local, seen, force=wish.force, append_only=wish.append_only)
        plan = plan if told is None else replace(plan, staged=local.staged)  # what came so is not staged
        known = set(local.public.refs.values())
        tips = {c.new for c in plan.updates if c.new is not None}
        counting = asyncio.create_task(
            new_commits(self._git, repo, tips, known, limit=self._settings.commits_max, told=told)
        )
        try:
            with transfer.phase("keep"):
                # Updates wait for it: mostly it tells which are rewrites. New and deleted refs do not.
                commits = await counting if questions(plan) else NewCommits()
                plan = await self._keep(wish, repo, plan, local, seen, commits)
            with transfer.phase("update"):
                await apply_plan(self._git, repo, plan, lock_fd=transfer.lock_fd)
            with transfer.phase("count"):
                times = (await counting).times
                size = await asyncio.to_thread(folder.size_of, repo)
        except (FailureError, OSError):
            await transfer.stage(plan.wants if told is not None else ())
            raise
        finally:
            counting.cancel()
            await asyncio.wait({counting})
        outcome = outcome_of(transfer, local.public, seen, times, len(times), size, first=False)
        return replace(outcome, changes=plan.changes, kept=plan.kept)

    async def _keep(
        self,
        wish: _Wish,
        repo: Path,
        plan: RefPlan,
        local: LocalRefs,
        seen: RefSnapshot,
        commits: NewCommits,
    ) -> RefPlan:
        """The plan, with what it keeps; or ``HeldBack``."""
        found = await find_rewritten(self._git, repo, plan, local.public, seen, commits.parents)
        self._guard(wish, local.public, seen, unrelated=found.unrelated)
        return with_kept(plan, local, found.rewritten, self._clock())

    def _guard(self, wish: _Wish, before: RefSnapshot, seen: RefSnapshot, *, unrelated: bool = False) -> None:
        if wish.append_only and not unrelated:  # nothing will go, and what upstream has not is here for long
            return
        held = judge(
            before,
            seen,
            wish.guard,
            self._clock(),
            self._settings.guard,
            unrelated=unrelated,
            accept=wish.accept,
        )
        if held is not None:
            raise HeldBack.of(held, before, seen, self._settings.guard)

    async def _clone(
        self, wish: _Wish, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        spec = wish.spec
        fresh, seen = await self._incoming.clone(spec, transfer, seen, reprobe, wish.seed)
        with transfer.phase("publish"):
            await folder.to_its_end(folder.publish, fresh, self.path(spec.key), self._root)
        return await self._first_outcome(spec.key, transfer, seen)

    async def _first_outcome(self, key: RepoKey, transfer: Transfer, seen: RefSnapshot) -> SyncOutcome:
        return await first_outcome(self._git, self.path(key), transfer, seen, self._settings.commits_max)

    # Damage

    async def _replace(
        self, wish: _Wish, transfer: Transfer, seen: RefSnapshot, reprobe: Reprobe
    ) -> SyncOutcome:
        """A fresh clone beside; then it and the damaged one change places. The latter is kept as trash."""
        key = wish.spec.key
        path = self.path(key)
        try:
            await asyncio.to_thread(damage.make_readable, path)
            local = await read_local(self._git, path)
            local = replace(local, public=damage.with_likely_head(local.public, seen))
        except (FailureError, OSError):
            local = LocalRefs(RefSnapshot({}))
        self._guard(wish, local.public, with_real_head(seen))
        fresh, seen = await self._incoming.clone(wish.spec, transfer, seen, reprobe)
        with transfer.phase("keep"):
            try:
                kept = await self._carry_over(wish, fresh, local, seen, transfer.lock_fd)
            except BaseException:
                folder.remove_tree(fresh)
                raise
        with transfer.phase("publish"):
            await folder.to_its_end(folder.exchange, fresh, path)
            await asyncio.to_thread(self._trash.put, fresh, key, self._clock(), damaged=True)
        outcome = await self._first_outcome(key, transfer, seen)
        changes = changes_between(local.public, seen)
        return replace(outcome, first=False, before=local.public, changes=changes, kept=kept)

    async def _carry_over(
        self, wish: _Wish, fresh: Path, local: LocalRefs, seen: RefSnapshot, lock_fd: int
    ) -> tuple[KeptTip, ...]:
        """What the damaged mirror kept, and what upstream threw away meanwhile, as far as it can be read."""
        path = self.path(wish.spec.key)
        plan = plan_refs(local, seen, append_only=wish.append_only)
        found = await find_rewritten(self._git, fresh, plan, local.public, seen, {})
        plan = with_kept(plan, local, found.rewritten, self._clock())
        refs = {**await keep.ours(self._git, path), **{tip.name: tip.old for tip in plan.kept}}
        if wish.append_only:
            gone = {change.name for change in plan.deletions}
            refs |= {archive_name(tip.ref, tip.at): tip.old for tip in plan.kept}
            refs |= {n: o for n, o in local.public.refs.items() if n not in seen.refs and n not in gone}
        came = await keep.carry_over(self._git, path, fresh, refs, lock_fd)
        self._guard(
            wish, local.public, seen, unrelated=await is_unrelated(self._git, fresh, local.public, seen)
        )
        await asyncio.to_thread(folder.fsync_tree, fresh)
        return tuple(tip for tip in plan.kept if tip.name in came)

    # What was thrown away

    async def history(self, key: RepoKey) -> tuple[KeptTip, ...]:
        """Every tip that upstream threw away and that is still here, newest first."""
        if not await asyncio.to_thread(self.path(key).is_dir):
            return ()
        return await keep.list_kept(self._git, self.path(key))

    async def restore(self, key: RepoKey, kept_name: str, as_name: str | None = None) -> str:
        """Make a kept tip public again as ``refs/restored/…``; returns that name. Overwrites nothing."""
        async with self._locks.hold(folder_id(key)) as lock_fd:
            if not await asyncio.to_thread(self.path(key).is_dir):
                raise FailureError(Failure(FailureKind.NOT_FOUND, f"there is no mirror of {key}"))
            return await keep.restore(self._git, self.path(key), kept_name, as_name, lock_fd)

    async def expire_kept(self, key: RepoKey, now: float, retention_s: float | None) -> int:
        """Forget kept tips older than this; None keeps them for ever. Returns how many went."""
        async with self._locks.hold(folder_id(key)) as lock_fd:
            if retention_s is None or not await asyncio.to_thread(self.path(key).is_dir):
                return 0
            return await keep.expire(self._git, self.path(key), now, retention_s, lock_fd)

    # What is here

    async def read_refs(self, key: RepoKey) -> RefSnapshot:
        """The public refs of a mirror."""
        try:
            return (await damage.read_or_damaged(self._git, self.path(key))).public
        except OSError as error:
            raise FailureError(folder.failure_of(error)) from error

    async def has_commit(self, key: RepoKey, oid: str) -> bool:
        """Do the mirror's branches and tags contain this commit?"""
        if _OID.fullmatch(oid) is None or not self.path(key).is_dir():
            return False
        return await is_public(self._git, self.path(key), oid)

    async def held(self) -> list[RepoKey]:
        """The keys of all mirrors on disk."""
        return await asyncio.to_thread(self._held)

    async def size(self, key: RepoKey) -> int:
        """Bytes on disk; 0 where there is no mirror."""
        return await asyncio.to_thread(folder.size_of, self.path(key))

    def disk_usage(self) -> DiskUsage:
        """Of the file system that the mirrors are on; while their folder is gone, of the one around it."""
        try:
            return folder.disk_usage(self._root)
        except FileNotFoundError:
            return folder.disk_usage(self._root.parent)

    # Removal

    async def discard(self, key: RepoKey, *, for_good: bool = False) -> bool:
        """Move a mirror to the trash, for a while; or away ``for_good``. False where there is none."""
        async with self._locks.hold(folder_id(key)):
            if not self.path(key).is_dir():
                return False
            await asyncio.to_thread(self._refusals.forget, folder_id(key))
            try:
                there = await asyncio.to_thread(self._trash.put, self.path(key), key, self._clock())
                if for_good:
                    await asyncio.to_thread(folder.remove_tree, there)
            except OSError as error:
                raise FailureError(folder.failure_of(error)) from error
            return True

    async def trashed(self) -> list[Trashed]:
        """What is in the trash, newest first."""
        return await asyncio.to_thread(self._trash.items)

    async def undiscard(self, key: RepoKey) -> bool:
        """Bring the newest discarded copy back. False where there is none, or a mirror is there."""
        async with self._locks.hold(folder_id(key)):
            try:
                return await asyncio.to_thread(self._trash.take_back, key, self.path(key))
            except OSError as error:
                raise FailureError(folder.failure_of(error)) from error

    async def tidy(self) -> None:
        """At start and now and then: remove old trash, and incoming folders that nobody goes on with."""
        now = self._clock()
        try:
            await asyncio.to_thread(self._check_mounted)
            for own in (self._trash.folder, self._incoming.folder):
                own.mkdir(exist_ok=True)  # somebody may have removed it to make room
            await asyncio.to_thread(self._trash.tidy, now - self._settings.trash_age_s)
            await asyncio.to_thread(self._refusals.tidy, now)
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
