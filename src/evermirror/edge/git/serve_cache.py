"""Answers of git that are given again: small ones in memory, packs in files, each made once.

    asked ──▶ begun ──(git writes, readers follow)──▶ complete ──(repository changed · no room)──▶ dropped
                │
                └──(git failed · all readers left)──▶ dropped

A pack's readers follow the file while git still writes it: a thousand clients that ask for the same make one
pack. Only what git ended without an error is given to those who come later. Nothing outlives the process.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

READ_BYTES = 256 * 1024
PACKS_MAX = 256  # files, each with an open descriptor
FREE_BYTES_MIN = 512_000_000  # of the disk, that a cached pack leaves to the mirrors
ANSWER_BYTES_MAX = 8_000_000  # of one answer in memory: refs of a repository with 100,000
# The same where files are possible: slow clients can keep many answers, of all kinds of questions, in memory.
SMALL_ANSWER_BYTES_MAX = 1_000_000
ANSWERS_BYTES_MAX = 32_000_000  # of all of them


_T = TypeVar("_T")


class Answers:
    """Small answers, the longest unused one forgotten first."""

    def __init__(self, bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self.bytes = 0

    def get(self, key: bytes) -> bytes | None:
        answer = self._kept.get(key)
        if answer is not None:
            self._kept.move_to_end(key)
        return answer

    def put(self, key: bytes, answer: bytes) -> None:
        self.bytes += len(answer) - len(self._kept.pop(key, b""))
        self._kept[key] = answer
        while self.bytes > self._bytes_max:
            self.bytes -= len(self._kept.popitem(last=False)[1])


class Pack:
    """One answer in a file, from its first byte on."""

    def __init__(
        self, path: Path, repo: Path, state: object, expected_bytes: int, client: str, is_list: bool
    ) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._grown = asyncio.Event()
        self._readers = 0
        self._dropped = False
        self.abandoned: Callable[[], None] = (
            self.drop
        )  # called when its last reader left, and nobody may come later
        self.repo = repo
        self.state = state
        self.expected_bytes = expected_bytes
        self.client = client  # who asked first
        self.is_list = is_list  # of refs
        self.size = 0
        self.ended = False
        self.trouble: Exception | None = None

    @property
    def claimed_bytes(self) -> int:
        return self.size if self.ended else max(self.size, self.expected_bytes)

    @property
    def closed(self) -> bool:
        """Nobody reads it any more, and its bytes are gone from the disk."""
        return self._file < 0

    @property
    def is_pinned(self) -> bool:
        """Its room cannot be had: somebody reads it, or git still writes it."""
        return self._readers > 0 or not self.ended

    @property
    def file(self) -> int:
        """Where git writes to."""
        return self._file

    def grown(self, size: int) -> None:
        if size != self.size:
            self.size = size
            self._wake()

    def end(self, trouble: Exception | None = None) -> None:
        self.ended, self.trouble = True, trouble
        self._wake()
        self._close_perhaps()

    async def follow(self) -> AsyncGenerator[bytes, None]:
        """Everything, from the first byte on. To be begun at once, and closed."""
        self._readers += 1
        at = 0
        try:
            while True:
                grown = self._grown
                while at < self.size:
                    chunk = await self._read(at)
                    at += len(chunk)
                    yield chunk
                if self.ended:
                    break
                if grown is self._grown:
                    await grown.wait()
            if self.trouble is not None:
                raise self.trouble
        finally:
            self._readers -= 1
            if not self._readers and (not self.ended or self.state is None):
                self.abandoned()
            self._close_perhaps()

    async def _read(self, at: int) -> bytes:
        want = min(READ_BYTES, self.size - at)
        buffer = bytearray(want)
        try:  # in memory, nearly always: then there is nothing to wait for
            got = os.preadv(self._file, [buffer], at, os.RWF_NOWAIT)
        except OSError:
            got = 0
        if not got:
            got = await _in_thread(lambda: os.preadv(self._file, [buffer], at))
        if not got:
            raise OSError(f"a cached pack ends at byte {at} of {self.size}")
        return bytes(buffer) if got == want else bytes(buffer[:got])

    def drop(self) -> None:
        """No new readers; the file goes now, its bytes when the last reader has left."""
        if not self._dropped:
            self._dropped = True
            self._path.unlink(missing_ok=True)
            self._close_perhaps()

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def _close_perhaps(self) -> None:
        if self._dropped and self.ended and not self._readers and self._file >= 0:
            os.close(self._file)
            self._file = -1


Make = Callable[[Pack], Awaitable[bool]]  # has git write into it; whether that ended without an error


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """How full it is."""

    packs: int
    bytes: int


class Packs:
    """The files in one folder, bounded; it is emptied at the start."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._packs: OrderedDict[bytes, Pack] = OrderedDict()
        self._leaving: list[Pack] = []  # dropped, but somebody still reads them
        self._writers: set[asyncio.Task[None]] = set()
        self._serial = 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def figures(self) -> CacheFigures:
        return CacheFigures(len(self._packs), sum(p.size for p in self._packs.values()))

    def find(self, key: bytes) -> Pack | None:
        """The file with this answer, complete or on its way. To be followed at once."""
        found = self._packs.get(key)
        if found is not None:
            self._packs.move_to_end(key)
        return found

    def share(
        self,
        key: bytes,
        repo: Path,
        state: object,
        make: Make,
        expected: int | None = None,
        client: str = "",
    ) -> Pack | None:
        """The file with this answer, complete or on its way; else ``make`` begins to fill it for ``client``.
        ``expected``: the bytes of a list of refs; a pack's are known by the mirror's. ``state`` None: the
        answer is for those who are here now. None where it would not fit. To be followed at once."""
        if (found := self.find(key)) is not None:
            return found
        pack = self._begin(key, repo, state, expected, client)
        if pack is None:
            return None
        writer = asyncio.create_task(self._fill(key, pack, make))
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

        def abandoned() -> None:
            self.drop(key, pack)
            writer.cancel()

        pack.abandoned = abandoned
        return pack

    async def _fill(self, key: bytes, pack: Pack, make: Make) -> None:
        """A failure, also one that git told in its answer, is for those who are here now and nobody else."""
        trouble: Exception | None = None
        complete = False
        try:
            complete = await make(pack)
        except Exception as error:
            trouble = error
        finally:
            pack.end(trouble)
            if not complete:
                self.drop(key, pack)

    def _begin(self, key: bytes, repo: Path, state: object, expected: int | None, client: str) -> Pack | None:
        self._drop_outdated(repo, state)
        is_list = expected is not None
        expected = _packed_bytes(repo) if expected is None else expected
        if not self._is_fair(client, expected, is_list=is_list) or not self._make_room(expected):
            return None
        self._serial += 1
        try:
            pack = Pack(self._folder / f"{self._serial}.pack", repo, state, expected, client, is_list=is_list)
        except OSError:
            return None  # the disk is full, or somebody removed the folder: then without
        self._packs[key] = pack
        return pack

    def forget(self, key: bytes) -> None:
        """The file with this answer is given to nobody who comes later."""
        if (found := self._packs.get(key)) is not None:
            self.drop(key, found)

    def drop(self, key: bytes, pack: Pack) -> None:
        if self._packs.get(key) is pack:
            del self._packs[key]
        pack.drop()
        self._leaving = [p for p in (*self._leaving, pack) if not p.closed]

    def _drop_outdated(self, repo: Path, state: object) -> None:
        for key, pack in list(self._packs.items()):
            if (pack.repo == repo and pack.state != state) or not pack.repo.is_dir():
                self.drop(key, pack)

    def _is_fair(self, client: str, expected: int, *, is_list: bool) -> bool:
        """Of the files whose room cannot be had, a client began no more than are left, and at most half of
        the files and bytes are lists of refs: whoever reads those slowly leaves room for packs."""
        pinned = [p for p in (*self._packs.values(), *self._leaving) if p.is_pinned]
        lists = [p for p in pinned if p.is_list]
        if is_list and (
            len(lists) >= PACKS_MAX // 2
            or sum(p.claimed_bytes for p in lists) + expected > self._bytes_max // 2
        ):
            return False
        return sum(p.client == client for p in pinned) < PACKS_MAX - len(pinned)

    def _make_room(self, expected: int) -> bool:
        if expected > self._bytes_max // 2:
            return False
        try:
            if shutil.disk_usage(self._folder).free < expected + FREE_BYTES_MIN:
                return False
        except OSError:
            return False
        for key, pack in list(self._packs.items()):
            if self._has_room(expected):
                return True
            if not pack.is_pinned:
                self.drop(key, pack)
        return self._has_room(expected)

    def _has_room(self, expected: int) -> bool:
        self._leaving = [p for p in self._leaving if not p.closed]
        there = [*self._packs.values(), *self._leaving]
        return sum(p.claimed_bytes for p in there) + expected <= self._bytes_max and len(there) < PACKS_MAX


async def _in_thread(work: Callable[[], _T]) -> _T:
    """As ``to_thread``, but whoever is cancelled waits for the thread: it uses a descriptor of ours."""
    job = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait({job})
        raise


def _packed_bytes(repo: Path) -> int:
    """No clone is much larger than the packs that it is made from."""
    try:
        with os.scandir(repo / "objects" / "pack") as entries:
            return sum(e.stat().st_size for e in entries if e.name.endswith(".pack"))
    except OSError:
        return 0
