"""How many requests may be on their way at a time: in all, and of one client."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from evermirror.faces.api.auth import too_many
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.client_address import client_network, is_loopback

BUSY_RETRY_S = 5


class Room:
    """A client on this machine is a proxy, which limits for itself: only the whole counts."""

    def __init__(self, total: int, per_client: int) -> None:
        self._total = total
        self._per_client = per_client
        self._inside: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        return self._inside.total()

    @contextlib.contextmanager
    def entered(self, address: str | None) -> Iterator[None]:
        """Raises the problem that refuses it."""
        name = client_network(address)
        if self._inside[name] >= self._per_client and not is_loopback(address):
            raise too_many(BUSY_RETRY_S, "Too many requests of this address wait for an answer")
        if self.taken >= self._total:
            raise ApiProblem(
                Kind.UNAVAILABLE,
                "Too many requests wait for an answer here",
                hint=f"Try again in {BUSY_RETRY_S} s",
                headers={"Retry-After": str(BUSY_RETRY_S)},
            )
        self._inside[name] += 1
        try:
            yield
        finally:
            self._inside[name] -= 1
            if not self._inside[name]:
                del self._inside[name]
