"""Alerts on their way: over a real store, to channels that do what the test wants."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from evermirror.core.fleet.decisions import Alert as FleetAlert
from evermirror.core.fleet.decisions import AlertKind
from evermirror.core.watch.events import AlertSettings, Channel, Sent, Silenced, Stand, Told, Woke
from evermirror.core.watch.kinds import FLEET_KINDS
from evermirror.edge.notify.sender import NotSent
from evermirror.edge.store.store import Store
from evermirror.edge.store.whole import whole
from evermirror.errors import Conflict, InvalidValue, NotFound
from evermirror.model.alert import Alert, Level, Message, Turn
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.messages import RunningSync
from evermirror.model.repo import RepoKey
from evermirror.nodes.alert_service import AlertFilter, NoticeEnd
from evermirror.nodes.alert_service import Tested as Tried
from evermirror.nodes.coordinator.alerts import alerting as alerting_module
from evermirror.nodes.coordinator.alerts.alert_admin import AlertAdmin
from evermirror.nodes.coordinator.alerts.alert_inbox import AlertInbox
from evermirror.nodes.coordinator.alerts.alerting import Alerting
from evermirror.nodes.coordinator.fleet_alerts import STALL_LOOKS, FleetAlerts, FleetWatch
from evermirror.nodes.coordinator.fleet_view import ALERTS_MAX, StandingAlert

pytestmark = pytest.mark.timeout(60)

AWAY = Failure(FailureKind.UNKNOWN, "the disk is full")


def alert(about: str = "a", text: str = "", *, over: bool = False, level: Level = Level.WARNING) -> Alert:
    return Alert("project-failing", about, text or f"{about} failed", over, level)


class Line:
    """A channel. ``does`` is asked before each message is taken."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.does: Callable[[], object] = lambda: None
        self.open = asyncio.Event()
        self.open.set()

    async def send(self, message: Message) -> None:
        await self.open.wait()
        self.does()
        self.taken.append(message)

    @property
    def told(self) -> list[tuple[str, Turn]]:
        return [(item.about, item.turn) for message in self.taken for item in message.items]

    def refuse(self, error: Exception) -> None:
        def refused() -> None:
            raise error

        self.does = refused


class Office:
    """Starts and stops it on one store, as a program does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lines = {"ops": Line(), "boss": Line()}
        self.now = 1000.0
        self.settings = AlertSettings(
            channels=(Channel("ops", "webhook"), Channel("boss", "mail", Level.CRITICAL)), settle_s=50.0
        )

    def clock(self) -> float:
        return self.now

    async def load(self) -> Alerting:
        senders = {channel.name: self.lines[channel.name] for channel in self.settings.channels}
        return await Alerting.load(self.settings, store=self.store, senders=senders, clock=self.clock)

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[Alerting]:
        it = await self.load()
        work = asyncio.create_task(it.run())
        try:
            yield it
            assert not work.done(), work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    @property
    def ops(self) -> Line:
        return self.lines["ops"]

    async def until(self, holds: Callable[[], object], within_s: float = 30.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds():
                await asyncio.sleep(0.01)

    async def quiet(self, it: Alerting) -> None:
        """Until all that was told is decided and stored, and nothing is being sent."""
        for _ in range(3):
            await self.until(lambda: not it._inbox and not it._unsaved)
            await self.until(lambda: not it._sending)
            await asyncio.sleep(0.02)

    async def history(self) -> list[tuple[str, bool]]:
        found, _ = await self.store.alert_page(AlertFilter(standing=None))
        return [(record.alert.about, record.stands) for record in found]


@pytest.fixture
async def office(tmp_path) -> AsyncIterator[Office]:
    store = await Store.open(f"sqlite:///{tmp_path}/store.db")
    yield Office(store)
    await store.close()


def in_trouble(office: Office, monkeypatch) -> list[Failure]:
    """The database refuses as long as the list holds something."""
    trouble, real = [AWAY], office.store.save_alerts

    async def save(writes):
        if trouble:
            raise FailureError(trouble[0])
        await real(writes)

    monkeypatch.setattr(office.store, "save_alerts", save)
    monkeypatch.setattr(alerting_module, "RETRY_MIN_S", 0.02)
    return trouble


# Told, stored, sent


async def test_an_alert_is_stored_and_sent_once_and_so_is_its_end(office):
    async with office.up() as it:
        it.told(alert())
        await office.until(lambda: office.ops.told)
        it.told(alert(text="a failed again"))
        it.stand(frozenset({"project-failing"}), [alert(text="a failed still")])
        await office.quiet(it)
        assert [record.alert.text for record in it.standing] == ["a failed still"]
        it.stand(frozenset({"project-failing"}), [])
        await office.until(lambda: len(office.ops.told) == 2)
        assert it.standing == ()
    assert office.ops.told == [("a", Turn.RAISED), ("a", Turn.OVER)]
    assert office.lines["boss"].told == [], "wants critical ones alone"
    assert await office.history() == [("a", False)]
    _, notices = await office.store.find_alert(1)
    assert [(n.turn, n.sent_at) for n in notices] == [(Turn.RAISED, 1000.0), (Turn.OVER, 1000.0)]


async def test_of_very_many_alerts_those_that_stand_are_heeded_and_the_rest_is_an_overflow(office):
    office.settings = replace(office.settings, standing_max=10)
    many = [alert(f"p{n:06d}") for n in range(100_000)]
    async with office.up() as it:
        it.told(many[-1])
        await office.quiet(it)
        began = time.process_time()
        it.stand(frozenset({"project-failing"}), many)
        await office.quiet(it)
        assert time.process_time() - began < 2.0
        stands = {record.alert.about for record in it.standing}
        it.stand(frozenset({"project-failing"}), many[-1:])
        await office.quiet(it)
        assert [record.alert.about for record in it.standing] == ["p099999"]
    assert "p099999" in stands
    assert "all" in stands, "that there are too many is told"
    assert len(stands) <= 11


async def test_nothing_is_sent_before_it_is_stored(office, monkeypatch):
    trouble = in_trouble(office, monkeypatch)
    async with office.up() as it:
        it.told(alert())
        await asyncio.sleep(0.2)
        assert office.ops.told == []
        assert (await office.store.load_alerts()).standing == ()
        trouble.clear()
        await office.until(lambda: office.ops.told)
    assert await office.history() == [("a", True)]


async def test_a_database_in_trouble_loses_no_alert(office, monkeypatch):
    trouble = in_trouble(office, monkeypatch)
    async with office.up() as it:
        it.told(alert("first"))
        await office.until(lambda: it._trouble is not None)
        for n in range(50):
            for failures in range(100):
                it.told(alert(f"p{n}", f"p{n} failed {failures} times"))
        for n in range(25):
            it.told(alert(f"p{n}", over=True))
        assert len(it._inbox) <= 1000
        trouble.clear()
        await office.until(lambda: len(it.standing) == 26)
        await office.quiet(it)
        await office.until(lambda: sum(len(m.items) + m.more for m in office.ops.taken) >= 26)
        assert it._trouble is None
    standing = {
        record.alert.about: record.alert.text for record in (await office.store.load_alerts()).standing
    }
    latest = {f"p{n}": f"p{n} failed 99 times" for n in range(25, 50)}
    assert standing == {"first": "first failed"} | latest


async def test_a_write_that_the_database_refuses_is_set_aside_and_other_alerts_go_on(office, monkeypatch):
    save = office.store.save_alerts

    async def picky(writes):
        if any("odd" in repr(write) for write in writes):
            raise OverflowError("too large")
        await save(writes)

    monkeypatch.setattr(office.store, "save_alerts", picky)
    async with office.up() as it:
        for about in ("a", "odd", "b"):
            it.told(alert(about))
        await office.quiet(it)
        assert {about for about, _ in await office.history()} == {"a", "b"}


async def test_a_channel_that_hangs_or_fails_holds_up_no_other(office):
    office.settings = replace(office.settings, channels=(Channel("ops", "webhook"), Channel("boss", "mail")))
    boss = office.lines["boss"]
    for hinder in (boss.open.clear, lambda: boss.refuse(NotSent("refused"))):
        hinder()
        office.ops.taken.clear()
        async with office.up() as it:
            for n in range(5):
                began = time.monotonic()
                it.told(alert(f"p{n}"))
                await office.until(lambda n=n: len(office.ops.told) == n + 1)
                assert time.monotonic() - began < 20.0  # one that hangs is given a minute
            assert boss.told == []
            boss.open.set()
            it.stand(frozenset({"project-failing"}), [])
            await office.quiet(it)
        boss.taken.clear()


async def test_a_send_that_takes_too_long_or_breaks_counts_as_not_sent(office, monkeypatch):
    monkeypatch.setattr(alerting_module, "SEND_MAX_S", 0.05)
    async with office.up() as it:
        office.ops.open.clear()
        it.told(alert())
        await office.until(lambda: it.book.channels()[0].error)
        assert "0.05 s" in it.book.channels()[0].error
        office.ops.open.set()
        office.ops.refuse(RuntimeError("hunter2"))
        office.now += 10.0
        it.hear(Woke())
        await office.until(lambda: "RuntimeError" in it.book.channels()[0].error)
        assert "hunter2" not in it.book.channels()[0].error
        office.ops.does = lambda: None
        office.now += 100.0
        it.hear(Woke())
        await office.until(lambda: office.ops.told == [("a", Turn.RAISED)])


async def test_what_waits_for_time_goes_by_itself(office):
    office.settings = replace(office.settings, backoff_min_s=0.1)
    office.clock = time.time
    attempts = []

    def busy() -> None:
        attempts.append(time.time())
        if len(attempts) < 3:
            raise NotSent("busy", retry_after_s=0.2)

    office.ops.does = busy
    async with office.up() as it:
        it.told(alert())
        await office.until(lambda: office.ops.told == [("a", Turn.RAISED)])
    first, second, third = attempts
    assert second - first >= 0.2
    assert third - second >= 0.2


# A stop and a start


async def test_after_a_restart_what_stands_is_not_told_again_and_its_end_is(office):
    async with office.up() as it:
        it.told(alert())
        it.told(alert("b"))
        await office.until(lambda: len(office.ops.told) == 2)
    for _ in range(2):
        office.now += 10.0
        async with office.up() as it:
            assert [record.alert.about for record in it.standing] == ["a", "b"]
            it.stand(frozenset({"project-failing"}), [alert(), alert("b", "b failed again")])
            await office.quiet(it)
    assert len(office.ops.told) == 2
    async with office.up() as it:
        it.stand(frozenset({"project-failing"}), [alert()])
        await office.until(lambda: len(office.ops.told) == 3)
        office.now += 51.0
        it.hear(Woke())
        await office.quiet(it)
    assert office.ops.told[2:] == [("b", Turn.OVER)]
    async with office.up() as it:
        await office.quiet(it)
        office.now += 51.0  # nobody tells of it any more
        it.hear(Woke())
        await office.until(lambda: len(office.ops.told) == 4)
    assert office.ops.told[3:] == [("a", Turn.OVER)]
    assert await office.history() == [("b", False), ("a", False)]


async def test_what_was_told_just_before_a_stop_is_stored_and_sent(office):
    async with office.up() as it:
        await office.quiet(it)
        for n in range(300):
            it.told(alert(f"p{n}"))
    assert len((await office.store.load_alerts()).standing) == 300
    assert sum(len(m.items) + m.more for m in office.ops.taken) == 300
    sent = len(office.ops.taken)
    async with office.up() as it:
        await office.quiet(it)
    assert len(office.ops.taken) == sent


async def test_a_stop_waits_for_a_slow_channel_and_not_for_a_dead_one(office, monkeypatch):
    async with office.up() as it:
        office.ops.open.clear()
        it.told(alert())
        await office.until(lambda: it._sending)
        asyncio.get_running_loop().call_later(0.3, office.ops.open.set)
    assert office.ops.told == [("a", Turn.RAISED)]
    _, (notice,) = await office.store.find_alert(1)
    assert notice.sent_at is not None

    monkeypatch.setattr(alerting_module, "STOP_S", 0.3)
    office.ops.open.clear()
    began = time.monotonic()
    async with office.up() as it:
        it.told(alert("b"))
        await office.until(lambda: it._sending)
    assert time.monotonic() - began < 20.0  # the channel never ends, and is given a minute
    assert await office.history() == [("b", True), ("a", True)]


async def test_what_was_decided_while_the_database_was_in_trouble_is_stored_at_the_stop(office, monkeypatch):
    async with office.up() as it:
        await office.quiet(it)
        trouble = in_trouble(office, monkeypatch)
        monkeypatch.setattr(alerting_module, "RETRY_MIN_S", 30.0)
        it.told(alert())
        await office.until(lambda: it._trouble is not None)
        it.told(alert("b"))
        assert ([r.alert.about for r in it.standing], len(it._inbox)) == (["a"], 1)
        trouble.clear()
    assert await office.history() == [("b", True), ("a", True)]


async def test_a_stop_does_not_wait_for_a_database_that_is_away(office, monkeypatch):
    in_trouble(office, monkeypatch)
    monkeypatch.setattr(alerting_module, "STOP_S", 0.2)
    began = time.monotonic()
    async with office.up() as it:
        it.told(alert())
        await office.until(lambda: it._trouble is not None)
    assert time.monotonic() - began < 20.0  # it never comes back


async def test_a_stop_does_not_wait_for_a_database_that_answers_nothing(office, monkeypatch):
    """As one whose process is stopped: a transaction cannot be cancelled, and does not end."""
    monkeypatch.setattr(alerting_module, "STOP_S", 0.3)
    thawed, real = asyncio.Event(), office.store.save_alerts

    async def frozen(writes):
        async def save():
            await thawed.wait()
            await real(writes)

        await whole(save())

    async with office.up() as it:
        await office.quiet(it)
        monkeypatch.setattr(office.store, "save_alerts", frozen)
        it.told(alert())
        await office.until(lambda: it._unsaved)
        it.told(alert("b"))
        began = time.monotonic()
    assert time.monotonic() - began < 20.0  # it never answers
    thawed.set()
    await asyncio.wait({it._storing})
    assert await office.history() == [("a", True)]


async def test_at_a_stop_what_is_being_stored_is_never_stored_over_what_is_newer(office, monkeypatch):
    slow, real, ends = asyncio.Event(), office.store.save_alerts, []

    async def late(writes):
        await slow.wait()
        await real(writes)
        ends.append("the older")

    async def save(writes):
        monkeypatch.setattr(office.store, "save_alerts", real)
        await whole(late(writes))

    async with office.up() as it:
        await office.quiet(it)
        monkeypatch.setattr(office.store, "save_alerts", save)
        it.told(alert())
        await office.until(lambda: it._unsaved)
        it.told(alert(over=True))
        asyncio.get_running_loop().call_later(0.2, slow.set)
    await office.until(lambda: ends)
    assert await office.history() == [("a", False)]


async def test_removing_old_alerts_holds_up_nothing_and_a_stop_ends_it(office, monkeypatch):
    async def clean(before):
        await asyncio.Event().wait()

    monkeypatch.setattr(office.store, "clean_alerts", clean)
    monkeypatch.setattr(alerting_module, "STOP_S", 50.0)  # whoever waits for it takes that long
    began = time.monotonic()
    async with office.up() as it:
        it.told(alert())
        await office.until(lambda: office.ops.told)
    assert it._cleaning.cancelled()
    assert time.monotonic() - began < 20.0


async def test_a_bug_in_removing_old_alerts_is_not_passed_over(office, monkeypatch):
    async def clean(before):
        raise RuntimeError("a bug")

    monkeypatch.setattr(office.store, "clean_alerts", clean)
    it = await office.load()
    work = asyncio.create_task(it.run())
    await asyncio.sleep(0.05)
    it.told(alert())
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(work, 5.0)


async def test_what_a_crash_kept_from_being_sent_is_sent_at_the_next_start(office, monkeypatch):
    async def nothing() -> None:
        return

    async with office.up() as it:
        monkeypatch.setattr(it, "_end", nothing)  # as if the process were killed
        office.ops.open.clear()
        it.told(alert())
        await office.until(lambda: it._sending)
        it.told(alert("b"))
        await office.until(lambda: len(it.standing) == 2)
        await office.until(lambda: not it._unsaved)
    office.ops.open.set()
    office.now += 10.0
    async with office.up() as it:
        it.stand(frozenset({"project-failing"}), [alert(), alert("b")])
        await office.until(lambda: len(office.ops.told) == 2)
        await office.quiet(it)
    assert sorted(office.ops.told, key=str) == [("a", Turn.RAISED), ("b", Turn.RAISED)]


async def test_old_alerts_are_removed_from_the_history(office):
    office.settings = replace(office.settings, retention_s=3600.0)
    async with office.up() as it:
        it.told(alert())
        await office.quiet(it)
        it.told(alert(over=True))
        it.told(alert("b"))
        await office.quiet(it)
    office.now += 3601.0
    async with office.up() as it:
        await office.quiet(it)
    assert await office.history() == [("b", True)]


async def test_channels_are_changed_without_a_restart(office):
    office.lines["chat"] = Line()
    office.ops.refuse(NotSent("refused"))
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        it.told(alert())
        it.told(alert("b"))
        await office.quiet(it)
        settings = replace(it.book.settings, channels=(Channel("chat", "webhook"),), settle_s=50.0)
        it.configure(settings, {"chat": office.lines["chat"]})
        await office.until(lambda: "chat" in it.senders)
        it.told(alert("c"))
        await office.until(lambda: office.lines["chat"].told == [("c", Turn.RAISED)])
        assert [channel.name for channel in await admin.channels()] == ["chat"]
        office.now += 51.0
        it.hear(Woke())
        await office.quiet(it)
        assert [record.alert.about for record in it.standing] == ["a", "b", "c"], "nobody was away"
        _, (notice,) = await office.store.find_alert(1)
        assert "no longer in the settings" in notice.error
        it.told(alert("d"))
        await office.until(lambda: len(office.lines["chat"].told) == 2)
    assert office.ops.told == []


async def test_channels_are_changed_once_the_database_answers(office, monkeypatch):
    async with office.up() as it:
        await office.quiet(it)
        trouble, boss = in_trouble(office, monkeypatch), Line()
        it.told(alert(level=Level.CRITICAL))
        await office.until(lambda: it._trouble is not None)
        it.configure(office.settings, {"ops": office.ops, "boss": boss})
        await asyncio.sleep(0.1)
        assert it.senders["boss"] is not boss
        trouble.clear()
        await office.until(lambda: it.senders["boss"] is boss)
        it.told(alert("b", level=Level.CRITICAL))
        await office.until(lambda: ("b", Turn.RAISED) in boss.told)
        assert it._trouble is None


async def test_other_settings_wait_for_no_channel_and_hold_up_nobody(office):
    """While there is always something under way."""
    channels = (Channel("ops", "webhook"), Channel("boss", "mail"))
    office.settings = replace(office.settings, channels=channels)
    office.lines["chat"] = Line()
    async with office.up() as it:
        for line in (office.ops, office.lines["boss"]):
            line.open.clear()
        it.told(alert())
        await office.until(lambda: len(it._sending) == 2)
        settings = replace(office.settings, channels=(*channels, Channel("chat", "webhook")))
        it.configure(settings, office.lines)
        await office.until(lambda: "chat" in it.senders)
        admin = AlertAdmin(it, office.store, office.clock)
        async with asyncio.timeout(20.0):
            await admin.silence("*", "x", 60.0, "", actor="a")
        it.told(alert("b"))
        await office.until(lambda: ("b", Turn.RAISED) in office.lines["chat"].told)
        assert (len(it._sending), office.ops.told) == (2, [])
        for line in (office.ops, office.lines["boss"]):
            line.open.set()
        await office.until(lambda: len(office.ops.told) == 2)
        await office.quiet(it)
        assert office.ops.told == [("a", Turn.RAISED), ("b", Turn.RAISED)], "what was under way went on"


async def test_a_channel_that_is_taken_away_while_it_sends_and_comes_back_is_stopped_with_the_rest(office):
    async with office.up() as it:
        office.ops.open.clear()
        it.told(alert())
        await office.until(lambda: it._sending)
        for settings in (replace(office.settings, channels=()), office.settings):
            it.configure(settings, office.lines)
            await office.until(lambda settings=settings: it.book.settings is settings)
        it.told(alert("b"))
        await office.until(lambda: len(it._sending) == 2)
        office.ops.open.set()
    assert not it._sending
    assert sorted(office.ops.told) == [("a", Turn.RAISED), ("b", Turn.RAISED)]


async def test_other_settings_confirm_nothing_that_nobody_has_seen_since_the_start(office):
    async with office.up() as it:
        it.told(Alert("source-weather", "h", "h fails for all"))
        it.told(alert())
        await office.quiet(it)
    office.now += 10.0
    async with office.up() as it:
        it.told(alert())
        for _ in range(2):
            office.now += 10.0
            settings = replace(office.settings, server=f"s{office.now}")
            it.configure(settings, office.lines)
            await office.until(lambda settings=settings: it.book.settings is settings)
        office.now += 31.0
        it.hear(Woke())
        await office.quiet(it)
        assert [record.alert.about for record in it.standing] == ["a"]


async def test_a_channel_that_is_down_and_taken_out_of_the_settings_is_no_trouble_any_more(office):
    channels = (Channel("ops", "webhook"), Channel("chat", "webhook"))
    office.lines["chat"] = Line()
    office.settings = replace(office.settings, channels=channels)
    office.ops.refuse(NotSent("gone"))
    async with office.up() as it:
        it.told(alert())
        await office.quiet(it)
        office.now += 301.0
        it.hear(Woke())
        down = ("channel-down", "ops")
        await office.until(lambda: down in {record.alert.identity for record in it.standing})
        it.configure(replace(office.settings, channels=channels[1:]), {"chat": office.lines["chat"]})
        await office.until(lambda: ("ops", Turn.OVER) in office.lines["chat"].told)
        assert down not in {record.alert.identity for record in it.standing}


# How it is seen


async def test_an_alert_is_logged_at_its_level_and_again_when_it_becomes_more_serious(office):
    it = await office.load()
    with capture_logs() as logs:
        for told in (
            alert(text="a failed"),
            alert(text="a failed again"),
            alert(text="a is paused", level=Level.ERROR),
            alert(text="a is paused, still", level=Level.ERROR),
            Alert("failure-rate", "all", "6 % failed", level=Level.CRITICAL),
            alert(text="a is well", over=True),
        ):
            await it._take([alerting_module.Entry(Told(told))])
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("a failed", "warning"),
        ("a is paused", "error"),
        ("6 % failed", "critical"),
        ("a is well", "info"),
    ]
    await it._stop_sending()


async def test_the_most_serious_are_shown_first_and_by_their_level(office):
    it = await office.load()
    told = [
        alert(text="a failed"),
        Alert("target-paused", "t", "t is paused", level=Level.ERROR),
        Alert("failure-rate", "all", "6 % failed", level=Level.CRITICAL),
        Alert("worker-down", "w", "w is down", level=Level.ERROR),
        Alert("repo-held", "h/r", "r is held"),
    ]
    await it._take([alerting_module.Entry(Told(one)) for one in told])
    assert it.warnings() == ("critical: 6 % failed", "error: t is paused", "a failed")
    await it._take([alerting_module.Entry(Told(alert(f"p{n}"))) for n in range(30)])
    assert len(it.warnings()) == 21
    assert it.warnings()[-1] == "13 more alerts: `evermirror alerts list`"
    await it._stop_sending()


async def test_figures_count_what_stands_and_what_became_of_notices(office):
    async with office.up() as it:
        assert it.figures().standing == dict.fromkeys(Level, 0)
        it.told(alert())
        it.told(alert("b", level=Level.ERROR))
        await office.quiet(it)
        office.ops.refuse(NotSent("refused"))
        it.told(alert("c", level=Level.ERROR))
        await office.quiet(it)
        office.ops.refuse(NotSent("too long", permanent=True))
        office.now += 30.0
        it.hear(Woke())
        await office.quiet(it)
        figures = it.figures()
    assert figures.standing == {Level.WARNING: 1, Level.ERROR: 3, Level.CRITICAL: 0}  # with channel-down
    assert figures.notices == {
        ("ops", NoticeEnd.SENT): 2,
        ("ops", NoticeEnd.FAILED): 1,
        ("ops", NoticeEnd.GIVEN_UP): 1,
    }
    assert [channel.name for channel in figures.channels] == ["ops", "boss"]


# What people ask for


async def test_a_silence_holds_notices_back_until_it_is_ended(office):
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        silence = await admin.silence("project-*", "dev/*", 600.0, "upgrade", actor="alice")
        assert (silence.by, silence.until, silence.reason) == ("alice", 1600.0, "upgrade")
        assert await admin.silences() == (silence,)
        it.told(alert("dev/a"))
        it.told(alert("b"))
        await office.until(lambda: office.ops.told)
        await office.quiet(it)
        assert office.ops.told == [("b", Turn.RAISED)]
        page = await admin.alerts(AlertFilter())
        assert [(v.record.alert.about, v.silenced_by) for v in page.items] == [
            ("b", None),
            ("dev/a", silence.id),
        ]
        await admin.unsilence(silence.id, actor="bob")
        await office.until(lambda: office.ops.told == [("b", Turn.RAISED), ("dev/a", Turn.RAISED)])
        assert await admin.silences() == ()
        with pytest.raises(NotFound, match="silence 1"):
            await admin.unsilence(silence.id, actor="bob")
        view, notices = await admin.alert(page.items[1].record.id)
        assert (view.silenced_by, [n.turn for n in notices]) == (None, [Turn.RAISED])
        with pytest.raises(NotFound, match="alert 99"):
            await admin.alert(99)
    told = [(note.actor, note.action) for note in await office.store.list_audit(10)]
    assert told == [("bob", "alerts.unsilenced"), ("alice", "alerts.silenced")]


async def test_silences_outlive_a_restart(office):
    async with office.up() as it:
        await AlertAdmin(it, office.store, office.clock).silence("*", "*", 600.0, "", actor="a")
    async with office.up() as it:
        it.told(alert())
        await office.quiet(it)
        assert office.ops.told == []
        office.now += 601.0
        it.hear(Woke())
        await office.until(lambda: office.ops.told == [("a", Turn.RAISED)])
        assert await AlertAdmin(it, office.store, office.clock).silences() == ()


@pytest.mark.parametrize(
    ("kind", "about", "for_s", "reason"),
    [
        ("", "*", 60.0, ""),
        ("*", "a\0", 60.0, ""),
        ("*", "x" * 501, 60.0, ""),
        ("*", "*", 0.0, ""),
        ("*", "*", 1e-300, ""),
        ("*", "*", 0.9, ""),
        ("*", "*", -1.0, ""),
        ("*", "*", 367 * 86_400.0, ""),
        ("*", "*", float("nan"), ""),
        ("*", "*", float("inf"), ""),
        ("*", "*", 60.0, "x" * 1001),
        ("*", "*", 60.0, "\udc80"),
    ],
)
async def test_a_silence_that_makes_no_sense_is_refused(office, kind, about, for_s, reason):
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        with pytest.raises(InvalidValue):
            await admin.silence(kind, about, for_s, reason, actor="a")
        assert await admin.silences() == ()


async def test_silences_are_bounded(office):
    office.settings = replace(office.settings, silences_max=2)
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        for n in range(2):
            await admin.silence("*", f"p{n}", 60.0, "", actor="a")
        with pytest.raises(Conflict, match="too many"):
            await admin.silence("*", "p3", 60.0, "", actor="a")


async def test_a_wish_that_comes_while_the_database_is_in_trouble_is_refused(office, monkeypatch):
    async with office.up() as it:
        await office.quiet(it)
        trouble = in_trouble(office, monkeypatch)
        it.told(alert())
        await office.until(lambda: it._trouble is not None)
        admin = AlertAdmin(it, office.store, office.clock)
        with pytest.raises(FailureError, match="disk is full"):
            await admin.silence("*", "*", 60.0, "", actor="a")
        trouble.clear()
        await office.quiet(it)
        assert await admin.silences() == ()


async def test_a_wish_is_not_fulfilled_after_its_asker_was_told_that_it_failed(office, monkeypatch):
    patient_s = alerting_module.ANSWER_S
    monkeypatch.setattr(alerting_module, "ANSWER_S", 0.1)
    real, slow = office.store.save_alerts, asyncio.Event()

    async def save(writes):
        await slow.wait()
        await real(writes)

    async with office.up() as it:
        await office.quiet(it)
        monkeypatch.setattr(office.store, "save_alerts", save)
        it.told(alert())
        await office.until(lambda: it._unsaved)
        with pytest.raises(FailureError, match="in time"):
            await it.ask(Silenced("*", "*", 5000.0, "a"))
        slow.set()
        monkeypatch.setattr(alerting_module, "ANSWER_S", patient_s)
        await office.quiet(it)
        assert it.book.silences() == ()
        assert (await it.ask(Silenced("*", "*", 5000.0, "a"))).writes


async def test_channels_are_tried_at_once_and_told_one_by_one(office):
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        office.ops.refuse(NotSent("errcode 310000: sign not match"))
        assert await admin.test(None, actor="alice") == (
            Tried("ops", "errcode 310000: sign not match"),
            Tried("boss"),
        )
        (message,) = office.lines["boss"].taken
        assert [item.turn for item in message.items] == [Turn.TEST]
        assert await admin.test("boss", actor="alice") == (Tried("boss"),)
        assert len(office.lines["boss"].taken) == 2
        with pytest.raises(NotFound, match="pager"):
            await admin.test("pager", actor="alice")
        await office.quiet(it)
        assert [channel.sent_at for channel in await admin.channels()] == [None, 1000.0]
    notes = await office.store.list_audit(10)
    assert [(note.action, note.subject) for note in notes] == [
        ("alerts.tested", "boss"),
        ("alerts.tested", "all"),
    ]
    office.settings = replace(office.settings, channels=())
    async with office.up() as it:
        with pytest.raises(Conflict, match="no channel"):
            await AlertAdmin(it, office.store, office.clock).test(None, actor="alice")


async def test_tests_keep_to_the_rate_of_a_channel(office):
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        answers = [await admin.test("ops", actor="a") for _ in range(25)]
        assert len(office.ops.taken) == 20
        assert [one.error for (one,) in answers] == [""] * 20 + [
            "not tried: it takes 20 messages a minute; try again in 60 s"
        ] * 5
        it.told(alert())
        await office.quiet(it)
        office.now += 61.0
        it.hear(Woke())
        await office.until(lambda: len(office.ops.taken) == 21)
        assert await admin.test("ops", actor="a") == (Tried("ops"),)


async def test_one_test_of_a_channel_goes_at_a_time(office):
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        office.ops.open.clear()
        tests = [asyncio.create_task(admin.test("ops", actor="a")) for _ in range(40)]
        await office.until(lambda: sum(test.done() for test in tests) == 39)
        assert await admin.test("boss", actor="a") == (Tried("boss"),), "another one is not kept waiting"
        office.ops.open.set()
        errors = sorted(one.error for (one,) in await asyncio.gather(*tests))
        assert errors == ["", *["not tried: another test of it is under way"] * 39]
        assert len(office.ops.taken) == 1
        assert await admin.test("ops", actor="a") == (Tried("ops"),)


async def test_what_cannot_be_noted_in_the_audit_log_is_not_done(office, monkeypatch):
    async with office.up() as it:
        admin = AlertAdmin(it, office.store, office.clock)
        kept = await admin.silence("*", "x", 60.0, "", actor="a")

        async def audit(*_):
            raise FailureError(AWAY)

        monkeypatch.setattr(office.store, "audit", audit)
        with pytest.raises(FailureError):
            await admin.silence("*", "*", 60.0, "", actor="a")
        with pytest.raises(FailureError):
            await admin.unsilence(kept.id, actor="a")
        assert await admin.silences() == (kept,)


# The inbox


def told_of(inbox: AlertInbox) -> list[object]:
    return [entry.event for entry in inbox.take(10**6)]


def test_the_inbox_keeps_the_order_and_folds_only_when_much_waits():
    inbox = AlertInbox(roomy=6, alerts_max=10)
    kinds = frozenset({"project-failing"})
    events = [Told(alert()), Told(alert(over=True)), Told(alert()), Stand(kinds, ())]
    for event in events:
        inbox.put(event)
    assert told_of(inbox) == events
    for event in [*events, Told(alert("b")), Stand(kinds, (alert("b"),)), Told(alert("a", "last"))]:
        inbox.put(event)
    assert told_of(inbox) == [Told(alert("b")), Stand(kinds, (alert("b"),)), Told(alert("a", "last"))]
    assert inbox.lost == 0


def test_the_inbox_is_bounded_and_says_what_it_lost():
    inbox = AlertInbox(roomy=10, alerts_max=100)
    for n in range(100_000):
        inbox.put(Told(alert(f"p{n}")))
        assert len(inbox) <= 111
    assert inbox.lost + len(inbox) == 100_000
    assert told_of(inbox)[-1] == Told(alert("p99999"))
    assert not inbox


def test_what_became_of_sends_comes_first_and_is_never_folded():
    inbox = AlertInbox(roomy=2, alerts_max=2)
    for n in range(10):
        inbox.put(Told(alert(f"p{n}")))
        inbox.put(Sent("ops", (n,)))
    assert told_of(inbox)[:10] == [Sent("ops", (n,)) for n in range(10)]


# The fleet


class Heard:
    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        self.stood: list[tuple[frozenset[str], list[Alert]]] = []

    def told(self, alert: Alert) -> None:
        self.alerts.append(alert)

    def stand(self, kinds: frozenset[str], alerts: list[Alert]) -> None:
        self.stood.append((kinds, list(alerts)))

    def stands(self, kinds: frozenset[str]) -> tuple[Alert, ...]:
        return tuple(alert for alert in (self.stood[-1][1] if self.stood else ()) if alert.kind in kinds)


@dataclass
class Seen:
    """A worker, as far as its alerts need it."""

    name: str
    is_heard: bool = True
    load: SimpleNamespace | None = None


class View:
    """A fleet in which this is so."""

    def __init__(self, *alerts: StandingAlert, workers: tuple[Seen, ...] = (), **totals: object) -> None:
        self.alerts, self.more_alerts = alerts[:ALERTS_MAX], alerts[ALERTS_MAX:]
        self.workers = workers
        counts = dict.fromkeys(("planned", "asked", "deferred", "held"), 0)
        self.totals = SimpleNamespace(**{"warming": False, "braked": False, **counts, **totals})


def is_down(count: int) -> list[StandingAlert]:
    return [StandingAlert(AlertKind.WORKER_DOWN, f"w{n}", "is down") for n in range(count)]


def test_the_fleets_alerts_are_passed_on_with_their_level():
    heard = Heard()
    alerts = FleetAlerts(heard)
    for over in (False, True):
        alerts.told(FleetAlert(AlertKind.BRAKE, "fleet", "too many", over))
        assert len(alerts.standing) == (not over)
    assert heard.alerts == [
        Alert("brake", "fleet", "too many", over, Level.CRITICAL) for over in (False, True)
    ]


@pytest.mark.parametrize("count", [2, ALERTS_MAX + 50])
def test_the_state_of_the_fleet_is_the_whole_truth(count):
    heard = Heard()
    FleetWatch(lambda: View(*is_down(count)), heard).look()
    down = [Alert("worker-down", f"w{n}", "is down", level=Level.ERROR) for n in range(count)]
    assert heard.stood == [(FLEET_KINDS, down)]


async def test_a_fleet_of_which_very_much_is_down_is_told_whole_after_a_restart(office):
    for _ in range(2):
        async with office.up() as it:
            FleetWatch(lambda: View(*is_down(150)), it).look()
            await office.quiet(it)
            office.now += 51.0  # what nobody told of again since the start, is over
            it.hear(Woke())
            await office.quiet(it)
            assert len(it.standing) == 150


def looked(heard: Heard, watch: FleetWatch) -> list[tuple[str, str]]:
    watch.look()
    return [(alert.kind, alert.about) for alert in heard.stood[-1][1]]


def test_what_only_a_worker_can_tell_stays_while_it_is_away():
    full = StandingAlert(AlertKind.DISK_FULL, "w1", "is full")
    stray = StandingAlert(AlertKind.STRAY, "w1", "holds 3")
    down = StandingAlert(AlertKind.WORKER_DOWN, "w1", "is down")
    here, away = (Seen("w1"), Seen("w2")), (Seen("w1", is_heard=False), Seen("w2"))
    heard, now = Heard(), [View(full, stray, workers=here)]
    watch = FleetWatch(lambda: now[0], heard)
    stood = looked(heard, watch)
    now[0] = View(down, workers=away)
    assert looked(heard, watch) == [*stood, ("worker-down", "w1")]
    now[0] = View(full, workers=here)
    assert looked(heard, watch) == [("disk-full", "w1")]
    now[0] = View(workers=away)
    assert looked(heard, watch) == [("disk-full", "w1")]
    now[0] = View(workers=(Seen("w2"),))
    assert looked(heard, watch) == [], "it was retired"


def test_at_the_first_look_after_a_start_and_while_the_fleet_warms_up_a_lack_of_room_stays():
    heard, brake = Heard(), Alert("brake", "fleet", "", level=Level.CRITICAL)
    heard.stand(FLEET_KINDS, [Alert("no-room", "fleet", "3 wait", level=Level.ERROR), brake])
    now = [View(warming=True)]
    watch = FleetWatch(lambda: now[0], heard)
    assert looked(heard, watch) == [("no-room", "fleet"), ("brake", "fleet")]
    assert looked(heard, watch) == [("no-room", "fleet")]
    now[0] = View()
    assert looked(heard, watch) == []


def busy(**changes: object) -> SimpleNamespace:
    load = {"changes_total": 5, "received_bytes_total": 9, "running": (), "queued_syncs": 0}
    return SimpleNamespace(**{**load, "accepting_clones": True, **changes})


def cloning(*, first: bool) -> RunningSync:
    return RunningSync(RepoKey("h.example/x"), "receiving", None, 7, 1.0, first)


def test_first_clones_that_wait_and_do_not_move_are_told_until_they_do():
    worker = Seen("w1", load=busy())
    heard, now = Heard(), [View(workers=(worker,), planned=172, asked=256)]
    watch = FleetWatch(lambda: now[0], heard)
    for _ in range(STALL_LOOKS):
        assert looked(heard, watch) == []
    assert looked(heard, watch) == [("stalled", "fleet")]
    assert "428 first clones of the fleet wait" in heard.stood[-1][1][0].text
    worker.load = busy(received_bytes_total=10, changes_total=6, running=(cloning(first=False),))
    assert looked(heard, watch) == [("stalled", "fleet")], "polls and syncs of others are no progress"
    worker.load = busy(running=(cloning(first=True),))
    assert looked(heard, watch) == []


def test_syncs_that_wait_while_nothing_of_their_worker_moves_are_told_of_that_worker():
    heard, now = Heard(), [View(workers=(Seen("w1", load=busy(queued_syncs=3)), Seen("w2", load=busy())))]
    watch = FleetWatch(lambda: now[0], heard)
    for _ in range(STALL_LOOKS):
        assert looked(heard, watch) == []
    assert looked(heard, watch) == [("stalled", "w1")]


@pytest.mark.parametrize(
    "view",
    [
        View(workers=(Seen("w1", load=busy()),), asked=3, braked=True),
        View(workers=(Seen("w1", load=busy()),), asked=3, warming=True),
        View(workers=(Seen("w1", load=busy(accepting_clones=False, queued_syncs=2)),), planned=3),
        View(workers=(Seen("w1"),), planned=3),
        View(workers=(Seen("w1", load=busy()),), deferred=300),
    ],
    ids=["braked", "warming up", "full disks", "nobody there", "only dead ones"],
)
def test_what_waits_for_a_reason_that_is_told_otherwise_is_no_stall(view):
    heard = Heard()
    watch = FleetWatch(lambda: view, heard)
    assert {tuple(looked(heard, watch)) for _ in range(STALL_LOOKS + 2)} == {()}


def test_very_many_alerts_of_the_fleet_push_out_none_that_only_its_event_tells():
    alerts = FleetAlerts()
    for n in range(ALERTS_MAX + 50):
        alerts.told(FleetAlert(AlertKind.WORKER_DOWN, f"w{n}", "is down"))
    alerts.told(FleetAlert(AlertKind.ACCUSATION, "agg", "accuses"))
    assert alerts.standing[-1].about == "agg"
