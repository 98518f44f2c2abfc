"""How long a worker may act for a coordinator that it does not hear."""

from __future__ import annotations

import asyncio

import pytest

from evermirror.model.messages import LookAt, SyncNow
from evermirror.model.task import TaskId
from evermirror.model.wire import Obeyed, Ordered, Taken, Welcomed
from evermirror.nodes.worker.contact import BEATS_LEAST, Contact
from tests.nodes.test_uplink import House, Talk, key, open_house, status, until

GRACE_S, BEAT_S = 600.0, 5.0


class Line:
    """A contact, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.contact = Contact(lambda: self.now)

    def later(self, seconds: float) -> bool:
        self.now += seconds
        return self.contact.held


def test_one_who_was_never_welcomed_is_in_no_contact():
    line = Line()
    assert not line.contact.held
    line.contact.beat_sent()
    assert not line.contact.held


def test_it_lasts_for_grace_after_the_last_sign():
    line = Line()
    line.contact.welcomed(GRACE_S, BEAT_S)
    assert line.later(GRACE_S - 1)
    line.contact.heard()
    assert line.later(GRACE_S)
    assert not line.later(1)


def test_beats_carry_it_on_but_never_bring_it_back():
    line = Line()
    line.contact.welcomed(GRACE_S, BEAT_S)
    for _ in range(1000):
        line.contact.beat_sent()
        assert line.later(BEAT_S)
    assert not line.later(GRACE_S + 1), "the machine slept"
    line.contact.beat_sent()
    assert not line.contact.held, "a beat that nobody may have got"
    line.contact.heard()
    assert line.contact.held


def test_a_new_term_begins_only_after_a_loss():
    line = Line()
    line.contact.welcomed(GRACE_S, BEAT_S)
    first = line.contact.term
    line.later(GRACE_S)
    line.contact.welcomed(GRACE_S, BEAT_S)
    assert line.contact.term == first, "back within grace"
    line.later(GRACE_S + 1)
    line.contact.welcomed(GRACE_S, BEAT_S)
    assert line.contact.term == first + 1
    line.contact.heard()
    assert line.contact.term == first + 1


@pytest.mark.parametrize("grace_s", [0.0, 1.0])
def test_a_grace_that_is_short_or_not_told_lasts_for_some_beats(grace_s):
    line = Line()
    line.contact.welcomed(grace_s, BEAT_S)
    assert line.later(BEATS_LEAST * BEAT_S)
    assert not line.later(0.1)


# Over a line


async def welcome(house: House, *, resumed: bool = False) -> Talk:
    talk = await house.coordinator.hears()
    await talk.peer.send(Welcomed(3, 7, resumed, 0.05, grace_s=60.0))
    await talk.peer.send(Taken(talk.hello.generation, 0))
    return talk


async def read_on(talk: Talk) -> None:
    while True:
        await talk.peer.receive()


async def test_over_a_line_that_stands_it_is_held_and_after_its_loss_for_grace(tmp_path):
    now = [0.0]
    async with open_house(tmp_path / "reports.db", contact=Contact(lambda: now[0])) as house:
        contact = house.line.contact
        assert not contact.held
        await house.line.report(status(1))
        talk = await welcome(house)
        await until(lambda: contact.held)
        reading = asyncio.create_task(read_on(talk))
        for _ in range(5):  # a coordinator that says nothing: beats are enough
            now[0] += 50.0
            assert contact.held
            await until(lambda: contact._at == now[0])
        term = contact.term
        reading.cancel()
        await talk.peer.close("cut")
        talk = await house.coordinator.hears()  # it dials again, and gets no answer
        now[0] += 59.0
        assert contact.held
        now[0] += 2.0
        assert not contact.held
        await asyncio.sleep(0.2)
        assert not contact.held
        await talk.peer.send(Welcomed(3, 7, True, 0.05, grace_s=60.0))
        await talk.peer.send(Taken(talk.hello.generation, 0))
        await until(lambda: contact.held)
        assert contact.term == term + 1


async def test_after_a_sleep_of_the_machine_only_a_frame_brings_it_back(tmp_path):
    now = [0.0]
    async with open_house(tmp_path / "reports.db", contact=Contact(lambda: now[0])) as house:
        contact = house.line.contact
        await house.line.report(status(1))
        talk = await welcome(house)
        await until(lambda: contact.held)
        now[0] += 3600.0
        await asyncio.sleep(0.3)  # beats go on: the connection is not found dead yet
        assert not contact.held
        await talk.peer.send(Ordered(1, LookAt((key(1),))))
        await until(lambda: contact.held)


async def test_a_node_is_in_contact_with_itself_for_as_long_as_the_settings_say(stage):
    async with stage.up(fleet={"grace": "7m"}) as up:
        contact = up.node.worker._rounds._pushing._contact

        async def held() -> bool:
            return contact.held

        await up.until(held)
        assert contact._lasts_s == 7 * 60


async def test_an_order_that_waited_while_contact_was_lost_is_of_the_term_in_which_it_came(
    tmp_path, monkeypatch
):
    line, came_in = Line(), {}
    async with open_house(tmp_path / "reports.db", line.contact) as house:
        take = house.line.next_command

        async def noted():
            command = await take()
            came_in[command.task_id] = line.contact.ordered_in
            return command

        monkeypatch.setattr(house.line, "next_command", noted)
        talk = await welcome(house)
        house.may_work.clear()
        for seq in (1, 2):  # the engine is busy with the first one, and takes the second one after that
            await talk.peer.send(Ordered(seq, SyncNow(key(seq), TaskId(seq))))
        await talk.until(lambda f: f == Obeyed(2))
        await talk.peer.close("cut")
        line.later(GRACE_S)
        talk = await welcome(house, resumed=True)
        await talk.peer.send(Ordered(3, SyncNow(key(3), TaskId(3))))
        await talk.until(lambda f: f == Obeyed(3))
        assert line.contact.term == 2
        house.may_work.set()
        await until(lambda: len(house.commands) == 3)
        assert (came_in[2], came_in[3]) == (1, 2)
