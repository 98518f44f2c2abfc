"""Who is on the line: the serving lines of each node at a relay, free and busy."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from evermirror.edge.relay.ask import HolderAway
from evermirror.edge.relay.limits import RelayLimits
from evermirror.edge.relay.line import Line
from evermirror.model.relay import NodeId

RETRY_S = 5.0


@dataclass(slots=True)
class _Holder:
    free: deque[Line] = field(default_factory=deque)
    lines: set[Line] = field(default_factory=set)
    retired: set[Line] = field(default_factory=set)  # end with the request that they carry
    waiting: deque[asyncio.Future[Line]] = field(default_factory=deque)
    least_free: int = 0  # since the last look: so many were not needed meanwhile
    looked_after: bool = False  # somebody will look


class Holders:
    """A node is known while it has lines, and a moment longer: it may be about to come back."""

    def __init__(self, limits: RelayLimits) -> None:
        self._limits = limits
        self._holders: dict[NodeId, _Holder] = {}
        self.lines = 0

    def __len__(self) -> int:
        return sum(1 for h in self._holders.values() if h.lines)

    @property
    def free(self) -> int:
        return sum(len(h.free) for h in self._holders.values())

    def has(self, node: NodeId) -> bool:
        holder = self._holders.get(node)
        return holder is not None and bool(holder.lines)

    def has_room(self, node: NodeId) -> bool:
        holder = self._holders.get(node)
        of_node = len(holder.lines) if holder is not None else 0
        return self.lines < self._limits.serving_lines_max and of_node < self._limits.lines_per_worker

    def enter(self, node: NodeId, line: Line) -> None:
        """A new line, free."""
        self._holders.setdefault(node, _Holder()).lines.add(line)
        self.lines += 1
        self.give_back(node, line)

    def leave(self, node: NodeId, line: Line) -> None:
        """It is gone. Those who wait for another one of that node go on waiting."""
        holder = self._holders[node]
        holder.lines.discard(line)
        holder.retired.discard(line)
        self.lines -= 1
        if line in holder.free:
            holder.free.remove(line)
        if not holder.lines:
            self._forget_later(node, holder)

    def retire(self, node: NodeId, line: Line) -> None:
        """No further request on it."""
        holder = self._holders[node]
        if line in holder.free:
            holder.free.remove(line)
            line.close("its time is over")
        else:
            holder.retired.add(line)

    def of(self, node: NodeId) -> Iterator[Line]:
        holder = self._holders.get(node)
        return iter(tuple(holder.lines) if holder is not None else ())

    async def take(self, node: NodeId) -> Line:
        """A free line, for one request; ``give_back`` it in any case. Raises HolderAway."""
        holder = self._holders.get(node)
        if holder is None:
            raise HolderAway(f"{node} is not connected to this relay", RETRY_S)
        while holder.free:
            line = holder.free.popleft()
            holder.least_free = min(holder.least_free, len(holder.free))
            if line.fresh:
                return line
            line.abort("it spoke unasked")
        place: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        holder.waiting.append(place)
        try:
            await asyncio.wait({place}, timeout=self._limits.line_wait_s)
        except BaseException:
            if place.done():
                self.give_back(node, place.result())
            raise
        finally:
            if not place.done():
                holder.waiting.remove(place)
        if not place.done():
            why = "all its lines are busy" if holder.lines else "is not connected to this relay"
            raise HolderAway(f"{node}: {why}", RETRY_S)
        return place.result()

    def give_back(self, node: NodeId, line: Line) -> None:
        """To who waits for it first, or to the free ones."""
        holder = self._holders.get(node)
        if holder is None or line not in holder.lines or not line.fresh:
            line.abort("not free for another request")
        elif line in holder.retired:
            line.close("its time is over")
        elif holder.waiting:
            holder.waiting.popleft().set_result(line)
        else:
            holder.free.append(line)
            if len(holder.free) > self._limits.free_lines_max and not holder.looked_after:
                self._look_later(holder)

    def _look_later(self, holder: _Holder) -> None:
        """A line costs a handshake: none is closed that the next question of a burst needs."""
        holder.looked_after, holder.least_free = True, len(holder.free)
        asyncio.get_running_loop().call_later(self._limits.spare_s, self._close_spare, holder)

    def _close_spare(self, holder: _Holder) -> None:
        holder.looked_after = False
        spare = min(holder.least_free, len(holder.free) - self._limits.free_lines_max)
        for _ in range(spare):
            holder.free.popleft().close("one free line less is enough")
        if len(holder.free) > self._limits.free_lines_max:
            self._look_later(holder)

    def _forget_later(self, node: NodeId, holder: _Holder) -> None:
        asyncio.get_running_loop().call_later(self._limits.back_s, self._forget, node, holder)

    def _forget(self, node: NodeId, holder: _Holder) -> None:
        if self._holders.get(node) is not holder or holder.lines:
            return
        if holder.waiting:
            self._forget_later(node, holder)
        else:
            del self._holders[node]
