"""What one channel does with what waits: one message at a time, its rate, its pauses, its bounds."""

from __future__ import annotations

import pytest

from evermirror.core.watch.events import NotSent, Sent, Woke
from evermirror.core.watch.rate import Rate
from evermirror.model.alert import Alert, Turn
from tests.core.watch.small_alerts import BOT, CRITICAL, ERROR, MAIL, NOW, WARNING, World, alert, over


def test_what_waits_goes_as_one_message_the_most_serious_first() -> None:
    world = World()
    world.tell(alert("told"))
    world.take_all()
    world.tell(alert("first"), alert("a"), over("told"), alert("b", ERROR), alert("c", CRITICAL), alert("d"))
    assert world.take_all() == [
        ["raised first"],
        ["raised c", "raised b", "raised a", "raised d", "over told"],
    ]
    assert all(notice.sent_at is not None for notice in world.rows.notices.values())


def test_a_digest_has_so_many_items_and_says_how_many_more_there_are() -> None:
    world = World(items_max=3)
    world.tell(alert("first"), *(alert(f"p{n}") for n in range(9)), alert("worst", CRITICAL))
    world.take()
    send = world.under_way["mail"]
    assert [item.about for item in send.message.items] == ["worst", "p0", "p1"]
    assert (send.message.more, len(send.ids), send.message.level) == (7, 10, CRITICAL)
    assert send.message.title == "10 alerts"


def test_a_message_under_way_holds_up_its_own_channel_alone() -> None:
    world = World(MAIL, BOT)
    world.tell(alert("a"), alert("b"))
    assert world.take_all("bot") == [["raised a"], ["raised b"]]
    assert world.going("mail") == ["raised a"]


# The rate


def test_no_more_than_twenty_messages_go_in_any_minute() -> None:
    world = World()
    for n in range(40):
        world.tell(alert(f"p{n}"), after_s=1.0)
        if n < 20:
            world.take()
    assert world.under_way == {}
    assert world.last.wake_at == NOW + 1 + 60
    world.wait(world.last.wake_at - world.now)
    assert len(world.take()) == 20


def test_messages_that_fail_and_tests_count_too() -> None:
    world = World(per_minute=3)
    world.hear(Sent("mail", ()))
    world.hear(NotSent("mail", (), "refused"), after_s=1)
    world.tell(alert(), after_s=1)
    world.refuse()
    world.wait(57.5)
    assert world.under_way == {}
    world.wait(0.5)
    assert world.going() == ["raised p"]


def test_the_rate_outlasts_a_restart() -> None:
    world = World(per_minute=3)
    for about in ("a", "b", "c"):
        world.tell(alert(about), after_s=10)
        if about != "c":
            world.take()
    world.tell(over("a"))
    world.restart(after_s=10)  # the third message is under way, and an end waits
    world.wait(29.5)
    assert world.under_way == {}
    world.wait(0.5)
    assert world.now == NOW + 10 + 60
    assert world.going() == ["raised c", "over a"]


def test_a_clock_that_was_set_back_stops_nothing_for_long() -> None:
    rate = Rate(2)
    rate.count(1000.0)
    rate.count(1000.0)
    assert rate.free_at(500.0) == 560.0
    assert rate.free_at(559.0) == 560.0
    world = World()
    world.tell(alert())
    world.refuse()
    world.now -= 86_400
    world.hear(Woke())
    world.wait(3600)
    assert world.going() == ["raised p"]


# Pauses


def test_the_pause_after_a_failure_doubles_up_to_a_quarter_of_an_hour() -> None:
    world, pauses = World(), []
    world.tell(alert())
    for _ in range(10):
        failed_at = world.now
        world.refuse()
        while "mail" not in world.under_way:
            world.now = world.last.wake_at
            world.hear(Woke())
        pauses.append(world.now - failed_at)
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    world.take()
    world.tell(alert("q"))
    world.refuse()
    assert world.last.wake_at == world.now + 5


@pytest.mark.parametrize(("asked_s", "pause_s"), [(None, 5), (2.0, 5), (60.0, 60), (1e9, 3600)])
def test_a_channel_is_left_alone_as_long_as_it_asks_within_an_hour(
    asked_s: float | None, pause_s: float
) -> None:
    world = World()
    world.tell(alert())
    world.refuse(retry_after_s=asked_s)
    refused_at = world.now
    [notice] = world.rows.notices.values()
    assert notice.not_before == refused_at + pause_s
    world.wait(pause_s - 0.5)
    assert world.under_way == {}
    world.wait(0.5)
    assert world.going() == ["raised p"]


def test_what_comes_during_a_pause_waits_too_and_all_goes_at_once() -> None:
    world = World()
    world.tell(alert("a"))
    world.refuse()
    world.tell(alert("b"), alert("c"))
    world.wait(5)
    assert world.take_all() == [["raised a", "raised b", "raised c"]]


def test_a_pause_outlasts_a_restart() -> None:
    world = World()
    world.tell(alert())
    for _ in range(4):
        world.refuse()
        world.wait(world.last.wake_at - world.now)
    world.refuse()
    world.restart(after_s=70)
    assert world.under_way == {}
    world.wait(10)
    world.refuse()
    [notice] = world.rows.notices.values()
    assert notice.not_before == world.now + 160


def test_attempts_are_written_before_they_are_made() -> None:
    world = World()
    world.tell(alert())
    [notice] = world.rows.notices.values()
    assert (notice.attempts, notice.not_before, notice.waits) == (1, NOW + 5, True)
    world.refuse()
    world.wait(5)
    [notice] = world.rows.notices.values()
    assert (notice.attempts, notice.error) == (2, "")
    world.take()
    [notice] = world.rows.notices.values()
    assert (notice.attempts, notice.sent_at, notice.waits) == (2, NOW + 5, False)


def test_an_error_is_one_line_and_bounded() -> None:
    world = World()
    world.tell(alert())
    send = world.under_way.pop("mail")
    world.hear(NotSent("mail", send.ids, "no\nroom\t" + "x" * 9999))
    [notice] = world.rows.notices.values()
    assert notice.error.startswith("no room xx")
    assert len(notice.error) == 300
    assert world.state().error == notice.error


# Bounds


def test_with_too_many_waiting_ends_are_given_up_first_then_the_least_serious_and_oldest() -> None:
    world = World(waiting_max=4)
    world.tell(*(alert(f"old{n}") for n in range(3)))
    world.take_all()
    world.tell(alert("busy"))
    world.tell(over("old0"), over("old1"), alert("w1", WARNING), alert("e1", ERROR))
    assert world.given_up() == []
    world.tell(alert("w2", WARNING))
    world.tell(alert("e2", ERROR))
    world.tell(alert("c1", CRITICAL))
    assert world.given_up() == ["too many notices waited"] * 3
    assert world.take_all() == [
        ["raised busy"],
        ["raised c1", "raised e1", "raised e2", "raised w2"],
        ["raised w1"],  # it stands, and the channel takes messages
    ]


@pytest.mark.parametrize(
    ("waiting", "kept", "then"),
    [
        ([alert("w"), alert("c", CRITICAL), over("critical")], ["raised c", "raised w"], []),
        ([alert("c", CRITICAL), alert("e", ERROR), alert("w")], ["raised c", "raised e"], [["raised w"]]),
        ([alert("old"), alert("new"), alert("e", ERROR)], ["raised e", "raised new"], [["raised old"]]),
    ],
)
def test_who_has_to_go_where_one_is_too_many_and_comes_later_if_it_stands(
    waiting: list[Alert], kept: list[str], then: list[list[str]]
) -> None:
    world = World(waiting_max=2)
    world.tell(alert("critical", CRITICAL))
    world.take_all()
    world.tell(alert("busy"), *waiting)
    assert world.take_all() == [["raised busy"], kept, *then]


def test_what_is_over_is_not_told_as_standing_where_its_end_had_to_go() -> None:
    world = World(waiting_max=4)
    world.tell(alert("A", CRITICAL))
    for _ in range(8):  # 5 + 10 + … + 320 s
        world.refuse()
        world.wait(world.last.wake_at - world.now)
        world.wait(900 if "mail" not in world.under_way else 0)
    world.refuse()
    world.tell(over("A"))
    assert world.state().waiting == 2  # that it was, and is over
    world.tell(*(alert(f"p{n}") for n in range(4)))
    assert world.given_up() == ["too many notices waited"] * 2
    world.wait(900)
    assert world.take_all() == [["raised p0", "raised p1", "raised p2", "raised p3"]]


def test_a_beginning_that_comes_back_after_its_end_had_to_go_is_told_as_over_or_not_at_all() -> None:
    world = World(waiting_max=2)
    world.tell(alert("A"), over("A"), alert("b"), alert("c"))
    assert len(world.given_up()) == 1
    world.refuse()
    assert world.given_up() == ["over before it was sent", "too many notices waited"]
    world.wait(5)
    assert world.take_all() == [["raised b", "raised c"]]


def test_what_is_under_way_is_not_given_up_and_comes_back_into_the_bound() -> None:
    world = World(waiting_max=3)
    world.tell(alert("a"))
    world.refuse()
    world.tell(alert("b"), alert("c"))
    world.wait(5)
    world.tell(alert("d"), alert("e"), alert("f"))
    assert world.given_up() == []
    assert world.state().waiting == 6
    world.refuse()
    assert world.state().waiting == 3
    world.wait(10)
    assert world.going() == ["raised d", "raised e", "raised f"]


def test_one_that_was_given_up_is_not_told_its_end() -> None:
    world = World(waiting_max=1)
    world.tell(alert("busy"), alert("a"), alert("b", ERROR), over("a"))
    assert world.take_all() == [["raised busy"], ["raised b"]]
    assert [n.turn for n in world.rows.notices.values()] == [Turn.RAISED] * 3


# A message of many that is refused


def refuse_with(world: World, bad: set[str], channel: str = "mail", **more: object) -> list[str]:
    """Each message that tells of a bad one is refused, until nothing moves for a day: what was taken."""
    taken: list[str] = []
    until = world.now + 86_400
    while world.now < until and (channel in world.under_way or world.last.wake_at is not None):
        if channel not in world.under_way:
            world.wait(max(0.0, world.last.wake_at - world.now))
            continue
        if any(item.about in bad for item in world.under_way[channel].message.items):
            world.refuse(channel, **more)
        else:
            taken += world.take(channel)
    return taken


@pytest.mark.parametrize("count", [2, 3, 7, 40, 500])
@pytest.mark.parametrize("place", [0, -1])
def test_of_many_that_are_refused_for_good_only_the_bad_one_is_given_up(count: int, place: int) -> None:
    world = World(items_max=1000)
    abouts = [f"p{n}" for n in range(count)]
    world.tell(alert("first"))
    world.refuse()
    world.tell(*(alert(about, CRITICAL) for about in abouts))
    begun = world.now
    taken = refuse_with(world, {abouts[place]}, permanent=True)
    assert sorted(taken) == sorted(
        f"raised {about}" for about in ["first", *abouts] if about != abouts[place]
    )
    assert world.given_up() == ["refused"]
    assert max(n.sent_at for n in world.rows.notices.values() if n.sent_at is not None) < begun + 300


def test_a_message_that_is_too_big_is_sent_in_parts() -> None:
    world, taken = World(), 0
    world.tell(alert("first"))
    world.refuse()
    world.tell(*(alert(f"p{n}") for n in range(500)))
    while taken < 501:
        world.wait(max(0.0, world.last.wake_at - world.now))
        while (send := world.under_way.get("mail")) is not None:
            if len(send.ids) > 15:
                world.refuse(permanent=True)
            else:
                taken += len(send.ids)
                world.take()
        assert world.now < NOW + 3600
    assert world.given_up() == []


@pytest.mark.parametrize("place", range(6))
def test_one_that_is_refused_again_and_again_does_not_keep_the_others_back(place: int) -> None:
    world = World()
    abouts = [f"p{n}" for n in range(6)]
    world.tell(alert("first"))
    world.refuse()
    world.tell(*(alert(about, CRITICAL) for about in abouts))
    begun = world.now
    taken = refuse_with(world, {abouts[place]})
    assert sorted(taken) == sorted(
        f"raised {about}" for about in ["first", *abouts] if about != abouts[place]
    )
    assert max(n.sent_at for n in world.rows.notices.values() if n.sent_at is not None) < begun + 600


def test_who_was_away_gets_what_waited_in_two_messages() -> None:
    world = World()
    world.tell(*(alert(f"p{n}") for n in range(50)))
    for _ in range(12):
        world.refuse()
        world.wait(900)
        assert "mail" in world.under_way
    sizes = []
    while "mail" in world.under_way:
        sizes.append(len(world.under_way["mail"].ids))
        world.take(after_s=0.1)
    assert sizes == [1, 49]


def test_wrong_settings_that_look_like_a_wrong_message_lose_little_before_they_are_mended() -> None:
    world = World()
    world.tell(*(alert(f"p{n}") for n in range(300)))
    until = world.now + 600
    while world.now < until:
        if "mail" in world.under_way:
            world.refuse(permanent=True)
        world.wait(5)
    assert len(world.given_up()) < 15
    world.wait(60)
    world.take_all()
    assert world.state().waiting == 0
