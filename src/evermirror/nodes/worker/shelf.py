"""What a worker holds: its repos, which of them have a mirror on disk, and what is remembered of each.

The local file is written in batches, from what changed since the last one. The mirrors on disk are the truth.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

import structlog

from evermirror.core.schedule.views import Entry
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.store.assigned import Assigned
from evermirror.edge.store.local import LocalState
from evermirror.model.failure import FailureError
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import AssignRepos, HeldRepo
from evermirror.model.refs import RefsDigest
from evermirror.model.repo import Mode, RepoKey, RepoSpec
from evermirror.nodes.worker.round import Mirrored, digest_of

log = structlog.get_logger(__name__)


class Shelf:
    """``repos`` are assigned, ``here`` are on disk; a repo may be either without the other."""

    def __init__(
        self, mirrors: Mirrors, local: LocalState, schedule_of: Callable[[RepoKey], RepoMemory]
    ) -> None:
        self.repos: dict[RepoKey, Mirrored] = {}
        self.here: set[RepoKey] = set()
        self._mirrors = mirrors
        self._local = local
        self._schedule_of = schedule_of
        self._memories: dict[RepoKey, RepoMemory] = {}  # of repos not assigned yet
        self._unsaved: set[RepoKey] = set()
        self._trashed: set[RepoKey] = set()  # may be brought back
        self.writable = True  # the disk took the last write

    async def recall(self) -> None:
        """At start: what is on disk, and what was remembered of it."""
        self.here = set(await self._mirrors.held())
        self._trashed = {item.key for item in await self._mirrors.trashed() if not item.damaged}
        self._memories = {m.key: m for m in await self._local.load()}

    async def assigned_before(self) -> AssignRepos:
        """What was assigned when the worker last ran."""
        known = await self._local.assigned()
        return AssignRepos(
            tuple(a.spec for a in known),
            following=frozenset(a.spec.key for a in known if a.following),
            paused=frozenset(a.spec.key for a in known if a.paused),
        )

    async def note_assigned(self, keys: Iterable[RepoKey]) -> None:
        """The next start goes on with these."""
        repos = [repo for key in keys if (repo := self.repos.get(key)) is not None]
        await self._written(
            self._local.note_assigned([Assigned(r.spec, r.following, r.paused) for r in repos])
        )

    async def note_unassigned(self, keys: Iterable[RepoKey]) -> None:
        await self._written(self._local.unassign(keys))

    def held(self) -> list[HeldRepo]:
        """What is complete on disk, as far as it is known."""
        return [self.held_one(key) for key in sorted(self.here)]

    def held_one(self, key: RepoKey) -> HeldRepo:
        repo = self.repos.get(key)
        if repo is not None:
            return HeldRepo(key, repo.told, repo.verified_at or None)
        memory = self._memories.get(key)
        if memory is None:
            return HeldRepo(key, None, None)
        return HeldRepo(key, memory.digest, memory.verified_at or None)

    async def measure(self, key: RepoKey) -> HeldRepo | None:
        """What is really on disk, whatever was known of it; None where there is no mirror."""
        if not self._mirrors.path(key).is_dir():
            self.here.discard(key)
            return None
        self.here.add(key)
        known = self.held_one(key).digest
        digest: RefsDigest | None = None
        try:
            digest = await digest_of(await self._mirrors.read_refs(key))
        except FailureError as error:
            log.warning("mirror not read", repo=key, reason=error.failure.message)
        if self.held_one(key).digest != known:  # a sync came to its end meanwhile, and knows better
            return self.held_one(key)
        self._learn_digest(key, digest)
        return replace(self.held_one(key), digest=digest)

    def _learn_digest(self, key: RepoKey, digest: RefsDigest | None) -> None:
        """The next look compares upstream with what is here, not with what was thought to be."""
        repo, memory = self.repos.get(key), self._memories.get(key)
        if repo is not None and repo.spec.mode is Mode.APPEND_ONLY:
            repo.own = digest
        elif repo is not None and repo.digest != digest:
            repo.digest, repo.mark = digest, None
            self.learnt(key)
        elif repo is None and memory is not None and memory.digest != digest:
            self._memories[key] = replace(memory, digest=digest, mark=None)

    async def bring_back(self, keys: Iterable[RepoKey]) -> list[RepoKey]:
        """Those of these that lay in the trash: they are mirrors again, with all that they kept."""
        back = []
        for key in self._trashed.intersection(keys) - self.here:
            self._trashed.discard(key)
            try:
                if await self._mirrors.undiscard(key):
                    self.here.add(key)
                    back.append(key)
                    log.info("mirror brought back from the trash", repo=key)
            except FailureError as error:
                log.warning("mirror not brought back", repo=key, reason=error.failure.message)
        return back

    def put(self, command: AssignRepos) -> tuple[list[Entry], list[RepoKey]]:
        """Repos that are assigned from now on, as the schedule takes them; and those reached in a new way."""
        entries, reached_anew = [], []
        for n, spec in enumerate(command.repos):
            memory = self._memories.pop(spec.key, None)
            repo = self.repos.get(spec.key)
            if repo is not None:
                if _reached_by(repo.spec) != _reached_by(spec):
                    repo.mark = None
                    reached_anew.append(spec.key)
                if repo.spec.mode is not spec.mode:  # what is here is as the old mode has it, until a sync
                    repo.digest = repo.own = repo.mark = None
                    self.learnt(spec.key)
                repo.spec = spec
            else:
                self.repos[spec.key] = repo = Mirrored(spec, here=spec.key in self.here)
                if memory is not None and repo.here:
                    repo.digest, repo.mark, repo.guard = memory.digest, memory.mark, memory.guard
                    repo.verified_at = memory.verified_at
            repo.following, repo.paused = spec.key in command.following, spec.key in command.paused
            known = command.activities[n] if n < len(command.activities) else None
            if memory is None and known is not None:
                memory = RepoMemory(spec.key, activity=known)
            if memory is not None and not repo.here:  # without a mirror there is nothing to be left alone
                memory = replace(memory, last_poll_at=0.0, verified_at=0.0)
            entries.append(Entry(spec, memory, repo.quiet))
        return entries, reached_anew

    def drop(self, keys: Iterable[RepoKey]) -> None:
        """These are no longer assigned; their mirrors stay where they are, and what is known of those."""
        for key in keys:
            repo = self.repos.get(key)
            if repo is not None and key in self.here:
                memory = self._memory(key)
                if repo.spec.mode is Mode.APPEND_ONLY:  # upstream's digest is not that of the refs here
                    memory = replace(memory, digest=None, mark=None)
                self._memories[key] = memory
            self.repos.pop(key, None)
            self._unsaved.discard(key)

    async def discard(self, key: RepoKey) -> None:
        """The mirror goes to the trash."""
        self.here.discard(key)
        try:
            if await self._mirrors.discard(key):
                self._trashed.add(key)
        except FailureError as error:
            log.warning("mirror not discarded", repo=key, reason=error.failure.message)

    async def forget(self, keys: Iterable[RepoKey]) -> None:
        """Nothing is remembered of these any more."""
        keys = list(keys)
        for key in keys:
            self._memories.pop(key, None)
        await self._written(self._local.forget(keys))

    async def lose(self) -> list[RepoKey]:
        """Those whose mirrors somebody removed from the disk: they are to be cloned anew."""
        gone = sorted(self.here - set(await self._mirrors.held()))
        self.here.difference_update(gone)
        for repo in (self.repos[key] for key in gone if key in self.repos):
            repo.here, repo.digest, repo.own, repo.mark = False, None, None, None
        self.learnt(*gone)
        return gone

    async def _written(self, write: Awaitable[None]) -> bool:
        """Whether the local file took it; it is no more than a memory, so work goes on without."""
        try:
            await write
        except FailureError as error:
            log.warning("local state not written", reason=error.failure.message)
            self.writable = False
            return False
        self.writable = True
        return True

    def learnt(self, *keys: RepoKey) -> None:
        """Something about these changed: the next batch writes them."""
        self._unsaved.update(keys)

    async def save(self) -> None:
        """Writes what changed since the last time; what cannot be written is tried again the next time."""
        keys = [k for k in self._unsaved if k in self.repos]
        self._unsaved.clear()
        batch = [self._memory(k) for k in keys]
        if batch and not await self._written(self._local.save(batch)):
            self._unsaved.update(keys)

    async def try_disk(self, now: float) -> None:
        """A small write, to know whether the disk takes any."""
        await self._written(self._local.put_meta("alive", int(now)))

    def _memory(self, key: RepoKey) -> RepoMemory:
        repo = self.repos[key]
        memory = self._schedule_of(key)
        return replace(
            memory,
            verified_at=repo.verified_at or memory.verified_at,
            digest=repo.digest,
            mark=repo.mark,
            guard=repo.guard,
        )

    async def count(self, repo: Mirrored) -> None:
        """Figures of a mirror that was here before we started: an answer tells them too."""
        if not repo.size_bytes or repo.told is None:
            refs = await self._mirrors.read_refs(repo.spec.key)
            repo.head_commit, repo.refs_count = refs.head_oid, len(refs.refs)
            if repo.spec.mode is Mode.APPEND_ONLY:
                repo.own = await digest_of(refs)
            repo.size_bytes = await self._mirrors.size(repo.spec.key)


def _reached_by(spec: RepoSpec) -> tuple[object, ...]:
    """Where this changed, how a repo failed before says nothing about the next try."""
    return spec.url, spec.credential, spec.fsck_allow
