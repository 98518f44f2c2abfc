"""What a repo's primary saw move, others hold too: they are told to look."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.events import CommandGiven
from evermirror.model.messages import LookAt
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.fleet import Fleet

LOOK_ITEMS = 500  # repos named in one command


class Followers:
    """Gathers what moved; ``tell`` now and then."""

    def __init__(self, fleet: Callable[[], Fleet]) -> None:
        self._fleet = fleet
        self._moved: dict[RepoKey, WorkerId] = {}  # by whom it was seen

    def moved(self, key: RepoKey, by: WorkerId) -> None:
        self._moved[key] = by

    async def tell(self) -> None:
        """Those who hold what another saw move look at it."""
        moved, self._moved = self._moved, {}
        fleet = self._fleet()
        looks: dict[WorkerId, list[RepoKey]] = {}
        for key, by in moved.items():
            repo = fleet.machine.repo(key)
            if repo is None or repo.primary != by:  # a follower that caught up says nothing new
                continue
            for copy in repo.copies:
                may = copy.state is CopyState.HELD and fleet.machine.may_read(key, copy.worker)
                if may and copy.worker != by:
                    looks.setdefault(copy.worker, []).append(key)
        for worker, keys in looks.items():
            for start in range(0, len(keys), LOOK_ITEMS):
                look = LookAt(tuple(keys[start : start + LOOK_ITEMS]))
                await fleet.tell(CommandGiven(worker, look))
