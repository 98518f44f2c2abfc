"""Who waits for rounds: what each one asked for is kept until it has its one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from evermirror.core.schedule.callers import Asked, Callers
from evermirror.edge.git.mirror import Mirrors
from evermirror.model.failure import Failure
from evermirror.model.messages import Refused, Synced, SyncNow
from evermirror.model.repo import RepoKey
from evermirror.model.task import TaskId
from evermirror.nodes.worker.ports import WorkerPort
from evermirror.nodes.worker.pushing import Pushing
from evermirror.nodes.worker.round import Round, too_many, without, without_commit


class Desk:
    """``ask`` → ``started`` → ``ended`` and ``answer``; ``refuse`` at any time before."""

    def __init__(
        self, port: WorkerPort, mirrors: Mirrors, pushing: Pushing, clock: Callable[[], float]
    ) -> None:
        self._port = port
        self._mirrors = mirrors
        self._pushing = pushing
        self._clock = clock
        self._callers = Callers()
        self._asked: dict[TaskId, SyncNow] = {}

    @property
    def keys(self) -> set[RepoKey]:
        """Repos that somebody waits for."""
        return {command.key for command in self._asked.values()}

    async def ask(self, command: SyncNow) -> bool:
        """Whether the repo is to be looked at for this: not where there are too many callers, nor for one
        whose round is under way, and who only says it again."""
        asked = self._callers.ask(command.key, command.task_id)
        if asked is Asked.REFUSED:
            await self.refuse(command.key, (command.task_id,), too_many())
            return False
        self._asked[command.task_id] = command
        self._pushing.ordered(command.task_id)
        return command.task_id not in self._callers.running(command.key)

    async def join(self, command: SyncNow) -> bool:
        """Whether the round that is under way is this caller's from now on: not where there are too many,
        nor for one who only says it again."""
        asked = self._callers.join(command.key, command.task_id)
        if asked is Asked.REFUSED:
            await self.refuse(command.key, (command.task_id,), too_many())
        elif asked is Asked.MERGED:
            self._asked[command.task_id] = command
        return asked is Asked.MERGED

    def started(self, key: RepoKey) -> tuple[SyncNow, ...]:
        """A poll begins; those whose round this is."""
        task_ids = self._callers.started(key)
        return tuple(self._asked[task_id] for task_id in task_ids) if task_ids else ()

    def put_off(self, key: RepoKey) -> None:
        """It saw nothing, and begins again elsewhere."""
        self._callers.put_off(key)

    def ended(self, key: RepoKey) -> None:
        """The round is over, and its callers are about to be told."""
        self._forget(self._callers.ended(key).answered)

    async def drop(self, key: RepoKey, failure: Failure) -> None:
        """All who wait for the repo are told why they wait in vain."""
        await self.refuse(key, self._callers.dropped(key), failure)

    async def refuse(self, key: RepoKey, task_ids: tuple[TaskId, ...], failure: Failure) -> None:
        """These callers do not get what they asked for."""
        now = self._clock()
        self._forget(task_ids)
        if task_ids:
            await self._port.report(Refused(key, task_ids, failure, now, now))

    async def missing_commits(self, this: Round) -> list[Refused]:
        """Callers that want a commit which is not there are told so."""
        refused = []
        for asked in this.asked:
            if asked.min_commit is None or await self._mirrors.has_commit(this.key, asked.min_commit):
                continue
            failure = without_commit(asked.min_commit)
            refused.append(Refused(this.key, (asked.task_id,), failure, this.started_at, self._clock()))
        return refused

    async def answer(self, report: Synced, refused: list[Refused]) -> None:
        await self._port.report(without(report, refused))
        for refusal in refused:
            await self._port.report(refusal)

    def _forget(self, task_ids: Iterable[TaskId]) -> None:
        for task_id in task_ids:
            self._asked.pop(task_id, None)
            self._pushing.over(task_id)
