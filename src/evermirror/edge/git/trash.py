"""Mirrors that were thrown away, for as long as one may change one's mind; and damaged ones, to look at.

.trash/<UTC seconds>-<id>[~damaged]-<readable>
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from evermirror.edge.git import folder
from evermirror.edge.git.folder import folder_id
from evermirror.edge.git.incoming import named_key
from evermirror.model.repo import RepoKey

SAME_NAME_MAX = 1000  # mirrors of one repo thrown away within one second
READABLE_CHARS = 80
_DAMAGED = "~damaged"


@dataclass(frozen=True, slots=True)
class Trashed:
    """One mirror in the trash. A ``damaged`` one was replaced, and is not brought back."""

    key: RepoKey
    at: float  # UTC seconds
    damaged: bool
    path: Path


class Trash:
    """The folder, below the mirrors' own."""

    def __init__(self, root: Path) -> None:
        self.folder = root / ".trash"
        self._root = root

    def put(self, path: Path, key: RepoKey, now: float, *, damaged: bool = False) -> Path:
        """Takes a mirror away; a clone that reads it goes on reading. Returns where it is now."""
        readable = re.sub(r"[^A-Za-z0-9.-]+", "_", key)[-READABLE_CHARS:]
        stem = f"{int(now)}-{folder_id(key)[:8]}{_DAMAGED if damaged else ''}-{readable}"
        self.folder.mkdir(exist_ok=True)
        names = (self.folder / (stem + (f"-{n}" if n else "")) for n in range(SAME_NAME_MAX))
        return path.rename(next(name for name in names if not name.exists()))

    def items(self) -> list[Trashed]:
        """Newest first. What does not say whose mirror it is cannot be brought back, and is not told."""
        found = []
        for path in self._paths():
            stamp, _, rest = path.name.partition("-")
            key = named_key(path)
            if stamp.isdigit() and key is not None:
                damaged = rest.partition("-")[0].endswith(_DAMAGED)
                found.append((_changed_ns(path), Trashed(key, float(stamp), damaged, path)))
        return [item for _, item in sorted(found, key=lambda f: (f[1].at, f[0]), reverse=True)]

    def take_back(self, key: RepoKey, target: Path) -> bool:
        """The newest sound copy becomes the mirror again. False where there is none, or a mirror is there."""
        if target.exists():
            return False
        for item in self.items():
            if item.key == key and not item.damaged:
                folder.publish(item.path, target, self._root)
                return True
        return False

    def tidy(self, before: float) -> None:
        """Remove what was thrown away before this time (UTC seconds)."""
        for path in self._paths():
            stamp = path.name.partition("-")[0]
            if not stamp.isdigit() or int(stamp) < before:
                folder.remove_tree(path)

    def _paths(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except FileNotFoundError:
            return []


def _changed_ns(path: Path) -> int:
    """When it was moved here, finer than its name tells."""
    try:
        return path.stat().st_ctime_ns
    except OSError:
        return 0
