"""One upstream host: its queue, its rate, its connections and its weather; and when it may be asked next.

Rules
- Polls and transfers share `host_connections`; transfers get at most all but two of them. A transfer that
  waits for a connection keeps the next free one for itself, so that neither starves the other.
- A request waits for a connection and for a Retry-After, for nothing else. It takes a token if there is one.
- Everything else also waits for a token, and in a storm for the time of the next probe, alone.
- Hosts are compared by `offset + priority of the front`. A host that could not be asked for a while (no
  token, no connection, blocked) has fallen behind the others; on its next poll `offset` lifts it to where the
  others are, so that it does not claim the whole budget afterwards. The order among its own repos stays as it
  is.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from evermirror.core.schedule.bucket import TokenBucket
from evermirror.core.schedule.queue import HostQueue
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.weather import HostWeather
from evermirror.model.repo import Host


class Rank(IntEnum):
    """Who goes first, over all hosts."""

    REQUEST = 0
    DUE = 1
    STRIDE = 2


class Connections:
    """Connections in use to one host."""

    __slots__ = ("limit", "polls", "stuck", "transfer_limit", "transfer_waits", "transfers")

    def __init__(self, settings: ScheduleSettings) -> None:
        self.polls = 0
        self.transfers = 0
        self.transfer_waits = False  # the next free connection is for a transfer
        self.stuck = False  # the last transfer got no answer
        self.configure(settings)

    def configure(self, settings: ScheduleSettings) -> None:
        self.limit = settings.host_connections
        self.transfer_limit = settings.host_transfers

    @property
    def may_poll(self) -> bool:
        return self.polls + self.transfers + self.transfer_waits < self.limit

    @property
    def may_transfer(self) -> bool:
        return self.transfers < self.transfers_max and self.polls + self.transfers < self.limit

    @property
    def transfers_max(self) -> int:
        """A host whose last transfer got no answer tries one at a time."""
        return 1 if self.stuck else self.transfer_limit


class Opening(NamedTuple):
    """When a host may be asked: now (``rank`` and ``key`` are set), or at ``at`` if nothing else happens.

    ``at`` of an open host is when its place may change by the mere passing of time; infinity: never."""

    rank: Rank | None
    key: float
    at: float
    urgent: bool = False  # a request waits for ``at``: no other limit stands in its way then


_SHUT = Opening(None, 0.0, math.inf)


class HostState:
    """Everything that is kept per host."""

    __slots__ = (
        "away",
        "bucket",
        "connections",
        "max_gap_s",
        "offset",
        "queue",
        "quiet",
        "rate",
        "rate_sum",
        "repos",
        "stamp",
        "weather",
    )

    def __init__(self, name: Host, settings: ScheduleSettings, weather: HostWeather, offset: float) -> None:
        self.queue = HostQueue(name)
        self.rate = settings.rate_of(name)  # polls a second
        self.bucket = TokenBucket(self.rate)
        self.connections = Connections(settings)
        self.weather = weather
        self.offset = offset
        self.repos = 0  # all of them, also those under way
        self.away = 0  # those whose own host this is, and that are asked elsewhere
        self.quiet = 0  # those of them that are polled on request alone
        self.rate_sum = 0.0  # sum of 1 / stride over its repos
        self.max_gap_s: float | None = None  # what the budgets allow; set by the scheduler
        self.stamp = 0  # its latest entry in the scheduler's heaps

    @property
    def name(self) -> Host:
        return self.queue.host

    def configure(self, settings: ScheduleSettings, now: float) -> None:
        """New limits hold from now on."""
        self.rate = settings.rate_of(self.name)
        self.bucket.set_rate(self.rate, now=now)
        self.connections.configure(settings)

    def opening(self, now: float) -> Opening:
        """Judge the host as it is now."""
        queue, weather, connections = self.queue, self.weather, self.connections
        bounded = self.max_gap_s is not None
        queue.release(now, bounded=bounded)
        if not connections.may_poll:
            return _SHUT
        number = queue.request_number()
        if number is not None:
            if weather.blocked_until > now:
                return Opening(None, 0.0, weather.blocked_until, urgent=True)
            return Opening(Rank.REQUEST, number, math.inf)
        front = queue.front()
        deadline = queue.deadline(self.max_gap_s)
        held_until = queue.held_until()
        opens_at = max(self.bucket.ready_at(), weather.blocked_until)
        if weather.kind is not None:
            if connections.polls or connections.transfers:
                return _SHUT
            opens_at = max(opens_at, weather.probe_at)
        if front is None:
            opens_at = max(opens_at, min(deadline, held_until))
        if opens_at > now:
            return Opening(None, 0.0, opens_at)
        if deadline <= now or front is None:
            return Opening(Rank.DUE, deadline, held_until)
        return Opening(Rank.STRIDE, self.offset + front, min(deadline, held_until))
