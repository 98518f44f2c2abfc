"""The checks of the simulated days see what they are for: each planted fault makes them fail."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from evermirror.core.watch import book as book_module
from evermirror.core.watch import outbox as outbox_module
from evermirror.core.watch import telling as telling_module
from evermirror.core.watch.events import RestoredAlerts
from evermirror.core.watch.outbox import Outbox
from evermirror.core.watch.rate import Rate
from evermirror.core.watch.standing import Standing
from evermirror.core.watch.telling import Telling
from evermirror.model.alert import Notice, Turn
from tests.core.watch.alert_days import Days, check
from tests.core.watch.small_alerts import Rows

HOUR_OF_A_DAY = 1 / 24


def plant(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def put(where: Any, name: str, what: Any) -> None:
        monkeypatch.setattr(where, name, what)

    match fault:
        case "the rate is not kept":
            put(Rate, "free_at", lambda self, now: -inf)
        case "the rate is forgotten by a restart":
            put(outbox_module, "_times", lambda tried, now: [])
        case "what a crash hid is taken as not sent":
            put(telling_module, "may_have_arrived", lambda notice: notice.sent_at is not None)
        case "who knows is not told the end":
            put(Telling, "_notify", _endless(Telling._notify))
        case "silences hold nothing":
            put(Outbox, "hold", lambda self, covered: None)
        case "silences release nothing":
            put(Outbox, "release", lambda self, covered, now: ())
        case "silences are not looked at":
            put(Telling, "is_covered", lambda self, notice: False)
        case "what was sent is not written":
            put(Outbox, "sent", _without_rows(Outbox.sent))
        case "nobody wakes the book for what waits":
            put(Outbox, "wake_at", lambda self, now: inf)
        case "nothing settles after a restart":
            put(Standing, "unconfirmed", ())
            put(Standing, "settles", False)
        case "what waits is not restored":
            put(Rows, "restored", _without_notices(Rows.restored))
        case "what fails is forgotten":
            put(Outbox, "failed", _forget)
        case "what is told again is sent again":
            put(Telling, "tell", _forgetful(Telling.tell))
        case _:
            raise AssertionError(fault)


def _endless(notify: Callable[..., None]) -> Callable[..., None]:
    def faulty(self: Telling, record: Any, outbox: Outbox, turn: Turn, *rest: Any) -> None:
        if turn is not Turn.OVER:
            notify(self, record, outbox, turn, *rest)

    return faulty


def _forget(outbox: Outbox, event: Any, now: float) -> outbox_module.Failed:
    for notice in outbox._under_way.values():
        outbox._forget(notice)
    outbox._under_way = {}
    return outbox_module.Failed()


def _without_rows(sent: Callable[..., tuple[Notice, ...]]) -> Callable[..., tuple[Notice, ...]]:
    def faulty(*given: Any) -> tuple[Notice, ...]:
        sent(*given)
        return ()

    return faulty


def _without_notices(restored: Callable[..., RestoredAlerts]) -> Callable[..., RestoredAlerts]:
    def faulty(*given: Any) -> RestoredAlerts:
        whole = restored(*given)
        return RestoredAlerts(
            whole.standing,
            (),
            whole.silences,
            tuple(notice for notice in whole.notices if not notice.waits),
            whole.next_alert_id,
            whole.next_notice_id,
            whole.next_silence_id,
        )

    return faulty


def _forgetful(tell: Callable[..., Any]) -> Callable[..., Any]:
    def faulty(self: Telling, record: Any, now: float, draft: Any) -> Any:
        if record.alert.about.endswith("-0"):
            record = book_module.replace(record, noticed=None)
        return tell(self, record, now, draft)

    return faulty


def run() -> None:
    for seed in range(4):
        days = Days(seed + 300, lively_s=1.0, crash_share=0.2, stops_s=(0.05, 1.0))
        days.run(HOUR_OF_A_DAY / 4)
        days.settle()
        check(days)


def test_without_a_fault_nothing_is_seen() -> None:
    run()


@pytest.mark.parametrize(
    "fault",
    [
        "the rate is not kept",
        "the rate is forgotten by a restart",
        "what a crash hid is taken as not sent",
        "who knows is not told the end",
        "silences hold nothing",
        "silences release nothing",
        "silences are not looked at",
        "what was sent is not written",
        "nobody wakes the book for what waits",
        "nothing settles after a restart",
        "what waits is not restored",
        "what fails is forgotten",
        "what is told again is sent again",
    ],
)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, fault)
    with pytest.raises(AssertionError):
        run()
