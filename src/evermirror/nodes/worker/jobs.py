"""The tasks in which rounds run. One whose round ended well goes on with the next round that starts then: a
poll is short enough for a task of its own, and the event loop's turn before it begins, to show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable

from evermirror.model.repo import RepoKey
from evermirror.nodes.worker.round import Round

Work = Callable[[Round], Coroutine[None, None, None]]


class Jobs:
    """``run`` carries out one piece of work, whatever comes of it, and says whether it ended well; one that
    did has waited for somebody, so that nobody else is kept waiting by those that follow. ``ended`` is told
    after each."""

    def __init__(
        self, run: Callable[[Round, Work], Coroutine[None, None, bool]], ended: Callable[[], None]
    ) -> None:
        self._run = run
        self._ended = ended
        self.tasks: dict[RepoKey, asyncio.Task[None]] = {}
        self._awaited: set[asyncio.Task[None]] = set()  # these take up nothing more
        self._free: asyncio.Task[None] | None = None  # what starts now is its
        self._following: tuple[Round, Work] | None = None

    def start(self, this: Round, work: Work) -> None:
        if self._free is not None:
            self.tasks[this.key], self._free = self._free, None
            self._following = this, work
        else:
            self.tasks[this.key] = asyncio.create_task(self._carry_out(this, work))

    def running(self, keys: Iterable[RepoKey]) -> dict[RepoKey, asyncio.Task[None]]:
        return {key: task for key in keys if (task := self.tasks.get(key)) is not None}

    def forget(self, key: RepoKey) -> None:
        """One that was cancelled before it began could not do so itself."""
        self.tasks.pop(key, None)

    async def see_off(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Until these have ended."""
        tasks = set(tasks)
        self._awaited |= tasks
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._awaited -= tasks

    async def stop(self, grace_s: float) -> None:
        """Gives what runs a moment, then ends it."""
        tasks = set(self.tasks.values())
        self._awaited |= tasks
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await self.see_off(tasks)

    async def _carry_out(self, this: Round, work: Work) -> None:
        task = asyncio.current_task()
        following: tuple[Round, Work] | None = (this, work)
        while following is not None:
            this, work = following
            well = False
            try:
                well = await self._run(this, work)
            finally:
                if self.tasks.get(this.key) is task:
                    del self.tasks[this.key]
                self._free = task if well and task not in self._awaited else None
                try:
                    self._ended()
                finally:
                    self._free = None
                    following, self._following = self._following, None
