"""The alert book over restarts, and its own alerts: what lasts, what settles, what a dead channel means."""

from __future__ import annotations

import time

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
from evermirror.model.alert import NoticeId
from tests.core.watch.small_alerts import BOT, CRITICAL, ERROR, MAIL, NOW, WARNING, World, alert, over

KINDS = frozenset({"project-failing"})


# Restarts


def test_what_is_told_again_after_a_restart_is_not_sent_again() -> None:
    world = World()
    world.tell(alert("p"), alert("q"))
    world.take_all()
    world.restart()
    world.tell(alert("p"))
    world.wait(599)
    assert world.under_way == {}
    world.wait(1)
    assert world.take_all() == [["over q"]]
    assert world.stands() == {"p"}
    assert {record.end_text for record in world.rows.alerts.values()} == {
        "",
        "not seen again since the restart",
    }


def test_what_waited_is_sent_after_a_restart() -> None:
    world = World()
    world.tell(alert("first"), alert("p"))
    world.take()
    world.restart(after_s=60)
    assert world.take_all() == [["raised p"]]


def test_what_was_under_way_is_sent_again_after_a_pause_and_its_end_is_told() -> None:
    world = World()
    world.tell(alert("p"))
    world.restart(after_s=1)
    assert world.under_way == {}
    world.tell(over("p"))
    world.wait(4)
    assert world.take_all() == [["over p"]]


def test_a_doubt_outlasts_failures_and_restarts() -> None:
    world = World()
    world.tell(alert("p"))
    world.restart(after_s=10)
    world.refuse()
    world.restart(after_s=0)
    world.tell(over("p"))
    world.wait(30)
    assert world.take_all() == [["over p"]]
    assert world.given_up() == []


def test_a_silence_that_ended_during_the_stop_ends_at_the_start() -> None:
    world = World()
    world.silence(for_s=100)
    world.tell(alert())
    world.restart(after_s=200)
    assert world.take_all() == [["raised p"]]
    assert world.rows.silences == {}


def test_a_silence_holds_after_a_restart_too() -> None:
    world = World()
    world.tell(alert())
    world.take_all()
    silence = world.silence()
    world.tell(over())
    world.restart(after_s=60)
    world.wait(60)
    assert world.under_way == {}
    world.unsilence(silence)
    assert world.take_all() == [["over p"]]


def test_notices_of_a_channel_that_is_no_more_are_given_up() -> None:
    world = World(MAIL, BOT)
    world.tell(alert("p"), alert("q"))
    world.restart(60.0, MAIL)
    assert world.given_up() == ["its channel is no longer in the settings"] * 2
    assert world.take_all("mail") == [["raised p", "raised q"]]


def test_new_ids_are_above_all_that_were_given() -> None:
    world = World()
    world.tell(alert("p"), over("p"))
    world.take_all()
    silence = world.silence()
    world.unsilence(silence)
    world.restart(60.0)
    world.tell(alert("q"))
    assert max(world.rows.alerts) == 2
    assert max(world.rows.notices) == 3
    assert world.silence() == silence + 1


# The book's own alerts


def fail_for(world: World, seconds: float, channel: str = "mail") -> None:
    until = world.now + seconds
    while world.now < until:
        if channel in world.under_way:
            world.refuse(channel)
        world.wait(min(5.0, until - world.now))


def test_a_channel_that_fails_for_long_is_an_alert_for_the_others() -> None:
    world = World(MAIL, BOT)
    world.tell(alert())
    world.take_all("bot")
    fail_for(world, 299)
    assert "bot" not in world.under_way
    fail_for(world, 6)
    assert world.take_all("bot") == [["raised mail"]]
    [_, down] = world.book.standing()
    assert (down.alert.kind, down.alert.level, down.alert.facts) == (
        "channel-down",
        ERROR,
        {"reason": "refused"},
    )
    world.wait(900)
    assert world.take_all("mail") == [["raised p"]]
    assert world.take_all("bot") == [["over mail"]]


def test_the_book_wakes_to_tell_that_a_channel_fails_for_long() -> None:
    world = World(MAIL, BOT)
    world.tell(alert())
    world.take_all("bot")
    world.refuse("mail", retry_after_s=3000.0)
    assert world.last.wake_at == world.now + 300
    world.wait(300)
    assert world.going("bot") == ["raised mail"]


def test_a_channel_is_not_told_that_it_is_down() -> None:
    world = World()
    world.tell(alert())
    fail_for(world, 400)
    world.wait(900)
    assert world.take_all() == [["raised p"]]
    assert world.stands() == {"p"}
    assert {n.alert for n in world.rows.notices.values()} == {1}


def test_what_is_refused_for_good_is_given_up_at_once_and_seen() -> None:
    world = World(MAIL, BOT)
    world.tell(alert())
    world.refuse(permanent=True)
    assert world.given_up() == ["refused"]
    assert (world.state().failing_since, world.state().error) == (world.now, "refused")
    world.take("bot")
    assert world.going("bot") == ["raised mail"]
    world.tell(over())
    world.take("bot")
    assert world.going("bot") == ["over p"]
    assert "mail" not in world.under_way


def test_what_cannot_be_sent_for_a_day_is_given_up() -> None:
    world = World()
    world.tell(alert())
    fail_for(world, 86_400 - 900)
    assert world.given_up() == []
    fail_for(world, 2 * 900)
    assert world.given_up() == ["refused"]
    assert "mail" in world.stands()


def test_a_test_that_arrives_shows_that_a_channel_works() -> None:
    world = World()
    world.tell(alert())
    world.refuse(permanent=True)
    assert world.stands() == {"p", "mail"}
    world.hear(NotSent("mail", (), "refused"))
    assert world.stands() == {"p", "mail"}
    world.hear(Sent("mail", ()))
    assert world.stands() == {"p"}
    assert world.state().error == ""


def test_a_channel_that_was_down_before_a_restart_is_down_until_it_sends() -> None:
    world = World(MAIL, BOT)
    world.tell(alert())
    world.refuse(permanent=True)
    world.take_all("bot")
    world.restart(60.0)
    world.tell(alert())
    world.wait(1000)
    assert world.stands() == {"p", "mail"}
    assert world.state().error == "refused"
    world.tell(alert("q"))
    world.take_all("bot")
    world.take_all("mail")
    assert world.take_all("bot") == [["over mail"]]


def test_an_answer_about_something_else_changes_nothing() -> None:
    world = World()
    world.tell(alert())
    for stale in (
        Sent("mail", (NoticeId(9),)),
        NotSent("mail", (NoticeId(9),), "late", permanent=True),
        Sent("gone", (NoticeId(1),)),
        NotSent("gone", (NoticeId(1),), "late"),
    ):
        assert world.hear(stale).writes == ()
    assert world.take_all() == [["raised p"]]


def test_too_many_that_stand_are_told_as_that_and_more_serious_ones_have_more_room() -> None:
    world = World(standing_max=10)
    world.tell(*(alert(f"p{n}") for n in range(12)))
    known = {f"p{n}" for n in range(10)}
    assert world.stands() == known | {"all"}
    world.tell(*(alert(f"e{n}", ERROR) for n in range(7)))
    errors = {f"e{n}" for n in range(5)}
    assert world.stands() == known | errors | {"all"}
    world.tell(*(alert(f"c{n}", CRITICAL) for n in range(7)))
    worst = errors | {f"c{n}" for n in range(5)}
    assert world.stands() == known | worst | {"all"}
    world.tell(*(over(about) for about in worst))
    world.tell(over("p0"), alert("p10"))
    assert world.stands() == known - {"p0"} | {"p10"}
    world.tell(over("p1"), over("p2"))
    assert world.stands() == known - {"p0", "p1", "p2"} | {"p10"}
    world.tell(alert("p11"))
    assert "p11" in world.stands()


def test_what_a_whole_truth_ends_makes_room_for_what_it_brings() -> None:
    world = World(standing_max=10)
    world.hear(Stand(KINDS, tuple(alert(f"old{n}") for n in range(10))))
    world.hear(Stand(KINDS, tuple(alert(f"new{n}") for n in range(10))))
    assert world.stands() == {f"new{n}" for n in range(10)}


def test_of_a_whole_truth_that_is_too_much_the_most_serious_stand() -> None:
    world = World(standing_max=10)
    warnings, errors = ([alert(f"{level.value}{n}", level) for n in range(12)] for level in (WARNING, ERROR))
    world.hear(Stand(KINDS, (*warnings, *errors)))
    assert world.stands() == {f"error{n}" for n in range(12)} | {"all"}


def test_a_thousand_at_once_are_handled_in_half_a_second() -> None:
    channels = tuple(Channel(f"channel-{n}", "mail", language=("en", "zh")[n % 2]) for n in range(3))
    alerts = [alert(f"p{n}", facts={"project": f"p{n}", "failures": "3"}) for n in range(1000)]
    for many in (False, True):
        book, sends, begun = (
            AlertBook(AlertSettings(channels), RestoredAlerts(), NOW),
            [],
            time.process_time(),
        )
        events = [Stand(KINDS, tuple(alerts))] if many else [Told(told) for told in alerts]
        for event in events:
            sends += book.handle(event, NOW).sends
        while sends:
            send = sends.pop()
            sends += book.handle(Sent(send.channel, send.ids), NOW + 1).sends
        assert time.process_time() - begun < 0.5
        assert [state.waiting for state in book.channels()] == [0, 0, 0]
        assert book.handle(Woke(), NOW + 2).wake_at is None


def test_an_overflow_is_over_only_when_a_tenth_of_the_room_is_free() -> None:
    world = World(standing_max=20)
    world.tell(*(alert(f"p{n}") for n in range(21)))
    assert "all" in world.stands()
    world.tell(over("p0"))
    assert "all" in world.stands()
    world.tell(over("p1"))
    assert "all" not in world.stands()
