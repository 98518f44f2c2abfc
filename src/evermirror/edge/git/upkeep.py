"""The figures of a mirror's upkeep, read from its folder; what was done when is written into that folder.

So a copy that is replaced by a fresh clone begins anew, and nothing must be kept in step elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from evermirror.core.maintain.facts import Job, Past, RepoUpkeep

PAST_FILE = "evermirror-upkeep.json"
DAMAGED_FILE = "evermirror-damaged"
PAST_BYTES_MAX = 64_000  # ours has some hundred
LOOSE_COUNT_MAX = 100_000  # refs, and objects: more need not be told apart
PACK_SUFFIX = ".pack"
# Index files that git makes from the packs, and can make again.
_GRAPH_FILES = ("info/commit-graph", "info/commit-graphs")
_MIDX = "multi-pack-index"


@dataclass(slots=True)
class _Packs:
    """What the folder of packs holds, by the names without their endings."""

    sizes: dict[str, int] = field(default_factory=dict)
    endings: dict[str, set[str]] = field(default_factory=dict)
    other_bytes: int = 0
    has_midx: bool = False
    has_midx_bitmap: bool = False


def read_upkeep(repo: Path) -> RepoUpkeep:
    """Look at a mirror's folder. Reads names and sizes, and one small file; starts no process."""
    packs = _read_packs(repo / "objects" / "pack")
    usable = {name for name in packs.sizes if ".idx" in packs.endings[name]}
    cruft = {name for name in usable if ".mtimes" in packs.endings[name]}
    counted = {name for name in usable - cruft if ".keep" not in packs.endings[name]}
    loose_objects, loose_bytes = _loose_objects(repo / "objects")
    total_pack_bytes = sum(packs.sizes.values())
    return RepoUpkeep(
        first_seen_at=_made_at(repo),
        pack_count=len(counted),
        pack_bytes=sum(packs.sizes[name] for name in usable - cruft),
        cruft_bytes=sum(packs.sizes[name] for name in cruft),
        loose_objects=loose_objects,
        loose_refs=_loose_refs(repo / "refs"),
        size_bytes=total_pack_bytes + packs.other_bytes + loose_bytes + _size(repo / "packed-refs"),
        has_midx=packs.has_midx,
        has_bitmap=packs.has_midx_bitmap or any(".bitmap" in packs.endings[name] for name in usable),
        has_commit_graph=any(_commit_graphs(repo)),
        has_alternates=_size(repo / "objects" / "info" / "alternates") > 0,
        packs_id=hashlib.sha256("\n".join(sorted(usable)).encode()).hexdigest()[:32],
        past=MappingProxyType(read_past(repo)),
    )


def orphans(repo: Path) -> set[str]:
    """Files of packs that have no index: git was killed while it made or removed them."""
    folder = repo / "objects" / "pack"
    found = _read_packs(folder).endings
    return {
        str(folder / (name + ending))
        for name, endings in found.items()
        if ".idx" not in endings
        for ending in endings
    }


def graph_leftovers(repo: Path) -> set[str]:
    """Locks and temporary files of a git that was killed while it wrote a commit-graph."""
    found = _scan(repo / "objects" / _GRAPH_FILES[1])
    return {e.path for e in found if e.name.startswith("tmp_") or e.name.endswith(".lock")}


def remove_derived(repo: Path) -> None:
    """Remove the indexes over packs and commits: they can be made again. Readers keep what they opened."""
    objects = repo / "objects"
    for name in _commit_graphs(repo):
        _unlink(name)
    for entry in _scan(objects / "pack"):
        if entry.name.startswith(_MIDX):
            _unlink(entry.path)


def is_damaged(repo: Path) -> bool:
    """fsck said so, and nothing was done about it yet: the next sync is to replace the mirror."""
    return (repo / DAMAGED_FILE).exists()


def mark_damaged(repo: Path, why: str | None) -> None:
    """None: it is sound. The mark goes to the trash with the damaged copy; a fresh clone has none."""
    with suppress(OSError):  # where even this cannot be written the next fsck says it again
        if why is None:
            (repo / DAMAGED_FILE).unlink(missing_ok=True)
        else:
            (repo / DAMAGED_FILE).write_text(why + "\n", "utf-8")


# What was done when


def read_past(repo: Path) -> dict[Job, Past]:
    """Empty where it was never written, or cannot be read: then everything is done anew."""
    try:
        with open(repo / PAST_FILE, "rb") as file:
            told = json.loads(file.read(PAST_BYTES_MAX))
        return {Job(name): _past(entry) for name, entry in told.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_past(repo: Path, past: dict[Job, Past]) -> None:
    """Whole or not at all."""
    told = {
        job.value: {
            "tried_at": p.tried_at,
            "done_at": p.done_at,
            "failures": p.failures,
            "packs_id": p.packs_id,
        }
        for job, p in past.items()
    }
    fresh = repo / (PAST_FILE + ".new")
    fresh.write_text(json.dumps(told), "utf-8")
    fresh.replace(repo / PAST_FILE)


def _past(entry: dict[str, Any]) -> Past:
    done_at = entry["done_at"]
    return Past(
        tried_at=float(entry["tried_at"]),
        done_at=None if done_at is None else float(done_at),
        failures=int(entry["failures"]),
        packs_id=str(entry["packs_id"]),
    )


# Looking


def _read_packs(folder: Path) -> _Packs:
    packs = _Packs()
    for entry in _scan(folder):
        if entry.name.startswith("pack-"):
            name, dot, ending = entry.name.partition(".")
            packs.endings.setdefault(name, set()).add(dot + ending)
            if dot + ending == PACK_SUFFIX:
                packs.sizes[name] = _size(entry.path)
                continue
        elif entry.name.startswith(_MIDX):
            packs.has_midx |= entry.name == _MIDX
            packs.has_midx_bitmap |= entry.name.endswith(".bitmap")
        packs.other_bytes += _size(entry.path)
    return packs


def _loose_objects(objects: Path) -> tuple[int, int]:
    count = size = 0
    for folder in _scan(objects):
        if len(folder.name) != 2:  # 00 to ff
            continue
        for entry in _scan(folder.path):
            count += 1
            size += _size(entry.path)
            if count >= LOOSE_COUNT_MAX:
                return count, size
    return count, size


def _loose_refs(folder: Path) -> int:
    count = 0
    for _, _, files in os.walk(folder):
        count += sum(not name.endswith(".lock") for name in files)
        if count >= LOOSE_COUNT_MAX:
            break
    return count


def _commit_graphs(repo: Path) -> Iterator[str]:
    single, chain = (repo / "objects" / name for name in _GRAPH_FILES)
    if single.is_file():
        yield str(single)
    for entry in _scan(chain):
        if entry.name.endswith((".graph", "chain")):
            yield entry.path


def _made_at(repo: Path) -> float:
    """git init writes ``config``, and nobody changes it afterwards."""
    try:
        return (repo / "config").stat().st_mtime
    except OSError:
        return 0.0


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(path: str | Path) -> int:
    try:
        return os.lstat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
