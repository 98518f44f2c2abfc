"""What a source of the catalog looks like to whoever reads it: files with ids, and content by id."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evermirror.core.catalog.formats import FILES_MAX
from evermirror.errors import UsageError

BATCH_BYTES = 2**20  # of files read at a time: about 17,000 URLs, some 10 MB as entries


@dataclass(frozen=True, slots=True)
class FileRef:
    """One file as it is now. Equal ids, equal content. ``trouble`` says why it is not read."""

    id: str
    size_bytes: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a source at one moment, by path; ``version`` is the commit, where there is one."""

    files: Mapping[str, FileRef] = field(default_factory=dict)
    version: str | None = None


Wanted = tuple[str, FileRef]  # a path, and which content of it
Content = tuple[str, bytes]


class Tree(Protocol):
    """One source. Trouble is a ``FailureError`` or a ``UsageError``: then the last good catalog stays."""

    @property
    def label(self) -> str:
        """Stands before paths in messages."""
        ...

    async def look(self) -> Listing:
        """The newest there is."""
        ...

    async def at(self, version: str | None) -> Listing | None:
        """As it was at ``version``, else at what is here already; None where that is not known any more."""
        ...

    def read(self, wanted: Sequence[Wanted]) -> AsyncIterator[list[Content]]:
        """The content of files of any listing since the last ``settle``, some at a time."""
        ...

    def settle(self, listing: Listing) -> None:
        """Only what is in ``listing`` will be asked for from now on."""
        ...


def batches(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """In order, each of a few megabytes."""
    found: list[list[Wanted]] = []
    room = 0
    for path, ref in wanted:
        if not found or ref.size_bytes > room:
            found.append([])
            room = BATCH_BYTES
        found[-1].append((path, ref))
        room -= ref.size_bytes
    return found


def check_count(count: int, place: str) -> None:
    if count > FILES_MAX:
        raise UsageError(f"catalog {place} has more than {FILES_MAX} files", hint="Is this the right folder?")
