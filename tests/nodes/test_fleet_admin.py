"""What people see of the fleet, and what their orders do: on a running node, with more workers than one."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from evermirror.core.watch.kinds import FLEET_KINDS
from evermirror.errors import Conflict, NotFound, Unavailable
from evermirror.model.alert import Level
from evermirror.model.failure import Failure, FailureError, FailureKind
from evermirror.model.worker import Duty
from evermirror.nodes.coordinator import fleet_admin
from evermirror.nodes.coordinator.fleet_alerts import FleetWatch
from tests.support.crew import hand, status_of, working

QUICK = {"heartbeat": "100ms", "max_missed": 2, "grace": "300ms"}
NAMED = {"worker": {"name": "own"}}
DIGEST = "d" * 64


@contextlib.asynccontextmanager
async def fleet_up(stage, **fleet):
    async with stage.up(fleet={**QUICK, **fleet}, **NAMED) as up:

        async def own():
            return up.admin.worker("own").load is not None

        up.admin = up.node.lead.admin
        await up.until(lambda: _tried(own))
        yield up


async def _tried(holds):
    try:
        return await holds()
    except NotFound:
        return False


async def audit(up):
    records = await up.node.lead.store.list_audit(20)
    return [(r.actor, r.action, r.subject, r.detail) for r in records][::-1]


def status(up, name):
    """At this moment: a state may be shorter than a view is kept."""
    return next((w.seen.record.status for w in up.admin.look().workers if w.name == name), None)


async def until_status(up, name, word):
    async def holds():
        return status(up, name) == word

    await up.until(holds)


async def until_stands(up, *alerts):
    """Of the fleet's kinds, by the book of alerts."""

    async def holds():
        found = [record.alert for record in up.node.lead.alerting.standing]
        return [(a.kind, a.about, a.level) for a in found if a.kind in FLEET_KINDS] == list(alerts)

    await up.until(holds)


async def test_a_worker_is_shown_with_what_it_tells_of_itself(stage):
    async with fleet_up(stage) as up:
        assert [w.name for w in up.admin.view().workers] == ["own"]
        async with hand(up.node, "second", 7, weight=2.0, capacity=50, trusted=False) as second:
            second.status = status_of(running=["h/a", "h/b"])

            async def told():
                with contextlib.suppress(NotFound):
                    load = up.admin.worker("second").load
                    return load is not None and len(load.running) == 2
                return False

            await up.until(told)
            seen = up.admin.worker("second")
            record = seen.seen.record
            facts = record.facts
            assert (facts.weight, facts.capacity, facts.trusted) == (1.0, 50, False), "as its token says"
            assert (record.status, seen.seen.connected, seen.version) == ("alive", True, "1.2.3")
            assert seen.load.disk_free_bytes == 40_000
            assert (seen.flap_score, seen.weight_now) == (0.0, 1.0)
            assert [what for _, what in record.history] == ["joined"]
            assert up.admin.worker(str(second.id)).name == "second", "by its id too"
            assert up.admin.view().totals.workers == 2

        async def cut():
            return not up.admin.worker("second").seen.connected

        await up.until(cut)
        gone = up.admin.worker("second")
        assert (gone.version, gone.load) == (None, None), "what it told is not shown as if it still held"
        assert gone.seen.heard_at > record.joined_at - 1


async def test_a_name_comes_before_an_id(stage):
    async with fleet_up(stage) as up:
        own = up.admin.worker("own").id
        async with hand(up.node, str(own), 7) as odd:

            async def there():
                return up.admin.worker(str(own)).id == odd.id

            await up.until(there)


async def test_draining_moves_everything_to_a_real_worker_and_resuming_brings_a_share_back(
    stage, upstream, tmp_path
):
    for n in range(4):
        upstream.create(f"team/x{n}")
    async with fleet_up(stage) as up:
        for n in range(4):
            await up.add(upstream.url(f"team/x{n}.git"))
            await up.until_status(f"team/x{n}", "active")
        other = stage.config(data={"dir": str(tmp_path / "other")}, worker={"name": "other"})
        async with working(up.node, other, "other", 7):
            await until_status(up, "other", "alive")

            async def shared():
                both = [up.admin.worker(name).seen.held for name in ("own", "other")]
                return all(both) and up.admin.view().totals.moving == 0

            await up.until(shared)
            keys = [up.key(f"team/x{n}") for n in range(4)]
            coordinator = up.node.coordinator
            moving = [k for k in keys if (await coordinator.holders(k))[0].worker == "own"]
            drained = await up.admin.drain("own", actor="alice")
            assert drained.duty is Duty.DRAINING

            async def moved():
                own, other = up.admin.worker("own").seen, up.admin.worker("other").seen
                return (own.held, other.held, up.admin.view().totals.moving) == (0, 4, 0)

            await up.until(moved)
            await until_status(up, "own", "draining")  # or suspect for a moment, on a busy machine
            totals = up.admin.view().totals
            assert (totals.owned, totals.held) == (4, 4)
            assert moving
            for key in moving:
                (holder,) = await coordinator.holders(key)
                assert (holder.worker, holder.primary, holder.state.name) == ("other", True, "HELD")
                assert holder.reason == "the worker that had it is being drained"
                assert any("On other, since" in line for line in await coordinator.why(key))
            assert up.admin.losing("other").alone == 4
            assert up.admin.losing("own") == fleet_admin.Losing(0, 0)
            await up.admin.drain("own", actor="bob")  # nothing new: done, and not noted
            await up.admin.resume("own", actor="alice")
            await up.until(shared)
        assert [(a, what, to) for a, what, to, _ in await audit(up) if what.startswith("worker.")] == [
            ("alice", "worker.drained", "own"),
            ("alice", "worker.resumed", "own"),
        ]


async def test_an_order_outlives_a_restart(stage):
    async with fleet_up(stage) as up:
        await up.admin.drain("own", actor="alice")
    async with fleet_up(stage) as up:
        assert up.admin.worker("own").duty is Duty.DRAINING


async def test_an_order_is_on_the_disk_when_it_is_answered(stage):
    async with fleet_up(stage) as up, hand(up.node, "second", 7):
        await until_status(up, "second", "alive")
        await up.admin.drain("second", actor="alice")
        stored = {w.facts.name: w.duty for w in (await up.node.lead.store.load_fleet()).workers}
        assert stored["second"] is Duty.DRAINING


async def test_a_full_disk_is_told_until_there_is_room(stage):
    async with fleet_up(stage) as up, hand(up.node, "second", 7):
        await until_status(up, "second", "alive")
        own = up.admin.worker("own").seen.record.id
        for accepting in (False, True):
            up.admin._statuses[own] = replace(up.admin._statuses[own], accepting_clones=accepting)
            told = [(a.kind.value, a.about) for a in up.admin.look().alerts]
            assert told == ([] if accepting else [("disk-full", "own")])


async def test_a_full_disk_is_no_less_full_while_its_worker_is_away(stage):
    async with fleet_up(stage) as up:
        watch = FleetWatch(up.admin.look, up.node.lead.alerting)
        async with hand(up.node, "second", 7):
            await until_status(up, "second", "alive")

            async def heard():
                return up.admin._now("second").is_heard

            await up.until(heard)
            second = up.admin.worker("second")
            up.admin._statuses[second.id] = replace(second.load, accepting_clones=False)
            watch.look()
            await until_stands(up, ("disk-full", "second", Level.WARNING))

        async def away():
            return not up.admin._now("second").is_heard

        await up.until(away)
        for _ in range(2):
            watch.look()
            await asyncio.sleep(0.2)
            assert ("disk-full", "second") in {r.alert.identity for r in up.node.lead.alerting.standing}


async def test_quarantine_is_told_with_its_reason_until_the_worker_is_resumed(stage):
    async with fleet_up(stage) as up, hand(up.node, "second", 7):
        await until_status(up, "second", "alive")
        await up.admin.quarantine("second", "serves other refs", actor="root")
        assert status(up, "second") == "quarantined"
        (alert,) = up.admin.view().alerts
        assert (alert.kind.value, alert.about) == ("quarantine", "second")
        assert "serves other refs" in alert.text
        assert alert.facts == {"reason": "serves other refs"}
        overview = await up.node.coordinator.overview()
        assert alert.text in overview.warnings
        watch = FleetWatch(up.admin.look, up.node.lead.alerting)
        for look in (lambda: None, watch.look):  # told when it happened, and from the state: the same alert
            look()
            await until_stands(up, ("quarantine", "second", Level.ERROR))
            assert [a.facts for a in up.node.lead.alerting.stands(FLEET_KINDS)] == [alert.facts]
        with pytest.raises(Conflict, match="quarantined"):
            await up.admin.drain("second", actor="alice")
        await up.admin.resume("second", actor="root")
        assert up.admin.view().alerts == ()
        watch.look()
        await until_stands(up)
        assert await audit(up) == [
            ("root", "worker.quarantined", "second", {"id": 1, "reason": "serves other refs"}),
            ("root", "worker.resumed", "second", {"id": 1}),
        ]


async def test_a_quarantine_is_told_after_a_restart_too(stage):
    async with fleet_up(stage) as up:
        await up.admin.quarantine("own", "odd", actor="root")
    async with fleet_up(stage) as up:
        assert [a.text for a in up.admin.view().alerts] == ["worker own is quarantined"]


async def test_a_retired_worker_is_sent_away_and_forgotten(stage):
    async with fleet_up(stage) as up:
        async with hand(up.node, "second", 7, held={"h/stray": DIGEST}) as second:
            await until_status(up, "second", "alive")

            async def stray():
                return any(a.kind.value == "stray" for a in up.admin.view().alerts)

            await up.until(stray)
            retired = await up.admin.retire("second", actor="root")
            assert (retired.seen.record.status, retired.seen.held) == ("retired", 0)
            assert [w.name for w in up.admin.view().workers] == ["own"]
            assert up.admin.view().alerts == (), "its strays are nobody's matter any more"

            async def told():
                return second.rejection() is not None

            await up.until(told)
            assert "retired" in second.rejection()
        with pytest.raises(NotFound):
            await up.admin.retire("second", actor="root")
        assert await audit(up) == [
            ("root", "worker.retired", "second", {"id": 1, "copies": 0, "alone": 0}),
        ]


async def test_the_worker_of_this_very_process_is_not_retired(stage):
    async with fleet_up(stage) as up:
        with pytest.raises(Conflict, match="this very process"):
            await up.admin.retire("own", actor="root")
        assert status(up, "own") == "alive"
        assert await audit(up) == []


async def test_a_silent_worker_is_suspect_then_down_and_its_falls_are_counted(stage):
    async with fleet_up(stage) as up, hand(up.node, "second", 7) as second:
        await until_status(up, "second", "alive")
        second.silent = True

        async def was_suspect():
            return "suspect" in [what for _, what in up.admin._now("second").seen.record.history]

        await up.until(was_suspect)  # it is so for a few tenths of a second
        await until_status(up, "second", "down")
        assert [a.text for a in up.admin.view().alerts] == ["worker second is down; its repos go to others"]
        seen = up.admin.worker("second")
        assert 0.99 < seen.flap_score <= 1.0
        assert [what for _, what in seen.seen.record.history] == ["joined", "suspect", "down"]
        second.silent = False
        await until_status(up, "second", "alive")
        assert up.admin.view().alerts == ()


async def test_the_brake_is_told_and_a_person_overrules_it(stage):
    async with (
        fleet_up(stage) as up,
        hand(up.node, "second", 7) as second,
        hand(up.node, "third", 8) as third,
    ):
        await until_status(up, "third", "alive")
        with pytest.raises(Conflict, match="not on"):
            await up.admin.overrule_brake(actor="alice")
        second.silent = third.silent = True

        async def braked():
            return up.admin.view().totals.braked

        await up.until(braked)
        await asyncio.sleep(0.8)  # longer than their grace
        assert (status(up, "second"), status(up, "third")) == ("suspect", "suspect")
        assert [a.kind.value for a in up.admin.view().alerts] == ["brake"]
        view = await up.admin.overrule_brake(actor="alice")
        assert [w.seen.record.status for w in view.workers] == ["alive", "down", "down"]
        assert not view.totals.braked
        assert await audit(up) == [
            ("alice", "fleet.brake-overruled", "fleet", {"suspect": 2, "workers": 3}),
        ]


async def test_repos_that_nobody_can_take_are_told(stage, upstream):
    repo = upstream.create("team/x")
    async with fleet_up(stage) as up:
        await up.add(repo.url)
        await up.until_status("team/x", "active")
        await up.admin.quarantine("own", "odd", actor="root")
        view = up.admin.view()
        assert (view.totals.no_room, view.totals.owned) == (1, 0)
        assert [a.kind.value for a in view.alerts] == ["no-room", "quarantine"]
        assert view.alerts[0].facts == {"count": "1"}
        assert up.admin.losing("own") == fleet_admin.Losing(0, 1), "its copy is still the only one"
        await up.admin.resume("own", actor="root")

        async def owned():
            return up.admin.view().totals.owned == 1 and up.admin.view().alerts == ()

        await up.until(owned)


async def test_what_cannot_be_noted_is_not_done(stage, monkeypatch):
    async def broken(*_):
        raise FailureError(Failure(FailureKind.UNKNOWN, "the disk is full"))

    async with fleet_up(stage) as up:
        monkeypatch.setattr(up.admin, "_store", type("Broken", (), {"audit": staticmethod(broken)}))
        with pytest.raises(FailureError):
            await up.admin.drain("own", actor="alice")
        assert status(up, "own") == "alive"


async def test_a_database_that_takes_nothing_in_is_not_waited_for_forever(stage, monkeypatch):
    monkeypatch.setattr(fleet_admin, "PERSIST_S", 0.2)
    async with fleet_up(stage) as up:
        store, gate = up.node.lead.store, asyncio.Event()
        apply = store.apply

        async def slow(batch):
            await gate.wait()
            await apply(batch)

        monkeypatch.setattr(up.node.lead.recorder, "_store", type("Slow", (), {"apply": staticmethod(slow)}))
        with pytest.raises(Unavailable, match="has not taken it in"):
            await up.admin.drain("own", actor="alice")
        gate.set()
        await until_status(up, "own", "draining")


async def test_a_look_is_kept_for_half_a_second_and_not_beyond_an_order(stage, monkeypatch):
    async with fleet_up(stage) as up:
        looks, clock = [], [1000.0]
        count = up.node.lead.fleet.machine.totals
        monkeypatch.setattr(up.node.lead.fleet.machine, "totals", lambda: looks.append(1) or count())
        monkeypatch.setattr(up.admin, "_mono", lambda: clock[0])
        for _ in range(5):
            up.admin.view()
        assert len(looks) == 1
        clock[0] += fleet_admin.VIEW_FRESH_S
        up.admin.view()
        assert len(looks) == 2
        await up.admin.drain("own", actor="alice")
        assert up.admin.view().workers[0].duty is Duty.DRAINING
