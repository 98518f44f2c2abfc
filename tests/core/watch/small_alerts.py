"""A small world around the alert book: rows as a store keeps them, a clock, and what was sent."""

from __future__ import annotations

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import (
    AlertDecision,
    AlertEvent,
    AlertSaved,
    AlertSettings,
    AlertWrite,
    Channel,
    NoticeSaved,
    NotSent,
    RestoredAlerts,
    Send,
    Sent,
    Silenced,
    SilenceRemoved,
    SilenceSaved,
    Told,
    Unsilenced,
    Woke,
)
from evermirror.model.alert import (
    Alert,
    AlertId,
    AlertRecord,
    ChannelState,
    Level,
    Notice,
    NoticeId,
    Silence,
    SilenceId,
)

NOW = 1_800_000_000.0
WARNING, ERROR, CRITICAL = Level.WARNING, Level.ERROR, Level.CRITICAL
MAIL = Channel("mail", "mail")
BOT = Channel("bot", "dingtalk", language="zh")


def alert(about: str = "p", level: Level = WARNING, kind: str = "project-failing", **more: object) -> Alert:
    return Alert(kind, about, f"{about} fails", level=level, **more)


def over(about: str = "p", kind: str = "project-failing") -> Alert:
    return Alert(kind, about, f"{about} is well", over=True)


class Rows:
    """A store that keeps what a decision says, and nothing else."""

    def __init__(self) -> None:
        self.alerts: dict[AlertId, AlertRecord] = {}
        self.notices: dict[NoticeId, Notice] = {}
        self.silences: dict[SilenceId, Silence] = {}
        self.silences_ever = 0

    def write(self, writes: tuple[AlertWrite, ...]) -> None:
        seen = set()
        for write in writes:
            match write:
                case AlertSaved(record):
                    self.alerts[record.id] = record
                    row = ("alert", record.id)
                case NoticeSaved(notice):
                    assert notice.alert in self.alerts, "a notice names no row"
                    self.notices[notice.id] = notice
                    row = ("notice", notice.id)
                case SilenceSaved(silence):
                    self.silences[silence.id] = silence
                    self.silences_ever = max(self.silences_ever, silence.id)
                    row = ("silence", silence.id)
                case SilenceRemoved(silence_id):
                    del self.silences[silence_id]
                    row = ("silence", silence_id)
            assert row not in seen, "a row is written twice"
            seen.add(row)

    def restored(self, now: float) -> RestoredAlerts:
        standing = {record.id for record in self.alerts.values() if record.stands}
        waiting = {notice.alert for notice in self.notices.values() if notice.waits}
        return RestoredAlerts(
            tuple(self.alerts[record] for record in sorted(standing)),
            tuple(self.alerts[record] for record in sorted(waiting - standing)),
            tuple(self.silences.values()),
            tuple(n for n in self.notices.values() if n.alert in standing or _is_recent(n, now)),
            max(self.alerts, default=0) + 1,
            max(self.notices, default=0) + 1,
            self.silences_ever + 1,
        )


def _is_recent(notice: Notice, now: float) -> bool:
    ends = (notice.sent_at, notice.given_up_at)
    return notice.waits or any(at is not None and at > now - 60 for at in ends)


class World:
    """One book, whose messages end when the test says so."""

    def __init__(self, *channels: Channel, **settings: object) -> None:
        self.settings = AlertSettings(channels or (MAIL,), **settings)
        self.rows, self.now = Rows(), NOW
        self.under_way: dict[str, Send] = {}
        self.book = AlertBook(self.settings, RestoredAlerts(), self.now)
        self.last = AlertDecision()

    def hear(self, event: AlertEvent, after_s: float = 0.0) -> AlertDecision:
        self.now += after_s
        self.last = self.book.handle(event, self.now)
        self.rows.write(self.last.writes)
        for send in self.last.sends:
            assert send.channel not in self.under_way, "two messages at once"
            self.under_way[send.channel] = send
        return self.last

    def tell(self, *alerts: Alert, after_s: float = 0.0) -> None:
        for told in alerts:
            self.hear(Told(told), after_s)

    def wait(self, seconds: float) -> None:
        """Woken as often as the book asks for, and at the end."""
        until = self.now + seconds
        while self.last.wake_at is not None and self.last.wake_at <= until:
            self.now = self.last.wake_at
            self.hear(Woke())
            assert self.last.wake_at is None or self.last.wake_at > self.now, "it would wake for ever"
        self.now = until
        self.hear(Woke())

    def take(self, channel: str = "mail", after_s: float = 0.0) -> list[str]:
        """The other side takes what is under way: its items."""
        self.now += after_s
        send = self.under_way.pop(channel)
        self.hear(Sent(channel, send.ids))
        return _items(send)

    def refuse(self, channel: str = "mail", after_s: float = 0.0, **more: object) -> None:
        self.now += after_s
        send = self.under_way.pop(channel)
        self.hear(NotSent(channel, send.ids, "refused", **more))

    def take_all(self, channel: str = "mail") -> list[list[str]]:
        """Until nothing is under way."""
        taken = []
        while channel in self.under_way:
            taken.append(self.take(channel, after_s=0.1))
        return taken

    def going(self, channel: str = "mail") -> list[str] | None:
        send = self.under_way.get(channel)
        return None if send is None else _items(send)

    def silence(self, kind: str = "*", about: str = "*", for_s: float = 3600.0) -> SilenceId:
        self.hear(Silenced(kind, about, self.now + for_s, "ann", "maintenance"))
        return max(self.rows.silences)

    def unsilence(self, silence: SilenceId) -> None:
        self.hear(Unsilenced(silence, "ann"))

    def restart(self, after_s: float = 1.0, *channels: Channel) -> None:
        """A crash: what is under way is forgotten."""
        self.now += after_s
        self.under_way = {}
        if channels:
            self.settings = AlertSettings(channels)
        self.book = AlertBook(self.settings, self.rows.restored(self.now), self.now)
        self.hear(Woke())

    def stands(self) -> set[str]:
        return {record.alert.about for record in self.book.standing()}

    def state(self, channel: str = "mail") -> ChannelState:
        return next(state for state in self.book.channels() if state.name == channel)

    def given_up(self) -> list[str]:
        return [notice.error for notice in self.rows.notices.values() if notice.given_up_at is not None]


def _items(send: Send) -> list[str]:
    return [f"{item.turn.value} {item.about}" for item in send.message.items]
