"""Discoveries in memory, in the shapes of the service."""

from __future__ import annotations

from dataclasses import replace

from evermirror.errors import Conflict, NotFound
from evermirror.model.discovery import (
    Bound,
    BoundState,
    Discovery,
    DiscoveryId,
    Preview,
    RunOutcome,
    Step,
    StepKind,
)
from evermirror.model.failure import Failure, FailureKind
from evermirror.model.repo import RepoKey
from evermirror.nodes.discovery_service import BoundPage, DiscoveryView, PreviewView, RunView

OUTCOME = RunOutcome(1.0, 2.0, complete=True, found=2, chosen=2, created=1, refused=1)


class FakeDiscoveries:
    def __init__(self):
        self.known: dict[int, Discovery] = {}
        self.asked = []

    async def preview(self, spec, *, actor):
        self.asked.append(("preview", spec, actor))
        return PreviewView("p1", RunView("listing", 1, 2, None), None, None, None)

    async def preview_of(self, preview_id):
        if preview_id == "failed":
            return PreviewView(
                "failed", None, None, None, Failure(FailureKind.AUTH_FAILED, "401", "Renew it")
            )
        if preview_id != "p1":
            raise NotFound(f"there is no dry run {preview_id!r}")
        step = Step(StepKind.CREATE, "g/a", "g/a", "https://x.example.com/g/a.git", None, True)
        return PreviewView("p1", None, Preview((step,), 0, {StepKind.CREATE: 1}), OUTCOME, None)

    async def create(self, spec, *, actor):
        self.asked.append(("create", spec, actor))
        if any(d.spec.group == spec.group for d in self.known.values()):
            raise Conflict("it is followed already")
        number = DiscoveryId(len(self.known) + 1)
        self.known[number] = Discovery(number, spec, actor, 1.0, last=OUTCOME)
        return DiscoveryView(self.known[number])

    async def discoveries(self):
        return tuple(DiscoveryView(d, None, {BoundState.ACTIVE: 1}) for d in self.known.values())

    async def discovery(self, discovery_id):
        return DiscoveryView(self._find(discovery_id), RunView("making", 1, 2, 2, 1, 2, 0.5))

    async def found(self, discovery_id, *, state=None, page=1, size=50):
        self._find(discovery_id)
        rows = (
            Bound(
                discovery_id,
                "1",
                "g/a",
                BoundState.ACTIVE,
                RepoKey("x/g/a"),
                "g/a",
                "https://t/m/a.git",
                True,
            ),
            Bound(discovery_id, "2", "g/b", BoundState.REFUSED, why="a name that is not taken"),
        )
        shown = tuple(row for row in rows if state in (None, row.state))
        return BoundPage(shown[:size], len(shown), page, size)

    async def run(self, discovery_id, *, accept=False, actor):
        self.asked.append(("run", discovery_id, accept, actor))
        return DiscoveryView(self._find(discovery_id))

    async def change(self, discovery_id, spec, enabled, *, actor):
        self.asked.append(("change", discovery_id, spec, enabled, actor))
        self.known[discovery_id] = replace(self._find(discovery_id), spec=spec, enabled=enabled)
        return DiscoveryView(self.known[discovery_id])

    async def remove(self, discovery_id, *, actor):
        self._find(discovery_id)
        del self.known[discovery_id]

    def _find(self, discovery_id):
        if discovery_id not in self.known:
            raise NotFound(f"there is no discovery {discovery_id}")
        return self.known[discovery_id]
