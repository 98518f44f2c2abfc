"""`simulate polling --hooks`: a share of the repos has hooks, and the very code that runs learns from them.

A hook comes at the moment of its push and asks for a poll. Those that had pushes enough before the start have
proved themselves by then. Where hooks fall silent, all do at once where the judged time begins, and nobody is
told: what is lost until that is noticed shows in the delays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from evermirror.core.hooks.trust import NEEDED, Doubted, Found, Learnt, Relapsed, Reliable, Trust
from evermirror.core.schedule.intensity import DAY_S
from evermirror.core.schedule.views import Entry
from evermirror.errors import UsageError
from evermirror.model.hook import HookMemory, HookTrust
from evermirror.model.repo import RepoKey, RepoSpec
from evermirror.sim.polling import HOST, Progress, Run, Traces, check, judge, unheard
from evermirror.sim.polling_result import PollingResult


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
