"""Texts that workers write and everybody reads: each short and on one line, few of each worker, attributed.

A worker that is not trusted may write what it likes. It can neither fill the overview nor speak in another's
name: what it says comes after what trusted workers say, and begins with its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from evermirror.model.messages import HostState, WorkerStatus
from evermirror.model.printable import short_line
from evermirror.model.worker import WorkerId

NAME_CHARS_MAX = 255  # of a worker: a host's full name fits
VERSION_CHARS_MAX = 100
WORD_CHARS_MAX = 60  # a phase, a state
TOLD_MAX = 50  # warnings, hosts and running syncs in one status
UNTRUSTED_MAX = 3  # of these that are shown of a worker that is not trusted
WARNINGS_MAX = 100  # of all workers that are shown
HOSTS_MAX = 20


def bounded_status(status: WorkerStatus) -> WorkerStatus:
    """``status`` with short texts, and few of them."""
    running = (replace(s, phase=short_line(s.phase, WORD_CHARS_MAX)) for s in status.running[:TOLD_MAX])
    hosts = (
        HostState(
            short_line(h.host, NAME_CHARS_MAX),
            h.repos,
            short_line(h.state, WORD_CHARS_MAX),
            h.until,
            short_line(h.reason),
        )
        for h in status.hosts[:TOLD_MAX]
    )
    warnings = (short_line(w) for w in status.warnings[:TOLD_MAX])
    return replace(status, running=tuple(running), hosts=tuple(hosts), warnings=tuple(warnings))


def is_worker_name(name: str) -> bool:
    """Whether people can read ``name`` as it stands: not long, and nothing in it that a terminal obeys."""
    return len(name) <= NAME_CHARS_MAX and short_line(name, NAME_CHARS_MAX) == name


def shown_warnings(
    statuses: Mapping[WorkerId, WorkerStatus], untrusted: Callable[[WorkerId], str | None]
) -> tuple[str, ...]:
    """Each once. ``untrusted`` names a worker that is not trusted; None for others."""
    own: dict[str, None] = {}
    others: dict[str, None] = {}
    for worker, status in statuses.items():
        if (name := untrusted(worker)) is None:
            own |= dict.fromkeys(status.warnings)
        else:
            others |= dict.fromkeys(f"{name}: {w}" for w in status.warnings[:UNTRUSTED_MAX])
    return tuple(own | others)[:WARNINGS_MAX]


def shown_hosts(
    statuses: Mapping[WorkerId, WorkerStatus], untrusted: Callable[[WorkerId], str | None]
) -> tuple[HostState, ...]:
    """Those of trusted workers first."""
    own: list[HostState] = []
    others: list[HostState] = []
    for worker, status in statuses.items():
        if (name := untrusted(worker)) is None:
            own += status.hosts
        else:
            others += (replace(h, reason=f"{name}: {h.reason}") for h in status.hosts[:UNTRUSTED_MAX])
    return tuple([*own, *others][:HOSTS_MAX])
