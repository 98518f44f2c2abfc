"""Processes that tests start: how signals reach them, and which are not ended, to show that none is left."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

BACKGROUND = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)  # ignored by what runs after `nohup … &`
SERVANTS: set[int] = set()  # processes of session fixtures (a database server): not leaks


def let_children_be_signalled() -> None:
    """Signals that this process was started to ignore stay ignored here, and its children heed them: what is
    ignored is inherited, a handler is not, not even one that does nothing."""
    for number in BACKGROUND:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@dataclass(frozen=True, slots=True)
class Child:
    """One process below this one; ``state`` is the kernel's letter (Z: ended, but nobody waited for it)."""

    pid: int
    parent: int
    state: str
    command: str


def children_of_me(root: int | None = None) -> list[Child]:
    """Every process below this one (or ``root``), zombies included, without the fixtures' own servers."""
    everyone = {c.pid: c for c in map(_read, _pids()) if c is not None}
    found: list[Child] = []
    level = {root if root is not None else os.getpid()}
    while level:
        below = [c for c in everyone.values() if c.parent in level and c.pid not in SERVANTS]
        found += below
        level = {c.pid for c in below}
    return found


def wait_for_no_children(timeout_s: float = 5.0, matching: str = "git") -> list[Child]:
    """Waits until no process below whose command has ``matching`` is left; returns those that stayed."""
    end = time.monotonic() + timeout_s
    while True:
        left = [c for c in children_of_me() if matching in c.command]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.02)


def _pids() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _read(pid: int) -> Child | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        command = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return None  # it ended while we looked
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
    return Child(pid, int(parent), state, command or f"[{name}]")
