"""The feed of events by itself: what it keeps in memory, and how much of the loop followers may have."""

from __future__ import annotations

import asyncio
import contextlib
import time

from evermirror.edge.store.events import EventPage
from evermirror.model.event import Event, EventId
from evermirror.nodes.coordinator.events.event_feed import EventFeed
from evermirror.nodes.coordinator.loop_share import LoopShare
from evermirror.nodes.event_service import EventFilter, Gap, LookedUpTo

KEY = "example.org/some-team/some-project"


class Told:
    """Events that a store would have; nothing is read twice."""

    def __init__(self, count=0, **fields):
        self.events = [self._event(n + 1, **fields) for n in range(count)]

    def _event(self, n, *, type_="repo.gone", size=10, public=True, repo=KEY):
        return Event(EventId(n), type_, 1.0, repo, None, {}, public, size)

    def tell(self, **fields):
        self.events.append(self._event(len(self.events) + 1, **fields))

    async def events_after(self, number, limit):
        return EventPage(tuple(self.events[number : number + limit]), EventId(0), EventId(0))

    async def events_before(self, number, limit):
        return tuple(reversed([e for e in self.events if e.id < number][-limit:]))

    async def latest_event(self):
        return EventId(0)

    async def clean_events(self, before, keep):
        return 0


@contextlib.asynccontextmanager
async def running(store, **options):
    feed = EventFeed(store, lambda: 0.0, retention_s=1.0, keep=10, gather_s=0.0, **options)
    await feed.load()
    task = asyncio.create_task(feed.run())
    try:
        feed.wake()
        await feed.beyond(EventId(len(store.events) - 1))
        yield feed
    finally:
        feed.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def taken(followed, count):
    """The next so many that tell something."""
    found = []
    async with asyncio.timeout(10):
        async for some in followed:
            if not isinstance(some, LookedUpTo):
                found += some if isinstance(some, tuple) else [some]
            if len(found) >= count:
                return found
    return found


async def test_memory_is_bounded_by_the_size_of_events_too():
    store = Told(2000, size=100)
    async with running(store, ring=5000, ring_chars=10_000) as feed:
        assert 50 <= len(feed._ring) <= 200
        assert sum(e.size for e in feed._ring) == feed._chars
        found = await taken(feed.follow(EventFilter(), EventId(0)), 2000)
        assert [e.id for e in found] == list(range(1, 2001))


async def test_an_event_that_is_larger_than_all_room_is_told_all_the_same():
    store = Told(3, size=100_000)
    async with running(store, ring_chars=10_000) as feed:
        assert feed._ring == []
        found = await taken(feed.follow(EventFilter(), EventId(0)), 3)
        assert [e.id for e in found] == [1, 2, 3]


async def test_those_who_look_for_what_is_not_there_leave_the_loop_to_others():
    """Each has all events before it, and many globs of which none fits."""
    globs = tuple(f"*a*e*{n}-nothing" for n in range(50))
    store = Told(4000)
    longest, clock = 0.0, time.thread_time  # the loop's own: what others do on this machine is no turn of it

    async def watch():
        nonlocal longest
        while True:
            before = clock()
            await asyncio.sleep(0)
            longest = max(longest, clock() - before)

    async def look(feed):
        async for some in feed.follow(EventFilter((), globs), EventId(0)):
            if some == LookedUpTo(EventId(4000)):
                return

    async with running(store, idle_s=0.001) as feed:
        watching, began = asyncio.create_task(watch()), clock()
        await asyncio.gather(*(look(feed) for _ in range(4)))
        took = clock() - began
        watching.cancel()
    assert longest < took / 5  # without shares, one follower's work is one turn of the loop: a quarter


async def test_a_share_of_the_loop_is_for_all_who_ask_together():
    share, work = LoopShare(share_s=0.0), []
    async with asyncio.TaskGroup() as group:
        for who in "abc":
            group.create_task(share.chosen(lambda n, who=who: work.append((who, n)) is None, range(3)))
        turns = 0
        while len(work) < 9:
            before = len(work)
            await asyncio.sleep(0)
            assert len(work) - before <= 1
            turns += 1
    assert work == [(who, n) for n in range(3) for who in "abc"]


async def test_very_many_changes_are_a_gap_to_those_who_show_no_token():
    store = Told(2)
    store.tell(type_="catalog.changed", public=False, repo=None)
    store.tell()
    async with running(store) as feed:
        found = await taken(feed.follow(EventFilter(public_only=True), EventId(0)), 4)
        assert [e if isinstance(e, Gap) else e.id for e in found] == [1, 2, Gap(EventId(2), EventId(3)), 4]
        found = await taken(feed.follow(EventFilter(("repo.*",), ("other.org/*",)), EventId(0)), 1)
        assert [e.type for e in found] == ["catalog.changed"]


async def test_a_page_from_the_future_is_a_gap():
    store = Told(3)
    async with running(store) as feed:
        items, upto = await feed.page(EventFilter(), EventId(50), 10)
        assert (items, upto, feed.gap(EventId(50))) == ((), 3, Gap(EventId(50), EventId(3)))
        store.tell()
        items, upto = await feed.page(EventFilter(), EventId(4), 10)  # the ring has not heard of it yet
        assert (items, upto, feed.gap(EventId(4))) == ((), 4, None)
