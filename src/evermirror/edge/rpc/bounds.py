"""Bounds of the numbers and times that workers and aggregators tell: one table, applied to every frame.

    transport ──▶ decode: refuses what is no frame (FrameInvalid) ──▶ BoundedPeer: clamps ──▶ coordinator

Rules
- A number outside its range becomes the nearest end of the range; it never ends the connection. A worker
  with a wrong clock or a bug keeps working, and its other reports arrive.
- A time further ahead than CLOCK_SLACK_S becomes now; one before 1970 becomes 1970, and 0 means "never".
- Work ends after it began, and takes DURATION_MAX_S at most.
- Ids and sequence numbers are compared, never added up: decoding has bounded them to 63 bits already.
- Every number of every frame has its line in the table: tests/edge/rpc/test_bounds.py finds those without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import is_
from typing import Any

from evermirror.edge.rpc.transport import Identity, Peer
from evermirror.model.activity import NO_RHYTHM, Activity, Rhythm
from evermirror.model.failure import Failure
from evermirror.model.kept import KeptTip
from evermirror.model.messages import (
    ApplySettings,
    Declined,
    Failed,
    HeldRepo,
    HostState,
    Kept,
    Progress,
    Refused,
    Restored,
    RunningSync,
    Started,
    Synced,
    Verified,
    WorkerStatus,
)
from evermirror.model.push import Pushed
from evermirror.model.wire import (
    Answer,
    AskHolders,
    Beat,
    Compared,
    Down,
    Follow,
    Followed,
    Have,
    Hello,
    Holding,
    Numbered,
    Obeyed,
    Passing,
    Up,
)

CLOCK_SLACK_S = 300.0  # clocks of home servers differ by seconds, seldom by minutes
AHEAD_MAX_S = 31 * 86_400.0  # the next attempt, or the end of a host's pause: longer waits are not planned
DURATION_MAX_S = 31 * 86_400.0  # of one sync, and of each of its phases
REPOS_MAX = 10_000_000  # on one worker: ten times what a fleet is built for
TOTAL_MAX = 10**12  # looks and changes since a process began: a thousand a second for 30 years
DISK_BYTES_MAX = 2**60  # of a disk, and received since a process began
REPO_BYTES_MAX = 2**44  # 16 TiB, of one repo or one transfer: git itself gives up far below
REFS_MAX = 100_000_000  # of one repo
COMMITS_MAX = 1_000_000  # new ones in one sync: workers stop counting at 10,000
FAILURES_MAX = 1_000_000  # in a row: one a minute for two years
PUSHES_MAX = 1e9  # that fade: one a second for 30 years
RATE_MAX = 1e6  # looks per second
SLOTS_MAX = 1_000_000

Rule = Callable[[Any, float], Any]
"""The value as it counts, from what was told and now; the same object where nothing is wrong with it."""


def _range(low: float, high: float) -> Rule:
    """Keeps the type: an int stays one."""

    def clamp(value: Any, _: float) -> Any:
        if low <= value <= high:
            return value
        return type(value)(high if value > high else low)  # what is no number at all is the least

    return clamp


def _past(at: float, now: float) -> float:
    if 0.0 <= at <= now + CLOCK_SLACK_S:
        return at
    return now if at > 0.0 else 0.0


def _soon(at: float, now: float) -> float:
    if 0.0 <= at <= now + AHEAD_MAX_S:
        return at
    return now + AHEAD_MAX_S if at > 0.0 else 0.0


def _as_it_is(value: Any, _: float) -> Any:
    return value


def _each(rule: Rule) -> Rule:
    """Of a tuple."""

    def clamp(values: tuple[Any, ...], now: float) -> tuple[Any, ...]:
        found = tuple([rule(value, now) for value in values])
        return values if all(map(is_, found, values)) else found

    return clamp


def _second(rule: Rule) -> Rule:
    """Of a pair whose first is a name."""

    def clamp(pair: tuple[Any, Any], now: float) -> tuple[Any, Any]:
        value = rule(pair[1], now)
        return pair if value is pair[1] else (pair[0], value)

    return clamp


def _rhythm(rhythm: Rhythm, _: float) -> Rhythm:
    return rhythm if 0.0 <= rhythm.pushes <= PUSHES_MAX else NO_RHYTHM


def within(value: Any, now: float) -> Any:
    """A frame, or a part of one, with every number in its range; the same object where all of them are."""
    rules = BOUNDS.get(type(value))
    if rules is None:
        return value
    changed: dict[str, Any] = {}
    for name, rule in rules.items():
        told = getattr(value, name)
        if told is not None and (counts := rule(told, now)) is not told:
            changed[name] = counts
    if "ended_at" in rules:
        ended = changed.get("ended_at", value.ended_at)
        began = changed.get("started_at", value.started_at)
        if not ended - DURATION_MAX_S <= began <= ended:
            changed["started_at"] = ended if began > ended else ended - DURATION_MAX_S
    return replace(value, **changed) if changed else value


_REPOS, _TOTAL = _range(0, REPOS_MAX), _range(0, TOTAL_MAX)
_DISK_BYTES, _REPO_BYTES = _range(0, DISK_BYTES_MAX), _range(0, REPO_BYTES_MAX)
_REFS, _COMMITS = _range(0, REFS_MAX), _range(0, COMMITS_MAX)
_FAILURES, _SLOTS = _range(0, FAILURES_MAX), _range(0, SLOTS_MAX)
_DURATION, _PERCENT = _range(0.0, DURATION_MAX_S), _range(0.0, 100.0)
_RATE, _PUSHES = _range(0.0, RATE_MAX), _range(0.0, PUSHES_MAX)
_PARTS = _each(within)

BOUNDS: dict[type, dict[str, Rule]] = {
    # Frames
    Hello: {
        "protocol": _as_it_is,  # only compared
        "boot": _as_it_is,
        "generation": _as_it_is,
        "epoch": _as_it_is,
        "seen": _as_it_is,
        "weight": _as_it_is,  # refused in words where it is none (core/fleet/sessions.py)
        "capacity": _REPOS,
        "limits": within,
    },
    Beat: {"status": within},
    Holding: {"items": _PARTS},
    Numbered: {"generation": _as_it_is, "first": _as_it_is, "reports": _PARTS},
    Passing: {"progress": _PARTS},
    Obeyed: {"seq": _as_it_is},
    Compared: {"ranges": _as_it_is, "items": _PARTS},  # ranges are looked up in a set
    Answer: {"number": _as_it_is},
    Follow: {"since": _as_it_is},  # one of another database begins anew (feed.py)
    Followed: {"upto": _as_it_is},  # must be what was told
    Have: {"items": _PARTS},
    AskHolders: {"number": _as_it_is},
    # Reports
    Started: {"task_ids": _as_it_is, "at": _past},
    Progress: {"task_ids": _as_it_is, "percent": _PERCENT, "received_bytes": _REPO_BYTES, "at": _past},
    Synced: {
        "task_ids": _as_it_is,
        "refs_count": _REFS,
        "changes_total": _REFS,
        "commits": _COMMITS,
        "received_bytes": _REPO_BYTES,
        "size_bytes": _REPO_BYTES,
        "started_at": _past,
        "verified_at": _past,
        "ended_at": _past,
        "activity": within,
        "phases_s": _each(_second(_DURATION)),
        "kept": _PARTS,
        "kept_total": _REFS,
        "pushes": _PARTS,
        "look_s": _DURATION,
    },
    Restored: {"task_ids": _as_it_is, "started_at": _past, "ended_at": _past},
    Failed: {
        "task_ids": _as_it_is,
        "failure": within,
        "consecutive_failures": _FAILURES,
        "started_at": _past,
        "ended_at": _past,
        "next_attempt_at": _soon,
    },
    Refused: {"task_ids": _as_it_is, "failure": within, "started_at": _past, "ended_at": _past},
    Verified: {"items": _each(_second(_past))},
    Kept: {"items": _PARTS},
    Declined: {"items": _PARTS},
    WorkerStatus: {
        "repos": _REPOS,
        "polls_total": _TOTAL,
        "polls_per_second": _RATE,
        "changes_total": _TOTAL,
        "received_bytes_total": _DISK_BYTES,
        "running": _PARTS,
        "queued_syncs": _REPOS,
        "hosts": _PARTS,
        "disk_free_bytes": _DISK_BYTES,
        "disk_total_bytes": _DISK_BYTES,
        "at": _past,
    },
    # Parts of them
    ApplySettings: {
        "polls_per_second": _RATE,
        "host_rate": _RATE,
        "slots": _SLOTS,
        "host_rates": _each(_second(_RATE)),
        "told_at": _past,
    },
    HeldRepo: {"verified_at": _past},
    RunningSync: {"percent": _PERCENT, "received_bytes": _REPO_BYTES, "started_at": _past},
    HostState: {"repos": _REPOS, "until": _soon},
    Activity: {"counts": _each(_PUSHES), "as_of": _past, "last_push_at": _past, "rhythm": _rhythm},
    Failure: {"retry_after_s": _DURATION},
    KeptTip: {"at": _past},
    Pushed: {
        "target": _as_it_is,
        "put_total": _REFS,
        "deleted_total": _REFS,
        "waiting_total": _REFS,
        "sent_bytes": _REPO_BYTES,
        "started_at": _past,
        "ended_at": _past,
        "failure": within,
    },
}


class BoundedPeer:
    """A node's connection, whatever carries it, whose frames are within their bounds."""

    def __init__(self, peer: Peer, utc: Callable[[], float]) -> None:
        self._peer = peer
        self._utc = utc

    @property
    def identity(self) -> Identity:
        return self._peer.identity

    @property
    def address(self) -> str:
        return self._peer.address

    async def receive(self) -> Up:
        frame: Up = within(await self._peer.receive(), self._utc())
        return frame

    async def send(self, frame: Down) -> None:
        await self._peer.send(frame)

    async def close(self, reason: str) -> None:
        await self._peer.close(reason)
