"""Tasks that workers have: by worker and by repo, and whether it is known that their look began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.model.worker import WorkerId

_Place = TypeVar("_Place", RepoKey, WorkerId)

AHEAD_MAX = 8  # given out of one repo without word that a look began; the worker merges them


@dataclass(slots=True)
class _Given:
    key: RepoKey
    worker: WorkerId
    begun: bool = False


class GivenOut:
    """``put`` when it is given out, ``drop`` when it is back or over."""

    def __init__(self) -> None:
        self._all: dict[TaskId, _Given] = {}
        self._of_worker: dict[WorkerId, dict[TaskId, None]] = {}
        self._of_repo: dict[RepoKey, dict[TaskId, None]] = {}

    def put(self, task_id: TaskId, key: RepoKey, worker: WorkerId) -> None:
        self.drop(task_id)
        self._all[task_id] = _Given(key, worker)
        self._of_worker.setdefault(worker, {})[task_id] = None
        self._of_repo.setdefault(key, {})[task_id] = None

    def drop(self, task_id: TaskId) -> None:
        given = self._all.pop(task_id, None)
        if given is not None:
            _forget(self._of_worker, given.worker, task_id)
            _forget(self._of_repo, given.key, task_id)

    def began(self, task_id: TaskId) -> None:
        """Its worker said so."""
        if (given := self._all.get(task_id)) is not None:
            given.begun = True

    def has_begun(self, task_id: TaskId) -> bool:
        given = self._all.get(task_id)
        return given is not None and given.begun

    @property
    def workers(self) -> frozenset[WorkerId]:
        """Those that have something to do."""
        return frozenset(self._of_worker)

    def of(self, worker: WorkerId) -> list[TaskId]:
        return list(self._of_worker.get(worker, ()))

    def is_busy(self, key: RepoKey) -> bool:
        """A round of it is under way for somebody, as far as is known, or enough wait there for one."""
        there = [self._all[i] for i in self._of_repo.get(key, ())]
        return len(there) >= AHEAD_MAX or any(given.begun for given in there)

    def some(self, most: int) -> list[tuple[TaskId, RepoKey, WorkerId]]:
        """So many of all, those first that were not looked at for longest."""
        chosen = [i for i, _ in zip(self._all, range(most), strict=False)]
        for task_id in chosen:
            self._all[task_id] = self._all.pop(task_id)  # to the end
        return [(i, self._all[i].key, self._all[i].worker) for i in chosen]


def _forget(index: dict[_Place, dict[TaskId, None]], place: _Place, task_id: TaskId) -> None:
    tasks = index[place]
    del tasks[task_id]
    if not tasks:
        del index[place]
