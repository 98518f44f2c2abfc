"""One event hook's mind: what is posted when, what is tried again, what is laid aside.

              ┌────────────── nothing there ◀──┐
              ▼                                │
            wait ──news, time──▶ read ──▶ found some ──▶ post ──taken──▶ on with the rest
              ▲                                           │  ▲
              │                            not delivered  │  │ refused: with half as many
              └── 5 s, 10 s, … 15 min ◀───────────────────┤  │
                                                          ├──┘
                                refused alone, three times, or too old ──▶ laid aside, on with the rest

| rule                                                                                              |
|---------------------------------------------------------------------------------------------------|
| In order, one message at a time. What a message holds is saved before it is posted: after a crash |
| the same one goes again, under the same number.                                                   |
| Not delivered (away, 408, 429, 5xx): the same message again after a pause, for as long as it takes|
| but for what is older than a day while the receiver fails for a day: that is laid aside.          |
| Refused (any other 4xx): halves at once, until it is one event that is refused; that is laid aside|
| after three tries. Pauses between tries grow as long as nothing is taken, up to a minute.         |
| Three laid aside in a row, and nothing taken: it is the receiver, not the event; from then on a   |
| refusal is as if it had not been delivered.                                                       |
| Letters that a person wants to be tried again go alone, each after a message of what is new;      |
| refused once more they stay letters.                                                              |
| What was removed before it could be delivered is told as a gap, in the place of an event.         |
| "Gone" (410) stops it, and its place stays, until a person or other settings resume it.           |
| A day is over only where it was also tried as often as a day has hours: a clock may be set.       |
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import takewhile

from evermirror.core.deliver.decisions import (
    Configured,
    Decision,
    DeliveryEvent,
    Found,
    Item,
    LayAside,
    LetterEnd,
    NotTaken,
    Post,
    Read,
    Resumed,
    Taken,
    Wait,
    Woke,
)
from evermirror.core.deliver.message import delivery_id, gap_item
from evermirror.model.delivery import DeadLetter, EventHook, HookProgress
from evermirror.model.event import EventId

BATCH_MAX = 500  # events in one message, whatever the settings say
MESSAGE_CHARS_MAX = 1_000_000  # of the events in a message of several
PAUSE_MIN_S, PAUSE_MAX_S = 5.0, 900.0
REFUSED_PAUSE_MAX_S = 60.0  # the next one may be fine
RETRY_AFTER_MAX_S = 3600.0  # that a receiver may ask for
ALONE_TRIES = 3  # of one event that is refused
ALONE_IN_A_ROW = 3  # laid aside for that before it is the receiver's fault
GIVE_UP_S = 86_400.0
GIVE_UP_TRIES = 24
FAILING_S = 300.0  # a receiver that fails for longer is worth an alert
PASSED_SAVE_S = 60.0  # that events were passed over is saved so often: after a crash they are looked at again
ERROR_MAX_CHARS = 300


class Courier:
    """Of one hook."""

    def __init__(self, hook: EventHook, progress: HookProgress) -> None:
        self.hook = hook
        self.progress = progress
        self._saved = progress
        self._saved_at = 0.0
        self._queue: deque[Item] = deque()
        self._looked = progress.after  # the store was asked for everything up to here
        self._idle = False  # the last look found all that there is
        self._letter: DeadLetter | None = None
        self._posted: tuple[Item, ...] = ()  # under way
        self._size = hook.batch
        self._refused_alone = 0
        self._laid_in_a_row = 0  # as refused, with nothing taken since
        self._letter_last = False  # it was a letter that was posted last
        self._failed = False  # the latest attempt since the start

    def handle(self, event: DeliveryEvent, now: float) -> Decision:
        aside: tuple[LayAside, ...] = ()
        letter: LetterEnd | None = None
        lost = False
        match event:
            case Found():
                lost = self._found(event)
            case Taken():
                letter = self._taken(now)
            case NotTaken():
                aside, letter = self._not_taken(event, now)
            case Woke():
                self._idle = False
            case Resumed():
                self._resume()
            case Configured(hook):
                self._configure(hook)
        aside += self._too_old(now)
        self._pass_over()
        action = self._next(now)
        must = bool(aside) or letter is not None or isinstance(action, Post)
        return Decision(action, self._unsaved(now, must=must), aside, letter, lost)

    # What is heard

    def _found(self, event: Found) -> bool:
        lost = event.gone > self._looked
        self._idle = not event.more and event.again is None
        if lost:
            self._queue.append(gap_item(self._looked, event.gone))
        self._queue.extend(event.items)
        self._looked = max(event.up_to, event.gone, self._looked)
        self._letter = event.again
        return lost

    def _taken(self, now: float) -> LetterEnd | None:
        posted, self._posted = self._posted, ()
        self._failed, self._refused_alone, self._laid_in_a_row = False, 0, 0
        self.progress = replace(
            self.progress,
            failures=0,
            not_before=0.0,
            failing_since=None,
            last_error="",
            delivered_at=now,
            delivered_total=self.progress.delivered_total + len(posted),
        )
        if self._letter is not None:
            done, self._letter = LetterEnd(self._letter.id, taken=True), None
            return done
        self._size = min(2 * self._size, self.hook.batch)
        self._done_with(posted)
        return None

    def _not_taken(self, event: NotTaken, now: float) -> tuple[tuple[LayAside, ...], LetterEnd | None]:
        posted, self._posted = self._posted, ()
        letter, self._letter = self._letter, None  # one that was not delivered is found again
        reason = " ".join(event.reason.split())[:ERROR_MAX_CHARS]
        if letter is not None and event.refused:
            return (), LetterEnd(letter.id, taken=False, reason=reason)
        self._failed = True
        many = event.refused and len(posted) > 1
        since = self.progress.failing_since
        self.progress = replace(
            self.progress,
            failures=self.progress.failures + (not many),
            failing_since=now if since is None else min(since, now),  # a clock may be set back
            last_error=reason,
            stopped=event.gone,
        )
        if many:
            self._size = len(posted) // 2
            self.progress = replace(self.progress, until=None, not_before=0.0)
            return (), None
        self.progress = replace(self.progress, not_before=now + self._pause_s(event))
        return (self._refuse(posted, reason) if event.refused else ()), None

    def _refuse(self, posted: tuple[Item, ...], reason: str) -> tuple[LayAside, ...]:
        self._refused_alone += 1
        if self._refused_alone < ALONE_TRIES or self._refuses_all():
            return ()
        tries, self._refused_alone = self._refused_alone, 0
        self._laid_in_a_row += 1
        self._done_with(posted, aside=True)
        return tuple(LayAside(item, reason, tries) for item in posted)

    def _refuses_all(self) -> bool:
        return self._laid_in_a_row >= ALONE_IN_A_ROW

    def _resume(self) -> None:
        self._idle, self._laid_in_a_row = False, 0
        self.progress = replace(self.progress, not_before=0.0, stopped=False)

    def _configure(self, hook: EventHook) -> None:
        """What was read by the former settings is read again; a message that was under way goes again as far
        as the hook still wants it."""
        self.hook, self._size = hook, hook.batch
        self._queue.clear()
        self._letter, self._looked = None, self.progress.after
        self._resume()

    # What follows

    def _too_old(self, now: float) -> tuple[LayAside, ...]:
        if not self._gives_up(now):
            return ()
        progress = self.progress
        horizon = now - GIVE_UP_S
        old = tuple(takewhile(lambda item: item.at <= horizon, self._queue))
        if old:
            self._refused_alone = 0
            self._done_with(old, aside=True)
        return tuple(LayAside(item, progress.last_error, progress.failures) for item in old)

    def _gives_up(self, now: float) -> bool:
        """A receiver that came back meanwhile shows it by the next try: before that nothing is laid aside."""
        progress = self.progress
        since = progress.failing_since
        if not self._failed or progress.stopped or since is None:
            return False
        return now >= since + GIVE_UP_S and progress.failures >= GIVE_UP_TRIES

    def _done_with(self, items: tuple[Item, ...], *, aside: bool = False) -> None:
        """They are the first of the queue."""
        for _ in items:
            self._queue.popleft()
        self.progress = replace(
            self.progress,
            after=items[-1].event,
            until=None,
            laid_aside_total=self.progress.laid_aside_total + aside * len(items),
        )

    def _pass_over(self) -> None:
        """With nothing left of what was read, all that was looked at is done with."""
        if not self._queue and self._looked > self.progress.after:
            until = self.progress.until
            done = until is None or until <= self._looked
            self.progress = replace(self.progress, after=self._looked, until=None if done else until)

    def _next(self, now: float) -> Read | Post | Wait:
        if self.progress.stopped:
            return Wait(None)
        free_at = min(self.progress.not_before, now + RETRY_AFTER_MAX_S)  # a clock may be set back
        if now < free_at:
            old_may_be_there = self._gives_up(now) and not self._queue and not self._idle
            if old_may_be_there:
                return Read(self._looked, BATCH_MAX)
            return Wait(self._told_at(free_at, now))
        if self._letter is not None and not (self._letter_last and self._queue):
            self._letter_last = True
            return self._post((_item_of(self._letter),))
        if not self._idle and self._lacks_some() and (self._letter is None or self._lacks_some_of_same()):
            return Read(self._looked, BATCH_MAX)
        if not self._queue:
            return Wait(None)
        self._letter_last = False
        post = self._post(self._message())
        self.progress = replace(self.progress, until=post.items[-1].event)
        return post

    def _lacks_some(self) -> bool:
        """For the message that was under way, or to make the next one full."""
        if self.progress.until is not None:
            return self._lacks_some_of_same()
        return len(self._queue) < self._size

    def _lacks_some_of_same(self) -> bool:
        until = self.progress.until
        return until is not None and self._looked < until

    def _post(self, items: tuple[Item, ...]) -> Post:
        self._posted = items
        return Post(delivery_id(self.hook.name, items), items)

    def _message(self) -> tuple[Item, ...]:
        """What was under way, or the next ones."""
        until = self.progress.until
        if until is not None and (same := tuple(item for item in self._queue if item.event <= until)):
            return same
        chosen: list[Item] = []
        chars = 0
        for item in self._queue:
            chars += len(item.body)
            if len(chosen) >= self._size or (chosen and chars > MESSAGE_CHARS_MAX):
                break
            chosen.append(item)
        return tuple(chosen)

    def _unsaved(self, now: float, *, must: bool) -> HookProgress | None:
        if self.progress == self._saved:
            return None
        passed = replace(self._saved, after=self.progress.after) == self.progress
        if passed and not must and abs(now - self._saved_at) < PASSED_SAVE_S:
            return None
        self._saved, self._saved_at = self.progress, now
        return self.progress

    def _pause_s(self, event: NotTaken) -> float:
        doublings = min(self.progress.failures - 1, 32)  # beyond, only the number grows
        one_of_many = event.refused and not self._refuses_all()
        pause_s = min(PAUSE_MIN_S * 2.0**doublings, REFUSED_PAUSE_MAX_S if one_of_many else PAUSE_MAX_S)
        return max(pause_s, min(event.retry_after_s or 0.0, RETRY_AFTER_MAX_S))

    # What is seen

    @property
    def place(self) -> EventId:
        """What comes after it was not looked at yet."""
        return self._looked

    def is_failing(self, now: float) -> bool:
        """For so long that a person should know."""
        since = self.progress.failing_since
        return self.progress.stopped or (since is not None and now >= since + FAILING_S)

    def _told_at(self, free_at: float, now: float) -> float:
        """When to wake: also to tell that it fails for long."""
        since = self.progress.failing_since
        return min(free_at, since + FAILING_S) if since is not None and not self.is_failing(now) else free_at


def _item_of(letter: DeadLetter) -> Item:
    return Item(letter.event, letter.type, letter.at, letter.body)
