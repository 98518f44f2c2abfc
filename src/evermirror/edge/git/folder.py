"""Mirrors as folders: who may write, what killed gits left, how one becomes visible, replaced, or trash."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from evermirror.model.failure import OURS, Failure, FailureError, FailureKind
from evermirror.model.repo import RepoKey

LOCK_POLL_S = 0.1  # another process holds it: rare, and over within seconds
SCAN_DEPTH_MAX = 64  # deeper than any URL path that is accepted
_RENAME_EXCHANGE = 2  # from linux/fs.h
_AT_FDCWD = -100  # from fcntl.h

_T = TypeVar("_T")


def folder_id(key: RepoKey) -> str:
    """A short name for a repo's lock and its folder of incoming data."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Locks:
    """One writer per repo. Inside this process waiters queue in order; between processes a file lock decides.

    The lock is on an open file that git inherits: it ends when the last git that works there is gone, even
    if we were killed before."""

    def __init__(self, folder: Path, wait_s: float) -> None:
        self._folder = folder
        self._wait_s = wait_s
        self._queues: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[int]:
        """Wait for the lock ``name``; gives its file descriptor."""
        lock, users = self._queues.get(name, (asyncio.Lock(), 0))
        self._queues[name] = (lock, users + 1)
        try:
            async with lock:
                descriptor = await self._acquire(name)
                try:
                    yield descriptor
                finally:
                    os.close(descriptor)
        finally:
            lock, users = self._queues[name]
            if users == 1:
                del self._queues[name]
            else:
                self._queues[name] = (lock, users - 1)

    async def _acquire(self, name: str) -> int:
        folder = self._folder / name[:2]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise FailureError(failure_of(error)) from error
        deadline = asyncio.get_running_loop().time() + self._wait_s
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return descriptor
                except BlockingIOError:
                    if asyncio.get_running_loop().time() > deadline:
                        raise FailureError(_BUSY) from None
                await asyncio.sleep(LOCK_POLL_S)
        except BaseException:
            os.close(descriptor)
            raise


_BUSY = Failure(
    FailureKind.UNKNOWN,
    "another process is writing this mirror",
    hint="only one evermirror may use a data folder",
    context={OURS: "busy"},
)


async def to_its_end(work: Callable[..., _T], *args: object) -> _T:
    """Work in a thread that writes: when cancelled it is waited for, or it would write without the lock."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # once more: that changes nothing
                await asyncio.wait({running})
        raise


def clean_leftovers(repo: Path) -> int:
    """Remove locks and temporary files of killed gits. Only for the holder of the lock. Returns how many."""
    found = [e.path for e in _entries(repo) if e.name.endswith((".lock", ".new")) and e.is_file()]
    found += [p for p in _walk_files(repo / "refs") if p.endswith(".lock")]
    for folder in _object_folders(repo / "objects"):
        found += [
            e.path for e in _entries(folder) if _is_leftover(e.name) and e.is_file(follow_symlinks=False)
        ]
    remove_files(found)
    return len(found)


def object_files(repo: Path) -> set[str]:
    """Paths of all packs and loose objects, finished ones only."""
    return {
        e.path
        for folder in _object_folders(repo / "objects")
        for e in _entries(folder)
        if e.is_file(follow_symlinks=False) and not _is_leftover(e.name)
    }


def remove_files(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            os.unlink(path)


def size_of(repo: Path) -> int:
    """Bytes of all files below ``repo``; files that vanish while we look count nothing."""
    total = 0
    for path in _walk_files(repo):
        with suppress(FileNotFoundError):
            total += os.lstat(path).st_size
    return total


def fsync_tree(folder: Path) -> None:
    """Make every file and folder below durable."""
    for path, _, files in os.walk(folder, topdown=False):
        for name in files:
            fsync(os.path.join(path, name))
        fsync(path)


def publish(source: Path, target: Path, root: Path) -> None:
    """Move a finished folder to where it is seen. Durable when this returns."""
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    fsync(source.parent)
    for parent in target.parents:
        fsync(parent)
        if parent == root:
            break


def exchange(fresh: Path, old: Path) -> None:
    """Swap two folders, so that at each moment one of them is at ``old``'s place (where the system can)."""
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is not None:
        result = renameat2(_AT_FDCWD, os.fsencode(fresh), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE)
        number = ctypes.get_errno()
        if result == 0:
            fsync(old.parent)
            fsync(fresh.parent)
            return
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number), str(fresh))
    aside = fresh.with_name(fresh.name + ".aside")
    old.rename(aside)
    fresh.rename(old)
    aside.rename(fresh)


def remove_tree(folder: Path) -> None:
    """Remove a folder that may be incomplete, or not there."""
    shutil.rmtree(folder, ignore_errors=True)


def find_mirrors(root: Path) -> Iterator[Path]:
    """Folders that look like bare repositories, relative to ``root``; our own dot-folders are skipped."""
    pending = [(root, 0)]
    while pending:
        folder, depth = pending.pop()
        for entry in _entries(folder):
            if not entry.is_dir(follow_symlinks=False) or (depth == 0 and entry.name.startswith(".")):
                continue
            path = Path(entry.path)
            if entry.name.endswith(".git") and (path / "HEAD").is_file():
                yield path.relative_to(root)
            elif depth < SCAN_DEPTH_MAX:
                pending.append((path, depth + 1))


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Of the file system that holds a folder, as ``df`` shows it: blocks that only root may use do not count,
    neither as room nor as a part of the whole."""

    total_bytes: int  # used and available
    free_bytes: int  # available

    @property
    def used_share(self) -> float:
        return 1.0 - self.free_bytes / self.total_bytes if self.total_bytes else 1.0


def disk_usage(folder: Path) -> DiskUsage:
    usage = shutil.disk_usage(folder)
    return DiskUsage(usage.used + usage.free, usage.free)


def check_disk(path: Path, device: int) -> None:
    """Raise where ``path`` is, or would be made, on another disk than ``device``."""
    there = next(near for near in (path, *path.parents) if near.exists())
    if there.stat().st_dev != device:
        message = f"{path} is on another disk than at the start, and nothing is made there"
        hint = "mount its disk, or restart if this is meant"
        raise FailureError(Failure(FailureKind.DISK_FULL, f"{message}: {hint}"))


def failure_of(error: OSError) -> Failure:
    """Our own file operations, told like git's."""
    words = f"{error.strerror or error}: {error.filename}" if error.filename else str(error.strerror or error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(FailureKind.DISK_FULL, words, hint="free some space in the data folder")
    if error.errno == errno.EROFS:
        return Failure(FailureKind.DISK_FULL, words, hint="check the disk, and mount it writable")
    return Failure(FailureKind.UNKNOWN, words)


def _is_leftover(name: str) -> bool:
    return name.startswith(("tmp_", ".tmp-")) or name.endswith(".lock")


def _object_folders(objects: Path) -> Iterator[Path]:
    yield objects
    for entry in _entries(objects):
        if entry.is_dir(follow_symlinks=False):
            yield Path(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _walk_files(folder: Path) -> Iterator[str]:
    for path, _, files in os.walk(folder):
        for name in files:
            yield os.path.join(path, name)


def fsync(path: str | Path) -> None:
    """Make one file, or a folder's list of names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
