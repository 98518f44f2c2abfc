"""Memory that a start, or a large piece of work, leaves behind: given back to the system.

Python and the C library keep what was freed for later. After a million rows were read that is tens of
megabytes, which nobody needs again.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc

KEEP_S = 30.0  # between two looks; each takes some milliseconds, in a thread
# Larger pieces are asked of the system, and go back to it when they are freed. By itself the C library moves
# this bound up to 32 MB with the pieces it sees: then what a column needed for a moment is kept for good.
LARGE_BYTES = 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of GNU's malloc.h


def start_small() -> None:
    """For a process that runs for long, before it does anything large."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_M_MMAP_THRESHOLD, LARGE_BYTES)
        option(_M_TRIM_THRESHOLD, LARGE_BYTES)


def settle_memory() -> None:
    """What is free goes back; what is there now stays, and the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    give_back()


async def keep_small() -> None:
    """What connections that came and went left behind goes back now and then, until cancelled."""
    while True:
        await asyncio.sleep(KEEP_S)
        await asyncio.to_thread(give_back)


def give_back() -> None:
    """What the C library holds and nobody uses; where it is another library than GNU's, nothing is done."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
