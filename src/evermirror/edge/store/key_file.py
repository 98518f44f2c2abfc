"""The letters of a million keys in a file instead of in memory: 45 MB that are rarely looked at.

It has no name, is this process's own, and goes with it: at the next start it is written again from the
database. It is read by single reads and not mapped, so that the pages are the system's: it keeps them while
there is room, and a read takes a microsecond then; where memory is short it gives them up before it stops
anybody. A disk that is full costs memory, nothing else: what it does not take stays here. A disk that does
not give back what it took is the end of the process: the next one writes all anew.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path

import structlog

from evermirror.core.fleet.letters import LettersLost

log = structlog.get_logger(__name__)

TAIL_BYTES = 256 * 1024  # gathered before they are written


class KeyFile:
    """``Letters`` in a file below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0  # bytes in the file
        self._tail = bytearray()  # what came behind them
        self._file = _nameless(folder)
        self._takes = self._file >= 0  # more
        if self._takes:
            weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        return self._written + len(self._tail)

    @property
    def nbytes(self) -> int:
        return self._tail.__alloc__()

    def add(self, letters: bytes) -> None:
        self._tail += letters
        if self._takes and len(self._tail) >= TAIL_BYTES:
            self._write()

    def read(self, start: int, end: int) -> bytes:
        if start >= self._written:
            return bytes(self._tail[start - self._written : end - self._written])
        if end <= self._written:
            return self._read_file(start, end)
        behind = bytes(self._tail[: end - self._written])
        return self._read_file(start, self._written) + behind

    def anew(self) -> KeyFile:
        return KeyFile(self._folder)

    def _read_file(self, start: int, end: int) -> bytes:
        try:
            letters = os.pread(self._file, end - start, start)
        except OSError as error:
            raise LettersLost(f"the file of keys cannot be read: {error.strerror}") from error
        if len(letters) < end - start:
            raise LettersLost(f"the file of keys is shorter than what was written: {self._written} bytes")
        return letters

    def _write(self) -> None:
        done = 0
        try:
            with memoryview(self._tail) as tail:
                while done < len(tail):
                    done += os.pwrite(self._file, tail[done:], self._written + done)
        except OSError as error:
            log.warning("keys stay in memory", reason=error.strerror)
            self._takes = False
            return
        self._written += done
        self._tail = bytearray()


def _nameless(folder: Path) -> int:
    """Negative where there can be none."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return os.dup(file.fileno())
    except OSError as error:
        log.warning("keys stay in memory", reason=error.strerror)
        return -1
