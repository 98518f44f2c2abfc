"""A node's connection to its coordinator, dialled again whenever it ends: with growing, jittered pauses.

                   ┌──────────── backoff ◀─────────────┐
connecting ──dial, Hello──▶ welcomed ──▶ conversing ───┤ the connection ends
                   └─ refused: slowly again            │
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

import structlog

from evermirror.edge.rpc.transport import PeerGone
from evermirror.model.failure import FailureError, FailureKind

log = structlog.get_logger(__name__)

BACKOFF_FIRST_S = 1.0
BACKOFF_LAST_S = 60.0  # or less, where the coordinator says so: it may give up on us sooner
REFUSED_S = 60.0  # at least, where only a person can help
LASTED_S = 30.0  # a session that lasted so long was a good one: the next failure is the first

_HOPELESS = (FailureKind.AUTH_FAILED, FailureKind.PERMISSION_DENIED)


class Phase(Enum):
    """How it stands with the coordinator."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    REFUSED = "refused"  # it answers, and does not let us in


@dataclass(frozen=True, slots=True)
class LinkState:
    """For people; ``since`` is UTC seconds, ``reason`` what stands in the way."""

    phase: Phase
    since: float
    reason: str = ""


class TurnedAway(Exception):
    """The coordinator rejected us; ``final`` where trying again is of no use without a person."""

    def __init__(self, reason: str, *, final: bool) -> None:
        super().__init__(reason)
        self.final = final


class Redial:
    """``keep`` one connection after the other; ``node`` is what the coordinator refuses: this worker, …"""

    def __init__(
        self,
        node: str,
        *,
        clock: Callable[[], float],
        chance: random.Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        mono: Callable[[], float] = time.monotonic,
        last_s: float | None = None,
    ) -> None:
        self._node = node
        self._clock = clock
        self._chance = chance
        self._sleep = sleep  # between two tries
        self._mono = mono
        self._connected_at: float | None = None  # monotonic
        self._last_s = _bounded(last_s)
        self.state = LinkState(Phase.CONNECTING, clock())

    @property
    def connected(self) -> bool:
        return self.state.phase is Phase.CONNECTED

    def welcomed(self, last_s: float | None = None) -> None:
        """The coordinator let us in, and may have said how long a pause is to be at most."""
        self._last_s = _bounded(last_s)
        self._connected_at = self._mono()
        self.state = LinkState(Phase.CONNECTED, self._clock())

    async def keep(self, connect: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled. ``connect`` is one connection, from dialling to its end; it always raises. A bug
        in it is raised on."""
        tries = 0
        while True:
            self._connected_at = None
            pause_s = 0.0
            try:
                await _apart(connect)
            except TurnedAway as refusal:
                if refusal.final:
                    pause_s = REFUSED_S
                self._lost(Phase.REFUSED, str(refusal))
            except FailureError as error:
                if error.failure.kind in _HOPELESS:
                    pause_s = REFUSED_S
                    self._lost(Phase.REFUSED, error.failure.message)
                else:
                    self._lost(Phase.CONNECTING, error.failure.message)
            except (PeerGone, TimeoutError) as error:
                self._lost(Phase.CONNECTING, str(error) or "no answer")
            except Exception as error:  # a bug: nobody is to take us for connected meanwhile
                self._lost(Phase.CONNECTING, f"internal error: {type(error).__name__}")
                raise
            lasted = self._connected_at is not None and self._mono() - self._connected_at >= LASTED_S
            tries = 0 if lasted else min(tries + 1, 10)
            most_s = min(BACKOFF_FIRST_S * 2.0 ** max(tries - 1, 0), self._last_s)
            await self._sleep(pause_s + self._chance.uniform(0.0, max(most_s, pause_s)))

    def _lost(self, phase: Phase, reason: str) -> None:
        before, self.state = self.state, LinkState(phase, self._clock(), reason)
        if phase is before.phase and reason == before.reason:
            self.state = before  # it is the same trouble as before, and was told then
        elif phase is Phase.REFUSED:
            log.error(f"the coordinator refuses this {self._node}", reason=reason, alert=True)
        else:
            log.warning("no connection to the coordinator; work goes on", reason=reason)


async def _apart(connect: Callable[[], Awaitable[None]]) -> None:
    """In a task of its own: a task group that ends by an error swallows a cancellation that comes at the same
    moment, and whoever stops us would wait for ever."""
    task = asyncio.ensure_future(connect())
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    task.result()


def _bounded(last_s: float | None) -> float:
    return min(max(last_s, BACKOFF_FIRST_S), BACKOFF_LAST_S) if last_s else BACKOFF_LAST_S


def cause_of(group: BaseExceptionGroup[BaseException], *kinds: type[Exception]) -> BaseException:
    """Why tasks ended together: the first of the first kind that is among the reasons; where there is also
    one of no such kind, a bug, the whole group. (What is raised in an ``except*`` would be a group again.)"""
    _, others = group.split(kinds)
    for kind in kinds if others is None else ():
        if (found := group.subgroup(kind)) is not None:
            return _leaf(found)
    return group


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _leaf(error) if isinstance(error, BaseExceptionGroup) else error
