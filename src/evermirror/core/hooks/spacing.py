"""When a repo is looked at that hooks tell of: at once, a little later, or by a look that is still to come.

            hook: NOW                    look_began              look_ended
 (unknown) ──────────▶ asked for ───────────────────▶ under way ────────────▶ quiet ──10 min──▶ (unknown)
                         ▲  │ hook                        │ hook                │ hook within the gap: LATER
                         │  └─ a second later: MERGED     └─ as when quiet ─────┤ hook after it: NOW
                         └────────────────────── due ◀──────────────────────────┘

Rules
- The first hook passes. Those within the gap after a look wait for one look at its end, all together.
- The gap is a second. Each look for a hook that finds nothing doubles it, up to a minute; a change that is
  found, by whomever, makes it a second again. So a flood costs a look a minute.
- Forges tell before all their machines know. Hooks whose look found nothing are looked at again after 3 s and
  after 15 s, unless a change was found meanwhile, looks for this repo have found nothing for long, or very
  many repos want it: then a poll finds it.
- All looks together keep a pace. Who comes too much waits for its turn: first those whose hooks may be news,
  then those whose last look found nothing. A flood about very many repos costs a bounded part of everybody.
- A look that was asked for and has not begun is enough for a hook. Whether it had begun is heard a little
  late: if that turns out to be so close that it may have looked too early, one more follows.
- What is not heard of for long is forgotten. Where there is no room for another repo, its hooks pass.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from evermirror.core.schedule.bucket import TokenBucket
from evermirror.model.repo import RepoKey

GAP_S = (1.0, 60.0)  # the least and the longest between two looks
AGAIN_S = (3.0, 12.0)  # after a look that found nothing, and after the next: 15 s together
AGAIN_RATE, AGAIN_BURST = 20.0, 200.0  # of such looks, a second over all repos and at once: they are a favour
PACE_RATE = 200.0  # of all looks, a second and at once: no more than a third of a coordinator's time
AGAIN_GAP_S = 8.0  # with a longer gap there is no second look: hooks of this repo tell nothing of late
DOUBT_S = 2.0  # between a worker's beginning and our hearing of it, at most
QUIET_S = 600.0  # until a repo is forgotten
UNHEARD_S = 3600.0  # a look that nobody tells the end of
REPOS_MAX = 50_000  # remembered; some 200 bytes each
SEARCHED = 32  # of the longest quiet, for one that can be forgotten


class Verdict(Enum):
    """What a hook leads to."""

    NOW = "now"  # a look at once
    LATER = "later"  # a look when ``due`` says so; the first hook that waits for it
    MERGED = "merged"  # a look that another hook has led to is still to come


class _Why(Enum):
    HOOK = "hook"
    AGAIN = "again"
    DOUBT = "doubt"


@dataclass(slots=True)
class _Repo:
    looked_at: float  # when the latest look was asked for
    gap_s: float = GAP_S[0]
    asked_at: float | None = None  # of the first look whose beginning was not heard of
    hoped: bool = True  # a hook came since a change was found
    tries: int = 0  # looks again for it
    merged_at: float | None = None  # the latest hook that the look asked for is to be enough for
    due_at: float | None = None
    why: _Why = _Why.HOOK  # there is something due


_Heap = list[tuple[float, RepoKey]]


class Spacing:
    """``hook``, ``look_began``, ``look_ended``; ``due`` tells what is to be looked at, ``next_wake`` when."""

    def __init__(self, repos_max: int = REPOS_MAX, pace: float | None = PACE_RATE) -> None:
        """``pace``: looks a second; None for no bound."""
        self._repos_max = repos_max
        self._repos: OrderedDict[RepoKey, _Repo] = OrderedDict()  # the longest quiet first
        self._news: _Heap = []  # also what is no longer due
        self._idle: _Heap = []  # the same of those whose last look found nothing
        self._again = TokenBucket(AGAIN_RATE, AGAIN_BURST)
        self._pace = TokenBucket(pace)
        self._behind = False  # some that are due wait for their turn

    def __len__(self) -> int:
        return len(self._repos)

    def __contains__(self, key: RepoKey) -> bool:
        return key in self._repos

    def hook(self, key: RepoKey, now: float) -> Verdict:
        repo = self._repos.pop(key, None)
        if repo is None:
            if not self._has_room(now):
                return Verdict.NOW
            repo = _Repo(looked_at=now - GAP_S[0])
        self._repos[key] = repo
        repo.hoped, repo.tries = True, 0
        if repo.due_at is not None and repo.why is _Why.HOOK:
            return Verdict.MERGED
        if repo.asked_at is not None and GAP_S[0] <= now - repo.asked_at < UNHEARD_S:
            repo.merged_at = now
            return Verdict.MERGED
        due_at = repo.looked_at + repo.gap_s
        if now >= due_at and self._has_turn(now):
            _ask(repo, now)
            return Verdict.NOW
        self._put(key, repo, max(now, due_at), _Why.HOOK)
        return Verdict.LATER

    def _has_turn(self, now: float) -> bool:
        """Nobody waits for a turn, and the pace allows one more."""
        self._behind = self._behind or not self._pace.take(now)
        return not self._behind

    def look_began(self, key: RepoKey, now: float) -> None:
        """It was heard that the latest look has begun."""
        repo = self._repos.get(key)
        if repo is None or repo.asked_at is None:
            return
        repo.asked_at = None
        merged_at, repo.merged_at = repo.merged_at, None
        if merged_at is not None and now - merged_at < DOUBT_S and repo.due_at is None:
            self._put(key, repo, now + GAP_S[0], _Why.DOUBT)

    def look_ended(self, key: RepoKey, found: bool, now: float) -> None:
        """``found``: a change, by any look. Otherwise: the latest look for hooks found none, or failed."""
        repo = self._repos.get(key)
        if repo is None:
            return
        if found:
            repo.gap_s, repo.hoped, repo.tries = GAP_S[0], False, 0
            if repo.due_at is not None and repo.why is _Why.AGAIN:
                repo.due_at = None
            elif repo.due_at is not None and repo.due_at > (soon := max(now, repo.looked_at + GAP_S[0])):
                self._put(key, repo, soon, repo.why)
            return
        repo.asked_at = None
        if not repo.hoped:
            return
        if repo.tries == 0:
            repo.gap_s = min(2 * repo.gap_s, GAP_S[1])
        wanted = repo.due_at is None and repo.gap_s <= AGAIN_GAP_S and repo.tries < len(AGAIN_S)
        if wanted and self._again.take(now):
            self._put(key, repo, now + AGAIN_S[repo.tries], _Why.AGAIN)
            repo.tries += 1

    def forget(self, key: RepoKey) -> None:
        """What was said of it could not be done: the next hook is the first."""
        self._repos.pop(key, None)

    def due(self, now: float) -> tuple[RepoKey, ...]:
        """What is to be looked at now; each is told once."""
        keys: list[RepoKey] = []
        for heap in (self._news, self._idle):
            while (repo := self._first(heap, now)) is not None and self._pace.take(now):
                keys.append(heapq.heappop(heap)[1])
                _ask(repo, now)
        self._behind = any(self._first(heap, now) for heap in (self._news, self._idle))
        return tuple(keys)

    def next_wake(self) -> float | None:
        """When something is due, and it has its turn."""
        at = min((heap[0][0] for heap in (self._news, self._idle) if self._first(heap)), default=None)
        return max(at, self._pace.ready_at()) if at is not None and self._behind else at

    def _first(self, heap: _Heap, by: float = math.inf) -> _Repo | None:
        """The repo that is due first, where that is by then. What is no longer due is taken away."""
        while heap and heap[0][0] <= by:
            at, key = heap[0]
            repo = self._repos.get(key)
            if repo is not None and repo.due_at == at:
                return repo
            heapq.heappop(heap)
        return None

    def _put(self, key: RepoKey, repo: _Repo, at: float, why: _Why) -> None:
        repo.due_at, repo.why = at, why
        heapq.heappush(self._news if repo.gap_s == GAP_S[0] else self._idle, (at, key))
        if len(self._news) + len(self._idle) > 2 * len(self._repos) + SEARCHED:
            self._news, self._idle = (self._sorted(idle=idle) for idle in (False, True))

    def _sorted(self, *, idle: bool) -> _Heap:
        those = ((k, r) for k, r in self._repos.items() if (r.gap_s > GAP_S[0]) is idle)
        return sorted((repo.due_at, key) for key, repo in those if repo.due_at is not None)

    def _has_room(self, now: float) -> bool:
        for key in list(self._quiet(now)):
            del self._repos[key]
        return len(self._repos) < self._repos_max

    def _quiet(self, now: float) -> Iterator[RepoKey]:
        """Of the first few, those that can be forgotten: long quiet, or only a gap is lost by it."""
        full = len(self._repos) >= self._repos_max
        for _, (key, repo) in zip(range(SEARCHED), self._repos.items(), strict=False):
            waits = repo.asked_at is not None and now - repo.asked_at < UNHEARD_S
            busy = waits or repo.due_at is not None
            if not busy and (full or now - repo.looked_at >= QUIET_S):
                yield key


def _ask(repo: _Repo, now: float) -> None:
    repo.looked_at, repo.merged_at, repo.due_at = now, None, None
    if repo.asked_at is None or now - repo.asked_at >= UNHEARD_S:
        repo.asked_at = now
