"""A new list of URLs, part of it dead: how long until all that lives is mirrored, in virtual time.

The coordinator's machine and one worker's schedule are the real ones. Upstreams, transfers and the line
between the two are modelled: what lives answers soon and is cloned in a moment; the dead fail, each its way.

    FleetMachine ──Assign──▶ Scheduler ──poll──▶ ends ──▶ changed ──slot──▶ cloned ──▶ CopiesVerified
         ▲                      └──failed, deferred──▶ ClonesDeferred
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from evermirror.core.fleet.decisions import Assign, Send
from evermirror.core.fleet.events import (
    CatalogChanged,
    CatalogRepo,
    ClonesDeferred,
    CommandsAcked,
    CopiesVerified,
    Event,
    HeartbeatHeard,
    HeldCopy,
    HeldTold,
    Moment,
    ReportId,
    Ticked,
    WorkerConnected,
)
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.schedule.first_clones import FirstClones
from evermirror.core.schedule.scheduler import Scheduler
from evermirror.core.schedule.settings import ScheduleSettings
from evermirror.core.schedule.views import Entry
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import Host, RepoKey, RepoSpec
from evermirror.model.worker import WorkerFacts, WorkerId

ANSWER_S = 0.1  # a live upstream's answer to a poll
CLONE_S = 0.1  # a small clone, once it has a git slot
TRIP_S = 0.02  # from the coordinator to its worker, or back
BEAT_S = 5.0
TICK_S = 0.5  # how often the worker looks whether clones are to be deferred, and the coordinator ticks
WORKER = WorkerId(0)


class Death(Enum):
    """How a dead URL fails; what it comes to, and after how long."""

    GONE = FailureKind.NOT_FOUND, ANSWER_S
    REFUSED = FailureKind.NETWORK_TIMEOUT, 0.01
    HANGING = FailureKind.NETWORK_TIMEOUT, 60.0  # or as long as it is given
    REDIRECTING = FailureKind.UNKNOWN, ANSWER_S
    MALFORMED = FailureKind.UNKNOWN, 2 * ANSWER_S
    TLS = FailureKind.UNKNOWN, 0.05
    STALLING = FailureKind.NETWORK_TIMEOUT, 300.0, True  # it tells its refs, and never gives a pack

    def __init__(self, kind: FailureKind, seconds: float, in_transfer: bool = False) -> None:
        self.kind = kind
        self.seconds = seconds
        self.in_transfer = in_transfer


@dataclass(frozen=True, slots=True)
class Upstream:
    """One line of the list; ``death`` None: it lives."""

    spec: RepoSpec
    death: Death | None = None


def upstream(host: str, number: int, death: Death | None = None) -> Upstream:
    key = RepoKey(f"{host}/team/repo{number}")
    return Upstream(RepoSpec(key, f"https://{key}", Host(host)), death)


def mixed_list(count: int, dead: float, hosts: int, chance: Random) -> list[Upstream]:
    """Shuffled, the deaths in equal parts: those that answer are at hosts with live ones."""
    deaths = [death for death in Death if not death.in_transfer]
    made = []
    for number in range(count):
        death = deaths[number % len(deaths)] if number < count * dead else None
        silent = death in (Death.REFUSED, Death.HANGING, Death.TLS)
        name = f"{death.name.lower()}{number % 97}" if death and silent else f"h{number % hosts}"
        made.append(upstream(f"{name}.example", number, death))
    chance.shuffle(made)
    return made


class FirstMirroring:
    """One coordinator, one worker and a list; ``run`` until all that lives is mirrored."""

    def __init__(
        self,
        upstreams: Sequence[Upstream],
        *,
        fleet: FleetSettings | None = None,
        schedule: ScheduleSettings | None = None,
    ) -> None:
        self._upstreams = {each.spec.key: each for each in upstreams}
        self._left = {key for key, each in self._upstreams.items() if each.death is None}
        self.now = 0.0
        self.here: set[RepoKey] = set()
        self.tried: set[RepoKey] = set()
        self._machine = FleetMachine(fleet or FleetSettings(warm_up_s=0.0), 1, self._moment)
        self._scheduler = Scheduler(schedule or ScheduleSettings())
        self._first_clones = FirstClones(self._scheduler, self.here.__contains__)
        self._ends: list[tuple[float, int, RepoKey, bool]] = []  # of polls and transfers: when, which, how
        self._sent: deque[tuple[float, Send]] = deque()
        self._events: deque[tuple[float, Event]] = deque()  # on their way to the coordinator
        self._number = self._reports = 0
        self._next_tick = self._next_beat = 0.0

    @property
    def _moment(self) -> Moment:
        return Moment(self.now, 1_700_000_000.0 + self.now)

    def run(self, most_s: float) -> float:
        """When the last live one was mirrored; infinity where that takes longer than ``most_s``."""
        self._tell(WorkerConnected(1, None, WorkerFacts("sim", trusted=True), 1, 1))
        self._tell(HeldTold(WORKER, 1, (), last=True))
        self._tell(CatalogChanged(tuple(CatalogRepo(key) for key in self._upstreams)))
        while self._left and self.now < most_s:
            self._step()
        return self.now if not self._left else float("inf")

    def _step(self) -> None:
        now = self.now
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._tell(HeartbeatHeard(WORKER, 1))
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._tell(Ticked())
            self._defer()
        while self._events and self._events[0][0] <= now:
            self._tell(self._events.popleft()[1])
        while self._sent and self._sent[0][0] <= now:
            self._obey(self._sent.popleft()[1])
        while self._ends and self._ends[0][0] <= now:
            _, _, key, transfer = heapq.heappop(self._ends)
            self._end(key, transfer)
        self._begin()
        times = [self._next_tick, self._next_beat]
        times += [queue[0][0] for queue in (self._events, self._sent, self._ends) if queue]
        wake = self._scheduler.next_wake(self._moment.utc_s)
        if wake is not None:
            times.append(now + max(0.0, wake - self._moment.utc_s))
        self.now = max(min(times), now + 1e-6)

    # The coordinator

    def _tell(self, event: Event) -> None:
        for action in self._machine.handle(event, self._moment).actions:
            if isinstance(action, Send):
                self._sent.append((self.now + TRIP_S, action))

    # The worker

    def _obey(self, sent: Send) -> None:
        self._later(CommandsAcked(WORKER, 1, sent.seq))
        if isinstance(sent.command, Assign):
            keys = [item.key for item in sent.command.items]
            entries = [Entry(self._upstreams[key].spec) for key in keys]
            self._scheduler.add(entries, self._moment.utc_s)
            self._first_clones.asked(keys, self._moment.utc_s)
            self._defer()

    def _begin(self) -> None:
        now = self._moment.utc_s
        while (key := self._scheduler.take(now)) is not None:
            self.tried.add(key)
            death, patience_s = self._upstreams[key].death, self._scheduler.patience_s(key)
            seconds = ANSWER_S if death is None or death.in_transfer else death.seconds
            self._end_in(seconds if patience_s is None else min(seconds, patience_s), key, transfer=False)
        while (key := self._scheduler.take_sync(now)) is not None:
            death = self._upstreams[key].death
            self._end_in(CLONE_S if death is None else death.seconds, key, transfer=True)

    def _end_in(self, seconds: float, key: RepoKey, *, transfer: bool) -> None:
        self._number += 1
        heapq.heappush(self._ends, (self.now + seconds, self._number, key, transfer))

    def _end(self, key: RepoKey, transfer: bool) -> None:
        now, death = self._moment.utc_s, self._upstreams[key].death
        if death is not None and death.in_transfer is transfer:
            self._scheduler.failed(key, Failure(death.kind, death.name), now)
            self._first_clones.ended(key)
            self._report_deferred([key])
        elif not transfer and key in self.here:
            self._scheduler.polled(key, now)
        elif not transfer:
            self._scheduler.changed(key, now, first=True)
        else:
            self._scheduler.synced(key, now)
            self.here.add(key)
            self._left.discard(key)
            self._later(CopiesVerified(self._report_id(), (HeldCopy(key, 1, now),)))

    def _defer(self) -> None:
        self._report_deferred(self._first_clones.deferred(self._moment.utc_s))

    def _report_deferred(self, keys: Iterable[RepoKey]) -> None:
        if keys := tuple(keys):
            self._later(ClonesDeferred(self._report_id(), keys))

    def _report_id(self) -> ReportId:
        self._reports += 1
        return ReportId(WORKER, 1, 1, self._reports)

    def _later(self, event: Event) -> None:
        self._events.append((self.now + TRIP_S, event))
