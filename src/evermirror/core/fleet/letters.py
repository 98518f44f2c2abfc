"""The letters of all keys, one key behind the other; where they are kept is for whoever makes the tables.

They are most of what is known of a repo, and looked at only when its key is asked for. A coordinator keeps
them in a file (edge/store/key_file.py); here is the kind that a machine without a disk has.
"""

from __future__ import annotations

from typing import Protocol


class LettersLost(Exception):
    """What was kept can no longer be read, or is not what was kept: nothing is to be decided from it."""


class Letters(Protocol):
    """Grows at its end, and never changes."""

    def __len__(self) -> int:
        """Bytes in all."""

    @property
    def nbytes(self) -> int:
        """Of memory that it takes."""

    def add(self, letters: bytes) -> None: ...

    def read(self, start: int, end: int) -> bytes:
        """All of them; raises LettersLost."""

    def anew(self) -> Letters:
        """An empty one of the same kind."""


class LettersInMemory:
    def __init__(self) -> None:
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def nbytes(self) -> int:
        return self._bytes.__alloc__()

    def add(self, letters: bytes) -> None:
        self._bytes += letters

    def read(self, start: int, end: int) -> bytes:
        return bytes(self._bytes[start:end])

    def anew(self) -> LettersInMemory:
        return LettersInMemory()
