"""The workers as the machine knows them: their records, sessions and outboxes, by id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evermirror.core.fleet.flaps import faded, flapped, remember, weight_factor
from evermirror.core.fleet.ids import IdBitmap
from evermirror.core.fleet.outbox import Outbox
from evermirror.model.worker import Duty, Liveness, WorkerFacts, WorkerId, WorkerRecord

FACTOR_STEPS = 20  # a weight that fades moves in steps, or the ring would be another at every placement


class Member:
    """One worker. ``record`` is what is persisted; the rest belongs to the present session."""

    __slots__ = (
        "accepting",
        "boot",
        "connected",
        "deferred",
        "generation",
        "grace_over",
        "heard_at",
        "joining",
        "outbox",
        "progress",
        "reconciled",
        "record",
        "serves",
        "session",
        "stalled",
        "strays",
        "strays_shown",
        "told",
        "unreachable",
    )

    def __init__(self, record: WorkerRecord, outbox_max: int) -> None:
        self.record = record
        self.outbox = Outbox(outbox_max)
        self.serves = False  # people read from its machine
        self.session = 0
        self.boot = 0
        self.generation = 0
        self.connected = False
        self.reconciled = False
        self.accepting = True
        self.progress = 0  # as its last heartbeat told
        self.unreachable = False  # no relay has had a line to it for long (reach.py)
        self.stalled = False  # it does not complete what it is asked for: nothing more is, for a while
        self.heard_at = record.last_alive_at  # UTC seconds
        self.grace_over = False  # it would be down if the brake were not on
        self.joining = False  # its share is not decided yet: what it holds may be wanted there in a moment
        self.strays = 0
        self.strays_shown = False  # people were told of some
        self.told: set[int] = set()  # rows told so far in a fresh session
        self.deferred: set[int] = set()  # rows to settle once the outbox has room

    @property
    def id(self) -> WorkerId:
        return self.record.id

    @property
    def alive(self) -> bool:
        """Its copies can be read and worked on now."""
        record = self.record
        return record.liveness is Liveness.ALIVE and record.duty in (Duty.ACTIVE, Duty.DRAINING)

    @property
    def readable(self) -> bool:
        """Others can read what it holds."""
        return self.alive and not self.unreachable

    @property
    def keeps(self) -> bool:
        """What is placed on it stays there."""
        active = self.record.duty is Duty.ACTIVE and not self.unreachable
        return active and self.record.liveness is not Liveness.DOWN

    @property
    def takes(self) -> bool:
        """More may be placed on it."""
        return self.keeps and self.record.liveness is Liveness.ALIVE and self.accepting and not self.stalled

    @property
    def ready(self) -> bool:
        """Commands about its copies may be sent: what it holds is known."""
        return self.connected and self.reconciled

    @property
    def vouches(self) -> bool:
        """A copy that it reports complete is one that allows another to be deleted."""
        return self.ready and self.alive and self.record.facts.trusted

    @property
    def proves(self) -> bool:
        """A copy that it says it holds is really there."""
        return self.record.facts.trusted and not self.away

    @property
    def away(self) -> bool:
        """Its copies count for nothing now."""
        record = self.record
        return record.duty not in (Duty.ACTIVE, Duty.DRAINING) or record.liveness is Liveness.DOWN

    @property
    def keeps_moved(self) -> bool:
        """What moves to others stays here too: people read it from this machine. Draining ends that."""
        return self.serves and self.record.duty is Duty.ACTIVE

    def weight_for_new(self, now_utc_s: float) -> float:
        """Less while it flaps; what it has, it keeps."""
        record = self.record
        factor = weight_factor(faded(record.flap_score, record.flap_at, now_utc_s))
        steps = max(round(factor * FACTOR_STEPS), 1)
        return record.facts.weight * steps / FACTOR_STEPS

    def note(self, word: str, now_utc_s: float, **changes: object) -> None:
        """Something to remember of it."""
        history = remember(self.record.history, now_utc_s, word)
        self.record = replace(self.record, history=history, **changes)  # type: ignore[arg-type]

    def note_flap(self, now_utc_s: float) -> None:
        score = flapped(self.record.flap_score, self.record.flap_at, now_utc_s)
        self.record = replace(self.record, flap_score=score, flap_at=now_utc_s)


class Crew:
    """Every worker that may come back."""

    def __init__(self, outbox_max: int) -> None:
        self._outbox_max = outbox_max
        self._ids = IdBitmap()
        self._members: dict[WorkerId, Member] = {}
        self._names: dict[str, WorkerId] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def get(self, worker: WorkerId) -> Member | None:
        return self._members.get(worker)

    def record(self, worker: WorkerId) -> WorkerRecord | None:
        member = self._members.get(worker)
        return None if member is None else member.record

    def __getitem__(self, worker: WorkerId) -> Member:
        return self._members[worker]

    def named(self, name: str) -> Member | None:
        worker = self._names.get(name)
        return None if worker is None else self._members[worker]

    def restore(self, record: WorkerRecord) -> Member | None:
        """None for one that had retired: its id is free."""
        if record.duty is Duty.RETIRED:
            return None
        self._ids.use(record.id)
        return self._put(record)

    def enlist(self, facts: WorkerFacts, now_utc_s: float) -> Member:
        record = WorkerRecord(self._ids.take(), facts, joined_at=now_utc_s, last_alive_at=now_utc_s)
        return self._put(record)

    def rename(self, member: Member, name: str) -> None:
        del self._names[member.record.facts.name]
        self._names[name] = member.id

    def dismiss(self, worker: WorkerId) -> None:
        """It will not come back: its id may be given to another."""
        member = self._members.pop(worker)
        del self._names[member.record.facts.name]
        self._ids.free(worker)

    def _put(self, record: WorkerRecord) -> Member:
        member = Member(record, self._outbox_max)
        self._members[record.id] = member
        self._names[record.facts.name] = record.id
        return member

    @property
    def width(self) -> int:
        """One more than the largest id: the length of arrays indexed by worker."""
        return max(self._members, default=-1) + 1
