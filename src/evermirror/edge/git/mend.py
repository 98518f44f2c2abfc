"""Mends packs from what is in the mirror: an index is made again, a pack of which all is elsewhere goes.

    each pack ─▶ verify-pack ─┬─ fine
                              ├─ its index is broken: made again from the pack
                              └─ the pack is broken: set aside ─▶ sound without it? ─┬─ yes: removed
                                                                                     └─ no: put back

What is put back may still hold objects that nobody else has: the clone that replaces the mirror reads them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from evermirror.edge.git import folder, upkeep

PACKS_MAX = 200  # that are looked at; upkeep keeps a mirror below 50
_ASIDE = "evermirror-broken"  # in the mirror's folder, on the same disk
_NEW_INDEX = "evermirror-new.idx"

Run = Callable[..., Awaitable[int]]  # a git command's words to its exit code


async def mend_packs(repo: Path, run: Run, is_sound: Callable[[], Awaitable[bool]]) -> int:
    """How many packs were mended; 0 where the mirror is not sound afterwards: then it is as it was, but for
    indexes made again. For the holder of the mirror's lock."""
    packs = repo / "objects" / "pack"
    returned = await folder.to_its_end(put_back, repo)  # of a check that was killed
    broken: list[str] = []
    indexed = 0
    for pack in sorted(packs.glob("pack-*.pack"))[:PACKS_MAX]:
        if await run("verify-pack", str(pack)) == 0:
            continue
        fresh = repo / _NEW_INDEX
        try:
            whole = await run("index-pack", "-o", str(fresh), str(pack)) == 0
            if whole:
                await folder.to_its_end(_take_index, fresh, pack)
                indexed += 1
            else:
                broken.append(pack.stem)
        finally:
            fresh.unlink(missing_ok=True)
    if not broken and not indexed and not returned:
        return 0
    await folder.to_its_end(upkeep.remove_derived, repo)  # they may tell of what has gone
    try:
        await folder.to_its_end(_set_aside, broken, repo)
        sound = await is_sound()
    except BaseException:
        put_back(repo)
        raise
    if not sound:
        await folder.to_its_end(put_back, repo)
        return 0
    await asyncio.to_thread(folder.remove_tree, repo / _ASIDE)
    return len(broken) + indexed + returned


def _take_index(fresh: Path, pack: Path) -> None:
    """What else git made from the old index goes: it can be made again."""
    folder.fsync(fresh)
    os.replace(fresh, pack.with_suffix(".idx"))
    for derived in (".rev", ".bitmap"):
        pack.with_suffix(derived).unlink(missing_ok=True)
    folder.fsync(pack.parent)


def _set_aside(names: list[str], repo: Path) -> None:
    """Indexes first: a pack without one is nothing to git."""
    packs, aside = repo / "objects" / "pack", repo / _ASIDE
    aside.mkdir(exist_ok=True)
    for name in names:
        files = sorted(packs.glob(f"{name}.*"), key=lambda file: file.suffix != ".idx")
        for file in files:
            file.rename(aside / file.name)


def put_back(repo: Path) -> int:
    """Put back what was set aside, and not found to be of no use. How many packs that were."""
    packs, aside = repo / "objects" / "pack", repo / _ASIDE
    if not aside.is_dir():
        return 0
    packs.mkdir(parents=True, exist_ok=True)
    files = sorted(aside.iterdir(), key=lambda file: file.suffix == ".idx")
    for file in files:
        file.rename(packs / file.name)
    aside.rmdir()
    return sum(file.suffix == ".pack" for file in files)
