"""Decisions about placement as the commands that workers understand: with all that they need to know of
each repo."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import (
    Assign,
    Assignment,
    Command,
    CompareRanges,
    Nudge,
    Other,
    Release,
    SetLimits,
)
from evermirror.core.fleet.views import RepoView
from evermirror.edge.store.specs import AssignedSpec
from evermirror.model.messages import AssignRepos, LookAt, ReleaseRepos, RestoreTip, SyncNow
from evermirror.model.messages import Command as WorkerCommand
from evermirror.model.relay import Source
from evermirror.model.repo import RepoKey, RepoSpec
from evermirror.model.wire import AskSource, Ordered
from evermirror.model.worker import WorkerId


class SpecSource(Protocol):
    """Where repos' configuration is read: the store."""

    async def specs_of(self, keys: Sequence[RepoKey]) -> Sequence[AssignedSpec]:
        """Those of the keys that are in the catalog."""
        ...


MayRead = Callable[[RepoKey, WorkerId], bool]
"""Whether the worker may be told of that repo: core/fleet/look.py."""

SourceOf = Callable[[WorkerId, WorkerId, RepoKey], Source | None]
"""What lets the first worker read that repo from the second, where it can."""


class Orders:
    """Makes frames; the configuration is read at the last moment, so that it is the newest.

    A repo that its worker may not be told of any more is left out, also of a command that was decided before
    that or is sent again. Only a release names it still: it takes away what the worker was given."""

    def __init__(
        self,
        specs: SpecSource,
        source_of: SourceOf,
        primary_of: Callable[[RepoKey], WorkerId | None],
        may_read: MayRead,
        repo_of: Callable[[RepoKey], RepoView | None],
        is_trusted: Callable[[WorkerId], bool],
    ) -> None:
        self._specs = specs
        self._source_of = source_of
        self._primary_of = primary_of
        self._may_read = may_read
        self._repo_of = repo_of
        self._is_trusted = is_trusted

    async def ordered(self, worker: WorkerId, seq: int, command: Command) -> Ordered:
        """Every number is sent, also of a command that has lost its object meanwhile."""
        return Ordered(seq, await self._command(worker, command))

    async def _command(self, worker: WorkerId, command: Command) -> WorkerCommand:
        match command:
            case Assign():
                return await self._assign(worker, command)
            case Release(keys=keys, delete=delete, digests=digests):
                return ReleaseRepos(keys, delete, digests)
            case Nudge(keys=keys) | Other(command=LookAt(keys=keys)):
                keys = tuple(key for key in keys if self._may_read(key, worker))
                return LookAt(keys, tuple(self._nearer(worker, keys)))
            case SetLimits(limits=limits):
                return limits
            case Other(command=AskSource(key=key)):
                return LookAt((), tuple(self._again(worker, key)))
            case Other(command=SyncNow(key=key) | RestoreTip(key=key)) if not self._may_read(key, worker):
                return LookAt(())  # the number is sent, and nothing with it
            case Other(command=other):
                if not isinstance(other, WorkerCommand):
                    raise TypeError(f"{other!r} is no command for a worker")
                return other
            case CompareRanges():
                raise TypeError("a comparison is a frame of its own")

    async def _assign(self, worker: WorkerId, command: Assign) -> AssignRepos:
        items = {item.key: item for item in command.items}
        found = [f for f in await self._specs.specs_of(list(items)) if self._may_have(worker, f.spec)]
        return AssignRepos(
            tuple(f.spec for f in found),
            tuple(f.activity for f in found),
            more=command.more,
            following=frozenset(f.spec.key for f in found if not items[f.spec.key].primary),
            paused=frozenset(f.spec.key for f in found if not f.enabled),
            sources=tuple(self._sources(worker, [items[f.spec.key] for f in found])),
        )

    def _may_have(self, worker: WorkerId, spec: RepoSpec) -> bool:
        """Also by what was just read: placement hears of a repo that became private a moment later."""
        secret = spec.private or spec.credential is not None
        return self._may_read(spec.key, worker) and (not secret or self._is_trusted(worker))

    def _nearer(self, worker: WorkerId, keys: Iterable[RepoKey]) -> Iterator[Source]:
        """What a follower is to look at, its primary has."""
        for key in keys:
            primary = self._primary_of(key)
            if primary is not None and primary != worker:
                source = self._source_of(worker, primary, key)
                if source is not None:
                    yield source

    def _again(self, worker: WorkerId, key: RepoKey) -> Iterator[Source]:
        """New tickets for all who hold the repo: the worker has begun to copy it from one of them."""
        repo = self._repo_of(key)
        for copy in repo.copies if repo is not None else ():
            if copy.worker != worker and copy.state is CopyState.HELD:
                source = self._source_of(worker, copy.worker, key)
                if source is not None:
                    yield source

    def _sources(self, worker: WorkerId, items: Iterable[Assignment]) -> Iterator[Source]:
        for item in items:
            source = None if item.source is None else self._source_of(worker, item.source, item.key)
            if source is not None:
                yield source
