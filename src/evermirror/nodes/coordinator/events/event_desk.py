"""Events as people ask for them: followed, read back, and how their delivery goes.

The note in the audit log comes first: what nobody could note is not done.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol

from evermirror.core.deliver.decisions import Item, NotTaken, Post
from evermirror.core.deliver.message import TEST
from evermirror.core.events.schema import iso
from evermirror.edge.store.store import Store
from evermirror.errors import Conflict, NotFound
from evermirror.model.delivery import DeadLetter, LetterId
from evermirror.model.event import EVENTS_VERSION, Event, EventId
from evermirror.nodes.coordinator.events.delivering import Delivering
from evermirror.nodes.coordinator.events.delivery_line import Line
from evermirror.nodes.event_service import DeliveryView, EventFilter, Followed, Gap, HookFigures

SWITCHED_OFF = "the event hook {name} is switched off"


class Feed(Protocol):
    """Where events are followed."""

    def latest(self) -> EventId: ...

    async def page(
        self, which: EventFilter, after: EventId, limit: int
    ) -> tuple[tuple[Event, ...], EventId]: ...

    async def newest(self, which: EventFilter, limit: int) -> tuple[Event, ...]: ...

    def gap(self, after: EventId) -> Gap | None: ...

    def follow(
        self, which: EventFilter, after: EventId | None, *, progress: bool = False
    ) -> AsyncGenerator[Followed, None]: ...


class EventDesk:
    """Implements ``EventService``."""

    def __init__(self, feed: Feed, delivering: Delivering, store: Store, clock: Callable[[], float]) -> None:
        self._feed = feed
        self._delivering = delivering
        self._store = store
        self._clock = clock
        self._tests: set[str] = set()  # hooks that are being tried

    def latest(self) -> EventId:
        return self._feed.latest()

    async def page(self, which: EventFilter, after: EventId, limit: int) -> tuple[tuple[Event, ...], EventId]:
        return await self._feed.page(which, after, limit)

    async def newest(self, which: EventFilter, limit: int) -> tuple[Event, ...]:
        return await self._feed.newest(which, limit)

    def gap(self, after: EventId) -> Gap | None:
        return self._feed.gap(after)

    def follow(
        self, which: EventFilter, after: EventId | None, *, progress: bool = False
    ) -> AsyncGenerator[Followed, None]:
        return self._feed.follow(which, after, progress=progress)

    # Event hooks

    def figures(self) -> Mapping[str, HookFigures]:
        return self._delivering.figures()

    async def deliveries(self) -> tuple[DeliveryView, ...]:
        letters = await self._store.letter_counts()
        return tuple(
            [
                DeliveryView(
                    line.parts.hook,
                    line.parts.receiver.host,
                    line.progress,
                    await self._store.events_waiting(line.progress.after),
                    letters.get(name, 0),
                    line.parts.enabled,
                    line.is_failing,
                )
                for name, line in sorted(self._delivering.lines.items())
            ]
        )

    async def letters(self, hook: str | None, limit: int, before: LetterId | None) -> Sequence[DeadLetter]:
        if hook is not None:
            await self._check_known(hook)
        return await self._store.letters(hook, limit, before)

    async def send_again(self, hook: str, ids: Sequence[LetterId] | None, *, actor: str) -> int:
        line = self._line(hook)
        if not line.parts.enabled:
            raise Conflict(SWITCHED_OFF.format(name=hook), hint="Set enabled = true in its settings")
        await self._store.audit(actor, "event_hooks.retried", hook, _detail(ids))
        count = _some(await self._store.send_letters_again(hook, ids), hook, ids)
        line.resume()
        return count

    async def forget_letters(self, hook: str, ids: Sequence[LetterId] | None, *, actor: str) -> int:
        """Also of a hook that is no longer in the settings."""
        await self._check_known(hook)
        await self._store.audit(actor, "event_hooks.letters_forgotten", hook, _detail(ids))
        count = _some(await self._store.forget_letters(hook, ids), hook, ids)
        if (line := self._delivering.lines.get(hook)) is not None:
            line.letters = max(line.letters - count, 0)
        return count

    async def test(self, hook: str, *, actor: str) -> str:
        line = self._line(hook)
        if hook in self._tests:
            raise Conflict(f"another test of {hook} is under way", hint="Wait for its end")
        await self._store.audit(actor, "event_hooks.tested", hook)
        self._tests.add(hook)
        try:
            answer = await line.parts.receiver.post(_test_post(self._clock()))
        finally:
            self._tests.discard(hook)
        if isinstance(answer, NotTaken):
            return answer.reason
        line.resume()
        return ""

    async def _check_known(self, hook: str) -> None:
        """One that is no longer in the settings may have letters."""
        if hook not in self._delivering.lines and hook not in await self._store.letter_counts():
            raise _no_such(hook)

    def _line(self, hook: str) -> Line:
        line = self._delivering.lines.get(hook)
        if line is None:
            raise _no_such(hook)
        return line


def _test_post(now: float) -> Post:
    told = {
        "version": EVENTS_VERSION,
        "id": 0,
        "type": TEST,
        "at": iso(now),
        "repo": None,
        "worker": None,
        "data": {},
    }
    body = json.dumps(told, separators=(",", ":"))
    return Post(f"{TEST}-{int(now * 1000)}", (Item(EventId(0), TEST, now, body),))


def _some(count: int, hook: str, ids: Sequence[LetterId] | None) -> int:
    """How many there were; ``NotFound`` where somebody named some, and none is there."""
    if ids and not count:
        named = ", ".join(str(number) for number in ids[:5])
        raise NotFound(f"{hook} has no letter {named}", hint="`evermirror events letters` lists them")
    return count


def _detail(ids: Sequence[LetterId] | None) -> dict[str, object]:
    return {"letters": "all" if ids is None else len(ids)}


def _no_such(hook: str) -> NotFound:
    return NotFound(f"no event hook {hook!r}", hint="`evermirror events hooks` lists them")
