"""How loaded a node is, by two samples of what its node exporter tells.

| figure  | is                                                                   | level                   |
|---------|----------------------------------------------------------------------|-------------------------|
| cpu     | time that was neither idle nor waited for disks, of all CPUs' time   | > 80 % high, < 40 % low |
| memory  | available, of all                                                    | < 5 % high              |
| network | bytes a second, received and sent, of the busiest interface          | none, it is shown       |
| git     | processes named git, where a process exporter tells; else those that | none, it is shown       |
|         | are running                                                          |                         |

Rules
- The CPU's share is one of counters of the node, and not of anybody's clock: one that jumps changes nothing.
- A CPU whose counters went back was restarted, and is left out, as is one that only one sample has. A single
  mode that goes back a little (Linux does that with iowait) stood still.
- Two samples with the same counters are one that somebody kept: they say nothing.
- Samples too far apart say nothing of now.
- Without the CPU only a memory that is nearly full says something.
- Of several nodes the worst counts: git works on one of them, and that one is to be spared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from evermirror.core.pull.load import TOLD_S, cpu_load
from evermirror.model.pull import Load, LoadLevel

MEMORY_LOW_SHARE = 0.05  # available; below, the node is about to swap or to kill
APART_MAX_S = TOLD_S  # between two samples that are compared
IDLE_MODES = frozenset({"idle", "iowait"})
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_RANKS = {LoadLevel.LOW: 0, LoadLevel.NORMAL: 1, LoadLevel.HIGH: 2}

Modes = Mapping[str, float]  # seconds by mode


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What one look at an exporter told; what it did not is empty or None. ``at``: seconds of our own,
    monotonic clock."""

    at: float
    cpus: Mapping[str, Modes] = field(default_factory=dict)
    memory_available: float | None = None  # share of all
    network_bytes: Mapping[str, float] = field(default_factory=dict)  # by interface, both ways
    git_processes: int | None = None
    running_processes: int | None = None


def node_load(before: NodeSample | None, after: NodeSample) -> Load | None:
    """None: these samples say nothing."""
    elapsed_s = after.at - before.at if before is not None else 0.0
    if before is None or elapsed_s > APART_MAX_S:
        before = after
    percent = _cpu_percent(before.cpus, after.cpus)
    memory = after.memory_available
    scarce = memory is not None and memory < MEMORY_LOW_SHARE
    if percent is None and not scarce:
        return None
    level = LoadLevel.HIGH if scarce or percent is None else cpu_load(percent).level
    figures = [f"cpu {percent:.0f} %"] if percent is not None else []
    if memory is not None:
        figures.append(f"{_percent(memory)} of memory available")
    rate = _network_rate(before.network_bytes, after.network_bytes, elapsed_s)
    if rate is not None:
        figures.append(f"network {_size(rate)}/s")
    if after.git_processes is not None:
        figures.append(_counted(after.git_processes, "git process"))
    elif after.running_processes is not None:
        figures.append(_counted(after.running_processes, "running process"))
    return Load(level, ", ".join(figures))


def worst(loads: Iterable[Load]) -> Load | None:
    """Of several nodes; None where none is known. Of equal levels the first."""
    known = list(loads)
    if len(known) < 2:
        return known[0] if known else None
    found = max(known, key=lambda load: _RANKS[load.level])
    return Load(found.level, f"{found.reason} (the busiest of {len(known)} nodes)")


def _cpu_percent(before: Mapping[str, Modes], after: Mapping[str, Modes]) -> float | None:
    busy_s = total_s = 0.0
    for cpu, modes in after.items():
        earlier = before.get(cpu)
        if earlier is None or sum(modes.values()) < sum(earlier.values()):
            continue
        for mode, seconds in modes.items():
            spent_s = max(0.0, seconds - earlier.get(mode, seconds))
            total_s += spent_s
            busy_s += 0.0 if mode in IDLE_MODES else spent_s
    if not (isfinite(total_s) and total_s > 0):
        return None
    return 100.0 * busy_s / total_s


def _network_rate(before: Mapping[str, float], after: Mapping[str, float], elapsed_s: float) -> float | None:
    if elapsed_s <= 0:
        return None
    moved = [count - before[name] for name, count in after.items() if name in before]
    rates = [count / elapsed_s for count in moved if count >= 0 and isfinite(count)]
    return max(rates, default=None)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _size(count: float) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 'es'}"
