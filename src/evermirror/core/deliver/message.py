"""What one message to a receiver is: its body, byte for byte the same when it is sent again, and its number.

{"version":1,"hook":"ci","events":[{"version":1,"id":…},…]}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from evermirror.core.deliver.decisions import Item
from evermirror.core.events.schema import event_json
from evermirror.model.event import EVENTS_VERSION, Event, EventId

TEST = "test"  # the type of what a person tries a hook with
GAP = "gap"  # the type of what stands for events that are no longer there
DELIVERY_CHARS = 32


def delivery_id(hook: str, items: Sequence[Item]) -> str:
    """The same for the same events: a receiver that took them and could not say so knows them again."""
    events = ",".join(str(item.event) for item in items)
    return hashlib.sha256(f"{hook}\n{events}".encode()).hexdigest()[:DELIVERY_CHARS]


def gap_item(after: EventId, until: EventId) -> Item:
    """What came after the one and up to the other was removed. The receiver reads the state anew."""
    at = until / 1_000_000
    return Item(until, GAP, at, event_json(Event(until, GAP, at, None, None, {"after": after}, public=False)))


def message_body(hook: str, items: Sequence[Item]) -> bytes:
    events = ",".join(item.body for item in items)
    name = json.dumps(hook)
    return f'{{"version":{EVENTS_VERSION},"hook":{name},"events":[{events}]}}'.encode()
