"""What one channel is to be told, until it is sent or given up.

                  ┌──── released, with a new age ────┐
                  ▼                                  │
    put ──▶ ready ──── a silence covers it ──▶ held ─┘           any of the two ── over, too many ──▶ given up
              │  ▲
         take │  │ failed: the channel waits 5 s, 10 s, … 15 min, or as long as it was asked to
              ▼  │
           under way ── sent ──▶ sent
                  └──── refused alone for good, or failed and older than a day ──▶ given up

| rule                                                                                              |
|---------------------------------------------------------------------------------------------------|
| One message is under way at a time; it takes all that are ready, or a portion of them.            |
| A message of many that is refused for good is tried in portions: what is refused alone is given up|
| (portion.py).                                                                                     |
| None goes before the channel's pause is over, nor above its rate. Attempts that fail count too,   |
| each from its end on: when it began to go, nobody here knows.                                     |
| An attempt is written before it is made. One whose end was lost by a restart may have been taken  |
| by the other side: it is *doubted*, and tried again.                                              |
| Too many wait: the oldest that tell an end are given up first, with what else waits of that alert,|
| then the oldest of the least level.                                                               |
| A day is over only where it was also tried as often as a day has hours: a clock may be set.       |
| A channel fails as long as something is tried, or was given up: with nothing left to try, nobody  |
| knows whether it would.                                                                           |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from evermirror.core.watch.events import AlertSettings, Channel, NotSent
from evermirror.core.watch.portion import Portion
from evermirror.core.watch.rate import WINDOW_S, Rate
from evermirror.model.alert import AlertId, AlertRecord, ChannelState, Level, Notice, NoticeId, Turn

DOUBTED = "may have been sent before a restart"  # begins the error of a notice, so that it outlasts the next
TOO_MANY = "too many notices waited"
RETRY_AFTER_MAX_S = 3600.0  # that a channel may ask for
REFUSED_PAUSE_MAX_S = 60.0  # after something was refused for good: the next may be fine
ERROR_MAX_CHARS = 300
TRIES_A_MINUTE = 8  # of one notice at most: the pause doubles each time


class Failed(NamedTuple):
    """What became of notices by a failure."""

    kept: tuple[Notice, ...] = ()
    too_old: tuple[Notice, ...] = ()  # given up
    refused: tuple[Notice, ...] = ()  # alone, for good, or for a day while others were taken: given up


class Outbox:
    """Of one channel. What changes a notice gives it back, to be saved."""

    def __init__(self, channel: Channel, settings: AlertSettings) -> None:
        self.channel = channel
        self._settings = settings
        self._ready: dict[NoticeId, Notice] = {}
        self._held: dict[NoticeId, Notice] = {}
        self._under_way: dict[NoticeId, Notice] = {}
        self._by_alert: dict[AlertId | None, set[NoticeId]] = {}
        self._rate = Rate(settings.per_minute)
        self._portion = Portion()
        self._failures = 0  # in a row
        self._not_before = -inf
        self._failing_since: float | None = None
        self._gave_up = False  # since it fails
        self._sent_at: float | None = None
        self._error = ""

    def restore(self, notices: Iterable[Notice], down: AlertRecord | None, now: float) -> None:
        """Of this channel, in the order of their ids; ``down``: the alert about it, where that stands."""
        tried: dict[tuple[float | None, float], int] = {}
        for notice in notices:
            ended_at = notice.sent_at if notice.sent_at is not None else notice.given_up_at
            if ended_at is None:
                self._restore_waiting(notice)
            elif notice.sent_at is not None:
                self._sent_at = max(notice.sent_at, self._sent_at or notice.sent_at)
            if ended_at is None or ended_at > now - WINDOW_S:
                message = (ended_at, notice.not_before)
                tried[message] = max(tried.get(message, 0), notice.attempts)
        self._rate = Rate(self._settings.per_minute, _times(tried, now))
        if down is not None:
            self._failing_since, self._gave_up = min(down.raised_at, self._failing_since or inf), True
            self._error = self._error or down.alert.facts.get("reason", "")

    def _restore_waiting(self, notice: Notice) -> None:
        if notice.attempts and not notice.error:
            notice = replace(notice, error=DOUBTED)
        self.put(notice)
        if notice.attempts:
            self._not_before = max(self._not_before, notice.not_before)
        if notice.error not in ("", DOUBTED):
            self._failures = max(self._failures, notice.attempts)
            self._failing_since = min(notice.created_at, self._failing_since or notice.created_at)
            self._error = notice.error

    def configure(self, channel: Channel, settings: AlertSettings) -> None:
        """Other settings; what waits, is under way, has gone and has failed stays."""
        self.channel, self._settings = channel, settings
        self._rate.configure(settings.per_minute)

    # What waits

    @property
    def all(self) -> tuple[Notice, ...]:
        """Also what is under way."""
        return (*self._under_way.values(), *self._ready.values(), *self._held.values())

    def put(self, notice: Notice, *, held: bool = False) -> None:
        (self._held if held else self._ready)[notice.id] = notice
        self._by_alert.setdefault(notice.alert, set()).add(notice.id)

    def of(self, alert: AlertId) -> tuple[Notice, ...]:
        """All that wait or are under way."""
        return tuple(self._find(notice) for notice in sorted(self._by_alert.get(alert, ())))

    def is_under_way(self, notice: Notice) -> bool:
        return notice.id in self._under_way

    def _find(self, notice: NoticeId) -> Notice:
        for place in (self._ready, self._held, self._under_way):
            if notice in place:
                return place[notice]
        raise KeyError(notice)

    def hold(self, covered: Callable[[Notice], bool]) -> None:
        for notice in [notice for notice in self._ready.values() if covered(notice)]:
            self._held[notice.id] = self._ready.pop(notice.id)

    def release(self, covered: Callable[[Notice], bool], now: float) -> tuple[Notice, ...]:
        """Those no longer covered: their age counts from now."""
        free = [notice for notice in self._held.values() if not covered(notice)]
        for notice in free:
            del self._held[notice.id]
            self._ready[notice.id] = replace(notice, created_at=now)
        return tuple(self._ready[notice.id] for notice in free)

    def give_up(self, notices: Iterable[Notice], why: str, now: float) -> tuple[Notice, ...]:
        """Of those that are not under way."""
        ended = tuple(replace(notice, given_up_at=now, error=_error(notice, why)) for notice in notices)
        for notice in ended:
            self._ready.pop(notice.id, None)
            self._held.pop(notice.id, None)
            self._forget(notice)
        return ended

    def trim(self, rank: Callable[[Notice], int], now: float) -> tuple[Notice, ...]:
        """Down to ``waiting_max``, in the order of the rules; ``rank``: of the alert's level."""
        surplus = len(self._ready) + len(self._held) - self._settings.waiting_max
        if surplus <= 0:
            return ()
        waiting = {notice.id: notice for notice in (*self._ready.values(), *self._held.values())}
        gone: dict[NoticeId, Notice] = {}
        for notice in sorted(waiting.values(), key=lambda n: (n.turn is not Turn.OVER, rank(n), n.id)):
            if len(gone) >= surplus:
                break
            ends = notice.turn is Turn.OVER
            of_it = self._by_alert[notice.alert] if ends else {notice.id}
            gone |= {id_: waiting[id_] for id_ in sorted(of_it) if id_ in waiting}
        return self.give_up(gone.values(), TOO_MANY, now)

    def _forget(self, notice: Notice) -> None:
        of_it = self._by_alert[notice.alert]
        of_it.discard(notice.id)
        if not of_it:
            del self._by_alert[notice.alert]

    # What goes

    def take(self, level: Callable[[Notice], Level], now: float) -> tuple[Notice, ...]:
        """What goes now, as one message; none, where nothing is ready or nothing may go. ``level``: of the
        alert, which is said."""
        if not self._ready or self._under_way or now < self._free_at(now):
            return ()
        until = now + self._backoff_s(self._failures + 1)
        for notice in self._portion.of(self._ready.values()):
            self._under_way[notice.id] = replace(
                notice,
                attempts=notice.attempts + 1,
                not_before=until,
                error=_error(notice),
                level=level(notice),
            )
            del self._ready[notice.id]
        return tuple(self._under_way.values())

    def expects(self, ids: tuple[NoticeId, ...]) -> bool:
        """They are under way, or there are none: a test."""
        return not ids or self._under_way.keys() == set(ids)

    def sent(self, ids: tuple[NoticeId, ...], now: float) -> tuple[Notice, ...]:
        self._rate.count(now)
        self._failures, self._not_before, self._failing_since = 0, -inf, None
        self._gave_up, self._sent_at, self._error = False, now, ""
        if not ids:
            return ()
        done = tuple(replace(notice, sent_at=now, error="") for notice in self._under_way.values())
        self._under_way = {}
        for notice in done:
            self._forget(notice)
        self._portion.sent(_alerts(done), _alerts(self._ready.values()))
        return done

    def failed(self, event: NotSent, now: float) -> Failed:
        self._rate.count(now)
        if not event.ids:
            return Failed()
        tried, self._under_way = self._under_way, {}
        alone = _alerts(tried.values()) == 1
        self._portion.refused(
            _alerts(tried.values()), permanent=event.permanent, items_max=self._settings.items_max
        )
        self._failures += alone or not event.permanent  # a part of it may be fine: that is tried soon
        self._not_before = now + self._pause_s(event)
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._error = " ".join(event.reason.split())[:ERROR_MAX_CHARS]
        for notice in tried.values():
            error = _error(notice, self._error)
            self._ready[notice.id] = replace(notice, not_before=self._not_before, error=error)
        refused = tuple(self._lose(notice, now) for notice in tried if alone and event.permanent)
        old = [notice for notice in self._ready.values() if self._is_too_old(notice, now)]
        away = [notice for notice in old if not self._took_others(notice)]
        refused += tuple(self._lose(notice.id, now) for notice in old if self._took_others(notice))
        too_old = tuple(self._lose(notice.id, now) for notice in away)
        return Failed(tuple(self._ready[id_] for id_ in tried if id_ in self._ready), too_old, refused)

    def _pause_s(self, event: NotSent) -> float:
        longest_s = REFUSED_PAUSE_MAX_S if event.permanent else inf
        asked_s = min(event.retry_after_s or 0.0, RETRY_AFTER_MAX_S)
        return max(min(self._backoff_s(max(1, self._failures)), longest_s), asked_s)

    def _is_too_old(self, notice: Notice, now: float) -> bool:
        tries = max(notice.attempts, self._failures)
        often = tries >= self._settings.give_up_s // RETRY_AFTER_MAX_S
        return often and now >= notice.created_at + self._settings.give_up_s

    def _took_others(self, notice: Notice) -> bool:
        """While this one waited: then it is this one that it does not take."""
        return self._sent_at is not None and self._sent_at > notice.created_at

    def _lose(self, notice: NoticeId, now: float) -> Notice:
        lost = self._ready.pop(notice)
        self._gave_up = True
        self._forget(lost)
        return replace(lost, given_up_at=now, error=lost.error or self._error)

    def _backoff_s(self, failures: int) -> float:
        doublings = min(failures - 1, 32)  # beyond, only the number grows
        return min(self._settings.backoff_min_s * 2.0**doublings, self._settings.backoff_max_s)

    def _free_at(self, now: float) -> float:
        longest_s = max(RETRY_AFTER_MAX_S, self._settings.backoff_max_s)
        self._not_before = min(self._not_before, now + longest_s)  # a clock that was set back is forgiven
        return max(self._not_before, self._rate.free_at(now))

    def test_at(self, now: float) -> float:
        """When a person's test may go: its rate holds for that too, its pause does not."""
        return max(now, self._rate.free_at(now, going=1 if self._under_way else 0))

    def calm_down(self) -> None:
        """Where nothing is left to try, and nothing was lost: whether it still fails, nobody knows."""
        if not (self._ready or self._under_way or self._gave_up):
            self._failures, self._failing_since, self._error = 0, None, ""

    @property
    def room(self) -> int:
        return max(0, self._settings.waiting_max - len(self._ready) - len(self._held))

    @property
    def is_empty(self) -> bool:
        return not self._by_alert

    # What is seen

    def wake_at(self, now: float) -> float:
        going = self._free_at(now) if self._ready and not self._under_way else inf
        return min(going, self._down_at if not self.is_down(now) else inf)

    @property
    def _down_at(self) -> float:
        return inf if self._failing_since is None else self._failing_since + self._settings.down_after_s

    def is_down(self, now: float) -> bool:
        """It fails for long, or something was given up since it fails."""
        return self._failing_since is not None and (self._gave_up or now >= self._down_at)

    def failed_long(self, now: float) -> bool:
        return now >= self._down_at

    @property
    def state(self) -> ChannelState:
        waiting = len(self._ready) + len(self._held) + len(self._under_way)
        name, type_ = self.channel.name, self.channel.type
        return ChannelState(name, type_, waiting, self._sent_at, self._failing_since, self._error)


def was_missed(notice: Notice, settings: AlertSettings) -> bool:
    """It was given up by its age, or as too many waited: the channel is to be told once it takes messages."""
    if notice.given_up_at is None:
        return False
    return notice.error.endswith(TOO_MANY) or notice.given_up_at >= notice.created_at + settings.give_up_s


def _alerts(notices: Iterable[Notice]) -> int:
    """How many they tell of."""
    return len({notice.alert for notice in notices})


def may_have_arrived(notice: Notice) -> bool:
    """As it is in the store after a restart: it was sent, or it is not known whether it was."""
    lost = notice.waits and notice.attempts > 0 and not notice.error
    return notice.sent_at is not None or lost or notice.error.startswith(DOUBTED)


def _error(notice: Notice, why: str = "") -> str:
    """A doubt stays."""
    if not notice.error.startswith(DOUBTED):
        return why
    return f"{DOUBTED}; {why}" if why else DOUBTED


def _times(tried: Mapping[tuple[float | None, float], int], now: float) -> list[float]:
    """When messages went before a restart, rather too late than too early: those whose notices wait count as
    if they had gone just now."""
    times: list[float] = []
    for (ended_at, _), attempts in tried.items():
        times += [now if ended_at is None else ended_at] * min(attempts, TRIES_A_MINUTE)
    return times
