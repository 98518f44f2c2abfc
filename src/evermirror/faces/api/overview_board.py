"""The overview for all who follow it: made once for each kind of caller, and told when it has changed.

    follower 1 ─ waits ─▶ its turn ─ makes it, at most every GAP_S ─▶ changed: all are told
    follower 2 ─ waits ──────────────────────────────────────────────▶ … the same bytes

One of those who wait makes it for all; when it leaves, the next one does. That time goes by is no change: who
comes long after the last frame was written gets what was made last, written anew. Where nobody follows,
nothing is made, and what was made is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from evermirror import __version__
from evermirror.faces.api.overview_views import ShownOverview, overview_view
from evermirror.model.failure import FailureError

GAP_S = 2.0  # at least, between two frames of one follower

Make = Callable[[], Awaitable[ShownOverview]]


class OverviewBoard:
    """Two sides of it: one for readers, one for the public."""

    def __init__(self, gap_s: float = GAP_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._sides = {reader: _Side(gap_s, clock) for reader in (False, True)}

    def follow(self, make: Make, *, reader: bool) -> AsyncGenerator[bytes, None]:
        """Frames of a stream: one at once, then whenever something changed, until closed. ``make`` is what
        a caller of this kind is shown."""
        return self._sides[reader].follow(make)


class _Side:
    def __init__(self, gap_s: float, clock: Callable[[], float]) -> None:
        self._gap_s = gap_s
        self._clock = clock
        self._turn = asyncio.Lock()
        self._followers = 0
        self._forget()

    def _forget(self) -> None:
        self._number = 0  # of the frame; 0: there is none
        self._frame = b""
        self._known: ShownOverview | None = None
        self._written: ShownOverview | None = None  # in the frame
        self._latest: ShownOverview | None = None  # differs from that by the time alone
        self._latest_at = float("-inf")
        self._tried_at = float("-inf")

    async def follow(self, make: Make) -> AsyncGenerator[bytes, None]:
        self._followers += 1
        try:
            seen, frame = await self._first(make)
            while True:
                yield frame
                await asyncio.sleep(self._gap_s)
                seen, frame = await self._after(seen, make)
        finally:
            self._followers -= 1
            if not self._followers:
                self._forget()

    async def _first(self, make: Make) -> tuple[int, bytes]:
        """As it is now, or was a moment before."""
        since = self._clock() - self._gap_s
        while self._latest is None or self._latest_at < since:
            async with self._turn:
                if self._latest_at < since:
                    await self._renew(make)
        if self._written is not self._latest:
            self._write(self._latest)
        return self._number, self._frame

    async def _after(self, seen: int, make: Make) -> tuple[int, bytes]:
        while self._number == seen:
            async with self._turn:
                if self._number == seen:
                    await self._renew(make)
        return self._number, self._frame

    async def _renew(self, make: Make) -> None:
        await asyncio.sleep(max(0.0, self._tried_at + self._gap_s - self._clock()))
        with contextlib.suppress(FailureError):  # the database is away: it is tried again
            self._take(await make())
        self._tried_at = self._clock()

    def _take(self, shown: ShownOverview) -> None:
        self._latest, self._latest_at = shown, self._clock()
        timeless = shown.timeless
        if timeless != self._known:
            self._known = timeless
            self._number += 1
            self._write(shown)

    def _write(self, shown: ShownOverview) -> None:
        text = overview_view(shown, __version__).model_dump_json()
        self._frame, self._written = f"event: overview\ndata: {text}\n\n".encode(), shown
