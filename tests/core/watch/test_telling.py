"""What channels that fail, come back, are set anew or are restarted get to know of what stands."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import (
    AlertSettings,
    Channel,
    NotSent,
    RestoredAlerts,
    Sent,
    Stand,
    Told,
    Woke,
)
from evermirror.model.alert import AlertRecord, Silence, SilenceId
from tests.core.watch.small_alerts import BOT, CRITICAL, ERROR, MAIL, NOW, World, alert, over

DAY = 86_400.0
SERIOUS = Channel("serious", "mail", min_level=ERROR)


def fail_for(world: World, seconds: float, channel: str = "mail") -> None:
    until = world.now + seconds
    while world.now < until:
        if channel in world.under_way:
            world.refuse(channel)
        world.wait(min(60.0, until - world.now))


# A channel that fails


@pytest.mark.parametrize("what", ["over", "silenced", "taken back"])
def test_one_failed_attempt_is_no_channel_that_is_down_once_nothing_is_to_be_sent(what: str) -> None:
    world = World(MAIL, BOT)
    world.tell(alert("p"))
    world.take_all("bot")
    if what == "taken back":
        world.take_all("mail")
        world.tell(alert("p", ERROR))
        world.take_all("bot")
    world.refuse("mail")
    if what == "over":
        world.tell(over("p"), after_s=2)
        world.take_all("bot")
    elif what == "silenced":
        world.silence(for_s=DAY)
    else:
        world.tell(alert("p"), after_s=2)
    assert (world.state().failing_since, world.state().error) == (None, "")
    world.wait(3600)
    assert "mail" not in world.stands()
    assert "bot" not in world.under_way


def test_a_channel_that_is_down_and_then_has_nothing_to_send_is_not_called_down_any_more() -> None:
    world = World(MAIL, BOT)
    world.tell(alert("p"))
    world.take_all("bot")
    fail_for(world, 400)
    if "mail" in world.under_way:
        world.refuse()
    assert "mail" in world.stands()
    world.silence(about="p", for_s=DAY)
    assert world.stands() == {"p"}
    [ended] = [record for record in world.rows.alerts.values() if not record.stands]
    assert ended.end_text == "channel mail has nothing left to send"


def test_who_was_away_for_a_day_is_told_what_stands_as_one_digest() -> None:
    world = World()
    world.tell(*(alert(f"p{n}") for n in range(5)), alert("worst", CRITICAL))
    fail_for(world, DAY + 3600)
    assert len(world.given_up()) >= 6
    world.tell(over("p0"))
    fail_for(world, DAY)
    world.wait(900)
    taken = world.take_all()
    assert taken[0] == ["raised worst"]
    assert taken[1:] == [["raised p1", "raised p2", "raised p3", "raised p4"]]
    world.tell(over("p1"))
    assert world.take_all() == [["over p1"]]


def test_what_was_missed_for_a_day_outlasts_a_restart() -> None:
    world = World()
    world.tell(alert("a", CRITICAL), alert("b"))
    fail_for(world, DAY + 3600)
    world.restart()
    world.tell(alert("a", CRITICAL), alert("b"))
    world.wait(900)
    assert world.take_all() == [["raised a"], ["raised b"]]


def test_a_test_that_arrives_brings_what_was_missed() -> None:
    world = World()
    world.tell(alert("a"), alert("b"))
    fail_for(world, DAY + 3600)
    if "mail" in world.under_way:
        world.refuse()
    assert world.state().waiting == 1
    world.hear(Sent("mail", ()), after_s=1)
    assert sorted(item for message in world.take_all() for item in message) == ["raised a", "raised b"]


def test_what_was_refused_for_good_is_not_told_again_by_a_success_or_a_restart() -> None:
    world = World()
    world.tell(alert("bad"))
    world.refuse(permanent=True)
    world.wait(60)
    world.tell(alert("good"))
    assert world.take_all() == [["raised good"]]
    world.restart()
    world.tell(alert("bad"), alert("good"))
    world.wait(3600)
    assert world.under_way == {}


def test_what_is_not_taken_for_a_day_while_others_are_is_not_tried_for_ever() -> None:
    world = World()
    world.tell(alert("bad"))
    until = world.now + DAY + 3600
    while world.now < until:
        if "mail" in world.under_way:
            is_bad = any(item.about == "bad" for item in world.under_way["mail"].message.items)
            world.refuse() if is_bad else world.take()
        world.wait(60)
        if world.now < NOW + 60.5:
            world.tell(alert("good"))
    assert world.given_up() == ["refused"]
    assert (world.state().waiting, world.under_way) == (0, {})
    sent = [notice for notice in world.rows.notices.values() if notice.sent_at is not None]
    assert [notice.alert for notice in sent] == [2]


# What it was told


def test_what_it_was_told_outlasts_a_restart_and_worse_is_told() -> None:
    for restarts in (False, True):
        world = World()
        world.tell(alert("p"))
        world.take_all()
        world.tell(alert("p", ERROR))
        world.refuse()
        world.tell(alert("p"))
        assert world.given_up() == ["less serious again before it was sent"]
        if restarts:
            world.restart(after_s=60)
        world.wait(60)
        world.tell(alert("p", ERROR))
        assert world.take_all() == [["worse p"]], restarts


def test_a_notice_says_how_serious_it_was() -> None:
    world = World()
    world.tell(alert("busy"), alert("p"), alert("p", ERROR))
    world.take_all()
    world.tell(alert("p", CRITICAL))
    world.refuse()
    assert [notice.level.value for notice in world.rows.notices.values()] == ["warning", "error", "critical"]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_falls_below_what_a_channel_wants_before_it_is_sent_is_told_when_it_rises(
    restarts: bool,
) -> None:
    world = World(MAIL, SERIOUS)
    world.tell(alert("busy", ERROR), alert("p", ERROR))
    world.take_all("mail")
    world.tell(alert("p"))
    assert world.take_all("serious") == [["raised busy"]]
    assert world.given_up() == ["less serious again before it was sent"]
    if restarts:
        world.restart(after_s=61)
        world.tell(alert("busy", ERROR))
    world.tell(alert("p", ERROR))
    assert world.take_all("serious") == [["raised p"]]
    assert "mail" not in world.under_way
    world.tell(over("p"))
    assert world.take_all("serious") == [["over p"]]


# Clocks


def test_a_clock_that_is_set_forward_ends_nothing_and_gives_nothing_up() -> None:
    world = World()
    world.tell(alert("a"), alert("b"))
    world.take_all()
    world.tell(alert("c"))
    world.refuse()
    world.restart()
    world.now += 3 * 365 * DAY
    world.hear(Woke())
    world.refuse()
    world.hear(Woke(), after_s=1)
    assert world.stands() >= {"a", "b", "c"}
    assert world.given_up() == []
    world.wait(700)
    assert "a" not in world.stands()


# Settings that change


def configure(world: World, *channels: Channel, **settings: object) -> None:
    world.settings = replace(world.settings, channels=channels, **settings)
    world.book.configure(world.settings)
    world.hear(Woke())


def test_other_settings_leave_what_stands_waits_and_is_under_way() -> None:
    world = World(MAIL, BOT)
    world.tell(alert("a"), alert("b"))
    configure(world, replace(MAIL, language="zh"), SERIOUS)
    assert world.given_up() == ["its channel is no longer in the settings"] * 2
    world.hear(Sent("bot", world.under_way.pop("bot").ids))
    assert world.take_all("mail") == [["raised a"], ["raised b"]]
    world.tell(alert("c", ERROR), over("a"))
    assert world.take_all("serious") == [["raised c"]]
    assert world.take_all("mail") == [["raised c"], ["over a"]]
    assert [state.name for state in world.book.channels()] == ["mail", "serious"]


def test_other_settings_confirm_nothing() -> None:
    world = World()
    world.tell(alert("a"), alert("b"))
    world.take_all()
    world.restart()
    world.wait(300)
    configure(world, MAIL)
    world.tell(alert("a"))
    world.wait(301)
    assert world.stands() == {"a"}


def test_other_settings_keep_pauses_and_the_rate() -> None:
    world = World(per_minute=3)
    world.tell(alert("a"))
    world.take()
    world.tell(alert("b"), after_s=1)
    world.refuse(retry_after_s=50.0)
    configure(world, MAIL, per_minute=2)
    world.wait(58)
    assert world.under_way == {}  # the pause is over, and two have gone in this minute
    world.wait(1)
    assert world.going() == ["raised b"]


def test_a_channel_that_is_taken_out_is_not_down_any_more() -> None:
    for restarts in (False, True):
        world = World(MAIL, BOT)
        world.tell(alert())
        world.take_all("bot")
        fail_for(world, 400)
        world.take_all("bot")
        assert "mail" in world.stands()
        world.under_way.pop("mail", None)
        if restarts:
            world.restart(1.0, BOT)
        else:
            configure(world, BOT)
        assert world.stands() == {"p"}
        assert world.take_all("bot") == [["over mail"]]


def test_when_a_test_may_go_by_the_rate() -> None:
    world = World(per_minute=3)
    assert world.book.free_at("mail", NOW) == NOW
    world.hear(Sent("mail", ()))
    world.hear(NotSent("mail", (), "refused"), after_s=10)
    assert world.book.free_at("mail", world.now) == world.now
    world.tell(alert())  # under way: it is the third
    assert world.book.free_at("mail", world.now) == NOW + 60
    world.refuse(retry_after_s=3000.0)
    assert world.book.free_at("mail", world.now) == NOW + 60
    assert world.book.free_at("mail", NOW + 60) == NOW + 60
    assert world.book.free_at("unknown", NOW) == NOW


# What it costs


def test_silences_cost_nothing_where_nothing_is_new() -> None:
    silences = tuple(Silence(SilenceId(n), f"k{n}*", f"a{n}*", NOW + DAY, "ann") for n in range(1, 201))
    alerts = tuple(alert(f"p{n}") for n in range(1000))
    records = tuple(AlertRecord(n + 1, told, NOW, NOW, noticed=told.level) for n, told in enumerate(alerts))
    book = AlertBook(AlertSettings((MAIL,)), RestoredAlerts(records, (), silences), NOW)
    stand = Stand(frozenset({"project-failing"}), alerts)
    book.handle(stand, NOW)
    begun = time.process_time()
    for _ in range(3):
        book.handle(stand, NOW + 60)
    assert time.process_time() - begun < 0.15
    assert book.handle(Told(alerts[0]), NOW + 60).writes == ()
