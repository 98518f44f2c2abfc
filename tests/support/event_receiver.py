"""A receiver of events as the documentation describes one: checks the signature itself, knows what it has."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_sink import HttpSink, Reply, Taken, http_sink

SECRET = "0123456789abcdef-event-hook"
PATH = "/events/c4n4ry-p4th?token=c4n4ry-t0ken"


@dataclass
class EventReceiver:
    """``mood`` is asked with the events of a message that is signed; None: taken. ``kept`` has each message
    that was taken, by its delivery id, in order."""

    sink: HttpSink
    mood: Callable[[list[dict[str, Any]]], Reply | None] = lambda _: None
    kept: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)  # deliveries that were taken before
    unsigned: int = 0

    @property
    def url(self) -> str:
        return self.sink.base + PATH

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for message in list(self.kept.values()) for event in message]

    @property
    def ids(self) -> list[int]:
        return [event["id"] for event in self.events]

    def answer(self, request: Taken) -> Reply:
        parts = dict(part.split("=", 1) for part in request.headers["evermirror-signature"].split(","))
        expected = hmac.new(SECRET.encode(), parts["t"].encode() + b"." + request.body, hashlib.sha256)
        signed = hmac.compare_digest(expected.hexdigest(), parts["v1"])
        if not signed or abs(time.time() - int(parts["t"])) > 300:
            self.unsigned += 1
            return Reply(401)
        message = json.loads(request.body)
        reply = self.mood(message["events"])
        if reply is not None and not 200 <= reply.status < 300:
            return reply
        delivery = request.headers["evermirror-delivery"]
        if delivery in self.kept:
            self.again.append(delivery)
        self.kept.setdefault(delivery, message["events"])
        return reply or Reply(204)


@contextmanager
def event_receiver(tls: ssl.SSLContext | None = None) -> Iterator[EventReceiver]:
    with http_sink(Reply(), tls) as sink:
        receiver = EventReceiver(sink)
        sink.answer = receiver.answer
        yield receiver
