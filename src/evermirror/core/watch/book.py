"""The book of alerts: what stands, who is told of it, and that nobody is told twice. It only routes.

    Told, Stand ───────────▶ standing.py   which alerts stand; a row of the history for each
                                 │ more serious than what people know of it
    Silenced, Unsilenced ──▶ silences.py   unless covered
                                 │
                             telling.py    a notice for each channel that wants it and does not know it
                                 │
    Sent, NotSent ─────────▶ outbox.py     one for each channel: what waits, is under way; rate and pauses
                                 │ what may go now, as one message
                             texts.py      in the reader's language ──▶ Send

An alert, as one channel gets to know of it:

    unknown ──raised, or a silence ended──▶ RAISED waits ──sent──▶ told ──more serious──▶ WORSE waits
      ▲  ▲                                   │      │              │  ▲                     │    │
      │  └──── ended: it is given up ────────┘      │        ended │  └──────── sent ───────┘    │ ended
      │                                       ended, and it fails  │                             │
      │                                       for more than 5 min  │                             │
      │                                             ▼              ▼                             │
      └─────────── sent, or given up ────────── OVER waits ◀───────┴─────────────────────────────┘

| event                                  | what follows                                                     |
|----------------------------------------|------------------------------------------------------------------|
| raised                                 | a record; RAISED for each channel that wants it, if not covered  |
| told again, no more serious than known | the record says what was told last                               |
| told again, more serious               | WORSE for who knows of it, RAISED for who wants it only now;     |
|                                        | where a notice of it waits, that one tells it                    |
| less serious again, WORSE still waits  | it is given up: of an alert that stands, a channel is only told  |
|                                        | what is more serious than what it was told before; so is RAISED  |
|                                        | for a channel that does not want so little                       |
| more serious again                     | WORSE for each channel that was told less                        |
| over                                   | the record ends; OVER for each channel that knows, or may        |
| over, and RAISED still waits           | neither is sent; where the channel fails for more than 5 minutes,|
|                                        | both are: one item that says it was, and is over                 |
| raised after it was over               | another record: another alert                                    |
| a silence begins                       | notices that wait are held; none is made but OVER, which is held |
| a silence ends                         | held ones go; what stands and grew worse or began is told        |
| the end of a message is lost by a crash| it is sent again; who may have been told the beginning, is told  |
|                                        | the end                                                          |
| a restart                              | what nobody tells of again within ``settle_s`` is over; a clock  |
|                                        | that is set forward does not count                               |
| a channel fails for long, or gives up  | ``channel-down`` about it, told by the others, until it sends,   |
|                                        | has nothing left to send, or is no more                          |
| it takes messages after it gave up     | what stands and it could not be told, as one digest              |
| too many stand                         | ``alerts-overflow``, until there is room; those told again come  |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from evermirror.core.watch.draft import Draft
from evermirror.core.watch.events import (
    AlertDecision,
    AlertEvent,
    AlertSettings,
    NotSent,
    RestoredAlerts,
    Sent,
    Silenced,
    Stand,
    Told,
    Unsilenced,
    Woke,
)
from evermirror.core.watch.kinds import ALERTS_OVERFLOW, CHANNEL_DOWN
from evermirror.core.watch.outbox import Outbox
from evermirror.core.watch.own import EVERYTHING, down, overflow
from evermirror.core.watch.silences import Silences
from evermirror.core.watch.standing import Standing
from evermirror.core.watch.telling import Telling, alert_of
from evermirror.core.watch.texts import NOT_SEEN_AGAIN, compose
from evermirror.model.alert import (
    Alert,
    AlertRecord,
    ChannelState,
    Level,
    Notice,
    NoticeId,
    Silence,
    SilenceId,
)

NOBODYS = "its channel is no longer in the settings"
STEP_MAX_S = 60.0  # between two looks while something settles: what is more, is a clock that was set


class AlertBook:
    """One door, ``handle``; the rest are views. Give it ``Woke`` once after a restart."""

    def __init__(self, settings: AlertSettings, restored: RestoredAlerts, now: float) -> None:
        self.settings = settings
        self._standing = Standing(
            restored.standing, restored.ended, restored.next_alert_id, settings.standing_max
        )
        self._silences = Silences(restored.silences, restored.next_silence_id, settings.silences_max)
        self._outboxes = {channel.name: Outbox(channel, settings) for channel in settings.channels}
        next_notice_id = max([restored.next_notice_id, *(n.id + 1 for n in restored.notices)])
        self._telling = Telling(self._standing, self._silences, next_notice_id)
        self._nobodys: list[Notice] = []  # of channels that are no more
        self._seen_at, self._lived_s = now, 0.0
        self._overflows = self._standing.find(ALERTS_OVERFLOW, EVERYTHING) is not None
        self._restore(restored, now)

    def _restore(self, restored: RestoredAlerts, now: float) -> None:
        self._telling.outboxes = self._outboxes
        by_channel: dict[str, list[Notice]] = {name: [] for name in self._outboxes}
        for notice in sorted(restored.notices, key=lambda notice: notice.id):
            if notice.channel in by_channel:
                by_channel[notice.channel].append(notice)
            elif notice.waits:
                self._nobodys.append(notice)
            if notice.alert in self._standing and self._standing[alert_of(notice)].stands:
                self._telling.restore(notice, self.settings)
        for name, notices in by_channel.items():
            outbox = self._outboxes[name]
            outbox.restore(notices, self._standing.find(CHANNEL_DOWN, name), now)
            outbox.hold(self._telling.is_covered)

    def configure(self, settings: AlertSettings) -> None:
        """Other settings, at any time: what stands, waits and is under way stays, and so does a doubt about
        what stood before a restart. Give it ``Woke`` afterwards: what follows is decided then."""
        before, self.settings = self._outboxes, settings
        self._standing.configure(settings.standing_max)
        self._silences.configure(settings.silences_max)
        self._outboxes = {}
        for channel in settings.channels:
            kept = channel.name in before
            outbox = before.pop(channel.name) if kept else Outbox(channel, settings)
            outbox.configure(channel, settings)
            self._outboxes[channel.name] = outbox
        self._telling.outboxes = self._outboxes
        self._nobodys += [notice for outbox in before.values() for notice in outbox.all]

    # Views

    def free_at(self, channel: str, now: float) -> float:
        """When a message that is no notice, such as a person's test, may go; ``now``: at once."""
        outbox = self._outboxes.get(channel)
        return now if outbox is None else outbox.test_at(now)

    def standing(self) -> tuple[AlertRecord, ...]:
        """The oldest first."""
        return tuple(self._standing)

    def silences(self) -> tuple[Silence, ...]:
        return tuple(self._silences)

    def silence_of(self, alert: Alert) -> SilenceId | None:
        silence = self._silences.of(alert)
        return None if silence is None else silence.id

    def channels(self) -> tuple[ChannelState, ...]:
        return tuple(outbox.state for outbox in self._outboxes.values())

    # The door

    def handle(self, event: AlertEvent, now: float) -> AlertDecision:
        draft = Draft()
        self._lived_s += min(max(now - self._seen_at, 0.0), STEP_MAX_S)
        self._seen_at = now
        self._end_silences(now, draft)
        match event:
            case Told(alert):
                self._told(alert, now, draft)
            case Stand(kinds, alerts):
                self._stand(kinds, alerts, now, draft)
            case Silenced():
                self._silence(event, now, draft)
            case Unsilenced(silence, by):
                self._unsilence(silence, by, now, draft)
            case Sent(channel, ids):
                self._sent(channel, ids, now, draft)
            case NotSent():
                self._not_sent(event, now, draft)
            case Woke():
                pass
        self._settle(now, draft)
        for outbox in self._outboxes.values():
            outbox.calm_down()
        self._mind_itself(now, draft)
        self._send(now, draft)
        return draft.decision(self._wake_at(now))

    def _wake_at(self, now: float) -> float | None:
        left_s = max(0.0, self.settings.settle_s - self._lived_s)
        settling = now + min(left_s, STEP_MAX_S) if self._standing.settles else inf
        outboxes = (outbox.wake_at(now) for outbox in self._outboxes.values())
        at = min(settling, self._silences.next_end, *outboxes)
        return None if at == inf else at

    # What stands

    def _told(self, alert: Alert, now: float, draft: Draft) -> None:
        record = self._standing.find(*alert.identity)
        if alert.over:
            if record is not None:
                self._end(record, alert.text, now, draft)
        elif record is not None:
            self._standing.confirm(record.id)
            if record.alert != alert:
                record = replace(record, alert=alert, changed_at=now)
                self._put(record, draft)
                self._telling.take_back(record, now, draft)
            self._tell(record, now, draft)
        elif self._standing.has_room(alert):
            record = self._standing.begin(alert, now)
            draft.save(record)
            self._tell(record, now, draft)
        else:
            self._overflows = True

    def _stand(self, kinds: frozenset[str], alerts: Iterable[Alert], now: float, draft: Draft) -> None:
        alerts = tuple(alerts)
        stands = {alert.identity for alert in alerts}
        for record in self._standing.of_kinds(kinds):
            if record.alert.identity not in stands:
                self._end(record, "", now, draft)
        for alert in sorted(alerts, key=lambda alert: -alert.level.rank):  # after the ends: they make room
            self._told(alert, now, draft)

    def _settle(self, now: float, draft: Draft) -> None:
        if self._lived_s >= self.settings.settle_s:
            for record in self._standing.unconfirmed:
                self._end(record, NOT_SEEN_AGAIN, now, draft)

    def _put(self, record: AlertRecord, draft: Draft) -> None:
        self._standing.put(record)
        draft.save(record)

    def _end(self, record: AlertRecord, text: str, now: float, draft: Draft) -> None:
        record = self._standing.end(record, text, now)
        draft.save(record)
        self._telling.tell_end(record, now, draft)

    def _tell(self, record: AlertRecord, now: float, draft: Draft) -> None:
        told = self._telling.tell(record, now, draft)
        if told is not record:
            self._put(told, draft)

    # Silences

    def _silence(self, event: Silenced, now: float, draft: Draft) -> None:
        silence = self._silences.begin(event, now)
        if silence is None:
            draft.log(f"not silenced: {event.kind} {event.about} by {event.by}")
            return
        draft.save_silence(silence)
        draft.log(f"silenced by {silence.by}: {silence.kind} {silence.about}: {silence.reason}")
        for outbox in self._outboxes.values():
            outbox.hold(self._telling.is_covered)

    def _unsilence(self, silence: SilenceId, by: str, now: float, draft: Draft) -> None:
        ended = self._silences.end(silence)
        if ended is not None:
            draft.log(f"no longer silenced, by {by}: {ended.kind} {ended.about}")
            self._silences_ended([ended], now, draft)

    def _end_silences(self, now: float, draft: Draft) -> None:
        ended = self._silences.end_due(now)
        if ended:
            self._silences_ended(ended, now, draft)

    def _silences_ended(self, ended: Iterable[Silence], now: float, draft: Draft) -> None:
        for silence in ended:
            draft.remove_silence(silence.id)
        for outbox in self._outboxes.values():
            draft.save_notices(outbox.release(self._telling.is_covered, now))
        for record in tuple(self._standing):
            self._tell(record, now, draft)

    # What is sent

    def _send(self, now: float, draft: Draft) -> None:
        for outbox in self._outboxes.values():
            self._telling.given_up(outbox.trim(self._rank, now), draft, missed=True)
            self._telling.try_on(outbox, now, draft)
            notices = outbox.take(self._level, now)
            if notices:
                draft.save_notices(notices)
                told = [(notice, self._standing[alert_of(notice)]) for notice in notices]
                draft.send(outbox.channel.name, notices, compose(told, outbox.channel, self.settings, now))

    def _level(self, notice: Notice) -> Level:
        return self._standing[alert_of(notice)].alert.level

    def _rank(self, notice: Notice) -> int:
        return self._level(notice).rank

    def _sent(self, channel: str, ids: tuple[NoticeId, ...], now: float, draft: Draft) -> None:
        outbox = self._outboxes.get(channel)
        if outbox is None or not outbox.expects(ids):
            return
        done = outbox.sent(ids, now)
        draft.save_notices(done)
        for alert in self._telling.sent(done, channel):
            if self._standing[alert].stands:
                self._telling.take_back(self._standing[alert], now, draft)
                self._tell(self._standing[alert], now, draft)
        for record in self._telling.works(outbox):
            self._tell(record, now, draft)
        self._telling.forget_all(done)

    def _not_sent(self, event: NotSent, now: float, draft: Draft) -> None:
        outbox = self._outboxes.get(event.channel)
        if outbox is None or not outbox.expects(event.ids):
            return
        kept, too_old, refused = outbox.failed(event, now)
        draft.save_notices(kept)
        self._telling.given_up(refused, draft, missed=False)
        self._telling.given_up(too_old, draft, missed=True)
        self._telling.failed((*kept, *too_old, *refused), outbox, now, draft)
        outbox.hold(self._telling.is_covered)

    # Its own alerts

    def _mind_itself(self, now: float, draft: Draft) -> None:
        nobodys, self._nobodys = self._nobodys, []
        ended = [replace(notice, given_up_at=now, error=NOBODYS) for notice in nobodys]
        self._telling.given_up(ended, draft, missed=False)
        for record in self._standing.of_kinds({CHANNEL_DOWN}):
            if record.alert.about not in self._outboxes:
                self._end(record, NOBODYS, now, draft)
        for name, outbox in self._outboxes.items():
            is_down, known = outbox.is_down(now), self._standing.find(CHANNEL_DOWN, name)
            if is_down:
                self._told(down(outbox.state), now, draft)
            elif known is not None:
                self._told(down(outbox.state, since=known.raised_at), now, draft)
        self._overflows = self._overflows and self._standing.is_full
        if self._overflows or self._standing.find(ALERTS_OVERFLOW, EVERYTHING) is not None:
            self._told(overflow(self.settings.standing_max, over=not self._overflows), now, draft)
