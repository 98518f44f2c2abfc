"""How the dispatcher sleeps: until a time, or until something happens, with one timer for all its sleeps."""

from __future__ import annotations

import asyncio

SLEEP_MAX_S = 60.0  # a clock that was set back must not keep the dispatcher asleep for long


class Waking:
    """``clear``, look at everything, ``sleep``; ``poke`` by whoever makes something to do."""

    def __init__(self) -> None:
        self._poked = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self.asleep = False  # the dispatcher, until a poke

    def poke(self) -> None:
        self._poked.set()

    def clear(self) -> None:
        self._poked.clear()

    async def sleep(self, pause_s: float | None) -> None:
        """So long at most; None: nothing is known that there will be to do."""
        pause_s = SLEEP_MAX_S if pause_s is None else min(pause_s, SLEEP_MAX_S)
        if pause_s <= 0.0:
            await asyncio.sleep(0)
            return
        self.wake_in(pause_s)
        self.asleep = True
        try:
            await self._poked.wait()
        finally:
            self.asleep = False

    def wake_in(self, pause_s: float) -> None:
        """An earlier alarm stays, and wakes in vain once, which costs less than to set one for each sleep."""
        loop = asyncio.get_running_loop()
        at = loop.time() + pause_s
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self._ring)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        self._poked.set()
