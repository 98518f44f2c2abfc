"""Catalog files on disk: a single file, or a folder of them.

What cannot be read at all (missing, no permission, an I/O error) ends the reading with an error, so that the
caller keeps the last good catalog; what can be read but not understood is a problem, and the rest loads.
Content that was read is kept, compressed: the next change is compared with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from evermirror.core.catalog.formats import FILE_MAX_BYTES, is_catalog_path
from evermirror.edge.catalog.tree import Content, FileRef, Listing, Wanted, batches, check_count
from evermirror.errors import UsageError

YOUNG_S = 2.0  # a file touched so lately may change again without a new time stamp: its content decides
_KEPT_LEVEL = 1  # lists of URLs become a sixth of their size at the least effort


class FileTree:
    """The file or folder at ``place``; folders recursively, without hidden names, never through a link."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._kept: dict[tuple[str, str], bytes] = {}

    @property
    def label(self) -> str:
        return f"{self._place}/" if self._place.is_dir() else f"{self._place.parent}/"

    async def look(self) -> Listing:
        return await asyncio.to_thread(self._list)

    async def at(self, version: str | None) -> Listing | None:
        return await self.look()

    async def read(self, wanted: Sequence[Wanted]) -> AsyncIterator[list[Content]]:
        for batch in batches(wanted):
            yield await asyncio.to_thread(self._contents, batch)

    def settle(self, listing: Listing) -> None:
        current = {(path, ref.id) for path, ref in listing.files.items()}
        self._kept = {name: data for name, data in self._kept.items() if name in current}

    def _list(self) -> Listing:
        if not self._place.is_dir():
            return Listing({self._place.name: self._ref(self._place, named=True)})
        found: dict[str, FileRef] = {}
        for path in self._walk():
            found[path.relative_to(self._place).as_posix()] = self._ref(path, named=False)
            check_count(len(found), str(self._place))
        return Listing(found)

    def _walk(self) -> Iterator[Path]:
        for folder, folders, names in os.walk(self._place, onerror=_fail):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (Path(folder, name) for name in sorted(names) if is_catalog_path(name))

    def _ref(self, path: Path, *, named: bool) -> FileRef:
        """``named``: it was given as such, so it may be a link."""
        try:
            info = path.stat() if named else path.lstat()
        except OSError as error:
            raise _unreadable(path, error) from None
        sign = f"{info.st_ino}:{info.st_size}:{info.st_mtime_ns}:{info.st_ctime_ns}"
        if stat.S_ISLNK(info.st_mode):
            return FileRef(sign, trouble="a symbolic link: not followed")
        if not stat.S_ISREG(info.st_mode):
            return FileRef(sign, trouble="not a regular file")
        if info.st_size > FILE_MAX_BYTES:
            return FileRef(
                sign, info.st_size, trouble=f"the file is over {FILE_MAX_BYTES // 2**20} MB: split it"
            )
        if abs(time.time() - info.st_mtime) < YOUNG_S:
            data = self._load(path)
            sign += ":" + hashlib.blake2b(data, digest_size=16).hexdigest()
        return FileRef(sign, info.st_size)

    def _contents(self, batch: list[Wanted]) -> list[Content]:
        return [(path, self._content(path, ref)) for path, ref in batch]

    def _content(self, path: str, ref: FileRef) -> bytes:
        kept = self._kept.get((path, ref.id))
        if kept is not None:
            return zlib.decompress(kept)
        full = self._place / path if self._place.is_dir() else self._place
        data = self._load(full)
        self._kept[path, ref.id] = zlib.compress(data, _KEPT_LEVEL)
        return data

    def _load(self, path: Path) -> bytes:
        try:
            # Non-blocking, so that a pipe that took the file's place cannot hold us up.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(handle, "rb") as file:
                return file.read(FILE_MAX_BYTES)
        except OSError as error:
            raise _unreadable(path, error) from None


def is_git_repository(path: Path) -> bool:
    """Bare, or a work tree with its ``.git``; what lies inside one may be named all the same."""
    bare = (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()
    return bare or (path / ".git").exists()


def _fail(error: OSError) -> None:
    raise _unreadable(Path(error.filename or "?"), error) from None


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"catalog {path} cannot be read: {error.strerror or error}", hint="Check the path and its permissions"
    )
