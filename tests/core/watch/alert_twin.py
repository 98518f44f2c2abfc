"""The dumb twin of the alert book: its rules as one reads them, over flat lists that are walked each time.

Nothing is indexed or remembered that can be seen from the rows: who knows of an alert, what is held by a
silence, what may go. No restarts: for those, see alert_days.py. How many go in one message is asked of the
book's own portion.py, which has its own tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from evermirror.core.watch.events import (
    AlertEvent,
    AlertSettings,
    Channel,
    NotSent,
    Sent,
    Silenced,
    Stand,
    Told,
    Unsilenced,
)
from evermirror.core.watch.portion import Portion
from evermirror.model.alert import (
    Alert,
    AlertId,
    AlertRecord,
    Level,
    Notice,
    NoticeId,
    Silence,
    SilenceId,
    Turn,
)

OWN = ("channel-down", "alerts-overflow")


@dataclass
class Line:
    """What a twin knows of a channel besides the rows."""

    under_way: tuple[NoticeId, ...] = ()
    tried_at: list[float] = field(default_factory=list)
    failures: int = 0
    not_before: float = 0.0
    failing_since: float | None = None
    gave_up: bool = False
    error: str = ""
    sent_at: float | None = None
    portion: Portion = field(default_factory=Portion)
    missed: set[AlertId] = field(default_factory=set)
    again: set[AlertId] = field(default_factory=set)  # missed or taken back, and may be told


class Twin:
    def __init__(self, settings: AlertSettings) -> None:
        self.settings = settings
        self.records: list[AlertRecord] = []
        self.notices: list[Notice] = []
        self.silences: list[Silence] = []
        self.silences_ever = 0
        self.lines = {channel.name: Line() for channel in settings.channels}
        self.told: dict[tuple[AlertId | None, str], Level] = {}
        self.refused: dict[tuple[AlertId | None, str], Level] = {}
        self.overflows = False
        self.now = 0.0

    def handle(self, event: AlertEvent, now: float) -> list[tuple[str, tuple[NoticeId, ...]]]:
        """What is sent now."""
        self.now = now
        self._without([silence for silence in self.silences if silence.until <= now])
        match event:
            case Told(alert):
                self._told(alert)
            case Stand(kinds, alerts):
                stands = {alert.identity for alert in alerts}
                for kind in sorted(kinds):
                    for record in self._standing():
                        if record.alert.kind == kind and record.alert.identity not in stands:
                            self._end(record, "")
                for alert in sorted(alerts, key=lambda alert: alert.level.rank, reverse=True):
                    self._told(alert)
            case Silenced(kind, about, until, by, reason):
                if until > now and len(self.silences) < self.settings.silences_max:
                    self.silences_ever += 1
                    new = Silence(SilenceId(self.silences_ever), kind, about, until, by, reason, now)
                    self.silences.append(new)
            case Unsilenced(id_, _):
                self._without([silence for silence in self.silences if silence.id == id_])
            case Sent(channel, ids):
                self._sent(channel, ids)
            case NotSent(channel, ids, reason, permanent, retry_after_s):
                self._failed(channel, ids, reason, permanent, retry_after_s or 0.0)
        self._calm()
        self._own()
        return [sent for channel in self.settings.channels for sent in self._send(channel)]

    # Rows

    def _standing(self) -> list[AlertRecord]:
        return [record for record in self.records if record.ended_at is None]

    def _put(self, row: AlertRecord | Notice) -> None:
        rows: list = self.records if isinstance(row, AlertRecord) else self.notices
        for index, known in enumerate(rows):
            if known.id == row.id:
                rows[index] = row
                return
        rows.append(row)

    def record(self, id_: AlertId | None) -> AlertRecord:
        return next(record for record in self.records if record.id == id_)

    def _of(self, channel: str, alert: AlertId) -> list[Notice]:
        return [n for n in self.notices if n.channel == channel and n.alert == alert]

    def _covered(self, alert: Alert) -> bool:
        return any(silence.covers(alert) for silence in self.silences)

    def _flies(self, notice: Notice) -> bool:
        return notice.id in self.lines[notice.channel].under_way

    def _waiting(self, channel: str) -> list[Notice]:
        return [n for n in self.notices if n.channel == channel and n.waits and not self._flies(n)]

    # Alerts

    def _told(self, alert: Alert) -> None:
        stands = [record for record in self._standing() if record.alert.identity == alert.identity]
        if alert.over:
            for record in stands:
                self._end(record, alert.text)
            return
        if stands:
            if stands[0].alert != alert:
                self._put(replace(stands[0], alert=alert, changed_at=self.now))
                self._stale(self.record(stands[0].id))
            self._tell(stands[0].id)
            return
        others = [record for record in self._standing() if record.alert.kind not in OWN]
        room = self.settings.standing_max * (1 + alert.level.rank / 2)
        if alert.kind not in OWN and len(others) >= room:
            self.overflows = True
            return
        self._put(AlertRecord(AlertId(len(self.records) + 1), alert, self.now, self.now))
        self._tell(self.records[-1].id)

    def _tell(self, id_: AlertId) -> None:
        record = self.record(id_)
        known = -1 if record.noticed is None else record.noticed.rank
        if self._covered(record.alert):
            return
        if record.alert.level.rank > known:
            self._put(replace(record, noticed=record.alert.level))
        for channel in self.settings.channels:
            quiet = not any(notice.waits for notice in self._of(channel.name, id_))
            lacks = quiet and self._lacks(channel.name, id_)
            if record.alert.level.rank <= known and not lacks:
                continue
            if channel.wants(record.alert) and record.alert.identity != ("channel-down", channel.name):
                self._tell_channel(channel.name, id_)

    def _tell_channel(self, channel: str, id_: AlertId) -> None:
        self.lines[channel].missed.discard(id_)
        self.lines[channel].again.discard(id_)
        of_it = [n for n in self._of(channel, id_) if n.given_up_at is None]
        if not any(notice.waits and not self._flies(notice) for notice in of_it):
            self._notice(channel, id_, Turn.WORSE if of_it else Turn.RAISED)

    def _is_more(self, channel: str, id_: AlertId) -> bool:
        said = (self.told.get((id_, channel)), self.refused.get((id_, channel)))
        return all(level is None or level.rank < self.record(id_).alert.level.rank for level in said)

    def _lacks(self, channel: str, id_: AlertId) -> bool:
        line = self.lines[channel]
        may = (id_, channel) in self.told or id_ in line.again
        return may and id_ not in line.missed and self._is_more(channel, id_)

    def _stale(self, record: AlertRecord) -> None:
        for channel in self.settings.channels:
            all_of_it = [n for n in self._of(channel.name, record.id) if n.waits]
            waiting = [n for n in all_of_it if not self._flies(n)]
            told = self.told.get((record.id, channel.name))
            if not waiting:
                continue
            if told is not None:
                fell = told.rank >= record.alert.level.rank
                stale = fell and {notice.turn for notice in waiting} == {Turn.WORSE}
            else:
                stale = waiting == all_of_it and not channel.wants(record.alert)
            if stale:
                self._give_up(waiting, "less serious again before it was sent")
                self.lines[channel.name].again.add(record.id)

    def _notice(self, channel: str, alert: AlertId, turn: Turn) -> None:
        level = self.record(alert).alert.level
        new = Notice(NoticeId(len(self.notices) + 1), channel, alert, turn, self.now, level=level)
        self._put(new)

    def _end(self, record: AlertRecord, text: str) -> None:
        self._put(replace(record, ended_at=self.now, changed_at=self.now, end_text=text))
        for channel in self.settings.channels:
            of_it = [n for n in self._of(channel.name, record.id) if n.given_up_at is None]
            waiting = [notice for notice in of_it if notice.waits and not self._flies(notice)]
            if len(of_it) > len(waiting) or (waiting and self._long(channel.name)):
                self._notice(channel.name, record.id, Turn.OVER)
            else:
                self._give_up(waiting, "over before it was sent")
            self.lines[channel.name].missed.discard(record.id)
            self.lines[channel.name].again.discard(record.id)

    def _give_up(self, notices: Iterable[Notice], why: str) -> None:
        for notice in notices:
            self._put(replace(notice, given_up_at=self.now, error=why))

    def _lost(self, notice: Notice, *, missed: bool) -> None:
        """Told once the channel takes messages, or, refused for good, never again at this level."""
        line, key = self.lines[notice.channel], (notice.alert, notice.channel)
        if missed and self.record(notice.alert).stands:
            line.missed.add(notice.alert)
            line.again.discard(notice.alert)
        else:
            levels = filter(None, [self.refused.get(key), notice.level])
            self.refused[key] = max(levels, key=lambda level: level.rank)

    def _without(self, ended: list[Silence]) -> None:
        if not ended:
            return
        waits = [n for name in self.lines for n in self._waiting(name)]
        held = [notice for notice in waits if self._covered(self.record(notice.alert).alert)]
        self.silences = [silence for silence in self.silences if silence not in ended]
        for notice in held:
            if not self._covered(self.record(notice.alert).alert):
                self._put(replace(notice, created_at=self.now))
        for record in self._standing():
            self._tell(record.id)

    # Channels

    def _long(self, channel: str) -> bool:
        since = self.lines[channel].failing_since
        return since is not None and self.now - since >= self.settings.down_after_s

    def _sent(self, channel: str, ids: tuple[NoticeId, ...]) -> None:
        line = self.lines[channel]
        line.tried_at.append(self.now)
        for notice in self.notices:
            if notice.id in ids:
                self._put(replace(notice, sent_at=self.now, error=""))
        done = [notice for notice in self.notices if notice.id in ids]
        if ids:
            left = {n.alert for n in self._free(channel) if n.id not in line.under_way}
            line.portion.sent(len({notice.alert for notice in done}), len(left))
            line.under_way = ()
        line.failures, line.not_before, line.failing_since = 0, 0.0, None
        line.gave_up, line.error, line.sent_at = False, "", self.now
        told = list(dict.fromkeys(n.alert for n in done if n.turn is not Turn.OVER))
        for notice in [notice for notice in done if notice.turn is not Turn.OVER]:
            levels = [self.told.get((notice.alert, channel)), notice.level]
            self.told[notice.alert, channel] = max(filter(None, levels), key=lambda level: level.rank)
            line.missed.discard(notice.alert)
            line.again.discard(notice.alert)
        for id_ in told:
            if self.record(id_).stands:
                self._stale(self.record(id_))
                self._tell(id_)
        again = self._missed(channel)[: max(0, self.settings.waiting_max - len(self._waiting(channel)))]
        line.missed -= set(again)
        line.again |= set(again)
        for id_ in again:
            self._tell(id_)

    def _missed(self, channel: str) -> list[AlertId]:
        wants = {line.name: line.wants for line in self.settings.channels}[channel]
        missed = [self.record(id_) for id_ in self.lines[channel].missed]
        lacking = [r for r in missed if wants(r.alert) and self._is_more(channel, r.id)]
        return [r.id for r in sorted(lacking, key=lambda r: (-r.alert.level.rank, r.id))]

    def _free(self, channel: str) -> list[Notice]:
        return [n for n in self._waiting(channel) if not self._covered(self.record(n.alert).alert)]

    def _failed(
        self, channel: str, ids: tuple[NoticeId, ...], reason: str, permanent: bool, asked_s: float
    ) -> None:
        line = self.lines[channel]
        line.tried_at.append(self.now)
        if not ids:
            return
        tried = [notice for notice in self.notices if notice.id in ids]
        alerts = list(dict.fromkeys(notice.alert for notice in tried))
        line.portion.refused(len(alerts), permanent=permanent, items_max=self.settings.items_max)
        held = {n.id for n in self._waiting(channel)} - {n.id for n in self._free(channel)}
        line.under_way, line.error = (), reason
        if len(alerts) == 1 or not permanent:
            line.failures += 1
        pause_s = self._pause_s(max(1, line.failures))
        line.not_before = self.now + max(min(pause_s, 60.0) if permanent else pause_s, min(asked_s, 3600.0))
        line.failing_since = self.now if line.failing_since is None else line.failing_since
        refused, old = [], []
        for notice in tried:
            self._put(replace(notice, not_before=line.not_before, error=reason))
        for notice in [n for n in self._waiting(channel) if n.id not in held]:
            often = max(notice.attempts, line.failures) >= self.settings.give_up_s // 3600
            if notice.id in ids and permanent and len(alerts) == 1:
                refused.append(notice)
            elif often and self.now - notice.created_at >= self.settings.give_up_s:
                took_others = line.sent_at is not None and line.sent_at > notice.created_at
                (refused if took_others else old).append(notice)
        line.gave_up = line.gave_up or bool(refused or old)
        for notice in [*refused, *old]:
            self._put(replace(notice, given_up_at=self.now, error=notice.error or reason))
        for alert in alerts:
            of_it = self._of(channel, alert)
            waiting = [notice for notice in of_it if notice.waits]
            knows = any(notice.sent_at is not None for notice in of_it)
            ended = not self.record(alert).stands
            end_tried = any(notice.turn is Turn.OVER and notice.id in ids for notice in of_it)
            if ended and not end_tried and not knows and not self._long(channel):
                self._give_up(waiting, "over before it was sent")
        for notice in refused:
            self._lost(notice, missed=False)
        for notice in old:
            self._lost(notice, missed=True)

    def _calm(self) -> None:
        """Nothing is left to try, and nothing was lost: nobody knows whether it still fails."""
        for name, line in self.lines.items():
            if not (self._free(name) or line.under_way or line.gave_up):
                line.failures, line.failing_since, line.error = 0, None, ""

    def _pause_s(self, failures: int) -> float:
        pause = self.settings.backoff_min_s
        for _ in range(failures - 1):
            pause = min(2 * pause, self.settings.backoff_max_s)
        return pause

    def _own(self) -> None:
        for name, line in self.lines.items():
            down = line.failing_since is not None and (line.gave_up or self._long(name))
            text = f"channel {name} does not take messages: {line.error}"
            since = [r.raised_at for r in self._standing() if r.alert.identity == ("channel-down", name)]
            took = since and line.sent_at is not None and line.sent_at >= since[0]
            end = "takes messages again" if took else "has nothing left to send"
            text = text if down else f"channel {name} {end}"
            facts = {"reason": line.error}
            self._told(Alert("channel-down", name, text, not down, Level.ERROR, facts))
        others = [record for record in self._standing() if record.alert.kind not in OWN]
        if len(others) <= 0.9 * self.settings.standing_max:
            self.overflows = False
        text = f"{self.settings.standing_max} alerts stand; more are not kept until some of them are over"
        text = text if self.overflows else "there is room for alerts again"
        facts = {"standing_max": str(self.settings.standing_max)}
        self._told(Alert("alerts-overflow", "all", text, not self.overflows, Level.ERROR, facts))

    def _send(self, channel: Channel) -> Iterable[tuple[str, tuple[NoticeId, ...]]]:
        line = self.lines[channel.name]
        surplus = len(self._waiting(channel.name)) - self.settings.waiting_max
        gone: list[Notice] = []
        while len(gone) < surplus:
            least = min([n for n in self._waiting(channel.name) if n not in gone], key=self._worth)
            of_it = [n for n in self._waiting(channel.name) if n.alert == least.alert and n not in gone]
            gone += of_it if least.turn is Turn.OVER else [least]
        self._give_up(gone, "too many notices waited")
        for notice in gone:
            self._lost(notice, missed=True)
        missed = self._missed(channel.name)
        if missed and not line.under_way and not self._waiting(channel.name):
            free = [id_ for id_ in missed if not self._covered(self.record(id_).alert)]
            self._tell_channel(channel.name, (free or missed)[0])
        ready = self._free(channel.name)
        lately = [at for at in line.tried_at if at > self.now - 60]
        if (
            not ready
            or line.under_way
            or self.now < line.not_before
            or len(lately) >= self.settings.per_minute
        ):
            return
        until = self.now + self._pause_s(line.failures + 1)
        chosen = line.portion.of(ready)
        for notice in chosen:
            level = self.record(notice.alert).alert.level
            self._put(replace(notice, attempts=notice.attempts + 1, not_before=until, error="", level=level))
        line.under_way = tuple(notice.id for notice in chosen)
        yield channel.name, line.under_way

    def _worth(self, notice: Notice) -> tuple[bool, int, int]:
        return notice.turn is not Turn.OVER, self.record(notice.alert).alert.level.rank, notice.id
