"""Checks of what must never be lost: copies, reports and commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import islice, zip_longest
from typing import NamedTuple

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import AckReports, Release, Send, Welcome
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, WorkerId
from evermirror.sim.fleet.worker import digest
from tests.support.sim.fleet.checks.shadow import Change, Scene
from tests.support.sim.fleet.worker import RoughWorker

KEPT, VERIFIED = "kept", "verified"
_NO_MATTER = 0  # as a version: nothing there is needed


class _Order(NamedTuple):
    """To delete: which version must be elsewhere, and the digest that was named (0: none)."""

    needed: int
    named: int


class Kept:
    """Kept: no complete copy is deleted before another one that counts exists, but for what left the catalog.

    Looked at twice. When the command to delete is decided, another copy must really be there that counts: on
    the disk of a trusted worker that is not itself told to delete it, or at the aggregator; with the refs
    named in the command, or newer ones. And again when the worker deletes: then any other copy will do. A
    worker may decline, as its refs are others by then: only then the copy counts again.

    A worker from whose machine people read is told to delete nothing but what left the catalog, until it is
    drained.

    What is shown as verified is on some disk, or at the aggregator, whatever liars say.

    A copy that was there and that a fault destroyed since is an excuse, until the coordinator knows of the
    loss.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._leaving: defaultdict[WorkerId, dict[RepoKey, _Order]] = defaultdict(dict)  # and not done
        self._destroyed: defaultdict[RepoKey, set[WorkerId | None]] = defaultdict(set)

    def changed(self, change: Change) -> None:
        for step in change.copies:
            gone = step.after is None or step.after.state in (
                CopyState.PLANNED,
                CopyState.ASKED,
                CopyState.DEFERRED,
            )
            if gone and step.key in self._destroyed:
                self._destroyed[step.key].discard(step.worker)
            if gone and step.worker in self._leaving:
                self._leaving[step.worker].pop(step.key, None)
            if step.told_held and self.leaving(step.worker, step.key):
                self._stays(step.worker, step.key)
        for action in change.decision.actions:
            match action:
                case Welcome(_, worker, _, False):
                    # A fresh session: it will do nothing of what was sent before.
                    self._leaving.pop(worker, None)
                case Send(worker, _, _, Release(keys, True, digests)):
                    for key, named in zip_longest(keys, digests, fillvalue=0):
                        self._told_to_delete(worker, RepoKey(str(key)), int(named))

    def leaving(self, worker: WorkerId, key: RepoKey) -> bool:
        return worker in self._leaving and key in self._leaving[worker]

    def deleting(self, worker: WorkerId, key: RepoKey) -> None:
        """Now, on its disk."""
        if key not in self._scene.world.store.repos:
            return
        needed = self._leaving[worker].get(key, _Order(1, 0)).needed
        deleter = self._scene.world.worker(worker)
        others = [other for other in self._holders(key) if other is not deleter]
        if any(other.disk[key] >= needed for other in others) or self._elsewhere(key, needed):
            return
        self._scene.broken(KEPT, f"{self._scene.name(worker)} deletes {key}, and nobody else has it")

    def _stays(self, worker: WorkerId, key: RepoKey) -> None:
        """It counts again: right if it declined, as it has other refs than those it was to delete."""
        known, version = self._scene.world.worker(worker), self._version(worker, key)
        honest = known is not None and known.lies is None  # a liar may say anything, and counts for nothing
        if honest and (version is None or digest(key, version) == self._leaving[worker][key].named):
            name = self._scene.name(worker)
            self._scene.broken(KEPT, f"{key} counts as held by {name}, which was told to delete it")
        del self._leaving[worker][key]

    def sweep(self) -> None:
        """Every repo that is shown as verified is somewhere."""
        world, machine = self._scene.world, self._scene.machine
        for key in world.store.repos if machine is not None else ():
            if world.holders(key) or key in world.witness.disk or self._destroyed.get(key):
                continue
            view = machine.repo(key) if machine is not None else None
            if view is not None and view.verified and any(c.state is CopyState.HELD for c in view.copies):
                self._scene.broken(VERIFIED, f"{key} is shown as verified, and no disk has it")

    def destroyed(self, worker: WorkerId | None, keys: tuple[RepoKey, ...]) -> None:
        """By a fault; None: the aggregator's."""
        for key in keys:
            self._destroyed[key].add(worker)

    def _told_to_delete(self, worker: WorkerId, key: RepoKey, named: int) -> None:
        if self.leaving(worker, key):
            return  # sent again after a reconnect: looked at when it was decided
        self._may_people_lose(worker, key)
        needed = self._needed(worker, key, named)
        if needed != _NO_MATTER and not self._counted(worker, key, needed):
            others = sorted(other.name for other in self._holders(key) if other.id != worker)
            self._scene.broken(
                KEPT,
                f"{self._scene.name(worker)} is told to delete {key} (v{needed}), no other copy counts; "
                f"it is on the disks of {', '.join(others) or 'nobody'}",
            )
        self._leaving[worker][key] = _Order(needed, named)

    def _may_people_lose(self, worker: WorkerId, key: RepoKey) -> None:
        known, record = self._scene.world.worker(worker), self._scene.shadow.records.get(worker)
        if known is None or record is None or not self._scene.world.serves(known.index):
            return
        if record.duty is Duty.ACTIVE and key in self._scene.world.store.repos:
            self._scene.broken(KEPT, f"{known.name} is told to delete {key}, which people read there")

    def _needed(self, worker: WorkerId, key: RepoKey, named: int) -> int:
        """The version that must be elsewhere: the one that is named; where none is, whatever is there."""
        version = self._version(worker, key)
        if key not in self._scene.world.store.repos or version is None:
            return _NO_MATTER
        return next((v for v in range(version, 0, -1) if digest(key, v) == named), version)

    def _version(self, worker: WorkerId, key: RepoKey) -> int | None:
        """What is really there."""
        known = self._scene.world.worker(worker)
        return None if known is None else known.disk.get(key)

    def _counted(self, worker: WorkerId, key: RepoKey, needed: int) -> bool:
        records = self._scene.shadow.records
        for other in self._holders(key):
            record = records.get(other.id) if other.id is not None else None
            if (
                record is not None
                and record.id != worker
                and record.facts.trusted
                and record.duty in (Duty.ACTIVE, Duty.DRAINING)
                and other.disk[key] >= needed
                and not self.leaving(record.id, key)
            ):
                return True
        return self._elsewhere(key, needed)

    def _elsewhere(self, key: RepoKey, needed: int) -> bool:
        """At the aggregator, or destroyed by a fault of which nobody knows yet."""
        at_witness = self._scene.world.witness.disk.get(key, 0)
        return at_witness >= needed or bool(self._destroyed.get(key))

    def _holders(self, key: RepoKey) -> list[RoughWorker]:
        world = self._scene.world
        return [world.workers[index] for index in sorted(world.holders(key))]


REPORTS, SESSIONS, SALT, RESTART = "reports", "sessions", "salt", "restart"
RESTART_LOOKS = 500  # repos compared after a restart, of each sort: the cost of a sweep, not of the fleet


class Exchanged:
    """Exchanged: reports count once and are safe before they are acknowledged; commands go out in order.

    - A report is taken when it is the next of its worker and generation, and not otherwise.
    - What is acknowledged is in the store.
    - A copy becomes complete by what its own worker reports.
    - What is sent goes to the newest session, numbered without a hole; resumed, it goes on behind what the
      worker has.
    - A repo handed back is at another place of the ring afterwards.
    - After a restart the machine knows what was written, no more and no less.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._session: dict[WorkerId, int] = {}
        self._sent: dict[WorkerId, int] = {}  # the last number

    def changed(self, change: Change) -> None:
        self._look_at_reports(change)
        self._look_at_commands(change)
        for key, (before, after) in change.salts.items():
            if before == after:
                self._scene.broken(SALT, f"{key} was handed back and keeps its place: salt {before}")

    def acked(self, worker: WorkerId, generation: int, seq: int) -> None:
        """Is about to be told to the worker."""
        stored = self._scene.world.store.reports.get((worker, generation), 0)
        if seq > stored:
            detail = f"report {seq} of {self._scene.name(worker)} is acknowledged, {stored} is in the store"
            self._scene.broken(REPORTS, detail)

    def restarted(self) -> None:
        self._session.clear()
        self._sent.clear()
        machine = self._scene.machine
        if machine is None:
            return
        shadow = self._scene.shadow
        for view in machine.workers():
            record = shadow.records.get(view.record.id)
            if record is None or record.duty is not view.record.duty or record.facts != view.record.facts:
                self._scene.broken(RESTART, f"{self._scene.name(view.record.id)} came back otherwise")
        for key in self._sample():
            view_now = machine.repo(key)
            known = {row.worker: (row.rank, row.state) for row in shadow.copies.get(key, {}).values()}
            found = {c.worker: (c.rank, c.state) for c in view_now.copies} if view_now is not None else {}
            if known != found:
                self._scene.broken(RESTART, f"{key} was {known}, and is {found} after the restart")
            if view_now is not None and view_now.salt != shadow.salts.get(key, 0):
                detail = (
                    f"{key} had salt {shadow.salts.get(key, 0)}, and has {view_now.salt} after the restart"
                )
                self._scene.broken(SALT, detail)

    def _sample(self) -> Iterable[RepoKey]:
        """Some of those in motion, of those handed back, and of all."""
        shadow, repos = self._scene.shadow, self._scene.world.store.repos
        moving = (
            key
            for key, rows in shadow.copies.items()
            if key in repos and any(row.state is not CopyState.HELD for row in rows.values())
        )
        yield from islice(moving, RESTART_LOOKS)
        yield from islice((key for key in shadow.salts if key in repos), RESTART_LOOKS)
        step = max(1, len(repos) // RESTART_LOOKS)
        yield from islice(repos, 0, None, step)

    def _look_at_reports(self, change: Change) -> None:
        shadow = self._scene.shadow
        told: set[WorkerId] = set()
        for report in change.reports:
            told.add(report.worker)
            last = shadow.reports.get((report.worker, report.generation), 0)
            if report.seq != last + 1:
                name = self._scene.name(report.worker)
                self._scene.broken(REPORTS, f"report {report.seq} of {name} was taken after {last}")
            shadow.reports[report.worker, report.generation] = report.seq
        for step in change.workers:
            if step.after.duty is Duty.RETIRED:
                gone = [known for known in shadow.reports if known[0] == step.after.id]
                for known in gone:
                    del shadow.reports[known]
        if told:
            for copy in change.copies:
                if copy.told_held and copy.worker not in told:
                    name = self._scene.name(copy.worker)
                    self._scene.broken(REPORTS, f"{copy.key} counts as held by {name}, which said nothing")

    def _look_at_commands(self, change: Change) -> None:
        for action in change.decision.actions:
            match action:
                case Welcome(session, worker, _, resumed):
                    self._session[worker] = session
                    if resumed:
                        self._resumes(worker, session, change)
                    else:
                        self._sent[worker] = 0
                case Send(worker, session, seq) | AckReports(worker, session, _, seq):
                    if session != self._session.get(worker):
                        detail = f"{type(action).__name__} to {self._scene.name(worker)}, session {session}"
                        self._scene.broken(SESSIONS, f"{detail}: its newest is {self._session.get(worker)}")
                    if isinstance(action, Send):
                        self._next(worker, seq)

    def _resumes(self, worker: WorkerId, session: int, change: Change) -> None:
        """All that it has not seen goes out again, at once."""
        again = [a.seq for a in change.decision.actions if isinstance(a, Send) and a.worker == worker]
        known = self._scene.world.worker(worker)
        if known is None or known.link is None or known.link.session != session:  # it gave up meanwhile
            self._sent[worker] = again[0] - 1 if again else self._sent.get(worker, 0)
            return
        seen = known.seen
        missing = [seq for seq in range(seen + 1, self._sent.get(worker, 0) + 1) if seq not in again]
        if missing:
            name = self._scene.name(worker)
            self._scene.broken(SESSIONS, f"{name} has seen {seen}; {missing[:5]} are not sent again")
        self._sent[worker] = seen

    def _next(self, worker: WorkerId, seq: int) -> None:
        if seq != self._sent.get(worker, 0) + 1:
            detail = f"command {seq} to {self._scene.name(worker)} follows {self._sent.get(worker, 0)}"
            self._scene.broken(SESSIONS, detail)
        self._sent[worker] = seq
