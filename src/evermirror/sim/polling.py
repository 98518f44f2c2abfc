"""`simulate polling`: the very scheduler that runs in production, on push histories, in virtual time.

Every repo starts with what a clone would have told: all its pushes before the start. From then on a push is
only known once a poll has seen it; its delay is the time from the push to that poll. Delays count after a
warm-in. The run goes on beyond the end of the histories until the last push has been seen, so that no late
one is left out.

With `--hooks` a share of the repos has hooks, and the very code that runs learns from them. A hook comes at
the moment of its push and asks for a poll. Those that had pushes enough before the start have proved
themselves by then. Where hooks fall silent, all do at once where the judged time begins, and nobody is told:
what is lost until that is noticed shows in the delays.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from zipfile import BadZipFile

from evermirror.core.hooks.trust import NEEDED, Doubted, Found, Learnt, Relapsed, Reliable, Trust
from evermirror.core.schedule.intensity import DAY_S, PUSHES_MAX, learn
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.errors import UsageError
from evermirror.model.activity import Activity
from evermirror.model.hook import HookMemory, HookTrust
from evermirror.model.memory import RepoMemory
from evermirror.model.printable import one_line
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.sim.polling_result import PollingResult, Tally

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# No limit on connections: only the budget of polls is studied.
_UNLIMITED = 1 << 30
# After the end of the histories the run goes on for at most this many average gaps; no policy needs as many.
_TAIL_GAPS = 10_000
HOST = Host("simulated")
_NPZ_HINT = "docs/guide.md (Try a policy on your own history) says what is in one and how to make it"
# What reading raises where a file is broken, or claims more than there is memory for.
_NO_NPZ = (
    *(ValueError, TypeError, AttributeError, OverflowError, MemoryError),
    *(EOFError, BadZipFile, zlib.error, NotImplementedError, RuntimeError),
)
_END_MAX = 7_258_118_400.0  # the year 2200
DAYS_MAX = 36_500
# A run tells its progress this often.
_SLICES = 100


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


Progress = Callable[[float], None]  # is told the share that is done


def unheard(_share: float) -> None:
    """Nobody wants to know how far it is."""


class Playable(Protocol):
    """A simulation under way, whoever decides in it."""

    def warm(self) -> None: ...

    def until(self, end: float, *, unseen_only: bool = False) -> None: ...


def load_traces(path: Path) -> Traces:
    """Read an .npz with `name`, `offset`, `minutes_before_end` (ascending, at most 0), `end_unix`."""
    names, offsets, minutes, end = _arrays(path)
    if not 0 <= end <= _END_MAX:  # also what is no number
        raise UsageError(f"{path}: end_unix is not a time between 1970 and 2200", hint=_NPZ_HINT)
    fits = len(offsets) == len(names) + 1 and offsets[0] == 0 and offsets[-1] == len(minutes)
    if not fits or any(a > b for a, b in pairwise(offsets)):
        raise UsageError(f"{path}: offsets do not fit the names and events", hint=_NPZ_HINT)
    times = minutes * 60.0 + end
    repos = []
    for i, name in enumerate(names):
        pushes = times[offsets[i] : offsets[i + 1]].tolist()
        if any(a > b for a, b in pairwise(pushes)) or (pushes and pushes[-1] > end):
            told = f"{path}: the pushes of {one_line(name)} are not ascending, or come after the end"
            raise UsageError(told)
        repos.append(Trace(name, pushes))
    return Traces(tuple(repos), end)


def _arrays(path: Path) -> tuple[list[str], list[int], NDArray[np.float64], float]:
    """As they stand in the file, each of its kind."""
    import numpy as np

    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as data:
            arrays = {name: data[name] for name in ("name", "offset", "minutes_before_end")}
            end = float(data["end_unix"].item())
            for name, array in arrays.items():
                if array.ndim != 1:
                    raise UsageError(f"{path}: {name} is not a plain list", hint=_NPZ_HINT)
                if name != "name" and len(array) and array.dtype.kind not in "iu":
                    raise UsageError(f"{path}: {name} holds other than whole numbers", hint=_NPZ_HINT)
            names, offsets, minutes = arrays.values()
            return [str(name) for name in names], offsets.tolist(), minutes.astype(np.float64), end
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except KeyError as error:
        missing = f"{path}: not an .npz file of push histories: {error.args[0]}"
        raise UsageError(missing, hint=_NPZ_HINT) from error
    except _NO_NPZ as error:
        # NumPy's own words advise to unpickle: never on a file from elsewhere.
        raise UsageError(f"{path}: not an .npz file of push histories", hint=_NPZ_HINT) from error


def simulate(
    traces: Traces,
    policy: str,
    mean_gap_s: float,
    *,
    days: float = 180.0,
    warm_in_days: float = 14.0,
    tell: Progress = unheard,
) -> PollingResult:
    """Poll for ``days`` after the warm-in, each repo once per ``mean_gap_s`` on average."""
    check(traces, mean_gap_s, days, warm_in_days)
    run = Run(traces, policy, mean_gap_s, traces.end - (days + warm_in_days) * DAY_S)
    judge(run, traces.end, mean_gap_s, days, warm_in_days, tell)
    return run.tally.result(policy, mean_gap_s, days, len(traces.repos))


def check(traces: Traces, mean_gap_s: float, days: float, warm_in_days: float) -> None:
    """Whether the question makes sense."""
    if not traces.repos:
        raise UsageError("there are no traces to simulate")
    if not (0 < mean_gap_s < math.inf and 0 < days < math.inf and 0 <= warm_in_days < math.inf):
        raise UsageError("mean gap and days must be positive")
    if days > DAYS_MAX:
        raise UsageError(f"{days:g} days cannot be simulated", hint=f"At most {DAYS_MAX:,}")


def judge(
    run: Playable, end: float, mean_gap_s: float, days: float, warm_in_days: float, tell: Progress = unheard
) -> None:
    """Play the whole time: only the last ``days`` count, until the last push of them has been seen."""
    begin = end - days * DAY_S
    start = begin - warm_in_days * DAY_S
    marks = sorted({begin, *(start + (end - start) * n / _SLICES for n in range(1, _SLICES)), end})
    for mark in marks:
        run.until(mark)
        if mark == begin:
            run.warm()
        tell((mark - start) / (end - start))
    run.until(end + _TAIL_GAPS * mean_gap_s, unseen_only=True)


class Run:
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
        self.tally = Tally()
        self.counting_from = math.inf
        self.unseen = 0
        entries = []
        self.pushes: dict[RepoKey, Sequence[float]] = {}
        self.seen: dict[RepoKey, int] = {}
        self.polled_at: dict[RepoKey, float] = {}
        self._places: dict[RepoKey, int] = {}
        for i, trace in enumerate(traces.repos):
            key = RepoKey(f"{HOST}/{i}")
            known = bisect_right(trace.pushes, start)
            newest = trace.pushes[max(0, known - PUSHES_MAX) : known]  # no more than these are learnt
            activity = learn(Activity(), newest, after=0.0, now=start)
            memory = RepoMemory(key, activity=activity, verified_at=start)
            entries.append(Entry(RepoSpec(key, f"https://{key}", HOST), memory))
            self.pushes[key], self.seen[key], self.polled_at[key] = trace.pushes, known, start
            self._places[key] = i
            self.unseen += len(trace.pushes) - known
        self.scheduler.add(entries, start)

    def warm(self) -> None:
        """What comes from here on counts."""
        self.counting_from = self.now
        self.tally.warm()

    def until(self, end: float, *, unseen_only: bool = False) -> None:
        """Poll until ``end``; with ``unseen_only`` stop as soon as every push has been seen."""
        next_wake, take, polled = self.scheduler.next_wake, self.scheduler.take, self.scheduler.polled
        pushes, seen, polled_at = self.pushes, self.seen, self.polled_at
        now, polls, largest = self.now, 0, self.tally.largest_gap_s
        while not (unseen_only and self.unseen == 0):
            wake = next_wake(now)
            if wake is None or wake > end:
                break
            now = wake
            key = take(now)
            if key is None:
                continue
            polls += 1
            gap = now - polled_at[key]
            if gap > largest:
                largest = gap
            mine, known = pushes[key], seen[key]
            if known < len(mine) and mine[known] <= now:
                self._see(key, mine, known, now)
            polled_at[key] = now
            polled(key, now)
        self.now = end if not unseen_only else now
        self.tally.polls += polls
        self.tally.largest_gap_s = largest

    def _see(self, key: RepoKey, mine: Sequence[float], known: int, now: float) -> None:
        """A poll found pushes that were not known yet."""
        news = mine[known : bisect_right(mine, now)]
        place, looked_at = self._places[key], self.polled_at[key]
        self.tally.see(place, news, looked_at, now, counting_from=self.counting_from)
        self.seen[key] = known + len(news)
        self.unseen -= len(news)
        self.scheduler.learned(key, news, now)


def simulate_hooked(
    traces: Traces,
    policy: str,
    mean_gap_s: float,
    share: float,
    *,
    silent: bool = False,
    days: float = 180.0,
    warm_in_days: float = 14.0,
    tell: Progress = unheard,
) -> PollingResult:
    """As ``simulate``, where this share of the repos has hooks; ``silent``: only while it warms in."""
    check(traces, mean_gap_s, days, warm_in_days)
    if not 0 < share <= 1:
        raise UsageError("the share of repos with hooks must be above 0 and at most 1")
    run = HookedRun(traces, policy, mean_gap_s, traces.end - (days + warm_in_days) * DAY_S, share)
    if silent:
        run.silent_from = traces.end - days * DAY_S
    judge(run, traces.end, mean_gap_s, days, warm_in_days, tell)
    result = run.tally.result(policy, mean_gap_s, days, len(traces.repos))
    hooks = "silent" if silent else "reliable"
    return replace(result, hooks=hooks, hooked_polls=run.hooked_polls)


class HookedRun(Run):
    """One simulation under way; the repos with hooks are spread evenly over the list."""

    def __init__(self, traces: Traces, policy: str, mean_gap_s: float, start: float, share: float) -> None:
        super().__init__(traces, policy, mean_gap_s, start)
        spread = (math.floor((n + 1) * share) > math.floor(n * share) for n in range(len(self.pushes)))
        self.hooked = {key: None for key, has in zip(self.pushes, spread, strict=True) if has}
        self.silent_from = math.inf
        self.hooked_polls = 0
        self.told = {key: self.seen[key] for key in self.hooked}  # pushes up to here had their hook
        self.asked: set[RepoKey] = set()  # by a hook, for the poll that comes
        proved = dict.fromkeys(key for key in self.hooked if self.seen[key] >= NEEDED)
        self.trust = Trust(self._memory(key, start, key in proved) for key in self.hooked)
        for key in self.hooked:
            self.trust.registered(key, start)
        self._flag(proved, hooked=True)
        self.due = [
            (self.pushes[key][at], key) for key, at in self.told.items() if at < len(self.pushes[key])
        ]
        heapify(self.due)

    def warm(self) -> None:
        super().warm()
        self.hooked_polls = 0

    def until(self, end: float, *, unseen_only: bool = False) -> None:
        while not (unseen_only and self.unseen == 0):
            self._hooks()
            key = self.scheduler.take(self.now)
            if key is not None:
                self._poll(key)
                continue
            wake = self.scheduler.next_wake(self.now)
            at = min(math.inf if wake is None else wake, self.due[0][0] if self.due else math.inf)
            if at > end:
                break
            self.now = max(self.now, at)
            self._learn(self.trust.tick(self.now))
        if not unseen_only:
            self.now = end

    def _hooks(self) -> None:
        """Those whose time has come are sent, or are not."""
        while self.due and self.due[0][0] <= self.now:
            at, key = heappop(self.due)
            pushes = self.pushes[key]
            self.told[key] += 1
            if self.told[key] < len(pushes):
                heappush(self.due, (pushes[self.told[key]], key))
            if at < self.silent_from:
                self._learn(self.trust.hook(key, self.now))
                self.asked.add(key)
                self.scheduler.request(key, self.now)

    def _poll(self, key: RepoKey) -> None:
        now = self.now
        self.tally.polls += 1
        self.hooked_polls += key in self.hooked and key not in self.asked
        self.tally.largest_gap_s = max(self.tally.largest_gap_s, now - self.polled_at[key])
        mine, known = self.pushes[key], self.seen[key]
        if known < len(mine) and mine[known] <= now:
            self._see(key, mine, known, now)
            by = Found.BY_HOOK if key in self.asked else Found.BY_POLL
            self._learn(self.trust.changed(key, now, by, now))
        else:
            self.trust.looked(key, now)
        self.polled_at[key] = now
        self.asked.discard(key)
        self.scheduler.polled(key, now)

    def _learn(self, learnt: Learnt) -> None:
        for effect in learnt.effects:
            if isinstance(effect, Reliable | Relapsed | Doubted):
                self._flag((effect.key,), hooked=isinstance(effect, Reliable))

    def _flag(self, keys: Iterable[RepoKey], *, hooked: bool) -> None:
        specs: Sequence[RepoSpec] = [RepoSpec(key, f"https://{key}", HOST, hooked=hooked) for key in keys]
        self.scheduler.add([Entry(spec) for spec in specs], self.now)

    def _memory(self, key: RepoKey, start: float, proved: bool) -> HookMemory:
        last_at = self.pushes[key][self.seen[key] - 1] if self.seen[key] else 0.0
        trust = HookTrust.RELIABLE if proved else HookTrust.UNPROVEN
        return HookMemory(key, trust, start, received=self.seen[key], last_at=last_at, told=self.seen[key])
