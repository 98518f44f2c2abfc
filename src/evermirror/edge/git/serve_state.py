"""A cheap fingerprint of what a mirror serves: as long as it is the same, so is every answer.

git changes a ref by renaming a file in its folder, or by writing packed-refs anew; so the time stamps of the
folders below refs/, of packed-refs and of HEAD, and which inodes they are, change with each ref, and with a
folder that was exchanged or made anew. A time stamp has the grain of the kernel's tick: what changed a moment
ago may change again unseen, and has no fingerprint yet (as git does it with its index).
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from evermirror.edge.git.refs import OWN_NAMESPACE

FOLDERS_MAX = 1_000  # below refs/; a mirror with more has no fingerprint, until they are packed
MIRRORS_MAX = 1_000  # whose folders are remembered
SETTLED_S = 0.1  # far above the 1 to 10 ms of a tick

Stamp = tuple[str, int, int, int, int]  # name, device, inode, changed (ns), size
State = tuple[Stamp, ...]
_OWN = OWN_NAMESPACE.rstrip("/")


class States:
    """Remembers which folders there are, so that a look is one stat for each."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._known: OrderedDict[Path, State] = OrderedDict()

    def read(self, repo: Path) -> State | None:
        """None: it cannot be told now."""
        try:
            known = self._known.get(repo)
            state = tuple(self._stamp(repo, part[0]) for part in known) if known else None
            if state is None or state != known:
                state = self._walk(repo)
                if state is None:
                    return None
                self._remember(repo, state)
        except OSError:
            self._known.pop(repo, None)
            return None
        newest = max(part[3] for part in state)
        return None if abs(self._clock() - newest / 1e9) < SETTLED_S else state

    def _remember(self, repo: Path, state: State) -> None:
        self._known[repo] = state
        self._known.move_to_end(repo)
        if len(self._known) > MIRRORS_MAX:
            self._known.popitem(last=False)

    def _walk(self, repo: Path) -> State | None:
        pending = ["refs"]
        names = ["", "HEAD", "packed-refs", "config"]
        while pending:
            name = pending.pop()
            names.append(name)
            if len(names) > FOLDERS_MAX:
                return None
            if name.startswith(_OWN + "/"):
                continue  # a new date in there is enough: kept refs are not served
            with os.scandir(repo / name) as entries:
                pending += [f"{name}/{e.name}" for e in entries if e.is_dir(follow_symlinks=False)]
        return tuple(self._stamp(repo, name) for name in sorted(names))

    def _stamp(self, repo: Path, name: str) -> Stamp:
        try:
            found = os.stat(repo / name)
        except FileNotFoundError:
            if name != "packed-refs":
                raise
            return (name, 0, 0, 0, 0)
        # The mirror's own folder changes with every lock file: only which one it is counts.
        changed, size = (found.st_mtime_ns, found.st_size) if name else (0, 0)
        return (name, found.st_dev, found.st_ino, changed, size)
