"""What a worker tells now and then: progress, looks that saw no change, digests that are wanted, itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from evermirror.core.schedule.scheduler import Scheduler
from evermirror.edge.git.probe import Prober
from evermirror.model.messages import Kept, Verified, WorkerStatus
from evermirror.nodes.worker.ports import WorkerPort
from evermirror.nodes.worker.room import Room
from evermirror.nodes.worker.rounds import Rounds
from evermirror.nodes.worker.shelf import Shelf
from evermirror.nodes.worker.tally import Tally, status_of

TELL_S = 0.5  # progress of running syncs
STATUS_S = 2.0
LOOKED_CHUNK = 1000
VERIFIED_CHUNK = 2000


class Bulletins:
    """``run`` until cancelled."""

    def __init__(
        self,
        *,
        port: WorkerPort,
        scheduler: Scheduler,
        prober: Prober,
        rounds: Rounds,
        shelf: Shelf,
        tally: Tally,
        room: Room,
        clock: Callable[[], float],
        warnings: Callable[[], tuple[str, ...]],
    ) -> None:
        self._port = port
        self._scheduler = scheduler
        self._prober = prober
        self._rounds = rounds
        self._shelf = shelf
        self._tally = tally
        self._room = room
        self._clock = clock
        self._warnings = warnings  # more that people should know

    async def run(self) -> None:
        next_status = 0.0
        while True:
            await self._rounds.tell_progress()
            await self._tell_looked()
            await self._rounds.tell_deferred()
            if (now := self._clock()) >= next_status:
                next_status = now + STATUS_S
                await self._port.report(self.status())
                await self.tell_verified()
            await asyncio.sleep(TELL_S)

    async def tell_verified(self) -> None:
        """Looks since the last time that saw no change."""
        items = list(self._rounds.verified.items())
        self._rounds.verified.clear()
        for start in range(0, len(items), VERIFIED_CHUNK):
            await self._port.report(Verified(tuple(items[start : start + VERIFIED_CHUNK])))

    async def _tell_looked(self) -> None:
        """Digests as they are at this moment: a later sync has been told by then, or is told after this."""
        keys = list(self._rounds.looked)[:LOOKED_CHUNK]
        self._rounds.looked.difference_update(keys)
        for key in keys:
            if key in self._shelf.here and self._shelf.held_one(key).digest is None:
                await self._shelf.measure(key)
        told = tuple(self._shelf.held_one(key) for key in keys if key in self._shelf.here)
        if told:
            await self._port.report(Kept(told))

    def status(self) -> WorkerStatus:
        """How the worker is doing now."""
        now = self._clock()
        disk = self._room.look(now)
        status = status_of(
            self._tally,
            self._scheduler,
            self._rounds.open.values(),
            here=self._shelf.here,
            repos=len(self._shelf.repos),
            polled_bytes=self._prober.stats.received_bytes,
            disk=disk,
            accepting_clones=self._room.accepting,
            now=now,
        )
        return replace(status, warnings=(*status.warnings, *self._warnings()))
