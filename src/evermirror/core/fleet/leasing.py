"""Slots of the pull strategy as decisions: what is given, renewed and ended is written; leases.py counts."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.fleet.decisions import GrantLease, PutLease
from evermirror.core.fleet.draft import Draft
from evermirror.core.fleet.events import LeaseAsked, LeaseLimitSet, LeaseReturned, Moment
from evermirror.core.fleet.leases import Leases
from evermirror.model.worker import WorkerId


class Leasing:
    """One method for each thing that happens to a lease."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def restore(self, leases: Iterable[PutLease]) -> None:
        for lease in leases:
            if lease.until_s is not None:
                self._leases.restore(lease.worker, lease.task, lease.until_s)

    def asked(self, event: LeaseAsked, now: Moment, draft: Draft) -> None:
        until_s = self._leases.ask(event.worker, event.task, now.utc_s)
        if until_s is not None:
            _give(event.worker, event.task, until_s, draft)

    def returned(self, event: LeaseReturned, now: Moment, draft: Draft) -> None:
        if self._leases.give_back(event.worker, event.task):
            draft.write(PutLease(event.task, event.worker, None))
        self.tick(now.utc_s, draft)

    def limit_set(self, event: LeaseLimitSet, now: Moment, draft: Draft) -> None:
        self._leases.set_limit(event.limit)
        self.tick(now.utc_s, draft)

    def end(self, worker: WorkerId, now_s: float, draft: Draft) -> None:
        """It is gone: its slots are free for others."""
        for task in self._leases.drop_worker(worker):
            draft.write(PutLease(task, worker, None))
        self.tick(now_s, draft)

    def tick(self, now_s: float, draft: Draft) -> None:
        """What ended by itself is free, and given to those who wait."""
        for worker, task in self._leases.expire(now_s):
            draft.write(PutLease(task, worker, None))
        for worker, task, until_s in self._leases.grantable(now_s):
            _give(worker, task, until_s, draft)


def _give(worker: WorkerId, task: int, until_s: float, draft: Draft) -> None:
    draft.write(PutLease(task, worker, until_s))
    draft.act(GrantLease(worker, task, until_s))
