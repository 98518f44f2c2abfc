"""A transaction runs to its end, also when whoever asked for it is cancelled meanwhile.

A cancelled statement makes SQLAlchemy drop the connection while its thread still has the transaction open: on
SQLite the next writer then waits for the busy time-out, beside a writer that nobody sees. A caller that goes
away (an HTTP client, a time-out) must not do that, so its cancellation waits for the transaction:
milliseconds, at worst the database's own time-outs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. A cancellation is raised only after ``work`` has ended, either way."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # asked again: the first one is raised below
        if not task.cancelled():
            task.exception()  # told to nobody: the caller has gone
        raise
