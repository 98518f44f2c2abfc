"""Follows the events of a server: a stream that is taken up again where it broke off."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from evermirror.errors import EvermirrorError
from evermirror.faces.cli.client import Client, Denied, Fields
from evermirror.faces.cli.output import warn

EVENTS = "/api/events"
SILENCE_S = 45.0  # the server says something every 15 s
PAUSE_S = (2.0, 30.0)  # before the connection is made again: first and longest


def follow(
    client: Client, query: Mapping[str, str | int], *, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Fields]:
    """Events as they come, for ever. What is wrong at the first connection is an error; later on it is
    tried again, from the last event on."""
    last_id, connected, pause_s = "", False, PAUSE_S[0]
    while True:
        try:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            with client.lines(EVENTS, query, headers, silence_s=SILENCE_S) as lines:
                connected = True
                for place, event in events_in(lines):
                    last_id, pause_s = place or last_id, PAUSE_S[0]
                    if event is not None:
                        yield event
            why = "the server ended the stream"
        except Denied:
            raise
        except EvermirrorError as error:
            if not connected:
                raise
            why = error.message
        warn(f"{why}; trying again in {pause_s:.0f} s")
        sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_S[1])


def events_in(lines: Iterable[str]) -> Iterator[tuple[str, Fields | None]]:
    """Server-sent events: the place that one has come to, and the event, if it is one."""
    last_id, data = "", ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            last_id = value
        elif name == "data":
            data += value
        elif not line:
            event = _object(data) if data else None
            data = ""
            yield last_id, event


def _object(text: str) -> Fields | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
