"""Exchanged: reports count once and are safe before they are acknowledged; commands go out in order.

- A report is taken when it is the next of its worker and generation, and not otherwise.
- What is acknowledged is in the store.
- A copy becomes complete by what its own worker reports.
- What is sent goes to the newest session, numbered without a hole; resumed, it goes on behind what the worker
  has.
- A repo handed back is at another place of the ring afterwards.
- After a restart the machine knows what was written, no more and no less.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.decisions import AckReports, Send, Welcome
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, WorkerId
from tests.support.sim.fleet.checks.shadow import Change, Scene

REPORTS, SESSIONS, SALT, RESTART = "reports", "sessions", "salt", "restart"
RESTART_LOOKS = 500  # repos compared after a restart, of each sort: the cost of a sweep, not of the fleet


class Exchanged:
    """See the module."""

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
