"""Projects of a discovery: made, paused and resumed through what people use, and never against their word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from dataclasses import replace

from evermirror.core.discover.here import Here, here_of, place_of
from evermirror.core.pull.layers import Setting, enabled, has_left, is_kept_out, left
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict
from evermirror.model.discovery import DiscoveryId, DiscoverySpec
from evermirror.model.pull import Project, TargetSpec
from evermirror.model.repo import RepoKey
from evermirror.model.url import UrlRules, parse_url
from evermirror.nodes.coordinator.pull.pull_admin import PullAdmin
from evermirror.nodes.coordinator.pull.pull_turn import to_the_end
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.pull_service import NewProject, ProjectChange


def actor_of(discovery: DiscoveryId) -> str:
    """By this name the audit log has what it did."""
    return f"discovery {discovery}"


class FollowedProjects:
    """What discoveries do to projects."""

    def __init__(
        self,
        pull: PullAdmin,
        pulling: Pulling,
        store: Store,
        rules: UrlRules,
        clock: Callable[[], float],
    ) -> None:
        self._pull = pull
        self._pulling = pulling
        self.changing = pulling.changing
        self._store = store
        self._rules = rules
        self._clock = clock
        self._making = asyncio.Lock()
        self.leaving = asyncio.Lock()  # held by who asks whether another discovery has it, until it is noted

    async def here(self, names: Iterable[str]) -> Here:
        """All projects, and the repos that these are keys or names of."""
        found = await self._store.find_named(names)
        return here_of(self._pulling.projects(), found.values())

    async def ensure(
        self,
        spec: DiscoverySpec,
        name: str,
        source_url: str,
        target_url: str | None,
        *,
        actor: str,
        like: RepoKey | None = None,
        turns: bool = False,
    ) -> RepoKey:
        """There is a project of this name and source, and it is not paused by a discovery. ``like``: the
        project that it goes on from under a new name, with what people set of it. ``turns``: the targets of
        the one that is here went on with another; it gets this one. ``Conflict``."""
        async with self._making:  # two discoveries may want one target at the same time
            key = parse_url(source_url, self._rules).key
            if target_url is not None:
                self._check_target(target_url, {key, like})
            if turns and target_url is not None:
                change = ProjectChange(targets=(TargetSpec(target_url, spec.target_credential),))
                await self._pull.change_project(key, change, actor=actor)
            return await self._ensured(spec, name, source_url, target_url, actor=actor, like=like)

    def _check_target(self, url: str, own: Container[RepoKey | None]) -> None:
        place = place_of(url)
        last_part = place.rpartition("/")[2]
        for project in self._pulling.projects():
            if project.key in own or has_left(project):
                continue
            near = (t.url for t in project.targets if last_part in t.url.casefold())
            if any(place_of(taken) == place for taken in near):
                raise Conflict(f"its target {url} belongs to {project.name}")

    async def _ensured(
        self,
        spec: DiscoverySpec,
        name: str,
        source_url: str,
        target_url: str | None,
        *,
        actor: str,
        like: RepoKey | None,
    ) -> RepoKey:
        key = parse_url(source_url, self._rules).key
        project = self._pulling.project(key)
        if project is not None and project.name == name:
            await self.resume(key, actor=actor)
            return key
        targets = () if target_url is None else (TargetSpec(target_url, spec.target_credential),)
        change = ProjectChange(priority=spec.priority, interval_s=spec.interval_s, targets=targets)
        before = self._pulling.project(like) if like is not None else None
        if before is not None:
            change = taken_over(change, before)
        new = NewProject(name, source_url, spec.credential, change)
        return (await self._pull.create_project(new, actor=actor)).record.key

    @to_the_end
    async def leave(self, key: RepoKey, why: str, *, actor: str) -> None:
        """Paused, also what its source has kept out before; what a person disabled, or removed, and what has
        other trouble stays as it is."""
        async with self.changing:
            project = self._pulling.project(key)
            after = left(project, why) if project is not None else None
            if after is None or after == project:
                return
            await self._pulling.put([after])
        await self._store.audit(actor, "pull.project.paused", key, {"why": why})

    @to_the_end
    async def resume(self, key: RepoKey, *, actor: str) -> None:
        """Enabled and due at once, if it is a discovery that paused it, or a source that is open again."""
        async with self.changing:
            project = self._pulling.project(key)
            if project is None or not (has_left(project) or is_kept_out(project)):
                return
            await self._pulling.put([enabled(project, self._clock())])
        await self._store.audit(actor, "pull.project.resumed", key, None)

    async def is_found_by_another(self, key: RepoKey, discovery: DiscoveryId) -> bool:
        return await self._store.is_bound_elsewhere(key, discovery)

    def was_put(self, key: RepoKey) -> bool:
        """Whether something was pushed to its targets."""
        project = self._pulling.project(key)
        return project is not None and any(target.put_at is not None for target in project.targets)


def taken_over(change: ProjectChange, before: Project) -> ProjectChange:
    """With what people set of the project that this one goes on from; one that they disabled stays so."""
    config, over = before.config, before.overrides
    if Setting.PRIORITY.value in over:
        change = replace(change, priority=config.priority)
    if Setting.INTERVAL.value in over:
        change = replace(change, interval_s=config.interval_s)
    if Setting.RETRIES.value in over:
        change = replace(change, max_retries=config.max_retries)
    if Setting.RETRY_DELAY.value in over:
        change = replace(change, retry_delay_s=config.retry_delay_s)
    if not config.enabled and not has_left(before) and not before.paused:
        change = replace(change, enabled=False)
    targets = tuple(TargetSpec(t.url, t.credential) for t in before.targets)
    same = {target.url for target in change.targets or ()} <= {target.url for target in targets}
    return replace(change, targets=targets) if same else change
