"""Connections that have not said yet who they are: how many there may be, and which one goes for another.

A newcomer is never refused. Where there is no place left, the oldest stranger of the network with the most
must go: a peer that means to speak has spoken long before those that only hold a place grow old. Networks
from which somebody was admitted lately have places of their own, which no number of others can take.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from evermirror.edge.relay.limits import RelayLimits
from evermirror.model.client_address import client_network

T = TypeVar("T", bound=Hashable)


class Strangers(Generic[T]):
    """Of one relay."""

    def __init__(self, limits: RelayLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._unknown: _Places[T] = _Places(limits.strangers_max, limits.strangers_per_network)
        self._known: _Places[T] = _Places(limits.known_strangers_max, limits.strangers_per_network)
        self._admitted: OrderedDict[str, float] = OrderedDict()  # networks, until when they are known

    def __len__(self) -> int:
        return len(self._unknown) + len(self._known)

    def enter(self, stranger: T, address: str) -> T | None:
        """Give ``stranger`` a place; return the one that lost its own for it, if any."""
        network = client_network(address)
        known = self._admitted.get(network, 0.0) > self._clock()
        return (self._known if known else self._unknown).enter(stranger, network)

    def leave(self, stranger: T) -> None:
        """It was admitted, or is gone."""
        self._unknown.leave(stranger)
        self._known.leave(stranger)

    def admitted(self, address: str) -> None:
        """Somebody at ``address`` has said who it is: the next ones from there have a place for a while."""
        network = client_network(address)
        self._admitted[network] = self._clock() + self._limits.known_s
        self._admitted.move_to_end(network)
        if len(self._admitted) > self._limits.known_max:
            self._admitted.popitem(last=False)


class _Places(Generic[T]):
    def __init__(self, total: int, per_network: int) -> None:
        self._total = total
        self._per_network = per_network
        self._networks: dict[str, dict[T, int]] = {}  # of each its strangers, oldest first: when they came
        self._network_of: dict[T, str] = {}
        self._came = 0

    def __len__(self) -> int:
        return len(self._network_of)

    def enter(self, stranger: T, network: str) -> T | None:
        out: T | None = None
        if len(self._networks.get(network, ())) >= self._per_network:
            out = self._oldest(network)
        elif len(self) >= self._total:
            out = self._oldest(max(self._networks, key=self._crowd))
        if out is not None:
            self.leave(out)
        self._came += 1
        self._networks.setdefault(network, {})[stranger] = self._came
        self._network_of[stranger] = network
        return out

    def leave(self, stranger: T) -> None:
        if (network := self._network_of.pop(stranger, None)) is not None:
            del self._networks[network][stranger]
            if not self._networks[network]:
                del self._networks[network]

    def _oldest(self, network: str) -> T:
        return next(iter(self._networks[network]))

    def _crowd(self, network: str) -> tuple[int, int]:
        """The larger, the sooner one of it must go; among equals the one whose oldest came first."""
        strangers = self._networks[network]
        return len(strangers), -next(iter(strangers.values()))
