"""A coordinator's part that delivers events: a real store, the real feed, receivers over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from evermirror.edge.notify.receiver import Receiver
from evermirror.edge.store.store import Store
from evermirror.model.alert import Alert
from evermirror.model.delivery import EventHook
from evermirror.model.event import EventType, NewEvent
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.events.delivering import Delivering
from evermirror.nodes.coordinator.events.delivery_line import HookParts
from evermirror.nodes.coordinator.events.event_desk import EventDesk
from evermirror.nodes.coordinator.events.event_feed import EventFeed
from evermirror.nodes.supervisor import Supervisor
from tests.support.event_receiver import SECRET, EventReceiver
from tests.support.migrated import tables_at_once
from tests.support.news import put_events


@dataclass
class EventHouse:
    """``told`` has the alerts; ``supervisor`` counts bugs."""

    store: Store
    feed: EventFeed
    delivering: Delivering
    desk: EventDesk
    told: list[Alert]
    supervisor: Supervisor

    async def happen(self, count: int, type_: EventType = EventType.REFS_CHANGED, repo: str = "h/a") -> None:
        """One transaction each."""
        for _ in range(count):
            await put_events(self.store, [NewEvent(type_, time.time(), RepoKey(repo), data={"n": 1})])

    async def until(self, condition: Callable[[], bool], within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not condition():
                assert not self.supervisor.failures
                await asyncio.sleep(0.01)

    async def until_noted(self, hook: str, count: int) -> None:
        """A receiver has a message a moment before its answer is here."""
        await self.until(lambda: self.delivering.figures()[hook].delivered == count)


def hook_at(name: str, receiver: EventReceiver | str, **more: object) -> HookParts:
    url = receiver if isinstance(receiver, str) else receiver.url
    timeout_s = more.pop("timeout_s", 5.0)
    enabled = bool(more.pop("enabled", True))
    hook = EventHook(name, **more)  # type: ignore[arg-type]
    return HookParts(hook, Receiver(name, url, SECRET, timeout_s=float(str(timeout_s))), enabled, url)


@asynccontextmanager
async def event_house(folder: Path, *hooks: HookParts) -> AsyncIterator[EventHouse]:
    with tables_at_once():
        store = await Store.open(f"sqlite:///{folder}/store.db")
    feed = EventFeed(store, time.time, retention_s=86_400.0, keep=10_000, gather_s=0.01)
    store.on_event = feed.wake
    await feed.load()
    told: list[Alert] = []
    supervisor = Supervisor()
    by_name = {one.hook.name: one for one in hooks}
    delivering = Delivering(
        by_name, store=store, news=feed, tell=told.append, clock=time.time, supervisor=supervisor
    )
    await delivering.load()
    try:
        async with supervisor.running("feed", feed.run), supervisor.running("hooks", delivering.run):
            desk = EventDesk(feed, delivering, store, time.time)
            yield EventHouse(store, feed, delivering, desk, told, supervisor)
    finally:
        await store.close()
    assert not supervisor.failures
