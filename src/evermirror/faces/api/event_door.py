"""What all who follow events share: room for so many of them, and each event's text, made once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from evermirror.core.events.schema import event_json
from evermirror.faces.api.auth import too_many
from evermirror.faces.api.problems import ApiProblem, Kind
from evermirror.model.client_address import client_network, is_loopback
from evermirror.model.event import Event, EventId

STREAMS = 1000
STREAMS_PER_CLIENT = 100  # this machine's own are not counted apart: a proxy limits for itself
BUSY_RETRY_S = 30
FRAMES = 1000  # texts kept
FRAMES_BYTES = 4_000_000  # of all of them


class EventDoor:
    def __init__(self, streams: int = STREAMS, per_client: int = STREAMS_PER_CLIENT) -> None:
        self._streams = streams
        self._per_client = per_client
        self._inside: Counter[str] = Counter()
        self._frames: dict[EventId, bytes] = {}
        self._bytes = 0

    def enter(self, address: str | None) -> contextlib.AbstractContextManager[None]:
        """For as long as the stream lasts; raises the problem that refuses it."""
        name = client_network(address)
        if self._inside[name] >= self._per_client and not is_loopback(address):
            raise too_many(BUSY_RETRY_S, "Too many event streams of this address")
        if self._inside.total() >= self._streams:
            raise ApiProblem(
                Kind.UNAVAILABLE,
                "Too many follow the events of this server",
                hint=f"Try again in {BUSY_RETRY_S} s, or read pages: Accept: application/json",
                headers={"Retry-After": str(BUSY_RETRY_S)},
            )
        return self._entered(name)

    @contextlib.contextmanager
    def _entered(self, name: str) -> Iterator[None]:
        self._inside[name] += 1
        try:
            yield
        finally:
            self._inside[name] -= 1
            if not self._inside[name]:
                del self._inside[name]

    def frame(self, event: Event) -> bytes:
        """The event as a stream tells it."""
        known = self._frames.get(event.id)
        if known is None:
            known = f"id: {event.id}\nevent: {event.type}\ndata: {event_json(event)}\n\n".encode()
            self._frames[event.id] = known
            self._bytes += len(known)
            while len(self._frames) > FRAMES or self._bytes > FRAMES_BYTES:
                self._bytes -= len(self._frames.pop(next(iter(self._frames))))
        return known
