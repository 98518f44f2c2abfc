"""A reader's lines to relays of other nodes: opened when there is a question, kept a moment for the next."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

from evermirror.edge.relay.ask import Ask, HolderAway, HolderFailed, ReaderRefused
from evermirror.edge.relay.certificate import dialling_context
from evermirror.edge.relay.dial import DialFailed, DialRefused, dial
from evermirror.edge.relay.exchange import question
from evermirror.edge.relay.frames import ASKING, Request
from evermirror.edge.relay.limits import AskingLimits
from evermirror.edge.relay.line import Line, Scratch
from evermirror.model.access import Role
from evermirror.model.relay import NodeId, RelayAddress
from evermirror.model.wire import Access

AWAY_MAX = 10_000  # holders that are remembered as away from a relay


@dataclass(slots=True)
class _Pool:
    free: deque[tuple[float, Line, str]] = field(default_factory=deque)  # since when, and by which pass
    down_until: float = 0.0


class AskingLines:
    """A ``Reach`` over relays elsewhere. ``set_access`` whenever the coordinator sends one; ``close`` it."""

    def __init__(self, limits: AskingLimits | None = None) -> None:
        self._limits = limits if limits is not None else AskingLimits()
        self._context = dialling_context()
        self._scratch = Scratch()
        self._relays: tuple[RelayAddress, ...] = ()
        self._pools: dict[RelayAddress, _Pool] = {}
        self._away: dict[tuple[RelayAddress, NodeId], float] = {}
        self._turn = 0

    def set_access(self, access: Access | None) -> None:
        """Where relays are. Who asks is in each question."""
        self._relays = access.relays if access is not None else ()
        for relay in [r for r in self._pools if r not in self._relays]:
            self._empty(self._pools.pop(relay))

    def close(self) -> None:
        """End the lines that are kept."""
        for pool in self._pools.values():
            self._empty(pool)

    def reachable(self, holder: NodeId) -> bool:
        """Some relay is there that did not just say otherwise."""
        now = asyncio.get_running_loop().time()
        return any(self._away.get((relay, holder), 0.0) <= now for relay in self._relays)

    async def ask(self, ask: Ask, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """As ``Reach.ask``. A relay that cannot be reached is passed over; one that has no line to the holder
        is not asked for it again for a moment, so that the next try goes to another."""
        relay, line = await self._line(ask)
        # The relay goes by the pass of the line: reader and role are its words, not ours.
        request = Request(ask.key, ask.service, ask.protocol, ask.holder, NodeId(""), Role.WORKER, ask.ticket)
        try:
            async with aclosing(question(line, request, body, self._limits.line.silence_s)) as pieces:
                async for piece in pieces:
                    yield piece
        except HolderFailed:
            raise
        except HolderAway as away:
            self._remember(relay, ask.holder, away.retry_after_s)
            raise
        finally:
            self._keep(relay, line, ask.reader_pass)

    async def _line(self, ask: Ask) -> tuple[RelayAddress, Line]:
        why = "no relay is known"
        for relay in self._in_turn(ask.holder):
            pool = self._pools.setdefault(relay, _Pool())
            if (line := self._kept(pool, ask.reader_pass)) is not None:
                return relay, line
            limits = self._limits.line
            try:
                return relay, await dial(relay, ASKING, ask.reader_pass, self._context, self._scratch, limits)
            except DialRefused as refused:
                raise ReaderRefused(refused.message) from None
            except DialFailed as failed:
                why = f"{relay.address}: {failed.message}"
                pool.down_until = asyncio.get_running_loop().time() + self._limits.pause_s
        raise HolderAway(f"no relay can be reached ({why})", self._limits.pause_s)

    def _in_turn(self, holder: NodeId) -> list[RelayAddress]:
        """Those that are said to be down, or without the holder, last."""
        now = asyncio.get_running_loop().time()
        self._turn += 1
        start = self._turn % max(1, len(self._relays))
        turned = [*self._relays[start:], *self._relays[:start]]

        def doubtful(relay: RelayAddress) -> tuple[bool, bool]:
            down = self._pools[relay].down_until > now if relay in self._pools else False
            return down, self._away.get((relay, holder), 0.0) > now

        return sorted(turned, key=doubtful)

    def _kept(self, pool: _Pool, pass_: str) -> Line | None:
        now = asyncio.get_running_loop().time()
        while pool.free:
            since, line, of = pool.free.pop()
            if line.fresh and of == pass_ and now - since < self._limits.idle_s:
                return line
            line.close()
        return None

    def _keep(self, relay: RelayAddress, line: Line, pass_: str) -> None:
        pool = self._pools.get(relay)
        if pool is None or not line.fresh or len(pool.free) >= self._limits.idle_lines_max:
            line.close()
            return
        loop = asyncio.get_running_loop()
        entry = (loop.time(), line, pass_)
        pool.free.append(entry)
        loop.call_later(self._limits.idle_s, self._expire, pool, entry)

    @staticmethod
    def _expire(pool: _Pool, entry: tuple[float, Line, str]) -> None:
        if entry in pool.free:
            pool.free.remove(entry)
            entry[1].close()

    def _remember(self, relay: RelayAddress, holder: NodeId, retry_after_s: float) -> None:
        if len(self._away) >= AWAY_MAX:
            self._away.clear()
        self._away[relay, holder] = asyncio.get_running_loop().time() + retry_after_s

    @staticmethod
    def _empty(pool: _Pool) -> None:
        while pool.free:
            pool.free.pop()[1].close()
