"""What a script does: ``git remote update`` in each clone, one after the other or several at once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path


def shell_loop(clones: Iterable[Path], env: dict[str, str]) -> None:
    """One after the other."""
    script = 'for clone; do git -C "$clone" remote update >/dev/null 2>&1 || exit 1; done'
    subprocess.run(["sh", "-c", script, "loop", *map(str, clones)], env=env, check=True)


def xargs_loop(clones: Iterable[Path], env: dict[str, str], at_once: int) -> None:
    """Several at once."""
    names = "\0".join(map(str, clones)) + "\0"
    command = ["xargs", "-0", "-P", str(at_once), "-I{}", "git", "-C", "{}", "remote", "update"]
    quiet = subprocess.DEVNULL
    subprocess.run(command, input=names.encode(), env=env, stdout=quiet, stderr=quiet, check=True)
