"""Who looks on: the teller of the story and the checkers of the promises, as the world calls them.

Both only look: they change nothing of the world and draw nothing from its chance, so that a run with them and
one without are the same run.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from evermirror.core.fleet.decisions import Decision
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId


class Teller(Protocol):
    """Writes down what happens, in lines for people."""

    def tell(self, now: float, text: str) -> None: ...


class Checks(Protocol):
    """The promises. ``now`` is virtual seconds since the start; a broken promise is raised."""

    def on_decision(self, decision: Decision, now: float) -> None:
        """Its writes are committed; none of its actions has started."""

    def on_delete(self, worker: WorkerId, key: RepoKey, now: float) -> None:
        """The worker is about to delete a complete copy on a command; it is still on its disk."""

    def on_disk_lost(self, worker: WorkerId | None, keys: Collection[RepoKey], now: float) -> None:
        """A fault took complete copies off a worker's disk, or, with None, off the aggregator's."""

    def on_report_acked(self, worker: WorkerId, generation: int, seq: int, now: float) -> None:
        """The coordinator is about to tell the worker that it may forget reports up to ``seq``."""

    def on_restart(self, now: float) -> None:
        """A new coordinator process was built from the store; it has handled nothing yet."""

    def on_step(self, now: float) -> None:
        """One event was handled to its end."""

    def on_broken(self, promise: str, detail: str, now: float) -> None:
        """The world itself saw something that must never be: raise."""

    def sweep(self, now: float) -> None:
        """Every so often: look at everything."""

    def at_end(self) -> None:
        """Faults healed long ago: everything must be as it should."""


class Silence:
    """Tells nothing."""

    def tell(self, now: float, text: str) -> None:
        return


class NoChecks:
    """Looks on and says nothing, except where the world itself breaks."""

    def on_decision(self, decision: Decision, now: float) -> None:
        return

    def on_delete(self, worker: WorkerId, key: RepoKey, now: float) -> None:
        return

    def on_disk_lost(self, worker: WorkerId | None, keys: Collection[RepoKey], now: float) -> None:
        return

    def on_report_acked(self, worker: WorkerId, generation: int, seq: int, now: float) -> None:
        return

    def on_restart(self, now: float) -> None:
        return

    def on_step(self, now: float) -> None:
        return

    def on_broken(self, promise: str, detail: str, now: float) -> None:
        raise AssertionError(f"t={now:.3f} {promise}: {detail}")

    def sweep(self, now: float) -> None:
        return

    def at_end(self) -> None:
        return
