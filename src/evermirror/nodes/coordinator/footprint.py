"""Memory that a start, or a large piece of work, leaves behind: given back to the system.

Python and the C library keep what was freed for later. After a million rows were read that is tens of
megabytes, which nobody needs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import re
from collections.abc import Iterator
from pathlib import Path

KEEP_S = 30.0  # between two looks; each takes some milliseconds, in a thread
# Larger pieces are asked of the system, and go back to it when they are freed. By itself the C library moves
# this bound up to 32 MB with the pieces it sees: then what a column needed for a moment is kept for good.
LARGE_BYTES = 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of GNU's malloc.h
_MADV_DONTNEED = 4  # of Linux
_MAPS, _SMAPS = Path("/proc/self/maps"), Path("/proc/self/smaps")
_READ_ONLY = (b"r-xp", b"r--p")
_CHANGED_IF_ANY = {b"Anonymous:", b"Swap:"}
_HEAD = re.compile(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) \S+ \S+ (\d+) *(.*)$")  # of one mapping


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


def let_files_go() -> None:
    """Libraries' machine code, constants and tables of names, which the system mapped in large pieces around
    what the start touched: 30 MB. Little of it is needed again, and comes back from the file by itself. What
    was changed in memory would not, and stays. Where the system does not tell what is mapped, nothing is
    done."""
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is None:
        return
    with contextlib.suppress(OSError, ValueError):  # to save memory is no reason not to start
        found = list(_as_in_files(_SMAPS.read_bytes()))
        still = frozenset(_MAPS.read_bytes().split(b"\n"))  # a thread may have loaded a library meanwhile
        for head, start, end in found:
            if head in still:
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)


def _as_in_files(smaps: bytes) -> Iterator[tuple[bytes, int, int]]:
    """What nobody may write to and is as its file has it, by what the system tells of a process (proc(5)): as
    it tells it, from, to. What was changed counts as anonymous, or as swap where it was put away. Caches are
    left out: the C library's is there only while a library is loaded. Paths are any bytes; a line that cannot
    be understood is passed over."""
    where: tuple[bytes, int, int] | None = None
    unchanged: set[bytes] = set()
    for line in smaps.split(b"\n"):
        head = _HEAD.match(line)
        if head is not None:
            start, end, rights, inode, path = head.groups()
            of_a_file = rights in _READ_ONLY and inode != b"0" and not path.endswith(b".cache")
            where = (line, int(start, 16), int(end, 16)) if of_a_file else None
            unchanged.clear()
        elif where is not None and line.split()[1:] == [b"0", b"kB"]:
            unchanged.add(line.split()[0])
            if unchanged >= _CHANGED_IF_ANY:
                yield where
                where = None
