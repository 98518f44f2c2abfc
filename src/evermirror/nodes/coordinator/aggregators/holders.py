"""Who holds a repo now and could be read from: connected, complete, and believed."""

from __future__ import annotations

from evermirror.core.fleet.copies import CopyState
from evermirror.core.fleet.views import CopyView
from evermirror.model.changes import HolderReport
from evermirror.model.refs import RefsDigest
from evermirror.model.relay import NodeId, worker_node_id
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from evermirror.nodes.coordinator.fleet import Fleet
from evermirror.nodes.coordinator.reported import Reported
from evermirror.nodes.coordinator.session import Connected

HOLDERS_MAX = 16  # of one repo that are named


class Holders:
    """Asked at the last moment, so that it is as things are."""

    def __init__(self, fleet: Fleet, reported: Reported) -> None:
        self._fleet = fleet
        self._reported = reported

    def of(self, key: RepoKey, digest: RefsDigest | None) -> tuple[HolderReport, ...]:
        """Who polls it first. ``digest`` is what was last reported of the repo."""
        repo = self._fleet.machine.repo(key)
        if repo is None or repo.removed:
            return ()
        found = []
        for copy in repo.copies:
            who, record = self._fleet.about(copy.worker), self._fleet.machine.record(copy.worker)
            if who is not None and record is not None and self._readable(key, copy):
                node, primary = worker_node_id(record), copy.worker == repo.primary
                found.append(self._report(key, copy, node, who, digest, primary=primary))
        return tuple(sorted(found, key=lambda holder: not holder.primary)[:HOLDERS_MAX])

    def workers(self, key: RepoKey) -> list[WorkerId]:
        """The same by their numbers, all of them."""
        repo = self._fleet.machine.repo(key)
        copies = () if repo is None or repo.removed else repo.copies
        return [c.worker for c in copies if self._fleet.about(c.worker) and self._readable(key, c)]

    def _readable(self, key: RepoKey, copy: CopyView) -> bool:
        """Complete, and not of one whose word counts for nothing."""
        return copy.state is CopyState.HELD and self._fleet.machine.speaks_for(key, copy.worker)

    def _report(
        self,
        key: RepoKey,
        copy: CopyView,
        node: NodeId,
        who: Connected,
        digest: RefsDigest | None,
        *,
        primary: bool,
    ) -> HolderReport:
        return HolderReport(
            node=node,
            name=who.name,
            trusted=who.trusted,
            operator=who.operator,
            primary=primary,
            digest=self._reported.digest(copy.worker, key, copy.digest, digest),
            verified_at=copy.verified_s or None,
        )
