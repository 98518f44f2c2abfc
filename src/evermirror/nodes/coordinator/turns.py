"""Workers that tell all they hold take turns.

What follows is a command for every repo that they hold, kept until it is obeyed. After a restart of the
coordinator everybody comes at once: the commands of a thousand workers would be a million repos in memory.
So only some are welcomed at a time; the others wait for it, and count as alive meanwhile, as their
connections are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TURNS = 8  # at a time; enough to keep a core busy, also with workers far away
TURN_S = 10.0  # the longest: one that does not get on must not hold up the others


class Turns:
    """``begin`` and ``end`` by the number of a session."""

    def __init__(self, most: int = TURNS, longest_s: float = TURN_S) -> None:
        self._most = most
        self._longest_s = longest_s
        self._inside: dict[int, asyncio.TimerHandle] = {}
        self._waiting: dict[int, asyncio.Future[None]] = {}  # in order of arrival

    async def begin(self, session: int, meanwhile: Callable[[], None], every_s: float) -> None:
        """Returns when it is its turn; ``meanwhile`` is called now and then until it is."""
        if len(self._inside) < self._most:
            self._enter(session)
            return
        turn = self._waiting[session] = asyncio.get_running_loop().create_future()
        try:
            while not (await asyncio.wait((turn,), timeout=every_s))[0]:
                meanwhile()
        except asyncio.CancelledError:
            self.end(session)
            raise

    def end(self, session: int) -> None:
        """It is done, or gone; nothing happens where it neither had its turn nor waited."""
        self._waiting.pop(session, None)
        timer = self._inside.pop(session, None)
        if timer is not None:
            timer.cancel()
        while self._waiting and len(self._inside) < self._most:
            following = next(iter(self._waiting))
            self._waiting.pop(following).set_result(None)
            self._enter(following)

    def _enter(self, session: int) -> None:
        later = asyncio.get_running_loop().call_later
        self._inside[session] = later(self._longest_s, self.end, session)
