"""The queue of one host: who is next by request, by deadline, or by stride.

                      not eligible yet                  eligible
    enter --stride--> held (by time) --when eligible--> strides (by priority)
      |                                                 oldest (by last poll; only while a max gap is set)
      +----interval-> due (by time)
      +----quiet----> nowhere: it is here for requests alone
    request --------> requests (first come, first served), wherever else the repo stands

Rules
- Order: requests, then what is due (an interval or the max gap, earliest first), then the smallest priority.
- `clock` is the queue's virtual time: the priority of the last repo taken in its turn. No repo stands in
  `strides` with less, so one that was held back takes one turn at once and no more (start-time fair
  queueing).
- A repo that is taken leaves with `priority = clock`; whoever finishes it adds its stride and enters it
  again.
- Entries of repos that left are not searched for: they are known by an old ticket and dropped when they
  surface, or all at once when they outnumber the living. `oldest` holds one entry a repo, moved on when it
  surfaces.
"""

from __future__ import annotations

import math
from collections import deque
from copy import copy
from dataclasses import replace
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace

from evermirror.core.schedule.detours import Detour
from evermirror.core.schedule.retry import SLOW_DEFAULT_S
from evermirror.model.activity import Activity
from evermirror.model.failure import FailureKind
from evermirror.model.memory import RepoMemory
from evermirror.model.repo import Host, RepoSpec

# Dropping dead entries all at once is worth it from here on.
_COMPACT_MIN = 64


class Phase(Enum):
    """Where a repo stands between two polls."""

    WAITING = "waiting"  # in its host's queue
    POLLING = "polling"
    CHANGED = "changed"  # refs moved; waits for a git slot
    SYNCING = "syncing"


class Tracked:
    """What the schedule keeps of one repo: small, as there may be hundreds of thousands."""

    __slots__ = (
        "activity",
        "again",
        "detour",
        "due_at",
        "failure_kind",
        "failures",
        "fresh",
        "gone",
        "in_oldest",
        "interval_s",
        "last_poll_at",
        "not_before",
        "phase",
        "priority",
        "quiet",
        "rank_asked",
        "request",
        "seen_at",
        "since",
        "slow_lane",
        "spec",
        "stride",
        "ticket",
        "urgent",
        "weight",
    )

    def __init__(self, spec: RepoSpec, memory: RepoMemory | None, now: float) -> None:
        self.spec = spec
        self.weight = spec.priority.weight
        self.interval_s: float | None = None
        self.activity = Activity()
        self.last_poll_at = 0.0
        self.seen_at = 0.0  # last time that upstream was really seen: pushes are newer
        self.not_before = 0.0
        self.failures = 0
        self.failure_kind: FailureKind | None = None
        if memory is not None:
            # A time ahead of us was written under a clock that was wrong: it must not hold the repo back.
            self.activity = _not_ahead(memory.activity, now)
            self.last_poll_at = min(memory.last_poll_at, now)
            self.seen_at = min(memory.verified_at, now)
            self.not_before = min(memory.not_before, now + SLOW_DEFAULT_S)
            self.failures = memory.failures
            self.failure_kind = memory.failure_kind
        self.since = self.last_poll_at or now  # what the max gap counts from
        self.priority = 0.0
        self.stride = 0.0  # 0: none yet
        self.fresh = True  # it has taken no stride since it came, or since all were placed anew
        self.due_at = 0.0  # by its interval; else from when its turn may come
        self.ticket = 0  # 0: not in the queue; negative: held
        self.in_oldest = False
        self.request = 0  # 0: none
        self.phase = Phase.WAITING
        self.urgent = False  # somebody waits for the poll or sync that is under way
        self.rank_asked: int | None = None  # the class of those who asked
        self.again = False  # somebody asked while it was under way
        self.gone = False  # removed while it was under way
        self.slow_lane = False  # its poll under way is one of those at silent hosts
        self.quiet = False  # polled on request alone
        self.detour: Detour | None = None  # None: it is asked at its own URL

    @property
    def host(self) -> Host:
        """The one that is asked, and in whose queue the repo stands."""
        return self.spec.host if self.detour is None else self.detour.host

    @property
    def url(self) -> str:
        """The address that is asked."""
        return self.spec.url if self.detour is None else self.detour.url

    @property
    def told(self) -> bool:
        """Its hooks tell of its changes: it is polled less. An interval is a person's word, and stays."""
        return self.spec.hooked and self.interval_s is None and not self.quiet

    def gone_to(self, detour: Detour | None) -> Tracked:
        """The same repo for another host's queue: what the old queue still has is this one, which left it."""
        twin = copy(self)
        twin.detour, twin.ticket, twin.request, twin.in_oldest = detour, 0, 0, False
        return twin

    def set_back(self, step_s: float, now: float) -> None:
        """The clock was, by so much, and shows ``now``. What is planned moves with it; what was is moved only
        where it was noted while the clock was ahead."""
        self.last_poll_at -= step_s if self.last_poll_at > now else 0.0
        self.seen_at -= step_s if self.seen_at > now else 0.0
        self.not_before = max(0.0, self.not_before - step_s)  # 0 stays none
        self.since -= step_s
        self.due_at -= step_s
        if self.detour is not None:
            self.detour = replace(self.detour, left_at=self.detour.left_at - step_s)

    def memory(self) -> RepoMemory:
        """What outlives a restart; digest and mark are not known here."""
        return RepoMemory(
            self.spec.key,
            activity=self.activity,
            last_poll_at=self.last_poll_at,
            verified_at=self.seen_at,
            failures=self.failures,
            failure_kind=self.failure_kind,
            not_before=self.not_before,
        )


def _not_ahead(activity: Activity, now: float) -> Activity:
    if activity.as_of <= now:
        return activity
    return replace(activity, as_of=now, last_push_at=min(activity.last_push_at, now))


_Entry = tuple[float, int, Tracked]


class HostQueue:
    """See the module's rules. The caller sees to it that ``now`` does not go backwards."""

    __slots__ = ("_due", "_held", "_oldest", "_requests", "_strides", "_tickets", "clock", "host", "waiting")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.clock = 0.0
        self.waiting = 0  # repos in this queue whose turn comes by itself
        self._tickets = 0
        self._strides: list[_Entry] = []
        self._held: list[_Entry] = []
        self._due: list[_Entry] = []
        self._oldest: list[_Entry] = []
        self._requests: deque[tuple[int, Tracked]] = deque()

    def emptied(self) -> HostQueue:
        """A new queue for the same host, in which nobody stands yet; requests go over to it."""
        queue = HostQueue(self.host)
        queue._requests = self._requests
        return queue

    # Entering and leaving

    def enter(self, repo: Tracked, eligible_at: float, now: float, *, bounded: bool) -> None:
        """Put a repo in its place; ``bounded`` says whether a max gap is set."""
        self._tickets += 1
        if repo.quiet:
            repo.ticket = self._tickets
            return
        self.waiting += 1
        if repo.interval_s is not None:
            repo.ticket = self._tickets
            self._push(self._due, (repo.due_at, self._tickets, repo))
        elif eligible_at > now:
            repo.ticket = -self._tickets
            self._push(self._held, (eligible_at, -self._tickets, repo))
        else:
            self._join(repo, bounded)

    def leave(self, repo: Tracked) -> None:
        """Take a repo out of the queue, wherever it stands; a request for it stands for when it is back."""
        if repo.ticket:
            repo.ticket = 0
            self.waiting -= not repo.quiet

    def ask(self, repo: Tracked, number: int) -> None:
        """Somebody wants this repo now; ``number`` orders requests over all hosts."""
        if not repo.request:
            repo.request = number
            self._requests.append((number, repo))

    def release(self, now: float, *, bounded: bool) -> None:
        """Let those in whose time has come."""
        held = self._held
        while held and held[0][0] <= now:
            _, ticket, repo = heappop(held)
            if repo.ticket == ticket:
                self._tickets += 1
                self._join(repo, bounded)

    def _join(self, repo: Tracked, bounded: bool) -> None:
        if repo.priority < self.clock:
            repo.priority = self.clock
        repo.ticket = self._tickets
        self._push(self._strides, (repo.priority, self._tickets, repo))
        if bounded and not repo.in_oldest:
            repo.in_oldest = True
            heappush(self._oldest, (repo.since, self._tickets, repo))

    def set_back(self, step_s: float) -> None:
        """The clock was, by so much: the order stays as it is."""
        for heap in (self._held, self._due, self._oldest):
            heap[:] = [(at - step_s, ticket, repo) for at, ticket, repo in heap]

    def _push(self, heap: list[_Entry], entry: _Entry) -> None:
        heappush(heap, entry)
        if len(heap) > _COMPACT_MIN and len(heap) > 2 * self.waiting:
            heap[:] = [e for e in heap if e[2].ticket == e[1]]
            heapify(heap)

    # Who is next

    def request_number(self) -> int | None:
        """The number of the oldest request."""
        requests = self._requests
        while requests and (requests[0][1].request != requests[0][0] or not requests[0][1].ticket):
            requests.popleft()
        return requests[0][0] if requests else None

    def front(self) -> float | None:
        """The smallest priority of those that may be polled in their turn."""
        heap = self._strides
        while heap and heap[0][2].ticket != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else None

    def deadline(self, max_gap_s: float | None) -> float:
        """When the first repo becomes due, by its interval or by the max gap; infinity if none does."""
        due = self._due
        while due and due[0][2].ticket != due[0][1]:
            heappop(due)
        at = due[0][0] if due else math.inf
        if max_gap_s is not None:
            since = self._oldest_since()
            if since is not None:
                at = min(at, since + max_gap_s)
        return at

    def held_until(self) -> float:
        """When the first of those held becomes eligible; infinity if none is held."""
        held = self._held
        while held and held[0][2].ticket != held[0][1]:
            heappop(held)
        return held[0][0] if held else math.inf

    def _oldest_since(self) -> float | None:
        heap = self._oldest
        while heap:
            since, number, repo = heap[0]
            # One that stands elsewhere comes back when it joins the strides.
            if repo.ticket <= 0 or repo.interval_s is not None or repo.quiet:
                heappop(heap)
                repo.in_oldest = False
            elif repo.since > since:
                heapreplace(heap, (repo.since, number, repo))
            else:
                return since
        return None

    # Taking

    def take_requested(self) -> Tracked:
        """The oldest request; there must be one."""
        _, repo = self._requests.popleft()
        return self._taken(repo)

    def take_due(self, max_gap_s: float | None) -> Tracked:
        """The repo whose deadline is first; there must be one."""
        since = self._oldest_since() if max_gap_s is not None else None
        if since is not None and max_gap_s is not None:
            by_interval = self._due[0][0] if self._due else math.inf
            if since + max_gap_s < by_interval:
                repo = heappop(self._oldest)[2]
                repo.in_oldest = False
                return self._taken(repo)
        return self._taken(heappop(self._due)[2])

    def take_front(self) -> Tracked:
        """The smallest priority; there must be one."""
        self.clock, _, repo = heappop(self._strides)
        return self._taken(repo)

    def _taken(self, repo: Tracked) -> Tracked:
        self.leave(repo)
        repo.request = 0
        repo.priority = self.clock
        return repo
