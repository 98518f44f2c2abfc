"""What a process does from its start to its signal to stop: one life of its node, or several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import structlog

from evermirror.errors import ExitCode
from evermirror.nodes import lifecycle

log = structlog.get_logger(__name__)

ANEW_S = 5.0  # between two lives of a node, which may end at once for the same reason


async def live(signals: lifecycle.Signals, one_life: Callable[[], Coroutine[None, None, bool]]) -> int:
    """Until a signal asks for a stop; returns the process's exit code. ``one_life`` starts a node and returns
    whether it was told to stop (``until_stopped``); otherwise a new one is made from its files."""
    dog = asyncio.create_task(lifecycle.watchdog())
    try:
        while not await one_life():
            log.error("the node is made anew from its files", pause_s=ANEW_S)
            if await in_time(signals.stop.wait(), ANEW_S):
                break
    finally:
        dog.cancel()
    return int(ExitCode.OK)


async def until_stopped(signals: lifecycle.Signals, lost: asyncio.Event, reload: Callable[[], None]) -> bool:
    """True once a signal asks for a stop, False once the node has to be made anew."""
    while not signals.stop.is_set():
        await _first_of(signals.stop.wait(), signals.reload.wait(), lost.wait())
        if lost.is_set():
            return False
        if signals.reload.is_set():
            signals.reload.clear()
            reload()
    lifecycle.notify("STOPPING=1")
    log.info("stopping")
    return True


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
