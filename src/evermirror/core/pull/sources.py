"""Which sources may be asked: a host in bad weather is left alone, probed, and then used again step by step.

             uncounted failure                    the pause is over
    calm ───────────────────────▶ closed ◀──────────────────────────────▶ one probe at a time
      ▲                             ▲   the probe failed: twice as long          │
      │ room reaches the limit      │                                            │ a success
      │                             │ uncounted failure                          ▼
      └──────────────────────── ramping: room for 2, doubling with each success ◀┘

Rules
- A host closes on a failure that counts against no project: host-wide ones and rate limits. Host-wide is
  what a worker tells so; a time-out at a host that is not calm; and time-outs of ALIKE projects within
  ALIKE_S while none was answered, as a worker sees only its own: then those before are taken back too. Two
  projects that time out, or one that is alone at its host, fail by themselves.
- Nothing more is started at a closed host until the pause is over: PAUSE_FIRST_S, doubling to PAUSE_LAST_S,
  or what the host asked for (Retry-After, within bounds).
- What was on its way when the host closed does not lengthen the pause, unless the host asks for more time.
  If it succeeds, the host is there: open. But not one that asked us to wait: its pause stands.
- Pauses start small again only once the host is calm.
- Whoever is started by hand is started all the same, and counts as running there.
- Calm hosts cost nothing here but a count of projects, of what runs, and of those few that timed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush
from math import inf

from evermirror.model.pull import MINUTE
from evermirror.model.repo import Host, RepoKey

PAUSE_FIRST_S = MINUTE
PAUSE_LAST_S = 10 * MINUTE
RETRY_AFTER_MIN_S = 1.0  # a host that asks for nothing is still given a moment
RETRY_AFTER_MAX_S = 60 * MINUTE  # a host may not silence us for longer; it can ask again
ROOM_FIRST = 2  # pulls at once when a host is back
ALIKE = 3  # projects that time out: it is their host
ALIKE_S = 1440 * MINUTE  # projects that are looked at once a day meet as well; any answer ends it sooner
_NOBODY: Mapping[RepoKey, int] = {}


class _Weather:
    """A host that is not calm. ``room`` is 1 from its closing until a success."""

    __slots__ = ("asked", "pause_s", "room", "stormy", "until")

    def __init__(self) -> None:
        self.until = -inf
        self.pause_s = 0.0
        self.room = 0
        self.asked = False  # it told us to wait
        self.stormy = False  # people were told of it

    def close(self, wait_s: float, now: float) -> None:
        self.room = 1
        self.until = max(self.until, now + wait_s)


class Sources:
    """All hosts that are not calm, and what runs at each."""

    __slots__ = ("_hosts", "_projects", "_reopenings", "_running", "_timeouts")

    def __init__(self) -> None:
        self._hosts: dict[Host, _Weather] = {}
        self._running: dict[Host, int] = {}
        self._projects: Counter[Host] = Counter()
        self._reopenings: list[tuple[float, Host]] = []
        self._timeouts: dict[Host, dict[RepoKey, list[float]]] = {}  # calm hosts': when, of fewer than ALIKE

    # Views

    def has_room(self, host: Host, now: float) -> bool:
        weather = self._hosts.get(host)
        if weather is None:
            return True
        return now >= weather.until and self._running.get(host, 0) < weather.room

    def closed_until(self, host: Host, now: float) -> float | None:
        """None: it is open."""
        weather = self._hosts.get(host)
        return weather.until if weather is not None and now < weather.until else None

    def closed(self, now: float) -> tuple[Host, ...]:
        return tuple(sorted(host for host, weather in self._hosts.items() if now < weather.until))

    def next_at(self) -> float | None:
        """When the next pause is over."""
        heap = self._reopenings
        while heap and not self._stands(*heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def _stands(self, until: float, host: Host) -> bool:
        weather = self._hosts.get(host)
        return weather is not None and weather.until == until

    # What runs

    def began(self, host: Host) -> None:
        self._running[host] = self._running.get(host, 0) + 1

    def ended(self, host: Host) -> None:
        left = self._running.get(host, 0) - 1
        if left > 0:
            self._running[host] = left
        else:
            self._running.pop(host, None)

    # Weather

    def failed(self, host: Host, now: float, *, asked: bool, retry_after_s: float | None = None) -> bool:
        """A failure that is nobody's own; ``asked``: the host told us to wait. Returns whether people
        should know: the host fails for all, and did not before."""
        weather = self._hosts.get(host)
        if weather is None:
            weather = self._hosts[host] = _Weather()
        wait_s, until = self._asked_s(retry_after_s), weather.until
        if now >= until:
            weather.pause_s = min(weather.pause_s * 2, PAUSE_LAST_S) or PAUSE_FIRST_S
            weather.close(weather.pause_s if wait_s is None else wait_s, now)
            weather.asked = asked
        elif asked:
            weather.close(wait_s or 0.0, now)
            weather.asked = True
        if weather.until != until:
            heappush(self._reopenings, (weather.until, host))
        raised = not asked and not weather.stormy
        weather.stormy |= not asked
        return raised

    def timed_out(self, host: Host, key: RepoKey, now: float) -> Mapping[RepoKey, int] | None:
        """A project's failure by the network. None: its own; otherwise its host's (``failed`` is to be told),
        and whose earlier ones were that too, and how many."""
        if host in self._hosts:
            return _NOBODY
        before = self._timeouts.pop(host, {})
        recent = {k: times for k, at in before.items() if (times := [t for t in at if t > now - ALIKE_S])}
        recent[key] = [*recent.get(key, ()), now]
        if len(recent) >= ALIKE:
            return {k: len(times) for k, times in recent.items() if k != key}
        self._timeouts[host] = recent
        return None

    def succeeded(self, host: Host, limit: int, now: float) -> bool:
        """Something was fetched from there; returns whether that ends what people were told."""
        self._timeouts.pop(host, None)
        weather = self._hosts.get(host)
        if weather is None or (weather.asked and now < weather.until):
            return False
        if weather.room > 1 and weather.room * 2 >= limit:
            del self._hosts[host]
        else:
            weather.room = max(ROOM_FIRST, weather.room * 2)
            weather.until, weather.asked = -inf, False
        over, weather.stormy = weather.stormy, False
        return over

    def reopened(self, now: float) -> list[Host]:
        """Hosts whose pause is over since this was last asked."""
        hosts = []
        while (at := self.next_at()) is not None and at <= now:
            hosts.append(heappop(self._reopenings)[1])
        return hosts

    # Who lives there

    def moved_in(self, host: Host) -> None:
        """One more project."""
        self._projects[host] += 1

    def moved_out(self, host: Host) -> bool:
        """One project less; with the last one the host is forgotten. Returns whether that ends what people
        were told."""
        self._projects[host] -= 1
        if self._projects[host]:
            return False
        del self._projects[host]
        self._timeouts.pop(host, None)
        weather = self._hosts.pop(host, None)
        return weather is not None and weather.stormy

    # Time

    def clock_went_back(self, now: float) -> None:
        """A pause that was over may not be by this clock; none is longer than the longest."""
        self._timeouts.clear()
        for host, weather in self._hosts.items():
            if weather.until > now:
                weather.until = min(weather.until, now + RETRY_AFTER_MAX_S)
                heappush(self._reopenings, (weather.until, host))

    @staticmethod
    def _asked_s(retry_after_s: float | None) -> float | None:
        if retry_after_s is None:
            return None
        if not retry_after_s >= RETRY_AFTER_MIN_S:  # also what is no number
            return RETRY_AFTER_MIN_S
        return min(retry_after_s, RETRY_AFTER_MAX_S)
