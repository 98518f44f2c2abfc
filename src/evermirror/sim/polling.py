"""`simulate polling`: the very scheduler that runs in production, on push histories, in virtual time.

Every repo starts with what a clone would have told: all its pushes before the start. From then on a push is
only known once a poll has seen it; its delay is the time from the push to that poll. Delays count after a
warm-in. The run goes on beyond the end of the histories until the last push has been seen, so that no late
one is left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from zipfile import BadZipFile

from evermirror.core.schedule.intensity import DAY_S, learn
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.errors import UsageError
from evermirror.model.activity import Activity
from evermirror.model.memory import RepoMemory
from evermirror.model.repo import Host, RepoKey, RepoSpec

# No limit on connections: only the budget of polls is studied.
_UNLIMITED = 1 << 30
# After the end of the histories the run goes on for at most this many average gaps; no policy needs as many.
_TAIL_GAPS = 10_000
_HOST = Host("simulated")
_NPZ_HINT = "docs/guide.md (Try a policy on your own history) says what is in one and how to make it"
_SOON_S = 300.0  # the share of pushes seen within this time is told


@dataclass(frozen=True, slots=True)
class Trace:
    """One repo's pushes, ascending UTC seconds."""

    name: str
    pushes: Sequence[float]


@dataclass(frozen=True, slots=True)
class Traces:
    """Histories that end at the same time."""

    repos: tuple[Trace, ...]
    end: float


@dataclass(frozen=True, slots=True)
class PollingResult:
    """Delays are seconds from push to poll; the largest gap is between two polls of one repo."""

    policy: str
    mean_gap_s: float
    days: float
    repos: int
    pushes: int
    polls: int
    mean_s: float
    p50_s: float
    p95_s: float
    share_within_5min: float
    largest_gap_s: float


def load_traces(path: Path) -> Traces:
    """Read an .npz with `name`, `offset`, `minutes_before_end` (ascending, at most 0), `end_unix`."""
    import numpy as np

    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as data:
            names = [str(name) for name in data["name"]]
            offsets = [int(at) for at in data["offset"]]
            minutes = data["minutes_before_end"].astype(np.float64)
            end = float(data["end_unix"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except KeyError as error:
        missing = f"{path}: not an .npz file of push histories: {error.args[0]}"
        raise UsageError(missing, hint=_NPZ_HINT) from error
    except (ValueError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        # NumPy's own words advise to unpickle: never on a file from elsewhere.
        raise UsageError(f"{path}: not an .npz file of push histories", hint=_NPZ_HINT) from error
    if len(offsets) != len(names) + 1 or offsets[0] != 0 or offsets[-1] != len(minutes):
        raise UsageError(f"{path}: offsets do not fit the names and events")
    times = minutes * 60.0 + end
    repos = []
    for i, name in enumerate(names):
        pushes = times[offsets[i] : offsets[i + 1]].tolist()
        if any(a > b for a, b in pairwise(pushes)) or (pushes and pushes[-1] > end):
            raise UsageError(f"{path}: the pushes of {name} are not ascending, or come after the end")
        repos.append(Trace(name, pushes))
    return Traces(tuple(repos), end)


def simulate(
    traces: Traces, policy: str, mean_gap_s: float, *, days: float = 180.0, warm_in_days: float = 14.0
) -> PollingResult:
    """Poll for ``days`` after the warm-in, each repo once per ``mean_gap_s`` on average."""
    if not traces.repos:
        raise UsageError("there are no traces to simulate")
    if not (mean_gap_s > 0 and days > 0 and warm_in_days >= 0):
        raise UsageError("mean gap and days must be positive")
    run = _Run(traces, policy, mean_gap_s, traces.end - (days + warm_in_days) * DAY_S)
    run.until(traces.end - days * DAY_S)
    run.warm()
    run.until(traces.end)
    run.until(traces.end + _TAIL_GAPS * mean_gap_s, unseen_only=True)
    return run.result(policy, mean_gap_s, days)


class _Run:
    """One simulation under way."""

    def __init__(self, traces: Traces, policy: str, mean_gap_s: float, start: float) -> None:
        count = len(traces.repos)
        self.scheduler = Scheduler(
            ScheduleSettings(
                policy=policy,
                min_gap_s=0.0,
                max_gap_s=None,
                polls_per_second=count / mean_gap_s,
                host_rate=None,
                host_connections=_UNLIMITED,
                polls_in_flight=_UNLIMITED,
            )
        )
        self.now = start
        self.delays: list[float] = []
        self.polls = 0
        self.counting_from = float("inf")
        self.largest_gap_s = 0.0
        self.unseen = 0
        entries = []
        self.pushes: dict[RepoKey, Sequence[float]] = {}
        self.seen: dict[RepoKey, int] = {}
        self.polled_at: dict[RepoKey, float] = {}
        for i, trace in enumerate(traces.repos):
            key = RepoKey(f"{_HOST}/{i}")
            known = sum(1 for e in trace.pushes if e <= start)
            activity = learn(Activity(), trace.pushes[:known], after=0.0, now=start)
            memory = RepoMemory(key, activity=activity, verified_at=start)
            entries.append(Entry(RepoSpec(key, f"https://{key}", _HOST), memory))
            self.pushes[key], self.seen[key], self.polled_at[key] = trace.pushes, known, start
            self.unseen += len(trace.pushes) - known
        self.scheduler.add(entries, start)

    def warm(self) -> None:
        """What comes from here on counts."""
        self.counting_from = self.now
        self.polls = 0
        self.largest_gap_s = 0.0

    def until(self, end: float, *, unseen_only: bool = False) -> None:
        """Poll until ``end``; with ``unseen_only`` stop as soon as every push has been seen."""
        scheduler, take, polled = self.scheduler, self.scheduler.take, self.scheduler.polled
        pushes, seen, polled_at = self.pushes, self.seen, self.polled_at
        now, polls, largest = self.now, 0, self.largest_gap_s
        while not (unseen_only and self.unseen == 0):
            key = take(now)
            if key is None:
                wake = scheduler.next_wake(now)
                if wake is None or wake > end:
                    break
                now = wake
                continue
            polls += 1
            gap = now - polled_at[key]
            if gap > largest:
                largest = gap
            polled_at[key] = now
            mine, known = pushes[key], seen[key]
            if known < len(mine) and mine[known] <= now:
                self._see(key, mine, known, now)
            polled(key, now)
        self.now = end if not unseen_only else now
        self.polls += polls
        self.largest_gap_s = largest

    def _see(self, key: RepoKey, mine: Sequence[float], known: int, now: float) -> None:
        """A poll found pushes that were not known yet."""
        first = known
        while known < len(mine) and mine[known] <= now:
            if mine[known] > self.counting_from:
                self.delays.append(now - mine[known])
            known += 1
        self.seen[key] = known
        self.unseen -= known - first
        self.scheduler.learned(key, mine[first:known], now)

    def result(self, policy: str, mean_gap_s: float, days: float) -> PollingResult:
        delays = sorted(self.delays)
        count = len(delays)

        def quantile(q: float) -> float:
            return delays[min(count - 1, int(q * count))] if count else 0.0

        return PollingResult(
            policy=policy,
            mean_gap_s=mean_gap_s,
            days=days,
            repos=len(self.pushes),
            pushes=count,
            polls=self.polls,
            mean_s=sum(delays) / count if count else 0.0,
            p50_s=quantile(0.5),
            p95_s=quantile(0.95),
            share_within_5min=sum(1 for d in delays if d <= _SOON_S) / count if count else 0.0,
            largest_gap_s=self.largest_gap_s,
        )
