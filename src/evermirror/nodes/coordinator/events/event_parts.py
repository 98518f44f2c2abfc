"""What is made of the settings so that others can follow what happens."""

from __future__ import annotations

from collections.abc import Callable

from evermirror.config import Config
from evermirror.edge.store.store import Store
from evermirror.nodes.coordinator.events.event_feed import EventFeed


async def make_events(config: Config, store: Store, clock: Callable[[], float]) -> EventFeed:
    """Woken by the store; ``run`` it."""
    feed = EventFeed(store, clock, retention_s=config.events.retention, keep=config.events.keep)
    await feed.load()
    store.on_event = feed.wake
    return feed


def configure_events(feed: EventFeed, config: Config) -> None:
    feed.configure(retention_s=config.events.retention, keep=config.events.keep)
