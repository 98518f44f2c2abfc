"""What a discovery makes at a target: groups, projects in them, and their branches opened.

A group is made with the visibility of the most visible project that is to be in it, since no project can be
seen by more people than its group. A group that says no is asked once in a run, and not for every project.
Protected branches are opened after the first push, which is when a forge protects them; only in projects that
a discovery made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from evermirror.core.discover.naming import parent_of, ssh_address, target_place
from evermirror.core.discover.plan import Planned
from evermirror.edge.forge.api import ForgeApi
from evermirror.model.discovery import DiscoverySpec, StepKind
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.forge import FoundProject, NewTarget, TargetProject, Visibility
from evermirror.nodes.coordinator.discovery.discovering_forges import Patience

_MAY_BE_THERE = frozenset({FailureKind.CONFLICT, FailureKind.NETWORK_TIMEOUT})


Making = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Made:
    """A target that is there; ``new``: it was made just now, or in a run that was cut short."""

    url: str
    new: bool


@dataclass(slots=True)
class Targets:
    """The target of one run."""

    api: ForgeApi
    spec: DiscoverySpec
    patience: Patience
    visibilities: Mapping[str, Visibility] = field(default_factory=dict)  # of groups that may be made
    _groups: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def ensure(self, path: str, project: FoundProject, making: Making, *, meant: bool = False) -> Made:
        """The project at ``path``, made where it is missing; ``making`` is awaited right before that.
        ``meant``: a run that was cut short was about to make it, so that it is ours as long as it is empty.
        Raises FailureError; NotNamed."""
        found = await self.find(path)
        new = meant and found is not None and found.empty
        if found is None:
            await self._ensure_group(parent_of(path))
            await making()
            found, new = await self._create(path, project)
        if found.archived:
            raise FailureError(
                Failure(
                    FailureKind.CONFLICT,
                    f"{path} at the target is archived, so that nothing can be pushed to it",
                    hint="Unarchive it there",
                )
            )
        return Made(self._address(path, found), new)

    async def find(self, path: str) -> TargetProject | None:
        return await self.patience.ask(lambda: self.api.find_project(path))

    async def open_branches(self, path: str) -> tuple[str, ...]:
        found = await self._surely(path)
        return await self.patience.ask(lambda: self.api.open_branches(found))

    async def _create(self, path: str, project: FoundProject) -> tuple[TargetProject, bool]:
        """And whether it is ours: not where somebody was faster. A request of which nobody knows what came
        of it made what is there now, if that is empty."""
        new = NewTarget(
            path,
            path.rpartition("/")[2],
            self.spec.visibility or project.visibility,
            project.description,
            project.default_branch,
        )
        try:
            return await self.patience.ask(lambda: self.api.create_project(new)), True
        except FailureError as error:
            kind = error.failure.kind
            found = await self.find(path) if kind in _MAY_BE_THERE else None
            if found is None:
                raise
            return found, kind is FailureKind.NETWORK_TIMEOUT and found.empty

    async def _surely(self, path: str) -> TargetProject:
        found = await self.find(path)
        if found is None:
            raise FailureError(Failure(FailureKind.NOT_FOUND, f"{path} is not at the target"))
        return found

    async def _ensure_group(self, path: str) -> None:
        """Each once in a run, its parents first; whoever else needs it waits for the same answer."""
        if not path:
            return
        task = self._groups.get(path)
        if task is None:
            task = self._groups[path] = asyncio.ensure_future(self._make_group(path))
        await asyncio.shield(task)

    async def _make_group(self, path: str) -> None:
        await self._ensure_group(parent_of(path))
        visibility = self.visibilities.get(path, Visibility.PRIVATE)
        await self.patience.ask(lambda: self.api.create_group(path, visibility))

    def _address(self, path: str, found: TargetProject) -> str:
        base = target_place(self.spec).base_url
        return ssh_address(base, found.ssh_url) if self.spec.over_ssh else f"{base}/{path}.git"

    async def close(self) -> None:
        for task in self._groups.values():
            task.cancel()
        await asyncio.gather(*self._groups.values(), return_exceptions=True)


def group_visibilities(spec: DiscoverySpec, steps: Iterable[Planned]) -> dict[str, Visibility]:
    """Of every group above a project that is to be made: as visible as the most visible one below it."""
    found: dict[str, Visibility] = {}
    for planned in steps:
        if planned.step.kind is not StepKind.CREATE or planned.project is None:
            continue
        wanted = spec.visibility or planned.project.visibility
        group = parent_of(planned.target_path)
        while group:
            found[group] = max(found.get(group, wanted), wanted, key=lambda visibility: visibility.rank)
            group = parent_of(group)
    return found
