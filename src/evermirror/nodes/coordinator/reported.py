"""Which refs a worker last reported of a repo: the fleet's tables keep only the beginning of each digest."""

from __future__ import annotations

from collections import OrderedDict

from evermirror.model.messages import Declined, Kept, Report, Synced
from evermirror.model.refs import RefsDigest, short_digest
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId

REMEMBERED = 100_000  # reports, the latest ones: some 30 MB


class Reported:
    """``noted`` by whoever hears reports."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._digests: OrderedDict[tuple[WorkerId, RepoKey], RefsDigest] = OrderedDict()

    def noted(self, worker: WorkerId, report: Report) -> None:
        match report:
            case Synced(key=key, digest=digest):
                self._note(worker, key, digest)
            case Kept(items=items) | Declined(items=items):
                for item in items:
                    if item.digest is not None:
                        self._note(worker, item.key, item.digest)

    def _note(self, worker: WorkerId, key: RepoKey, digest: RefsDigest) -> None:
        self._digests[worker, key] = digest
        self._digests.move_to_end((worker, key))
        if len(self._digests) > self._remembered:
            self._digests.popitem(last=False)

    def digest(
        self, worker: WorkerId, key: RepoKey, short: int, of_repo: RefsDigest | None
    ) -> RefsDigest | None:
        """The digest that begins with ``short``: by the worker's own word, else what was last reported of the
        repo by anybody; None where neither begins so."""
        for digest in (self._digests.get((worker, key)), of_repo):
            if digest is not None and short and short_digest(digest) == short:
                return digest
        return None
