"""What a worker holds: its repos, which of them have a mirror on disk, and what is remembered of each.

The local file is written in batches, from what changed since the last one. The mirrors on disk are the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from evermirror.core.schedule.views import Entry
from evermirror.edge.git.mirror import Mirrors
from evermirror.edge.store.local import LocalState
from evermirror.model.failure import FailureError
from evermirror.model.memory import RepoMemory
from evermirror.model.messages import AssignRepos, HeldRepo
from evermirror.model.repo import RepoKey
from evermirror.nodes.round import Mirrored

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

    async def recall(self) -> list[HeldRepo]:
        """At start: what is on disk, and what was remembered of it."""
        self.here = set(await self._mirrors.held())
        self._trashed = {item.key for item in await self._mirrors.trashed() if not item.damaged}
        self._memories = {m.key: m for m in await self._local.load()}
        return [
            HeldRepo(k, m.digest if (m := self._memories.get(k)) else None, m.verified_at if m else None)
            for k in sorted(self.here)
        ]

    async def bring_back(self, keys: Iterable[RepoKey]) -> None:
        """Mirrors of these that lie in the trash are mirrors again, with all that they kept."""
        for key in self._trashed.intersection(keys) - self.here:
            self._trashed.discard(key)
            try:
                if await self._mirrors.undiscard(key):
                    self.here.add(key)
                    log.info("mirror brought back from the trash", repo=key)
            except FailureError as error:
                log.warning("mirror not brought back", repo=key, reason=error.failure.message)

    def put(self, command: AssignRepos) -> tuple[list[Entry], list[RepoKey]]:
        """Repos that are assigned from now on, as the schedule takes them; and those reached in a new way."""
        entries, reached_anew = [], []
        for n, spec in enumerate(command.repos):
            memory = self._memories.pop(spec.key, None)
            repo = self.repos.get(spec.key)
            if repo is not None:
                if (repo.spec.url, repo.spec.credential) != (spec.url, spec.credential):
                    repo.mark = None
                    reached_anew.append(spec.key)
                repo.spec = spec
            else:
                self.repos[spec.key] = repo = Mirrored(spec, here=spec.key in self.here)
                if memory is not None and repo.here:
                    repo.digest, repo.mark, repo.guard = memory.digest, memory.mark, memory.guard
            known = command.activities[n] if n < len(command.activities) else None
            if memory is None and known is not None:
                memory = RepoMemory(spec.key, activity=known)
            if memory is not None and not repo.here:  # without a mirror there is nothing to be left alone
                memory = replace(memory, last_poll_at=0.0, verified_at=0.0)
            entries.append(Entry(spec, memory))
        return entries, reached_anew

    def drop(self, keys: Iterable[RepoKey]) -> None:
        """These are no longer assigned; their mirrors stay where they are."""
        for key in keys:
            self.repos.pop(key, None)
            self._memories.pop(key, None)
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
        try:
            await self._local.forget(keys)
        except FailureError as error:
            log.warning("local state not forgotten", reason=error.failure.message)

    def learnt(self, *keys: RepoKey) -> None:
        """Something about these changed: the next batch writes them."""
        self._unsaved.update(keys)

    async def save(self) -> None:
        """Writes what changed since the last time; what cannot be written is tried again the next time."""
        keys = [k for k in self._unsaved if k in self.repos]
        self._unsaved.clear()
        batch = [self._memory(k) for k in keys]
        if not batch:
            return
        try:
            await self._local.save(batch)
        except FailureError as error:
            self._unsaved.update(keys)
            log.warning("local state not saved", reason=error.failure.message)

    def _memory(self, key: RepoKey) -> RepoMemory:
        repo = self.repos[key]
        return replace(self._schedule_of(key), digest=repo.digest, mark=repo.mark, guard=repo.guard)

    async def count(self, repo: Mirrored) -> None:
        """Figures of a mirror that was here before we started: an answer tells them too."""
        if not repo.size_bytes:
            refs = await self._mirrors.read_refs(repo.spec.key)
            repo.head_commit, repo.refs_count = refs.head_oid, len(refs.refs)
            repo.size_bytes = await self._mirrors.size(repo.spec.key)
