"""A bare repository's refs, read from its files and moved there: what git does, without a process.

Only plain cases are read here: loose files with an object id, and ``packed-refs``. For anything else
(symbolic refs, a file that a crash left empty, another ref storage) None says: ask git. Whether the objects
are there is not looked at: a fetch notices, and fsck.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from evermirror.model.refs import Oid, RefChange

_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_PACKED = re.compile(rb"^([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\n]+)$", re.MULTILINE)
LOOSE_BYTES_MAX = 1024  # a longer file is nothing that git wrote
SERVED_BYTES_MAX = 1_000_000  # of refs that are read for whoever asks: some 15,000, in 30 ms; more is git's


def read_ref_files(repo: Path, bytes_max: int | None = None) -> dict[str, Oid] | None:
    """Every ref below ``refs/`` by its name. None also where that is more than ``bytes_max`` of names and
    ids, loose or packed."""
    if (repo / "reftable").exists():
        return None
    try:
        packed_refs = repo / "packed-refs"
        if bytes_max is not None and packed_refs.exists() and packed_refs.stat().st_size > bytes_max:
            return None
        # First: git packs a ref before it removes its file.
        loose = _loose(os.fsencode(repo / "refs"), bytes_max)
        packed = _packed(packed_refs)
    except OSError:
        return None
    if loose is None or packed is None:
        return None
    packed.update(loose)
    return packed


def move_refs(repo: Path, changes: Sequence[RefChange]) -> bool:
    """As ``git update-ref --stdin`` does it: under their locks the old values are looked at and the new ones
    made durable, then all are renamed. False: nothing was changed, as something is not plain; git may know
    how. Raises OSError where a rename fails, after which some may have moved, and no lock is left."""
    if (repo / "reftable").exists():
        return False
    locks: list[bytes] = []
    try:
        packed: dict[str, Oid] | None = None
        for change in changes:
            place = os.path.join(os.fsencode(repo), change.name.encode("utf-8", "surrogateescape"))
            os.makedirs(os.path.dirname(place), exist_ok=True)
            handle = os.open(place + b".lock", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            locks.append(place + b".lock")
            with open(handle, "wb") as lock:
                value = _loose_value(place)
                if value is None:
                    packed = _packed(repo / "packed-refs") if packed is None else packed
                    value = packed.get(change.name, Oid("")) if packed is not None else Oid("")
                if value != change.old or change.new is None:
                    return _unlocked(locks)
                lock.write(change.new.encode("ascii") + b"\n")
                lock.flush()
                os.fsync(lock.fileno())
    except OSError:
        return _unlocked(locks)
    try:
        while locks:
            os.rename(locks[0], locks[0].removesuffix(b".lock"))
            del locks[0]
    except OSError:
        _unlocked(locks)
        raise
    return True


def _unlocked(locks: Sequence[bytes]) -> bool:
    for name in locks:
        with suppress(OSError):
            os.unlink(name)
    return False


def _loose_value(place: bytes) -> Oid | None:
    """None where the ref has no file. What is no plain id has no value that anybody expects."""
    if os.path.islink(place):
        return Oid("")
    try:
        with open(place, "rb", buffering=0) as file:
            content = file.read(LOOSE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return Oid(content.rstrip(b"\n").decode("ascii")) if _OID.fullmatch(content) else Oid("")


def _loose(top: bytes, bytes_max: int | None) -> dict[str, Oid] | None:
    found: dict[str, Oid] = {}
    size = 0
    folders = [(top, "refs/")]
    while folders:
        folder, prefix = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):  # no name of a ref, to git
                    continue
                name = prefix + entry.name.decode("utf-8", "surrogateescape")
                if entry.is_symlink():
                    return None
                if entry.is_dir():
                    folders.append((entry.path, name + "/"))
                elif not name.endswith(".lock"):
                    with open(entry.path, "rb", buffering=0) as file:
                        content = file.read(LOOSE_BYTES_MAX)
                    size += len(name) + len(content)
                    if _OID.fullmatch(content) is None or (bytes_max is not None and size > bytes_max):
                        return None
                    found[name] = Oid(content.rstrip(b"\n").decode("ascii"))
    return found


def _packed(path: Path) -> dict[str, Oid] | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    found = {
        name.decode("utf-8", "surrogateescape"): Oid(oid.decode("ascii"))
        for oid, name in _PACKED.findall(content)
    }
    others = content.count(b"\n^") + content.startswith(b"# ")  # peeled tags, and the header
    lines = content.count(b"\n")
    return found if content[-1:] in (b"", b"\n") and lines == len(found) + others else None
