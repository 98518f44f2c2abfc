"""The alert book against its dumb twin: the same messages, the same rows, whatever comes in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from evermirror.core.watch.events import (
    AlertEvent,
    Channel,
    NotSent,
    Sent,
    Silenced,
    Stand,
    Told,
    Unsilenced,
    Woke,
)
from evermirror.model.alert import Alert, Level, SilenceId, Turn
from tests.core.watch.alert_twin import Twin
from tests.core.watch.small_alerts import World

CHANNELS = (
    Channel("mail", "mail"),
    Channel("serious", "mail", min_level=Level.ERROR),
    Channel("some", "mail", kinds=("a*", "channel-down")),
)
NAMES = [channel.name for channel in CHANNELS]
SMALL = {
    "per_minute": 3,
    "waiting_max": 4,
    "standing_max": 5,
    "silences_max": 2,
    "items_max": 2,
    "give_up_s": 60.0,
    "down_after_s": 20.0,
    "backoff_max_s": 20.0,
}

kinds = st.sampled_from(["a", "ab", "c"])
abouts = st.sampled_from(["x", "y", "z"])
alerts = st.builds(
    Alert,
    kinds,
    abouts,
    st.sampled_from(["one", "two"]),
    st.sampled_from([False, False, True]),
    st.sampled_from(list(Level)),
)
raised = alerts.filter(lambda alert: not alert.over)
steps = st.one_of(
    st.builds(Told, alerts),
    st.builds(Told, alerts),
    st.builds(Stand, st.frozensets(kinds, min_size=1), st.lists(raised, max_size=4).map(tuple)),
    st.tuples(st.just("silence"), st.sampled_from(["*", "a", "a*"]), st.sampled_from(["*", "x"])),
    st.tuples(st.just("unsilence"), st.integers(1, 3)),
    st.tuples(st.just("sent"), st.sampled_from(NAMES)),
    st.tuples(st.just("sent"), st.sampled_from(NAMES)),
    st.tuples(st.just("failed"), st.sampled_from(NAMES), st.sampled_from(["", "", "permanent", "asked"])),
    st.tuples(st.just("tested"), st.sampled_from(NAMES), st.booleans()),
    st.just("wake"),
)
pauses = st.sampled_from([0, 0, 0, 1, 5, 17, 60])


def event_of(step: object, world: World) -> AlertEvent | None:
    match step:
        case ("silence", kind, about):
            return Silenced(kind, about, world.now + 30, "ann", "why")
        case ("unsilence", number):
            return Unsilenced(SilenceId(number), "ann")
        case ("sent", channel) if channel in world.under_way:
            return Sent(channel, world.under_way.pop(channel).ids)
        case ("failed", channel, how) if channel in world.under_way:
            asked = 50.0 if how == "asked" else None
            return NotSent(channel, world.under_way.pop(channel).ids, "no", how == "permanent", asked)
        case ("sent" | "failed", *_):
            return None
        case ("tested", channel, well):
            return Sent(channel, ()) if well else NotSent(channel, (), "no")
        case "wake":
            return Woke()
    return step


@settings(max_examples=250, deadline=None)
@given(st.lists(st.tuples(pauses, steps), min_size=5, max_size=60))
def test_the_book_decides_as_its_dumb_twin(course: list[tuple[float, object]]) -> None:
    world = World(*CHANNELS, **SMALL)
    twin = Twin(world.settings)
    for pause, step in course:
        woken_early = world.last.wake_at is None or world.now + pause < world.last.wake_at
        world.now += pause
        event = event_of(step, world)
        if event is None:
            continue
        decision = world.hear(event)
        sent = twin.handle(event, world.now)
        assert [(send.channel, send.ids) for send in decision.sends] == sent
        assert list(world.rows.alerts.values()) == twin.records
        assert list(world.rows.notices.values()) == twin.notices
        assert list(world.rows.silences.values()) == twin.silences
        assert [r.id for r in world.book.standing()] == [r.id for r in twin.records if r.stands]
        for send in decision.sends:
            assert {item.alert for item in send.message.items} <= {
                notice.alert for notice in twin.notices if notice.id in send.ids
            }
            told = {notice.alert for notice in twin.notices if notice.id in send.ids}
            assert len(send.message.items) + send.message.more == len(told)
            stand = [item.level.rank for item in send.message.items if item.turn is not Turn.OVER]
            assert stand == sorted(stand, reverse=True)
        if woken_early and isinstance(event, Woke):
            assert (decision.writes, decision.sends) == ((), ())
