"""What to fetch next: repos that something is to be done about, each in one spot at a time.

      admit ──▶ UNASKED ──▶ ASKING ──▶ READY ──▶ UNDER_WAY ──▶ READY, ASLEEP, or gone
                   ▲           │         │ ▲
                   └── too old ┴─────────┘ └── due, or a holder is free again ── ASLEEP

Rules
- Three *lanes* for fetches: repos that clients wait for, updates of what is here, first fetches. Of eight
  starts five favour clients, two updates, one first fetches; a lane that is empty leaves its turn to the
  others in this order. So no lane starves.
- Within a lane the smallest *place* is next: when it began to wait, or last failed, plus a step for each
  class below critical. So a class waits a bounded time longer than the one above it, and nothing starves.
- A repo whose holders are all busy or away sleeps, and is woken when one of them is free.
- So many may wait for one holder; where seats are rare the others that do go back to the store, so that a
  holder that is slow or away does not keep everybody else's repos out.
- Updates and first fetches have a bounded number of seats each; what finds none stays in the store.
- Entries of heaps are never taken out: each move gives the job a new ticket, and older entries are void.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, IntEnum
from heapq import heapify, heappop, heappush

from evermirror.core.collect.decisions import Fetch
from evermirror.core.collect.rows import Row
from evermirror.core.collect.suspect import Case
from evermirror.model.changes import HolderReport
from evermirror.model.relay import NodeId
from evermirror.model.repo import Priority, RepoKey

HEAP_SPARE = 64  # void entries that a heap may hold beyond twice its jobs


class Lane(IntEnum):
    CLIENT = 0
    UPDATE = 1
    FIRST = 2
    LOOK = 3  # at upstream only: apart from the others, with slots of its own


FETCHED = (Lane.CLIENT, Lane.UPDATE, Lane.FIRST)

TURNS = (
    Lane.CLIENT,
    Lane.CLIENT,
    Lane.UPDATE,
    Lane.CLIENT,
    Lane.CLIENT,
    Lane.UPDATE,
    Lane.CLIENT,
    Lane.FIRST,
)


class Spot(Enum):
    UNASKED = "unasked"
    ASKING = "asking"
    READY = "ready"
    ASLEEP = "asleep"
    UNDER_WAY = "under-way"


def place_of(since: float, priority: Priority, class_step_s: float) -> float:
    """The smaller, the sooner."""
    return since + priority.rank * class_step_s


class Job:
    """A repo in the queue. ``waited_since``: a client waits for it. ``case`` is the attempt under way.
    ``try_now``: something changed, the pause after a failure need not be kept; ``rest_until``: there was
    nobody to fetch from, ``misses`` times in a row; ``parked``: for whom it sleeps. ``gone``: it left the
    catalog during the attempt."""

    __slots__ = (
        "asked_at",
        "barred",
        "case",
        "gone",
        "holders",
        "holders_at",
        "look",
        "misses",
        "parked",
        "rest_until",
        "row",
        "spot",
        "ticket",
        "try_now",
        "upstream_away_until",
        "waited_since",
    )

    def __init__(self, row: Row) -> None:
        self.row = row
        self.spot = Spot.UNASKED
        self.ticket = 0
        self.gone = False
        self.look = False
        self.try_now = False
        self.misses = 0
        self.parked: tuple[NodeId, ...] = ()
        self.rest_until = 0.0
        self.holders: tuple[HolderReport, ...] = ()
        self.holders_at: float | None = None
        self.asked_at: float | None = None
        self.barred: dict[NodeId, float] = {}
        self.upstream_away_until = 0.0
        self.waited_since: float | None = None
        self.case: Case | None = None

    @property
    def key(self) -> RepoKey:
        return self.row.key

    @property
    def lane(self) -> Lane:
        if self.look:
            return Lane.LOOK
        if self.waited_since is not None:
            return Lane.CLIENT
        return Lane.FIRST if self.row.first else Lane.UPDATE

    @property
    def order(self) -> float:
        if self.waited_since is not None:
            return self.waited_since
        scan_at = self.row.scan_at
        return scan_at if scan_at is not None else 0.0


_Entry = tuple[float, RepoKey, int]


class Queue:
    """Jobs by key, and the heaps in which they stand."""

    def __init__(self, seats: int) -> None:
        self._seats = max(seats // 2, 1)  # of each of the two lanes that are fed from the store
        self._jobs: dict[RepoKey, Job] = {}
        self._heaps: dict[tuple[Spot, Lane], list[_Entry]] = {
            (spot, lane): [] for spot in (Spot.READY, Spot.UNASKED) for lane in Lane
        }
        self._asleep: list[_Entry] = []
        self._parked: dict[NodeId, list[_Entry]] = {}
        self._sleepers: dict[NodeId, int] = {}  # jobs that are parked for each
        self._crowd = max(self._seats // 4, 1)
        self._load: dict[NodeId, int] = {}
        self._counts = dict.fromkeys(Spot, 0)
        self._tenants = {True: 0, False: 0}  # jobs of which nothing, something is here
        self._turn = 0
        self._tickets = 0
        self._fetches = 0

    # What it holds

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def get(self, key: RepoKey) -> Job | None:
        return self._jobs.get(key)

    def count(self, spot: Spot) -> int:
        return self._counts[spot]

    @property
    def fetches(self) -> int:
        """Under way."""
        return self._fetches

    @property
    def looks(self) -> int:
        """At upstream, under way."""
        return self._counts[Spot.UNDER_WAY] - self._fetches

    @property
    def load(self) -> dict[NodeId, int]:
        return self._load

    def seats(self, first: bool) -> int:
        """Free for repos of which nothing, or something, is here."""
        return self._seats - self._tenants[first]

    # Moves

    def admit(self, row: Row, *, force: bool = False) -> Job | None:
        """The repo's job, new or not; None where there is no seat for it."""
        job = self._jobs.get(row.key)
        if job is None:
            if not force and self.seats(row.first) <= 0:
                return None
            job = self._jobs[row.key] = Job(row)
            self._counts[job.spot] += 1
            self._tenants[row.first] += 1
        return job

    def update(self, job: Job, row: Row) -> None:
        """The repo's new row; it may change seats. Its spot is as before."""
        self._tenants[job.row.first] -= 1
        self._tenants[row.first] += 1
        job.row = row

    def drop(self, job: Job) -> None:
        if self._jobs.pop(job.key, None) is not None:
            self._unpark(job)
            self._counts[job.spot] -= 1
            self._tenants[job.row.first] -= 1

    def ready(self, job: Job) -> None:
        self._stand(job, Spot.READY)

    def unasked(self, job: Job) -> None:
        self._stand(job, Spot.UNASKED)

    def asking(self, job: Job, until: float) -> None:
        self._move(job, Spot.ASKING)
        self._lie(job, until)

    def sleep(self, job: Job, until: float, nodes: Iterable[NodeId] = ()) -> None:
        """Until then, or until one of the nodes is free."""
        self._move(job, Spot.ASLEEP)
        self._lie(job, until)
        job.parked = tuple(nodes)
        for node in job.parked:
            self._sleepers[node] = self._sleepers.get(node, 0) + 1
            self._push(self._parked.setdefault(node, []), (job.order, job.key, job.ticket))

    def start(self, job: Job, case: Case) -> None:
        self._move(job, Spot.UNDER_WAY)
        job.case = case
        if isinstance(case.order, Fetch):
            node = case.order.holder.node
            self._fetches += 1
            self._load[node] = self._load.get(node, 0) + 1

    def ended(self, job: Job) -> Case | None:
        """Nothing is under way for this repo any more; it is asleep, for the caller to move on."""
        case, job.case = job.case, None
        if case is not None and isinstance(case.order, Fetch):
            node = case.order.holder.node
            self._fetches -= 1
            self._load[node] -= 1
            if not self._load[node]:
                del self._load[node]
        self._move(job, Spot.ASLEEP)
        return case

    # Who is next

    def next_ready(self) -> Job | None:
        """The next one to be fetched, out of its heap: who asks moves it on."""
        favoured = TURNS[self._turn]
        for lane in (favoured, *(each for each in FETCHED if each is not favoured)):
            job = self._pop(self._heaps[Spot.READY, lane], Spot.READY)
            if job is not None:
                return job
        return None

    def next_look(self) -> Job | None:
        return self._pop(self._heaps[Spot.READY, Lane.LOOK], Spot.READY)

    def turn_taken(self) -> None:
        """A fetch was started."""
        self._turn = (self._turn + 1) % len(TURNS)

    def next_unasked(self) -> Job | None:
        for lane in Lane:
            job = self._pop(self._heaps[Spot.UNASKED, lane], Spot.UNASKED)
            if job is not None:
                return job
        return None

    def due(self, now: float) -> Iterator[Job]:
        """Sleepers and askers whose time has come; who asks moves them on."""
        while self._asleep and self._asleep[0][0] <= now:
            _, key, ticket = heappop(self._asleep)
            job = self._jobs.get(key)
            if job is not None and job.ticket == ticket and job.spot in (Spot.ASLEEP, Spot.ASKING):
                yield job

    def wake_parked(self, node: NodeId, at_most: int) -> list[Job]:
        """The first of those that wait for this node."""
        heap = self._parked.get(node, [])
        woken: list[Job] = []
        while len(woken) < at_most:
            job = self._pop(heap, Spot.ASLEEP)
            if job is None:
                self._parked.pop(node, None)
                break
            woken.append(job)
        return woken

    def parked_nodes(self) -> list[NodeId]:
        return list(self._parked)

    def is_crowded(self, job: Job) -> bool:
        """It sleeps for nodes for each of which enough others sleep already."""
        return bool(job.parked) and all(self._sleepers[node] > self._crowd for node in job.parked)

    def clock_went_back(self, by_s: float) -> None:
        """Nobody sleeps longer for it."""
        self._asleep = [(at - by_s, key, ticket) for at, key, ticket in self._asleep]
        for job in self._jobs.values():
            job.rest_until -= by_s
            job.try_now = True

    # Inside

    def _stand(self, job: Job, spot: Spot) -> None:
        self._move(job, spot)
        self._push(self._heaps[spot, job.lane], (job.order, job.key, job.ticket))

    def _lie(self, job: Job, until: float) -> None:
        self._push(self._asleep, (until, job.key, job.ticket))

    def _unpark(self, job: Job) -> None:
        for node in job.parked:
            self._sleepers[node] -= 1
            if not self._sleepers[node]:
                del self._sleepers[node]
        job.parked = ()

    def _move(self, job: Job, spot: Spot) -> None:
        self._unpark(job)
        self._counts[job.spot] -= 1
        self._counts[spot] += 1
        job.spot = spot
        self._tickets += 1
        job.ticket = self._tickets

    def _push(self, heap: list[_Entry], entry: _Entry) -> None:
        heappush(heap, entry)
        if len(heap) > 2 * len(self._jobs) + HEAP_SPARE:
            heap[:] = [e for e in heap if self._valid(e)]
            heapify(heap)

    def _valid(self, entry: _Entry) -> bool:
        job = self._jobs.get(entry[1])
        return job is not None and job.ticket == entry[2]

    def _pop(self, heap: list[_Entry], spot: Spot) -> Job | None:
        while heap:
            _, key, ticket = heappop(heap)
            job = self._jobs.get(key)
            if job is not None and job.ticket == ticket and job.spot is spot:
                return job
        return None
