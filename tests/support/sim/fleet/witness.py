"""The simulated aggregator.

The aggregator fetches what workers report, holds it, and tells the coordinator: the witness. It fetches a
share of the repos only (as in pull-through mode). What it gets is what the worker really has: a worker that
reported something else is sooner or later found out and put under quarantine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from evermirror.core.fleet.events import HeldCopy, QuarantineAsked, WitnessHeld, WitnessLost
from evermirror.model.repo import RepoKey
from evermirror.sim.fleet.messages import CHUNK
from evermirror.sim.fleet.worker import digest

if TYPE_CHECKING:
    from tests.support.sim.fleet.world import World

FETCH_S = 10.0  # mean time from a report to the fetched copy
FOUND_OUT = 0.2  # chance that one look at a liar's report finds it out


class Witness:
    def __init__(self, world: World, share: float) -> None:
        self.world = world
        self.disk: dict[RepoKey, int] = {}  # complete copies and their versions
        self.up = True
        self._limit = int(share * 2.0**64)

    def heard(self, index: int, copies: tuple[HeldCopy, ...]) -> None:
        """A worker reported these."""
        if not self._limit or not self.up:
            return
        keys = [copy.key for copy in copies if xxh3_64_intdigest(copy.key.encode(), 2) < self._limit]
        if keys:
            self.world.time.after(self.world.rng.expovariate(1 / FETCH_S), self._fetch, index, keys)

    def _fetch(self, index: int, keys: list[RepoKey]) -> None:
        worker = self.world.workers[index]
        if not self.up or not worker.up or not self.world.network.reachable(index):
            return
        if worker.lies is not None and worker.id is not None and self.world.rng.random() < FOUND_OUT:
            self.world.tell(f"{worker.name} was found out")
            self.world.ask(QuarantineAsked(worker.id, "what it serves differs from its report"))
            return
        got = []
        for key in keys:
            version = worker.disk.get(key)
            if version is not None and self.disk.get(key, 0) < version:
                self.disk[key] = version
                got.append(self._copy(key))
        if got:
            self.world.ask(WitnessHeld(tuple(got)))

    def introduce(self) -> None:
        """It, or the coordinator, is back: all that it holds."""
        held = list(self.disk) if self.up else []
        for start in range(0, len(held), CHUNK):
            self.world.ask(WitnessHeld(tuple(self._copy(key) for key in held[start : start + CHUNK])))

    def crash(self) -> None:
        if self.up:
            self.up = False
            self.world.ask(WitnessLost())

    def start(self) -> None:
        if not self.up:
            self.up = True
            self.introduce()

    def evict(self, keys: list[RepoKey]) -> None:
        """Its disk guard, or the end of the trash."""
        gone = tuple(key for key in keys if self.disk.pop(key, None) is not None)
        if gone and self.up:
            self.world.ask(WitnessLost(gone))

    def _copy(self, key: RepoKey) -> HeldCopy:
        return HeldCopy(key, digest(key, self.disk[key]), self.world.utc_s)
