"""What a figure depends on beside the code: the machine, its versions, and whether it was busy."""

from __future__ import annotations

import os
import platform
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import evermirror

GB = 1e9
FREE_DISK_BYTES = 6 * GB  # estimated, not measured: beyond what all benchmarks have on the disk at one time
FREE_MEMORY_BYTES = 3 * GB  # estimated too: a coordinator, a thousand workers, a database
BUSY_LOAD = 1.0  # one process that computes, beside us


def machine_facts() -> dict[str, object]:
    return {
        "cpu": _field(Path("/proc/cpuinfo"), "model name") or platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": round(os.getloadavg()[0], 2),
        "system": _system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "git": _said("git", "--version").removeprefix("git version "),
        "evermirror": evermirror.__version__,
        "commit": _commit(),
    }


def warnings(facts: Mapping[str, object]) -> list[str]:
    """Why the figures of a run that starts now might be worth less, or why it might not end."""
    found = []
    load = facts["load_before"]
    if isinstance(load, float) and load > BUSY_LOAD:
        found.append(
            f"the machine is busy (load {load:.1f}): wait until it is idle, or trust the figures less"
        )
    folder = tempfile.gettempdir()
    if (free := shutil.disk_usage(folder).free) < FREE_DISK_BYTES:
        found.append(
            f"{folder} has {free / GB:.1f} GB free, all benchmarks need about {FREE_DISK_BYTES / GB:.0f}:"
            " make room, or set TMPDIR to a larger disk"
        )
    available = _field(Path("/proc/meminfo"), "MemAvailable").removesuffix("kB").strip()
    if available.isdecimal() and (free_bytes := int(available) * 1024) < FREE_MEMORY_BYTES:
        found.append(
            f"{free_bytes / GB:.1f} GB of memory are free, the largest need {FREE_MEMORY_BYTES / GB:.0f}"
        )
    return found


def same_machine(a: Mapping[str, object], b: Mapping[str, object]) -> bool:
    """Whether seconds and megabytes of one can be compared with those of the other."""
    return all(a.get(key) == b.get(key) for key in ("cpu", "cores"))


def machine_text(facts: Mapping[str, object]) -> str:
    memory = facts.get("memory_bytes")
    size = f", {memory / GB:.0f} GB of memory" if isinstance(memory, int) else ""
    return f"{facts.get('cpu')}, {facts.get('cores')} cores{size}"


def _field(file: Path, name: str) -> str:
    """What stands after ``name:`` in one of the kernel's files; nothing where there is no such file."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith(name) and ":" in x), "")


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _said(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _commit() -> str | None:
    """The commit that is measured; with a ``+`` where files differ from it."""
    commit = _said("git", "rev-parse", "--short", "HEAD")
    changed = _said("git", "status", "--porcelain", "--", "../../src", "..")
    return f"{commit}+" if commit and changed else commit or None
