"""The alert book by example: who is told what, when, and what nobody is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evermirror.core.watch.book import AlertBook
from evermirror.core.watch.events import (
    AlertSettings,
    Channel,
    RestoredAlerts,
    Silenced,
    Stand,
    Told,
    Unsilenced,
)
from evermirror.model.alert import Level, SilenceId, Turn
from tests.core.watch.small_alerts import BOT, CRITICAL, ERROR, MAIL, NOW, WARNING, World, alert, over

KINDS = frozenset({"project-failing"})


# Beginning, change, end


def test_what_is_raised_is_told_once_while_it_stands_and_its_end_too() -> None:
    world = World()
    world.tell(alert())
    assert world.take_all() == [["raised p"]]
    world.tell(alert(), alert(), after_s=60)
    assert world.under_way == {}
    world.tell(over())
    assert world.take_all() == [["over p"]]
    world.tell(over())
    assert world.under_way == {}
    [record] = world.rows.alerts.values()
    assert (record.end_text, record.noticed, record.stands) == ("p is well", WARNING, False)
    assert world.book.standing() == ()


def test_what_is_told_again_is_kept_as_it_was_told_last() -> None:
    world = World()
    world.tell(alert())
    world.tell(replace(alert(), text="p fails still", facts={"failures": "4"}), after_s=5)
    [record] = world.book.standing()
    assert (record.alert.text, record.alert.facts) == ("p fails still", {"failures": "4"})
    assert (record.raised_at, record.changed_at) == (NOW, NOW + 5)
    assert world.rows.alerts[record.id] == record
    assert world.hear(Told(record.alert)).writes == ()


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ([WARNING, ERROR], ["raised p", "worse p"]),
        ([WARNING, ERROR, CRITICAL], ["raised p", "worse p", "worse p"]),
        ([ERROR, WARNING], ["raised p"]),
        ([ERROR, WARNING, ERROR], ["raised p"]),
        ([WARNING, CRITICAL, ERROR, CRITICAL], ["raised p", "worse p"]),
    ],
)
def test_what_becomes_more_serious_than_it_ever_was_is_told(levels: list[Level], told: list[str]) -> None:
    world, heard = World(), []
    for level in levels:
        world.tell(alert(level=level))
        heard += [item for message in world.take_all() for item in message]
    assert heard == told


def test_worse_while_its_beginning_waits_is_told_by_that() -> None:
    world = World()
    world.tell(alert("first"), alert("p"), alert("p", ERROR))
    world.take()
    [item] = world.under_way["mail"].message.items
    assert (item.about, item.turn, item.level) == ("p", Turn.RAISED, ERROR)


def test_who_was_told_of_it_only_after_it_fell_is_told_when_it_rises_again() -> None:
    world = World(MAIL, BOT)
    world.tell(alert(level=CRITICAL))
    world.take_all("bot")
    world.refuse("mail")
    world.tell(alert())
    world.wait(5)
    [item] = world.under_way["mail"].message.items
    assert item.level is WARNING
    world.take_all("mail")
    world.tell(alert(level=ERROR))
    assert (world.take_all("mail"), world.going("bot")) == ([["worse p"]], None)
    world.tell(alert(level=CRITICAL), alert(), alert(level=CRITICAL))
    assert (world.take_all("mail"), world.going("bot")) == ([["worse p"]], None)


def test_worse_that_waits_is_given_up_when_it_is_less_serious_again_and_told_when_it_rises() -> None:
    world = World()
    world.tell(alert("p"))
    world.take_all()
    world.tell(alert("busy"), alert("p", ERROR), alert("p"))
    assert world.take_all() == [["raised busy"]]
    assert world.given_up() == ["less serious again before it was sent"]
    world.tell(alert("p", ERROR))
    assert world.take_all() == [["worse p"]]


def test_worse_that_is_under_way_is_not_told_again() -> None:
    world = World()
    world.tell(alert("p"))
    world.take_all()
    world.tell(alert("p", ERROR), alert("p", ERROR))
    assert world.take_all() == [["worse p"]]
    assert len(world.rows.notices) == 2


def test_worse_that_was_given_up_for_good_is_not_tried_again_and_again() -> None:
    world = World()
    world.tell(alert("p"))
    world.take_all()
    world.tell(alert("p", ERROR))
    world.refuse(permanent=True)
    world.wait(60)
    world.tell(alert("p", ERROR))
    assert world.under_way == {}
    world.tell(alert("p", CRITICAL))
    assert world.going() == ["worse p"]


def test_worse_while_its_beginning_is_under_way_is_told_after_it() -> None:
    world = World()
    world.tell(alert("p"), alert("p", ERROR))
    assert world.take_all() == [["raised p"], ["worse p"]]
    world.tell(alert("q"), alert("q", ERROR))
    world.refuse()
    world.wait(5)
    assert world.take_all() == [["raised q"]]


def test_raised_again_after_its_end_is_another_alert() -> None:
    world = World()
    world.tell(alert())
    world.take_all()
    world.tell(over(), alert())
    assert world.take_all() == [["over p"], ["raised p"]]
    assert len(world.rows.alerts) == 2


def test_both_ends_of_two_alerts_of_one_name_are_told_in_one_message() -> None:
    world = World()
    world.tell(alert())
    world.take_all()
    world.tell(alert("q"), over(), alert(), after_s=1)
    assert world.take_all() == [["raised q"], ["raised p", "over p"]]


def test_what_is_over_before_it_was_sent_is_told_to_nobody() -> None:
    world = World()
    world.tell(alert("first"), alert("p"), over("p"))
    assert world.take_all() == [["raised first"]]
    assert world.given_up() == ["over before it was sent"]


def test_what_is_over_while_its_beginning_is_under_way_is_told_only_where_that_arrives() -> None:
    world = World()
    world.tell(alert("p"), over("p"))
    assert world.take_all() == [["raised p"], ["over p"]]
    world.tell(alert("q"), over("q"))
    world.refuse()
    world.wait(3600)
    assert world.under_way == {}
    assert world.given_up() == ["over before it was sent"] * 2


def test_an_end_whose_beginning_is_refused_for_good_meanwhile_is_not_told() -> None:
    world = World()
    world.tell(alert("p"), over("p"))
    world.refuse(permanent=True)
    world.wait(3600)
    assert world.under_way == {}
    assert world.given_up() == ["refused", "over before it was sent"]


def test_what_was_and_is_over_while_the_channel_was_down_is_told_in_one_item() -> None:
    world = World()
    world.tell(alert("first"))
    for _ in range(7):  # 5 + 10 + … + 320 s
        world.refuse()
        world.wait(world.last.wake_at - world.now if "mail" not in world.under_way else 0)
        world.wait(900 if "mail" not in world.under_way else 0)
    world.tell(alert("p"), over("p"))
    world.refuse()
    world.wait(900)
    assert world.take() == ["raised first", "over p"]
    sent = [notice for notice in world.rows.notices.values() if notice.sent_at is not None]
    assert [notice.turn for notice in sent] == [Turn.RAISED, Turn.RAISED, Turn.OVER]


def test_an_end_that_was_tried_once_is_not_dropped_when_the_channel_fails_anew() -> None:
    world = World()
    world.tell(alert("p"))
    world.take_all()
    world.tell(over("p"))
    world.refuse()
    world.wait(5)
    assert world.going() == ["over p"]


def test_all_that_stands_of_a_kind_ends_the_rest_and_no_other_kind() -> None:
    world = World()
    world.tell(alert("a"), alert("b"), alert("host", kind="source-weather"))
    world.take_all()
    world.hear(Stand(KINDS, (alert("b"), alert("c"))))
    assert world.take_all() == [["raised c", "over a"]]
    assert world.stands() == {"b", "c", "host"}
    world.hear(Stand(KINDS, ()))
    assert world.stands() == {"host"}


# Who wants what


def test_a_channel_is_told_what_it_wants() -> None:
    serious = Channel("serious", "mail", min_level=ERROR)
    some = Channel("some", "mail", kinds=("worker-*", "brake"))
    world = World(MAIL, serious, some)
    world.tell(alert("p"), alert("w", kind="worker-down"))
    assert world.take_all("mail") == [["raised p"], ["raised w"]]
    assert "serious" not in world.under_way
    assert world.take_all("some") == [["raised w"]]


def test_who_wants_it_only_when_it_is_worse_is_told_that_it_began() -> None:
    world = World(MAIL, Channel("serious", "mail", min_level=ERROR))
    world.tell(alert())
    world.take_all()
    world.tell(alert(level=CRITICAL))
    assert (world.take_all("mail"), world.take_all("serious")) == ([["worse p"]], [["raised p"]])
    world.tell(alert(level=WARNING), over())
    assert (world.take_all("mail"), world.take_all("serious")) == ([["over p"]], [["over p"]])


def test_an_end_goes_to_those_alone_who_were_told() -> None:
    world = World(MAIL, Channel("serious", "mail", min_level=ERROR))
    world.tell(alert())
    world.take_all()
    world.tell(over())
    assert world.going("mail") == ["over p"]
    assert "serious" not in world.under_way


def test_without_channels_the_history_is_kept() -> None:
    book = AlertBook(AlertSettings(), RestoredAlerts(), NOW)
    decision = book.handle(Told(alert()), NOW)
    assert (len(decision.writes), decision.sends, decision.wake_at) == (1, (), None)


# Silences


def test_of_what_is_silenced_nobody_is_told_until_it_ends() -> None:
    world = World()
    world.silence("project-*", "p*", for_s=100)
    world.tell(alert("p"), alert("q"), alert("p", ERROR))
    assert world.take_all() == [["raised q"]]
    [record, _] = world.book.standing()
    assert record.noticed is None
    assert world.book.silence_of(record.alert) == SilenceId(1)
    world.wait(99)
    assert world.under_way == {}
    world.wait(1)
    assert world.take_all() == [["raised p"]]
    assert world.rows.silences == {}


def test_what_began_and_ended_under_a_silence_is_told_to_nobody() -> None:
    world = World()
    silence = world.silence()
    world.tell(alert(), over())
    world.unsilence(silence)
    world.wait(7200)
    assert (world.under_way, world.rows.notices) == ({}, {})
    assert len(world.rows.alerts) == 1


def test_what_was_told_before_a_silence_is_not_told_again_after_it() -> None:
    world = World()
    world.tell(alert())
    world.take_all()
    world.silence(for_s=100)
    world.tell(alert(), alert(level=ERROR))
    assert world.under_way == {}
    world.wait(100)
    assert world.take_all() == [["worse p"]]


def test_an_end_under_a_silence_is_told_after_it_and_its_age_counts_from_then() -> None:
    world = World(give_up_s=1000.0)
    world.tell(alert())
    world.take_all()
    world.silence(for_s=5000)
    world.tell(over())
    world.wait(4999)
    assert world.under_way == {}
    assert world.state().waiting == 1
    world.wait(1)
    world.refuse()
    world.wait(5)
    assert world.take_all() == [["over p"]]


def test_what_waits_when_a_silence_begins_is_held() -> None:
    world = World()
    world.tell(alert("first"), alert("p"))
    silence = world.silence(about="p")
    assert world.take_all() == [["raised first"]]
    world.unsilence(silence)
    assert world.take_all() == [["raised p"]]


def test_what_fails_under_a_silence_is_held() -> None:
    world = World()
    world.tell(alert("p"))
    world.silence(for_s=1000)
    world.refuse()
    world.wait(999)
    assert world.under_way == {}
    world.wait(1)
    assert world.take_all() == [["raised p"]]


def test_of_two_silences_both_must_end() -> None:
    world = World()
    world.silence(for_s=100)
    longer = world.silence(about="p", for_s=200)
    world.tell(alert())
    assert world.book.silence_of(alert()) == longer
    world.wait(150)
    assert world.under_way == {}
    world.unsilence(longer)
    assert world.take_all() == [["raised p"]]


@pytest.mark.parametrize("until", [NOW - 1, NOW])
def test_a_silence_that_is_over_already_is_none(until: float) -> None:
    world = World()
    assert world.hear(Silenced("*", "*", until, "ann")).writes == ()


def test_silences_are_bounded_and_unknown_ones_end_nothing() -> None:
    world = World(silences_max=1)
    world.silence()
    assert world.hear(Silenced("*", "*", NOW + 9, "ann")).writes == ()
    assert world.hear(Unsilenced(SilenceId(7), "ann")).writes == ()
    assert len(world.book.silences()) == 1
