"""Commands on their way to the engine: taken in once and in order, acknowledged, done one by one.

Rules
- What is to be told of the disk (at the start of a fresh session, and for a comparison) stands in the same
  queue, and is told when its turn comes: then the engine is between two commands, and nothing that it tells
  as held is just being deleted.
- A fresh session empties the queue first: what was commanded before it is not done any more.
- A command is acknowledged when it is in the queue, but not while too many are.
- Limits are in force at once, before anything that waits, and written down before they are acknowledged:
  what a worker gave up goes to others then, and a restart must not bring it back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from evermirror.edge.rpc.transport import Connection, PeerGone
from evermirror.model.messages import ApplySettings, Command
from evermirror.model.wire import Compare, Obeyed
from evermirror.nodes.worker.contact import Contact

COMMANDS_MAX = 1024  # in the queue; from there on none is acknowledged, so that soon no more come
COMMANDS_HARD = 4 * COMMANDS_MAX  # no coordinator has so many unacknowledged
GATHER_S = 0.05  # acknowledgements within it are one


@dataclass(frozen=True, slots=True)
class _TellAll:
    """Stands in the queue: tell what is on the disk."""


class Incoming:
    """``next`` is the engine's; the rest is called while a connection lasts."""

    def __init__(
        self,
        tell_all: Callable[[], None],
        compare: Callable[[Compare], None],
        limit: Callable[[ApplySettings], None],
        keep_limits: Callable[[], Awaitable[None]],
        contact: Contact,
    ) -> None:
        self._tell_all = tell_all
        self._limit = limit
        self._keep_limits = keep_limits
        self._compare = compare
        self._contact = contact
        self._queue: deque[tuple[Command | Compare | _TellAll, int]] = deque()  # and the term it came in
        self._to_do = asyncio.Event()
        self._to_acknowledge = asyncio.Event()
        self._acknowledged = 0
        self.epoch = 0  # the coordinator's process that these are from
        self.seen = 0  # the last one that was taken in

    async def next(self) -> Command:
        while True:
            while not self._queue:
                self._to_do.clear()
                await self._to_do.wait()
            item, term = self._queue.popleft()
            self._to_acknowledge.set()
            match item:
                case _TellAll():
                    self._tell_all()
                case Compare():
                    self._compare(item)
                case _:
                    self._contact.obeys(term)
                    return item

    def begin(self, epoch: int, *, resumed: bool) -> None:
        """A session begins, or goes on in a new connection."""
        if not resumed:
            self._queue.clear()
            self._queue.append((_TellAll(), self._contact.term))
            self._to_do.set()
            self.epoch, self.seen = epoch, 0
        elif epoch != self.epoch:
            raise PeerGone("a session was resumed that never was")
        self._acknowledged = self.seen

    def take_in(self, seq: int, command: Command | Compare) -> None:
        if seq <= self.seen:
            return  # sent again
        if seq != self.seen + 1:
            raise PeerGone(f"command {self.seen + 1} is missing")
        if len(self._queue) >= COMMANDS_HARD:
            raise PeerGone("too many commands that were not acknowledged")
        self.seen = seq
        if isinstance(command, ApplySettings):
            self._limit(command)
        else:
            self._queue.append((command, self._contact.term))
            self._to_do.set()
        self._to_acknowledge.set()

    async def keep_acknowledging(self, connection: Connection) -> None:
        while True:
            self._to_acknowledge.clear()
            if self.seen > self._acknowledged and len(self._queue) < COMMANDS_MAX:
                seq = self.seen
                await self._keep_limits()
                await connection.send(Obeyed(seq))
                self._acknowledged = seq
                await asyncio.sleep(GATHER_S)
            else:
                await self._to_acknowledge.wait()
