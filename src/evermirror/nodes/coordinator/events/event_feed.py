"""Events on their way to those who follow them: read from the store once, and handed to all.

    store ──commit──▶ wake ──▶ read once for all ──▶ ring (the newest) ──▶ followers, at their places
                                                                  disk ◀── one who is further behind

Nothing is kept for a follower but its place: one who is slow costs nothing, and is served from the disk.
Progress of syncs is not stored: who wants it gets the latest of each repo, and what came before is lost.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import takewhile
from typing import Protocol

import structlog

from evermirror.core.events.choosing import choice, is_whole_catalog
from evermirror.core.events.globs import matching
from evermirror.edge.store.events import ID_MAX, PAGE_MAX, EventPage
from evermirror.model.event import Event, EventId, EventType
from evermirror.model.failure import FailureError
from evermirror.model.messages import Progress, Report
from evermirror.model.repo import RepoKey
from evermirror.nodes.coordinator.loop_share import LoopShare
from evermirror.nodes.event_service import EventFilter, Followed, Gap, LookedUpTo

log = structlog.get_logger(__name__)

RING = 5000  # events in memory, and up to twice as many before the older half is dropped
RING_CHARS = 8_000_000  # of their data, in the same way: four times as many bytes
GATHER_S = 0.1  # between two reads: followers get what came meanwhile together
LOOK_S = 5.0  # where nobody says that there is something new, one looks all the same
IDLE_S = 15.0  # a follower for whom nothing comes is told so
AT_ONCE = 500  # events handed to a follower together
SCAN_MAX = 5000  # events looked at for one page
PROGRESS_S = 1.0  # between two tellings of how far syncs are
PROGRESS_MAX = 1000  # repos whose progress waits for one follower
CLEAN_S = 600.0

_AFFECTS_WHO_MAY_SEE = (EventType.REPO_ADDED.value, EventType.REPO_CHANGED.value)


class EventSource(Protocol):
    """A ``Store``."""

    async def events_after(self, number: EventId, limit: int) -> EventPage: ...
    async def events_before(self, number: EventId, limit: int) -> tuple[Event, ...]: ...
    async def latest_event(self) -> EventId: ...
    async def clean_events(self, before: float, keep: int) -> int: ...


class EventFeed:
    """``load`` it first, and ``run`` beside; ``wake`` it after a commit."""

    def __init__(
        self,
        store: EventSource,
        clock: Callable[[], float],
        *,
        retention_s: float,
        keep: int,
        ring: int = RING,
        ring_chars: int = RING_CHARS,
        gather_s: float = GATHER_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._store = store
        self._clock = clock
        self._retention_s = retention_s
        self._keep = keep
        self._size = ring
        self._chars_max = ring_chars
        self._gather_s = gather_s
        self._idle_s = idle_s
        self._ring: list[Event] = []
        self._ids: list[EventId] = []  # of the ring
        self._chars = 0  # of the ring
        self._share = LoopShare()
        self._complete_after = EventId(0)  # the ring has everything after this number
        self._latest = EventId(0)
        self._gone = EventId(0)
        self._began = EventId(0)
        self._wake = asyncio.Event()
        self._news = asyncio.Event()  # replaced at each publication
        self._stopped = False
        self._listening: set[_Progresses] = set()
        self.followers = 0
        self.told: Counter[str] = Counter()  # events by type, since the start

    # In

    async def load(self) -> None:
        self._latest = self._complete_after = await self._store.latest_event()
        page = await self._store.events_after(self._latest, 0)
        self._gone, self._began = page.gone, page.began

    def configure(self, *, retention_s: float, keep: int) -> None:
        self._retention_s, self._keep = retention_s, keep

    def wake(self) -> None:
        """Something was committed."""
        self._wake.set()

    def heard(self, report: Report) -> None:
        """Of all reports, those on progress are for followers; the others become events."""
        if isinstance(report, Progress):
            for one in self._listening:
                one.put(report)

    def stop(self) -> None:
        """Whoever follows is let go."""
        self._stopped = True
        self._publish(())

    async def run(self) -> None:
        """Reads what is new, and removes what is old, until cancelled. Called again, it reads on from the
        last event that it published."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read_on(), name="events read")
            group.create_task(self._clean_on(), name="events cleaned")

    async def _read_on(self) -> None:
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._read()
            except FailureError as e:
                log.debug("events_not_read", reason=e.failure.message)  # the recorder says so too
                await asyncio.sleep(1.0)
            await asyncio.sleep(self._gather_s)

    async def _read(self) -> None:
        while True:
            page = await self._store.events_after(self._latest, PAGE_MAX)
            self._gone = max(self._gone, page.gone)
            # Another may have read meanwhile.
            new = [event for event in page.events if event.id > self._latest]
            if not new:
                return
            self._latest = new[-1].id
            self._publish(new)
            if len(page.events) < PAGE_MAX:
                return

    def _publish(self, new: Sequence[Event]) -> None:
        self._ring += new
        self._ids += [event.id for event in new]
        self._chars += sum(event.size for event in new)
        self.told.update(event.type for event in new)
        if any(map(_may_hide, new)):
            self._drop(len(self._ring))  # who may see the older ones is read anew, from the disk
        elif len(self._ring) > 2 * self._size or self._chars > 2 * self._chars_max:
            self._drop(self._too_many())
        self._news.set()
        self._news = asyncio.Event()

    def _too_many(self) -> int:
        """How many of the oldest are beyond the bounds, by number or by size."""
        count, chars = 0, self._chars
        while len(self._ring) - count > self._size or chars > self._chars_max:
            chars -= self._ring[count].size
            count += 1
        return count

    def _drop(self, count: int) -> None:
        self._complete_after = self._ids[count - 1]
        self._chars -= sum(event.size for event in self._ring[:count])
        del self._ring[:count], self._ids[:count]

    async def _clean_on(self) -> None:
        while True:
            try:
                await self._store.clean_events(self._clock() - self._retention_s, self._keep)
                self._gone = max(self._gone, (await self._store.events_after(self._latest, 0)).gone)
            except FailureError as e:
                log.debug("events_not_cleaned", reason=e.failure.message)
            await asyncio.sleep(CLEAN_S)

    # Out

    def latest(self) -> EventId:
        return self._latest

    def gap(self, after: EventId) -> Gap | None:
        """What is no longer kept of what came after; None: all of it is. One that was never given is of a
        database that is no longer this one."""
        return Gap(after, self._latest) if after > self._latest else self._lost(after)

    def _lost(self, after: EventId) -> Gap | None:
        if 0 < after < self._began:
            return Gap(after, self._began)
        return Gap(after, self._gone) if after < min(self._gone, self._complete_after) else None

    async def beyond(self, after: EventId) -> None:
        """Until there is something after this number."""
        while self._latest <= after:
            await self._news.wait()

    async def page(self, which: EventFilter, after: EventId, limit: int) -> tuple[tuple[Event, ...], EventId]:
        wanted = choice(which.types, which.repos, which.worker, public_only=which.public_only)
        if after > self._latest:
            await self._read()
        after = min(after, self._latest)
        found: list[Event] = []
        looked = 0
        while looked < SCAN_MAX:
            page = await self._store.events_after(after, AT_ONCE)  # not the ring, which may be behind
            self._gone = max(self._gone, page.gone)
            events = page.events
            found += await self._share.chosen(wanted, events)
            if len(found) >= limit:
                return tuple(found[:limit]), found[limit - 1].id
            if events:
                after = events[-1].id
            looked += len(events)
            if len(events) < AT_ONCE:
                break
        return tuple(found), after

    async def newest(self, which: EventFilter, limit: int) -> tuple[Event, ...]:
        wanted = choice(which.types, which.repos, which.worker, public_only=which.public_only)
        found: list[Event] = []
        looked, place = 0, EventId(ID_MAX)
        while looked < SCAN_MAX and len(found) < limit:
            events = await self._store.events_before(place, AT_ONCE)
            found += await self._share.chosen(wanted, events)
            looked += len(events)
            if len(events) < AT_ONCE:
                break
            place = events[-1].id
        return tuple(reversed(found[:limit]))

    async def _after(self, place: EventId) -> Sequence[Event]:
        """The next some, from memory where they are all there."""
        if place >= self._complete_after:
            begin = bisect_right(self._ids, place)
            return self._ring[begin : begin + AT_ONCE]
        page = await self._store.events_after(place, AT_ONCE)
        self._gone = max(self._gone, page.gone)
        return page.events

    def follow(
        self, which: EventFilter, after: EventId | None, *, progress: bool = False
    ) -> AsyncGenerator[Followed, None]:
        place = self._latest if after is None else after
        wants_progress = progress and not which.public_only  # it names private repos too
        return self._follow(which, place, _Progresses(which.repos) if wants_progress else None)

    async def _follow(
        self, which: EventFilter, place: EventId, progresses: _Progresses | None
    ) -> AsyncGenerator[Followed, None]:
        wanted = choice(which.types, which.repos, which.worker, public_only=which.public_only)
        self.followers += 1
        if progresses is not None:
            self._listening.add(progresses)
        try:
            if place > self._latest:
                await self._read()
            if place > self._latest:  # of a database that is no longer this one
                yield Gap(place, self._latest)
                place = self._latest
            yield LookedUpTo(place)
            while not self._stopped:
                news = self._news
                events = await self._after(place)
                if (gap := self._lost(place)) is not None:
                    yield gap
                    place = gap.until
                    continue
                if which.public_only and events and is_whole_catalog(events[0]):
                    yield Gap(place, events[0].id)
                    place = events[0].id
                    continue
                if which.public_only:
                    events = tuple(takewhile(lambda event: not is_whole_catalog(event), events))
                if events:
                    place = events[-1].id
                    if chosen := tuple(await self._share.chosen(wanted, events)):
                        yield chosen
                        continue
                if place >= self._latest and not self._stopped:
                    told = await self._nothing_new(news, progresses)
                    if told is None:
                        yield LookedUpTo(place)
                    elif told:
                        yield told
        finally:
            self.followers -= 1
            if progresses is not None:
                self._listening.discard(progresses)

    async def _nothing_new(
        self, news: asyncio.Event, progresses: _Progresses | None
    ) -> tuple[Progress, ...] | None:
        """How far syncs are; empty: there is something new; None: there was nothing for long."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._idle_s
        while (now := loop.time()) < until:
            if progresses is not None and (some := progresses.take(now)):
                return some
            try:
                async with asyncio.timeout(
                    min(until - now, PROGRESS_S if progresses is not None else self._idle_s)
                ):
                    await news.wait()
                return ()
            except TimeoutError:
                continue
        return None


class _Progresses:
    """What one follower is to be told of syncs under way: the latest of each repo, not too often."""

    def __init__(self, repos: tuple[str, ...]) -> None:
        self._of_repo = matching(repos)
        self._latest: dict[RepoKey, Progress] = {}
        self._taken_at = float("-inf")

    def put(self, progress: Progress) -> None:
        room = progress.key in self._latest or len(self._latest) < PROGRESS_MAX
        if room and self._of_repo(progress.key):
            self._latest[progress.key] = progress

    def take(self, now: float) -> tuple[Progress, ...]:
        if now - self._taken_at < PROGRESS_S or not self._latest:
            return ()
        self._taken_at = now
        some = tuple(self._latest.values())
        self._latest.clear()
        return some


def _may_hide(event: Event) -> bool:
    """Whether older events of the repo may be no longer for everybody."""
    changed = event.type in _AFFECTS_WHO_MAY_SEE and not event.public
    return changed or event.type == EventType.CATALOG_CHANGED.value
