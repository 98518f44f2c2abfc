"""A courier, its store and its receiver in memory; a crash is a courier made anew from what was saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from evermirror.core.deliver.courier import Courier
from evermirror.core.deliver.decisions import (
    Decision,
    DeliveryEvent,
    Found,
    Item,
    LayAside,
    NotTaken,
    Post,
    Read,
    Taken,
    Wait,
    Woke,
)
from evermirror.model.delivery import DeadLetter, EventHook, HookProgress, LetterId
from evermirror.model.event import EventId

ANSWER = Taken | NotTaken
AWAY = NotTaken("HTTP 503")
REFUSED = NotTaken("HTTP 400", refused=True)
GONE = NotTaken("HTTP 410", gone=True)


class Crashed(Exception):
    """The process ended here."""


def item(number: int, at: float = 0.0, size: int = 10) -> Item:
    return Item(EventId(number), "refs.changed", at, "x" * size)


@dataclass
class World:
    """``answer`` is the receiver; ``step`` is called before everything that a crash could come between."""

    hook: EventHook = field(default_factory=lambda: EventHook("ci"))
    answer: Callable[[Post], ANSWER] = lambda _: Taken()
    step: Callable[[], None] = lambda: None
    now: float = 1_000_000.0
    events: list[Item] = field(default_factory=list)
    unwanted: set[int] = field(default_factory=set)
    letters: list[DeadLetter] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    taken: list[Post] = field(default_factory=list)
    page: int = 500
    saves: int = 0

    def __post_init__(self) -> None:
        self.saved = HookProgress(self.hook.name, EventId(0))
        self.start()

    def start(self) -> None:
        self.courier = Courier(self.hook, self.saved)
        self.event: DeliveryEvent = Woke()

    def add(self, *numbers: int, size: int = 10) -> None:
        self.events += [item(number, self.now, size) for number in numbers]

    def run(self) -> Wait:
        """Until it waits. A crash leaves what was saved and what the receiver has."""
        for _ in range(100_000):
            decision = self.courier.handle(self.event, self.now)
            self.event = Woke()
            self.step()
            self._save(decision)
            self.step()
            match decision.action:
                case Wait() as wait:
                    return wait
                case Read(after, limit):
                    self.event = self._read(after, limit)
                case Post() as post:
                    self.event = self._post(post)
        raise AssertionError("it never waits")

    def pass_time(self, until: float) -> None:
        """As the node does: woken when it asked to be."""
        while True:
            wait = self.run()
            if wait.until is None or wait.until > until:
                self.now = max(self.now, until)
                return
            self.now = max(wait.until, self.now)

    def _read(self, after: int, limit: int) -> Found:
        limit = min(limit, self.page)
        page = [one for one in self.events if one.event > after][:limit]
        again = next((letter for letter in self.letters if letter.again), None)
        wanted = tuple(one for one in page if one.event not in self.unwanted)
        up_to = page[-1].event if page else EventId(after)
        return Found(wanted, up_to, more=len(page) == limit, again=again)

    def _post(self, post: Post) -> ANSWER:
        self.posts.append(post)
        answer = self.answer(post)
        if isinstance(answer, Taken):
            self.taken.append(post)
        self.step()
        return answer

    def _save(self, decision: Decision) -> None:
        """One transaction."""
        self.letters += [self._letter(aside) for aside in decision.aside]
        if (end := decision.letter) is not None:
            kept = [letter for letter in self.letters if letter.id != end.id or not end.taken]
            self.letters = [
                replace(letter, again=False, reason=end.reason) if letter.id == end.id else letter
                for letter in kept
            ]
        if decision.progress is not None:
            self.saved = decision.progress
            self.saves += 1

    def _letter(self, aside: LayAside) -> DeadLetter:
        one = aside.item
        number = LetterId(max((letter.id for letter in self.letters), default=0) + 1)
        return DeadLetter(
            number, self.hook.name, one.event, one.type, one.body, aside.reason, aside.attempts, self.now
        )

    # What is looked at

    @property
    def posted(self) -> list[list[int]]:
        return [[one.event for one in post.items] for post in self.posts]

    @property
    def arrived(self) -> list[list[int]]:
        return [[one.event for one in post.items] for post in self.taken]

    @property
    def aside(self) -> list[int]:
        return [letter.event for letter in self.letters]
