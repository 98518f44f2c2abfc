"""Who is told what of an alert: notices made, taken back and given up, by what each channel knows.

| a channel                                   | is told                                                     |
|---------------------------------------------|-------------------------------------------------------------|
| wants it, and it is news                    | RAISED, or WORSE where it was told or is being told         |
| was told less than it is                    | WORSE                                                       |
| could not be told: too old, too many waited | what then stands, as one digest, once it takes a message;   |
|                                             | with nothing else to send, it is tried with the worst of it |
| is to be told less than it wants            | nothing: it is taken back, until it is more serious again   |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from evermirror.core.watch.draft import Draft
from evermirror.core.watch.events import AlertSettings
from evermirror.core.watch.kinds import CHANNEL_DOWN
from evermirror.core.watch.known import Known
from evermirror.core.watch.outbox import Outbox, may_have_arrived, was_missed
from evermirror.core.watch.silences import Silences
from evermirror.core.watch.standing import Standing
from evermirror.model.alert import AlertId, AlertRecord, Notice, NoticeId, Turn

OVER_BEFORE = "over before it was sent"
NOT_WORSE = "less serious again before it was sent"
UNNEEDED = frozenset({OVER_BEFORE, NOT_WORSE})  # given up, and nobody misses anything


class Telling:
    """``outboxes`` are the book's, by channel: they may be others from one call to the next."""

    def __init__(self, standing: Standing, silences: Silences, next_notice_id: int) -> None:
        self.outboxes: Mapping[str, Outbox] = {}
        self._standing = standing
        self._silences = silences
        self._next_notice_id = next_notice_id
        self._known = Known()

    def restore(self, notice: Notice, settings: AlertSettings) -> None:
        """Of an alert that stands, in the order of their ids."""
        alert = alert_of(notice)
        if notice.turn is Turn.OVER:
            return
        if may_have_arrived(notice):
            self._known.told(alert, notice.channel, notice.level)
        elif notice.given_up_at is None:
            return
        elif notice.error.endswith(NOT_WORSE):
            self._known.taken_back(alert, notice.channel)
        elif was_missed(notice, settings):
            self._known.missed(alert, notice.channel)
        else:
            self._known.refused(alert, notice.channel, notice.level)

    # It stands

    def tell(self, record: AlertRecord, now: float, draft: Draft) -> AlertRecord:
        """Everybody who wants to know and does not know how serious it is, unless it is covered."""
        alert = record.alert
        is_news = record.noticed is None or alert.level.rank > record.noticed.rank
        lacking = [outbox for outbox in self.outboxes.values() if self._is_to_tell(record, outbox, is_news)]
        if not (is_news or lacking) or self._silences.covers(alert):
            return record
        for outbox in lacking:
            self._tell_channel(record, outbox, now, draft)
        return replace(record, noticed=alert.level) if is_news else record

    def _is_to_tell(self, record: AlertRecord, outbox: Outbox, is_news: bool) -> bool:
        alert, name = record.alert, outbox.channel.name
        if not outbox.channel.wants(alert) or alert.identity == (CHANNEL_DOWN, name):
            return False
        lacks = not outbox.of(record.id) and self._known.lacks(record.id, name, alert.level)
        return is_news or lacks

    def _tell_channel(self, record: AlertRecord, outbox: Outbox, now: float, draft: Draft) -> None:
        of_it = outbox.of(record.id)
        self._known.is_told(record.id, outbox.channel.name)
        if all(outbox.is_under_way(notice) for notice in of_it):
            known = bool(of_it) or self._known.knows(record.id, outbox.channel.name)
            self._notify(record, outbox, Turn.WORSE if known else Turn.RAISED, now, draft)

    def take_back(self, record: AlertRecord, now: float, draft: Draft) -> None:
        """What waits to say that it is worse, where it is not, or no longer; and what waits to say that it
        began, where that is no longer wanted."""
        level = record.alert.level
        for name, outbox in self.outboxes.items():
            of_it = outbox.of(record.id)
            waiting = [notice for notice in of_it if not outbox.is_under_way(notice)]
            known = self._known.level(record.id, name)
            if known is not None:
                stale = level.rank <= known.rank and all(n.turn is Turn.WORSE for n in waiting)
            else:
                stale = len(waiting) == len(of_it) and not outbox.channel.wants(record.alert)
            if stale and waiting:
                draft.save_notices(outbox.give_up(waiting, NOT_WORSE, now))
                self._known.taken_back(record.id, name)

    def _notify(self, record: AlertRecord, outbox: Outbox, turn: Turn, now: float, draft: Draft) -> None:
        notice = Notice(
            NoticeId(self._next_notice_id),
            outbox.channel.name,
            record.id,
            turn,
            now,
            level=record.alert.level,
        )
        self._next_notice_id += 1
        outbox.put(notice, held=self.is_covered(notice))
        draft.save_notices([notice])

    def is_covered(self, notice: Notice) -> bool:
        return self._silences.covers(self._standing[alert_of(notice)].alert)

    # It is over

    def tell_end(self, record: AlertRecord, now: float, draft: Draft) -> None:
        self._known.ended(record.id)
        for outbox in self.outboxes.values():
            waiting = outbox.of(record.id)
            if self._may_know(record.id, outbox, waiting, now):
                self._notify(record, outbox, Turn.OVER, now, draft)
            elif waiting:
                draft.save_notices(outbox.give_up(waiting, OVER_BEFORE, now))
        self._forget(record.id)

    def _may_know(self, alert: AlertId, outbox: Outbox, waiting: Iterable[Notice], now: float) -> bool:
        """Or is to know, because it would have been told long ago, had it not failed."""
        if self._known.knows(alert, outbox.channel.name):
            return True
        return any(outbox.failed_long(now) or outbox.is_under_way(notice) for notice in waiting)

    def _forget(self, alert: AlertId) -> None:
        """An ended one that nothing waits to tell of."""
        if alert not in self._standing or self._standing[alert].stands:
            return
        if not any(outbox.of(alert) for outbox in self.outboxes.values()):
            self._standing.forget(alert)
            self._known.forget(alert)

    # What became of messages

    def sent(self, notices: Iterable[Notice], channel: str) -> tuple[AlertId, ...]:
        """Of which it now knows how serious they are."""
        told = [notice for notice in notices if notice.turn is not Turn.OVER]
        for notice in told:
            self._known.told(alert_of(notice), channel, notice.level)
        return tuple(dict.fromkeys(alert_of(notice) for notice in told))

    def works(self, outbox: Outbox) -> tuple[AlertRecord, ...]:
        """It takes messages: what it missed and stands may be told, the most serious first, as many as there
        is room for."""
        again = self._missed(outbox)[: outbox.room]
        self._known.reopen(outbox.channel.name, [record.id for record in again])
        return tuple(again)

    def _missed(self, outbox: Outbox) -> list[AlertRecord]:
        name = outbox.channel.name
        missed = (self._standing[alert] for alert in self._known.missed_by(name))
        lacking = [
            record
            for record in missed
            if outbox.channel.wants(record.alert) and self._known.is_more(record.id, name, record.alert.level)
        ]
        return sorted(lacking, key=lambda record: (-record.alert.level.rank, record.id))

    def try_on(self, outbox: Outbox, now: float, draft: Draft) -> None:
        """With nothing to send, whether it takes messages would be known only at the next alert."""
        if outbox.is_empty and (missed := self._missed(outbox)):
            free = (record for record in missed if not self._silences.covers(record.alert))
            self._tell_channel(next(free, missed[0]), outbox, now, draft)

    def failed(self, notices: Iterable[Notice], outbox: Outbox, now: float, draft: Draft) -> None:
        """Beginnings that were under way when their alert ended, and did not arrive: then nobody needs the
        end either."""
        tried = tuple(notices)
        for alert in dict.fromkeys(alert_of(notice) for notice in tried):
            told_end = any(notice.alert == alert and notice.turn is Turn.OVER for notice in tried)
            waiting = outbox.of(alert)
            ended_meanwhile = waiting and not self._standing[alert].stands and not told_end
            if ended_meanwhile and not self._may_know(alert, outbox, waiting, now):
                draft.save_notices(outbox.give_up(waiting, OVER_BEFORE, now))
                self._forget(alert)

    def given_up(self, notices: Iterable[Notice], draft: Draft, *, missed: bool) -> None:
        """``missed``: the channel is told once it takes messages; otherwise it is never told that again."""
        ended = tuple(notices)
        if not ended:
            return
        draft.save_notices(ended)
        draft.log(f"{ended[0].channel}: notices given up: {len(ended)} ({ended[-1].error})")
        for notice in ended:
            alert = alert_of(notice)
            if alert not in self._standing or not self._standing[alert].stands:
                continue
            if missed:
                self._known.missed(alert, notice.channel)
            else:
                self._known.refused(alert, notice.channel, notice.level)
        self.forget_all(ended)

    def forget_all(self, notices: Iterable[Notice]) -> None:
        for alert in {alert_of(notice) for notice in notices}:
            self._forget(alert)


def alert_of(notice: Notice) -> AlertId:
    if notice.alert is None:
        raise ValueError(f"a test waits for nothing, and is not kept here: notice {notice.id}")
    return notice.alert
