"""What the faces may ask about discovery: one protocol, so that they know no wiring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from evermirror.model.discovery import (
    Bound,
    BoundState,
    Discovery,
    DiscoveryId,
    DiscoverySpec,
    Preview,
    RunOutcome,
)
from evermirror.model.failure import Failure


@dataclass(frozen=True, slots=True)
class RunView:
    """A run under way, for a progress bar."""

    phase: str  # "listing", "planning", "making", "done"
    pages: int
    found: int
    total: int | None  # projects to be found, where the forge tells
    done: int = 0  # steps
    steps: int = 0
    waits_s: float = 0.0  # for the forge's rate limit


@dataclass(frozen=True, slots=True)
class DiscoveryView:
    discovery: Discovery
    run: RunView | None = None
    counts: dict[BoundState, int] | None = None
    ends: int = 0  # runs that ended, or were cut short, since the start: who waits for one sees it by this


@dataclass(frozen=True, slots=True)
class PreviewView:
    """A dry run: under way, ended with a plan, or failed."""

    id: str
    run: RunView | None
    preview: Preview | None
    outcome: RunOutcome | None
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class BoundPage:
    items: tuple[Bound, ...]
    total: int
    page: int
    size: int


class DiscoveryService(Protocol):
    """``UsageError``/``InvalidValue``/``InvalidUrl`` name the field."""

    async def preview(self, spec: DiscoverySpec, *, actor: str) -> PreviewView:
        """Starts a dry run, which changes nothing anywhere; kept for an hour. ``Conflict``: too many."""
        ...

    async def preview_of(self, preview_id: str) -> PreviewView: ...

    async def create(self, spec: DiscoverySpec, *, actor: str) -> DiscoveryView:
        """Followed from now on; the first run starts at once. ``Conflict`` where the group is already."""
        ...

    async def discoveries(self) -> tuple[DiscoveryView, ...]: ...

    async def discovery(self, discovery_id: DiscoveryId) -> DiscoveryView: ...

    async def found(
        self, discovery_id: DiscoveryId, *, state: BoundState | None = None, page: int = 1, size: int = 50
    ) -> BoundPage: ...

    async def run(self, discovery_id: DiscoveryId, *, accept: bool = False, actor: str) -> DiscoveryView:
        """At once; ``accept``: removals that were held back are carried out. One under way is answered."""
        ...

    async def change(
        self, discovery_id: DiscoveryId, spec: DiscoverySpec, enabled: bool, *, actor: str
    ) -> DiscoveryView: ...

    async def remove(self, discovery_id: DiscoveryId, *, actor: str) -> None:
        """It is no longer followed; the projects that it made stay."""
        ...
