"""One event hook at work.

    store: events, letters ──▶ Courier ──▶ store: its place ──▶ receiver ──┐
                                  ▲                                        │
                                  └──────────── Taken, NotTaken ───────────┘

Nothing is posted before what it holds is saved; while the database is in trouble nothing is posted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from evermirror.core.deliver.alert import hook_alert, takes_again
from evermirror.core.deliver.courier import Courier
from evermirror.core.deliver.decisions import (
    Configured,
    Decision,
    DeliveryEvent,
    Found,
    Item,
    NotTaken,
    Post,
    Read,
    Resumed,
    Taken,
    Wait,
    Woke,
)
from evermirror.core.events.choosing import choice
from evermirror.core.events.schema import event_json
from evermirror.edge.store.deliveries import LETTERS_MAX
from evermirror.edge.store.store import Store
from evermirror.model.alert import Alert
from evermirror.model.delivery import EventHook, HookProgress
from evermirror.model.event import Event, EventId
from evermirror.model.failure import FailureError
from evermirror.nodes.event_service import HookFigures, PostEnd
from evermirror.nodes.running import in_time

log = structlog.get_logger(__name__)

RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0  # a database in trouble is tried again
SLEEP_MAX_S = 60.0  # the wall clock may be set: the next time is looked up again this often
SLEEP_MIN_S = 0.01
STOP_S = 2.0  # at a stop, for what is under way,
STOP_SAVE_S = 0.5  # and for its end to be saved
MICROSECONDS = 1_000_000  # numbers of events are the time
EVERYTHING = ("*",)  # also what is about no repo

T = TypeVar("T")


class Receiving(Protocol):
    """Where a hook's messages go. Never takes long, and raises nothing."""

    host: str

    async def post(self, post: Post) -> Taken | NotTaken: ...


class News(Protocol):
    async def beyond(self, after: EventId) -> None:
        """Returns once there are events after this one."""
        ...


@dataclass(frozen=True, slots=True)
class HookParts:
    """An event hook as the settings have it. ``mark``: another one is another receiver."""

    hook: EventHook
    receiver: Receiving
    enabled: bool
    mark: str


@dataclass(frozen=True, slots=True)
class Around:
    """What all hooks share."""

    store: Store
    news: News
    tell: Callable[[Alert], None]
    clock: Callable[[], float]


class Line:
    """``run`` in a task of its own; the rest at any time."""

    def __init__(self, parts: HookParts, progress: HookProgress, letters: int, around: Around) -> None:
        self.parts = parts
        self.letters = letters
        self._courier = Courier(parts.hook, progress)
        self._around = around
        self._poke = asyncio.Event()
        self._wish: Resumed | Configured | None = None  # of a person, or of other settings
        self._told: str | None = None  # what was last told of it: a reason, or nothing; None: not told yet
        self._posts: Counter[PostEnd] = Counter()

    @property
    def progress(self) -> HookProgress:
        return self._courier.progress

    @property
    def is_failing(self) -> bool:
        return self.parts.enabled and self._courier.is_failing(self._around.clock())

    def figures(self) -> HookFigures:
        progress = self.progress
        return HookFigures(
            posts={end: self._posts[end] for end in PostEnd},
            delivered=progress.delivered_total,
            laid_aside=progress.laid_aside_total,
            letters=self.letters,
            failing=self.is_failing,
        )

    def resume(self) -> None:
        """It is worth a try, or letters are to be sent again."""
        if self._wish is None:
            self._wish = Resumed()
        self._poke.set()

    def configure(self, parts: HookParts) -> None:
        same = (parts.hook, parts.mark) == (self.parts.hook, self.parts.mark)
        self.parts = parts
        if not same:
            self._wish = Configured(parts.hook)
            self._poke.set()

    def calm(self, end: Alert) -> None:
        """Nobody needs to know any longer whether it fails."""
        self._told = ""
        self._around.tell(end)

    # Work

    async def run(self) -> None:
        """Until cancelled. What is under way then has a moment to end. It begins with what is stored: run
        again after a failure, the message that was under way goes again, under the same number."""
        self._courier = Courier(self.parts.hook, await self._patiently(self._stored))
        event: DeliveryEvent = Woke()
        while True:
            decision = await self._decide(event)
            wish, self._wish = self._wish, None
            if wish is not None:
                decision = await self._decide(wish)
            match decision.action:
                case Wait(until):
                    event = await self._wait(until)
                case Read(after, limit):
                    event = await self._read(after, limit)
                case Post():
                    event = await self._post(decision.action)

    async def _stored(self) -> HookProgress:
        return (await self._around.store.load_event_hooks()).get(self.parts.hook.name, self.progress)

    async def _decide(self, event: DeliveryEvent) -> Decision:
        decision = self._courier.handle(event, self._around.clock())
        if decision.progress is not None or decision.aside or decision.letter is not None:
            await self._patiently(lambda: self._around.store.save_delivery(self.parts.hook.name, decision))
        self._count(decision)
        self._tell()
        return decision

    async def _wait(self, until: float | None) -> Woke:
        """News end it only where it waits for nothing else: what is there already is no news."""
        clock = self._around.clock
        wait_s = SLEEP_MAX_S if until is None else min(max(until - clock(), SLEEP_MIN_S), SLEEP_MAX_S)
        waits = [asyncio.create_task(self._poked())]
        if until is None and not self.progress.stopped:
            waits.append(asyncio.create_task(self._news_after(self._courier.place)))
        try:
            await asyncio.wait(waits, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        self._poke.clear()
        return Woke()

    async def _poked(self) -> None:
        await self._poke.wait()

    async def _news_after(self, place: EventId) -> None:
        await self._around.news.beyond(place)

    async def _read(self, after: EventId, limit: int) -> Found:
        store = self._around.store

        async def read() -> Found:
            page = await store.events_after(after, limit)
            again = await store.next_letter_again(self.parts.hook.name)
            wanted = filter(_wanted_by(self._courier.hook), page.events)
            items = tuple(Item(e.id, e.type, _put_down_at(e), event_json(e)) for e in wanted)
            up_to = page.events[-1].id if page.events else after
            gone = max(page.gone, page.began) if after else page.gone  # 0: nothing was ever missed
            return Found(items, up_to, gone, more=len(page.events) >= limit, again=again)

        return await self._patiently(read)

    async def _post(self, post: Post) -> Taken | NotTaken:
        posting = asyncio.create_task(self.parts.receiver.post(post))
        try:
            answer = await asyncio.shield(posting)
        except asyncio.CancelledError:
            await self._end(posting)
            raise
        self._posts[_end_of(answer)] += 1
        return answer

    async def _end(self, posting: asyncio.Task[Taken | NotTaken]) -> None:
        """What ends in time is saved; what does not goes again, under the same number."""
        await asyncio.wait({posting}, timeout=STOP_S)
        if posting.cancel():
            await asyncio.wait({posting})
            return
        decision = self._courier.handle(posting.result(), self._around.clock())
        await in_time(self._try_save(decision), STOP_SAVE_S)

    async def _try_save(self, decision: Decision) -> None:
        try:
            await self._around.store.save_delivery(self.parts.hook.name, decision)
        except FailureError as error:
            log.warning("a delivery is not noted", hook=self.parts.hook.name, reason=error.failure.message)

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """The database is asked again and again."""
        delay_s = RETRY_MIN_S
        while True:
            try:
                return await work()
            except FailureError as error:
                log.error("events wait for the database", reason=error.failure.message)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)

    # What is told

    def _count(self, decision: Decision) -> None:
        name = self.parts.hook.name
        if decision.aside:
            self.letters = min(self.letters + len(decision.aside), LETTERS_MAX)
            log.warning(
                "events laid aside", hook=name, events=len(decision.aside), reason=decision.aside[-1].reason
            )
        if decision.letter is not None and decision.letter.taken:
            self.letters = max(self.letters - 1, 0)
        if decision.lost:
            log.error("events were removed before they could be delivered", hook=name)

    def _tell(self) -> None:
        """Where it changed. One that is tried again after it was told as failing takes nothing yet."""
        failing = self.progress.last_error if self.is_failing else ""
        in_doubt = not failing and bool(self._told) and self.progress.failing_since is not None
        if failing == self._told or in_doubt:
            return
        self._told = failing
        self._around.tell(hook_alert(self.progress) if failing else takes_again(self.parts.hook.name))


def _wanted_by(hook: EventHook) -> Callable[[Event], bool]:
    return choice(hook.types, () if hook.repos == EVERYTHING else hook.repos, "", public_only=False)


def _put_down_at(event: Event) -> float:
    """By its number, which a worker's clock has no part in; unless ours was ahead."""
    return min(event.at, event.id / MICROSECONDS)


def _end_of(answer: Taken | NotTaken) -> PostEnd:
    if isinstance(answer, Taken):
        return PostEnd.TAKEN
    return PostEnd.REFUSED if answer.refused else PostEnd.FAILED
