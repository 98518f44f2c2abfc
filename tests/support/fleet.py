"""A fleet around the machine: workers that do what they are told, a store, and a clock that is turned.

Both streams of a worker keep their order. What is on their way when a connection is cut is lost; reports stay
with the worker until they are acknowledged. A worker reads commands and ends clones when it is told to
(``read``, ``finish``), or everybody does everything (``run``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import (
    AckReports,
    Alert,
    Assign,
    Command,
    CompareRanges,
    CopyRow,
    Decision,
    DropCopies,
    Nudge,
    Other,
    PutCopies,
    PutSalt,
    PutWorker,
    Refuse,
    Release,
    ReportTaken,
    Send,
    SetLimits,
    Undelivered,
    Welcome,
)
from evermirror.core.fleet.digests import differing, digests_of, range_of
from evermirror.core.fleet.events import (
    CatalogChanged,
    CatalogRepo,
    ClonesDeferred,
    CommandsAcked,
    CopiesDropped,
    CopiesVerified,
    DeletionsDeclined,
    Event,
    HeartbeatHeard,
    HeldCopy,
    HeldTold,
    Moment,
    RangesCompared,
    ReportId,
    ReposHandedBack,
    RetireAsked,
    Ticked,
    WorkerConnected,
    WorkerDisconnected,
)
from evermirror.core.fleet.hashing import key_hashes
from evermirror.core.fleet.machine import FleetMachine
from evermirror.core.fleet.settings import FleetSettings
from evermirror.core.fleet.views import RepoView, Restored, WorkerView
from evermirror.model.messages import ApplySettings
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerFacts, WorkerId, WorkerRecord
from tests.support.plain_hashing import key_hash

UTC = 1_700_000_000.0  # of the first moment
QUICK = FleetSettings(warm_up_s=0.0, rebalance_gap_s=0.0)  # everything at the next tick
Report = Callable[[ReportId], Event]


class Store:
    """What was persisted, as rows."""

    def __init__(self) -> None:
        self.copies: dict[tuple[RepoKey, WorkerId], CopyRow] = {}
        self.workers: dict[WorkerId, WorkerRecord] = {}
        self.salts: dict[RepoKey, int] = {}
        self.reports: dict[tuple[WorkerId, int], ReportTaken] = {}
        self.catalog: dict[RepoKey, CatalogRepo] = {}
        self.removed: dict[RepoKey, None] = {}

    def write(self, decision: Decision) -> None:
        for write in decision.writes:
            match write:
                case PutCopies(rows):
                    self.copies.update({(row.key, row.worker): row for row in rows})
                case DropCopies(copies):
                    for copy in copies:
                        self.copies.pop(copy, None)
                case PutSalt(key, salt):
                    self.salts[key] = salt
                case PutWorker(record):
                    self.workers[record.id] = record
                case ReportTaken(worker, generation, _):
                    self.reports[worker, generation] = write

    def restored(self) -> Restored:
        return Restored(
            workers=tuple(self.workers.values()),
            repos=[(repo, self.salts.get(key, 0)) for key, repo in self.catalog.items()],
            removed=tuple(self.removed),
            copies=tuple(self.copies.values()),
            reports=tuple(self.reports.values()),
        )


class FakeWorker:
    """Does what it is told, truly and in order."""

    def __init__(self, facts: WorkerFacts, generation: int = 1) -> None:
        self.facts = facts
        self.generation = generation  # of its file: no two workers have the same, as an id may be used again
        self.id: WorkerId | None = None
        self.session = 0
        self.epoch = 0
        self.boot = 1
        self.connected = False
        self.accepting = True
        self.serves = False
        self.seq = 0
        self.seen = 0
        self.commands: deque[tuple[int, Command]] = deque()  # arrived, not read
        self.reports: deque[tuple[int, Report]] = deque()  # not acknowledged
        self.disk: dict[RepoKey, int] = {}  # complete ones, and their digest
        self.clones: dict[RepoKey, None] = {}  # under way
        self.roles: dict[RepoKey, bool] = {}  # primary?
        self.others: list[object] = []
        self.limits: ApplySettings | None = None
        self.nudged: list[RepoKey] = []

    def forget_session(self) -> None:
        """A fresh one begins: nothing told before is still to be done."""
        self.clones.clear()
        self.commands.clear()
        self.roles.clear()
        self.seen = 0


class Fleet:
    """The machine, its store and its workers. ``decisions`` has every decision, oldest first."""

    def __init__(self, settings: FleetSettings = QUICK, chunk: int = 3) -> None:
        self.settings = settings
        self.chunk = chunk  # copies told at once in a fresh session
        self.time_s = 0.0
        self.epoch = 1
        self.sessions = 0
        self.generations = 0
        self.store = Store()
        self.workers: list[FakeWorker] = []
        self.upstream: dict[RepoKey, int] = {}  # digest of what there is to clone
        self.decisions: list[Decision] = []
        self.before_act: Callable[[Send], None] = lambda send: None
        self.machine = FleetMachine(settings, self.epoch, self.now)

    # Events

    @property
    def now(self) -> Moment:
        return Moment(self.time_s, UTC + self.time_s)

    def handle(self, event: Event) -> Decision:
        """One event; what follows is written, and arrives at the workers."""
        decision = self.machine.handle(event, self.now)
        self.decisions.append(decision)
        self.store.write(decision)
        for action in decision.actions:
            match action:
                case Send():
                    self.before_act(action)
                    worker = self._of_session(action.session)
                    if worker is not None:
                        worker.commands.append((action.seq, action.command))
                case AckReports(_, session, _, seq):
                    worker = self._of_session(session)
                    while worker is not None and worker.reports and worker.reports[0][0] <= seq:
                        worker.reports.popleft()
                case Refuse(session, _):
                    worker = self._of_session(session)
                    if worker is not None:
                        worker.connected = False
                case Welcome() | Alert() | Undelivered():
                    pass
        return decision

    def catalog(
        self, *put: CatalogRepo | str, removed: Iterable[str] = (), forgotten: Iterable[str] = ()
    ) -> None:
        repos = tuple(repo if isinstance(repo, CatalogRepo) else CatalogRepo(RepoKey(repo)) for repo in put)
        store, gone = self.store, tuple(map(RepoKey, removed))
        for key in gone:
            if store.catalog.pop(key, None) is not None:
                store.removed[key] = None
        for key in forgotten:
            if store.removed.pop(RepoKey(key), 0) is None:
                store.salts.pop(RepoKey(key), None)
        for repo in repos:
            store.catalog[repo.key] = repo
            store.removed.pop(repo.key, None)
            self.upstream.setdefault(repo.key, 7)
        self.handle(CatalogChanged(repos, gone, tuple(map(RepoKey, forgotten))))

    def tick(self, times: int = 1, gap_s: float = 1.0) -> None:
        """Time passes; everybody that is connected sends heartbeats."""
        for _ in range(times):
            self.time_s += gap_s
            for worker in self.workers:
                self.beat(worker)
            self.handle(Ticked())

    def beat(self, worker: FakeWorker) -> None:
        if worker.connected and worker.id is not None:
            self.handle(HeartbeatHeard(worker.id, worker.session, worker.accepting))

    def run(self, ticks: int = 20, gap_s: float = 1.0) -> None:
        """Everybody does everything, for so long."""
        for _ in range(ticks):
            self.tick(gap_s=gap_s)
            while self.work():
                pass

    def work(self) -> bool:
        """Everybody reads all and ends all clones; was there anything?"""
        busy = False
        for worker in self.workers:
            while worker.connected and (worker.commands or worker.clones):
                busy = True
                self.read(worker)
                for key in tuple(worker.clones):
                    self.finish(worker, key)
        return busy

    def restart(self) -> None:
        """The coordinator dies; another begins with what was persisted."""
        for worker in self.workers:
            worker.connected = False
            worker.commands.clear()
        self.epoch += 1
        self.machine = FleetMachine(self.settings, self.epoch, self.now, self.store.restored())

    # Workers

    def join(self, name: str, *, serves: bool = False, **facts: object) -> FakeWorker:
        """A new worker, connected, that has told what it holds: nothing."""
        self.generations += 1
        told = replace(WorkerFacts(name, trusted=True), **facts)  # type: ignore[arg-type]
        worker = FakeWorker(told, self.generations)
        worker.serves = serves
        self.workers.append(worker)
        self.connect(worker)
        return worker

    def connect(self, worker: FakeWorker, *, tells: bool = True) -> bool:
        """Whether it was let in. ``tells``: in a fresh session, all it holds, at once."""
        self.sessions += 1
        worker.session, worker.connected = self.sessions, True
        worker.commands.clear()
        event = WorkerConnected(
            self.sessions,
            worker.id,
            worker.facts,
            worker.boot,
            worker.generation,
            worker.epoch,
            worker.seen,
            worker.limits,
            serves=worker.serves,
        )
        decision = self.handle(event)
        welcome = next((a for a in decision.actions if isinstance(a, Welcome)), None)
        if welcome is None:
            return False
        worker.id, worker.epoch = welcome.worker, welcome.epoch
        for seq, report in tuple(worker.reports):
            self._send(worker, seq, report)
        if not welcome.resumed:
            commands = tuple(worker.commands)
            worker.forget_session()
            worker.commands.extend(commands)
            if tells:
                self.tell(worker)
        return True

    def tell(self, worker: FakeWorker, *, all_of_it: bool = True) -> None:
        """In a fresh session, what it holds; or only the first part of it."""
        assert worker.id is not None
        held = [HeldCopy(key, digest) for key, digest in sorted(worker.disk.items())]
        parts = [tuple(held[i : i + self.chunk]) for i in range(0, len(held), self.chunk)] or [()]
        for part in parts[:-1]:
            self.handle(HeldTold(worker.id, worker.session, part, last=False))
        if all_of_it:
            self.handle(HeldTold(worker.id, worker.session, parts[-1], last=True))

    def cut(self, worker: FakeWorker, *, noticed: bool = True) -> None:
        """Its connection breaks; what was on the way to it is lost."""
        if worker.connected:
            worker.connected = False
            worker.commands.clear()
            if noticed and worker.id is not None:
                self.handle(WorkerDisconnected(worker.id, worker.session))

    def reboot(self, worker: FakeWorker, *, lost: Iterable[RepoKey] = ()) -> None:
        """Its process ends, and what it was doing with it."""
        self.cut(worker)
        worker.boot += 1
        worker.forget_session()
        for key in lost:
            worker.disk.pop(key, None)

    def retire(self, worker: FakeWorker) -> None:
        assert worker.id is not None
        self.workers.remove(worker)
        self.handle(RetireAsked(worker.id))

    def read(self, worker: FakeWorker, count: int | None = None) -> None:
        """It takes in commands and does them; clones go on until they are ended."""
        while worker.connected and worker.commands and (count is None or count > 0):
            seq, command = worker.commands.popleft()
            if worker.id is not None and seq == worker.seen + 1:
                worker.seen = seq
                if isinstance(command, SetLimits):
                    self._do(worker, command)
                self.handle(CommandsAcked(worker.id, worker.session, seq))
                if not isinstance(command, SetLimits):
                    self._do(worker, command)
            count = None if count is None else count - 1

    def fail(self, worker: FakeWorker, key: RepoKey) -> None:
        """A clone failed; the worker goes on trying by itself."""
        self.report(worker, lambda id_: ClonesDeferred(id_, (key,)))

    def finish(self, worker: FakeWorker, key: RepoKey, *, room: bool = True) -> None:
        """A clone is complete, or there is no room for it."""
        del worker.clones[key]
        if room:
            worker.disk[key] = self.upstream[key]
            self._verified(worker, (key,))
        else:
            self.report(worker, lambda id_: ReposHandedBack(id_, (key,)))

    def sync(self, worker: FakeWorker, key: RepoKey) -> None:
        """It looks at upstream and tells what it has now."""
        worker.disk[key] = self.upstream[key]
        self._verified(worker, (key,))

    def report(self, worker: FakeWorker, report: Report) -> None:
        worker.seq += 1
        worker.reports.append((worker.seq, report))
        if worker.connected:
            self._send(worker, worker.seq, report)

    def _send(self, worker: FakeWorker, seq: int, report: Report) -> None:
        assert worker.id is not None
        self.handle(report(ReportId(worker.id, worker.session, worker.generation, seq)))

    def _do(self, worker: FakeWorker, command: Command) -> None:
        match command:
            case Assign(items):
                for item in items:
                    worker.roles[item.key] = item.primary
                    if item.key not in worker.disk:
                        worker.clones[item.key] = None
            case Release(keys, False):
                for key in keys:
                    self._stop(worker, key)
            case Release(keys, True, digests):
                for key, digest in zip(keys, digests, strict=True):
                    self._delete(worker, key, digest)
            case Nudge(keys):
                worker.nudged += keys
                for key in keys:
                    if key in worker.disk:
                        self.sync(worker, key)
            case CompareRanges():
                self._compare(worker, command)
            case SetLimits(limits):
                worker.limits = limits
            case Other(other):
                worker.others.append(other)

    def _stop(self, worker: FakeWorker, key: RepoKey) -> None:
        worker.clones.pop(key, None)
        worker.roles.pop(key, None)
        if key in worker.disk:
            self._verified(worker, (key,))
        else:
            self.report(worker, lambda id_: CopiesDropped(id_, (key,)))

    def _delete(self, worker: FakeWorker, key: RepoKey, digest: int) -> None:
        """Not where it has other refs by now than those that are covered."""
        has = worker.disk.get(key, 0)
        if key in worker.disk and digest not in (0, has):
            self.report(worker, lambda id_: DeletionsDeclined(id_, (HeldCopy(key, has, self.now.utc_s),)))
            return
        worker.clones.pop(key, None)
        worker.roles.pop(key, None)
        worker.disk.pop(key, None)
        self.report(worker, lambda id_: CopiesDropped(id_, (key,)))

    def _verified(self, worker: FakeWorker, keys: tuple[RepoKey, ...]) -> None:
        copies = tuple(HeldCopy(key, worker.disk[key], self.now.utc_s) for key in keys)
        self.report(worker, lambda id_: CopiesVerified(id_, copies))

    def _compare(self, worker: FakeWorker, command: CompareRanges) -> None:
        assert worker.id is not None
        keys = sorted(worker.disk)
        ours = digests_of(key_hashes(keys), np.array([worker.disk[key] for key in keys], np.uint64))
        ranges = differing(ours, command.digests)
        told = tuple(HeldCopy(key, worker.disk[key]) for key in keys if range_of(key_hash(key)) in ranges)
        self.handle(RangesCompared(worker.id, worker.session, ranges, told))

    def _of_session(self, session: int) -> FakeWorker | None:
        return next((w for w in self.workers if w.connected and w.session == session), None)

    # Looking

    def repo(self, key: str) -> RepoView:
        view = self.machine.repo(RepoKey(key))
        assert view is not None
        return view

    def view(self, worker: FakeWorker) -> WorkerView:
        return next(view for view in self.machine.workers() if view.record.id == worker.id)

    def should(self, key: str) -> tuple[WorkerId, ...]:
        return tuple(copy.worker for copy in self.repo(key).copies if copy.rank is not None)

    def states(self, key: str) -> dict[WorkerId, CopyState]:
        return {copy.worker: copy.state for copy in self.repo(key).copies}

    def holders(self, key: str) -> list[FakeWorker]:
        """Whose disk really has it."""
        return [worker for worker in self.workers if RepoKey(key) in worker.disk]

    def alerts(self) -> list[Alert]:
        return [a for decision in self.decisions for a in decision.actions if isinstance(a, Alert)]

    def sent(self, worker: FakeWorker) -> list[Command]:
        """All that was ever sent to it."""
        return [
            a.command
            for decision in self.decisions
            for a in decision.actions
            if isinstance(a, Send) and a.worker == worker.id
        ]
