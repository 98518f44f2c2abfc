"""What the store keeps of alerts, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from evermirror.core.watch.events import AlertSaved, NoticeSaved, RestoredAlerts, SilenceRemoved, SilenceSaved
from evermirror.edge.store import alerts as alerts_module
from evermirror.edge.store.store import Store
from evermirror.model.alert import Alert, AlertRecord, Level, Notice, Silence, Turn
from evermirror.model.failure import FailureError
from evermirror.nodes.alert_service import AlertFilter

HOSTILE = "a\0b\udc80'; DROP TABLE alerts; --"


def record(number: int, about: str = "p", *, kind: str = "project-failing", level=Level.WARNING, **changed):
    facts = {"failures": "3", "words": HOSTILE}
    alert = Alert(kind, about, f"{about} failed", level=level, facts=facts)
    return replace(AlertRecord(number, alert, 10.0 * number, 10.0 * number), **changed)


def notice(number: int, alert: int | None, *, channel: str = "ops", **changed) -> Notice:
    return replace(Notice(number, channel, alert, Turn.RAISED, 10.0), **changed)


def silence(number: int, **changed) -> Silence:
    return replace(Silence(number, "project-*", "dev*", 2000.0, "alice", "upgrade", 5.0), **changed)


def ids(found) -> list[int]:
    return [one.id for one in found]


async def test_what_was_saved_is_loaded_again(store):
    assert await store.load_alerts() == RestoredAlerts()
    standing = [record(1), record(2, "q", level=Level.CRITICAL, noticed=Level.ERROR, changed_at=77.0)]
    waiting = [
        notice(1, 2, attempts=3, not_before=99.5, error="refused"),
        notice(2, 1, turn=Turn.WORSE, channel="mail", level=Level.CRITICAL),
    ]
    writes = [*map(AlertSaved, standing), *map(NoticeSaved, waiting), SilenceSaved(silence(1))]
    await store.save_alerts(writes)
    loaded = await store.load_alerts()
    assert loaded == RestoredAlerts(tuple(standing), (), (silence(1),), tuple(waiting), 3, 3, 2)
    assert loaded.standing[0].alert.facts["words"] == HOSTILE


async def test_the_same_writes_again_change_nothing(store):
    writes = [AlertSaved(record(1)), NoticeSaved(notice(1, 1)), SilenceSaved(silence(1)), SilenceRemoved(9)]
    await store.save_alerts(writes)
    once = await store.load_alerts()
    await store.save_alerts(writes)
    assert await store.load_alerts() == once
    await store.save_alerts([])
    assert await store.load_alerts() == once


async def test_of_several_writes_of_a_row_the_last_counts(store):
    over = record(1, ended_at=50.0, end_text="fixed")
    sent = notice(1, 1, sent_at=12.0)
    writes = [AlertSaved(record(1)), NoticeSaved(notice(1, 1)), SilenceSaved(silence(1))]
    await store.save_alerts([*writes, AlertSaved(over), NoticeSaved(sent), SilenceRemoved(1)])
    assert await store.find_alert(1) == (over, (sent,))
    await store.save_alerts([SilenceSaved(silence(2)), SilenceSaved(silence(2, until=3000.0))])
    assert (await store.load_alerts()).silences == (silence(2, until=3000.0),)


async def test_saving_is_all_or_nothing(store):
    broken = replace(notice(2, 1), attempts=None)
    with pytest.raises((FailureError, sa.exc.SQLAlchemyError)):
        await store.save_alerts([AlertSaved(record(1)), NoticeSaved(notice(1, 1)), NoticeSaved(broken)])
    assert await store.load_alerts() == RestoredAlerts()


async def test_no_text_keeps_an_alert_from_being_saved(store):
    told = Alert(HOSTILE, HOSTILE * 300, HOSTILE, facts={HOSTILE: HOSTILE})
    writes = [
        AlertSaved(replace(record(1), alert=told, end_text=HOSTILE)),
        NoticeSaved(notice(1, 1, channel=HOSTILE, error=HOSTILE * 300)),
        SilenceSaved(silence(1, kind=HOSTILE, about=HOSTILE, by=HOSTILE, reason=HOSTILE)),
    ]
    await store.save_alerts(writes)
    loaded = await store.load_alerts()
    assert loaded.standing[0].alert.facts == {HOSTILE: HOSTILE}
    assert loaded.standing[0].alert.kind.startswith("a\\x00b\\udc80")
    assert ids(loaded.notices) == ids(loaded.silences) == [1]


async def test_what_is_loaded_is_what_the_mind_needs(store, clock):
    clock.now = 1000.0
    ended = [record(n, ended_at=500.0) for n in (2, 3, 4, 5)]
    await store.save_alerts([AlertSaved(record(1)), *map(AlertSaved, ended)])
    notices = {
        1: notice(1, 1, sent_at=20.0),  # long ago, of one that stands
        2: notice(2, 2),  # still waits, of one that is over
        3: notice(3, 3, sent_at=30.0),  # of no more use
        4: notice(4, 4, sent_at=950.0),  # counts for the rate
        5: notice(5, 5, given_up_at=945.0),  # too
        6: notice(6, None, sent_at=30.0),
        7: notice(7, None, turn=Turn.TEST),
    }
    await store.save_alerts([NoticeSaved(n) for n in notices.values()])
    await store.save_alerts([SilenceSaved(silence(1, until=1.0))])  # over: the mind removes it
    loaded = await store.load_alerts()
    assert ids(loaded.standing) == [1]
    assert ids(loaded.ended) == [2]
    assert loaded.notices == tuple(notices[n] for n in (1, 2, 4, 5))
    assert ids(loaded.silences) == [1]


async def test_alerts_are_listed_newest_first_and_filtered(store):
    told = [
        record(1, "dev/a"),
        record(2, "dev/b", level=Level.ERROR, ended_at=60.0),
        record(3, "DEV/100%", level=Level.CRITICAL),
        record(4, "mail", kind="channel-down", level=Level.ERROR),
    ]
    await store.save_alerts(list(map(AlertSaved, told)))

    async def listed(**which) -> tuple[list[int], int]:
        found, total = await store.alert_page(AlertFilter(**which))
        return ids(found), total

    assert await listed() == ([4, 3, 1], 3)
    assert await listed(standing=None) == ([4, 3, 2, 1], 4)
    assert await listed(standing=False) == ([2], 1)
    assert await listed(standing=None, level=Level.ERROR) == ([4, 3, 2], 3)
    assert await listed(level=Level.CRITICAL) == ([3], 1)
    assert await listed(kind="channel-down") == ([4], 1)
    assert await listed(kind="channel") == ([], 0)
    assert await listed(standing=None, about="dev") == ([3, 2, 1], 3)
    assert await listed(about="%") == ([3], 1)
    assert await listed(about="_") == ([], 0)
    assert await listed(standing=None, begin=20.0, end=40.0) == ([3, 2], 2)
    assert await listed(standing=None, page=2, size=3) == ([1], 4)
    assert await listed(standing=None, page=10**30, size=10**30) == ([], 4)
    assert await listed(about=HOSTILE) == ([], 0)
    assert await listed(kind="x\0") == ([], 0)
    (newest, *_), _ = await store.alert_page(AlertFilter())
    assert newest == told[3]


async def test_one_alert_is_told_with_its_notices(store):
    notices = [notice(n, 1, turn=turn) for n, turn in ((3, Turn.RAISED), (5, Turn.WORSE), (9, Turn.OVER))]
    await store.save_alerts([AlertSaved(record(1)), AlertSaved(record(2))])
    await store.save_alerts([*map(NoticeSaved, notices), NoticeSaved(notice(4, 2))])
    assert await store.find_alert(1) == (record(1), tuple(notices))
    for unknown in (0, 3, -1, 2**63 - 1, 10**30):
        assert await store.find_alert(unknown) is None


async def test_old_alerts_are_cleaned_and_their_numbers_are_not_given_again(store):
    kept = [record(1), record(2, ended_at=800.0), record(3, ended_at=90.0)]
    old = [record(4, ended_at=90.0), record(5, ended_at=99.0)]
    await store.save_alerts(list(map(AlertSaved, [*kept, *old])))
    notices = [
        notice(1, 1, sent_at=11.0),
        notice(2, 3),  # is still to be sent
        notice(3, 4, sent_at=11.0),
        notice(4, 5, given_up_at=11.0),
        notice(5, None, sent_at=11.0, turn=Turn.TEST),
        notice(6, None, sent_at=111.0, created_at=110.0, turn=Turn.TEST),
    ]
    await store.save_alerts(list(map(NoticeSaved, notices)))
    await store.save_alerts([SilenceSaved(silence(1)), SilenceSaved(silence(2, until=99.0))])
    assert await store.clean_alerts(100.0) == 2
    found, total = await store.alert_page(AlertFilter(standing=None))
    assert (ids(found), total) == ([3, 2, 1], 3)
    loaded = await store.load_alerts()
    assert (loaded.next_alert_id, loaded.next_notice_id, loaded.next_silence_id) == (6, 7, 3)
    assert ids(loaded.silences) == [1]
    async with store._db.read() as c:
        left = await c.scalars(sa.text("SELECT id FROM alert_notices ORDER BY id"))
        assert left.all() == [1, 2, 6]
    assert await store.clean_alerts(100.0) == 0
    await store.save_alerts([SilenceRemoved(1)])
    await store.clean_alerts(10_000.0)
    loaded = await store.load_alerts()
    assert (loaded.next_alert_id, loaded.next_notice_id, loaded.next_silence_id) == (6, 7, 3)


async def test_very_many_old_alerts_are_cleaned_some_at_a_time(store, monkeypatch):
    """Other writers get their turn in between."""
    monkeypatch.setattr(alerts_module, "CLEANUP_CHUNK", 10)
    await store.save_alerts([AlertSaved(record(n, ended_at=90.0)) for n in range(1, 36)])
    await store.save_alerts([NoticeSaved(notice(n, n, sent_at=11.0)) for n in range(1, 36)])
    turns, write = [], store._db.write

    def counted():
        turns.append(1)
        return write()

    monkeypatch.setattr(store._db, "write", counted)
    assert await store.clean_alerts(100.0) == 35
    assert len(turns) == 4 + 4 + 1
    async with store._db.read() as c:
        assert (await c.scalars(sa.text("SELECT id FROM alert_notices"))).all() == []
    loaded = await store.load_alerts()
    assert (loaded.next_alert_id, loaded.next_notice_id) == (36, 36)


async def test_alerts_outlive_the_program(url, clock):
    store = await Store.open(url, clock=clock)
    await store.save_alerts([AlertSaved(record(1)), NoticeSaved(notice(1, 1)), SilenceSaved(silence(1))])
    before = await store.load_alerts()
    await store.close()
    store = await Store.open(url, clock=clock)
    assert await store.load_alerts() == before
    await store.close()
