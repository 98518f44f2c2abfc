"""Decisions about placement as the commands that workers understand: with all that they need to know of
each repo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from evermirror.core.fleet.decisions import Assign, Command, CompareRanges, Nudge, Other, Release
from evermirror.edge.store.repos import AssignedSpec
from evermirror.model.messages import AssignRepos, LookAt, ReleaseRepos
from evermirror.model.messages import Command as WorkerCommand
from evermirror.model.repo import RepoKey
from evermirror.model.wire import Ordered
from evermirror.model.worker import WorkerId


class SpecSource(Protocol):
    """Where repos' configuration is read: the store."""

    async def specs_of(self, keys: Sequence[RepoKey]) -> Sequence[AssignedSpec]:
        """Those of the keys that are in the catalog."""
        ...


class Orders:
    """Makes frames; the configuration is read at the last moment, so that it is the newest."""

    def __init__(self, specs: SpecSource, name_of: Callable[[WorkerId], str]) -> None:
        self._specs = specs
        self._name_of = name_of

    async def ordered(self, seq: int, command: Command) -> Ordered:
        """Every number is sent, also of a command that has lost its object meanwhile."""
        return Ordered(seq, await self._command(command))

    async def _command(self, command: Command) -> WorkerCommand:
        match command:
            case Assign():
                return await self._assign(command)
            case Release(keys=keys, delete=delete, digests=digests):
                return ReleaseRepos(keys, delete, digests)
            case Nudge(keys=keys):
                return LookAt(keys)
            case Other(command=other):
                if not isinstance(other, WorkerCommand):
                    raise TypeError(f"{other!r} is no command for a worker")
                return other
            case CompareRanges():
                raise TypeError("a comparison is a frame of its own")

    async def _assign(self, command: Assign) -> AssignRepos:
        items = {item.key: item for item in command.items}
        found = await self._specs.specs_of(list(items))
        return AssignRepos(
            tuple(f.spec for f in found),
            tuple(f.activity for f in found),
            more=command.more,
            following=frozenset(f.spec.key for f in found if not items[f.spec.key].primary),
            paused=frozenset(f.spec.key for f in found if not f.enabled),
            sources=tuple(
                (f.spec.key, self._name_of(source))
                for f in found
                if (source := items[f.spec.key].source) is not None
            ),
        )
