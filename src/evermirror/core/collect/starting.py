"""From the queue to attempts: who is asked about, who is fetched, who is looked at, within the bounds.

    route      what does this repo need now: a fetch, a look, or a pause?
    pump       asks, fetches and looks as long as there are free slots

A repo is fetched with holders that were told within ``holders_fresh_s``. Where the coordinator does not
answer, those last told will do: what they give is checked in any case.
"""

from __future__ import annotations

from collections.abc import Callable

from evermirror.core.collect.choose import Choice, Nobody, Scene, choose
from evermirror.core.collect.decisions import Fetch, Look
from evermirror.core.collect.draft import Draft
from evermirror.core.collect.limited import LimitedHosts
from evermirror.core.collect.queue import Job, Queue, Spot
from evermirror.core.collect.settings import CollectSettings
from evermirror.core.collect.suspect import Case
from evermirror.core.collect.verdict import Verdict, backoff_s
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

BUSY_S = 30.0  # holders that are busy free their slots sooner than this, or are asked about anew
BLOCKED_S = 15.0  # until a repo that may not be fetched now is considered again
ASKS_PER_SLOT = 4  # repos asked about ahead of each slot, so that slots do not wait for answers

Blocked = Callable[[Job, float, Draft], bool]
Slept = Callable[[Job, float, float, Draft], None]


class Starter:
    """``blocked`` says whether a repo may not be fetched now (no room, being deleted); ``slept`` hears of
    pauses, for clients who wait."""

    def __init__(self, queue: Queue, settings: CollectSettings, blocked: Blocked, slept: Slept) -> None:
        self._queue = queue
        self._settings = settings
        self._blocked = blocked
        self._slept = slept
        self._number = 0
        self._answered: set[RepoKey] = set()  # told on asking, not yet at their turn
        self._asks_max = ASKS_PER_SLOT * (settings.fetches + settings.looks)
        self._limited = LimitedHosts(settings.retry_last_s)
        self.reachable: frozenset[NodeId] = frozenset()
        self.accused: dict[NodeId, float] = {}  # until then nothing is fetched from them

    # What a repo needs now

    def route(self, job: Job, now: float, draft: Draft, parked: tuple[NodeId, ...] = ()) -> None:
        """Moves the job on to where it belongs; not one that is under way."""
        row = job.row
        job.look = False
        self._answered.discard(job.key)
        due: list[float] = []
        if row.place is not None:
            fetch_at = max(0.0 if job.try_now else row.retry_at, job.rest_until)
            if fetch_at <= now:
                return self._queue.ready(job)
            due.append(fetch_at)
        if row.doubt is not None:
            look_at = max(row.doubt.again_at, self._away_until(job, now))
            if look_at <= now:
                job.look = True
                return self._queue.ready(job)
            due.append(look_at)
        until = min(due, default=now + BLOCKED_S)
        self._queue.sleep(job, until, parked)
        return self._slept(job, until, now, draft)

    def told(self, job: Job, now: float, draft: Draft) -> None:
        """Its holders are known."""
        job.holders_at = now
        asked = job.spot in (Spot.ASKING, Spot.UNASKED)
        if asked:
            self.route(job, now, draft)
        if asked and job.spot is Spot.READY:
            self._answered.add(job.key)

    def upstream_away(self, job: Job, verdict: Verdict, now: float) -> None:
        """As far as an attempt has shown it."""
        if verdict.upstream_away_s:
            job.upstream_away_until = now + verdict.upstream_away_s
        if verdict.limited_s:
            self._limited.add(job.row.spec.host, verdict.limited_s, now)

    def _away_until(self, job: Job, now: float) -> float:
        return max(job.upstream_away_until, self._limited.until(job.row.spec.host, now))

    def forget(self, key: RepoKey) -> None:
        self._answered.discard(key)

    def reach(self, nodes: frozenset[NodeId], now: float, draft: Draft) -> None:
        """These can be read from now; those who wait for one that is back are tried."""
        new, self.reachable = nodes - self.reachable, nodes
        for node in sorted(new):
            self.freed(node, now, draft)

    def freed(self, node: NodeId, now: float, draft: Draft) -> None:
        """This node may have a free slot: those who wait for it are tried."""
        free = self._settings.per_holder - self._queue.load.get(node, 0)
        if free > 0 and node in self.reachable:
            for job in self._queue.wake_parked(node, free):
                job.try_now, job.rest_until = True, 0.0
                self.route(job, now, draft)

    # As much as there are slots for

    def pump(self, now: float, draft: Draft) -> None:
        queue, settings = self._queue, self._settings
        for job in queue.due(now):
            self._woken(job, now, draft)
        while queue.fetches < settings.fetches and (job_ := queue.next_ready()) is not None:
            self._fetch(job_, now, draft)
        while queue.looks < settings.looks and (job_ := queue.next_look()) is not None:
            self._look(job_, now, draft)
        while queue.count(Spot.ASKING) + len(self._answered) < self._asks_max:
            unasked = queue.next_unasked()
            if unasked is None:
                break
            unasked.asked_at = now
            queue.asking(unasked, now + settings.ask_again_s)
            draft.ask(unasked.key)

    def _woken(self, job: Job, now: float, draft: Draft) -> None:
        if job.spot is not Spot.ASKING:
            self.route(job, now, draft)
        elif job.holders:
            job.holders_at = now
            self.route(job, now, draft)
        else:
            self._queue.unasked(job)

    def _is_fresh(self, job: Job, now: float) -> bool:
        told_at = job.holders_at
        return told_at is not None and 0.0 <= now - told_at <= self._settings.holders_fresh_s

    def _fetch(self, job: Job, now: float, draft: Draft) -> None:
        self._answered.discard(job.key)
        if self._blocked(job, now, draft):
            job.rest_until = now + BLOCKED_S
            return self.route(job, now, draft)
        if not self._is_fresh(job, now):
            return self._queue.unasked(job)
        job.barred = {node: until for node, until in job.barred.items() if until > now}
        scene = Scene(
            self.reachable,
            self._queue.load,
            job.barred.keys() | {node for node, until in self.accused.items() if until > now},
            self._away_until(job, now) > now,
        )
        match choose(job.row, job.holders, scene, self._settings):
            case Choice() as choice:
                return self._start(job, choice, draft)
            case Nobody(busy, away):
                return self._rest(job, busy, away, now, draft)

    def _start(self, job: Job, choice: Choice, draft: Draft) -> None:
        self._number += 1
        row = job.row
        order = Fetch(
            number=self._number,
            key=row.key,
            spec=row.spec,
            holder=choice.holder,
            belief=choice.belief,
            expected=choice.expected,
            first=row.first,
            kept=choice.holder.trusted,
            accept=choice.accept,
            guard=row.guard,
        )
        job.try_now, job.misses, job.rest_until = False, 0, 0.0
        self._queue.start(job, Case(order, row, job.holders))
        self._queue.turn_taken()
        draft.act(order)

    def _rest(
        self, job: Job, busy: tuple[NodeId, ...], away: tuple[NodeId, ...], now: float, draft: Draft
    ) -> None:
        """Nobody can give it now: until one is free, or for a while."""
        job.try_now = False
        if busy:
            job.rest_until = now + BUSY_S
        else:
            job.misses += 1
            limited_until = 0.0 if away else self._limited.until(job.row.spec.host, now)
            job.rest_until = max(now + backoff_s(job.misses, self._settings), limited_until)
            job.holders_at = None
        self.route(job, now, draft, (*busy, *away))

    def _look(self, job: Job, now: float, draft: Draft) -> None:
        self._answered.discard(job.key)
        if self._away_until(job, now) > now:  # since it stood here
            return self.route(job, now, draft)
        if not self._is_fresh(job, now):
            return self._queue.unasked(job)
        self._number += 1
        order = Look(self._number, job.key, job.row.spec)
        self._queue.start(job, Case(order, job.row, job.holders))
        return draft.act(order)
