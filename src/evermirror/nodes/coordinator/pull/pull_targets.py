"""How a project's targets are, ref by ref: what the worker that pushes knows, and what its last pushes told.

The worker knows what it put where, and compares that with its mirror; what it found at a target that was not
ours is in the result of the task. Neither asks a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from evermirror.core.push.standing import looked, with_push
from evermirror.edge.store.outcomes import pushes_of
from evermirror.edge.store.store import Store
from evermirror.model.pull import Target
from evermirror.model.push import Pushed, Standings, TargetId
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.coordinator import Coordinator
from evermirror.nodes.coordinator.pull.pulling import Pulling
from evermirror.nodes.pull_service import TargetState

TASKS_LOOKED = 50  # the newest of the repo; a target that fails is tried by each of them


class TargetStates:
    def __init__(self, store: Store, coordinator: Coordinator, pulling: Pulling) -> None:
        self._store = store
        self._coordinator = coordinator
        self._pulling = pulling

    async def of(self, key: RepoKey) -> tuple[TargetState, ...]:
        project = self._pulling.project(key)
        if project is None or not project.targets:
            return ()
        known = await self._coordinator.standings(key)
        pushes = await self._pushes(key, {target.id for target in project.targets})
        return tuple(_state(target, known, pushes.get(target.id)) for target in project.targets)

    async def _pushes(self, key: RepoKey, wanted: Iterable[TargetId]) -> Mapping[TargetId, Pushed]:
        """Of each target the last one that looked at it."""
        left, found = set(wanted), dict[TargetId, Pushed]()
        for task in await self._store.list_tasks(key, TASKS_LOOKED):
            for push in pushes_of(task.result):
                if push.target in left and looked(push):
                    found[push.target] = push
                    left.discard(push.target)
            if not left:
                break
        return found


def _state(target: Target, known: Standings | None, push: Pushed | None) -> TargetState:
    seen_at = push.ended_at if push is not None else None
    if known is None:
        refs, _ = with_push(None, push)
        return TargetState(target, refs, None, None, seen_at)
    here = (s for s in known.targets if s.target == target.id and s.url == target.url)
    standing = next(here, None)
    refs, equal = with_push(standing, push)
    if standing is None and target.put == known.digest:  # another worker put it there
        equal = known.total
    return TargetState(target, refs, known.total, equal, seen_at)
