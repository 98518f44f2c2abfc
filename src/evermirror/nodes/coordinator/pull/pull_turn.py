"""One change of projects at a time, each to its end: nobody hangs, and nobody leaves half a change behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from evermirror.errors import Unavailable

WAIT_S = 10.0  # a database in trouble holds everything up; people are to hear of it

P = ParamSpec("P")
T = TypeVar("T")
_Work = Coroutine[Any, Any, T]


class Turn:
    """``async with turn`` by people and the catalog; ``turn.patient`` by who must not give up."""

    def __init__(self) -> None:
        self.patient = asyncio.Lock()
        self._works: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                await self.patient.acquire()
        except TimeoutError:
            raise Unavailable(
                "what was decided about projects before waits for the database", hint="Try again"
            ) from None

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.patient.release()

    async def finished(self, work: _Work[T]) -> T:
        """What comes of ``work``, which goes on also when whoever asked goes away."""
        task = asyncio.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._works.discard(task)
        if not task.cancelled():
            task.exception()  # whoever still waits is told


class InTurn(Protocol):
    """Who changes projects."""

    @property
    def changing(self) -> Turn: ...


S = TypeVar("S", bound=InTurn)


def to_the_end(method: Callable[Concatenate[S, P], _Work[T]]) -> Callable[Concatenate[S, P], _Work[T]]:
    """The store and the machine hear of a change both, or neither: a client that hangs up cuts nothing."""

    @wraps(method)
    async def uncut(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.changing.finished(method(self, *args, **kwargs))

    return uncut
