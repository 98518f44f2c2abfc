"""Days of alerts in virtual time: channels that fail, are slow or refuse for good, silences, crashes; and
what must hold all the time and in the end.

    truth (what is so) ──Told, Stand──▶ book ──writes──▶ rows
        ▲ changes by chance              │ Send               ▲ the only thing that outlasts a crash
                                         ▼
                                     channels: taken, refused, or taken and the answer lost by a crash

The book is woken only when it asks for it, so that a wake-up that it forgets is seen.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import (
    AlertEvent,
    AlertSettings,
    Channel,
    NotSent,
    Send,
    Sent,
    Silenced,
    Stand,
    Told,
    Unsilenced,
    Woke,
)
from evermirror.core.watch.outbox import DOUBTED
from evermirror.model.alert import Alert, AlertId, Level, Notice, NoticeId, Turn
from tests.core.watch.small_alerts import NOW, Rows

HOUR, DAY = 3600.0, 86_400.0
KINDS = ("project-failing", "source-weather", "worker-down")
SUBJECTS = 8  # of each kind
STATED = frozenset(KINDS[:2])  # told whole each minute; the other kind is told again every five minutes
CHANNELS = (
    Channel("mail", "mail"),
    Channel("bot", "dingtalk", language="zh"),
    Channel("serious", "wecom", min_level=Level.ERROR),
    Channel("some", "webhook", kinds=("project-*", "channel-down")),
)
DRAINED_S = 2 * HOUR  # a pause of at most an hour, then a minute's rate, for each of the messages left


@dataclass
class Weather:
    """How a channel behaves until it changes."""

    name: str = "well"
    until: float = 0.0


@dataclass
class Delivery:
    at: float
    send: Send


@dataclass
class Days:
    """One run. ``lively_s``: between two changes of the truth. ``crash_share``: of all messages, those during
    which the book's process falls; ``stops_s``: until it is there again."""

    seed: int
    lively_s: float = 60.0
    crash_share: float = 0.03
    stops_s: tuple[float, ...] = (0.1, 1.0, 10.0, 300.0)
    settings: AlertSettings = field(default_factory=lambda: AlertSettings(CHANNELS))

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.now, self.rows = NOW, Rows()
        self.truth: dict[tuple[str, str], Alert] = {}
        self.weather = {channel.name: Weather() for channel in self.settings.channels}
        self.under_way: dict[str, tuple[float, Send, str]] = {}  # when it ends, and how
        self.begun: dict[str, list[float]] = defaultdict(list)
        self.arrived: dict[str, list[Delivery]] = defaultdict(list)
        self.in_doubt: set[NoticeId] = set()  # arrived, and a crash came before the book knew
        self.wake_at: float | None = None
        self.fall_at: float | None = None
        self.calm = False
        self.counts: dict[str, int] = defaultdict(int)
        self._start()

    # The run

    def run(self, days: float) -> None:
        until = self.now + days * DAY
        begins = {self._live: 1.0, self._state: 2.0, self._again: 3.0, self._hush: 4.0}
        due = {what: self.now + after for what, after in begins.items()}
        while self.now < until:
            what = min(due, key=due.__getitem__)
            self._pass_until(due[what])
            due[what] = self.now + what()

    def settle(self) -> None:
        """Channels are well, nobody silences, nothing changes: what waits must go."""
        self.calm, self.fall_at = True, None
        for weather in self.weather.values():
            weather.name, weather.until = "well", self.now + 100 * DAY
        for silence in tuple(self.rows.silences):
            self.hear(Unsilenced(silence, "ann"))
        self._state()
        self._again()
        self._pass_until(self.now + DRAINED_S)

    def _pass_until(self, at: float) -> None:
        while True:
            soonest = {f"end {name}": when for name, (when, _, _) in self.under_way.items()}
            soonest |= {"fall": self.fall_at} if self.fall_at is not None else {}
            soonest |= {"wake": self.wake_at} if self.wake_at is not None else {}
            what = min(soonest, key=soonest.__getitem__, default="")
            if not what or soonest[what] > at:
                break
            self.now = max(self.now, soonest[what])
            if what == "fall":
                self._fall()
            elif what == "wake":
                self.hear(Woke())
                self.counts["wakes"] += 1
                assert self.counts["wakes"] < 100_000, "it wakes for ever"
            else:
                self._end(what.removeprefix("end "))
        self.now = max(self.now, at)

    def hear(self, event: AlertEvent) -> None:
        decision = self.book.handle(event, self.now)
        self.rows.write(decision.writes)
        self.wake_at = decision.wake_at
        self._check_down()
        for send in decision.sends:
            self._begin(send)
        self.counts["events"] += 1

    def _check_down(self) -> None:
        """A channel is only called down while something waits for it, or was given up since it fails."""
        states = {state.name: state for state in self.book.channels()}
        for record in self.book.standing():
            if record.alert.kind == "channel-down":
                state = states[record.alert.about]
                assert state.failing_since is not None, f"{state} is called down"
                assert state.waiting or self._lost(state.name), f"{state} is called down, and nothing waits"

    def _lost(self, channel: str) -> bool:
        mine = [notice for notice in self.rows.notices.values() if notice.channel == channel]
        sent_at = max((notice.sent_at or 0.0 for notice in mine), default=0.0)
        ends = (notice.given_up_at for notice in mine if "before it was sent" not in notice.error)
        return any(at is not None and at >= sent_at for at in ends)

    def _start(self) -> None:
        self.book = AlertBook(self.settings, self.rows.restored(self.now), self.now)
        self.hear(Woke())

    # Channels

    def _begin(self, send: Send) -> None:
        assert send.channel not in self.under_way, "two messages at once"
        assert send.ids, "an empty message"
        for notice in send.ids:
            alert = self.rows.alerts[self._row(notice).alert].alert
            covered = any(silence.covers(alert) for silence in self.rows.silences.values())
            assert not covered, "told of something that is silenced"
        for item in send.message.items:
            over = not self.rows.alerts[item.alert].stands
            assert over == (item.turn is Turn.OVER), f"{item} is told, and it is over: {over}"
        self.begun[send.channel].append(self.now)
        weather = self.weather[send.channel]
        if self.now >= weather.until:
            self._turn(weather)
        took_s = {"slow": self.chance.uniform(5, 10)}.get(weather.name, self.chance.uniform(0.02, 0.3))
        self.under_way[send.channel] = (self.now + took_s, send, weather.name)
        if not self.calm and self.chance.random() < self.crash_share:
            self.fall_at = self.now + self.chance.uniform(0.0, took_s)

    def _turn(self, weather: Weather) -> None:
        names = ["well", "well", "slow", "down", "down", "flaky", "wrong", "busy"]
        weather.name = self.chance.choice(names)
        spells = {
            "well": 6 * HOUR,
            "down": self.chance.choice([60.0, 600.0, 5 * HOUR, 40 * HOUR]),
            "busy": 600.0,
        }
        weather.until = self.now + self.chance.uniform(0.2, 1.0) * spells.get(weather.name, HOUR)

    def _end(self, channel: str) -> None:
        _, send, how = self.under_way.pop(channel)
        if how == "flaky":
            how = self.chance.choice(["well", "down"])
        if how in ("well", "slow"):
            self.arrived[channel].append(Delivery(self.now, send))
            self.hear(Sent(channel, send.ids))
            return
        permanent = how == "wrong"
        asked = self.chance.choice([30.0, 1800.0, 1e6]) if how == "busy" else None
        self.hear(NotSent(channel, send.ids, how, permanent, asked))

    # The truth

    def _live(self) -> float:
        if not self.calm:
            self._change()
        return self.chance.expovariate(1 / self.lively_s)

    def _change(self) -> None:
        kind = self.chance.choice(KINDS)
        about = f"{kind}-{self.chance.randrange(SUBJECTS)}"
        level = self.chance.choice(list(Level))
        if (kind, about) in self.truth and self.chance.random() < 0.6:
            del self.truth[kind, about]
            self.hear(Told(Alert(kind, about, f"{about} is well", over=True)))
            return
        self.truth[kind, about] = Alert(kind, about, f"{about}: {self.chance.randrange(9)}", level=level)
        self.hear(Told(self.truth[kind, about]))

    def _state(self) -> float:
        stated = tuple(alert for alert in self.truth.values() if alert.kind in STATED)
        self.hear(Stand(STATED, stated))
        stand = {r.alert.identity for r in self.book.standing() if r.alert.kind in STATED}
        assert stand == {alert.identity for alert in stated}, "what stands is not what was told"
        return 60.0

    def _again(self) -> float:
        for alert in [alert for alert in self.truth.values() if alert.kind not in STATED]:
            self.hear(Told(alert))
        return 300.0

    def _hush(self) -> float:
        for silence in tuple(self.rows.silences):
            if self.chance.random() < 0.3:
                self.hear(Unsilenced(silence, "ann"))
        if len(self.rows.silences) < 3:
            kind = self.chance.choice(["*", "project-*", "worker-down"])
            about = self.chance.choice(["*-1", "*-[2-5]", "project-failing-7"])
            self.hear(Silenced(kind, about, self.now + self.chance.uniform(10, 4 * HOUR), "ann"))
        return self.chance.expovariate(1 / HOUR)

    def _fall(self) -> None:
        """A message under way arrives or does not, and nobody hears which."""
        for channel, (_, send, how) in self.under_way.items():
            if how in ("well", "slow", "flaky") and self.chance.random() < 0.7:
                self.arrived[channel].append(Delivery(self.now, send))
                self.in_doubt.update(send.ids)
        self.under_way.clear()
        self.fall_at = None
        self.now += self.chance.choice(self.stops_s)
        ended = [key for key in self.truth if key[0] not in STATED and self.chance.random() < 0.1]
        for key in ended:  # during the stop: nobody tells it, ever
            del self.truth[key]
        self._start()
        self.counts["crashes"] += 1

    def _row(self, notice: NoticeId) -> Notice:
        return self.rows.notices[notice]


# What must hold


def check(days: Days) -> None:
    check_rate(days)
    check_nothing_twice(days)
    check_ends(days)
    check_nothing_lost(days)
    check_wanted(days)
    check_truth(days)


def check_rate(days: Days) -> None:
    for channel, times in days.begun.items():
        last: deque[float] = deque(maxlen=days.settings.per_minute)
        for at in times:
            full = len(last) == days.settings.per_minute
            assert not full or at - last[0] >= 60 - 1e-6, f"{channel}: too many messages in a minute"
            last.append(at)


def check_nothing_twice(days: Days) -> None:
    """A notice arrives once, unless a crash hid that it had; an alert begins once for a channel, is then told
    only as more serious, and nothing of it comes after its end."""
    for channel, arrived in days.arrived.items():
        turns: dict[AlertId, list[Turn]] = defaultdict(list)
        levels: dict[AlertId, list[int]] = defaultdict(list)
        seen: set[NoticeId] = set()
        for delivery in arrived:
            for notice in (days.rows.notices[id_] for id_ in delivery.send.ids):
                assert notice.id not in seen or notice.id in days.in_doubt, f"{channel}: {notice} came twice"
                if notice.id not in seen:
                    turns[notice.alert].append(notice.turn)
                seen.add(notice.id)
            for item in delivery.send.message.items:
                if item.turn is not Turn.OVER:
                    levels[item.alert].append(item.level.rank)
        for alert, told in turns.items():
            assert told.count(Turn.RAISED) <= 1, f"{channel}: {alert} began twice: {told}"
            assert told.count(Turn.WORSE) <= 2, f"{channel}: {alert} was told again: {told}"
            assert Turn.OVER not in told[:-1], f"{channel}: {alert} was told after its end: {told}"
        doubted = {days.rows.notices[id_].alert for id_ in days.in_doubt}
        for alert in levels.keys() - doubted:
            rising = sorted(set(levels[alert]))
            assert levels[alert] == rising, f"{channel}: {alert} was told again: {levels[alert]}"


def check_ends(days: Days) -> None:
    """Who was told a beginning is told the end, or it is seen why not."""
    for channel, arrived in days.arrived.items():
        known, ended = set(), set()
        for delivery in arrived:
            for notice in (days.rows.notices[id_] for id_ in delivery.send.ids):
                (ended if notice.turn is Turn.OVER else known).add(notice.alert)
        given_up = {
            notice.alert
            for notice in days.rows.notices.values()
            if notice.channel == channel and notice.turn is Turn.OVER and notice.given_up_at is not None
            if "over before" not in notice.error
        }
        for alert in known - ended - given_up:
            assert days.rows.alerts[alert].stands, (
                f"{channel}: nobody told the end of {days.rows.alerts[alert]}"
            )


def check_nothing_lost(days: Days) -> None:
    arrived = {
        id_ for deliveries in days.arrived.values() for delivery in deliveries for id_ in delivery.send.ids
    }
    for notice in days.rows.notices.values():
        assert not notice.waits, f"{notice} still waits"
        if notice.sent_at is not None:
            assert notice.id in arrived, f"{notice} never arrived"
        else:
            assert notice.error, f"{notice} was given up, and nobody knows why"
            told = notice.id in arrived
            assert not told or notice.error.startswith(DOUBTED), f"{notice} arrived, and is called given up"
    for state in days.book.channels():
        assert state.waiting == 0


def check_wanted(days: Days) -> None:
    """Whatever was told to anybody, was told (or given up) to everybody who wanted it."""
    of: dict[AlertId, set[str]] = defaultdict(set)
    for notice in days.rows.notices.values():
        of[notice.alert].add(notice.channel)
    for record in days.rows.alerts.values():
        if record.noticed is None:
            assert record.id not in of
            continue
        told = Alert(record.alert.kind, record.alert.about, "", level=record.noticed)
        wanting = {channel.name for channel in days.settings.channels if channel.wants(told)}
        if told.kind == "channel-down":
            wanting.discard(told.about)
            assert told.about not in of[record.id], "a channel is told that it is down"
        assert of[record.id] >= wanting, f"{record} was told to {of[record.id]} of {wanting}"


def check_truth(days: Days) -> None:
    standing = {record.alert.identity: record.alert for record in days.book.standing()}
    own = {identity for identity in standing if identity[0] in ("channel-down", "alerts-overflow")}
    assert {key: alert for key, alert in standing.items() if key not in own} == days.truth
    rows = {record.alert.identity for record in days.rows.alerts.values() if record.stands}
    assert rows == set(standing)
    assert not days.rows.silences
    for record in days.book.standing():
        assert record.noticed is not None, f"nobody was told of {record}"
