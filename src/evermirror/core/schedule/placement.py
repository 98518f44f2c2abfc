"""Where a repo stands in its host's queue: after a poll, on arrival, and after a restart.

Rules
- After a poll: priority = max(priority, clock) + stride; or without the stride, for one that keeps its turn.
- A newcomer stands at the queue's front: it is polled soon, and gains nothing on those who were there before.
- The first stride since a repo came, or since all were placed anew, is cut to a part of it, once. Those who
  came together and are alike would come back together for ever, and hold up everybody else each time. Not of
  one that has a part of its gap to go: its last poll keeps it apart, and two such rules undo each other.
- One that was polled before we started stands at clock + stride * (part of its usual gap that is still to
  go).
- An interval counts from the last poll and is neither shorter than the min gap nor longer than the max gap.
- A quiet repo has no place and no share: it is only there to be asked for.
- A repo is eligible when its min gap and its retry delay are over. `due_at` is that time; of a repo with an
  interval it is when that is over.
- One whose hooks have proved reliable rests longer than the min gap once it was seen, not after a failure.
"""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.schedule.hosts import HostState
from evermirror.core.schedule.policies import Policy
from evermirror.core.schedule.queue import Phase, Tracked
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.shares import Shares, rest_s

# Multiples of it, without their whole part, lie evenly between 0 and 1 wherever one stops.
_GOLDEN = (5.0**0.5 - 1.0) / 2.0
_ROUNDING = 1e-6  # of a gap: sums over all repos are not exact


def first_part(n: int) -> float:
    """How much of its first stride the repo has that is the ``n``-th to take one: above 0, at most 1.

    The first takes all of it: there is nobody yet to part from."""
    return 1.0 - n * _GOLDEN % 1.0


class Placement:
    """Policy, settings and shares, brought to bear on one repo at a time."""

    __slots__ = ("_firsts", "_policy", "_settings", "shares")

    def __init__(self, settings: ScheduleSettings, policy: Policy) -> None:
        self._settings = settings
        self._policy = policy
        self._firsts = 0  # first strides taken
        self.shares = Shares()

    def configure(self, settings: ScheduleSettings) -> None:
        """New limits under the same policy."""
        self._settings = settings

    def assign(self, repo: Tracked, host: HostState) -> None:
        """Decide by the policy whether the repo goes by stride or by interval."""
        repo.interval_s = None if repo.quiet else self._policy.interval_s(repo.spec)
        if repo.interval_s is not None or repo.quiet:
            self.shares.drop(repo, host)
            repo.fresh = True

    def arrive(self, repos: Iterable[tuple[Tracked, HostState]], now: float) -> None:
        """Place repos that are not in a queue, many at once."""
        pairs = sorted(
            repos, key=lambda pair: pair[0].last_poll_at
        )  # of two that are late, the later one first
        strided = [pair for pair in pairs if pair[0].interval_s is None and not pair[0].quiet]
        self.shares.enrol(strided, self._policy, now)
        fronts: dict[int, float] = {}
        for repo, host in pairs:
            front = fronts.get(id(host))
            if front is None:
                host.queue.release(now, bounded=host.max_gap_s is not None)
                at = host.queue.front()
                front = fronts[id(host)] = host.queue.clock if at is None else at
            if repo.interval_s is not None:
                repo.due_at = self._due_at(repo, host) if repo.last_poll_at else now
                repo.due_at = max(repo.due_at, repo.not_before)
            elif repo.last_poll_at and not repo.quiet:
                to_go = self._part_to_go(repo, host, now)
                repo.priority = host.queue.clock + repo.stride * to_go
                repo.fresh = repo.fresh and to_go <= _ROUNDING
            else:
                repo.priority = front
            self.enter(repo, host, now)

    def rebuild(self, repos: list[tuple[Tracked, HostState]], now: float) -> None:
        """Place everybody who waits anew, as after a restart; the queues were emptied."""
        for repo, host in repos:
            self.assign(repo, host)
        self.arrive([pair for pair in repos if pair[0].phase is Phase.WAITING], now)

    def after_poll(self, repo: Tracked, host: HostState, now: float, *, keeps_turn: bool) -> None:
        """Place a repo whose poll or sync just ended."""
        if repo.quiet:
            pass
        elif repo.interval_s is not None:
            if repo.not_before:
                repo.due_at = repo.not_before
            else:
                repo.due_at = now + self._settings.min_gap_s if keeps_turn else self._due_at(repo, host)
        else:
            self.shares.set(repo, host, self.shares.stride(repo, host, self._policy, self._settings, now))
            if repo.priority < host.queue.clock:
                repo.priority = host.queue.clock
            if not keeps_turn:
                repo.priority += repo.stride * self._part(repo)
        self.enter(repo, host, now)

    def learnt(self, repo: Tracked, host: HostState, now: float) -> None:
        """A repo in the queue turned out to be busier than thought: it moves forward, never back."""
        if repo.interval_s is None and not repo.quiet:
            started = repo.priority - repo.stride
            self.shares.set(repo, host, self.shares.stride(repo, host, self._policy, self._settings, now))
            repo.priority = min(repo.priority, max(started, host.queue.clock) + repo.stride)
            host.queue.leave(repo)
            self.enter(repo, host, now)

    def at_once(self, repo: Tracked, host: HostState, now: float) -> None:
        """A repo in the queue has nothing to wait for any more but its min gap."""
        host.queue.leave(repo)
        repo.not_before = 0.0
        repo.priority = host.queue.clock
        rested_at = self._rested_at(repo, self._settings.min_gap_s)
        repo.due_at = max(now, rested_at)
        host.queue.enter(repo, rested_at, now, bounded=host.max_gap_s is not None)

    def enter(self, repo: Tracked, host: HostState, now: float) -> None:
        seen = repo.seen_at >= repo.last_poll_at
        rest = rest_s(repo, self._settings) if seen else self._settings.min_gap_s
        eligible_at = max(repo.not_before, self._rested_at(repo, rest))
        if repo.interval_s is None:
            repo.due_at = eligible_at
        host.queue.enter(repo, eligible_at, now, bounded=host.max_gap_s is not None)

    def _part(self, repo: Tracked) -> float:
        """How much of its stride it takes."""
        if not repo.fresh:
            return 1.0
        repo.fresh = False
        self._firsts += 1
        return first_part(self._firsts - 1)

    def _rested_at(self, repo: Tracked, rest: float) -> float:
        """When it was left alone long enough; an attempt that goes on at another address need not be."""
        goes_on = repo.detour is not None and repo.detour.tried
        return 0.0 if goes_on or not repo.last_poll_at else repo.last_poll_at + rest

    def _due_at(self, repo: Tracked, host: HostState) -> float:
        return repo.last_poll_at + self.shares.aimed_gap_s(repo, host, self._settings)

    def _part_to_go(self, repo: Tracked, host: HostState, now: float) -> float:
        gap = self.shares.aimed_gap_s(repo, host, self._settings)
        return min(1.0, max(0.0, 1.0 - (now - repo.last_poll_at) / gap)) if gap > 0.0 else 0.0
