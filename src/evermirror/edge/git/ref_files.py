"""A bare repository's refs, read from its files: what ``git for-each-ref`` says, without a process.

Only plain cases are read here: loose files with an object id, and ``packed-refs``. For anything else
(symbolic refs, a file that a crash left empty, another ref storage) None says: ask git. Whether the objects
are there is not looked at: a fetch notices, and fsck.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from evermirror.model.refs import Oid

_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
_PACKED = re.compile(rb"^([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\n]+)$", re.MULTILINE)
LOOSE_BYTES_MAX = 1024  # a longer file is nothing that git wrote


def read_ref_files(repo: Path) -> dict[str, Oid] | None:
    """Every ref below ``refs/`` by its name."""
    if (repo / "reftable").exists():
        return None
    try:
        loose = _loose(os.fsencode(repo / "refs"))  # first: git packs a ref before it removes its file
        packed = _packed(repo / "packed-refs")
    except OSError:
        return None
    if loose is None or packed is None:
        return None
    packed.update(loose)
    return packed


def _loose(top: bytes) -> dict[str, Oid] | None:
    found: dict[str, Oid] = {}
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
                    if _OID.fullmatch(content) is None:
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
