"""What an accusation entails here: nothing more is fetched from that node, and its word no longer counts."""

from __future__ import annotations

from dataclasses import replace

from evermirror.core.collect.decisions import Accuse, Alert, AlertKind, Withdraw
from evermirror.core.collect.draft import Draft
from evermirror.core.collect.queue import Job, Queue
from evermirror.core.collect.rows import How
from evermirror.core.collect.suspect import Accusation
from evermirror.model.relay import NodeId
from evermirror.model.repo import RepoKey

ACCUSED_S = 3600.0  # so long is nothing fetched from who was accused; the coordinator takes it out by then


class Accuser:
    """``accused``: until when nothing is fetched from whom."""

    def __init__(self, queue: Queue, accused: dict[NodeId, float]) -> None:
        self._queue = queue
        self._accused = accused

    def accuse(self, key: RepoKey, found: Accusation, now: float, draft: Draft) -> list[Job]:
        """Told once; the jobs that have something to do for it now."""
        if self._accused.get(found.node, 0.0) > now:
            return []
        for node in [n for n, until in self._accused.items() if until <= now]:
            del self._accused[node]
        self._accused[found.node] = now + ACCUSED_S
        draft.act(Accuse(found.node, key, found.reason, found.evidence))
        draft.act(Alert(AlertKind.ACCUSED, found.node, f"{found.node} {found.reason} ({key})"))
        return self._distrust(found.node, now, draft)

    def split(self, key: RepoKey, draft: Draft) -> None:
        """Too many agree to accuse them all."""
        text = f"several operators agree on refs of {key} that upstream does not show us"
        draft.act(Alert(AlertKind.SPLIT, key, text))

    def _distrust(self, node: NodeId, now: float, draft: Draft) -> list[Job]:
        """What is here by its word alone is not served until somebody else has vouched for it. Rows that are
        in the store alone are changed there."""
        draft.distrust(node, now)
        moved: list[Job] = []
        for job in self._queue:
            here = job.row.here
            if here is None or here.source != node or here.how not in (How.HOLDER, How.QUORUM):
                continue
            place = now if job.row.place is None else job.row.place
            row = replace(job.row, here=replace(here, how=How.DOUBTED), place=place)
            self._queue.update(job, row)
            draft.put(row)
            draft.act(Withdraw(row.key, f"{node} was accused"))
            moved.append(job)
        return moved
