"""Tasks that live as long as a block, and what a process does from its start to its signal to stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine

import structlog

from evermirror.errors import ExitCode
from evermirror.nodes import lifecycle

log = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def running(
    work: Callable[[], Coroutine[None, None, None]], broken: asyncio.Event
) -> AsyncIterator[None]:
    """A task that lives as long as the block; a bug that ends it is logged and sets ``broken``."""

    async def guarded() -> None:
        try:
            await work()
        except Exception:
            log.exception("a part broke")
            broken.set()

    task = asyncio.create_task(guarded())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_stopped(
    signals: lifecycle.Signals, broken: asyncio.Event, reload: Callable[[], None]
) -> ExitCode:
    """Until a signal asks for a stop, or a part broke."""
    dog = asyncio.create_task(lifecycle.watchdog())
    try:
        while not signals.stop.is_set():
            await _first_of(signals.stop.wait(), signals.reload.wait(), broken.wait())
            if broken.is_set():
                log.error("a part of the process broke: stopping")
                return ExitCode.FAILED
            if signals.reload.is_set():
                signals.reload.clear()
                reload()
    finally:
        dog.cancel()
    lifecycle.notify("STOPPING=1")
    log.info("stopping")
    return ExitCode.OK


async def in_time(work: Coroutine[None, None, object], seconds: float) -> bool:
    """Whether it ended within so many seconds; if not, it is cancelled.

    For what is left to do in a task that is being cancelled itself: there ``asyncio.timeout`` ends in a
    cancellation before Python 3.11.4, and what should follow it is left out."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        late = task.cancel()
    if late:
        await asyncio.wait({task})
        return False
    await task
    return True


async def _first_of(*waits: Coroutine[None, None, object]) -> None:
    tasks = [asyncio.ensure_future(w) for w in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
