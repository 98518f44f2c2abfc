"""Alerts on their way: what is told is decided by the book, stored, and sent.

    told, stand ──▶ inbox ──▶ AlertBook ──▶ edge/store ──▶ sends, one task for each channel
                      ▲                                      │
                      └──────────── Sent, NotSent ───────────┘

- Telling never waits. While the database is in trouble nothing more is decided: what is told waits in the
  inbox, which is bounded, and so no alert is lost by that.
- Nothing is sent before it is stored. A channel that is slow, or away, holds up no other.
- Other settings count from the next decision on: nothing is waited for, and what is under way goes on.
- At a stop, what was told is stored, and what is being sent has some seconds to end. What is not known to
  have ended is the book's to judge at the next start. A database that does not answer is not waited for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import structlog

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import (
    AlertDecision,
    AlertEvent,
    AlertSaved,
    AlertSettings,
    AlertWrite,
    NoticeSaved,
    NotSent,
    Send,
    Sent,
    Stand,
    Told,
    Woke,
)
from evermirror.core.watch.kinds import FLEET_KINDS, PART_KINDS, REPO_KINDS
from evermirror.core.watch.telling import UNNEEDED
from evermirror.edge.notify import sender
from evermirror.edge.store.failures import is_refusal
from evermirror.edge.store.store import Store
from evermirror.model.alert import Alert, AlertRecord, ChannelState, Level, Message, Notice, NoticeId
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.nodes.alert_service import AlertFigures, NoticeEnd
from evermirror.nodes.coordinator.alerts.alert_inbox import AlertInbox, Entry
from evermirror.nodes.running import in_time

log = structlog.get_logger(__name__)

AT_ONCE = 200  # events decided and stored together
SEND_MAX_S = 60.0  # senders end sooner by themselves
RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0  # a database in trouble is tried again
SLEEP_MIN_S = 0.05  # between two looks at what is due
SLEEP_MAX_S = 60.0  # the wall clock may be set: the next time is looked up again this often
CLEAN_EVERY_S = 6 * 3600.0
ANSWER_S = 10.0  # a person waits at most so long for the database
STOP_S = 3.0  # at a stop, for what is under way
SHOWN = 20  # in the overview
_TOLD_ELSEWHERE = (
    FLEET_KINDS | REPO_KINDS | PART_KINDS
)  # the overview tells of these from what it knows itself


class Alerting:
    """``told`` and ``stand`` at any time; ``run`` beside the rest, and longer than who tells."""

    def __init__(
        self,
        book: AlertBook,
        *,
        store: Store,
        senders: Mapping[str, sender.Sender],
        clock: Callable[[], float],
    ) -> None:
        self.book = book
        self.senders = senders
        self._store = store
        self._clock = clock
        self._inbox = AlertInbox()
        self._poke = asyncio.Event()
        self._wake_at: float | None = None
        self._clean_at = clock()
        self._configured: tuple[AlertSettings, Mapping[str, sender.Sender]] | None = None
        self._lost = 0
        self._unsaved: Sequence[AlertWrite] = ()
        self._stale = False  # the book may have taken in half an event
        self._trouble: Failure | None = None  # of the database, now
        self._sending: set[asyncio.Task[None]] = set()
        self._storing: asyncio.Task[None] | None = None  # the latest
        self._cleaning: asyncio.Task[None] | None = None
        self._remarks: dict[str, tuple[sender.Sender, str]] = {}  # of what was taken last, by channel
        self._logged = {record.id: record.alert.level for record in book.standing()}
        self._ends: Counter[tuple[str, NoticeEnd]] = Counter()

    @classmethod
    async def load(
        cls,
        settings: AlertSettings,
        *,
        store: Store,
        senders: Mapping[str, sender.Sender],
        clock: Callable[[], float],
    ) -> Alerting:
        """With what stood, and what was still to be sent, at the last stop."""
        book = AlertBook(settings, await store.load_alerts(), clock())
        return cls(book, store=store, senders=senders, clock=clock)

    def configure(self, settings: AlertSettings, senders: Mapping[str, sender.Sender]) -> None:
        """Other channels, from soon on; what stands and what waits stays."""
        self._configured = settings, senders
        self._poke.set()

    # Telling

    def told(self, alert: Alert) -> None:
        self.hear(Told(alert))

    def stand(self, kinds: frozenset[str], alerts: Iterable[Alert]) -> None:
        self.hear(Stand(kinds, tuple(self._heeded(alerts))))

    def stands(self, kinds: frozenset[str]) -> tuple[Alert, ...]:
        return tuple(record.alert for record in self.book.standing() if record.alert.kind in kinds)

    def _heeded(self, alerts: Iterable[Alert]) -> Iterator[Alert]:
        """Those that stand, and more than there is room for, also by their levels: then it is told that there
        are too many."""
        known = {record.alert.identity for record in self.book.standing()}
        room = 2 * self.book.settings.standing_max + 1
        for alert in alerts:
            if alert.identity in known:
                yield alert
            elif room:
                room -= 1
                yield alert

    def hear(self, event: AlertEvent) -> None:
        self._inbox.put(event)
        self._poke.set()

    async def ask(self, event: AlertEvent) -> AlertDecision:
        """What followed from a person's wish, once it is stored. Raises ``FailureError``."""
        if self._trouble is not None:
            raise FailureError(self._trouble)
        answer: asyncio.Future[AlertDecision] = asyncio.get_running_loop().create_future()
        self._inbox.put(event, answer)
        self._poke.set()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            slow = Failure(FailureKind.UNKNOWN, "the database does not take this in time", hint="Look again")
            raise FailureError(self._trouble or slow) from None

    # Looking

    @property
    def standing(self) -> tuple[AlertRecord, ...]:
        """The most serious first, then the oldest."""
        return tuple(sorted(self.book.standing(), key=lambda record: -record.alert.level.rank))

    def channels(self) -> tuple[ChannelState, ...]:
        """Of one that does not fail, ``error`` is what the other side has against what it took last."""
        return tuple(
            replace(state, error=state.error or self._remark(state.name)) for state in self.book.channels()
        )

    def _remark(self, channel: str) -> str:
        """Other settings make another sender: what was said of the former does not count."""
        through, remark = self._remarks.get(channel, (None, ""))
        return remark if through is self.senders.get(channel) else ""

    def warnings(self) -> tuple[str, ...]:
        """As the overview tells them: with the level, where it is more than a warning."""
        alerts = [record.alert for record in self.standing if record.alert.kind not in _TOLD_ELSEWHERE]
        more = len(alerts) - SHOWN
        rest = (f"{more} more alerts: `evermirror alerts list`",) if more > 0 else ()
        return (*map(_shown, alerts[:SHOWN]), *rest)

    def figures(self) -> AlertFigures:
        levels = Counter(record.alert.level for record in self.book.standing())
        return AlertFigures({level: levels[level] for level in Level}, dict(self._ends), self.book.channels())

    # Life

    async def run(self) -> None:
        """Until cancelled. Called again after a failure, it begins with what is stored, as after a restart:
        what was being sent is sent again, and what stands is told again by those who look at it."""
        if self._stale:
            self.book = AlertBook(self.book.settings, await self._store.load_alerts(), self._clock())
            self._unsaved, self._stale = (), False
        try:
            await self._take([Entry(Woke())])
            while True:
                self._clean_when_due()
                await self._until_something()
                if self._configured is not None:
                    await self._reconfigure(*self._configured)
                await self._take(self._inbox.take(AT_ONCE) or [Entry(Woke())])
        except Exception:
            self._stale = True
            raise
        finally:
            try:
                await in_time(self._end(), STOP_S)
            finally:
                await self._stop_sending()

    async def _until_something(self) -> None:
        now = self._clock()
        wait_s = SLEEP_MAX_S if self._wake_at is None else self._wake_at - now
        try:
            async with asyncio.timeout(max(SLEEP_MIN_S, min(wait_s, SLEEP_MAX_S))):
                while not self._inbox and self._configured is None:
                    self._poke.clear()
                    await self._poke.wait()
        except TimeoutError:
            return

    async def _reconfigure(self, settings: AlertSettings, senders: Mapping[str, sender.Sender]) -> None:
        self._configured = None
        self.book.configure(settings)
        self.senders = senders
        await self._take([Entry(Woke())])
        log.info("channels of alerts", channels=[channel.name for channel in settings.channels])

    async def _take(self, entries: Sequence[Entry]) -> None:
        now = self._clock()
        wanted = [entry for entry in entries if entry.answer is None or not entry.answer.done()]
        decided = [(entry, self.book.handle(entry.event, now)) for entry in wanted]
        for entry, decision in decided:
            self._count(entry.event, decision)
            self._log(decision)
            self._wake_at = decision.wake_at
        await self._save([write for _, decision in decided for write in decision.writes])
        for entry, decision in decided:
            for send in decision.sends:
                task = asyncio.create_task(self._send(send))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            if entry.answer is not None and not entry.answer.done():
                entry.answer.set_result(decision)

    async def _save(self, writes: Sequence[AlertWrite]) -> None:
        """What the database refuses for what is in it is set aside, and the rest is stored."""
        self._unsaved = writes
        parts = [writes]  # the next one is the last
        while parts:
            part = parts.pop()
            refusal = await self._refusal(part)
            if refusal is not None and len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            elif refusal is not None:
                log.error("a write of alerts was set aside", write=type(part[0]).__name__, exc_info=refusal)
        self._unsaved = ()

    async def _refusal(self, writes: Sequence[AlertWrite]) -> Exception | None:
        """Why they are refused; None once they are stored: the database is tried again and again."""
        delay_s = RETRY_MIN_S
        while True:
            try:
                await self._store_apart(writes)
            except FailureError as error:
                if self._trouble is None:
                    log.error("alerts wait for the database", reason=error.failure.message)
                self._trouble = error.failure
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)
                continue
            except Exception as error:
                if writes and is_refusal(error):
                    return error
                raise
            if self._trouble is not None:
                log.info("the database takes alerts again", waiting=len(self._inbox))
                self._trouble = None
            return None

    async def _store_apart(self, writes: Sequence[AlertWrite]) -> None:
        """In a task of its own, as a transaction cannot be cancelled: a stop leaves it behind. Never two at
        once: the older must not overwrite the newer."""
        if self._storing is not None:
            await asyncio.wait({self._storing})
        self._storing = asyncio.create_task(self._store.save_alerts(writes))
        await asyncio.wait({self._storing})
        await self._storing

    def _clean_when_due(self) -> None:
        """Beside the rest, which does not wait for it."""
        if self._cleaning is not None and self._cleaning.done():
            cleaning, self._cleaning = self._cleaning, None
            cleaning.result()
        now = self._clock()
        if self._cleaning is None and now >= self._clean_at:
            self._clean_at = now + CLEAN_EVERY_S
            self._cleaning = asyncio.create_task(self._clean(now - self.book.settings.retention_s))

    async def _clean(self, before: float) -> None:
        try:
            removed = await self._store.clean_alerts(before)
        except FailureError as error:
            log.warning("old alerts are not removed", reason=error.failure.message)
            return
        if removed:
            log.info("old alerts removed", alerts=removed)

    # Sending

    async def _send(self, send: Send) -> None:
        if send.channel in self.senders:  # other settings may have come just now
            self.hear(await self.deliver(send.channel, send.message, send.ids))

    async def deliver(self, channel: str, message: Message, ids: tuple[NoticeId, ...] = ()) -> Sent | NotSent:
        """To the channel itself, whatever waits for it."""
        try:
            async with asyncio.timeout(SEND_MAX_S):
                through = self.senders[channel]
                remark = await through.send(message)
        except sender.NotSent as error:
            return NotSent(channel, ids, error.reason, error.permanent, error.retry_after_s)
        except TimeoutError:
            return NotSent(channel, ids, f"no answer within {SEND_MAX_S:g} s")
        except Exception as error:
            log.exception("a channel broke", channel=channel)
            return NotSent(channel, ids, f"a bug of ours: {type(error).__name__}")
        self._remarks[channel] = through, remark or ""
        return Sent(channel, ids)

    # The end

    async def _end(self) -> None:
        """What was told is stored, what is being sent ends, and what that means is stored too."""
        await self._save(self._unsaved)
        while True:
            if self._inbox:
                await self._take(self._inbox.take(AT_ONCE))
            elif self._sending:
                await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
            else:
                break
        if self._cleaning is not None:
            self._cleaning.cancel()
            await asyncio.wait({self._cleaning})

    async def _stop_sending(self) -> None:
        tasks = list(self._sending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Figures and lines

    def _count(self, event: AlertEvent, decision: AlertDecision) -> None:
        for write in decision.writes:
            if isinstance(write, NoticeSaved):
                end = _end_of(event, write.notice)
                if end is not None:
                    self._ends[write.notice.channel, end] += 1

    def _log(self, decision: AlertDecision) -> None:
        for write in decision.writes:
            if isinstance(write, AlertSaved):
                self._log_record(write.record)
        for line in decision.logs:
            log.info(line)
        if self._inbox.lost > self._lost:
            log.error("too many alerts wait for the database: the oldest are lost", alerts=self._inbox.lost)
            self._lost = self._inbox.lost

    def _log_record(self, record: AlertRecord) -> None:
        """At its level where it begins, and again where it becomes more serious."""
        alert, logged = record.alert, self._logged.get(record.id)
        if not record.stands:
            self._logged.pop(record.id, None)
            log.info(record.end_text or f"no longer: {alert.text}", alert_over=alert.kind, about=alert.about)
        elif logged is None or alert.level.rank > logged.rank:
            tell = getattr(log, alert.level.value)
            tell(alert.text, alert=True, kind=alert.kind, about=alert.about, id=record.id)
            self._logged[record.id] = alert.level


def _shown(alert: Alert) -> str:
    return alert.text if alert.level is Level.WARNING else f"{alert.level.value}: {alert.text}"


def _end_of(event: AlertEvent, notice: Notice) -> NoticeEnd | None:
    if notice.given_up_at is not None:
        return None if notice.error in UNNEEDED else NoticeEnd.GIVEN_UP
    if isinstance(event, Sent) and notice.sent_at is not None:
        return NoticeEnd.SENT
    return NoticeEnd.FAILED if isinstance(event, NotSent) and notice.id in event.ids else None
