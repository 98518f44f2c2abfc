"""What the coordinator wrote: all that is left of it after a crash."""

from __future__ import annotations

from collections.abc import Iterable

from evermirror.core.fleet.decisions import (
    CopyRow,
    DropCopies,
    PutCopies,
    PutSalt,
    PutWorker,
    ReportTaken,
    Write,
)
from evermirror.core.fleet.events import CatalogChanged, CatalogRepo
from evermirror.core.fleet.views import Restored
from evermirror.model.repo import RepoKey
from evermirror.model.worker import Duty, WorkerId, WorkerRecord


class SimStore:
    """Transactions are whole: ``commit`` applies a decision's writes together with the event's own rows."""

    def __init__(self) -> None:
        self.workers: dict[WorkerId, WorkerRecord] = {}
        self.copies: dict[tuple[RepoKey, WorkerId], CopyRow] = {}
        self.salts: dict[RepoKey, int] = {}
        self.reports: dict[tuple[WorkerId, int], int] = {}
        self.repos: dict[RepoKey, CatalogRepo] = {}
        self.removed: dict[RepoKey, CatalogRepo] = {}  # in the trash
        self.catalog_at = 0  # commits of the catalog taken in

    def commit(self, writes: Iterable[Write], catalog: CatalogChanged | None = None) -> None:
        for write in writes:
            self._apply(write)
        if catalog is not None:
            self._take_in(catalog)

    def id_of(self, name: str) -> WorkerId | None:
        """The id bound to a worker's token."""
        for record in self.workers.values():
            if record.facts.name == name and record.duty is not Duty.RETIRED:
                return record.id
        return None

    def restored(self) -> Restored:
        """What a new coordinator process begins with."""
        salt = self.salts.get
        everything = [*self.repos.values(), *self.removed.values()]
        return Restored(
            workers=tuple(self.workers.values()),
            repos=[(repo, salt(repo.key, 0)) for repo in everything],
            removed=list(self.removed),
            copies=list(self.copies.values()),
            reports=[ReportTaken(*which, seq) for which, seq in self.reports.items()],
        )

    def _apply(self, write: Write) -> None:
        match write:
            case PutCopies(rows):
                copies = self.copies
                for row in rows:
                    copies[row.key, row.worker] = row
            case DropCopies(dropped):
                for copy in dropped:
                    self.copies.pop(copy, None)
            case PutSalt(key, salt):
                self.salts[key] = salt
            case PutWorker(record):
                self.workers[record.id] = record
            case ReportTaken(worker, generation, seq):
                self.reports[worker, generation] = seq

    def _take_in(self, change: CatalogChanged) -> None:
        self.catalog_at += 1
        for repo in change.put:
            self.repos[repo.key] = repo
            self.removed.pop(repo.key, None)
        for key in change.removed:
            gone = self.repos.pop(key, None)
            if gone is not None:
                self.removed[key] = gone
        for key in change.forgotten:
            self.removed.pop(key, None)
            self.salts.pop(key, None)
