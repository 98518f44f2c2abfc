"""The mind of the aggregator: one door for everything that happens, and what follows from it.

    event ──▶ handle ──▶ the repo's row changes ──▶ its job moves in the queue ──▶ free slots are filled
                                                                                        │
                                                                                        ▼
                                                                          Decision(writes, actions)

Rules
- Writes are persisted before actions start. A row says all that must be known after a crash; a new machine
  reads the pending rows and goes on. What was under way is then begun again.
- Never two attempts for one repo. A change during an attempt is in the row when it ends, and is fetched next.
- Only what an attempt published is served, and only as long as its word counts (``row.served``).
- In full mode every repo is wanted, in pull-through mode what is here and what a client waits for.
- The parts: telling (what a change means), queue (who is next), choose (from whom), starting (within which
  bounds), suspect and verdict (what an attempt means), scan, audit, evict, clients. This file only routes.
"""

from __future__ import annotations

from evermirror.core.collect.accusing import Accuser
from evermirror.core.collect.audit import Audits, to_audit
from evermirror.core.collect.clients import Clients
from evermirror.core.collect.decisions import (
    Decision,
    Discard,
    DoubtReports,
    Outcome,
    PickAudit,
    Serve,
    TellClients,
    Withdraw,
)
from evermirror.core.collect.draft import Draft
from evermirror.core.collect.events import (
    Attempt,
    AttemptEnded,
    AuditPicked,
    Changed,
    DiskTold,
    End,
    Event,
    Evicted,
    HoldersTold,
    Lost,
    PendingLoaded,
    Reachability,
    Ticked,
    Wanted,
)
from evermirror.core.collect.placing import judged_place, placed
from evermirror.core.collect.queue import Job, Queue, Spot
from evermirror.core.collect.room import Room
from evermirror.core.collect.rows import Row
from evermirror.core.collect.scan import Scan
from evermirror.core.collect.settings import CollectMode, CollectSettings
from evermirror.core.collect.starting import Starter
from evermirror.core.collect.suspect import Case
from evermirror.core.collect.telling import cleared, heard, lost, told
from evermirror.core.collect.verdict import Verdict, judge
from evermirror.model.changes import HolderReport
from evermirror.model.repo import RepoKey

CLOCK_BACK_S = 1.0  # less is no jump
SAMPLES_MAX = 16  # repos at once that are fetched only to see whether their holders have them


class Collector:
    """Handles one event at a time; ``now`` in UTC seconds."""

    def __init__(self, settings: CollectSettings) -> None:
        self.settings = settings
        self._queue = Queue(settings.queue_max)
        self._starter = Starter(self._queue, settings, self._is_blocked, self._slept)
        self._clients = Clients(settings.waits_max, settings.client_wait_s)
        self._room = Room(settings)
        self._audits = Audits(settings.audits_per_minute, samples=settings.mode is CollectMode.PULL_THROUGH)
        self._samples: list[RepoKey] = []  # repos that are fetched to see whether their holders have them
        self._accuser = Accuser(self._queue, self._starter.accused)
        self._scans = {first: Scan(first, settings) for first in (False, True)}
        self._last: float | None = None
        self._no_room: set[RepoKey] = set()  # failed for lack of it since there last was some

    # Views

    @property
    def queue(self) -> Queue:
        """To be read only."""
        return self._queue

    @property
    def accepting(self) -> bool:
        """First fetches are started."""
        return self._room.accepting

    @property
    def waiting(self) -> int:
        """Repos that clients wait for."""
        return len(self._clients)

    # The door

    def handle(self, event: Event, now: float) -> Decision:
        draft = Draft()
        self._mind_the_clock(now)
        match event:
            case Changed():
                self._changed(event, now, draft)
            case Wanted():
                self._wanted(event, now, draft)
            case HoldersTold():
                self._holders_told(event, now, draft)
            case AttemptEnded():
                self._ended(event.attempt, now, draft)
            case Reachability():
                self._starter.reach(event.nodes, now, draft)
            case PendingLoaded():
                self._loaded(event, now, draft)
            case AuditPicked():
                self._audit(event, now, draft)
            case DiskTold():
                self._disk(event, now, draft)
            case Evicted():
                self._room.evicted(event.key)
            case Lost():
                self._lost(event, now, draft)
            case Ticked():
                self._ticked(event, now, draft)
        self._starter.pump(now, draft)
        return draft.decision()

    def _mind_the_clock(self, now: float) -> None:
        if self._last is not None and now < self._last - CLOCK_BACK_S:
            self._queue.clock_went_back(self._last - now)
        self._last = now

    # The catalog

    def _changed(self, event: Changed, now: float, draft: Draft) -> None:
        change = event.change
        job = self._queue.get(change.key)
        row = event.row if job is None or job.gone else job.row
        if change.removed:
            self._removed(change.key, row, job, draft)
            return
        if row is not None and change.seq < row.seq:
            return
        new = told(row, change)
        if job is None or job.case is None:
            new = cleared(new, change.holders)
        if job is not None:
            job.gone = False
        if new.here is not None and row is not None and new.here != row.here and new.served:
            draft.act(Serve(new.key, new.here))
        self._consider(new, now, draft, change.holders)

    def _removed(self, key: RepoKey, row: Row | None, job: Job | None, draft: Draft) -> None:
        if row is not None:
            draft.drop(key)
            if row.here is not None:
                draft.act(Withdraw(key, "left the catalog"))
        self._answer(TellClients(key, Outcome.UNKNOWN), draft)
        if job is not None and job.case is not None:
            job.gone = True
            return
        if row is not None and row.here is not None:
            draft.act(Discard(key))
        if job is not None:
            self._drop(job)

    def _lost(self, event: Lost, now: float, draft: Draft) -> None:
        job = self._queue.get(event.key)
        row = event.row if job is None or job.gone else job.row
        if row is None or row.here is None:
            return
        draft.act(Withdraw(row.key, "its mirror is damaged" if event.damaged else "its mirror is gone"))
        self._consider(lost(row, damaged=event.damaged), now, draft)

    def _consider(
        self, row: Row, now: float, draft: Draft, holders: tuple[HolderReport, ...] | None = None
    ) -> None:
        """The repo's row has news: what is to be fetched, and where it stands in the queue."""
        job = self._queue.get(row.key)
        row = placed(row, now, row.key in self._clients, self.settings)
        draft.put(row)
        if job is None:
            if row.scan_at is None:
                return
            job = self._queue.admit(row)
            if job is None:
                self._scans[row.first].left_some()
                return
        else:
            self._queue.update(job, row)
        if holders is not None:
            job.holders, job.holders_at = holders, now
        job.try_now, job.rest_until = row.retry_at <= now, 0.0
        self._move_on(job, now, draft)

    def _move_on(self, job: Job, now: float, draft: Draft) -> None:
        """To where it belongs now; out of memory where nothing is to be done."""
        if job.case is not None:
            return
        if job.row.scan_at is None:
            self._drop(job)
        else:
            self._starter.route(job, now, draft)

    def _drop(self, job: Job) -> None:
        self._starter.forget(job.key)
        self._queue.drop(job)

    # Clients

    def _wanted(self, event: Wanted, now: float, draft: Draft) -> None:
        key, job = event.key, self._queue.get(event.key)
        row = event.row if job is None else None if job.gone else job.row
        under_way = job is not None and job.case is not None
        fits = row is None or under_way or self._room.takes(row, now, waits=True)
        answer = self._clients.at_once(key, row, "" if fits else self._room.why_not)
        if answer is None and not self._clients.add(key, now):
            answer = self._clients.later(key, "too many wait")
        if answer is not None:
            self._reply(answer, draft)
        elif row is not None:
            self._hurry(row, now, draft)

    def _hurry(self, row: Row, now: float, draft: Draft) -> None:
        wanted = placed(row, now, row.key in self._clients, self.settings)
        if wanted is not row:
            draft.put(wanted)
        job = self._queue.admit(wanted, force=True)
        if job is None:
            return
        self._queue.update(job, wanted)
        if job.waited_since is None:
            job.waited_since = now
            job.try_now, job.rest_until = True, 0.0
            self._move_on(job, now, draft)

    def _reply(self, answer: TellClients, draft: Draft) -> None:
        """To who asked just now, and to all who waited for the same."""
        self._clients.answered(answer.key)
        job = self._queue.get(answer.key)
        if job is not None:
            job.waited_since = None
        draft.act(answer)

    def _answer(self, answer: TellClients, draft: Draft) -> None:
        """To all who wait, if anybody does."""
        if answer.key in self._clients:
            self._reply(answer, draft)

    def _slept(self, job: Job, until: float, now: float, draft: Draft) -> None:
        """A pause that is longer than clients will wait is told to them at once."""
        patience = self._clients.until(job.key)
        if patience is not None and until > patience:
            self._reply(self._clients.later(job.key, "nobody can give it now", until - now), draft)
        self._unseat(job, sleeps_s=until - now)

    def _unseat(self, job: Job, sleeps_s: float = 0.0) -> None:
        """Back to the store: seats for a client only; where seats are rare, who sleeps long or in a crowd."""
        waits = job.key in self._clients or job.case is not None
        scan, seats = self._scans[job.row.first], self._queue.seats(job.row.first)
        rests = sleeps_s > self.settings.rescan_s or (scan.has_more and self._queue.is_crowded(job))
        if not waits and (seats < 0 or (rests and scan.needs_seats(seats))):
            self._drop(job)
            scan.left_some()

    # Holders

    def _holders_told(self, event: HoldersTold, now: float, draft: Draft) -> None:
        for item in event.items:
            job = self._queue.get(item.key)
            if job is None or job.gone:
                continue
            job.holders = item.holders
            if job.case is not None:
                job.holders_at = now
                continue
            row = heard(job.row, item.holders)
            if row is not job.row:
                self._queue.update(job, row)
                draft.put(row)
            self._starter.told(job, now, draft)

    # Attempts

    def _ended(self, attempt: Attempt, now: float, draft: Draft) -> None:
        job = self._queue.get(attempt.key)
        if job is None or job.case is None or job.case.order.number != attempt.number:
            return
        case = self._queue.ended(job)
        if case is None:
            return
        if job.gone:
            self._drop(job)
            draft.act(Discard(attempt.key))
        else:
            self._judged(job, case, attempt, judge(attempt, case, job.row, now, self.settings), now, draft)
        if case.holder is not None:
            self._starter.freed(case.holder.node, now, draft)

    def _judged(
        self, job: Job, case: Case, attempt: Attempt, verdict: Verdict, now: float, draft: Draft
    ) -> None:
        before = job.row
        row = judged_place(verdict, attempt.end, now, job.key in self._clients, self.settings)
        self._queue.update(job, row)
        self._consequences(job, case, verdict, now, draft)
        row = job.row  # an accusation may have changed it
        draft.put(row)
        if row.here is not None and row.here != before.here and row.served:
            draft.act(Serve(row.key, row.here))
        if row.served:
            self._answer(TellClients(row.key, Outcome.HERE), draft)
        elif verdict.no_room:
            self._answer(self._clients.no_room(row.key, self._room.why_not), draft)
        if attempt.end is End.DONE:
            job.barred = {}
        self._move_on(job, now, draft)

    def _consequences(self, job: Job, case: Case, verdict: Verdict, now: float, draft: Draft) -> None:
        if case.holder is not None and verdict.bar_s:
            job.barred[case.holder.node] = now + verdict.bar_s
        if verdict.ask_anew:
            job.holders_at = None
        self._starter.upstream_away(job, verdict, now)
        job.try_now = verdict.next_holder or bool(verdict.upstream_away_s and case.holder is not None)
        if verdict.no_room:
            self._room.write_failed(now, draft)
            self._no_room.add(job.key)
        if verdict.tell_doubt:
            draft.act(DoubtReports(job.key))
        if verdict.split:
            self._accuser.split(job.key, draft)
        for accusation in verdict.accusations:
            for other in self._accuser.accuse(job.key, accusation, now, draft):
                self._move_on(other, now, draft)
            for scan in self._scans.values():
                scan.left_some(soon=True)

    # What is in the store alone

    def _loaded(self, event: PendingLoaded, now: float, draft: Draft) -> None:
        scan = self._scans[event.first]
        scan.loaded(event, now)
        for row in event.rows:
            if self._queue.get(row.key) is not None:
                continue
            resting = row.doubt is None and row.retry_at > now + self.settings.rescan_s
            job = None if resting or row.scan_at is None else self._queue.admit(row)
            if job is None:
                scan.left_some()
            else:
                self._starter.route(job, now, draft)

    def _audit(self, event: AuditPicked, now: float, draft: Draft) -> None:
        self._audits.picked(now)
        row = event.row
        if row is None or self._queue.get(row.key) is not None or row.scan_at is not None:
            return
        if row.first and not self._may_sample(row.key):
            return
        job = self._queue.admit(to_audit(row, now))
        if job is not None:
            self._starter.route(job, now, draft)

    def _may_sample(self, key: RepoKey) -> bool:
        """Few at a time; one that nobody can give now makes way for the next."""
        under_way = ((k, self._queue.get(k)) for k in self._samples)
        self._samples = [k for k, job in under_way if job is not None and job.row.first]
        if len(self._samples) >= SAMPLES_MAX:
            oldest = self._queue.get(self._samples[0])
            if oldest is None or self._is_busy(oldest.key):
                return False
            self._drop(oldest)
            del self._samples[0]
        self._samples.append(key)
        return True

    # The disk

    def _disk(self, event: DiskTold, now: float, draft: Draft) -> None:
        before = self._room.accepting
        self._room.looked(event, now, draft)
        if self._room.accepting and not before:
            self._room_again(now, draft)
        for row in self._room.to_evict(event, self._is_busy):
            job = self._queue.get(row.key)
            self._room.evict(row if job is None else job.row, draft)
            if job is not None:
                self._drop(job)

    def _room_again(self, now: float, draft: Draft) -> None:
        """Who failed for lack of room need not wait for its next try."""
        lacked, self._no_room = self._no_room, set()
        for job in [job for key in lacked if (job := self._queue.get(key)) is not None]:
            job.try_now, job.rest_until = True, 0.0
            self._move_on(job, now, draft)

    def _is_busy(self, key: RepoKey) -> bool:
        job = self._queue.get(key)
        return key in self._clients or (job is not None and job.case is not None)

    def _is_blocked(self, job: Job, now: float, draft: Draft) -> bool:
        if self._room.is_leaving(job.key):
            return True
        if not job.row.first or self._room.takes(job.row, now, waits=job.key in self._clients):
            return False
        self._answer(self._clients.no_room(job.key, self._room.why_not), draft)
        return True

    # Time

    def _ticked(self, event: Ticked, now: float, draft: Draft) -> None:
        for key in self._clients.overdue(now):
            self._reply(self._clients.later(key, "it is on its way"), draft)
            job = self._queue.get(key)
            if job is not None and job.spot in (Spot.READY, Spot.UNASKED):
                self._starter.route(job, now, draft)
            if job is not None:
                self._unseat(job)
        for node in self._queue.parked_nodes():
            self._starter.freed(node, now, draft)
        for first, scan in self._scans.items():
            wish = scan.wish(self._queue.seats(first), now)
            if wish is not None:
                draft.act(wish)
        if self._audits.due(now):
            draft.act(PickAudit(event.chance, self._audits.sample))
