"""The promises of the fleet, checked while a simulated world runs.

    world ──hooks──▶ Checkers ──▶ shadow (what was written) ──changes──▶ kept, still, within, …
                        │ every so often: owned      at the end: settled
                        ▼
                    Violation: promise, detail, the last lines of the story, how to see it again

    promise    says                                                                        in checks/
    kept       nothing is deleted before another copy that counts exists                   safety
    owned      every repo is wanted on a worker that is there, or waits visibly            placement
    whole      the fleet knows every repo of the catalog, and no other                     placement
    still      what is placed stays; a join moves its share, a loss what was lost          placement
    load       nobody is given more than its bound while another could take it             bounds
    pace       clones asked for are bounded, and start slowly                              bounds
    private    private repos are asked of trusted workers only                             bounds
    grace      down only after a whole grace                                               bounds
    suspicion  suspected only after enough missed rounds                                   bounds
    brake      nobody is declared down while too many are silent                           bounds
    ids        an id is one worker's until it retires                                      bounds
    reports    each counts once, in order, and is stored before it is acknowledged         safety
    sessions   commands go to the newest link, numbered without a hole                     safety
    salt       a repo handed back changes its place, for good                              safety
    restart    a new coordinator knows what was written                                    safety
    rates      all workers together may ask no more of upstream than the fleet's rates     bounds
    settled    long after the last fault all is where it should be                         placement

The world adds its own: ``commands``, ``messages``. Same seed, same run: the digest of the story.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NoReturn

from evermirror.core.fleet.decisions import Decision
from evermirror.model.repo import RepoKey
from evermirror.model.worker import WorkerId
from tests.support.sim.fleet.checks.bounds import Attended, Rated, Within
from tests.support.sim.fleet.checks.placement import Owned, Settled, Still
from tests.support.sim.fleet.checks.safety import Exchanged, Kept
from tests.support.sim.fleet.checks.shadow import Scene, Shadow
from tests.support.sim.fleet.story import Checks, Story, Violation, in_short

if TYPE_CHECKING:
    from tests.support.sim.fleet.world import World

PAUSE_HEARTBEATS = 2.0  # a longer gap between two events is a pause of the coordinator, and not lived


class Checkers(Checks):
    """Given to a world, which calls it; raises Violation at the first broken promise."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._scene = scene = Scene(world, Shadow(), self._broken)
        self._pause_s = PAUSE_HEARTBEATS * world.plan.settings.heartbeat_s
        self._last: float | None = None  # when the coordinator last did something
        self._exchanged = Exchanged(scene)
        self._attended = Attended(scene)
        self._kept = Kept(scene)
        self._still = Still(scene)
        self._within = Within(scene)
        self._owned = Owned(scene)
        self._rated = Rated(scene)
        self._settled = Settled(scene)
        self._each = (
            self._exchanged,
            self._attended,
            self._kept,
            self._still,
            self._within,
            self._owned,
            self._rated,
        )
        self.done = 0  # looks at a decision, a deletion, an acknowledgement or the whole

    @property
    def moves(self) -> int:
        return self._still.moves

    def on_decision(self, decision: Decision, now: float) -> None:
        self._live(now)
        self.done += 1
        change = self._scene.shadow.apply(decision)
        for check in self._each:
            check.changed(change)

    def on_delete(self, worker: WorkerId, key: RepoKey, now: float) -> None:
        self.done += 1
        self._kept.deleting(worker, key)

    def on_disk_lost(self, worker: WorkerId | None, keys: Collection[RepoKey], now: float) -> None:
        self._kept.destroyed(worker, tuple(keys))

    def on_report_acked(self, worker: WorkerId, generation: int, seq: int, now: float) -> None:
        self.done += 1
        self._exchanged.acked(worker, generation, seq)

    def on_restart(self, now: float) -> None:
        self._last = None
        self._exchanged.restarted()
        self._attended.restarted()
        self._owned.restarted()

    def on_step(self, now: float) -> None:
        self._live(now)
        self._rated.step()

    def on_broken(self, promise: str, detail: str, now: float) -> NoReturn:
        story = self._world.story
        lines = story.last() if isinstance(story, Story) else ()
        raise Violation(
            promise,
            detail,
            now,
            lines,
            replay=f"World({in_short(self._world.plan)}, Checkers, Story()).run()",
        )

    def sweep(self, now: float) -> None:
        self.done += 1
        self._attended.sweep()
        self._still.sweep()
        self._owned.sweep()
        self._kept.sweep()

    def at_end(self) -> None:
        self.done += 1
        self._owned.sweep()
        self._settled.at_end()

    def _live(self, now: float) -> None:
        """Time counts while a coordinator runs; a gap is a pause, of which little or nothing was lived."""
        if self._last is not None and now > self._last:
            gap = now - self._last
            self._scene.lived_most_s += min(gap, self._pause_s)
            self._scene.lived_s += gap if gap <= self._pause_s else 0.0
        self._last = now

    def _broken(self, promise: str, detail: str) -> None:
        self.on_broken(promise, detail, self._world.time.now)
